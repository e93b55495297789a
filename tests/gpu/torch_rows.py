# torch_rows.py - what the PyTorch parts share: rows, budget, and timing on the GPU.
#
# Rows have the form of row.c, one JSON object a line, appended by a single write.  Timing
# is that of timing.h: a batch of calls between two events, behind a gate that holds the
# stream back until all calls are enqueued, so that the GPU's pace is measured.

import argparse
import json
import sys
import time

try:
    import torch
except ImportError:
    print("torch: PyTorch is not installed for this Python", file=sys.stderr)
    sys.exit(77)

EXIT_NO_GPU = 77
GATE_MAX_US = 30000


class Run:
    """The rows' file and the time that is left."""

    def __init__(self, description, **flags):
        """flags: name of a switch, and its help; self.asked has them"""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--out", required=True, help="file to append rows to")
        parser.add_argument("--budget-s", type=float, default=60)
        for name, text in flags.items():
            parser.add_argument("--" + name, action="store_true", help=text)
        arguments = self.asked = parser.parse_args()
        if not torch.cuda.is_available():
            print("torch: no usable GPU on this machine", file=sys.stderr)
            sys.exit(EXIT_NO_GPU)
        self.ends = time.monotonic() + arguments.budget_s
        self.file = open(arguments.out, "ab", buffering=0)
        torch.manual_seed(1)

    def left_s(self):
        return self.ends - time.monotonic()

    def row(self, part, **keys):
        rounded = {
            k: float(f"{v:.7g}") if isinstance(v, float) else v for k, v in keys.items()
        }
        self.file.write((json.dumps({"part": part, **rounded}) + "\n").encode())


def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def gate(us):
    """Holds the current stream back: at least so long, counted at 2 GHz."""
    torch.cuda._sleep(int(us * 2000))


def sample(call, batch, gate_us):
    """Microseconds per call on the GPU, on the host, and whether the gate held."""
    start = torch.cuda.Event(enable_timing=True)
    stop = torch.cuda.Event(enable_timing=True)
    gate(gate_us)
    start.record()
    begin = time.perf_counter()
    for _ in range(batch):
        call()
    stop.record()
    host_us = (time.perf_counter() - begin) * 1e6 / batch
    held = not start.query()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e3 / batch, host_us, held


def timing(call, sample_us=3000, repeats=5):
    """The keys of a timing row."""
    call()
    torch.cuda.synchronize()
    call_us, host_us, _ = sample(call, 2, 2000)
    batch = max(1, min(100, int(sample_us / max(call_us, 1))))
    gate_us = min(1.3 * host_us * batch + 50, GATE_MAX_US)
    times, bound = [], False
    for _ in range(repeats):
        us, host_us, held = sample(call, batch, gate_us)
        if not held and us < 4 * host_us:
            gate_us = min(2 * gate_us + 1.3 * host_us * batch, GATE_MAX_US)
            us, host_us, held = sample(call, batch, gate_us)
        bound |= not held and us < 4 * host_us
        times.append(us)
    median = quantile(times, 0.5)
    return {
        "time_us": median,
        "min_us": min(times),
        "p10_us": quantile(times, 0.1),
        "p90_us": quantile(times, 0.9),
        "spread": (quantile(times, 0.9) - quantile(times, 0.1)) / median,
        "repeats": repeats,
        "calls": batch,
        "host_us": host_us,
        "host_bound": bound,
    }


def host_cost_us(call, calls=200, repeats=7):
    """Wall-clock time of one call while the queue is short."""
    costs = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        costs.append((time.perf_counter() - begin) * 1e6 / calls)
        torch.cuda.synchronize()
    return quantile(costs[1:], 0.5)


def training_steps(model, forward, vocab, batch, seq, warm_up=4, steps=10):
    """Whole steps under autocast with fused AdamW: the keys of their row.  What forward, backward
    and update take of the host stands beside the step: forward is Python, backward is not."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.randint(vocab, (batch, seq), device="cuda")
    targets = torch.randint(vocab, (batch, seq), device="cuda")
    times, phases, loss = [], [], None
    for i in range(warm_up + steps):
        clock = [time.perf_counter()]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(tokens, targets)
        clock.append(time.perf_counter())
        loss.backward()
        clock.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.append(time.perf_counter())
        torch.cuda.synchronize()
        if i >= warm_up:
            times.append((time.perf_counter() - clock[0]) * 1e6)
            phases.append([(b - a) * 1e6 for a, b in zip(clock, clock[1:])])
    if not times:
        return {}
    host_us = [quantile(phase, 0.5) for phase in zip(*phases)]
    us = quantile(times, 0.5)
    return {
        "step_us": us,
        "p10_us": quantile(times, 0.1),
        "p90_us": quantile(times, 0.9),
        "tokens_per_s": batch * seq / us * 1e6,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "loss": loss.item(),
        "forward_host_us": host_us[0],
        "backward_host_us": host_us[1],
        "update_host_us": host_us[2],
    }
