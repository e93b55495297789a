# torch_speed.py - training steps of whole models in PyTorch, for the speed table.
#
# GPT-2 124M (sequence 1,024) and a Llama shape of 1.1 B (TinyLlama's, sequence 2,048), bf16 under
# autocast, fused AdamW, eager and compiled: what speed.sh compares `lockstep run` with.  Flash
# attention, by scaled_dot_product_attention.  A step is whole: forward, backward, update.
#
# Compiling a model takes a minute, and that of 22 blocks was not done after 62 s: of the Llama each
# block is compiled by itself, which PyTorch does once for all that are alike (its "regional
# compilation").  --warm only compiles, into PyTorch's cache on the disk, while something else runs
# that is not timed; what is measured later finds it there.

import sys
import time

from torch_rows import Run, quantile  # first: it says so when PyTorch is missing

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_train import Gpt2, LlamaBlock


class Llama(nn.Module):
    """TinyLlama 1.1B: embeddings not tied."""

    def __init__(self, layers=22, hidden=2048, vocab=32000, seq=2048):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            LlamaBlock(hidden, 32, 4, 5632, max_seq=seq) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


MODELS = {
    # name: class, batch, seq, vocabulary, as speed.sh has them; how it is compiled
    "gpt2": (Gpt2, 16, 1024, 50257, "compiled"),
    "tinyllama-1.1b": (Llama, 4, 2048, 32000, "compiled-by-block"),
}


def measure(run, name, mode, steps=10, warm_up=4):
    make, batch, seq, vocab, _ = MODELS[name]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    model = make().cuda()
    forward = model
    if mode == "compiled":
        forward = torch.compile(model)
    elif mode == "compiled-by-block":
        for block in model.blocks:
            block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.randint(vocab, (batch, seq), device="cuda")
    targets = torch.randint(vocab, (batch, seq), device="cuda")
    times = []
    for i in range(warm_up + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= warm_up:
            times.append((time.perf_counter() - begin) * 1e6)
    if not times:
        return
    us = quantile(times, 0.5)
    run.row(
        "speed",
        model=name,
        by=f"torch-{mode}",
        version=torch.__version__,
        batch=batch,
        seq=seq,
        step_us=us,
        p10_us=quantile(times, 0.1),
        p90_us=quantile(times, 0.9),
        tokens_per_s=batch * seq / us * 1e6,
        peak_bytes=torch.cuda.max_memory_allocated(),
        loss=loss.item(),
    )
    print(f"speed: {name}, torch {mode}: {us / 1e3:.2f} ms, {batch * seq / us * 1e6:.0f} tokens/s")


def main():
    run = Run("training steps of whole models in PyTorch", warm="only compile, for later")
    failed = 0
    if run.asked.warm:
        for name in reversed(MODELS):
            began = time.monotonic()
            measure(run, name, MODELS[name][-1], steps=0, warm_up=1)
            print(f"speed: {name} compiled in {time.monotonic() - began:.0f} s")
        return 0
    for compiled, needs_s in ((False, 10), (True, 35)):
        for name in MODELS:
            mode = MODELS[name][-1] if compiled else "eager"
            if run.left_s() < needs_s:
                print(f"speed: {name}, torch {mode}: no time left")
                continue
            try:
                measure(run, name, mode)
            except Exception as error:  # one model less is no reason to lose the others
                failed = 1
                print(f"speed: {name}, torch {mode}: {type(error).__name__}: {str(error)[:300]}")
                run.row("speed_failed", model=name, by=f"torch-{mode}", why=str(error)[:150])
    return failed


if __name__ == "__main__":
    sys.exit(main())
