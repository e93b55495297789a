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
#
# --more measures other models, batches and recomputation: what the two stacks of PyTorch were not
# fitted on.  A block that is recomputed and compiled is compiled with its checkpoint, as
# torchtitan does it.

import sys
import time
from functools import partial

from torch_rows import Run, training_steps  # first: it says so when PyTorch is missing

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from torch_train import Gpt2, LlamaBlock


class Recomputed(nn.Module):
    """A block whose forward pass is done again in backward."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class Llama(nn.Module):
    """TinyLlama 1.1B: embeddings not tied."""

    def __init__(
        self, layers=22, hidden=2048, kv_heads=4, ffn=5632, vocab=32000, seq=2048, recompute=False
    ):
        super().__init__()
        wrap = Recomputed if recompute else lambda block: block
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            wrap(LlamaBlock(hidden, 32, kv_heads, ffn, max_seq=seq)) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


# What is trained: class, batch, seq, vocabulary, and how it is compiled where it is.
MODELS = {
    # as speed.sh has them
    "gpt2": (Gpt2, 16, 1024, 50257, "compiled"),
    "tinyllama-1.1b": (Llama, 4, 2048, 32000, "compiled-by-block"),
}
MEDIUM = partial(Gpt2, layers=24, hidden=1024, heads=16)
LARGE = partial(Gpt2, layers=36, hidden=1280, heads=20)
FOUR_OF_8B = partial(
    Llama, layers=4, hidden=4096, kv_heads=8, ffn=14336, vocab=128256, seq=8192
)
MORE = [
    # model, mode, recompute, class, batch, seq, vocabulary; in order of value
    ("tinyllama-1.1b", "eager", True, Llama, 4, 2048, 32000),
    ("llama3-8b, 4 layers", "eager", False, FOUR_OF_8B, 1, 8192, 128256),
    ("llama3-8b, 4 layers", "eager", True, FOUR_OF_8B, 1, 8192, 128256),
    ("gpt2-medium", "eager", False, MEDIUM, 8, 1024, 50257),
    ("gpt2-medium", "eager", True, MEDIUM, 16, 1024, 50257),
    ("gpt2", "eager", False, Gpt2, 8, 1024, 50257),
    ("tinyllama-1.1b", "eager", False, Llama, 1, 2048, 32000),
    ("gpt2", "eager", False, Gpt2, 2, 1024, 50257),
    ("gpt2-large", "eager", False, LARGE, 4, 1024, 50257),
    ("gpt2", "eager", True, Gpt2, 4, 1024, 50257),
    ("llama3-8b, 4 layers", "compiled-by-block", False, FOUR_OF_8B, 1, 8192, 128256),
    ("llama3-8b, 4 layers", "compiled-by-block", True, FOUR_OF_8B, 1, 8192, 128256),
    ("tinyllama-1.1b", "compiled-by-block", True, Llama, 4, 2048, 32000),
    ("gpt2-medium", "compiled-by-block", False, MEDIUM, 8, 1024, 50257),
]


def compiled(model, mode):
    torch._dynamo.reset()
    if mode == "compiled":
        return torch.compile(model)
    if mode == "compiled-by-block":
        for block in model.blocks:
            block.compile()
    return model


def measure(run, name, mode, make, batch, seq, vocab, recompute=False, **how):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = make(recompute=recompute)
    step = training_steps(model, compiled(model, mode), vocab, batch, seq, **how)
    if not step:
        return
    run.row(
        "speed",
        model=name,
        by=f"torch-{mode}",
        version=torch.__version__,
        recompute=recompute,
        batch=batch,
        seq=seq,
        **step,
    )
    what = f"{name}, torch {mode}{', recomputed' if recompute else ''}, {batch} x {seq}"
    print(f"speed: {what}: {step['step_us'] / 1e3:.2f} ms, {step['tokens_per_s']:.0f} tokens/s")


def try_to_measure(run, needs_s, name, mode, *case):
    """1 where it failed: one model less is no reason to lose the others."""
    if run.left_s() < needs_s:
        print(f"speed: {name}, torch {mode}: no time left")
        return 0
    try:
        measure(run, name, mode, *case)
        return 0
    except Exception as error:
        print(f"speed: {name}, torch {mode}: {type(error).__name__}: {str(error)[:300]}")
        run.row("speed_failed", model=name, by=f"torch-{mode}", why=str(error)[:150])
        return 1


def warm(run):
    for name, (*case, mode) in reversed(MODELS.items()):
        began = time.monotonic()
        measure(run, name, mode, *case, steps=0, warm_up=1)
        print(f"speed: {name} compiled in {time.monotonic() - began:.0f} s")
    return 0


def main():
    run = Run(
        "training steps of whole models in PyTorch",
        warm="only compile, for later",
        more="other models, batches and recomputation",
    )
    if run.asked.warm:
        return warm(run)
    failed = 0
    if run.asked.more:
        for name, mode, recompute, *case in MORE:
            needs_s = 6 if mode == "eager" else 25
            failed |= try_to_measure(run, needs_s, name, mode, *case, recompute)
        return failed
    for name, (*case, _) in MODELS.items():
        failed |= try_to_measure(run, 10, name, "eager", *case)
    for name, (*case, mode) in MODELS.items():
        failed |= try_to_measure(run, 35, name, mode, *case)
    return failed


if __name__ == "__main__":
    sys.exit(main())
