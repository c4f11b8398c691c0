/* ptx_lanes.cc - instructions of PTX that lanes do together, and those that say what comes next. A shuffle or vote runs
 * when all lanes of its member mask have come (ptx_run.cc), so that here every lane that takes part is active. */
#include "ptx_module.h"

namespace ptx {
namespace {

/* >>shuffles: the lane that each reads, as the manual of PTX writes it down */
struct reader {
    int lane, b, lowest, highest; /* highest: of the lanes that may be read, going up; for shfl.up the lowest */
    int segment;
};
int read_up(const reader &r) {
    return r.lane - r.b >= r.highest ? r.lane - r.b : -1;
}
int read_down(const reader &r) {
    return r.lane + r.b <= r.highest ? r.lane + r.b : -1;
}
int read_butterfly(const reader &r) {
    return (r.lane ^ r.b) <= r.highest ? r.lane ^ r.b : -1;
}
int read_indexed(const reader &r) {
    int lane = r.lowest | (r.b & ~r.segment);
    return lane <= r.highest ? lane : -1;
}

template <int (*FROM)(const reader &)> void shuffle(state &s, const instruction &i, uint32_t active) {
    uint32_t values[LANES];
    for (unsigned lane = 0; lane < LANES; lane++) values[lane] = get<uint32_t>(source(s, i.from[0]), lane);
    for (uint32_t left = active; left; left &= left - 1) {
        int lane = static_cast<int>(first_lane(left)),
            c = static_cast<int>(get<uint32_t>(source(s, i.from[2]), first_lane(left)));
        reader r = {lane, static_cast<int>(get<uint32_t>(source(s, i.from[1]), first_lane(left)) & 31), 0, 0,
                    c >> 8 & 31};
        r.lowest = lane & r.segment, r.highest = r.lowest | (c & 31 & ~r.segment);
        int from = FROM(r);
        bool valid = from >= 0;
        if (!valid) from = lane;
        if (!(get<uint32_t>(source(s, i.from[3]), first_lane(left)) >> from & 1))
            refuse(s, i, 1u << lane, "reads lane %d, which is not in its member mask", from);
        put(s.words + i.to[0], first_lane(left), values[from]);
        if (i.to[1] >= 0) {
            uint32_t &p = s.predicates[i.to[1]];
            p = (p & ~(1u << lane)) | static_cast<uint32_t>(valid) << lane;
        }
    }
}

/* >>votes, among the lanes of equal masks */
enum vote { ANY_OF, ALL_OF, UNIFORM, BALLOT };
template <vote WHAT> void count_votes(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        uint32_t mask = get<uint32_t>(source(s, i.from[1]), lane), yes = s.predicates[i.from[0]] & mask;
        if (WHAT == BALLOT) {
            put(s.words + i.to[0], lane, yes);
            continue;
        }
        uint32_t result = WHAT == ANY_OF ? yes != 0 : WHAT == ALL_OF ? yes == mask : yes == mask || !yes;
        uint32_t &p = s.predicates[i.to[0]];
        p = (p & ~(1u << lane)) | result << lane;
    }
}

form together(operation run, std::vector<kind> to, std::vector<kind> from) {
    form f;
    f.run = run, f.next = TOGETHER, f.to = std::move(to), f.from = std::move(from);
    f.second_to = f.to.size() == 2;
    return f;
}
form barrier(barrier_vote vote) {
    form f;
    f.next = BARRIER, f.n = vote;
    f.operands = vote == NO_VOTE ? form::NUMBER : form::VOTE_AT_NUMBER;
    if (vote != NO_VOTE) f.to = f.from = {PREDICATE};
    return f;
}
form going(flow next) {
    form f;
    f.next = next;
    if (next == BRANCH) f.operands = form::LABEL;
    return f;
}

} // namespace

bool find_lane_form(const std::string &name, form *found) {
    const std::vector<kind> shuffled = {B32, PREDICATE}, from = {B32, B32, B32, B32};
    if (name == "shfl.sync.up.b32")
        *found = together(shuffle<read_up>, shuffled, from);
    else if (name == "shfl.sync.down.b32")
        *found = together(shuffle<read_down>, shuffled, from);
    else if (name == "shfl.sync.bfly.b32")
        *found = together(shuffle<read_butterfly>, shuffled, from);
    else if (name == "shfl.sync.idx.b32")
        *found = together(shuffle<read_indexed>, shuffled, from);
    else if (name == "vote.sync.any.pred")
        *found = together(count_votes<ANY_OF>, {PREDICATE}, {PREDICATE, B32});
    else if (name == "vote.sync.all.pred")
        *found = together(count_votes<ALL_OF>, {PREDICATE}, {PREDICATE, B32});
    else if (name == "vote.sync.uni.pred")
        *found = together(count_votes<UNIFORM>, {PREDICATE}, {PREDICATE, B32});
    else if (name == "vote.sync.ballot.b32")
        *found = together(count_votes<BALLOT>, {B32}, {PREDICATE, B32});
    else if (name == "bar.warp.sync")
        *found = together(nullptr, {}, {B32});
    else if (name == "bar.sync")
        *found = barrier(NO_VOTE);
    else if (name == "bar.red.or.pred")
        *found = barrier(VOTE_OR);
    else if (name == "bar.red.and.pred")
        *found = barrier(VOTE_AND);
    else if (name == "nanosleep.u32")
        *found = together(nullptr, {}, {B32}), found->next = SLEEP;
    else if (name == "ret" || name == "exit")
        *found = going(EXIT);
    else if (name == "bra" || name == "bra.uni")
        *found = going(BRANCH);
    else
        return false;
    return true;
}

} // namespace ptx
