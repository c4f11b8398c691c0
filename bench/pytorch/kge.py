#!/usr/bin/env python3
"""TransE as one would write it in PyTorch, to compare the speed of build/kge with:

    pip install torch && python3 bench/pytorch/kge.py [--dim 400] [--batch 1200] [--negatives 200] [--steps 60]

L2 distances, shared negatives, one end of each triple corrupted per step, self-adversarial loss, sparse gradients,
Adagrad. Distances through a matrix product (torch.cdist does that). As many entities and relations as
FB15k-237 has. Triples are random, which does not change the work. Prints triples a second, the median over steps.
"""
import argparse
import sys
import time

try:
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch")
    sys.exit(0)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("--dim", 400), ("--batch", 1200), ("--negatives", 200), ("--steps", 60), ("--entities", 14541),
                        ("--relations", 237)):
        parser.add_argument(name, type=int, default=value)
    o = parser.parse_args()
    torch.manual_seed(1)
    entities = torch.nn.Embedding(o.entities, o.dim, sparse=True)
    relations = torch.nn.Embedding(o.relations, o.dim, sparse=True)
    optimizer = torch.optim.Adagrad([*entities.parameters(), *relations.parameters()], lr=0.1)
    margin, times = 6.0, []
    for step in range(o.steps + 5):
        head, tail = torch.randint(o.entities, (2, o.batch))
        relation, negative = torch.randint(o.relations, (o.batch,)), torch.randint(o.entities, (o.negatives,))
        since = time.perf_counter()
        query = entities(head) + relations(relation)
        positive = margin - (query - entities(tail)).norm(dim=1)
        scores = margin - torch.cdist(query, entities(negative))
        weights = torch.softmax(scores.detach(), dim=1)
        loss = -torch.nn.functional.logsigmoid(positive).mean()
        loss = loss - (weights * torch.nn.functional.logsigmoid(-scores)).sum(dim=1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - since)
    times = sorted(times[5:])
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads: TransE, dim {o.dim}, batch {o.batch}, "
          f"{o.negatives} shared negatives: {o.batch / times[len(times) // 2]:,.0f} triples/s")


main()
