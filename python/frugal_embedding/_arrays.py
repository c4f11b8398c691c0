"""Addresses of arrays, without copies: NumPy arrays, objects with the buffer protocol, and DLPack.

Nothing is converted in silence. An array of another type, or one that is not contiguous, is a TypeError or ValueError
that says what was given and what to write instead. Keys may have gaps: they are copied, as the library copies them
anyway. So may the rows of a matrix, between them, where the library takes a stride.

bf16 is ml_dtypes.bfloat16, DLPack's bfloat, or uint16 of the same bits; arrays that are made here have the first type
where ml_dtypes is installed, else the last one. fp16 is float16. Without NumPy both are uint16, because memoryview has
no type of 16 bits before Python 3.12; so calls that may be given both must be told which.
"""
from __future__ import annotations

import array
import ctypes
import functools
import importlib
import sys
from typing import Any, NamedTuple, Optional, Sequence

from ._library import c

try:
    import numpy
except ImportError:  # the package works without it
    numpy = None  # type: ignore[assignment]

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
READ_ONLY, COPIED = 1, 2  # flags of DLManagedTensorVersioned, at byte 24 of it; its DLTensor is at byte 32

# How arrays of a frugal_type may come, the best one first; and which type each is.
KINDS = {c.FRUGAL_FP32: ("float32",), c.FRUGAL_BF16: ("bfloat16", "uint16"), c.FRUGAL_FP16: ("float16",)}
FLOATS = ("float32", "bfloat16", "float16", "uint16")
TYPE_OF = {kind: number for number, kinds in KINDS.items() for kind in kinds}

_BYTES = {"float32": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "float16": 2, "bfloat16": 2, "uint16": 2}
_FORMATS = {"f": "float32", "e": "float16", "H": "uint16", "q": "int64", "Q": "uint64", "i": "int32", "I": "uint32",
            "l": "int64" if ctypes.sizeof(ctypes.c_long) == 8 else "int32",
            "L": "uint64" if ctypes.sizeof(ctypes.c_long) == 8 else "uint32"}
_DLPACK = {(2, 32): "float32", (0, 64): "int64", (1, 64): "uint64", (0, 32): "int32", (1, 32): "uint32",
           (2, 16): "float16", (4, 16): "bfloat16", (1, 16): "uint16"}
_CODES = {"int64": "q", "uint64": "Q", "int32": "i", "uint32": "I"}  # of array and memoryview
_DTYPES = {} if numpy is None else {numpy.dtype(name): name for name in _BYTES if name != "bfloat16"}


class Array(NamedTuple):
    """Memory of another object: keep `owner` as long as the address is used."""

    address: int
    kind: str  # a key of _BYTES
    shape: tuple
    owner: Any
    stride: int = 0  # elements from row to row, where there are gaps between rows; else 0


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)), ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
                ("internal", ctypes.c_void_p)]


class _DLTensor(ctypes.Structure):
    """DLTensor, the first member of DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [ctypes.c_void_p], None
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes, _capsule_is.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_STRIDES = 0x18  # PyBUF_STRIDES


def _wrong_kind(what: str, kinds: Sequence[str], found: str) -> TypeError:
    wanted = " or ".join(kinds)
    name = "ml_dtypes.bfloat16" if kinds[0] == "bfloat16" else f"'{kinds[0]}'"
    return TypeError(f"{what}: an array of {wanted} is wanted; {found} was given. Nothing is converted in silence: "
                     f"convert it where it is made, for example by .astype({name})")


def _not_contiguous(what: str, shape: Sequence[int], gaps: str) -> ValueError:
    wanted = "an array of contiguous rows that do not overlap" if gaps == "rows" else "a C-contiguous array"
    return ValueError(f"{what}: {wanted} is wanted; the one given, of shape {tuple(shape)}, has gaps or "
                      "another order. Copy it where it is made, for example by numpy.ascontiguousarray")


def _row_stride(shape: Sequence[int], strides: Sequence[int], unit: int) -> int:
    """Elements from row to row of a matrix whose rows have no gaps within, and do not overlap; 0: it is none. `unit`:
    what strides count an element as."""
    if len(shape) != 2 or (shape[1] > 1 and strides[1] != unit) or strides[0] % unit:
        return 0
    stride = strides[0] // unit
    return stride if stride >= shape[1] else 0


def _is_contiguous(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != unit:
            return False
        unit *= size
    return True


def _copied(kind: str, data: bytes) -> Array:
    """A copy of the library's own, of one dimension: `data` are its elements."""
    owner = array.array(_CODES[kind], data)
    return Array(owner.buffer_info()[0], kind, (len(owner),), owner)


def _with_gaps(address: int, kind: str, n: int, stride: int) -> Array:
    """A copy of `n` elements in host memory, `stride` elements apart."""
    size = _BYTES[kind]
    first = address + min((n - 1) * stride, 0) * size
    memory = (ctypes.c_ubyte * (((n - 1) * abs(stride) + 1) * size)).from_address(first)
    code: Any = _CODES[kind]
    elements = memoryview(memory).cast("B").cast(code)
    return _copied(kind, elements[::stride].tobytes() if stride else elements.tobytes() * n)


def _of_numpy(given: Any, what: str, kinds: Sequence[str], writable: bool, gaps: str) -> Array:
    kind = _DTYPES.get(given.dtype, "") or ("bfloat16" if given.dtype.name == "bfloat16" else "")
    if kind not in kinds:
        raise _wrong_kind(what, kinds, f"{given.dtype} of shape {given.shape}")
    if isinstance(given, numpy.ma.MaskedArray):
        raise TypeError(f"{what}: an array without a mask is wanted, because no mask is read; a MaskedArray of shape "
                        f"{given.shape} was given. Choose what it stands for: .compressed(), or .filled(value)")
    flags = given.flags
    if gaps == "copied" and given.ndim == 1 and not (flags.c_contiguous and flags.aligned):
        return _copied(kind, given.tobytes())
    stride = 0
    if not flags.c_contiguous:
        stride = _row_stride(given.shape, given.strides, given.itemsize) if gaps == "rows" else 0
        if not stride:
            raise _not_contiguous(what, given.shape, gaps)
    if writable and not flags.writeable:
        raise ValueError(f"{what}: the array is read-only, and the call writes it; give one that may be written")
    return Array(given.__array_interface__["data"][0], kind, given.shape, given, stride)


def _of_buffer(given: Any, what: str, kinds: Sequence[str], writable: bool, gaps: str) -> Array:
    owner = memoryview(given)
    kind = _FORMATS.get(owner.format.lstrip("@=<" if sys.byteorder == "little" else "@=>"), "")
    if numpy is None and kind == "uint16" and "float16" in kinds:
        if kind in kinds:
            raise TypeError(f"{what}: an array of 16 bits, format 'H', is of bf16 or of fp16, and without NumPy it "
                            "does not say of which: give dtype='bf16' or dtype='fp16', too")
        kind = "float16"
    if kind not in kinds or owner.itemsize != _BYTES[kind]:
        raise _wrong_kind(what, kinds, f"format '{owner.format}' of shape {owner.shape}")
    shape = tuple(owner.shape or ())
    if gaps == "copied" and len(shape) == 1 and not owner.c_contiguous:
        return _copied(kind, owner.tobytes())
    stride = 0
    if not owner.c_contiguous:
        stride = _row_stride(shape, owner.strides or (), owner.itemsize) if gaps == "rows" else 0
        if not stride:
            raise _not_contiguous(what, shape, gaps)
    if writable and owner.readonly:
        raise ValueError(f"{what}: the array is read-only, and the call writes it; give one that may be written")
    buffer = _Buffer()
    if _get_buffer(owner, ctypes.byref(buffer), _STRIDES):
        raise ValueError(f"{what}: {type(given).__name__} gives no buffer")
    address = buffer.buf or 0
    _release_buffer(ctypes.byref(buffer))
    if gaps == "copied" and len(shape) == 1 and address % owner.itemsize:
        return _copied(kind, owner.tobytes())
    return Array(address, kind, shape, owner, stride)


def _capsule_of(given: Any, what: str, ordinal: Optional[int], stream: int, writable: bool) -> Any:
    """What `given` exports, if it lies where it is wanted."""
    place, number = given.__dlpack_device__()
    wanted = "host memory" if ordinal is None else f"the memory of GPU {ordinal}"
    fits = place in (CPU, CUDA_HOST) if ordinal is None else place in (CUDA, CUDA_MANAGED) and number == ordinal
    if not fits:
        raise ValueError(f"{what}: an array in {wanted} is wanted; DLPack device ({int(place)}, {number}) was given. "
                         "Move it there first, or attach the device where the array is")
    # 1 is how DLPack names CUDA's default stream, because 0 may mean several.
    options = {} if ordinal is None else {"stream": stream or 1}
    if writable:  # only DLPack 1 says whether the memory may be written
        try:
            return given.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # an earlier DLPack has no max_version
            pass
    return given.__dlpack__(**options)


def _of_dlpack(given: Any, what: str, kinds: Sequence[str], ordinal: Optional[int], stream: int, writable: bool,
               gaps: str) -> Array:
    capsule = _capsule_of(given, what, ordinal, stream, writable)
    if _capsule_is(capsule, b"dltensor_versioned"):
        at = _capsule_pointer(capsule, b"dltensor_versioned")
        if writable and ctypes.c_uint64.from_address(at + 24).value & (READ_ONLY | COPIED):
            raise ValueError(f"{what}: the array is read-only, and the call writes it; give one that may be written")
        tensor = _DLTensor.from_address(at + 32)
    else:
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    kind = _DLPACK.get((tensor.code, tensor.bits), "") if tensor.lanes == 1 else ""
    if kind not in kinds:
        raise _wrong_kind(what, kinds, f"DLPack type ({tensor.code}, {tensor.bits} bits) of shape {shape}")
    address = (tensor.data or 0) + tensor.byte_offset
    strides = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else None
    whole = strides is None or _is_contiguous(shape, strides, 1)
    if gaps == "copied" and len(shape) == 1 and shape[0] and ordinal is None and \
            (not whole or address % _BYTES[kind]):
        return _with_gaps(address, kind, shape[0], strides[0] if strides else 1)
    stride = 0
    if not whole:
        stride = _row_stride(shape, strides or (), 1) if gaps == "rows" else 0
        if not stride:
            raise _not_contiguous(what, shape, gaps)
    return Array(address, kind, shape, capsule, stride)  # the capsule's end releases the memory


def array_of(given: Any, what: str, kinds: Sequence[str], shape: Optional[tuple] = None, writable: bool = False,
             ordinal: Optional[int] = None, stream: int = 0, gaps: str = "") -> Array:
    """The memory of `given`: a C-contiguous array of one of `kinds`, of `shape` (None in it: any length).

    `ordinal`: the array lies in the memory of that GPU, and work that `stream` is given later finds it
    complete; None: in the host's memory. `gaps`: with "copied", one of one dimension that has gaps, or whose address
    is no multiple of its elements' size, is copied; with "rows", there may be gaps between rows; else gaps are refused.
    """
    if ordinal is None and numpy is not None and isinstance(given, numpy.ndarray):
        found = _of_numpy(given, what, kinds, writable, gaps)
    elif hasattr(given, "__dlpack__"):
        found = _of_dlpack(given, what, kinds, ordinal, stream, writable, gaps)
    elif ordinal is None:
        try:
            found = _of_buffer(given, what, kinds, writable, gaps)
        except (BufferError, TypeError) as error:
            if isinstance(error, TypeError) and str(error).startswith(what):
                raise
            raise _wrong_kind(what, kinds, type(given).__name__) from None
    else:
        raise _wrong_kind(what, kinds, f"{type(given).__name__}, which has no __dlpack__,")
    if shape is not None and 0 in shape and 0 in found.shape:
        return found  # a memoryview of no elements has no other shape than (0,)
    if shape is not None and not (len(shape) == len(found.shape) and
                                  all(want in (None, size) for want, size in zip(shape, found.shape))):
        wanted = "(" + ", ".join("n" if size is None else str(size) for size in shape) + ")"
        raise ValueError(f"{what}: an array of shape {wanted} is wanted; one of shape {tuple(found.shape)} was given")
    if found.address % _BYTES[found.kind] and 0 not in found.shape:
        raise ValueError(f"{what}: an array that begins at a multiple of {_BYTES[found.kind]} bytes is wanted; the one "
                         f"given begins at {found.address:#x}. Copy it where it is made, for example by numpy.array")
    return found


def is_on_gpu(given: Any) -> bool:
    return hasattr(given, "__dlpack_device__") and given.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED)


@functools.lru_cache(maxsize=None)
def _numpy_type(number: int) -> Any:
    """NumPy's type of a frugal_type."""
    if number != c.FRUGAL_BF16:
        return numpy.dtype(KINDS[number][0])
    try:
        return numpy.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return numpy.dtype("uint16")


def new_array(shape: tuple, number: int = c.FRUGAL_FP32) -> Any:
    """Memory of a frugal_type that is not initialized: a NumPy array, or a memoryview where NumPy is not installed."""
    if numpy is not None:
        return numpy.empty(shape, dtype=_numpy_type(number))
    count = 1
    for size in shape:
        count *= size
    code: Any = "H" if number else "f"
    flat = memoryview(((ctypes.c_uint16 if number else ctypes.c_float) * count)()).cast("B")
    return flat.cast(code, shape) if count else flat.cast(code)


def new_counts(n: int) -> Any:
    """uint64 [n] of zeros: a NumPy array, or one of the standard library."""
    return array.array("Q", bytes(8 * n)) if numpy is None else numpy.zeros(n, dtype=numpy.uint64)


def memory_at(address: int, shape: tuple, stride: int, number: int, owner: Any) -> Any:
    """The memory of a matrix of a frugal_type at `address`, whose rows are `stride` elements apart. It keeps `owner`
    alive; a weak reference to it tells when the last view of it is gone."""
    rows, dim = shape
    kind = ctypes.c_uint16 if number else ctypes.c_float
    elements = (rows - 1) * stride + dim if rows else 0
    memory: Any = (kind * elements).from_address(address)
    memory.owner = owner
    return memory


def parts_as(like: Any, data: bytes, n: int) -> Any:
    """`n` arrays of the type and shape of `like`, which is a NumPy array, one behind the other; of another object a
    list of bytes."""
    if numpy is not None and isinstance(like, numpy.ndarray):
        return numpy.frombuffer(data, dtype=like.dtype).reshape((n, *like.shape))
    size = len(data) // n
    return [data[at * size:(at + 1) * size] for at in range(n)]


def matrix_in(memory: Any, shape: tuple, stride: int, number: int) -> Any:
    """A read-only view of the matrix in `memory`, which is as from memory_at."""
    if numpy is not None:
        kind = _numpy_type(number)
        flat = numpy.frombuffer(memory, dtype=numpy.uint16 if number else kind).view(kind)
        return numpy.lib.stride_tricks.as_strided(flat, shape, (kind.itemsize * stride, kind.itemsize), writeable=False)
    if stride != shape[1]:
        raise TypeError(f"view: rows are {stride} weights apart and have {shape[1]}; such a view needs NumPy: "
                        "pip install numpy")
    code: Any = "H" if number else "f"
    return memoryview(memory).cast("B").cast(code, shape).toreadonly()
