#!/usr/bin/env python3
"""The same trainings in PyTorch on this machine's processors, for tests/bench/bench_run.c.

bench_torch_cpu.py MODEL RANKS [STEPS]     it needs nothing but PyTorch

mlp  a linear map 1024 -> 4096, ReLU, 4096 -> 1024, mean squared error, SGD, 32 samples a rank
gpt  6 layers of 384, 6 heads, 256 tokens (of 256 kinds) a sample, as nanoGPT has it, with
     scaled_dot_product_attention; AdamW, fused; 4 samples a rank

In f32.  RANKS ranks of one thread, DDP over gloo; or 0: one process with a thread a processor and
the samples of as many ranks.  Batches are tensors made beforehand.  Prints the median step of rank
0 in seconds, without the first steps, as one JSON object.
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
from torch.nn import functional as F

LAYERS, HIDDEN, HEADS, SEQ, VOCAB = 6, 384, 6, 256, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(SEQ, HIDDEN)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        return self.head(self.norm(self.blocks(x)))


def gpt(samples):
    net = Gpt()
    batches = [torch.randint(0, VOCAB, (2, samples, SEQ)) for _ in range(16)]
    loss = lambda y, targets: F.cross_entropy(y.view(-1, VOCAB), targets.view(-1))
    return net, batches, loss, torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)


def mlp(samples):
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    batches = [torch.randn(2, samples, 1024) for _ in range(16)]
    return net, batches, nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=1e-3)


MODELS = {"mlp": (mlp, 32, 5), "gpt": (gpt, 4, 2)}  # samples a rank, steps to warm up


def train(rank, name, ranks, steps, meeting, queue):
    make, samples, warm_up = MODELS[name]
    torch.set_num_threads(1 if ranks else os.cpu_count())
    torch.manual_seed(rank)
    net, batches, loss_of, optimizer = make(samples * (1 if ranks else os.cpu_count()))
    if ranks:
        dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                                world_size=ranks)
        net = nn.parallel.DistributedDataParallel(net)
    seconds = []
    for i in range(warm_up + steps):
        features, targets = batches[i % len(batches)]
        start = time.perf_counter()
        optimizer.zero_grad()
        loss_of(net(features), targets).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if ranks:
        dist.barrier()
    if rank == 0:
        queue.put(sorted(seconds[warm_up:]))
    if ranks:
        dist.destroy_process_group()


def main():
    name, ranks = sys.argv[1], int(sys.argv[2])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    if ranks:
        os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (name, ranks, steps, os.path.join(folder, "meeting"), queue),
                 nprocs=max(1, ranks))
    seconds = queue.get()
    print(json.dumps({"torch": torch.__version__, "step_s": seconds[len(seconds) // 2]}))


if __name__ == "__main__":
    main()
