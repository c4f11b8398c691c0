"""What modules for PyTorch take as input: several inputs of one table in one step, bags said by offsets, by lengths or
by jagged tensors, KeyedJaggedTensor, and graphs of torch.compile."""
import os
import shutil
import tempfile
import unittest
import warnings

try:
    import torch
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error

import frugal_embedding.torch as ft
from frugal_embedding.torch import inputs
from reference import Reference, pool, spread

warnings.filterwarnings("ignore")


def setUpModule():
    """inductor finds no graph of another version of the operators."""
    folder = tempfile.mkdtemp()
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    if before is None:
        unittest.addModuleCleanup(os.environ.pop, "TORCHINDUCTOR_CACHE_DIR")
    else:
        unittest.addModuleCleanup(os.environ.__setitem__, "TORCHINDUCTOR_CACHE_DIR", before)


def weights_of(module, name=""):
    module.drain()
    return torch.from_numpy(np.array(module.view(name)))


def bag_of(rows=50, dim=4, **settings):
    return ft.EmbeddingBag(rows, dim, **{"max_keys": 400, "mode": "sum", "lr": 0.1, "seed": 3, **settings})


def rows_of(**settings):
    return ft.Embedding(50, 4, **{"max_keys": 400, "lr": 0.1, "seed": 3, **settings})


def tables_of(features=None, tables=None, **settings):
    return ft.EmbeddingBagCollection(tables or {"item": (50, 4), "user": (30, 4)}, features=features,
                                     **{"max_keys": 400, "lr": 0.1, "seed": 3, **settings})


class KeyedJagged:
    """Shaped as TorchRec's KeyedJaggedTensor."""

    def __init__(self, keys, values, lengths, weights=None, variable=False):
        self._keys, self._values, self._lengths, self._weights = keys, values, lengths, weights
        self._variable = variable

    def keys(self):
        return self._keys

    def values(self):
        return self._values

    def lengths(self):
        return self._lengths

    def offsets(self):
        return torch.nn.functional.pad(self._lengths.cumsum(0), (1, 0))

    def weights_or_none(self):
        return self._weights

    def stride(self):
        return self._lengths.numel() // len(self._keys)

    def variable_stride_per_key(self):
        return self._variable


class SeveralInputs(unittest.TestCase):
    """One table, several inputs, one step."""

    def test_bags_are_those_of_the_reference(self):
        torch.manual_seed(1)
        for mode in ("sum", "mean"):
            bag = bag_of(mode=mode)
            reference = Reference(weights_of(bag).numpy(), "adagrad")
            batches = [[torch.randint(0, 50, (8, 3)), (torch.randint(0, 50, (20,)), torch.tensor([0, 4, 4, 11])),
                        torch.randint(0, 50, (5, 1), dtype=torch.int32)] for _ in range(6)]
            for at, batch in enumerate(ft.Loader(batches, bag, lambda batch: batch) if mode == "sum" else batches):
                made = bag(batch if at % 2 else tuple(batch))
                self.assertIsInstance(made, list)
                keys = [batch[0].view(-1), batch[1][0], batch[2].view(-1)]
                bounds = [np.arange(0, 25, 3), np.array([0, 4, 4, 11, 20]), np.arange(6)]
                direction = [torch.randn_like(one) for one in made]
                for one, of, ends in zip(made, keys, bounds):
                    wanted = pool(reference.weights[of.numpy()], ends, None, mode == "mean")
                    self.assertEqual(one.detach().numpy().tobytes(), wanted.tobytes())
                sum((one * way).sum() for one, way in zip(made, direction)).backward()
                reference.train([(torch.cat(keys).numpy(), np.concatenate(
                    [spread(way.numpy(), ends, None, mode == "mean") for way, ends in zip(direction, bounds)]))], 0.1)
            self.assertEqual(weights_of(bag).numpy().tobytes(), reference.weights.tobytes())
            self.assertEqual(bag.instance.stats()["steps"], 6)

    def test_two_towers(self):
        """The gradient of a row that both towers use is the sum of two."""
        bag = bag_of(optimizer="sgd", lr=1.0)
        before = weights_of(bag)
        user, item = bag([torch.tensor([[1, 2]]), torch.tensor([[2]])])
        (user * item).sum().backward()
        after = weights_of(bag)
        self.assertTrue(torch.equal(after[1], before[1] - before[2]))
        self.assertTrue(torch.allclose(after[2], before[2] - (before[2] + before[1] + before[2])))

    def test_embeddings_of_any_shape(self):
        rows, plain = rows_of(), rows_of()
        batches = [[torch.randint(0, 50, (3, 4)), torch.randint(0, 50, (2,)), torch.tensor(7)] for _ in range(4)]
        for batch in ft.Loader(batches, rows, lambda batch: batch):
            made = rows(batch)
            self.assertEqual([tuple(one.shape) for one in made], [(3, 4, 4), (2, 4), (4,)])
            wanted = plain(torch.cat([one.reshape(-1) for one in batch]))
            self.assertTrue(torch.equal(torch.cat([one.reshape(-1, 4) for one in made]), wanted))
            sum(one.pow(2).sum() for one in made).backward()
            wanted.pow(2).sum().backward()
        self.assertTrue(torch.equal(weights_of(rows), weights_of(plain)))

    def test_weights_of_each(self):
        bag, plain = bag_of(), bag_of()
        a, b = torch.randint(0, 50, (4, 3)), torch.randint(0, 50, (7,))
        starts = torch.tensor([0, 2, 2])
        of = [torch.rand(4, 3, requires_grad=True), torch.rand(7, requires_grad=True)]
        made = bag([a, (b, starts)], per_sample_weights=of)
        flat = torch.cat([one.detach().reshape(-1) for one in of]).requires_grad_()
        wanted = plain(torch.cat([a.view(-1), b]), torch.tensor([0, 3, 6, 9, 12, 14, 14]), flat)
        self.assertTrue(torch.equal(torch.cat(made), wanted))
        torch.cat(made).pow(2).sum().backward()
        wanted.pow(2).sum().backward()
        self.assertTrue(torch.equal(torch.cat([one.grad.reshape(-1) for one in of]), flat.grad))
        self.assertTrue(torch.equal(weights_of(bag), weights_of(plain)))

    def test_features_of_one_table(self):
        """history and item use one table, in one step; with a table of another dim beside them."""
        torch.manual_seed(2)
        for tables in ({"item": (50, 4), "user": (30, 4)}, {"item": (50, 4), "user": (30, 8)}):
            module = tables_of({"history": "item", "user": "user", "item": "item"}, tables)
            references = {name: Reference(weights_of(module, name).numpy(), "adagrad") for name in tables}
            batches = [{"item": torch.randint(0, 50, (8, 1)), "user": torch.randint(0, 30, (8, 2)),
                        "history": (torch.randint(0, 50, (30,)), torch.arange(0, 24, 3))} for _ in range(6)]
            for batch in ft.Loader(batches, module):
                made = module(batch)
                self.assertEqual(list(made), ["history", "user", "item"])
                flat = {"item": batch["item"].view(-1), "user": batch["user"].view(-1), "history": batch["history"][0]}
                bounds = {"item": np.arange(9), "user": np.arange(0, 17, 2),
                          "history": np.append(np.arange(0, 24, 3), 30)}
                direction = {name: torch.randn_like(one) for name, one in made.items()}
                for name, table in module.features.items():
                    wanted = pool(references[table].weights[flat[name].numpy()], bounds[name])
                    self.assertEqual(made[name].detach().numpy().tobytes(), wanted.tobytes())
                sum((made[name] * direction[name]).sum() for name in made).backward()
                for table in tables:
                    of = [name for name, used in module.features.items() if used == table]
                    references[table].train([(torch.cat([flat[name] for name in of]).numpy(), np.concatenate(
                        [spread(direction[name].numpy(), bounds[name]) for name in of]))], 0.1)
            for name in tables:
                self.assertEqual(weights_of(module, name).numpy().tobytes(), references[name].weights.tobytes())

    def test_stacked_features(self):
        features = {"history": "item", "user": "user", "item": "item"}
        module, plain = tables_of(features, stacked=True), tables_of(features)
        for each in (1, 3):
            batch = {name: torch.randint(0, 30, (5, each)) for name in ("user", "item", "history")}
            made, wanted = module(batch), torch.stack(list(plain(batch).values()))
            self.assertTrue(torch.equal(made, wanted))
            self.assertEqual(made.shape, (3, 5, 4))
            for one in (made, wanted):
                one.pow(2).sum().backward()

    def test_micro_batches_of_several_inputs(self):
        """A step of several forwards: of lists, and of bags of one key beside others."""
        def keys(*shape):
            return torch.randint(0, 50, shape)

        for batches in ([[keys(4, 3), keys(2, 1)], [keys(1, 1), keys(3, 2)]], [keys(5, 1), keys(5, 2), keys(4, 1)],
                        [keys(3, 1), keys(6, 1)], [(keys(9), torch.tensor([0, 2, 6])), keys(4, 1)]):
            bag, plain = bag_of(), bag_of()
            flat = [one for batch in batches for one in (batch if isinstance(batch, list) else [batch])]
            for _ in range(2):
                bag.announce_micro_batches(batches)
                made = [bag(*batch) if isinstance(batch, tuple) else bag(batch) for batch in batches]
                for of in made:
                    sum(one.pow(2).sum() for one in (of if isinstance(of, list) else [of])).backward()
                sum(one.pow(2).sum() for one in plain(flat)).backward()
                self.assertTrue(torch.equal(weights_of(bag), weights_of(plain)))
        bag = bag_of()
        with self.assertRaisesRegex(ValueError, r"as many inputs in each are wanted; lists of \[2, 1\]"):
            bag.announce_micro_batches([[keys(2, 1), keys(2, 1)], [keys(2, 1)]])

    def test_micro_batches_of_features(self):
        features = {"history": "item", "user": "user", "item": "item"}
        for tables in (None, {"item": (50, 4), "user": (30, 8)}):
            module, plain = tables_of(features, tables), tables_of(features, tables)
            batches = [{name: torch.randint(0, 30, (5, each)) for name in features} for each in (1, 3)]
            module.announce_micro_batches(batches)
            for batch in batches:
                sum(one.pow(2).sum() for one in module(batch).values()).backward()
            ends = {name: torch.cat([torch.arange(5), torch.arange(5, 20, 3)]) for name in features}
            whole = {name: (torch.cat([batch[name].view(-1) for batch in batches]), ends[name]) for name in features}
            sum(one.pow(2).sum() for one in plain(whole).values()).backward()
            for name in ("item", "user"):
                self.assertTrue(torch.allclose(weights_of(module, name), weights_of(plain, name)))

    def test_wrong_features(self):
        for features, said in (({"a": "item", "b": "users"}, r"\['users'\] are no tables"),
                               ({"a": "item"}, r"\['user'\] have no feature")):
            with self.assertRaisesRegex(ValueError, said):
                tables_of(features)


class Forms(unittest.TestCase):
    """The same bags, said in several ways, have the same bits."""

    LENGTHS = torch.tensor([3, 0, 4, 1, 2])

    def forms(self):
        keys, lengths = torch.randint(0, 50, (10,), generator=torch.Generator().manual_seed(4)), self.LENGTHS
        whole = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        jagged = torch.nested.nested_tensor_from_jagged
        return {"offsets": ((keys, whole[:-1]), {}), "int32": ((keys.int(), whole[:-1].int()), {}),
                "gaps": ((keys.repeat_interleave(2)[::2], whole.repeat_interleave(2)[::2][:-1]), {}),
                "lengths": ((keys,), {"lengths": lengths}), "lengths of int32": ((keys,), {"lengths": lengths.int()}),
                "jagged": ((jagged(keys, offsets=whole),), {}),
                "nested": ((torch.nested.nested_tensor(list(keys.split(lengths.tolist())), layout=torch.jagged),), {}),
                "Jagged": ((ft.Jagged(keys, lengths=lengths),), {}),
                "Jagged with offsets": ((ft.Jagged(keys, offsets=whole),), {})}

    def test_bags(self):
        for mode in ("sum", "mean"):
            plain = bag_of(mode=mode)
            forms = self.forms()
            for step in range(2):
                plain(*forms["offsets"][0]).pow(2).sum().backward()
            wanted = plain(*forms["offsets"][0])
            for name, (given, named) in forms.items():
                with self.subTest(name=name, mode=mode):
                    bag = bag_of(mode=mode)
                    for announced in (False, True):
                        if announced:
                            bag.announce(*given)
                        bag(*given, **named).pow(2).sum().backward()
                    self.assertTrue(torch.equal(bag(*given, **named), wanted))
                    if not named:  # as one of several, and as a feature
                        one = given[0] if len(given) == 1 else given
                        self.assertTrue(torch.equal(bag([one, torch.tensor([[1]])])[0], wanted))

    def test_features(self):
        user = torch.randint(0, 30, (5, 2))
        forms = {name: given for name, (given, named) in self.forms().items() if not named}
        wanted = tables_of()({"item": forms["offsets"], "user": user})
        for name, given in forms.items():
            with self.subTest(name=name):
                module, batch = tables_of(), {"item": given if len(given) > 1 else given[0], "user": user}
                module.announce(batch)
                made = module(batch)
                self.assertTrue(all(torch.equal(made[key], wanted[key]) for key in wanted))
                sum(one.sum() for one in made.values()).backward()

    def test_jagged_rows_of_an_embedding(self):
        """A row for each key, in the bags of the keys."""
        keys = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64),
                                           torch.tensor([2, 3, 4])], layout=torch.jagged)
        rows, plain = rows_of(), rows_of()
        rows.announce(keys)
        made, wanted = rows(keys), plain(keys.values())
        self.assertEqual(made.shape[1], keys.shape[1])
        self.assertIs(made.offsets(), keys.offsets())
        self.assertTrue(torch.equal(made.values(), wanted))
        (made * made).values().sum().backward()
        wanted.pow(2).sum().backward()
        self.assertTrue(torch.equal(weights_of(rows), weights_of(plain)))
        made = rows([keys, torch.tensor([[1, 2]])])
        self.assertEqual((made[0].shape[1], tuple(made[1].shape)), (keys.shape[1], (1, 2, 4)))

    def test_weights_of_jagged_inputs(self):
        forms = self.forms()
        (keys, offsets), weights = forms["offsets"][0], torch.rand(10)
        wanted = bag_of()(keys, offsets, weights)
        jagged = forms["jagged"][0][0]
        ragged = torch.nested.nested_tensor_from_jagged(weights, offsets=jagged.offsets())
        for given, named in (((jagged,), {"per_sample_weights": weights}), ((jagged,), {"per_sample_weights": ragged}),
                             ((keys,), {"per_sample_weights": weights, "lengths": self.LENGTHS}),
                             ((ft.Jagged(keys, lengths=self.LENGTHS, weights=weights),), {})):
            self.assertTrue(torch.equal(bag_of()(*given, **named), wanted))
        others = torch.nested.nested_tensor_from_jagged(weights, offsets=jagged.offsets().clone())
        with self.assertRaisesRegex(ValueError, "those of a jagged input have its offsets"):
            bag_of()(jagged, per_sample_weights=others)

    def test_bags_of_one_key_are_looked_up_by_position(self):
        keys, ends = torch.randint(0, 50, (12, 1)), torch.arange(12)
        jagged = torch.nested.nested_tensor_from_jagged(keys.view(-1), offsets=torch.arange(13))
        for mode in ("sum", "mean"):
            plain = bag_of(mode=mode)
            reference = Reference(weights_of(plain).numpy(), "adagrad")
            reference.train([(keys.view(-1).numpy(), np.ones((12, 4), np.float32))], 0.1)
            for given in ((keys,), (keys.view(-1), ends), ([keys],), (jagged,)):
                bag, seen = bag_of(mode=mode), []
                look = bag._lookup
                bag._lookup = lambda *args, look=look, seen=seen: seen.append(args[2]) or look(*args)
                made = bag(*given)
                (made[0] if isinstance(made, list) else made).sum().backward()
                self.assertEqual(seen, [None])
                self.assertEqual(weights_of(bag).numpy().tobytes(), reference.weights.tobytes())

    def test_bags_that_only_nearly_have_one_key(self):
        for ends in ([0, 1, 3], [0, 0, 1], [0, 1, 1]):
            bag = bag_of()
            rows, keys = weights_of(bag), torch.tensor([5, 6, 7])
            wanted = pool(rows[keys].numpy(), np.append(ends, 3))
            self.assertEqual(bag(keys, torch.tensor(ends)).detach().numpy().tobytes(), wanted.tobytes())


class WrongInputs(unittest.TestCase):
    """An error, and nothing has changed: no step, no bit."""

    def refused(self, module, kind, said, *args, **named):
        before = {name: weights_of(module, name) for name in getattr(module, "names", [""])}
        steps = [session.step for _, session, _ in module._parts]
        with self.assertRaisesRegex(kind, said):
            module(*args, **named)
        self.assertEqual([session.step for _, session, _ in module._parts], steps)
        self.assertFalse(any(session.queue for _, session, _ in module._parts))
        for name, rows in before.items():
            self.assertTrue(torch.equal(weights_of(module, name), rows))

    def test_bags(self):
        bag, keys = bag_of(), torch.arange(5)
        jagged = torch.nested.nested_tensor_from_jagged
        ends = torch.tensor([0, 2, 5])
        for kind, said, args, named in (
                (ValueError, "their sum must be 5, the number of keys; it is 4", (keys,),
                 {"lengths": torch.tensor([2, 2])}),
                (ValueError, "none may be negative; -1", (keys,), {"lengths": torch.tensor([6, -1])}),
                (ValueError, r"lengths: \[n_bags\] is wanted", (keys,), {"lengths": torch.ones(5, 1).long()}),
                (TypeError, "int32 or int64", (keys,), {"lengths": torch.ones(5)}),
                (TypeError, "lengths: a tensor is wanted; a list", (keys,), {"lengths": [5]}),
                (TypeError, "either offsets or lengths", (keys, ends[:-1]), {"lengths": ends}),
                (ValueError, "with offsets was given", (keys.view(1, 5),), {"lengths": torch.tensor([5])}),
                (ValueError, "the last must be 5", (jagged(keys, offsets=torch.tensor([0, 2, 4])),), {}),
                (ValueError, "whose dimension 1 is ragged", (jagged(keys.view(5, 1), offsets=ends),), {}),
                (ValueError, "without gaps", (jagged(keys, offsets=ends, lengths=torch.tensor([1, 2])),), {}),
                (TypeError, "layout=torch.jagged", (torch.nested.nested_tensor([keys, keys]),), {}),
                (TypeError, "none is wanted", (jagged(keys, offsets=ends), ends), {}),
                (TypeError, "pairs", ([keys.view(1, 5)], ends), {}),
                (ValueError, "at least one", ([],), {}),
                (ValueError, "without offsets", ((keys, ends),), {}),  # a pair is one of a list
                (TypeError, "a tensor of keys is wanted; a list of str", (["a"],), {}),
                (TypeError, "a tensor of keys is wanted", ([keys.view(1, 5), (1, 2)],), {}),
                (TypeError, "a list of 2", ([keys.view(1, 5)] * 2,), {"per_sample_weights": torch.rand(5)}),
                (TypeError, "some are missing", ([keys.view(1, 5)] * 2,),
                 {"per_sample_weights": [torch.rand(1, 5), None]})):
            with self.subTest(said=said):
                self.refused(bag, kind, said, *args, **named)
        self.refused(bag_of(mode="mean"), ValueError, "mode 'sum'",
                     ft.Jagged(keys, offsets=ends, weights=torch.rand(5)))
        with self.assertRaisesRegex(ValueError, "each input of a list"):
            bag.announce((keys, ends))
        with self.assertRaisesRegex(TypeError, "either offsets or lengths are wanted; none"):
            ft.Jagged(keys)

    def test_embeddings(self):
        rows, keys = rows_of(), torch.arange(5)
        self.refused(rows, TypeError, "a tensor of keys is wanted; a tuple", [(keys, keys)])
        self.refused(rows, TypeError, "int64 or int32 are wanted; torch.float32", [torch.rand(3)])
        self.refused(rows, TypeError, "int64 or int32 are wanted; torch.float32", [torch.rand(3), keys])

    def test_features(self):
        keys = torch.arange(6).view(3, 2)
        for tables in (None, {"item": (50, 4), "user": (30, 8)}):
            module = tables_of(tables=tables)
            for kind, said, features in (
                    (KeyError, r"\['user'\] are missing", {"item": keys}),
                    (KeyError, r"\['label'\] were given, too", {"item": keys, "user": keys, "label": keys}),
                    (TypeError, "{feature: input} or a KeyedJaggedTensor", keys),
                    (TypeError, "user: a tensor of keys is wanted.* a str was given", {"item": keys, "user": "a"}),
                    (ValueError, "offsets of user: the last", {"item": keys, "user": (keys[0], torch.tensor([0, 9]))}),
                    (TypeError, "int64 or int32", {"item": keys, "user": torch.rand(3, 2)})):
                with self.subTest(said=said):
                    self.refused(module, kind, said, features)
            both = {"item": keys, "user": keys}
            weights = torch.rand(3, 2)
            self.refused(module, ValueError, "per_sample_weights of item: the shape", both,
                         {"item": torch.rand(2, 3), "user": weights})
            self.refused(module, KeyError, "missing", both, {"item": weights})
            self.refused(tables_of(tables=tables, mode="mean"), ValueError, "mode 'sum'", both,
                         {"item": weights, "user": weights})

    def test_keyed(self):
        values, lengths = torch.arange(9), torch.tensor([1, 2, 0, 2, 3, 1])
        for kind, said, given in (
                (KeyError, r"\['user'\] are missing", KeyedJagged(["item", "other"], values, lengths)),
                (KeyError, r"\['other'\] were given, too", KeyedJagged(["item", "user", "other"], values, lengths)),
                (ValueError, "each is wanted once", KeyedJagged(["item", "user", "user"], values, lengths)),
                (ValueError, "variable batch", KeyedJagged(["item", "user"], values, lengths, variable=True)),
                (ValueError, "with the sum 8", KeyedJagged(["item", "user"], values[:8], lengths)),
                (ValueError, "these fall", KeyedJagged(["item", "user"], values, torch.tensor([4, -1, 0, 2, 3, 1]))),
                (ValueError, r"2 features with 2 bags each are wanted, 5; 6",
                 KeyedJagged(["item", "user"], values, lengths[:5])),
                (ValueError, "the shape of values", KeyedJagged(["item", "user"], values, lengths, torch.rand(8)))):
            with self.subTest(said=said):
                self.refused(tables_of(), kind, said, given)
        good = KeyedJagged(["item", "user"], values, lengths, torch.rand(9))
        self.refused(tables_of(mode="mean"), ValueError, "mode 'sum'", good)
        self.refused(tables_of(), TypeError, "has its own", good, {"item": torch.rand(3)})


class KeyedJaggedInputs(unittest.TestCase):
    FEATURES = {"history": "item", "user": "user", "item": "item"}

    def batch(self, order, weighted, each=None):
        lengths = torch.full((15,), each) if each else torch.randint(0, 4, (15,))
        n = int(lengths.sum())
        return KeyedJagged(order, torch.randint(0, 30, (n,)), lengths, torch.rand(n) if weighted else None)

    def split(self, given):
        ends = given.offsets()[::5].tolist()
        parts = {}
        for at, name in enumerate(given.keys()):
            first, end = ends[at:at + 2]
            parts[name] = ft.Jagged(given.values()[first:end], lengths=given.lengths()[at * 5:at * 5 + 5],
                                    weights=None if given.weights_or_none() is None else
                                    given.weights_or_none()[first:end])
        return parts

    def test_bits_of_features(self):
        torch.manual_seed(3)
        for tables in (None, {"item": (50, 4), "user": (30, 8)}):
            for order in (["history", "user", "item"], ["user", "item", "history"]):
                for weighted, each in ((False, None), (True, None), (False, 1), (True, 1)):
                    with self.subTest(tables=tables, order=order, weighted=weighted, each=each):
                        module, plain = (tables_of(self.FEATURES, tables) for _ in range(2))
                        batches = [self.batch(order, weighted, each) for _ in range(4)]
                        for batch in ft.Loader(batches, module):
                            made, wanted = module(batch), plain(self.split(batch))
                            self.assertIsInstance(made, ft.KeyedTensor)
                            self.assertEqual(made.keys(), list(self.FEATURES))
                            self.assertTrue(torch.equal(made.values(), torch.cat(list(wanted.values()), 1)))
                            made.values().pow(2).sum().backward()
                            torch.cat(list(wanted.values()), 1).pow(2).sum().backward()
                        for name in ("item", "user"):
                            self.assertTrue(torch.equal(weights_of(module, name), weights_of(plain, name)))

    def test_nothing_is_copied_where_the_order_matches(self):
        module, given = tables_of(self.FEATURES), self.batch(list(self.FEATURES), True)
        seen = []
        look = module._lookup
        module._lookup = lambda *args: seen.append(args) or look(*args)
        module(given)
        _, keys, _, weights, _ = seen[0]
        self.assertEqual(keys[0].data_ptr(), given.values().data_ptr())
        self.assertEqual(weights.data_ptr(), given.weights_or_none().data_ptr())

    def test_no_bags(self):
        given = KeyedJagged(list(self.FEATURES), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        self.assertEqual(tables_of(self.FEATURES)(given).values().shape, (0, 12))

    def test_keyed_tensor(self):
        rows = [torch.rand(2, 3), torch.rand(2, 4)]
        made = ft.KeyedTensor(["a", "b"], rows)
        self.assertEqual((made.keys(), made.length_per_key(), made.offset_per_key(), made.key_dim()),
                         (["a", "b"], [3, 4], [0, 3, 7], 1))
        self.assertTrue(torch.equal(made.values(), torch.cat(rows, 1)) and torch.equal(made["b"], rows[1]))
        self.assertEqual(list(made.to_dict()), ["a", "b"])
        self.assertEqual(made.device(), torch.device("cpu"))

    def test_the_configuration_that_models_of_torchrec_ask_for(self):
        configs = tables_of(self.FEATURES).embedding_bag_configs()
        self.assertEqual([(one.name, one.num_embeddings, one.embedding_dim, one.feature_names) for one in configs],
                         [("item", 50, 4, ["history", "item"]), ("user", 30, 4, ["user"])])

    def test_values_on_a_gpu_are_not_read(self):
        """Tensors without values stand for those of a GPU: whatever would wait for one raises an error."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            try:
                values = torch.empty(9, dtype=torch.int64, device="cuda")
                values[1:]  # a PyTorch with CUDA may ask the driver
            except RuntimeError as error:
                self.skipTest(f"no tensors that stand for those of a GPU: {error}")
            given = KeyedJagged(["user", "item", "history"], values,
                                torch.empty(6, dtype=torch.int64, device="cuda"),
                                torch.empty(9, device="cuda"))
            given.offset_per_key = lambda: [0, 2, 6, 9]
            keyed = inputs.Keyed(given, self.FEATURES, "forward")
            keyed.read(False, False)
            for at in ([1, 2, 0], [0, 1, 2]):  # in the order of values(), and in another
                self.assertEqual([len(part) for part in keyed.keys(at)], [[3, 2, 4][one] for one in at])
                self.assertEqual(keyed.bounds(at, True, values.device, {}, 0).shape, (7,))
                self.assertEqual(keyed.weights(at, None).shape, (9,))
            for bags in (inputs.bags_of((values, given.lengths()), False),
                         inputs.bags_of(ft.Jagged(values, lengths=given.lengths()), False)):
                self.assertEqual((bags.n_bags, bags.single), (6, False))


class Lengths(torch.nn.Module):
    def __init__(self, bag):
        super().__init__()
        self.bag, self.drain, self.view = bag, bag.drain, bag.view

    def forward(self, keys, lengths):
        return self.bag(keys, lengths=lengths)


class Compiled(unittest.TestCase):
    """A module in a graph without breaks."""

    BACKENDS = ("eager", "aot_eager", "inductor")

    def beside_eager(self, make, *given):
        for backend in self.BACKENDS:
            with self.subTest(backend=backend):
                torch._dynamo.reset()
                compiled, eager, head = make(), make(), torch.nn.Linear(4, 1)

                def loss_of(module, *given):
                    made = module(*given)
                    made = sum(made.values()) if isinstance(made, dict) else sum(made) if isinstance(made, list) else \
                        made
                    return head(made).sum()

                try:
                    graph = torch.compile(loss_of, backend=backend, fullgraph=True)
                    for _ in range(3):
                        graph(compiled, *given).backward()
                        loss_of(eager, *given).backward()
                except Exception as error:
                    if backend == "inductor" and "InvalidCxxCompiler" in repr(error):
                        self.skipTest("inductor finds no C++ compiler")
                    raise
                for name in getattr(compiled, "names", [""]):
                    self.assertTrue(torch.allclose(weights_of(compiled, name), weights_of(eager, name), atol=1e-6))

    def test_bags_by_shape(self):
        self.beside_eager(bag_of, torch.randint(0, 50, (8, 3)))

    def test_bags_of_one_key(self):
        self.beside_eager(bag_of, torch.randint(0, 50, (8, 1)))

    def test_bags_with_offsets(self):
        self.beside_eager(bag_of, torch.randint(0, 50, (24,)), torch.tensor([0, 3, 3, 20]))

    def test_embedding(self):
        self.beside_eager(rows_of, torch.randint(0, 50, (8, 3)))

    def test_bags_with_lengths(self):
        self.beside_eager(lambda: Lengths(bag_of()), torch.randint(0, 50, (24,)), torch.tensor([3, 0, 17, 4]))

    def test_jagged(self):
        self.BACKENDS = ("eager", "aot_eager")  # inductor's cache writes a warning
        self.beside_eager(bag_of, torch.nested.nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged))

    def test_several_inputs(self):
        self.beside_eager(bag_of, [torch.randint(0, 50, (8, 3)), (torch.randint(0, 50, (16,)), torch.arange(8))])

    def test_collection(self):
        self.beside_eager(tables_of, {"item": torch.randint(0, 50, (8, 3)),
                                      "user": (torch.randint(0, 30, (24,)), torch.arange(0, 24, 3))})

    def test_wrong_offsets_in_a_graph(self):
        bag = bag_of()
        before, keys = weights_of(bag), torch.arange(6)
        for backend in self.BACKENDS:
            torch._dynamo.reset()
            graph = torch.compile(lambda keys, offsets: bag(keys, offsets), backend=backend, fullgraph=True)
            for wrong, said in (([1, 2, 3], "the first must be 0"), ([0, 4, 2], "these fall"),
                                ([0, 2, 7], "at most 6, .* 7 was given")):
                with self.assertRaisesRegex(ValueError, f"offsets: .*{said}"):
                    graph(keys, torch.tensor(wrong))
            # Those of one feature, which begin late, would pool a key of the feature before: the library sees nothing.
            tables = tables_of()
            graph = torch.compile(lambda *given: tables(dict(zip(("item", "user"), given))), backend=backend,
                                  fullgraph=True)
            with self.assertRaisesRegex(ValueError, "offsets: the first must be 0"):
                graph((keys, torch.tensor([0, 2])), (keys, torch.tensor([1, 2])))
        self.assertTrue(torch.equal(weights_of(bag), before))


if __name__ == "__main__":
    unittest.main()
