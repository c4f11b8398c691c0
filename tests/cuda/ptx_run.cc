/* ptx_run.cc - runs the blocks and warps of a grid: who runs next, which lanes stand where, who waits for whom. What an
 * instruction does to registers and memory is elsewhere (ptx_alu.cc, ptx_lanes.cc, ptx_memory.cc). */
#include "ptx_run.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace ptx {
namespace {

enum { MOST_WARPS = 32, MOST_RESIDENT = 64, STRETCH = 2000 /* instructions between turns, on average */ };
enum progress : uint8_t { READY, AT_BARRIER, DONE };

struct block;
struct grid;

struct group { /* lanes that stand at the same instruction */
    uint32_t pc, lanes;
    bool waits; /* for lanes that have not come */
};

struct warp : state {
    grid *of;
    block *in;
    unsigned number; /* in its block */
    group groups[LANES];
    unsigned n_groups;
    uint32_t finished;
    progress at;
    bool any; /* the next group to run is any, not the first */
    std::vector<uint32_t> memory, predicate_memory, written;
};

struct block {
    warp warps[MOST_WARPS];
    unsigned number, n_warps, at_barrier, done;
    uint32_t barrier_line;
    bool any, every; /* votes brought to the barrier */
    bool busy;
};

/* Kept by each thread that runs grids. */
struct grid {
    module *m;
    const entry *e;
    const cuda_on_host::kernel *k;
    cuda_on_host::schedule plan;
    const std::string *parameters;
    uint64_t random;
    unsigned countdown, atomics; /* to the next turn */
    std::vector<std::unique_ptr<block>> blocks;
    std::vector<unsigned> pending; /* blocks that have not begun */
    std::vector<warp *> ready;
    std::vector<uint64_t> executed;

    unsigned below(unsigned n) {
        random += 0x9e3779b97f4a7c15u;
        uint64_t x = random;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return static_cast<unsigned>(((x ^ x >> 31) >> 32) * n >> 32);
    }
};

/* >>messages */
std::string list_of(const warp &w, uint32_t lanes) { /* "threads 3, 5 to 9" */
    std::string text;
    unsigned first = w.number * LANES;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        unsigned last = lane;
        while (last + 1 < LANES && lanes >> (last + 1) & 1) last++;
        text += (text.empty() ? "" : ", ") + std::to_string(first + lane);
        if (last > lane) text += (last > lane + 1 ? " to " : ", ") + std::to_string(first + last);
        lane = last;
    }
    return (lanes & (lanes - 1) ? "threads " : "thread ") + text;
}

[[noreturn]] void end(const warp &w, uint32_t line, uint32_t lanes, const std::string &what) {
    const grid &g = *w.of;
    cuda_on_host::fail(g.k->at, "%s<<<%u, %u>>> as PTX, block %u, %s: PTX line %u, `%s`: %s", g.e->name.c_str(),
                       g.k->grid.x, g.k->block.x, w.in->number, list_of(w, lanes).c_str(), line,
                       g.m->line(line).c_str(), what.c_str());
}

/* Where the lanes are that an instruction waits for. */
std::string whereabouts(const warp &w, uint32_t without) {
    std::string text;
    if (w.finished) text = list_of(w, w.finished) + ": finished";
    for (unsigned i = 0; i < w.n_groups; i++) {
        const group &other = w.groups[i];
        if (other.lanes & without) continue;
        uint32_t line = w.of->m->code[other.pc].line;
        text += (text.empty() ? "" : "; ") + list_of(w, other.lanes) +
                (other.waits ? ": waiting at line " : ": at line ") + std::to_string(line);
    }
    return text;
}

/* >>lanes */
void check_written(const warp &w, const instruction &i, uint32_t active) {
    for (unsigned k = 0; k < i.n_reads; k++)
        if (uint32_t missing = active & ~w.written[i.reads[k]])
            end(w, i.line, missing,
                "reads a register that nobody has written (register operand " + std::to_string(k + 1) + ")");
}

/* Those of `lanes`, which all stand at `i`, whose mask's lanes are all here. */
uint32_t complete(const warp &w, const instruction &i, uint32_t lanes) {
    const uint32_t *masks = source(w, i.from[i.n_from - 1]);
    uint32_t ready = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        uint32_t mask = masks[lane], of_same_mask = 0;
        if (!(mask >> lane & 1)) end(w, i.line, 1u << lane, "is not in its own member mask");
        if (mask & w.finished) end(w, i.line, lanes, "waits for lanes that will not come: " + whereabouts(w, lanes));
        if (mask & ~lanes) continue;
        for (uint32_t others = mask; others; others &= others - 1)
            of_same_mask |= static_cast<uint32_t>(masks[first_lane(others)] == mask) << first_lane(others);
        if (of_same_mask != mask) end(w, i.line, lanes, "lanes that wait for each other have different member masks");
        ready |= mask;
        left &= ~mask | 1u << lane;
    }
    return ready;
}

void merge_groups(warp &w) {
    for (unsigned i = 0; i < w.n_groups; i++) {
        for (unsigned j = i + 1; j < w.n_groups;) {
            if (w.groups[i].pc != w.groups[j].pc) {
                j++;
                continue;
            }
            w.groups[i].lanes |= w.groups[j].lanes;
            w.groups[i].waits = false; /* it looks again */
            w.groups[j] = w.groups[--w.n_groups];
        }
    }
}

/* The group to run; false: none is left. */
bool choose_group(warp &w, unsigned *chosen) {
    unsigned runnable[LANES], n = 0, first = 0;
    merge_groups(w);
    if (!w.n_groups) return false;
    for (unsigned i = 0; i < w.n_groups; i++) {
        if (w.groups[i].waits) continue;
        if (!n || w.groups[i].pc < w.groups[first].pc) first = i;
        runnable[n++] = i;
    }
    if (!n) {
        const group &stuck = w.groups[0];
        end(w, w.of->m->code[stuck.pc].line, stuck.lanes,
            "waits for lanes that do not come: " + whereabouts(w, stuck.lanes));
    }
    *chosen = w.any ? runnable[w.of->below(n)] : first;
    w.any = false;
    return true;
}

/* >>barriers */
void arrive(warp &w, const instruction &i) {
    block &b = *w.in;
    if (b.done) end(w, i.line, ALL, std::to_string(b.done) + " warps of the block have finished, and do not come");
    if (b.at_barrier && b.barrier_line != i.line)
        end(w, i.line, ALL, "other warps of the block wait at the barrier of line " + std::to_string(b.barrier_line));
    if (!b.at_barrier) b.any = false, b.every = true;
    if (i.n != NO_VOTE) b.any |= w.predicates[i.from[0]] != 0, b.every &= w.predicates[i.from[0]] == ALL;
    b.barrier_line = i.line;
    w.at = AT_BARRIER;
    if (++b.at_barrier < b.n_warps) return;
    b.at_barrier = 0;
    for (unsigned k = 0; k < b.n_warps; k++) {
        b.warps[k].at = READY;
        if (i.n != NO_VOTE) {
            b.warps[k].predicates[i.to[0]] = (i.n == VOTE_OR ? b.any : b.every) ? ALL : 0u;
            b.warps[k].written[i.writes[0]] = ALL;
        }
        if (&b.warps[k] != &w) w.of->ready.push_back(&b.warps[k]);
    }
}

/* >>a warp */
enum outcome { GO_ON, LOOK, TURN };

/* What the lanes of a mask do when all of them are here; the others wait. */
outcome run_together(warp &w, const instruction &i, unsigned number) {
    group &now = w.groups[number];
    uint32_t ready = complete(w, i, now.lanes);
    if (!ready) {
        now.waits = true;
        return LOOK;
    }
    w.of->executed[now.pc]++;
    if (i.run) i.run(w, i, ready);
    for (unsigned k = 0; k < i.n_writes; k++) w.written[i.writes[k]] |= ready;
    if (uint32_t left = now.lanes & ~ready) w.groups[w.n_groups++] = {now.pc, left, true};
    now.lanes = ready, now.pc++;
    return w.n_groups > 1 ? LOOK : GO_ON;
}

/* The active lanes go to the target; the others, if there are any, are a group of their own. */
outcome run_branch(warp &w, group &now, uint32_t target, uint32_t active) {
    if (active == now.lanes) {
        now.pc = target;
        return w.n_groups > 1 ? LOOK : GO_ON;
    }
    now.pc++;
    if (!active) return GO_ON;
    now.lanes &= ~active;
    w.groups[w.n_groups++] = {target, active, false};
    return LOOK;
}

/* Runs a group to where others have to be looked at. */
outcome run_group(grid &g, warp &w, unsigned number) {
    group &now = w.groups[number];
    const instruction *code = g.m->code.data();
    uint32_t stop = UINT32_MAX; /* where the next group stands */
    for (unsigned i = 0; i < w.n_groups; i++)
        if (w.groups[i].pc > now.pc && w.groups[i].pc < stop) stop = w.groups[i].pc;
    for (;;) {
        const instruction &i = code[now.pc];
        if (--g.countdown == 0) {
            g.countdown = 1 + g.below(2 * STRETCH);
            return TURN;
        }
        uint32_t active = now.lanes & (w.predicates[i.guard] ^ i.negated);
        check_written(w, i, i.guard == ALWAYS ? active : now.lanes);
        if (i.next != TOGETHER) g.executed[now.pc]++;
        switch (i.next) {
        case STRAIGHT:
        case ATOMIC:
            i.run(w, i, active);
            for (unsigned k = 0; k < i.n_writes; k++) w.written[i.writes[k]] |= active;
            now.pc++;
            if (i.next == ATOMIC && g.plan.every && --g.atomics == 0) {
                g.atomics = 1 + g.below(2 * g.plan.every);
                return TURN;
            }
            break;
        case BRANCH:
            if (run_branch(w, now, i.target, active) == LOOK) return LOOK;
            break;
        case EXIT:
            w.finished |= active;
            now.lanes &= ~active, now.pc++;
            if (!now.lanes) w.groups[number] = w.groups[--w.n_groups];
            return LOOK;
        case TOGETHER:
            if (run_together(w, i, number) == LOOK) return LOOK;
            break;
        case BARRIER:
            if (w.finished)
                end(w, i.line, now.lanes, "a barrier that not all threads reach: " + whereabouts(w, now.lanes));
            if (now.lanes != ALL) {
                g.executed[now.pc]--;
                now.waits = true;
                return LOOK;
            }
            now.pc++;
            arrive(w, i);
            return TURN;
        case SLEEP:
            now.pc++;
            if (g.ready.empty()) sched_yield(); /* what it waits for is not of this kernel */
            return TURN;
        }
        if (now.pc == stop) return LOOK;
    }
}

/* Until it waits, ends, or it is another's turn. */
void run_warp(grid &g, warp &w) {
    unsigned number;
    while (choose_group(w, &number)) {
        if (run_group(g, w, number) == LOOK) continue;
        w.any = true;
        if (w.at == READY) g.ready.push_back(&w);
        return;
    }
    w.at = DONE;
    block &b = *w.in;
    if (b.at_barrier)
        for (unsigned k = 0; k < b.n_warps; k++)
            if (b.warps[k].at == AT_BARRIER)
                end(b.warps[k], b.barrier_line, ALL,
                    "a barrier that not all threads reach: warp " + std::to_string(w.number) +
                        " of the block has finished");
    if (++b.done == b.n_warps) b.busy = false;
}

/* >>blocks */
void fill(warp &w, special which, uint32_t first, uint32_t step) {
    for (unsigned lane = 0; lane < LANES; lane++) w.words[which * LANES + lane] = first + lane * step;
    w.written[which] = ALL;
}

void begin_warp(grid &g, block &b, unsigned number) {
    warp &w = b.warps[number];
    const entry &e = *g.e;
    if (w.memory.size() < e.n_words) w.memory.resize(e.n_words);
    if (w.predicate_memory.size() < e.n_predicates) w.predicate_memory.resize(e.n_predicates);
    w.written.assign(e.n_words / LANES + e.n_predicates, 0);
    w.words = w.memory.data(), w.predicates = w.predicate_memory.data(), w.constants = g.m->constants.data();
    w.parameters = g.parameters->data(), w.parameter_bytes = g.parameters->size();
    w.of = &g, w.in = &b, w.number = number;
    w.groups[0] = {e.begin, ALL, false}, w.n_groups = 1;
    w.finished = 0, w.at = READY, w.any = false;
    w.predicates[NEVER] = 0, w.predicates[ALWAYS] = ALL;
    w.written[e.n_words / LANES + NEVER] = w.written[e.n_words / LANES + ALWAYS] = ALL;
    fill(w, TID, number * LANES, 1), fill(w, CTAID, b.number, 0), fill(w, LANEID, 0, 1);
    fill(w, NTID, g.k->block.x, 0), fill(w, NCTAID, g.k->grid.x, 0);
    g.ready.push_back(&w);
}

void admit(grid &g) {
    for (unsigned slot = 0; slot < g.plan.resident && !g.pending.empty(); slot++) {
        if (g.blocks.size() <= slot) g.blocks.emplace_back(new block());
        block &b = *g.blocks[slot];
        if (b.busy) continue;
        unsigned i = g.below(static_cast<unsigned>(g.pending.size()));
        b.number = g.pending[i], b.n_warps = g.k->block.x / LANES, b.at_barrier = b.done = 0, b.busy = true;
        g.pending[i] = g.pending.back();
        g.pending.pop_back();
        for (unsigned k = 0; k < b.n_warps; k++) begin_warp(g, b, k);
    }
}

void begin_grid(grid &g, const cuda_on_host::schedule &s) {
    g.plan = s;
    if (g.plan.resident > MOST_RESIDENT) g.plan.resident = MOST_RESIDENT;
    g.random = s.seed;
    g.countdown = 1 + g.below(2 * STRETCH);
    g.atomics = s.every ? 1 + g.below(2 * s.every) : 0;
    g.ready.clear(), g.pending.resize(g.k->grid.x);
    for (unsigned i = 0; i < g.k->grid.x; i++) g.pending[i] = i;
    for (auto &b : g.blocks) b->busy = false;
    g.executed.assign(g.m->code.size(), 0);
}

} // namespace

void refuse(const state &s, const instruction &i, uint32_t lanes, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    end(static_cast<const warp &>(s), i.line, lanes, text);
}

void run_grid(module &m, const entry &e, const std::string &parameters, const cuda_on_host::kernel &k,
              const cuda_on_host::schedule &s) {
    static thread_local grid g;
    g.m = &m, g.e = &e, g.k = &k, g.parameters = &parameters;
    begin_grid(g, s);
    admit(g);
    while (!g.ready.empty() && !s.lost->load(std::memory_order_relaxed)) {
        unsigned i = g.below(static_cast<unsigned>(g.ready.size()));
        warp *w = g.ready[i];
        g.ready[i] = g.ready.back();
        g.ready.pop_back();
        run_warp(g, *w);
        if (!w->in->busy) admit(g);
    }
    for (uint32_t pc = e.begin; pc < e.end; pc++)
        if (g.executed[pc]) m.executed[pc].fetch_add(g.executed[pc], std::memory_order_relaxed);
}

} // namespace ptx
