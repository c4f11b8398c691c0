"""Matrix factorization: a rating is the dot product of a user's row and an item's row. The smallest trainer.

    python3 python/examples/matrix_factorization.py
"""
import torch
from frugal_embedding import Uniform
from frugal_embedding.torch import EmbeddingBagCollection, Loader

USERS, ITEMS, DIM, BATCH, STEPS = 2000, 1000, 16, 1024, 600


def ratings():
    """Batches of (users, items, ratings): eight kinds of users like eight kinds of items."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        users = torch.randint(0, USERS, (BATCH, 1), generator=generator)
        items = torch.randint(0, ITEMS, (BATCH, 1), generator=generator)
        yield users, items, torch.where(users % 8 == items % 8, 1.0, -0.2).squeeze(1)


def main():
    tables = EmbeddingBagCollection(
        {"user": (USERS, DIM), "item": (ITEMS, DIM)}, max_keys=2 * BATCH, optimizer="adagrad", lr=0.2, workers=1,
        init=Uniform(-0.3, 0.3), cache_rows=1500)
    features = (lambda batch: {"user": batch[0], "item": batch[1]})
    losses = []
    for step, batch in enumerate(Loader(ratings(), tables, features)):
        rows = tables(features(batch))
        loss = torch.nn.functional.mse_loss((rows["user"] * rows["item"]).sum(1), batch[2])
        loss.backward()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step:3}  mean squared error {losses[-1]:.4f}")
    tables.drain()
    print(f"{STEPS} steps: error {losses[0]:.4f} -> {losses[-1]:.4f}; item 0: {tables.view('item')[0, :3]} ...")
    return losses[-1] < losses[0] / 4


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
