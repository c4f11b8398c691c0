"""What modules of frugal_embedding.torch take as input: keys, and the bags that they lie in. Bags are said by shape
([n_bags, keys a bag]), by offsets, by lengths, or by a jagged tensor; those of a collection also by what is shaped as
TorchRec's KeyedJaggedTensor, of which nothing is imported. Tensors on a GPU are not read here."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .micro_batches import join_bounds
from .session import that_stays

_library = torch.library.Library("frugal", "FRAGMENT")


class Jagged:
    """Keys in bags of any length: of EmbeddingBag, or of one feature of a collection.

    `values`: int64 or int32 [n]. Either `offsets`, int64 or int32 [n_bags + 1], of which the first is 0 and the last n,
    or `lengths`, int64 or int32 [n_bags]. `weights`: float32 [n], per_sample_weights. TorchRec's JaggedTensor has the
    same methods, and is taken as well.
    """

    def __init__(self, values: Tensor, *, offsets: Optional[Tensor] = None, lengths: Optional[Tensor] = None,
                 weights: Optional[Tensor] = None):
        if (offsets is None) == (lengths is None):
            raise TypeError("Jagged: either offsets or lengths are wanted; "
                            f"{'none' if offsets is None else 'both'} were given")
        self._values, self._offsets, self._lengths, self._weights = values, offsets, lengths, weights

    def values(self) -> Tensor:
        return self._values

    def offsets(self) -> Tensor:
        if self._offsets is None:
            assert self._lengths is not None
            self._offsets = offsets_of(self._lengths, self._values.numel(), "lengths")
        return self._offsets

    def lengths(self) -> Tensor:
        return self.offsets().diff() if self._lengths is None else self._lengths

    def weights_or_none(self) -> Optional[Tensor]:
        return self._weights


class KeyedTensor:
    """What a collection returns for a KeyedJaggedTensor: pooled rows by feature, with the methods of TorchRec's
    KeyedTensor. `rows`: of each key [n_bags, dim]."""

    def __init__(self, keys: Sequence[str], rows: Sequence[Tensor]):
        self._rows = dict(zip(keys, rows))
        self._values: Optional[Tensor] = None

    def keys(self) -> List[str]:
        return list(self._rows)

    def values(self) -> Tensor:
        """[n_bags, sum of dims], in the order of keys()."""
        if self._values is None:
            self._values = torch.cat(list(self._rows.values()), 1)
        return self._values

    def key_dim(self) -> int:
        return 1

    def device(self) -> torch.device:
        return next(iter(self._rows.values())).device

    def length_per_key(self) -> List[int]:
        return [rows.shape[1] for rows in self._rows.values()]

    def offset_per_key(self) -> List[int]:
        offsets = [0]
        for dim in self.length_per_key():
            offsets.append(offsets[-1] + dim)
        return offsets

    def to_dict(self) -> Dict[str, Tensor]:
        return dict(self._rows)

    def __getitem__(self, key: str) -> Tensor:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)


class Bags:
    """The keys of one input, in `n_bags` bags: `each` keys a bag; else offsets, which end with n if they are `whole`.
    `single`: each bag has one key, as far as this is known. `weights`: what came with the keys."""

    __slots__ = ("keys", "n_bags", "each", "offsets", "whole", "single", "weights")

    def __init__(self, keys: Tensor, n_bags: int, each: Optional[int] = None, offsets: Optional[Tensor] = None,
                 whole: bool = False, single: bool = False, weights: Optional[Tensor] = None):
        self.keys, self.n_bags, self.each, self.offsets, self.whole = keys, n_bags, each, offsets, whole
        self.single, self.weights = single, weights


# Offsets

def _are_integers(given: Any, what: str) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f"{what}: a tensor is wanted; a {type(given).__name__} was given")
    if given.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{what}: int32 or int64 is wanted; {given.dtype} was given. Write {what}.long()")


def check_offsets(offsets: Tensor, n: int, whole: bool, what: str = "offsets") -> bool:
    """Wrong offsets would pool the keys of another input, or leave some out. Returns whether each bag is known to have
    one key."""
    _are_integers(offsets, what)
    if offsets.is_cuda:
        return False  # the check would wait for the GPU, which finds those that fall or miss n as a whole
    if offsets.numel() == 0:
        if n:
            raise ValueError(f"{what}: the first must be 0; there are none, and {n} keys")
        return False
    first, last = offsets[0].item(), offsets[-1].item()
    if first != 0:
        raise ValueError(f"{what}: the first must be 0; {first} was given")
    if last > n or (whole and last != n):
        raise ValueError(f"{what}: the last must be {'' if whole else 'at most '}{n}, the number of keys; "
                         f"{last} was given")
    least = offsets.diff().min().item() if offsets.numel() > 1 else 1
    if least < 0:
        raise ValueError(f"{what}: each must be at least the one before; these fall. Sort the bags by position")
    return least == 1 and offsets.numel() - whole == n and (whole or last < n)


def _check_when_it_runs(offsets: Tensor, n: int, whole: bool) -> Tensor:
    check_offsets(offsets, n, whole)
    return offsets.clone()


_library.define("check_offsets(Tensor offsets, SymInt n, bool whole) -> Tensor")
for _kind in ("CPU", "CUDA"):
    _library.impl("check_offsets", _check_when_it_runs, _kind)
torch.library.register_fake("frugal::check_offsets", lambda offsets, n, whole: torch.empty_like(offsets), lib=_library)


def checked_offsets(offsets: Tensor, n: int, whole: bool, what: str = "offsets") -> Tuple[bool, Tensor]:
    """As check_offsets, with the offsets to go on with. Values are not known while a graph is made; there they come
    from an operator that checks them when it runs. It stays in the graph, because its result is used; inductor leaves
    an assertion out."""
    if torch.compiler.is_compiling():
        _are_integers(offsets, what)
        return False, offsets if offsets.is_cuda else torch.ops.frugal.check_offsets(offsets, n, whole)
    return check_offsets(offsets, n, whole, what), offsets


def offsets_of(lengths: Tensor, n: int, what: str) -> Tensor:
    """int64 [n_bags + 1] from lengths [n_bags]."""
    _are_integers(lengths, what)
    if lengths.dim() != 1:
        raise ValueError(f"{what}: [n_bags] is wanted; shape {tuple(lengths.shape)} was given")
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    if not lengths.is_cuda and not torch.compiler.is_compiling():
        if lengths.numel() and lengths.min().item() < 0:
            raise ValueError(f"{what}: none may be negative; {lengths.min().item()} was given")
        if offsets[-1].item() != n:
            raise ValueError(f"{what}: their sum must be {n}, the number of keys; it is {offsets[-1].item()}")
    return offsets


def bounds_of_shapes(shapes: Sequence[Sequence[int]], place: torch.device, kept: Dict[int, tuple],
                     part: int = 0) -> Tensor:
    """As bounds_of, of inputs of `shapes` [n_bags, keys a bag]. They depend on nothing else, and the latest of each
    part are kept, for the stream that made them."""
    stream = torch.cuda.current_stream(place).cuda_stream if place.type == "cuda" else 0
    if part in kept and kept[part][:2] == (stream, shapes):
        return kept[part][2]
    cpu = torch.device("cpu")
    bounds = join_bounds([torch.arange(n_bags, dtype=torch.int32, device=cpu) * each for n_bags, each in shapes],
                         [n_bags * each for n_bags, each in shapes], cpu).to(place)
    if not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled():
        kept[part] = (stream, shapes, bounds)
    return bounds


def bounds_of(inputs: Sequence[Bags], place: torch.device) -> Tensor:
    """int32 [n_bags + 1]: where the bags of all inputs begin, in the order of the inputs, and their end."""
    if len(inputs) == 1 and inputs[0].whole:
        assert inputs[0].offsets is not None
        return inputs[0].offsets.to(place, torch.int32, copy=True)
    starts = []
    for one in inputs:
        if one.offsets is None:
            assert one.each is not None
            starts.append(torch.arange(one.n_bags, dtype=torch.int32, device=place) * one.each)
        else:
            starts.append((one.offsets[:-1] if one.whole else one.offsets).to(place, torch.int32))
    return join_bounds(starts, [one.keys.numel() for one in inputs], place)


# One input

def values_of(jagged: Tensor, what: str) -> Tensor:
    """The keys [n] of a jagged tensor [n_bags, j]."""
    if jagged.layout != torch.jagged:
        raise TypeError(f"{what}: of nested tensors those with layout=torch.jagged are wanted; {jagged.layout} was "
                        "given")
    if jagged.dim() != 2:
        raise ValueError(f"{what}: a jagged tensor [n, j] is wanted, whose dimension 1 is ragged; one of "
                         f"{jagged.dim()} dimensions was given")
    if jagged.lengths() is not None:  # type: ignore[attr-defined]
        raise ValueError(f"{what}: a jagged tensor without gaps is wanted; this one has lengths beside its offsets. "
                         "Give input.contiguous()")
    return jagged.values()


def is_jagged(given: Any) -> bool:
    """TorchRec's JaggedTensor, or ours."""
    return not isinstance(given, (Tensor, Mapping)) and hasattr(given, "values") and hasattr(given, "offsets") and \
        hasattr(given, "lengths")


def is_keyed(given: Any) -> bool:
    """TorchRec's KeyedJaggedTensor."""
    return is_jagged(given) and hasattr(given, "keys") and hasattr(given, "stride")


def keys_of(given: Any, what: str) -> Tensor:
    """The keys of one input of bags; their offsets are not read."""
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], Tensor):
        return given[0]
    if is_jagged(given):
        return given.values()
    if not isinstance(given, Tensor):
        raise TypeError(f"{what}: a tensor of keys is wanted, or a pair (keys, offsets), or a "
                        f"frugal_embedding.torch.Jagged; {describe(given)} was given")
    return values_of(given, what) if given.is_nested else given


def bags_of(given: Any, include_last: bool, what: str = "input") -> Bags:
    """One input: [n_bags, keys a bag]; a pair of keys [n] and offsets; a jagged tensor; a Jagged."""
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], Tensor):
        return bags_at(given[0], given[1], include_last, what)
    if is_jagged(given):
        weights = given.weights_or_none() if hasattr(given, "weights_or_none") else None
        return bags_at(given.values(), given.offsets(), True, what, weights)
    keys = keys_of(given, what)
    if keys is not given:
        return bags_at(keys, given.offsets(), True, what)
    return bags_at(keys, None, include_last, what)


def bags_at(keys: Tensor, offsets: Optional[Tensor], whole: bool, what: str, weights: Optional[Tensor] = None) -> Bags:
    if keys.dim() != (2 if offsets is None else 1):
        raise ValueError(f"{what}: [n] with offsets, or [n_bags, keys a bag] without, is wanted; shape "
                         f"{tuple(keys.shape)} {'without' if offsets is None else 'with'} offsets was given")
    if offsets is None:
        n_bags, each = keys.shape
        return Bags(keys, n_bags, each, single=each == 1)
    of = "offsets" if what == "input" else f"offsets of {what}"
    if not isinstance(offsets, Tensor):
        raise TypeError(f"{of}: a tensor is wanted; a {type(offsets).__name__} was given")
    if offsets.dim() != 1 or offsets.numel() < whole:
        raise ValueError(f"{of}: [n_bags{' + 1' if whole else ''}] is wanted; shape {tuple(offsets.shape)} was given")
    single, offsets = checked_offsets(offsets, keys.numel(), whole, of)
    return Bags(keys, offsets.numel() - whole, None, offsets, whole, single, weights)


def is_list(input: Any) -> bool:
    """Are these several inputs of one table?"""
    return isinstance(input, (list, tuple))


def is_pair(given: Any) -> bool:
    """Is this one input, keys [n] and offsets, rather than two?"""
    return is_list(given) and len(given) == 2 and isinstance(given[0], Tensor) and given[0].dim() == 1


def describe(given: Any) -> str:
    """What `given` is, for a message."""
    of = f" of {', '.join(type(part).__name__ for part in given[:4])}" if isinstance(given, (list, tuple)) else ""
    return f"a {type(given).__name__}{of}"


def several(inputs: Sequence[Any]) -> None:
    """Raises an error unless these are several inputs of one table, rather than one that is no tensor, or a pair."""
    if not inputs:
        raise ValueError("input: a list of inputs has at least one; none was given")
    if not all(isinstance(one, (Tensor, list, tuple)) or is_jagged(one) for one in inputs):
        raise TypeError(f"input: a tensor of keys is wanted; {describe(inputs)} was given")


# Weights

def weights_of(weights: Any, given: Any, bags: Bags, what: str = "per_sample_weights") -> Tensor:
    """The weights of one input, [n]."""
    if not isinstance(weights, Tensor):
        raise TypeError(f"{what}: a tensor is wanted; a {type(weights).__name__} was given")
    if weights.is_nested:
        values = values_of(weights, what)
        if not isinstance(given, Tensor) or not given.is_nested or \
                weights.offsets() is not given.offsets():  # type: ignore[attr-defined]
            raise ValueError(f"{what}: those of a jagged input have its offsets; others were given. Write "
                             "torch.nested.nested_tensor_from_jagged(weights, offsets=input.offsets())")
        return that_stays(values)
    if weights.shape != bags.keys.shape:
        raise ValueError(f"{what}: the shape of input, {tuple(bags.keys.shape)}, is wanted; {tuple(weights.shape)} "
                         "was given")
    return that_stays(weights).reshape(-1)


def check_weighted(mode: str) -> None:
    if mode != "sum":
        raise ValueError(f"per_sample_weights: only mode 'sum' has them; the mode is {mode!r}")


# The inputs of a collection

def check_features(given: Sequence[str], wanted: Mapping[str, str]) -> None:
    """The features given are those of the collection: what is left out would have no rows, and what is too much none
    either, in silence."""
    if len(given) == len(wanted) and all(name in wanted for name in given) and len(set(given)) == len(wanted):
        return
    missing = [name for name in wanted if name not in given]
    if missing:
        raise KeyError(f"features: {list(wanted)} are wanted; {missing} are missing from {list(given)}")
    unknown = [name for name in given if name not in wanted]
    if unknown:
        raise KeyError(f"features: {list(wanted)} are wanted; {unknown} were given, too. Give those of this collection "
                       "alone: {name: features[name] for name in collection.features}")
    raise ValueError(f"features: each is wanted once; {list(given)} were given")


class Mapped:
    """{feature: input}, in the order of the collection: feature `at` of the calls below. `dense`: all inputs are
    [n_bags, keys a bag], and nothing but their shapes is asked for."""

    keyed = False

    def __init__(self, features: Mapping[str, Any], wanted: Mapping[str, str], call: str):
        if not isinstance(features, Mapping):
            raise TypeError(f"{call}: {{feature: input}} or a KeyedJaggedTensor is wanted; {describe(features)} was "
                            "given")
        if features.keys() != wanted.keys():
            check_features(list(features), wanted)
        self.names, self.call = wanted, call
        self.given = [features[name] for name in wanted]
        self.dense = all(type(one) is Tensor and not one.is_nested for one in self.given)
        self.shapes: List[torch.Size] = []
        self.bags: List[Bags] = []

    def keys(self, at: Sequence[int]) -> List[Tensor]:
        if self.dense:
            return [self.given[one] for one in at]
        names = list(self.names)
        return [keys_of(self.given[one], f"{self.call}: {names[one]}") for one in at]

    def read(self, include_last: bool, weighted: bool) -> None:
        """Checks all bags; before the calls below. `weighted`: weights are given beside the features."""
        if self.dense:
            self.shapes = [one.shape for one in self.given]
            self.dense = not weighted and all(len(shape) == 2 for shape in self.shapes)
        if not self.dense:
            self.bags = [bags_of(given, include_last, name) for name, given in zip(self.names, self.given)]

    def sizes(self, at: Sequence[int]) -> List[int]:
        """The number of bags of each."""
        return [self.shapes[one][0] for one in at] if self.dense else [self.bags[one].n_bags for one in at]

    def bounds(self, at: Sequence[int], weighted: bool, place: torch.device, kept: Dict[int, tuple],
               part: int) -> Optional[Tensor]:
        """None: each bag has one key, and a row is its own sum and mean."""
        if self.dense:
            shapes = [self.shapes[one] for one in at]
            return None if all(shape[1] == 1 for shape in shapes) else bounds_of_shapes(shapes, place, kept, part)
        inputs = [self.bags[one] for one in at]
        if not weighted and all(one.single for one in inputs):
            return None
        return bounds_of(inputs, place)

    def weights(self, at: Sequence[int], given: Optional[Mapping[str, Tensor]]) -> Optional[Tensor]:
        """[n], of the keys of the features `at`; `given` or those that came with the keys."""
        if self.dense:
            return None
        names = list(self.names)
        of = [self.bags[one].weights if given is None else given.get(names[one]) for one in at]
        if given is None and all(one is None for one in of):
            return None
        missing = [names[one] for one, weights in zip(at, of) if weights is None]
        if missing:
            raise KeyError("per_sample_weights: all features have some, or none has; those of "
                           f"{missing} are missing")
        flat = [weights_of(weights, self.given[one], self.bags[one], f"per_sample_weights of {names[one]}")
                for one, weights in zip(at, of)]
        return flat[0] if len(flat) == 1 else torch.cat(flat)


class Keyed:
    """What is shaped as TorchRec's KeyedJaggedTensor: the features lie one behind the other in values(). On a GPU the
    lengths of all features come from offset_per_key(), which waits for the GPU unless it is known already."""

    keyed = True

    def __init__(self, features: Any, wanted: Mapping[str, str], call: str):
        names = list(features.keys())
        check_features(names, wanted)
        if any(getattr(features, what, bool)() for what in ("variable_stride_per_key", "inverse_indices_or_none")):
            raise ValueError(f"{call}: one number of bags for all features is wanted; this KeyedJaggedTensor has a "
                             "variable batch for each feature. Give {name: features[name]} instead")
        self.given, self.values, self.offsets, self.stride = features, features.values(), features.offsets(), \
            features.stride()
        if self.offsets.numel() != len(names) * self.stride + 1:
            raise ValueError(f"{call}: offsets of {len(names)} features with {self.stride} bags each are wanted, "
                             f"{len(names) * self.stride + 1}; {self.offsets.numel()} were given")
        if self.offsets.is_cuda and hasattr(features, "offset_per_key"):
            self.first = list(features.offset_per_key())
        elif self.stride:
            self.first = self.offsets[::self.stride].tolist()
        else:
            self.first = [0] * (len(names) + 1)
        sizes = [end - first for first, end in zip(self.first, self.first[1:])]
        if self.first[0] != 0 or min(sizes) < 0 or self.first[-1] != self.values.numel():
            raise ValueError(f"{call}: lengths that are at least 0, with the sum {self.values.numel()}, the number of "
                             f"keys, are wanted; the features begin and end at {self.first}")
        self.at = [names.index(name) for name in wanted]  # where a feature of the collection lies in values()
        self.parts = self.values.split(sizes)
        self.single = False

    def keys(self, at: Sequence[int]) -> List[Tensor]:
        return [self.parts[self.at[one]] for one in at]

    def read(self, include_last: bool, weighted: bool) -> None:
        if weighted:
            raise TypeError("per_sample_weights: a KeyedJaggedTensor has its own; others were given, too")
        self.single, self.offsets = checked_offsets(self.offsets, self.values.numel(), True)

    def sizes(self, at: Sequence[int]) -> List[int]:
        return [self.stride] * len(at)

    def _in_order(self, features: Sequence[int]) -> Tuple[List[int], bool]:
        at = [self.at[one] for one in features]
        return at, at == list(range(at[0], at[0] + len(at)))

    def bounds(self, features: Sequence[int], weighted: bool, place: torch.device, kept: Dict[int, tuple],
               part: int) -> Optional[Tensor]:
        if self.single and not weighted:
            return None
        at, in_order = self._in_order(features)
        if in_order:
            bounds = self.offsets[at[0] * self.stride:(at[-1] + 1) * self.stride + 1]
            return (bounds - self.first[at[0]]).to(place, torch.int32)
        starts, n = [], 0
        for one in at:
            starts.append(self.offsets[one * self.stride:(one + 1) * self.stride] + (n - self.first[one]))
            n += self.first[one + 1] - self.first[one]
        starts.append(torch.full((1,), n, dtype=self.offsets.dtype, device=self.offsets.device))
        return torch.cat(starts).to(place, torch.int32)

    def weights(self, features: Sequence[int], given: Optional[Mapping[str, Tensor]]) -> Optional[Tensor]:
        weights = self.given.weights_or_none() if hasattr(self.given, "weights_or_none") else None
        if weights is None:
            return None
        if weights.shape != self.values.shape:
            raise ValueError(f"weights: {tuple(self.values.shape)}, the shape of values(), is wanted; "
                             f"{tuple(weights.shape)} was given")
        at, in_order = self._in_order(features)
        if in_order:
            return that_stays(weights[self.first[at[0]]:self.first[at[-1] + 1]])
        return torch.cat([weights[self.first[one]:self.first[one + 1]] for one in at])


__all__ = ["Jagged", "KeyedTensor"]
