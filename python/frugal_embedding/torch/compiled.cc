/* The usual step of frugal_embedding.torch, without Python in between: the operators of operators.py, and the autograd
 * node of frugal::lookup. compiled.py compiles this for the PyTorch that is installed, and operators.py starts it.
 *
 * It is the short way through the methods of Session and Frugal, and the state stays in their attributes: a step that
 * is not usual (is_usual says which are) is left to them, before anything has changed. Attributes are read and written
 * under the GIL, which is released during calls of the library. A KeyboardInterrupt comes only where Python is called
 * (ask), and there what has been done is noted already. */
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>

#include "frugal.h"

namespace py = pybind11;
using at::Tensor;
using Maybe = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;

namespace {

/* The functions of the library that Python has loaded, which need not be the one beside this file. */
struct {
    decltype(&frugal_announce) announce;
    frugal_status (*cuda_announce)(frugal *, uint32_t, uint64_t, const frugal_batch *, void *stream);
    decltype(&frugal_lookup_into) lookup_into;
    decltype(&frugal_update) update;
} call;

/* Of operators.py. Under the GIL, as the next; references of the process, because no destructor may run after Python's
 * end. */
PyObject *slow_lookup, *slow_update;
std::vector<PyObject *> weak_sessions; /* by id */

/* clang-format off */
#define NAMES(X) \
    X(_announcing) X(_calls) X(_devices) X(_fail) X(_handle) X(_open) X(_waiters) X(_wake) X(acquire) X(ahead) \
    X(announced) \
    X(await_announce) X(await_lookup) X(by_bag) X(cuda_stream) X(device) X(devices) X(direct) X(fill) \
    X(first_update) X(gradient) X(group) X(has_failed) X(instance) X(kept) X(keys) X(loader) X(looked_up) X(lr) \
    X(mask) X(micro) X(n) X(open) X(optimizer) X(owner) X(padding) X(popleft) X(queue) X(read_only) X(scale) \
    X(release) X(statuses) X(step) X(stream) X(stream_id) X(tables) X(tail) X(trainer) X(updated) X(versions)
/* clang-format on */
#define DECLARE(NAME) PyObject *NAME;
struct {
    NAMES(DECLARE)
} name; /* interned */

py::object get(const py::handle &of, PyObject *what) {
    PyObject *found = PyObject_GetAttr(of.ptr(), what);
    if (!found) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(found);
}
void set(const py::handle &of, PyObject *what, const py::handle &value) {
    if (PyObject_SetAttr(of.ptr(), what, value.ptr())) throw py::error_already_set();
}
uint64_t number(const py::handle &of, PyObject *what) {
    uint64_t found = PyLong_AsUnsignedLongLong(get(of, what).ptr());
    if (found == UINT64_MAX && PyErr_Occurred()) throw py::error_already_set();
    return found;
}
bool is_none(const py::handle &of, PyObject *what) {
    return get(of, what).is_none();
}
bool is_true(const py::handle &of, PyObject *what) {
    return get(of, what).ptr() == Py_True;
}
template <class... A> void ask(const py::handle &of, PyObject *method, const A &...arguments) {
    get(of, method)(arguments...);
}
void ask(const py::handle &of, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(of.ptr(), method);
    if (!answer) throw py::error_already_set();
    Py_DECREF(answer);
}
void set_number(const py::handle &of, PyObject *what, uint64_t value) {
    set(of, what, py::reinterpret_steal<py::object>(PyLong_FromUnsignedLongLong(value)));
}

/* Errors of Python cross PyTorch's operators as its own class. */
template <class F> auto translated(F body) {
    try {
        return body();
    } catch (py::error_already_set &error) {
        error.restore();
        python_error raised;
        raised.persist();
        throw raised;
    }
}

/* A session, its instance and its device, as Python's objects. */
struct Step {
    py::object session, instance, device;
    uint64_t step = 0, devices = 0;
    uint32_t number_of_device = 0;
    void *stream = nullptr;
};

/* While it lives the instance is not closed, as in Frugal._call. */
struct InCall {
    py::object calls, thread;
    explicit InCall(const Step &s) : calls(get(s.instance, name._calls)) {
        thread = py::reinterpret_steal<py::object>(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
        if (PySet_Add(calls.ptr(), thread.ptr())) throw py::error_already_set();
    }
    ~InCall() {
        if (PySet_Discard(calls.ptr(), thread.ptr()) < 0) PyErr_Clear();
    }
};

/* Calls body(the instance) with the GIL released. The instance may have been closed since is_usual, where the GIL was
 * released. A status other than success raises. */
template <class F> void in_library(const Step &s, F body) {
    frugal_status status;
    InCall in(s);
    py::object handle = get(s.instance, name._handle);
    if (handle.is_none()) ask(s.instance, name._open); /* raises */
    frugal *f = static_cast<frugal *>(PyLong_AsVoidPtr(handle.ptr()));
    {
        py::gil_scoped_release released;
        status = body(f);
    }
    if (status) ask(s.instance, name._fail, static_cast<int>(status));
}

py::object session_of(int64_t id) {
    if (id < 0 || static_cast<size_t>(id) >= weak_sessions.size()) return py::none();
    return py::reinterpret_steal<py::object>(PyObject_CallNoArgs(weak_sessions[static_cast<size_t>(id)]));
}

/* Would what is enqueued now come on the stream of the session? Python orders two streams. */
bool is_on_stream(const py::object &session, const c10::Device &place, void **stream) {
    py::object own = get(session, name.stream);
    if (own.is_none()) return true;
    c10::impl::VirtualGuardImpl guard(place.type());
    if (guard.getStream(place).id() != static_cast<c10::StreamId>(get(own, name.stream_id).cast<int64_t>()))
        return false;
    *stream = reinterpret_cast<void *>(number(own, name.cuda_stream));
    return true;
}

/* Nothing of the session or its device waits to be mended or ended; `step` is the one under way, or, `open`
 * false, none is and it is the next. */
bool is_usual(Step &s, int64_t id, const c10::Device &place, bool open) {
    s.session = session_of(id);
    if (s.session.is_none() || !is_true(s.session, name.direct) || !is_none(s.session, name.micro) ||
        !is_none(s.session, name.gradient))
        return false;
    py::object under_way = get(s.session, name.open);
    if (under_way.is_none() == open) return false;
    s.instance = get(s.session, name.instance);
    if (is_none(s.instance, name._handle)) return false;
    s.number_of_device = static_cast<uint32_t>(number(s.session, name.device));
    s.device =
        py::reinterpret_borrow<py::object>(PyList_GetItem(get(s.instance, name._devices).ptr(), s.number_of_device));
    s.devices = number(s.instance, name.devices);
    s.step = number(s.session, name.step) - (open ? 1 : 0);
    if (open && PyLong_AsUnsignedLongLong(under_way.ptr()) != s.step) return false;
    uint64_t looked_up = number(s.device, name.looked_up);
    if (number(s.device, name.updated) != s.step || (open ? looked_up != s.step + 1 : looked_up > s.step)) return false;
    for (PyObject *log : {name.loader, name.trainer})
        if (PyList_GET_SIZE(get(get(s.device, log), name.statuses).ptr())) return false; /* an interrupt has left it */
    return is_on_stream(s.session, place, &s.stream);
}

bool are_whole(at::TensorList keys, const c10::Device &place, bool *there) {
    *there = false;
    for (const Tensor &part : keys) {
        if (part.scalar_type() != at::kLong && part.scalar_type() != at::kInt) return false;
        if (!part.is_contiguous() || reinterpret_cast<uintptr_t>(part.data_ptr()) % part.element_size()) return false;
        if (part.is_cuda() && part.device() != place) return false;
        if (part.is_cuda() != keys[0].is_cuda()) return false;
        *there = part.is_cuda();
    }
    return true;
}

/* The frugal_type of its elements; -1: there is none. */
int type_of(const Tensor &tensor) {
    switch (tensor.scalar_type()) {
    case at::kFloat:
        return FRUGAL_FP32;
    case at::kBFloat16:
        return FRUGAL_BF16;
    case at::kHalf:
        return FRUGAL_FP16;
    default:
        return -1;
    }
}

uint64_t numel_of(at::TensorList keys) {
    uint64_t n = 0;
    for (const Tensor &part : keys) n += static_cast<uint64_t>(part.numel());
    return n;
}

/* As Session._announce, for the next step. */
void announce(const Step &s, at::TensorList keys, bool there, bool train) {
    std::vector<frugal_keys> segments(keys.size());
    py::object tables = get(s.session, name.tables);
    for (size_t i = 0; i < keys.size(); i++) {
        frugal_keys &segment = segments[i];
        segment = frugal_keys{};
        segment.table = static_cast<uint32_t>(PyLong_AsUnsignedLong(
            PyTuple_GET_ITEM(tables.ptr(), static_cast<Py_ssize_t>(i) % PyTuple_GET_SIZE(tables.ptr()))));
        segment.n = static_cast<uint32_t>(keys[i].numel());
        if (keys[i].scalar_type() == at::kLong)
            segment.keys = static_cast<const uint64_t *>(keys[i].data_ptr());
        else
            segment.keys32 = static_cast<const int32_t *>(keys[i].data_ptr());
    }
    frugal_batch batch{};
    batch.segments = segments.data(), batch.n_segments = static_cast<uint32_t>(segments.size());
    batch.read_only = !train;
    if (s.devices > 1) ask(s.instance, name.await_announce, s.step);
    py::object lock = get(s.instance, name._announcing);
    ask(lock, name.acquire);
    try {
        in_library(s, [&](frugal *f) {
            return there ? call.cuda_announce(f, s.number_of_device, s.step, &batch, s.stream)
                         : call.announce(f, s.number_of_device, s.step, &batch);
        });
        set_number(s.device, name.announced, s.step + 1);
    } catch (...) {
        ask(lock, name.release);
        throw;
    }
    ask(lock, name.release);
    set_number(s.session, name.tail, s.step + 1);
}

/* As session._are_the_same, where one look is enough. */
bool is_same(const py::handle &announced, const py::handle &version, const Tensor &given) {
    const Tensor &kept = THPVariable_Unpack(announced.ptr());
    if (kept.is_inference() || version.is_none() || kept.numel() != given.numel()) return false;
    return kept.scalar_type() == given.scalar_type() && kept.data_ptr() == given.data_ptr() &&
           static_cast<int64_t>(kept._version()) == version.cast<int64_t>();
}

/* Is the batch `head` of the queue the one of this forward, and announced? */
bool is_announced(const Step &s, const py::object &head, at::TensorList keys, bool train) {
    if (!is_true(head, name.announced) || !is_none(head, name.micro) || number(head, name.step) != s.step) return false;
    if (get(head, name.owner).is(s.session) || is_true(head, name.read_only) == train) return false;
    py::list kept = get(head, name.keys), versions = get(head, name.versions);
    if (kept.size() != keys.size()) return false;
    for (size_t i = 0; i < keys.size(); i++)
        if (!is_same(kept[i], versions[i], keys[i])) return false;
    return true;
}

/* >>padding: what padding.py does, in host memory */

/* The keys that stay, of each segment, and bool [n]: which positions these are. */
struct Stay {
    std::vector<Tensor> keys;
    Tensor mask;
};

template <class K> int64_t keep(const Tensor &part, int64_t padding, Tensor *to, bool *mask) {
    const K *keys = static_cast<const K *>(part.data_ptr());
    K *stay = static_cast<K *>(to->data_ptr());
    int64_t n = part.numel(), kept = 0;
    for (int64_t i = 0; i < n; i++) {
        mask[i] = static_cast<int64_t>(keys[i]) != padding;
        if (mask[i]) stay[kept++] = keys[i];
    }
    return kept;
}

Stay without_padding(at::TensorList keys, const py::tuple &padding) {
    Stay made;
    made.mask =
        at::empty({static_cast<int64_t>(numel_of(keys))}, at::TensorOptions().dtype(at::kBool).device(at::kCPU));
    bool *mask = made.mask.data_ptr<bool>();
    for (size_t i = 0; i < keys.size(); i++) {
        const Tensor &part = keys[i];
        py::object key = padding[i % padding.size()];
        if (key.is_none()) {
            made.keys.push_back(part.reshape({-1}));
            std::fill_n(mask, part.numel(), true);
        } else {
            Tensor to = at::empty({part.numel()}, part.options());
            int64_t number = key.cast<int64_t>();
            int64_t kept = part.scalar_type() == at::kLong ? keep<int64_t>(part, number, &to, mask)
                                                           : keep<int32_t>(part, number, &to, mask);
            made.keys.push_back(to.narrow(0, 0, kept));
        }
        mask += part.numel();
    }
    return made;
}

/* Where bags begin and end among the positions that stay. Wrong offsets stay wrong. */
Tensor bounds_without(const Tensor &offsets, const Tensor &mask) {
    int64_t n = mask.numel();
    const bool *stays = mask.data_ptr<bool>();
    std::vector<int32_t> before(static_cast<size_t>(n) + 1);
    for (int64_t i = 0; i < n; i++) before[static_cast<size_t>(i) + 1] = before[static_cast<size_t>(i)] + stays[i];
    Tensor made = at::empty_like(offsets);
    const int32_t *given = offsets.data_ptr<int32_t>();
    int32_t *bounds = made.data_ptr<int32_t>();
    for (int64_t i = 0; i < offsets.numel(); i++)
        bounds[i] = given[i] < 0 || given[i] > n ? given[i] : before[static_cast<size_t>(given[i])];
    return made;
}

/* Of rows [n, ...] those that stay, or the other way: `stay` [kept, ...] to their positions. Rows may have gaps. */
void move_rows(const Tensor &rows, const Tensor &stay, const Tensor &mask, bool back) {
    size_t bytes = rows.element_size() * static_cast<size_t>(stay.numel() ? stay.numel() / stay.size(0) : 0);
    size_t stride = rows.element_size() * static_cast<size_t>(rows.size(0) > 1 ? rows.stride(0) : 0);
    char *at = static_cast<char *>(rows.data_ptr()), *kept = static_cast<char *>(stay.data_ptr());
    const bool *stays = mask.data_ptr<bool>();
    for (int64_t i = 0; bytes && i < mask.numel(); i++, at += stride) {
        if (!stays[i]) continue;
        memcpy(back ? at : kept, back ? kept : at, bytes);
        kept += bytes;
    }
}

int64_t count_of(const Tensor &mask) {
    const bool *stays = mask.data_ptr<bool>();
    return std::count(stays, stays + mask.numel(), true);
}

/* Of [n] or [n, dim] those that stay. */
Tensor those_that_stay(const Tensor &all, const Tensor &mask) {
    auto sizes = all.sizes().vec();
    sizes[0] = count_of(mask);
    Tensor made = at::empty(sizes, all.options());
    move_rows(all, made, mask, false);
    return made;
}

void look_up(const Step &s, const Maybe &offsets, const Maybe &weights, int64_t pooling, Tensor &rows) {
    if (s.devices > 1) ask(s.instance, name.await_lookup, s.number_of_device, s.step);
    frugal_bags bags{};
    frugal_row_array to{};
    to.rows = rows.numel() ? rows.data_ptr() : nullptr;
    to.as = to.rows ? static_cast<frugal_type>(type_of(rows)) : FRUGAL_FP32;
    if (offsets) {
        bags.n_bags = static_cast<uint32_t>(offsets->numel() - 1);
        bags.offsets = static_cast<const uint32_t *>(offsets->data_ptr());
        bags.weights = weights ? weights->data_ptr<float>() : nullptr;
        bags.pooling = static_cast<frugal_pooling>(pooling);
        to.bags = &bags;
    }
    in_library(s, [&](frugal *f) { return call.lookup_into(f, s.number_of_device, s.step, &to); });
    set_number(s.device, name.looked_up, s.step + 1);
}

/* As look_up, of a step that has the positions of `mask` alone. */
void look_up_stay(const Step &s, const Maybe &offsets, const Maybe &weights, int64_t pooling, Tensor &rows,
                  const Tensor &mask) {
    if (offsets) {
        Maybe bounds = bounds_without(*offsets, mask), of_weights;
        if (weights) of_weights = those_that_stay(*weights, mask);
        look_up(s, bounds, of_weights, pooling, rows);
        set(s.device, name.kept, py::make_tuple(bounds, of_weights)); /* the table reads them until the update */
        return;
    }
    Tensor stay = at::empty({count_of(mask), rows.size(1)}, rows.options());
    look_up(s, offsets, weights, pooling, stay);
    py::object fill = get(s.session, name.fill);
    if (fill.is_none())
        rows.zero_();
    else
        rows.copy_(THPVariable_Unpack(fill.ptr()).expand_as(rows));
    move_rows(rows, stay, mask, true);
}

/* What operators.py checks; it also says what is wrong. */
bool fit(const Maybe &offsets, const Maybe &weights, uint64_t n, const c10::Device &place) {
    if (offsets && (offsets->scalar_type() != at::kInt || !offsets->is_contiguous() || offsets->device() != place ||
                    offsets->numel() < 1))
        return false;
    return !weights ||
           (offsets && !weights->requires_grad() && weights->scalar_type() == at::kFloat && weights->is_contiguous() &&
            weights->device() == place && static_cast<uint64_t>(weights->numel()) == n);
}

bool try_lookup(Pair *made, const Tensor &anchor, at::TensorList keys, const Maybe &offsets, const Maybe &weights,
                int64_t session, int64_t pooling, int64_t dim, bool train) {
    Step s;
    c10::Device place = anchor.device();
    uint64_t n = numel_of(keys);
    bool there;
    if (!train || n >> 32 || type_of(anchor) < 0 || !fit(offsets, weights, n, place) ||
        !are_whole(keys, place, &there) || !is_usual(s, session, place, false))
        return false;
    if (there && (place.is_cpu() || !call.cuda_announce)) return false;
    py::tuple padding = get(s.session, name.padding);
    if (padding.size() && (there || !place.is_cpu())) return false;
    py::object queue = get(s.session, name.queue);
    bool ahead = PyObject_Length(queue.ptr()) > 0;
    if (ahead ? !is_announced(s, queue[py::int_(0)], keys, train)
              : number(s.session, name.ahead) || number(s.device, name.announced) != s.step)
        return false;
    Tensor rows = at::empty({offsets ? offsets->numel() - 1 : static_cast<int64_t>(n), dim},
                            at::TensorOptions().dtype(anchor.scalar_type()).device(place));
    Stay stay;
    if (padding.size() && !ahead)
        stay = without_padding(keys, padding);
    else if (padding.size())
        stay.mask = THPVariable_Unpack(get(queue[py::int_(0)], name.mask).ptr());
    if (padding.size()) set(s.session, name.mask, py::cast(stay.mask));
    if (!ahead) announce(s, padding.size() ? at::TensorList(stay.keys) : keys, there, train);
    try {
        if (!ahead && number(s.instance, name._waiters)) ask(s.instance, name._wake);
        if (padding.size())
            look_up_stay(s, offsets, weights, pooling, rows, stay.mask);
        else
            look_up(s, offsets, weights, pooling, rows);
    } catch (...) {
        if (!ahead) {
            py::error_scope kept;
            ask(s.session, name.has_failed, s.step, keys.vec());
        }
        throw;
    }
    if (ahead) ask(queue, name.popleft);
    set_number(s.session, name.step, s.step + 1);
    set_number(s.session, name.open, s.step);
    Tensor token = at::empty({2}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
    token.data_ptr<int64_t>()[0] = static_cast<int64_t>(s.step), token.data_ptr<int64_t>()[1] = 0;
    *made = {rows, token};
    return true;
}

Pair lookup(const Tensor &anchor, at::TensorList keys, const Maybe &offsets, const Maybe &weights, int64_t session,
            int64_t pooling, int64_t dim, bool train) {
    py::gil_scoped_acquire gil;
    return translated([&] {
        Pair made;
        if (try_lookup(&made, anchor, keys, offsets, weights, session, pooling, dim, train)) return made;
        return py::handle(slow_lookup)(anchor, keys.vec(), offsets, weights, session, pooling, dim, train).cast<Pair>();
    });
}

/* [n, dim], rows apart by any stride that does not let them overlap. A gradient that autograd has expanded, as that of
 * a sum, is copied. */
Tensor laid_out(const Tensor &grads) {
    int64_t dim = grads.size(1);
    bool fits = (dim <= 1 || grads.stride(1) == 1) && (grads.size(0) <= 1 || grads.stride(0) >= dim) &&
                reinterpret_cast<uintptr_t>(grads.data_ptr()) % grads.element_size() == 0;
    return fits ? grads : grads.clone(at::MemoryFormat::Contiguous);
}

bool try_update(const Tensor &given, const Tensor &step, const Maybe &offsets, const Maybe &weights, int64_t session) {
    Step s;
    if (type_of(given) < 0 || given.dim() != 2 || !is_usual(s, session, given.device(), true)) return false;
    const int64_t *token = step.data_ptr<int64_t>();
    if (static_cast<uint64_t>(token[0]) != s.step || token[1] || !is_none(s.session, name.first_update)) return false;
    Tensor grads = laid_out(given);
    py::object optimizer = get(s.session, name.optimizer);
    if (!optimizer.is_none()) {
        if (optimizer().is_none()) return false;
        /* They stay until its step. Those that nobody else holds, nor their memory, need no copy: `given` is one
         * reference, and `grads` the other. */
        if (grads.is_same(given) && (given.use_count() > 2 || given.storage().use_count() > 1)) grads = given.clone();
        py::object version = py::none();
        if (weights && !weights->is_inference()) version = py::int_(static_cast<int64_t>(weights->_version()));
        set(s.session, name.kept, py::make_tuple(offsets, weights, version));
        set(s.session, name.by_bag, py::bool_(offsets.has_value()));
        set(s.session, name.scale, py::float_(1.0));
        set(s.session, name.gradient, py::cast(grads));
        return true;
    }
    py::object group = get(s.session, name.group);
    PyObject *lr = PyObject_GetItem(group.ptr(), name.lr);
    if (!lr) throw py::error_already_set();
    if (!offsets && PyTuple_GET_SIZE(get(s.session, name.padding).ptr()))
        grads = those_that_stay(grads, THPVariable_Unpack(get(s.session, name.mask).ptr()));
    frugal_gradients gradients{};
    gradients.n = static_cast<uint64_t>(grads.size(0));
    gradients.grads = grads.numel() ? grads.data_ptr() : nullptr;
    gradients.as = gradients.grads ? static_cast<frugal_type>(type_of(grads)) : FRUGAL_FP32;
    gradients.stride = grads.size(0) > 1 ? static_cast<uint64_t>(grads.stride(0)) : 0;
    gradients.lr = static_cast<float>(PyFloat_AsDouble(lr));
    Py_DECREF(lr);
    if (PyErr_Occurred()) throw py::error_already_set();
    gradients.by_bag = offsets && gradients.grads;
    in_library(s, [&](frugal *f) { return call.update(f, s.number_of_device, s.step, &gradients); });
    set(s.session, name.open, py::none());
    set_number(s.device, name.updated, s.step + 1);
    set(s.device, name.kept, py::none());
    py::object counts = get(s.device, name.n); /* of what Python has announced */
    if (PyDict_Size(counts.ptr()) > 0 && PyObject_DelItem(counts.ptr(), py::int_(s.step).ptr())) PyErr_Clear();
    if (number(s.instance, name._waiters)) ask(s.instance, name._wake);
    return true;
}

/* The table reads offsets and weights; as arguments they are kept, in a graph of torch.compile, too. */
Pair update(const Tensor &grads, const Tensor &step, const Maybe &offsets, const Maybe &weights, int64_t session,
            bool wants_weights) {
    py::gil_scoped_acquire gil;
    return translated([&] {
        if (wants_weights || !try_update(grads, step, offsets, weights, session))
            return py::handle(slow_update)(grads, step, offsets, weights, session, wants_weights).cast<Pair>();
        auto options = at::TensorOptions().device(grads.device());
        return Pair(at::empty({0}, options.dtype(grads.scalar_type())), at::empty({0}, options.dtype(at::kFloat)));
    });
}

/* The gradient of frugal::lookup, as _Lookup of operators.py. */
struct Lookup : torch::autograd::Function<Lookup> {
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext *ctx, const Tensor &anchor,
                                                  const Maybe &offsets, const Maybe &weights, int64_t session,
                                                  int64_t pooling, int64_t dim, bool train,
                                                  const std::vector<Tensor> &keys) {
        static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("frugal::lookup", "").typed<decltype(lookup)>();
        at::AutoDispatchBelowADInplaceOrView below;
        auto [rows, step] = op.call(anchor, keys, offsets, weights, session, pooling, dim, train);
        ctx->set_materialize_grads(false);
        /* The update reads them: autograd sees if they change. */
        ctx->save_for_backward({step, weights.value_or(Tensor()), offsets.value_or(Tensor())});
        ctx->saved_data["is"] = session << 2 | (train ? 1 : 0) | (weights && weights->requires_grad() ? 2 : 0);
        return {rows, step};
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *ctx,
                                                   torch::autograd::variable_list &grads) {
        static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("frugal::update", "").typed<decltype(update)>();
        torch::autograd::variable_list made(8);
        if (!grads[0].defined()) return made;
        auto saved = ctx->get_saved_variables();
        int64_t is = ctx->saved_data["is"].toInt();
        TORCH_CHECK(is & 1, "backward: this lookup was read-only, and rows get no gradients from it");
        auto some = [](const Tensor &tensor) { return tensor.defined() ? Maybe(tensor) : Maybe(); };
        auto [of_anchor, of_weights] = op.call(grads[0], saved[0], some(saved[2]), some(saved[1]), is >> 2, is & 2);
        /* In a backward() the anchor has a gradient in vain. Where gradients are asked for they are returned, and a
         * graph that is traced must use what comes out, or it would leave the update out. */
        auto *asked = torch::autograd::get_current_graph_task_exec_info();
        if ((asked && !asked->empty()) || of_anchor.unsafeGetTensorImpl()->is_python_dispatch()) made[0] = of_anchor;
        if (is & 2) made[2] = of_weights;
        return made;
    }
};

Pair lookup_autograd(const Tensor &anchor, at::TensorList keys, const Maybe &offsets, const Maybe &weights,
                     int64_t session, int64_t pooling, int64_t dim, bool train) {
    auto made = Lookup::apply(anchor, offsets, weights, session, pooling, dim, train, keys.vec());
    return {made[0], made[1]};
}

TORCH_LIBRARY_IMPL(frugal, CPU, m) {
    m.impl("lookup", lookup), m.impl("update", update);
}
TORCH_LIBRARY_IMPL(frugal, CUDA, m) {
    m.impl("lookup", lookup), m.impl("update", update);
}
TORCH_LIBRARY_IMPL(frugal, Autograd, m) {
    m.impl("lookup", lookup_autograd);
}

/* start(address, lookup, update): addresses of the library's functions by name, 0: it has none; and the functions that
 * take the steps that are not usual. */
void start(const py::dict &address, const py::object &lookup_of_python, const py::object &update_of_python) {
#define INTERN(NAME) name.NAME = PyUnicode_InternFromString(#NAME);
    NAMES(INTERN)
    auto find = [&](const char *function) { return reinterpret_cast<void *>(address[function].cast<uintptr_t>()); };
    call.announce = reinterpret_cast<decltype(call.announce)>(find("frugal_announce"));
    call.cuda_announce = reinterpret_cast<decltype(call.cuda_announce)>(find("frugal_cuda_announce"));
    call.lookup_into = reinterpret_cast<decltype(call.lookup_into)>(find("frugal_lookup_into"));
    call.update = reinterpret_cast<decltype(call.update)>(find("frugal_update"));
    slow_lookup = py::object(lookup_of_python).release().ptr();
    slow_update = py::object(update_of_python).release().ptr();
}

/* Sessions are added in the order of their ids. */
void add(const py::object &session) {
    PyObject *weak = PyWeakref_NewRef(session.ptr(), nullptr);
    if (!weak) throw py::error_already_set();
    weak_sessions.push_back(weak);
}

} /* namespace */

PYBIND11_MODULE(_compiled, m) {
    m.def("start", start), m.def("add", add), m.def("bounds_without", bounds_without);
    m.def("without_padding", [](const std::vector<Tensor> &keys, const py::tuple &padding) {
        Stay made = without_padding(keys, padding);
        return std::make_tuple(made.keys, made.mask);
    });
}
