"""EmbeddingBagCollection beside that of TorchRec, on the same weights and the same KeyedJaggedTensor. Needs torchrec,
which nothing else here does."""
import unittest
import warnings

try:
    import torch
    import numpy as np
    import torchrec
    from torchrec.models.dlrm import DLRM
except Exception as error:  # its parts that are compiled may not fit the PyTorch that is installed
    raise unittest.SkipTest(f"torchrec cannot be imported ({error})") from error

import frugal_embedding.torch as ft

warnings.filterwarnings("ignore")
FEATURES = {"history": "item", "item": "item", "user": "user"}


def both(dims, weighted=False, mode="sum"):
    """A collection of ours and one of TorchRec, with the same rows."""
    torch.manual_seed(1)
    tables = {"item": (50, dims[0]), "user": (30, dims[1])}
    ours = ft.EmbeddingBagCollection(tables, features=FEATURES, max_keys=600, lr=0.1, optimizer="adagrad", mode=mode)
    pooling = torchrec.PoolingType.SUM if mode == "sum" else torchrec.PoolingType.MEAN
    theirs = torchrec.EmbeddingBagCollection(is_weighted=weighted, tables=[
        torchrec.EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=dim, pooling=pooling,
                                    feature_names=[feature for feature, used in FEATURES.items() if used == name])
        for name, (rows, dim) in tables.items()])
    ours.drain()
    with torch.no_grad():
        for name in tables:
            theirs.embedding_bags[name].weight.copy_(torch.tensor(np.array(ours.view(name))))
    return ours, theirs


def batch_of(order=tuple(FEATURES), weighted=False, bags=8):
    lengths = torch.randint(0, 4, (len(order) * bags,))
    n = int(lengths.sum())
    return torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=list(order), values=torch.randint(0, 30, (n,)), lengths=lengths,
        weights=torch.rand(n) if weighted else None)


class BesideTorchRec(unittest.TestCase):
    def test_the_same_values_and_training(self):
        other = ["user", "item", "history"]
        for dims, order, weighted, mode in (((4, 4), list(FEATURES), False, "sum"), ((4, 4), other, True, "sum"),
                                            ((4, 8), list(FEATURES), True, "sum"), ((8, 4), other, False, "mean")):
            with self.subTest(dims=dims, order=order, weighted=weighted, mode=mode):
                ours, theirs = both(dims, weighted, mode)
                dense = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
                batches = [batch_of(order, weighted) for _ in range(6)]
                for batch in ft.Loader(batches, ours):
                    made, wanted = ours(batch), theirs(batch)
                    self.assertEqual((made.keys(), made.length_per_key(), made.offset_per_key()),
                                     (wanted.keys(), wanted.length_per_key(), wanted.offset_per_key()))
                    torch.testing.assert_close(made.values(), wanted.values())
                    torch.testing.assert_close(made.to_dict(), wanted.to_dict())
                    dense.zero_grad()
                    made.values().tanh().sum().backward()
                    wanted.values().tanh().sum().backward()
                    dense.step()
                ours.drain()
                for name in ours.names:
                    torch.testing.assert_close(torch.tensor(np.array(ours.view(name))),
                                               theirs.embedding_bags[name].weight.detach())

    def test_features_of_a_batch_one_by_one(self):
        ours, theirs = both((4, 4))
        batch = batch_of()
        made, wanted = ours(batch.to_dict()), theirs(batch).to_dict()
        torch.testing.assert_close(made, wanted)

    def test_a_model_of_torchrec_takes_a_collection_of_ours(self):
        ours, theirs = both((4, 4))
        models = []
        for tables in (ours, theirs):
            torch.manual_seed(2)
            models.append(DLRM(embedding_bag_collection=tables, dense_in_features=3, dense_arch_layer_sizes=[8, 4],
                               over_arch_layer_sizes=[8, 1]))
        dense = [torch.optim.Adagrad(model.parameters(), lr=0.1) for model in models]
        for _ in range(5):
            batch, numbers, losses = batch_of(), torch.rand(8, 3), []
            for model, optimizer in zip(models, dense):
                optimizer.zero_grad()
                losses.append(model(numbers, batch).tanh().sum())
                losses[-1].backward()
                optimizer.step()
            torch.testing.assert_close(*losses)

    def test_a_variable_batch_of_each_feature_is_refused(self):
        ours, _ = both((4, 4))
        given = torchrec.KeyedJaggedTensor(
            keys=list(FEATURES), values=torch.arange(6), lengths=torch.tensor([1, 1, 2, 2]),
            stride_per_key_per_rank=[[1], [1], [2]])
        for call in (ours, ours.announce):
            with self.assertRaisesRegex(ValueError, "variable batch for each feature"):
                call(given)


if __name__ == "__main__":
    unittest.main()
