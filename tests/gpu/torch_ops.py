# torch_ops.py - PyTorch's own kernels: attention, matrix products, norms, and what one
# eager operation costs the host.
#
# Attention is what C cannot easily reach: scaled_dot_product_attention with the flash and
# the cuDNN backend, forward and backward, over batch, heads, sequence and head size.  The
# rest cross-checks part_gemm.c and part_memory.c.

import sys

from torch_rows import Run, host_cost_us, timing  # first: it says so when PyTorch is missing

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = {"device": "cuda", "dtype": torch.bfloat16}

# batch, seq, heads, kv_heads, head_dim, causal
ATTENTION = [
    (1, 8192, 32, 8, 128, True),  # llama3-8b
    (8, 1024, 12, 12, 64, True),  # gpt2
    (2, 4096, 32, 32, 128, True),  # llama2-7b
    (1, 8192, 8, 1, 128, True),  # llama3-70b, tensor parallel 8
    (4, 2048, 32, 8, 128, True),
    (1, 2048, 96, 96, 128, True),  # gpt3-175b
    (1, 2048, 12, 12, 128, True),  # gpt3-175b, tensor parallel 8
    (16, 1024, 25, 25, 64, True),  # gpt2-xl
    (32, 512, 12, 12, 64, False),  # bert-base
    (32, 512, 16, 16, 64, False),  # bert-large
    (1, 4096, 32, 8, 128, True),
    (1, 16384, 32, 8, 128, True),
    (1, 2048, 32, 8, 128, True),
    (1, 1024, 32, 8, 128, True),
    (1, 512, 32, 8, 128, True),
    (1, 32768, 32, 8, 128, True),
    (1, 8192, 64, 8, 128, True),
    (1, 8192, 16, 16, 128, True),
    (1, 8192, 4, 4, 128, True),
    (1, 8192, 32, 32, 128, False),
    (64, 1024, 12, 12, 64, True),
    (4, 4096, 16, 16, 64, True),
    (16, 256, 12, 12, 64, True),
    (64, 128, 16, 16, 64, False),
]
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}

MATMULS = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (8192, 6144, 4096),
    (8192, 14336, 4096),
    (8192, 4096, 14336),
    (8192, 768, 3072),
    (8192, 50304, 768),
    (2048, 4096, 4096),
]


def attention_inputs(batch, seq, heads, kv_heads, head_dim):
    """Query, key, value as frameworks have them: heads beside tokens, then transposed."""
    return [
        torch.randn(batch, seq, h, head_dim, **BF16).transpose(1, 2).requires_grad_()
        for h in (heads, kv_heads, kv_heads)
    ]


def measure_attention(run, backend, shape, expand=False):
    """expand: keys and values have as many heads as queries, for want of grouped ones."""
    batch, seq, heads, kv_heads, head_dim, causal = shape
    grouped = kv_heads != heads and not expand
    q, k, v = attention_inputs(batch, seq, heads, kv_heads if grouped else heads, head_dim)
    flops = 4.0 * batch * heads * seq * seq * head_dim * (0.5 if causal else 1)
    keys = {
        "batch": batch,
        "seq": seq,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "causal": causal,
        "dtype": "bf16",
        "backend": backend,
        "expanded": expand,
    }

    def forward():
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=grouped
        )

    def write(op, flops, result):
        tflops = flops / result["time_us"] * 1e-6
        run.row("attention", op=op, **keys, **result, tflops=tflops)
        return tflops

    with sdpa_kernel(BACKENDS[backend]):
        with torch.no_grad():
            speed = write("attention_fwd", flops, timing(forward))
        out = forward()
        dout = torch.randn_like(out)
        back = timing(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
        back_speed = write("attention_bwd", 2.5 * flops, back)
    print(f"attention {backend} {shape}: {speed:.0f} and {back_speed:.0f} TFLOP/s")


def try_attention(run, backend, shape):
    heads, kv_heads = shape[2:4]
    for expand in (False, True) if kv_heads != heads else (False,):
        try:
            measure_attention(run, backend, shape, expand)
            return
        except RuntimeError as error:
            why = str(error).strip().split("\n")[0][:150]
            print(f"attention {backend} {shape} expand {expand}: {why}")
            run.row("attention_failed", backend=backend, shape=str(shape), why=why)


def attention(run):
    for shape in ATTENTION:
        for backend in BACKENDS:
            if run.left_s() < 15:
                return
            try_attention(run, backend, shape)


def matmuls(run):
    for m, n, k in MATMULS:
        x = torch.randn(m, k, **BF16)
        w = torch.randn(n, k, **BF16)
        result = timing(lambda x=x, w=w: F.linear(x, w))
        tflops = 2.0 * m * n * k / result["time_us"] * 1e-6
        run.row("torch_gemm", m=m, n=n, k=k, dtype="bf16", **result, tflops=tflops)


def memory_bound(run, tokens=16384, width=4096):
    x = torch.randn(tokens, width, **BF16)
    y = torch.randn(tokens, width, **BF16)
    weight = torch.randn(width, **BF16)
    logits = torch.randn(8192, 50304, **BF16)
    target = torch.randint(50304, (8192,), device="cuda")
    flat = torch.randn(1 << 26, device="cuda")
    moved = x.numel() * 2
    calls = {
        "copy": (2 * moved, lambda: y.copy_(x)),
        "add": (3 * moved, lambda: torch.add(x, y)),
        "gelu_fwd": (2 * moved, lambda: F.gelu(x, approximate="tanh")),
        "silu_mul_fwd": (5 * moved, lambda: F.silu(x) * y),
        "layernorm_fwd": (2 * moved, lambda: F.layer_norm(x, (width,), weight, weight)),
        "rmsnorm_fwd": (2 * moved, lambda: F.rms_norm(x, (width,), weight)),
        "softmax_fwd": (2 * moved, lambda: torch.softmax(x, -1)),
        "cross_entropy_fwd": (
            logits.numel() * 2,
            lambda: F.cross_entropy(logits, target),
        ),
        "cast_bf16_f32": (3 * moved, lambda: x.float()),
        "sum_squares": (flat.numel() * 4, lambda: torch.linalg.vector_norm(flat)),
    }
    for op, (bytes_moved, call) in calls.items():
        result = timing(call)
        gbps = bytes_moved / result["time_us"] * 1e-3
        run.row("torch_memory", op=op, bytes=bytes_moved, **result, GBps=gbps)


def eager_costs(run):
    """What the host pays for one operation on tensors too small to matter."""
    x = torch.randn(32, 64, **BF16)
    w = torch.randn(64, 64, **BF16)
    g = torch.randn(64, **BF16)
    leaf = torch.randn(32, 64, **BF16).requires_grad_()
    out = torch.empty_like(x)
    calls = {
        "add": lambda: x + x,
        "add_out": lambda: torch.add(x, x, out=out),
        "linear": lambda: F.linear(x, w),
        "layer_norm": lambda: F.layer_norm(x, (64,), g, g),
        "gelu": lambda: F.gelu(x),
        "add_with_grad": lambda: leaf + x,
        "mul_and_backward": lambda: (leaf * x).backward(x),
    }
    for op, call in calls.items():
        us = host_cost_us(call)
        run.row("eager", op=op, host_us=us)
        print(f"eager {op}: {us:.2f} us of host time")


def versions(run):
    run.row("torch", version=torch.__version__, cudnn=torch.backends.cudnn.version())


def main():
    run = Run("PyTorch's attention, products and launch costs on this GPU")
    failed = 0
    for section in (versions, eager_costs, attention, matmuls, memory_bound):
        try:
            section(run)
        except Exception as error:  # one section less is no reason to lose the others
            failed = 1
            print(f"{section.__name__} failed: {type(error).__name__}: {error}")
            run.row("torch_failed", section=section.__name__, why=str(error)[:150])
    return failed


if __name__ == "__main__":
    sys.exit(main())
