/* ptx_alu.cc - instructions of PTX that compute: each a function of one lane's values, run for all 32.
 *
 * Floats are computed as PTX says: rounded to nearest, subnormals kept, every NaN that is computed is 0x7fffffff. What
 * rounds otherwise, and what ptxas may contract, is refused by name (find_form). Compiled with -ffp-contract=off. */
#include "ptx_module.h"

#include <math.h>

#include <map>
#include <type_traits>
#include <utility>

namespace ptx {
namespace {

/* >>from a function of a lane to one of a warp */
template <typename T> constexpr kind kind_of() {
    if (std::is_same_v<T, bool>) return PREDICATE;
    if (std::is_same_v<T, float>) return F32;
    return sizeof(T) == 2 ? B16 : sizeof(T) == 4 ? B32 : B64;
}
template <typename T> const uint32_t *operand_of(const state &s, int32_t at) {
    if (std::is_same_v<T, bool>) return s.predicates + at;
    return source(s, at);
}

/* Bit i is byte i's. */
uint32_t packed(const uint8_t truth[LANES]) {
    uint32_t bits = 0;
    for (unsigned part = 0; part < LANES / 8; part++) {
        uint64_t eight;
        memcpy(&eight, truth + 8 * part, 8);
        bits |= static_cast<uint32_t>(eight * 0x0102040810204080u >> 56) << 8 * part;
    }
    return bits;
}

template <auto F> struct of_lanes;
template <typename R, typename... A, R (*F)(A...)> struct of_lanes<F> {
    template <size_t... N> static void of_all(uint32_t *to, const uint32_t *const *from, std::index_sequence<N...>) {
        if constexpr (std::is_same_v<R, bool>) {
            uint8_t truth[LANES];
            for (unsigned lane = 0; lane < LANES; lane++) truth[lane] = F(get<A>(from[N], lane)...);
            *to = packed(truth);
        } else {
            R result[LANES]; /* the target may be a source */
            for (unsigned lane = 0; lane < LANES; lane++) result[lane] = F(get<A>(from[N], lane)...);
            for (unsigned lane = 0; lane < LANES; lane++) put(to, lane, result[lane]);
        }
    }
    template <size_t... N>
    static void of_some(uint32_t *to, const uint32_t *const *from, uint32_t active, std::index_sequence<N...>) {
        for (uint32_t left = active; left; left &= left - 1) {
            unsigned lane = first_lane(left);
            R result = F(get<A>(from[N], lane)...);
            if constexpr (std::is_same_v<R, bool>)
                *to = (*to & ~(1u << lane)) | static_cast<uint32_t>(result) << lane;
            else
                put(to, lane, result);
        }
    }
    template <size_t... N>
    static void run(state &s, const instruction &i, uint32_t active, std::index_sequence<N...> all) {
        const uint32_t *from[] = {operand_of<A>(s, i.from[N])...};
        uint32_t *to = std::is_same_v<R, bool> ? s.predicates + i.to[0] : s.words + i.to[0];
        if (active == ALL)
            of_all(to, from, all);
        else
            of_some(to, from, active, all);
    }
    static void run(state &s, const instruction &i, uint32_t active) {
        run(s, i, active, std::index_sequence_for<A...>());
    }
    static form make() {
        form f;
        f.run = run;
        f.to = {kind_of<R>()}, f.from = {kind_of<A>()...};
        return f;
    }
};

/* >>predicates, 32 at a time */
uint32_t first_of(uint32_t a, uint32_t) {
    return a;
}
uint32_t first_inverted(uint32_t a, uint32_t) {
    return ~a;
}
template <uint32_t (*F)(uint32_t, uint32_t)> void of_predicates(state &s, const instruction &i, uint32_t active) {
    uint32_t result = F(s.predicates[i.from[0]], s.predicates[i.from[i.n_from - 1]]);
    uint32_t &to = s.predicates[i.to[0]];
    to = (to & ~active) | (result & active);
}
template <uint32_t (*F)(uint32_t, uint32_t)> form predicate_form(unsigned n) {
    form f;
    f.run = of_predicates<F>;
    f.to = {PREDICATE}, f.from.assign(n, PREDICATE);
    return f;
}

/* >>integers; T is unsigned, so that they wrap */
template <typename T> using with_sign = std::make_signed_t<T>;
template <typename T> using twice = std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>;

template <typename T> T add(T a, T b) {
    return static_cast<T>(a + b);
}
template <typename T> T subtract(T a, T b) {
    return static_cast<T>(a - b);
}
template <typename T> T multiply(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * b);
}
template <typename T> T multiply_add(T a, T b, T c) {
    return static_cast<T>(static_cast<uint64_t>(a) * b + c);
}
template <typename T> twice<T> multiply_wide(T a, T b) {
    return static_cast<twice<T>>(static_cast<uint64_t>(a) * b);
}
template <typename T> twice<T> multiply_wide_signed(T a, T b) {
    return static_cast<twice<T>>(static_cast<int64_t>(static_cast<with_sign<T>>(a)) * static_cast<with_sign<T>>(b));
}
uint64_t multiply_add_wide(uint32_t a, uint32_t b, uint64_t c) {
    return static_cast<uint64_t>(a) * b + c;
}
uint64_t multiply_add_wide_signed(uint32_t a, uint32_t b, uint64_t c) {
    return multiply_wide_signed(a, b) + c;
}
__extension__ typedef unsigned __int128 uint128;
template <typename T> T multiply_high(T a, T b) {
    return static_cast<T>(static_cast<uint128>(a) * b >> 8 * sizeof(T));
}
template <typename T> T divide(T a, T b) { /* by 0: unspecified; so that it is seen, all ones */
    return b ? static_cast<T>(a / b) : static_cast<T>(~T(0));
}
template <typename T> T remainder(T a, T b) {
    return b ? static_cast<T>(a % b) : a;
}
template <typename T> T least(T a, T b) {
    return a < b ? a : b;
}
template <typename T> T most(T a, T b) {
    return a > b ? a : b;
}
template <typename T> T negate(T a) {
    return static_cast<T>(T(0) - a);
}
template <typename T> T bits_and(T a, T b) {
    return a & b;
}
template <typename T> T bits_or(T a, T b) {
    return a | b;
}
template <typename T> T bits_xor(T a, T b) {
    return a ^ b;
}
template <typename T> T bits_not(T a) {
    return static_cast<T>(~a);
}
template <typename T> T shift_left(T a, uint32_t n) {
    return n < 8 * sizeof(T) ? static_cast<T>(a << n) : T(0);
}
template <typename T> T shift_right(T a, uint32_t n) { /* of a signed T: with copies of the sign */
    return n < 8 * sizeof(T) ? static_cast<T>(a >> n) : a < T(0) ? static_cast<T>(-1) : T(0);
}
template <typename T> uint32_t count_ones(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
}
template <typename T> uint32_t leading_zeros(T a) {
    unsigned unused = 64 - 8 * sizeof(T);
    return a ? static_cast<uint32_t>(__builtin_clzll(a)) - unused : static_cast<uint32_t>(8 * sizeof(T));
}
template <typename T> uint32_t find_highest(T a) {
    return a ? static_cast<uint32_t>(63 - __builtin_clzll(a)) : 0xffffffffu;
}
template <typename T> uint32_t shift_to_highest(T a) {
    return a ? leading_zeros(a) : 0xffffffffu;
}
template <typename T> T reverse(T a) {
    T reversed = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++)
        reversed = static_cast<T>(reversed | (a >> i & 1) << (8 * sizeof(T) - 1 - i));
    return reversed;
}

template <typename T> T insert(T from, T into, uint32_t at, uint32_t n) { /* the first n bits of `from` */
    at &= 255, n &= 255;
    T ones = n < 8 * sizeof(T) ? static_cast<T>((T(1) << n) - 1) : static_cast<T>(~T(0));
    return (into & ~shift_left(ones, at)) | shift_left(static_cast<T>(from & ones), at);
}

/* >>floats */
float canonical(float x) { /* what a GPU makes of every NaN that it computes */
    uint32_t nan = 0x7fffffffu;
    float result;
    memcpy(&result, &nan, 4);
    return x == x ? x : result;
}
float add_float(float a, float b) {
    return canonical(a + b);
}
float subtract_float(float a, float b) {
    return canonical(a - b);
}
float multiply_float(float a, float b) {
    return canonical(a * b);
}
float divide_float(float a, float b) {
    return canonical(a / b);
}
float fused(float a, float b, float c) {
    return canonical(fmaf(a, b, c));
}
float root(float a) {
    return canonical(sqrtf(a));
}
float negate_float(float a) {
    return canonical(-a);
}
float magnitude(float a) {
    return canonical(fabsf(a));
}
float least_float(float a, float b) { /* the other one where one is NaN; -0 is less than +0 */
    if (a != a || b != b) return canonical(a != a ? b : a);
    return a < b || (a == b && signbit(a)) ? a : b;
}
float most_float(float a, float b) {
    if (a != a || b != b) return canonical(a != a ? b : a);
    return a > b || (a == b && !signbit(a)) ? a : b;
}
template <typename T> float to_float(T a) {
    return static_cast<float>(a);
}
uint32_t to_integer(float a) { /* towards 0; what is too large, to the limit; NaN to 0 */
    if (!(a > -2147483648.0f)) return a == a ? 0x80000000u : 0;
    return a < 2147483648.0f ? static_cast<uint32_t>(static_cast<int32_t>(a)) : 0x7fffffffu;
}

/* >>moves, comparisons, choices */
template <typename T> T copy(T a) {
    return a;
}
template <typename R, typename T> R convert(T a) {
    return static_cast<R>(a);
}
template <typename T> T choose(T a, T b, bool first) {
    return first ? a : b;
}
template <typename T> bool equal(T a, T b) {
    return a == b;
}
template <typename T> bool differ(T a, T b) { /* of floats: and none is NaN */
    return a < b || a > b;
}
template <typename T> bool less(T a, T b) {
    return a < b;
}
template <typename T> bool less_or_equal(T a, T b) {
    return a <= b;
}
template <typename T> bool greater(T a, T b) {
    return a > b;
}
template <typename T> bool greater_or_equal(T a, T b) {
    return a >= b;
}
template <bool (*F)(float, float)> bool or_unordered(float a, float b) {
    return a != a || b != b || F(a, b);
}

/* >>the table: names, each with the suffixes of the types that it has */
using table = std::map<std::string, form>;

template <typename T> void add_sized(table &t, const std::string &b) { /* b: "32" */
    const std::string u = ".u" + b, s = ".s" + b, bits = ".b" + b;
    for (const std::string &type : {u, s}) {
        t["add" + type] = of_lanes<add<T>>::make();
        t["sub" + type] = of_lanes<subtract<T>>::make();
        t["mul.lo" + type] = of_lanes<multiply<T>>::make();
        t["mad.lo" + type] = of_lanes<multiply_add<T>>::make();
        t["selp" + type] = of_lanes<choose<T>>::make();
    }
    using S = with_sign<T>;
    t["selp" + bits] = of_lanes<choose<T>>::make();
    t["neg" + s] = of_lanes<negate<T>>::make();
    t["min" + u] = of_lanes<least<T>>::make(), t["min" + s] = of_lanes<least<S>>::make();
    t["max" + u] = of_lanes<most<T>>::make(), t["max" + s] = of_lanes<most<S>>::make();
    t["mul.hi" + u] = of_lanes<multiply_high<T>>::make();
    t["div" + u] = of_lanes<divide<T>>::make(), t["rem" + u] = of_lanes<remainder<T>>::make();
    t["and" + bits] = of_lanes<bits_and<T>>::make(), t["or" + bits] = of_lanes<bits_or<T>>::make();
    t["xor" + bits] = of_lanes<bits_xor<T>>::make(), t["not" + bits] = of_lanes<bits_not<T>>::make();
    t["shl" + bits] = of_lanes<shift_left<T>>::make();
    t["shr" + u] = of_lanes<shift_right<T>>::make(), t["shr" + s] = of_lanes<shift_right<S>>::make();
    t["setp.eq" + bits] = of_lanes<equal<T>>::make(), t["setp.ne" + bits] = of_lanes<differ<T>>::make();
}

template <typename T> void add_counts(table &t, const std::string &b) {
    t["bfi.b" + b] = of_lanes<insert<T>>::make();
    t["popc.b" + b] = of_lanes<count_ones<T>>::make();
    t["clz.b" + b] = of_lanes<leading_zeros<T>>::make();
    t["brev.b" + b] = of_lanes<reverse<T>>::make();
    t["bfind.u" + b] = of_lanes<find_highest<T>>::make();
    t["bfind.shiftamt.u" + b] = of_lanes<shift_to_highest<T>>::make();
}

template <typename T> void add_compares(table &t, const std::string &type) {
    t["setp.eq" + type] = of_lanes<equal<T>>::make(), t["setp.ne" + type] = of_lanes<differ<T>>::make();
    t["setp.lt" + type] = of_lanes<less<T>>::make(), t["setp.le" + type] = of_lanes<less_or_equal<T>>::make();
    t["setp.gt" + type] = of_lanes<greater<T>>::make(), t["setp.ge" + type] = of_lanes<greater_or_equal<T>>::make();
}

template <typename T> void add_moves(table &t, const std::string &type) {
    t["mov" + type] = of_lanes<copy<T>>::make();
    t["mov" + type].operands = form::MOVE;
}

void add_floats(table &t) {
    t["add.rn.f32"] = of_lanes<add_float>::make(), t["sub.rn.f32"] = of_lanes<subtract_float>::make();
    t["mul.rn.f32"] = of_lanes<multiply_float>::make(), t["div.rn.f32"] = of_lanes<divide_float>::make();
    t["fma.rn.f32"] = of_lanes<fused>::make(), t["sqrt.rn.f32"] = of_lanes<root>::make();
    t["neg.f32"] = of_lanes<negate_float>::make(), t["abs.f32"] = of_lanes<magnitude>::make();
    t["min.f32"] = of_lanes<least_float>::make(), t["max.f32"] = of_lanes<most_float>::make();
    t["selp.f32"] = of_lanes<choose<float>>::make();
    add_compares<float>(t, ".f32");
    t["setp.equ.f32"] = of_lanes<or_unordered<equal<float>>>::make();
    t["setp.neu.f32"] = of_lanes<or_unordered<differ<float>>>::make();
    t["setp.ltu.f32"] = of_lanes<or_unordered<less<float>>>::make();
    t["setp.leu.f32"] = of_lanes<or_unordered<less_or_equal<float>>>::make();
    t["setp.gtu.f32"] = of_lanes<or_unordered<greater<float>>>::make();
    t["setp.geu.f32"] = of_lanes<or_unordered<greater_or_equal<float>>>::make();
    t["cvt.rn.f32.u32"] = of_lanes<to_float<uint32_t>>::make(),
    t["cvt.rn.f32.s32"] = of_lanes<to_float<int32_t>>::make();
    t["cvt.rzi.s32.f32"] = of_lanes<to_integer>::make();
    t["cvt.rn.f32.u64"] = of_lanes<to_float<uint64_t>>::make(),
    t["cvt.rn.f32.s64"] = of_lanes<to_float<int64_t>>::make();
}

/* From an integer to another: as the source's type has a sign. Narrowing cuts. */
template <typename T> void add_conversions(table &t, const std::string &type) {
    t["cvt.u16" + type] = t["cvt.s16" + type] = of_lanes<convert<uint16_t, T>>::make();
    t["cvt.u32" + type] = t["cvt.s32" + type] = of_lanes<convert<uint32_t, T>>::make();
    t["cvt.u64" + type] = t["cvt.s64" + type] = of_lanes<convert<uint64_t, T>>::make();
}

void add_predicates(table &t) {
    t["and.pred"] = predicate_form<bits_and<uint32_t>>(2), t["or.pred"] = predicate_form<bits_or<uint32_t>>(2);
    t["xor.pred"] = predicate_form<bits_xor<uint32_t>>(2);
    t["not.pred"] = predicate_form<first_inverted>(1);
    t["mov.pred"] = predicate_form<first_of>(1);
}

table make_table() {
    table t;
    add_sized<uint16_t>(t, "16"), add_sized<uint32_t>(t, "32"), add_sized<uint64_t>(t, "64");
    add_counts<uint32_t>(t, "32"), add_counts<uint64_t>(t, "64");
    add_compares<uint16_t>(t, ".u16"), add_compares<int16_t>(t, ".s16");
    add_compares<uint32_t>(t, ".u32"), add_compares<int32_t>(t, ".s32");
    add_compares<uint64_t>(t, ".u64"), add_compares<int64_t>(t, ".s64");
    add_floats(t), add_predicates(t);
    for (const char *type : {".u16", ".s16", ".b16"}) add_moves<uint16_t>(t, type);
    for (const char *type : {".u32", ".s32", ".b32"}) add_moves<uint32_t>(t, type);
    for (const char *type : {".u64", ".s64", ".b64"}) add_moves<uint64_t>(t, type);
    add_moves<float>(t, ".f32");
    t["cvta.to.global.u64"] = t["cvta.global.u64"] = of_lanes<copy<uint64_t>>::make();
    t["mul.wide.u16"] = of_lanes<multiply_wide<uint16_t>>::make();
    t["mul.wide.s16"] = of_lanes<multiply_wide_signed<uint16_t>>::make();
    t["mul.wide.u32"] = of_lanes<multiply_wide<uint32_t>>::make();
    t["mul.wide.s32"] = of_lanes<multiply_wide_signed<uint32_t>>::make();
    t["mad.wide.u32"] = of_lanes<multiply_add_wide>::make(),
    t["mad.wide.s32"] = of_lanes<multiply_add_wide_signed>::make();
    add_conversions<uint16_t>(t, ".u16"), add_conversions<int16_t>(t, ".s16");
    add_conversions<uint32_t>(t, ".u32"), add_conversions<int32_t>(t, ".s32");
    add_conversions<uint64_t>(t, ".u64"), add_conversions<int64_t>(t, ".s64");
    return t;
}

} // namespace

static const table &all_forms() {
    static const table known = make_table();
    return known;
}

bool find_alu_form(const std::string &name, form *found) {
    auto at = all_forms().find(name);
    if (at != all_forms().end()) *found = at->second;
    return at != all_forms().end();
}

std::vector<std::string> alu_forms() {
    std::vector<std::string> names;
    for (const auto &each : all_forms()) names.push_back(each.first);
    return names;
}

} // namespace ptx
