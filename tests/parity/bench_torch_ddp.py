#!/usr/bin/env python3
"""The same training in PyTorch: DDP over gloo on this machine's processors, one thread a rank.

bench_torch_ddp.py [STEPS]     tests/bench/bench_run.c runs it; it needs nothing but PyTorch.

A linear map 1024 -> 4096, ReLU, 4096 -> 1024 in f32, mean squared error, SGD, 32 samples a rank,
two ranks.  Batches are tensors made beforehand.  Prints the median step of rank 0 in seconds,
without the first five steps, as one JSON object.
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

RANKS, BATCH, WARM_UP = 2, 32, 5


def train(rank, steps, meeting, queue):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS)
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    ddp = nn.parallel.DistributedDataParallel(net)
    sgd = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    loss_of = nn.MSELoss()
    batches = [(torch.randn(BATCH, 1024), torch.randn(BATCH, 1024)) for _ in range(16)]
    seconds = []
    for i in range(WARM_UP + steps):
        features, targets = batches[i % len(batches)]
        start = time.perf_counter()
        sgd.zero_grad()
        loss_of(ddp(features), targets).backward()
        sgd.step()
        seconds.append(time.perf_counter() - start)
    dist.barrier()
    if rank == 0:
        queue.put(sorted(seconds[WARM_UP:]))
    dist.destroy_process_group()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (steps, os.path.join(folder, "meeting"), queue), nprocs=RANKS)
    seconds = queue.get()
    print(json.dumps({"torch": torch.__version__, "step_s": seconds[len(seconds) // 2]}))


if __name__ == "__main__":
    main()
