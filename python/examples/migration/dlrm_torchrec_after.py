#!/usr/bin/env python3
"""TorchRec's DLRM on Frugal's EmbeddingBagCollection: dlrm_torchrec_before.py, migrated."""
import torch
import torchrec
from torch import nn
from torchrec.models.dlrm import DLRM

import clicks
from frugal_embedding import Optimizer, Table
from frugal_embedding.torch import EmbeddingBagCollection, Loader


def features_of(batch):
    return torchrec.KeyedJaggedTensor.from_lengths_sync(list(clicks.FEATURES), batch.keys, batch.lengths)


def make_tables(options):
    return EmbeddingBagCollection(
        {name: Table(options.rows, clicks.first_rows(name, options)) for name in clicks.TABLES},
        features=clicks.FEATURES, dim=options.dim, max_keys=clicks.KEYS * options.batch,
        optimizer=Optimizer("adagrad", initial_accumulator=1e-6), lr=options.lr)


def main():
    options = clicks.read_options(__doc__)
    training, held_out = clicks.log(options)
    torch.manual_seed(1)
    tables = make_tables(options)
    torch.manual_seed(1)
    model = DLRM(tables, dense_in_features=clicks.NUMBERS, dense_arch_layer_sizes=[64, options.dim],
                 over_arch_layer_sizes=[64, 1])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=options.lr, initial_accumulator_value=1e-6)
    report = clicks.Report()
    for batch in Loader(training, tables, features_of):
        logits = model(batch.numbers, features_of(batch)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.trained(loss)
    report.print(lambda batch: model(batch.numbers, features_of(batch)).squeeze(1), held_out)


if __name__ == "__main__":
    main()
