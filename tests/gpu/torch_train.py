# torch_train.py - what simulated layers and steps are compared with: one block of Llama 3
# and of GPT-2, forward and backward, eager and compiled, and training steps of GPT-2 124M,
# eager ones at several batches and with every block recomputed.
#
# Plain PyTorch in bf16.  gpu_us lies between events, wall_us is the host's clock around
# the same iterations; where the two are near and far above the kernels' time, the host
# is what is slow.  What forward, backward and update take of a step's host stands beside
# it: forward is Python, backward is not.  Compiling takes long, so it comes last.

import sys
import time

from torch_rows import Run, quantile, training_steps  # first: it says so when PyTorch is missing

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class LlamaBlock(nn.Module):
    """One layer of Llama 3 8B."""

    def __init__(self, hidden=4096, heads=32, kv_heads=8, ffn=14336, max_seq=8192):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        self.norm1 = nn.RMSNorm(hidden, eps=1e-5)
        self.norm2 = nn.RMSNorm(hidden, eps=1e-5)
        self.q = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(heads * self.head_dim, hidden, bias=False)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)
        step = torch.arange(0, self.head_dim, 2).float() / self.head_dim
        angle = torch.outer(torch.arange(max_seq).float(), 500000.0**-step)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotate(self, x):
        """Rotary positions on (batch, seq, heads, head_dim)."""
        cos = self.cos[: x.shape[1], None, :]
        sin = self.sin[: x.shape[1], None, :]
        a, b = x[..., : self.head_dim // 2], x[..., self.head_dim // 2 :]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def attend(self, x):
        batch, seq, _ = x.shape
        q = self.rotate(self.q(x).view(batch, seq, self.heads, self.head_dim))
        k = self.rotate(self.k(x).view(batch, seq, self.kv_heads, self.head_dim))
        v = self.v(x).view(batch, seq, self.kv_heads, self.head_dim)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        return self.o(y.transpose(1, 2).reshape(batch, seq, -1))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Gpt2Block(nn.Module):
    """One layer of GPT-2 124M."""

    def __init__(self, hidden=768, heads=12):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.o = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (
            t.view(batch, seq, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(hidden, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 124M with the vocabulary padded to 50304 and tied embeddings."""

    def __init__(
        self, layers=12, hidden=768, heads=12, vocab=50304, seq=1024, recompute=False
    ):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Gpt2Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure_block(run, name, block, mode, batch, seq, hidden, repeats=7):
    x = torch.randn(batch, seq, hidden, device="cuda", dtype=torch.bfloat16)
    x.requires_grad_()
    dy = torch.randn_like(x)
    forward, backward, wall = [], [], []
    for i in range(repeats + 3):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        block.zero_grad(set_to_none=True)
        x.grad = None
        torch.cuda.synchronize()
        begin = time.perf_counter()
        events[0].record()
        y = block(x)
        events[1].record()
        y.backward(dy)
        events[2].record()
        torch.cuda.synchronize()
        if i >= 3:
            wall.append((time.perf_counter() - begin) * 1e6)
            forward.append(events[0].elapsed_time(events[1]) * 1e3)
            backward.append(events[1].elapsed_time(events[2]) * 1e3)
    result = [quantile(t, 0.5) for t in (forward, backward, wall)]
    run.row(
        "torch_block",
        model=name,
        mode=mode,
        batch=batch,
        seq=seq,
        dtype="bf16",
        forward_us=result[0],
        backward_us=result[1],
        wall_us=result[2],
    )
    print(
        f"{name} block, {mode}, {batch} x {seq}: forward {result[0]:.0f} us, "
        f"backward {result[1]:.0f} us, wall {result[2]:.0f} us"
    )


def measure_gpt2_step(run, mode, batch=16, recompute=False, seq=1024, steps=10):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = Gpt2(recompute=recompute).cuda()
    step_model = torch.compile(model) if mode == "compiled" else model
    step = training_steps(model, step_model, 50257, batch, seq, steps=steps)
    run.row(
        "torch_step", model="gpt2", mode=mode, recompute=recompute, batch=batch, seq=seq, **step
    )
    what = f"{mode}, {batch} x {seq}{', recomputed' if recompute else ''}"
    host = [step[phase + "_host_us"] / 1e3 for phase in ("forward", "backward", "update")]
    print(f"gpt2 step, {what}: {step['step_us'] / 1e3:.2f} ms, host %.2f + %.2f + %.2f ms" % (*host,))


BLOCKS = [
    # model, class, batch, seq, hidden
    ("llama3-8b", LlamaBlock, 1, 8192, 4096),
    ("llama3-8b", LlamaBlock, 4, 2048, 4096),
    ("gpt2", Gpt2Block, 16, 1024, 768),
    ("gpt2", Gpt2Block, 4, 1024, 768),
]


def blocks(run, mode, only=None):
    for name, make, batch, seq, hidden in BLOCKS:
        if run.left_s() < (25 if mode == "compiled" else 5) or only not in (None, name):
            continue
        block = make().to("cuda", torch.bfloat16)
        if mode == "compiled":
            torch._dynamo.reset()
            block = torch.compile(block)
        measure_block(run, name, block, mode, batch, seq, hidden)


def eager_steps(run):
    for batch in (16, 4, 1, 32):
        measure_gpt2_step(run, "eager", batch)
    measure_gpt2_step(run, "eager", 16, recompute=True)


def main():
    run = Run("blocks and a training step in PyTorch")
    failed = 0
    sections = [
        ("blocks, eager", 0, lambda: blocks(run, "eager")),
        ("steps, eager", 0, lambda: eager_steps(run)),
        ("llama block, compiled", 25, lambda: blocks(run, "compiled", "llama3-8b")),
        ("step, compiled", 40, lambda: measure_gpt2_step(run, "compiled")),
        ("gpt2 block, compiled", 25, lambda: blocks(run, "compiled", "gpt2")),
    ]
    for name, needs_s, section in sections:
        if run.left_s() < needs_s:
            print(f"{name}: no time left")
            continue
        try:
            section()
        except Exception as error:  # one section less is no reason to lose the others
            failed = 1
            print(f"{name} failed: {type(error).__name__}: {str(error)[:300]}")
            run.row("torch_failed", section=name, why=str(error)[:150])
    return failed


if __name__ == "__main__":
    sys.exit(main())
