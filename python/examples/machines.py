#!/usr/bin/env python3
"""A model of clicks whose tables are dealt over several machines, each of which has a part in its memory.

    python3 python/examples/machines.py --devices 2                              # one machine with two devices
    torchrun --nnodes 2 --nproc-per-node 1 --node-rank R --master-addr HOST --master-port 29500 \\
        python/examples/machines.py [--dense ddp]                                # R = 0 and 1: two machines with one

Both print the same hashes: a table's bits depend on the number of devices, and not on where they are. So do those of
the dense layers here, because `exchange` gives every machine the gradients of all, which are added in the order of
devices. With --dense ddp DistributedDataParallel adds them, in an order of its own: of two processes the bits are the
same, of more they need not be, and those of the tables follow, because their gradients come through the layers.
"""
import argparse
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from frugal_embedding import Uniform
from frugal_embedding.torch import EmbeddingBagCollection, Machines

TABLES, LOOKAHEAD = 8, 4


def batch_of(step, device, options):
    """What a device trains at a step: keys by table, int64 [batch, 1], and clicks, float32 [batch]."""
    generator = torch.Generator().manual_seed(step * 1000 + device)
    keys = (torch.rand(TABLES, options.batch, generator=generator) ** 4 * options.rows).long()
    chance = torch.sigmoid(torch.sin(keys.double() * 12.9898 + torch.arange(TABLES).unsqueeze(1)).sum(0)).float()
    clicks = (torch.rand(options.batch, generator=generator) < chance).float()
    return {str(at): keys[at].unsqueeze(1) for at in range(TABLES)}, clicks


def gradients_of(model):
    """Takes them from the parameters: float32 [n]."""
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    model.zero_grad()
    return flat


def set_gradients(model, flat):
    parameters = list(model.parameters())
    for parameter, part in zip(parameters, flat.split([parameter.numel() for parameter in parameters])):
        parameter.grad = part.view_as(parameter)


def mean_of_all(tables, gradients):
    """Of the devices of all machines, in their order: the same bits everywhere."""
    of_all = tables.exchange(torch.stack(gradients)).flatten(0, 1)  # [devices of all, n]
    total = of_all[0]
    for one in of_all[1:]:
        total = total + one
    return total / len(of_all)


def hash_of(tensors):
    made = hashlib.sha256()
    for tensor in tensors:
        made.update(tensor.numpy().tobytes())
    return made.hexdigest()[:16]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, what in (("devices", 1, "of each process"), ("rows", 50000, "of a table"), ("dim", 16, ""),
                                ("batch", 512, "samples of a device"), ("steps", 200, ""), ("workers", 1, "")):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--deal", default="cyclic", choices=("cyclic", "blocks"), help="where rows are")
    parser.add_argument("--dense", default="exchange", choices=("exchange", "ddp"), help="who adds gradients")
    options = parser.parse_args()
    if options.dense == "ddp" and options.devices > 1:
        parser.error("--dense ddp: DistributedDataParallel has one device in each process")
    return options


def train(options, tables, devices, model):
    forward = DistributedDataParallel(model) if options.dense == "ddp" and dist.is_initialized() else model
    dense = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    numbers = tables.instances[0].own_devices  # of the devices here, among those of all machines
    ahead = 0
    for step in range(options.steps):
        while ahead < options.steps and ahead <= step + LOOKAHEAD:
            for device, number in zip(devices, numbers):
                device.announce(batch_of(ahead, number, options)[0])
            ahead += 1
        gradients, losses = [], []
        for device, number in zip(devices, numbers):
            features, clicks = batch_of(step, number, options)
            rows = device(features)  # [TABLES, batch, dim]
            logits = forward(rows.transpose(0, 1).flatten(1)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, clicks)
            loss.backward()  # updates the tables on all machines
            losses.append(loss.item())
            if options.dense == "exchange":
                gradients.append(gradients_of(model))
        if options.dense == "exchange":
            set_gradients(model, mean_of_all(tables, gradients))
        dense.step()
        dense.zero_grad()
        if numbers[0] == 0 and (step % 50 == 0 or step == options.steps - 1):
            print(f"step {step:4}  loss {losses[0]:.6f}")


def main():
    options = read_options()
    torch.manual_seed(1)
    torch.set_num_threads(1)  # so that products have the same bits, however many processes share the cores
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    machines = Machines(deal=options.deal)
    model = nn.Sequential(nn.Linear(TABLES * options.dim, 64), nn.ReLU(), nn.Linear(64, 1))
    tables = EmbeddingBagCollection(
        {str(at): (options.rows, options.dim) for at in range(TABLES)}, max_keys=TABLES * options.batch, stacked=True,
        optimizer="adagrad", lr=options.lr, init=Uniform(-0.05, 0.05), workers=options.workers, reduce="mean",
        lookahead=LOOKAHEAD, device=["cpu"] * options.devices, machines=machines)
    train(options, tables, [tables.on(at) for at in range(options.devices)], model)
    state = tables.state_dict()  # all machines make it; each gets all rows
    if machines.machine == 0:
        layers = (parameter.detach() for parameter in model.parameters())
        print(f"tables {hash_of(state.values())} layers {hash_of(layers)}")
    tables.close()  # all machines
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
