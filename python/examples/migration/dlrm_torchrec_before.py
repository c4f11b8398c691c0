#!/usr/bin/env python3
"""TorchRec's DLRM on torchrec.EmbeddingBagCollection."""
import torch
import torchrec
from torch import nn
from torchrec.models.dlrm import DLRM

import clicks


def features_of(batch):
    return torchrec.KeyedJaggedTensor.from_lengths_sync(list(clicks.FEATURES), batch.keys, batch.lengths)


def make_tables(options):
    tables = torchrec.EmbeddingBagCollection([torchrec.EmbeddingBagConfig(
        name=name, num_embeddings=options.rows, embedding_dim=options.dim,
        feature_names=[feature for feature, table in clicks.FEATURES.items() if table == name])
        for name in clicks.TABLES])
    with torch.no_grad():
        for name, bag in tables.embedding_bags.items():
            bag.weight.copy_(clicks.first_rows(name, options))
    return tables


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
    for batch in training:
        logits = model(batch.numbers, features_of(batch)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.trained(loss)
    report.print(lambda batch: model(batch.numbers, features_of(batch)).squeeze(1), held_out)


if __name__ == "__main__":
    main()
