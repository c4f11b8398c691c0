#!/usr/bin/env python3
"""Retrieval by two towers: users and items are embedded, and the other items of a batch are the negatives of each
(in-batch negatives, with the correction for how often an item occurs; Yi et al., RecSys '19). The items are exported
for a search, and served.

    python3 python/examples/two_towers.py [steps]
"""
import sys
import tempfile

import numpy as np
import torch

from frugal_embedding import Normal
from frugal_embedding.serve import Server
from frugal_embedding.torch import EmbeddingBagCollection

USERS, ITEMS, DIM, BATCH, HISTORY = 2000, 1000, 16, 256, 5
PADDING = 0  # of histories that are shorter
generator = np.random.default_rng(1)


def draw(n):
    """Users with their latest items, and the item that each takes next: one of the user's own tenth of the items."""
    users = generator.integers(0, USERS, n)
    taken = 1 + (users[:, None] % 10 * (ITEMS // 10) + generator.integers(0, ITEMS // 10, (n, HISTORY + 1)) ** 2
                 // (ITEMS // 10)) % (ITEMS - 1)
    history = np.where(np.arange(HISTORY) < generator.integers(1, HISTORY + 1, n)[:, None], taken[:, 1:], PADDING)
    return torch.from_numpy(users), torch.from_numpy(history), torch.from_numpy(taken[:, 0])


def recall(tables, n=1000, k=20):
    """How often the next item is among the k best of all items."""
    users, history, item = draw(n)
    with torch.no_grad():
        found = tables({"user": users[:, None], "history": history, "item": torch.arange(ITEMS)[:, None]})
        best = ((found["user"] + found["history"]) @ found["item"].T).topk(k).indices
    return (best == item[:, None]).any(1).float().mean().item()


def main(steps=200):
    torch.manual_seed(1)
    tables = EmbeddingBagCollection(
        {"user": (USERS, DIM), "item": (ITEMS, DIM)}, features={"user": "user", "history": "item", "item": "item"},
        padding_idx={"item": PADDING}, mode="mean", max_keys=8000, optimizer="adagrad",
        lr=0.1, init=Normal(0.0, 0.1))
    before = recall(tables)
    occurs = torch.ones(ITEMS)  # how often each item was drawn, for the correction
    for _ in range(steps):
        users, history, item = draw(BATCH)
        occurs += torch.bincount(item, minlength=ITEMS)
        rows = tables({"user": users[:, None], "history": history, "item": item[:, None]})
        scores = (rows["user"] + rows["history"]) @ rows["item"].T  # [BATCH, BATCH]: row i takes item i
        scores = scores - (occurs[item] / occurs.sum()).log()
        same = item[:, None] == item  # another sample of the same item is no negative
        scores = scores.masked_fill(same & ~torch.eye(BATCH, dtype=torch.bool), float("-inf"))
        torch.nn.functional.cross_entropy(scores, torch.arange(BATCH)).backward()
    after = recall(tables)
    print(f"recall at 20 of {ITEMS}: {before:.3f} before, {after:.3f} after {steps} steps")

    with tempfile.TemporaryDirectory() as folder:
        tables.drain()
        np.save(f"{folder}/items.npy", tables.view("item"))  # for an index of another library
        tables.save(f"{folder}/tables")
        with Server([f"{folder}/tables"]) as server:
            rows = server.lookup({1: np.arange(1, ITEMS)})
        same = np.array_equal(rows, np.load(f"{folder}/items.npy")[1:])
    print("items exported, and served:", "the same rows" if same else "other rows")
    return same and after > 5 * before


if __name__ == "__main__":
    raise SystemExit(0 if main(*map(int, sys.argv[1:])) else 1)
