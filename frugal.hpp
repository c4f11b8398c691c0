/* frugal.hpp - frugal.h for C++17: instances and workers that close themselves, errors as exceptions, keys from
 * vectors.
 * Header only; compile and link what frugal.h needs. MIT or public domain, as frugal.h.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      frugal_cpp::instance f(desc);                                      // frugal_open
 *      f.attach_cpu(0, {50000});
 *      std::vector<std::int64_t> ids = ...;
 *      f.announce(0, step + 10, {frugal_cpp::keys(0, ids)});
 *      while (f.lookup(0, step, rows.data())) {                           // false: the data of device 0 has ended
 *          ...
 *          f.update(0, step++, frugal_cpp::gradients(grads.data(), lr));
 *      }
 *      f.drain();
 *
 * Descriptors are those of frugal.h, and f.get() is the frugal * for every call that has no form here. frugal.h says
 * what a call needs, which thread may make it, and what it changes.
 *
 * Errors. A negative status, and FRUGAL_STOPPED, is thrown as frugal_cpp::error: what() is frugal_message(), and
 * status() tells which. AGAIN and FINISHED are answers, not errors: the call returns false. Set desc.notice, too: this
 * function is told what no call returns as an error, such as a wait that takes long.
 *
 * Closing. A destructor closes, and ignores errors: to learn whether a table in a file got to the disk, call close().
 * If the instance was not drained, both lose the updates that are not flushed, as frugal_close does.
 *
 * The namespace is not `frugal`, because that is the name of a struct of frugal.h.
 */
#ifndef FRUGAL_HPP
#define FRUGAL_HPP

#include "frugal.h"
#include "frugal_save.h"
#include "frugal_seeing.h"

#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace frugal_cpp {

class error : public std::runtime_error {
  public:
    error(frugal_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    frugal_status status() const noexcept {
        return status_;
    }

  private:
    frugal_status status_;
};

/* Throws unless the status is no error. Returns whether the call has done its work: not AGAIN, not FINISHED. */
inline bool check(frugal_status status) {
    if (status < 0 || status == FRUGAL_STOPPED) throw error(status, frugal_message());
    return status == FRUGAL_OK;
}

/* Keys of one table: `n` of them, of 64 or 32 bits. They are copied by the call that takes them. */
template <typename Key> frugal_keys keys(uint32_t table, const Key *array, size_t n) {
    static_assert(std::is_integral<Key>::value && (sizeof(Key) == 8 || std::is_same<Key, int32_t>::value),
                  "keys are std::int64_t, std::uint64_t or std::int32_t");
    if (n > std::numeric_limits<uint32_t>::max())
        throw error(FRUGAL_ERR_KEYS, std::to_string(n) + " keys in a segment; it has 2^32 - 1 at most: split it");
    frugal_keys k = {};
    k.table = table, k.n = static_cast<uint32_t>(n);
    if constexpr (sizeof(Key) == 8)
        k.keys = reinterpret_cast<const uint64_t *>(array);
    else
        k.keys32 = array;
    return k;
}
/* Of a std::vector, std::array, std::span: whatever has data() and size(), and lives until the call has returned. */
template <typename Container> frugal_keys keys(uint32_t table, const Container &all) {
    return keys(table, all.data(), all.size());
}

/* Gradients by position of the batch. Further fields, as `stride`, may be set in what this returns. */
inline frugal_gradients gradients(const float *grads, float lr, uint64_t n = 0) {
    frugal_gradients g = {};
    g.grads = grads, g.lr = lr, g.n = n;
    return g;
}
/* The same of any type, which must be named: an array of other numbers is no array of floats. */
inline frugal_gradients gradients(const void *grads, frugal_type as, float lr, uint64_t n = 0) {
    frugal_gradients g = {};
    g.grads = grads, g.as = as, g.lr = lr, g.n = n;
    return g;
}

/* Threads that several instances share; it must outlive them. */
class workers {
  public:
    explicit workers(uint32_t n) {
        check(frugal_workers_open(n, &w_));
    }
    ~workers() {
        frugal_workers_close(w_);
    }
    workers(workers &&other) noexcept : w_(std::exchange(other.w_, nullptr)) {}
    workers &operator=(workers &&other) noexcept {
        std::swap(w_, other.w_);
        return *this;
    }
    frugal_workers *get() const noexcept {
        return w_;
    }

  private:
    frugal_workers *w_ = nullptr;
};

class instance {
  public:
    explicit instance(const frugal_desc &desc) {
        frugal_status status = frugal_open(&desc, &f_);
        if (status == FRUGAL_OK) return;
        std::string message = frugal_message();
        frugal_close(std::exchange(f_, nullptr));
        throw error(status, message);
    }
    ~instance() {
        frugal_close(f_);
    }
    instance(instance &&other) noexcept : f_(std::exchange(other.f_, nullptr)) {}
    instance &operator=(instance &&other) noexcept {
        std::swap(f_, other.f_);
        return *this;
    }
    frugal *get() const noexcept {
        return f_;
    }
    const frugal_desc &settings() const {
        return *frugal_settings(f_);
    }
    /* Closes now, and throws if a table in a file did not get to the disk. The instance is gone in any case. */
    void close() {
        check(frugal_close(std::exchange(f_, nullptr)));
    }

    void attach_cpu(uint32_t device, const frugal_cpu_desc &desc = {}) {
        check(frugal_cpu_attach(f_, device, &desc));
    }

    void announce(uint32_t device, uint64_t step, const frugal_batch &batch) {
        check(frugal_announce(f_, device, step, &batch));
    }
    void announce(uint32_t device, uint64_t step, std::initializer_list<frugal_keys> segments, bool read_only = false) {
        announce(device, step, batch_of(segments.begin(), segments.size(), read_only));
    }
    void announce(uint32_t device, uint64_t step, const std::vector<frugal_keys> &segments, bool read_only = false) {
        announce(device, step, batch_of(segments.data(), segments.size(), read_only));
    }
    bool try_announce(uint32_t device, uint64_t step, const frugal_batch &batch) {
        return check(frugal_try_announce(f_, device, step, &batch));
    }
    /* false: the data of the device has ended before the step (finish). */
    bool lookup(uint32_t device, uint64_t step, float *rows) {
        return check(frugal_lookup(f_, device, step, rows));
    }
    bool lookup(uint32_t device, uint64_t step, float *rows, uint64_t stride) {
        return check(frugal_lookup_strided(f_, device, step, rows, stride));
    }
    bool lookup(uint32_t device, uint64_t step, const frugal_bags &bags, float *pooled) {
        return check(frugal_lookup_bags(f_, device, step, &bags, pooled));
    }
    /* Into an array of any type. false also: not yet, if it does not wait. */
    bool lookup(uint32_t device, uint64_t step, const frugal_row_array &to) {
        return check(frugal_lookup_into(f_, device, step, &to));
    }
    /* false: not yet, or the data of the device has ended. */
    bool try_lookup(uint32_t device, uint64_t step, float *rows) {
        return check(frugal_try_lookup(f_, device, step, rows));
    }
    frugal_records records(uint32_t device, uint64_t step) {
        frugal_records r;
        check(frugal_get_records(f_, device, step, &r));
        return r;
    }
    void update(uint32_t device, uint64_t step, const frugal_gradients &gradients) {
        check(frugal_update(f_, device, step, &gradients));
    }
    void update(uint32_t device, uint64_t step) { /* without gradients */
        check(frugal_update(f_, device, step, nullptr));
    }
    void finish(uint32_t device) {
        check(frugal_finish(f_, device));
    }

    void drain() {
        check(frugal_drain(f_));
    }
    void cancel(uint64_t step) {
        check(frugal_cancel(f_, step));
    }
    void stop() noexcept {
        frugal_stop(f_);
    }
    bool help() noexcept {
        return frugal_help(f_) != 0;
    }
    /* [n][dim], in the order of the keys. */
    std::vector<float> read_rows(const frugal_keys &of) {
        std::vector<float> rows(static_cast<size_t>(of.n) * settings().dim);
        check(frugal_read_rows(f_, &of, rows.data(), nullptr));
        return rows;
    }
    void write_rows(const frugal_keys &of, const float *weights, const float *state = nullptr) {
        check(frugal_write_rows(f_, &of, weights, state));
    }
    void preload(uint32_t device, const frugal_keys &of) {
        check(frugal_preload(f_, device, &of));
    }
    void save(const char *path, bool increment = false, bool replace = false) {
        frugal_save_desc desc = {};
        desc.path = path, desc.increment = increment, desc.replace = replace;
        check(frugal_save(&f_, 1, &desc));
    }
    frugal_stats stats() const {
        frugal_stats s;
        frugal_get_stats(f_, &s);
        return s;
    }

  private:
    static frugal_batch batch_of(const frugal_keys *segments, size_t n, bool read_only) {
        if (n > std::numeric_limits<uint32_t>::max())
            throw error(FRUGAL_ERR_ARGUMENT, std::to_string(n) + " segments; a batch has 2^32 - 1 at most");
        frugal_batch batch = {};
        batch.segments = segments, batch.n_segments = static_cast<uint32_t>(n), batch.read_only = read_only;
        return batch;
    }
    frugal *f_ = nullptr;
};

} /* namespace frugal_cpp */

#endif /* FRUGAL_HPP */
