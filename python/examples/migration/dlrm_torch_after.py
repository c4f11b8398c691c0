#!/usr/bin/env python3
"""DLRM on Frugal's EmbeddingBagCollection: dlrm_torch_before.py, migrated."""
import torch
from torch import nn

import clicks
from frugal_embedding import Optimizer, Table
from frugal_embedding.torch import EmbeddingBagCollection, Loader


class Dlrm(nn.Module):
    """Bottom layers for numbers, dot products of all pairs of embeddings, top layers (Naumov et al., 2019)."""

    def __init__(self, options):
        super().__init__()
        self.tables = EmbeddingBagCollection(
            {name: Table(options.rows, clicks.first_rows(name, options)) for name in clicks.TABLES},
            features=clicks.FEATURES, dim=options.dim, max_keys=clicks.KEYS * options.batch,
            optimizer=Optimizer("adagrad", initial_accumulator=1e-6), lr=options.lr)
        n = len(clicks.FEATURES) + 1
        self.bottom = clicks.layers(clicks.NUMBERS, 64, options.dim)
        self.top = clicks.layers(options.dim + n * (n - 1) // 2, 64, 1)
        self.pairs = torch.triu_indices(n, n, 1)

    def forward(self, numbers, features):
        """numbers [batch, NUMBERS], features {name: (keys [n], offsets [batch])} to logits [batch]."""
        dense = self.bottom(numbers)
        pooled = list(self.tables(features).values())
        every = torch.stack([dense] + pooled, 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1)).squeeze(1)


def main():
    options = clicks.read_options(__doc__)
    training, held_out = clicks.log(options)
    torch.manual_seed(1)
    model = Dlrm(options)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=options.lr, initial_accumulator_value=1e-6)
    report = clicks.Report()
    for batch in Loader(training, model.tables, clicks.Batch.features):
        logits = model(batch.numbers, batch.features())
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.trained(loss)
    report.print(lambda batch: model(batch.numbers, batch.features()), held_out)


if __name__ == "__main__":
    main()
