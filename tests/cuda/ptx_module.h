/* ptx_module.h - a text of PTX (what nvcc makes of a kernel before ptxas makes machine code of it), read into a form
 * that can be run: between what reads it (ptx_read.cc), what each instruction does (ptx_alu.cc, ptx_memory.cc) and what
 * runs warps (ptx_run.cc). tests/cuda/ptx_on_host.h says what all of it is for.
 *
 * A register holds a value for each of the 32 lanes of a warp: 32 words, or 64 where it is 64 bits wide. A predicate is
 * one word, a bit a lane. An operand is an index of words; that of a constant is negative. */
#ifndef PTX_MODULE_H
#define PTX_MODULE_H

#include <stdint.h>
#include <string.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace ptx {

constexpr unsigned LANES = 32;
constexpr uint32_t ALL = 0xffffffffu;

struct instruction;

/* >>a warp, as its instructions see it */
struct state {
    uint32_t *words;           /* registers, [register][lane] */
    uint32_t *predicates;      /* a bit a lane */
    const uint32_t *constants; /* the module's */
    const char *parameters;
    size_t parameter_bytes;
};
/* Ends the process, with kernel, block, threads, line and instruction. */
[[noreturn]] void refuse(const state &s, const instruction &i, uint32_t lanes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

inline const uint32_t *source(const state &s, int32_t at) {
    return at >= 0 ? s.words + at : s.constants + ~at;
}
inline unsigned first_lane(uint32_t lanes) {
    return static_cast<unsigned>(__builtin_ctz(lanes));
}

/* A lane's value. Copied: the same register may be read as an integer and as a float. A word has room for 16 bits,
 * too. */
template <typename T> T get(const uint32_t *words, unsigned lane) {
    T value;
    memcpy(&value, words + lane * ((sizeof(T) + 3) / 4), sizeof value);
    return value;
}
template <> inline bool get<bool>(const uint32_t *words, unsigned lane) {
    return *words >> lane & 1;
}
template <typename T> void put(uint32_t *words, unsigned lane, T value) {
    if (sizeof(T) < 4) words[lane] = 0;
    memcpy(words + lane * ((sizeof(T) + 3) / 4), &value, sizeof value);
}

/* >>instructions */
enum kind : uint8_t { PREDICATE, B16, B32, B64, F32 }; /* of an operand */

/* What comes after it, and what it waits for. */
enum flow : uint8_t {
    STRAIGHT, /* the next instruction */
    BRANCH,
    EXIT,
    TOGETHER, /* waits for the lanes of its member mask: the last operand */
    BARRIER,  /* waits for the block, which may vote */
    ATOMIC,   /* other warps may run after it */
    SLEEP     /* other warps do */
};

enum barrier_vote : uint8_t { NO_VOTE, VOTE_OR, VOTE_AND };

using operation = void (*)(state &, const instruction &, uint32_t active);

struct instruction {
    operation run; /* NULL: the flow says all */
    flow next;
    uint8_t n_reads, n_writes, n_from, n; /* n: elements of a vector, or a barrier_vote */
    uint32_t guard, negated;              /* lanes that run it: predicates[guard] ^ negated */
    int32_t to[4], from[5];               /* operands */
    int64_t offset;                       /* of an address */
    uint32_t target;                      /* of a branch */
    uint32_t form, line;
    uint32_t reads[8], writes[4]; /* registers, of what is known to have been written */
};

/* What is known of instructions of one form: `add.s32`. */
struct form {
    operation run = nullptr, run_wide = nullptr; /* wide: with registers of a wider kind than the elements */
    kind wide = B64;
    flow next = STRAIGHT;
    std::vector<kind> to, from;
    bool second_to = false; /* `a|b`: the second is a predicate, and may be missing */
    enum { VALUES, ADDRESS_FIRST, MOVE, LABEL, NUMBER, VOTE_AT_NUMBER } operands = VALUES;
    bool is_parameter = false; /* the address is in .param */
    unsigned n = 1;            /* elements of a vector, or a barrier_vote */
};
/* False: `why` says why there is none of this name. */
bool find_form(const std::string &name, form *found, std::string *why);
bool find_alu_form(const std::string &name, form *found);
std::vector<std::string> alu_forms(); /* all names, for the test of each */
bool find_memory_form(const std::string &name, form *found);
bool find_lane_form(const std::string &name, form *found);

/* Registers that every warp begins with, in this order; what is not among them is refused. */
enum special : unsigned { TID, CTAID, NTID, NCTAID, LANEID, SPECIALS };
enum : unsigned { NEVER, ALWAYS, PREDICATES }; /* predicates 0 and 1 */
/* Where .param begins, for who takes an address in it: no address of anything else. */
constexpr uint64_t PARAMETERS_AT = 0xffff000000000000u;

/* >>modules */
struct parameter {
    size_t bytes, alignment, offset;
};
struct entry {
    std::string symbol, name; /* `frugal_lookup_kernel<4>` */
    std::vector<parameter> parameters;
    size_t parameter_bytes = 0;
    unsigned most_threads = 1024;           /* of a block */
    unsigned n_words = 0, n_predicates = 0; /* of a warp */
    uint32_t begin = 0, end = 0;            /* of its code */
    std::atomic<uint64_t> launches{0};
};
struct module {
    std::string text, target;
    std::vector<size_t> lines; /* where each begins in `text` */
    std::vector<std::unique_ptr<entry>> entries;
    std::vector<instruction> code;
    std::vector<uint32_t> constants;
    std::vector<std::string> forms;
    std::unique_ptr<std::atomic<uint64_t>[]> executed; /* times, of each instruction, by warps */

    std::string line(uint32_t number) const; /* without blanks around it */
    entry *find(const std::string &name) const;
};
/* Throws nothing: NULL, and why in `error`. */
std::unique_ptr<module> read_module(const std::string &text, std::string *error);

} // namespace ptx
#endif
