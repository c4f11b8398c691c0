/* ptx_memory.cc - instructions of PTX that touch memory, which is the host's. Compiled with whatever sanitizer the
 * flavour has: AddressSanitizer sees what compiled code touches outside of blocks, ThreadSanitizer what it races with.
 *
 * Hints for caches are accepted and mean nothing here; of a scope (.cta, .gpu, .sys) only the widest exists. */
#include "cuda_on_host.h"
#include "ptx_module.h"

#include <set>

namespace ptx {
namespace {

/* >>addresses */
template <size_t BYTES> uint64_t address_of(const state &s, const instruction &i, unsigned lane) {
    uint64_t address = get<uint64_t>(source(s, i.from[0]), lane) + static_cast<uint64_t>(i.offset);
    if (address % BYTES)
        refuse(s, i, 1u << lane, "address 0x%llx is not a multiple of %zu", static_cast<unsigned long long>(address),
               BYTES);
    if (address >= PARAMETERS_AT) refuse(s, i, 1u << lane, "the address is in .param, which only ld.param reaches");
    if (address < 4096)
        refuse(s, i, 1u << lane, "address 0x%llx: a null pointer", static_cast<unsigned long long>(address));
    if (const char *why = cuda_on_host::refusal_of(address)) refuse(s, i, 1u << lane, "%s", why);
    return address;
}
template <typename T, size_t BYTES = sizeof(T)> T *reach(const state &s, const instruction &i, unsigned lane) {
    return reinterpret_cast<T *>(static_cast<uintptr_t>(address_of<BYTES>(s, i, lane)));
}

/* >>loads and stores of N elements; R: what a register of them holds, which may be wider */
template <typename T, typename R, unsigned N> void load(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        const T *from = reach<const T, N * sizeof(T)>(s, i, lane);
        T values[N]; /* the address may be overwritten */
        for (unsigned k = 0; k < N; k++) values[k] = from[k];
        for (unsigned k = 0; k < N; k++) put(s.words + i.to[k], lane, static_cast<R>(values[k]));
    }
}
template <typename T, typename R, unsigned N> void store(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        T *to = reach<T, N * sizeof(T)>(s, i, lane);
        for (unsigned k = 0; k < N; k++) to[k] = static_cast<T>(get<R>(source(s, i.from[1 + k]), lane));
    }
}
template <typename T, typename R, unsigned N> void load_parameter(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        uint64_t at = get<uint64_t>(source(s, i.from[0]), lane) + static_cast<uint64_t>(i.offset) - PARAMETERS_AT;
        constexpr size_t BYTES = N * sizeof(T);
        if (at >= s.parameter_bytes || s.parameter_bytes - at < BYTES)
            refuse(s, i, 1u << lane, "%zu bytes at %lld, of parameters that have %zu", BYTES,
                   static_cast<long long>(at), s.parameter_bytes);
        if (at % BYTES)
            refuse(s, i, 1u << lane, "byte %lld of the parameters is not a multiple of %zu", static_cast<long long>(at),
                   BYTES);
        T values[N];
        memcpy(values, s.parameters + at, BYTES);
        for (unsigned k = 0; k < N; k++) put(s.words + i.to[k], lane, static_cast<R>(values[k]));
    }
}

/* >>atomics */
template <typename T, typename R, int ORDER> void load_ordered(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        put(s.words + i.to[0], lane, static_cast<R>(__atomic_load_n(reach<const T>(s, i, lane), ORDER)));
    }
}
template <typename T, typename R, int ORDER> void store_ordered(state &s, const instruction &i, uint32_t active) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = first_lane(left);
        __atomic_store_n(reach<T>(s, i, lane), static_cast<T>(get<R>(source(s, i.from[1]), lane)), ORDER);
    }
}

template <typename T, int ORDER> struct atomics {
    static T add(T *p, T b, T) {
        return __atomic_fetch_add(p, b, ORDER);
    }
    static T bits_or(T *p, T b, T) {
        return __atomic_fetch_or(p, b, ORDER);
    }
    static T bits_and(T *p, T b, T) {
        return __atomic_fetch_and(p, b, ORDER);
    }
    static T exchange(T *p, T b, T) {
        return __atomic_exchange_n(p, b, ORDER);
    }
    static T exchange_if(T *p, T b, T c) {
        constexpr int FAILED = ORDER == __ATOMIC_ACQ_REL   ? __ATOMIC_ACQUIRE
                               : ORDER == __ATOMIC_RELEASE ? __ATOMIC_RELAXED
                                                           : ORDER;
        __atomic_compare_exchange_n(p, &b, c, false, ORDER, FAILED);
        return b;
    }
    template <T (*F)(T *, T, T)> static void run(state &s, const instruction &i, uint32_t active) {
        for (uint32_t left = active; left; left &= left - 1) {
            unsigned lane = first_lane(left);
            T b = get<T>(source(s, i.from[1]), lane), c = get<T>(source(s, i.from[i.n_from - 1]), lane);
            put(s.words + i.to[0], lane, F(reach<T>(s, i, lane), b, c));
        }
    }
    static operation of(const std::string &what) {
        return what == "add"    ? run<add>
               : what == "or"   ? run<bits_or>
               : what == "and"  ? run<bits_and>
               : what == "cas"  ? run<exchange_if>
               : what == "exch" ? run<exchange>
                                : nullptr;
    }
};

void fence(state &, const instruction &, uint32_t) {
    cuda_on_host::fence();
}

/* >>names: taken apart at the dots */
struct parts {
    std::set<std::string> left; /* what has not been understood */

    explicit parts(const std::string &name) {
        for (size_t at = 0, end; at <= name.size(); at = end + 1) {
            end = name.find('.', at);
            if (end == std::string::npos) end = name.size();
            left.insert(name.substr(at, end - at));
        }
    }
    bool take(const char *part) {
        return left.erase(part) != 0;
    }
    std::string take_one_of(std::initializer_list<const char *> any) {
        for (const char *part : any)
            if (take(part)) return part;
        return "";
    }
};

/* .relaxed and so on, which needs a scope; -1: none of them. */
int take_order(parts &p) {
    std::string order = p.take_one_of({"relaxed", "acquire", "release", "acq_rel"});
    if (order.empty()) return -1;
    if (p.take_one_of({"cta", "gpu", "sys"}).empty()) p.left.insert("without a scope");
    return order == "relaxed"   ? __ATOMIC_RELAXED
           : order == "acquire" ? __ATOMIC_ACQUIRE
           : order == "release" ? __ATOMIC_RELEASE
                                : __ATOMIC_ACQ_REL;
}

kind take_type(parts &p) { /* PREDICATE: none that is known */
    if (!p.take_one_of({"b32", "u32", "s32"}).empty()) return B32;
    if (!p.take_one_of({"b64", "u64", "s64"}).empty()) return B64;
    return p.take("f32") ? F32 : PREDICATE;
}

struct access { /* what it does is a choice of templates */
    bool loads, parameter;
    int order; /* -1: none */
    unsigned n;
};
template <typename T, typename R> operation plain_operation(const access &a) {
    unsigned n = a.n;
    if (a.parameter)
        return n == 1 ? load_parameter<T, R, 1> : n == 2 ? load_parameter<T, R, 2> : load_parameter<T, R, 4>;
    if (a.loads) return n == 1 ? load<T, R, 1> : n == 2 ? load<T, R, 2> : load<T, R, 4>;
    return n == 1 ? store<T, R, 1> : n == 2 ? store<T, R, 2> : store<T, R, 4>;
}
template <typename T, typename R> operation access_operation(const access &a) {
    if (a.order < 0) return plain_operation<T, R>(a);
    if (a.order == __ATOMIC_RELAXED)
        return a.loads ? load_ordered<T, R, __ATOMIC_RELAXED> : store_ordered<T, R, __ATOMIC_RELAXED>;
    if (a.loads && a.order == __ATOMIC_ACQUIRE) return load_ordered<T, R, __ATOMIC_ACQUIRE>;
    if (!a.loads && a.order == __ATOMIC_RELEASE) return store_ordered<T, R, __ATOMIC_RELEASE>;
    return nullptr;
}

bool find_access(parts p, bool loads, form *f) {
    int order = take_order(p);
    if (order < 0 && p.take("volatile")) order = __ATOMIC_RELAXED;
    bool weak = order < 0 && p.take("weak"), global = p.take("global");
    f->is_parameter = loads && !weak && order < 0 && !global && p.take("param");
    if (order < 0 && !f->is_parameter) {
        if (loads)
            p.take_one_of({"ca", "cg", "cs", "lu", "cv"}), global &&p.take("nc");
        else
            p.take_one_of({"wb", "cg", "cs", "wt"});
    }
    f->n = order >= 0 ? 1 : p.take("v2") ? 2 : p.take("v4") ? 4 : 1;
    bool has_sign = p.left.count("s32") != 0, is_byte = loads && order < 0 && p.take("u8");
    bool is_half = order < 0 && !is_byte && !p.take_one_of({"b16", "u16"}).empty();
    kind type = is_byte ? B32 : is_half ? B16 : take_type(p);
    if (!p.left.empty() || type == PREDICATE || (type == B64 && f->n == 4)) return false;
    access a = {loads, f->is_parameter, order, f->n};
    f->next = order >= 0 ? ATOMIC : STRAIGHT;
    f->run = type == B64 ? access_operation<uint64_t, uint64_t>(a) : access_operation<uint32_t, uint32_t>(a);
    if (is_byte)
        f->run = plain_operation<uint8_t, uint32_t>(a), f->run_wide = plain_operation<uint8_t, uint64_t>(a);
    else if (is_half)
        f->run = plain_operation<uint16_t, uint16_t>(a), f->run_wide = plain_operation<uint16_t, uint32_t>(a),
        f->wide = B32;
    else if (type == B32)
        f->run_wide = has_sign ? access_operation<int32_t, uint64_t>(a) : access_operation<uint32_t, uint64_t>(a);
    f->operands = form::ADDRESS_FIRST;
    (loads ? f->to : f->from).assign(f->n, type);
    return f->run != nullptr;
}

template <typename T> operation atomic_operation(const std::string &what, int order) {
    return order == __ATOMIC_ACQUIRE   ? atomics<T, __ATOMIC_ACQUIRE>::of(what)
           : order == __ATOMIC_RELEASE ? atomics<T, __ATOMIC_RELEASE>::of(what)
           : order == __ATOMIC_ACQ_REL ? atomics<T, __ATOMIC_ACQ_REL>::of(what)
                                       : atomics<T, __ATOMIC_RELAXED>::of(what);
}

bool find_atomic(parts p, form *f) {
    int order = take_order(p);
    p.take("global");
    std::string what = p.take_one_of({"add", "or", "and", "exch", "cas"});
    kind type = take_type(p);
    if (!p.left.empty() || what.empty() || (type != B32 && type != B64)) return false;
    f->next = ATOMIC;
    f->run = type == B64 ? atomic_operation<uint64_t>(what, order) : atomic_operation<uint32_t>(what, order);
    f->operands = form::ADDRESS_FIRST;
    f->to = {type}, f->from.assign(what == "cas" ? 2 : 1, type);
    return true;
}

} // namespace

bool find_memory_form(const std::string &name, form *found) {
    static const std::set<std::string> fences = {"membar.cta",        "membar.gl",         "membar.sys",
                                                 "fence.sc.cta",      "fence.sc.gpu",      "fence.sc.sys",
                                                 "fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys"};
    form f;
    parts p(name);
    bool known = fences.count(name) != 0;
    if (known)
        f.run = fence;
    else if (p.take("ld"))
        known = find_access(p, true, &f);
    else if (p.take("st"))
        known = find_access(p, false, &f);
    else if (p.take("atom"))
        known = find_atomic(p, &f);
    if (known) *found = f;
    return known;
}

} // namespace ptx
