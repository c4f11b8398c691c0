#!/usr/bin/env python3
"""build/dlrm beside the same model in PyTorch, which starts from the same weights.

    tests/reference/dlrm_pytorch.py [--model dlrm] [--optimizer adagrad] [--devices 1] [--build build]

A planted click log in Criteo's format is made by build/gen_clicks, and read here by a parser of its own: label, numbers
as log(1 + x), ids as hashes modulo rows. build/dlrm saves its first weights; then both train one pass of 100 steps. The
loss of every step must agree to rounding, and the AUC of the held-out samples within .001. Exit status 0 if they do; 77
without PyTorch. The sums are in double precision here, so the differences are those of the floats over there.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch numpy")
    sys.exit(77)

NUMBERS, FEATURES, ROWS, BATCH, STEPS, HELD_OUT, DIM = 13, 26, 1000, 256, 100, 0.2, 16
# Of Adagrad. From nothing its first steps are the gradient's signs, where it is all but zero those of what was rounded,
# and training is so lively that a difference grows tenfold in some steps: no digit of a loss is the same after fifty.
# (So it is with Adam, which is left out.)
ACCUMULATOR = 0.1
LOSS_TOLERANCE, AUC_TOLERANCE = 1e-5, 1e-3
M = 2**64 - 1


def hash_row(text):
    """As trainers/clicks/ids.h says."""
    h = 0xCBF29CE484222325
    for byte in text:
        h = (h ^ byte) * 0x100000001B3 & M
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & M
    h = (h ^ h >> 27) * 0x94D049BB133111EB & M
    return (h ^ h >> 31) % ROWS


def read(path):
    rows_of, labels, numbers, ids = {}, [], [], []
    with open(path, "rb") as file:
        for line in file:
            fields = line.rstrip(b"\n").split(b"\t")
            labels.append(float(fields[0]))
            numbers.append([math.copysign(math.log1p(abs(float(x))), float(x)) if x else 0.0
                            for x in fields[1:1 + NUMBERS]])
            for text in fields[1 + NUMBERS:]:
                if text not in rows_of:
                    rows_of[text] = hash_row(text)
            ids.append([i * ROWS + rows_of[text] for i, text in enumerate(fields[1 + NUMBERS:])])
    return torch.tensor(labels, dtype=torch.double), torch.tensor(numbers, dtype=torch.double), torch.tensor(ids)


class Model(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        with open(os.path.join(folder, "model.json")) as file:
            self.about = json.load(file)
        dense = self.load(folder, "dense").reshape(-1)
        self.rows = torch.nn.Embedding.from_pretrained(self.load(folder, "rows"), freeze=False, sparse=True)
        self.bottom, self.top = self.layers(dense, "bottom"), self.layers(dense, "top")
        self.linear = "linear" in self.about
        if self.linear:
            at = self.about["linear"]
            self.of_numbers = torch.nn.Parameter(dense[at:at + NUMBERS].clone())
            self.of_ids = torch.nn.Embedding.from_pretrained(self.load(folder, "linear"), freeze=False, sparse=True)

    @staticmethod
    def load(folder, name):
        return torch.from_numpy(numpy.load(os.path.join(folder, name + ".npy"))).double()

    def layers(self, dense, name):
        made = torch.nn.ModuleList()
        for about in self.about[name]:
            layer = torch.nn.Linear(about["in"], about["out"]).double()
            size = about["in"] * about["out"]
            layer.weight.data = dense[about["weight"]:about["weight"] + size].reshape(about["out"], about["in"]).clone()
            layer.bias.data = dense[about["bias"]:about["bias"] + about["out"]].clone()
            made.append(layer)
        return made

    def tables(self):
        return [self.rows.weight] + ([self.of_ids.weight] if self.linear else [])

    def dense(self):
        own = [*self.bottom.parameters(), *self.top.parameters()]
        return own + ([self.of_numbers] if self.linear else [])

    def run_top(self, x):
        for layer in self.top[:-1]:
            x = torch.relu(layer(x))
        return self.top[-1](x).squeeze(1)

    def forward(self, numbers, ids):
        rows = self.rows(ids)
        if self.about["model"] == "dlrm":
            x = numbers
            for layer in self.bottom:
                x = torch.relu(layer(x))
            vectors = torch.cat([x.unsqueeze(1), rows], dim=1)
            products = vectors @ vectors.transpose(1, 2)
            low = torch.tril_indices(FEATURES + 1, FEATURES + 1, offset=-1)
            return self.run_top(torch.cat([x, products[:, low[0], low[1]]], dim=1))
        logit = self.run_top(torch.cat([numbers, rows.flatten(1)], dim=1))
        logit = logit + numbers @ self.of_numbers + self.of_ids(ids).sum(dim=(1, 2))
        if self.about["model"] == "deepfm":
            logit = logit + 0.5 * (rows.sum(dim=1) ** 2 - (rows**2).sum(dim=1)).sum(dim=1)
        return logit


def area(scores, labels):
    """Under the ROC curve, by ranks; equal scores share theirs."""
    _, inverse, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (torch.cumsum(counts, 0) - (counts - 1) / 2.0)[inverse]
    ones = labels.sum()
    return ((ranks[labels > 0].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones))).item()


def optimizers(name, model):
    if name == "adagrad":
        return [torch.optim.Adagrad(model.tables(), lr=0.05, initial_accumulator_value=ACCUMULATOR),
                torch.optim.Adagrad(model.dense(), lr=0.02, initial_accumulator_value=ACCUMULATOR)]
    return [torch.optim.SGD(model.tables(), lr=0.05), torch.optim.SGD(model.dense(), lr=0.02)]


def train(model, name, labels, numbers, ids):
    steps, losses = optimizers(name, model), []
    for at in range(0, len(labels), BATCH):
        batch = slice(at, at + BATCH)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(numbers[batch], ids[batch]), labels[batch])
        losses.append(loss.item())
        loss.backward()
        for step in steps:
            step.step()
            step.zero_grad()
    return losses


def run_dlrm(o, folder, log):
    command = [os.path.join(o.build, "dlrm"), "--data", log, "--format", "criteo", "--test", str(HELD_OUT),
               "--rows", str(ROWS), "--model", o.model, "--dim", str(DIM), "--top", "64,32",
               "--batch", str(BATCH // o.devices), "--devices", str(o.devices), "--optimizer", o.optimizer,
               "--lr", "0.05", "--dense-optimizer", o.optimizer, "--dense-lr", "0.02",
               "--accumulator", str(ACCUMULATOR), "--lr-decay", "none", "--shuffle", "0", "--report-every", "0"]
    subprocess.run([*command, "--epochs", "0", "--save", folder], check=True, capture_output=True)
    path = os.path.join(folder, "report")
    subprocess.run([*command, "--epochs", "1", "--json", path], check=True, capture_output=True)
    with open(path) as file:
        reports = [json.loads(line) for line in file]
    return [report["loss"] for report in reports[:-1]], reports[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="dlrm", choices=["dlrm", "wide-deep", "deepfm"])
    parser.add_argument("--optimizer", default="adagrad", choices=["adagrad", "sgd"])
    parser.add_argument("--build", default="build")
    parser.add_argument("--devices", type=int, default=1)
    o = parser.parse_args()
    torch.set_num_threads(1)
    samples = round(STEPS * BATCH / (1 - HELD_OUT))
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        with open(log, "wb") as file:
            subprocess.run([os.path.join(o.build, "gen_clicks"), "--samples", str(samples), "--format", "criteo",
                            "--rows", str(ROWS // 4)], check=True, stdout=file, stderr=subprocess.DEVNULL)
        losses, result = run_dlrm(o, folder, log)
        labels, numbers, ids = read(log)
        model = Model(folder)
    training = samples - round(HELD_OUT * samples)
    expected = train(model, o.optimizer, labels[:training], numbers[:training], ids[:training])
    with torch.no_grad():
        auc = area(model(numbers[training:], ids[training:]), labels[training:])
    worst = max(abs(a - b) / b for a, b in zip(losses, expected))
    print(f"{o.model}, {o.optimizer}, {o.devices} device(s): "
          f"{len(losses)} losses, {losses[0]:.6f} to {losses[-1]:.6f}, the largest relative difference {worst:.2g}; "
          f"AUC {result['auc']:.6f}, here {auc:.6f}")
    if len(losses) != STEPS or len(expected) != STEPS or not worst <= LOSS_TOLERANCE:
        sys.exit(f"{len(losses)} and {len(expected)} steps, wanted {STEPS}; "
                 f"difference {worst:g}, at most {LOSS_TOLERANCE:g}")
    if not abs(auc - result["auc"]) <= AUC_TOLERANCE:
        sys.exit(f"AUC {result['auc']:.6f} there, {auc:.6f} here: more than {AUC_TOLERANCE:g} apart")


main()
