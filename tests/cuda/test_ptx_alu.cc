/* test_ptx_alu.cc - every instruction of ptx_alu.cc against its meaning, written down another way: integers as 128 bits
 * that are cut, floats by double and by rounding to odd. Each runs for whole warps and, under a predicate, for some
 * lanes. */
#include "ptx_try.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include <functional>
#include <map>

namespace {

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 wide_bits;
enum { THREADS = 2048, BLOCK = 128, MOST = 4 /* operands */ };

class meaning {
    std::function<uint64_t(const uint64_t *)> of;

  public:
    meaning() = default;
    template <typename F> meaning(F f) {
        if constexpr (std::is_invocable_v<F, uint64_t, uint64_t, uint64_t>)
            of = [f](const uint64_t *in) { return static_cast<uint64_t>(f(in[0], in[1], in[2])); };
        else
            of = [f](const uint64_t *in) { return static_cast<uint64_t>(f(in[0], in[1], in[2], in[3])); };
    }
    uint64_t operator()(const uint64_t in[MOST]) const {
        return of(in);
    }
};

/* >>integers, of `bits` bits */
struct type {
    unsigned bits;
    bool has_sign;

    std::string name() const {
        return (has_sign ? ".s" : ".u") + std::to_string(bits);
    }
    wide value(uint64_t x) const {
        wide v = x & mask();
        return has_sign && v >> (bits - 1) ? v - (static_cast<wide>(1) << bits) : v;
    }
    uint64_t mask() const {
        return bits == 64 ? ~0ull : (1ull << bits) - 1;
    }
    uint64_t cut(wide v) const {
        return static_cast<uint64_t>(v) & mask();
    }
    uint64_t product(uint64_t a, uint64_t b) const { /* without a sign: wide has no room for all */
        return cut(static_cast<wide>(static_cast<wide_bits>(value(a)) * static_cast<wide_bits>(value(b))));
    }
    wide divided_down(wide v, uint64_t n) const { /* by 2^n */
        wide power = static_cast<wide>(1) << (n > 64 ? 64 : n);
        return v >= 0 ? v / power : -((-v + power - 1) / power);
    }
};

using table = std::map<std::string, meaning>;

void add_integers(table &t, type of) {
    std::string n = of.name();
    t["add" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.cut(of.value(a) + of.value(b)); };
    t["sub" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.cut(of.value(a) - of.value(b)); };
    t["mul.lo" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.product(a, b); };
    t["mad.lo" + n] = [of](uint64_t a, uint64_t b, uint64_t c) {
        return of.cut(static_cast<wide>(of.product(a, b)) + of.value(c));
    };
    t["min" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) > of.value(b) ? of.cut(b) : of.cut(a); };
    t["max" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) > of.value(b) ? of.cut(a) : of.cut(b); };
    t["shr" + n] = [of](uint64_t a, uint64_t b, uint64_t) {
        return of.cut(of.divided_down(of.value(a), b & 0xffffffff));
    };
    t["selp" + n] = [of](uint64_t a, uint64_t b, uint64_t c) { return of.cut(c & 1 ? a : b); };
    t["mov" + n] = [of](uint64_t a, uint64_t, uint64_t) { return of.cut(a); };
    t["setp.eq" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) == of.value(b); };
    t["setp.ne" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) != of.value(b); };
    t["setp.lt" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) - of.value(b) < 0; };
    t["setp.le" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(a) - of.value(b) < 1; };
    t["setp.gt" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(b) - of.value(a) < 0; };
    t["setp.ge" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return of.value(b) - of.value(a) < 1; };
    for (type to : {type{16, false}, {16, true}, {32, false}, {32, true}, {64, false}, {64, true}})
        t["cvt" + to.name() + n] = [of, to](uint64_t a, uint64_t, uint64_t) { return to.cut(of.value(a)); };
    if (of.has_sign) {
        t["neg" + n] = [of](uint64_t a, uint64_t, uint64_t) { return of.cut(-of.value(a)); };
    } else {
        t["mul.hi" + n] = [of](uint64_t a, uint64_t b, uint64_t) {
            return static_cast<uint64_t>(static_cast<wide_bits>(of.cut(a)) * of.cut(b) >> of.bits);
        };
        t["div" + n] = [of](uint64_t a, uint64_t b, uint64_t) {
            return of.cut(b) ? of.cut(of.value(a) / of.value(b)) : of.mask();
        };
        t["rem" + n] = [of](uint64_t a, uint64_t b, uint64_t) {
            return of.cut(b) ? of.cut(of.value(a) % of.value(b)) : of.cut(a);
        };
    }
    if (of.bits == 64) return;
    type twice = {2 * of.bits, of.has_sign};
    t["mul.wide" + n] = [of, twice](uint64_t a, uint64_t b, uint64_t) { return twice.cut(of.value(a) * of.value(b)); };
    if (of.bits == 32)
        t["mad.wide" + n] = [of, twice](uint64_t a, uint64_t b, uint64_t c) {
            return twice.cut(of.value(a) * of.value(b) + static_cast<wide>(c));
        };
}

std::string digits(uint64_t x, unsigned bits) { /* binary */
    std::string text(bits, '0');
    for (unsigned i = 0; i < bits; i++) text[bits - 1 - i] = static_cast<char>('0' + (x >> i & 1));
    return text;
}

void add_bits(table &t, unsigned bits) {
    type of = {bits, false};
    std::string n = ".b" + std::to_string(bits), u = of.name();
    t["and" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return ~(~a | ~b) & of.mask(); };
    t["or" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return ~(~a & ~b) & of.mask(); };
    t["xor" + n] = [of](uint64_t a, uint64_t b, uint64_t) { return ((a | b) & ~(a & b)) & of.mask(); };
    t["not" + n] = [of](uint64_t a, uint64_t, uint64_t) { return of.cut(-1 - static_cast<wide>(a)); };
    t["shl" + n] = [of](uint64_t a, uint64_t b, uint64_t) {
        uint64_t doubled = a;
        for (uint64_t i = 0; i < (b & 0xffffffff) && i < 64; i++) doubled *= 2;
        return (b & 0xffffffff) < 64 ? doubled & of.mask() : 0;
    };
    t["selp" + n] = t["selp" + u], t["mov" + n] = t["mov" + u];
    t["setp.eq" + n] = t["setp.eq" + u], t["setp.ne" + n] = t["setp.ne" + u];
    if (bits == 16) return;
    t["bfi" + n] = [bits](uint64_t a, uint64_t b, uint64_t at, uint64_t count) {
        std::string from = digits(a, bits), into = digits(b, bits);
        for (uint64_t i = 0; i < (count & 255) && i < bits && i + (at & 255) < bits; i++)
            into[bits - 1 - i - (at & 255)] = from[bits - 1 - i];
        return std::stoull(into, nullptr, 2);
    };
    t["popc" + n] = [bits](uint64_t a, uint64_t, uint64_t) {
        uint64_t ones = 0;
        for (char digit : digits(a, bits)) ones += digit == '1';
        return ones;
    };
    t["clz" + n] = [bits](uint64_t a, uint64_t, uint64_t) {
        size_t first = digits(a, bits).find('1');
        return first == std::string::npos ? static_cast<uint64_t>(bits) : static_cast<uint64_t>(first);
    };
    t["brev" + n] = [bits](uint64_t a, uint64_t, uint64_t) {
        std::string text = digits(a, bits);
        return std::stoull(std::string(text.rbegin(), text.rend()), nullptr, 2);
    };
    t["bfind" + u] = [bits](uint64_t a, uint64_t, uint64_t) {
        size_t first = digits(a, bits).find('1');
        return first == std::string::npos ? 0xffffffffull : static_cast<uint64_t>(bits - 1 - first);
    };
    t["bfind.shiftamt" + u] = [bits](uint64_t a, uint64_t, uint64_t) {
        size_t first = digits(a, bits).find('1');
        return first == std::string::npos ? 0xffffffffull : static_cast<uint64_t>(first);
    };
}

/* >>floats */
double real(uint64_t bits) {
    uint32_t low = static_cast<uint32_t>(bits);
    float x;
    memcpy(&x, &low, 4);
    return static_cast<double>(x);
}
uint64_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return x != x ? 0x7fffffffu : bits;
}
/* A double has more than twice the digits of a float, so that rounding twice is rounding once. */
uint64_t rounded(double x) {
    return bits_of(static_cast<float>(x));
}
/* a * b + c, rounded once: the product is exact, the sum is rounded to odd, and that to a float. */
uint64_t rounded_sum_of_product(double a, double b, double c) {
    volatile double p = a * b, s = p + c, back = s - p, rest = (p - (s - back)) + (c - back);
    double sum = s;
    if (std::isfinite(sum) && rest != 0) {
        uint64_t bits;
        memcpy(&bits, &sum, 8);
        if (bits % 2 == 0) bits += (rest > 0) == (sum > 0) ? 1u : ~0ull;
        memcpy(&sum, &bits, 8);
    }
    return rounded(sum);
}
/* An integer to a float: the candidates around it are compared, not cast. */
uint64_t nearest(wide v) {
    bool negative = v < 0;
    wide left = negative ? -v : v, unit = 1;
    while (left / unit >> 24) unit *= 2;
    wide q = left / unit, rest = left % unit;
    if (rest * 2 > unit || (rest * 2 == unit && q % 2)) q++;
    double x = static_cast<double>(static_cast<int64_t>(q)) * static_cast<double>(static_cast<uint64_t>(unit));
    return rounded(negative ? -x : x);
}

void add_floats(table &t) {
    t["add.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t) { return rounded(real(a) + real(b)); };
    t["sub.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t) { return rounded(real(a) - real(b)); };
    t["mul.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t) { return rounded(real(a) * real(b)); };
    t["div.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t) { return rounded(real(a) / real(b)); };
    t["sqrt.rn.f32"] = [](uint64_t a, uint64_t, uint64_t) { return rounded(sqrt(real(a))); };
    t["fma.rn.f32"] = [](uint64_t a, uint64_t b, uint64_t c) {
        return rounded_sum_of_product(real(a), real(b), real(c));
    };
    t["neg.f32"] = [](uint64_t a, uint64_t, uint64_t) { return rounded(-real(a)); };
    t["abs.f32"] = [](uint64_t a, uint64_t, uint64_t) { return rounded(std::signbit(real(a)) ? -real(a) : real(a)); };
    t["min.f32"] = [](uint64_t a, uint64_t b, uint64_t) {
        if (std::isnan(real(a)) || std::isnan(real(b))) return rounded(std::isnan(real(a)) ? real(b) : real(a));
        if (real(a) == real(b)) return rounded(std::signbit(real(a)) ? real(a) : real(b));
        return rounded(real(a) > real(b) ? real(b) : real(a));
    };
    t["max.f32"] = [](uint64_t a, uint64_t b, uint64_t) {
        if (std::isnan(real(a)) || std::isnan(real(b))) return rounded(std::isnan(real(a)) ? real(b) : real(a));
        if (real(a) == real(b)) return rounded(std::signbit(real(a)) ? real(b) : real(a));
        return rounded(real(a) > real(b) ? real(a) : real(b));
    };
    t["selp.f32"] = [](uint64_t a, uint64_t b, uint64_t c) { return (c & 1 ? a : b) & 0xffffffffu; };
    t["mov.f32"] = [](uint64_t a, uint64_t, uint64_t) { return a & 0xffffffffu; };
    struct {
        const char *name;
        bool less, equal, greater;
    } const compares[] = {{"eq", false, true, false}, {"ne", true, false, true},  {"lt", true, false, false},
                          {"le", true, true, false},  {"gt", false, false, true}, {"ge", false, true, true}};
    for (auto c : compares) {
        for (bool unordered : {false, true}) {
            t[std::string("setp.") + c.name + (unordered ? "u" : "") + ".f32"] = [c, unordered](uint64_t x, uint64_t y,
                                                                                                uint64_t) {
                double a = real(x), b = real(y);
                return static_cast<uint64_t>(std::isnan(a) || std::isnan(b) ? unordered
                                             : a < b                        ? c.less
                                             : a > b                        ? c.greater
                                                                            : c.equal);
            };
        }
    }
    for (type of : {type{32, false}, {32, true}, {64, false}, {64, true}})
        t["cvt.rn.f32" + of.name()] = [of](uint64_t a, uint64_t, uint64_t) { return nearest(of.value(a)); };
}

void add_truncation(table &t) {
    t["cvt.rzi.s32.f32"] = [](uint64_t a, uint64_t, uint64_t) {
        double x = std::isnan(real(a)) ? 0 : std::trunc(real(a));
        x = std::fmin(std::fmax(x, -0x1p31), 0x1p31 - 1);
        return static_cast<uint64_t>(static_cast<int64_t>(x)) & 0xffffffffu;
    };
}

void add_predicates(table &t) {
    t["and.pred"] = [](uint64_t a, uint64_t b, uint64_t) { return (a & b) & 1; };
    t["or.pred"] = [](uint64_t a, uint64_t b, uint64_t) { return (a | b) & 1; };
    t["xor.pred"] = [](uint64_t a, uint64_t b, uint64_t) { return (a + b) & 1; };
    t["not.pred"] = [](uint64_t a, uint64_t, uint64_t) { return (a + 1) & 1; };
    t["mov.pred"] = [](uint64_t a, uint64_t, uint64_t) { return a & 1; };
}

table meanings() {
    table t;
    for (unsigned bits : {16u, 32u, 64u}) {
        add_integers(t, {bits, false}), add_integers(t, {bits, true});
        add_bits(t, bits);
    }
    add_floats(t), add_truncation(t), add_predicates(t);
    t["cvta.to.global.u64"] = t["cvta.global.u64"] = t["mov.u64"];
    return t;
}

/* >>operands: numbers at the edges, and any */
uint64_t random_state = 7;
uint64_t random_bits() {
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = (random_state ^ random_state >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t operand_value(ptx::kind of, bool amount) {
    uint64_t x = random_bits();
    if (amount) return x % 4 ? x % 70 : x >> 32;
    if (of == ptx::F32) {
        const uint32_t edges[] = {0,          0x80000000, 1,          0x807fffff, 0x00800000,
                                  0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0x3f800000};
        if (x % 4 == 0) return edges[x / 4 % 10];
        if (x % 4 == 1) return x >> 32;                                  /* any bits: most are far from each other */
        return (x >> 32 & 0x80ffffff) + (0x3e000000 + (x & 0x03000000)); /* near to 1 */
    }
    const uint64_t edges[] = {0,          1,          ~0ull,      0x8000, 0x7fff,    0x80000000,
                              0x7fffffff, 1ull << 63, ~0ull >> 1, 0xffff, 0xffffffff};
    return x % 4 == 0 ? edges[x / 4 % 11] : x >> x / 4 % 64;
}

/* >>an instruction with its operands from memory, and its result to memory: 8 bytes each */
std::string load_of(ptx::kind of, unsigned k) {
    std::string n = std::to_string(k), at = "[%rd9+" + n + "];\n", to = std::to_string(10 + k / 8);
    if (of == ptx::B64) return "ld.global.u64 %rd" + to + ", " + at;
    if (of == ptx::F32) return "ld.global.f32 %f" + to + ", " + at;
    std::string text = "ld.global.u32 %r" + to + ", " + at;
    if (of == ptx::B16) text += "cvt.u16.u32 %rs" + to + ", %r" + to + ";\n";
    if (of == ptx::PREDICATE)
        text += "and.b32 %r" + to + ", %r" + to + ", 1;\nsetp.ne.b32 %p" + to + ", %r" + to + ", 0;\n";
    return text;
}
std::string register_of(ptx::kind of) {
    const char *const prefixes[] = {"%p", "%rs", "%r", "%rd", "%f"};
    return prefixes[of];
}
std::string body_of(const std::string &name, const ptx::form &f, bool guarded) {
    std::string text = "mul.wide.u32 %rd8, %r2, 32;\nadd.s64 %rd9, %rd1, %rd8;\nmul.wide.u32 %rd7, %r2, 8;\nadd.s64 "
                       "%rd7, %rd2, %rd7;\n"
                       "and.b32 %r9, %r1, 5;\nsetp.eq.s32 %p1, %r9, 4;\nmov.u32 %r20, 0;\nmov.u64 %rd20, 0;\n"
                       "mov.f32 %f20, 0f00000000;\nmov.pred %p20, 0;\ncvt.u16.u32 %rs15, %r20;\n";
    std::string operands;
    for (unsigned k = 0; k < f.from.size(); k++) {
        text += load_of(f.from[k], 8 * k);
        operands += ", " + register_of(f.from[k]) + std::to_string(10 + k);
    }
    std::string to = register_of(f.to[0]) + (f.to[0] == ptx::B16 ? "15" : "20");
    text += (guarded ? "@!%p1 " : "") + name + " " + to + operands + ";\n";
    if (f.to[0] == ptx::PREDICATE) text += "selp.u32 %r20, 1, 0, %p20;\n";
    if (f.to[0] == ptx::B16) text += "cvt.u32.u16 %r20, %rs15;\n";
    if (f.to[0] == ptx::F32) text += "mov.b32 %r20, %f20;\n";
    if (f.to[0] != ptx::B64) text += "cvt.u64.u32 %rd20, %r20;\n";
    return text + "st.global.u64 [%rd7], %rd20;";
}

void check(const std::string &name, const meaning &expected, bool guarded) {
    ptx::form f;
    std::string why;
    if (!ptx::find_form(name, &f, &why)) fail_msg("%s", why.c_str());
    std::vector<uint64_t> in(MOST * THREADS), out(THREADS, 0x123456789abcdefu);
    bool shifts = name.compare(0, 3, "shl") == 0 || name.compare(0, 3, "shr") == 0,
         inserts = name.compare(0, 3, "bfi") == 0;
    for (unsigned i = 0; i < MOST * THREADS; i++) {
        unsigned k = i % MOST;
        if (k < f.from.size()) in[i] = operand_value(f.from[k], (shifts && k == 1) || (inserts && k >= 2));
    }
    ptx_try::run(body_of(name, f, guarded), THREADS / BLOCK, BLOCK, in, out);
    for (unsigned i = 0; i < THREADS; i++) {
        bool skipped = guarded && (i % BLOCK & 5) == 4;
        const uint64_t *of = &in[MOST * i];
        uint64_t wanted = skipped ? 0 : expected(of);
        if (out[i] != wanted)
            fail_msg("%s%s of 0x%llx, 0x%llx, 0x%llx, 0x%llx: wanted 0x%llx, found 0x%llx", guarded ? "@ " : "",
                     name.c_str(), static_cast<unsigned long long>(of[0]), static_cast<unsigned long long>(of[1]),
                     static_cast<unsigned long long>(of[2]), static_cast<unsigned long long>(of[3]),
                     static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(out[i]));
    }
}

void test_every_form(void **) {
    table t = meanings();
    unsigned checked = 0;
    for (const std::string &name : ptx::alu_forms()) {
        if (!t.count(name)) fail_msg("%s has no meaning in this test", name.c_str());
        check(name, t[name], false), check(name, t[name], true);
        checked++;
    }
    print_message("# %u forms\n", checked);
    assert_int_equal(checked, ptx::alu_forms().size());
}

/* What none of the types makes: an operand that is a literal, and registers that the instruction both reads and
 * writes. */
void test_literals(void **) {
    std::vector<uint32_t> in(1), out(32 * 6);
    ptx_try::run("mul.lo.s32 %r4, %r1, 24;\ncvt.u64.u32 %rd4, %r4;\nadd.s64 %rd4, %rd2, %rd4;\n"
                 "mov.u32 %r5, -3;\nadd.s32 %r5, %r5, %r5;\nst.global.u32 [%rd4], %r5;\n"
                 "mov.b64 %rd5, -2;\nshr.s64 %rd5, %rd5, 1;\ncvt.u32.u64 %r6, %rd5;\nst.global.u32 [%rd4+4], %r6;\n"
                 "mov.f32 %f4, 0f3FC00000;\nadd.rn.f32 %f4, %f4, 0fBF800000;\nst.global.f32 [%rd4+8], %f4;\n"
                 "mov.u32 %r7, 0xffffffff;\nand.b32 %r7, %r7, 0x0f0;\nst.global.u32 [%rd4+12], %r7;\n"
                 "mov.pred %p4, -1;\nselp.u32 %r8, 7, 9, %p4;\nst.global.u32 [%rd4+16], %r8;\n"
                 "mov.u32 %r9, %laneid;\nst.global.u32 [%rd4+20], %r9;",
                 1, 32, in, out);
    for (unsigned i = 0; i < 32; i++) {
        const uint32_t wanted[] = {static_cast<uint32_t>(-6), 0xffffffff, 0x3f000000, 0xf0, 7, i};
        assert_memory_equal(wanted, &out[6 * i], sizeof wanted);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(test_every_form), cmocka_unit_test(test_literals)};
    return cmocka_run_group_tests_name("ptx_alu", tests, nullptr, nullptr);
}
