#!/usr/bin/env python3
# make_torch_golden.py - trains small models with PyTorch on a CPU and stores what came out.
#
#   pip install torch numpy
#   python3 tests/parity/make_torch_golden.py [--into tests/golden/torch] [--only NAME]
#
# NAME.json is a scenario, for `lockstep run` as it is; NAME.golden.json what PyTorch makes
# of it:
#
#   torch       its version;  command: how the file was made;  steps: of training
#   runs        how: single, ddp, fsdp, gpipe, 1f1b ..., ranks, and the loss of each step
#   parameters  per parameter, by layer (-1: none) and name, as [delta, probe] after the
#               steps in `after`: delta = |p - first p|, probe = sum of (p - first p) * u
#               with u_i = unit(key(0, "probe", 0), i) - 1/2.  With sgd and lr 1 after one
#               step that is the gradient.
#
# First values and data are not stored: both sides make them from the seed, as exec/random.h,
# exec/params.h and exec/data.h define.  PyTorch runs the real thing where it can on a CPU:
# DistributedDataParallel, fully_shard and torch.distributed.pipelining over gloo.
# SyncBatchNorm has no CPU kernel: one process with the whole batch is its definition.

import argparse
import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch._dynamo  # by DistributedDataParallel: before the processes part
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

NONE = 2**32 - 1
U64 = np.uint64
GOLDEN_RATIO = U64(0x9E3779B97F4A7C15)


# ---- exec/random.h ----


def mix(x):
    with np.errstate(over="ignore"):
        x = np.asarray(x, U64) + GOLDEN_RATIO
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
        return x ^ (x >> U64(31))


def key(seed, word, n):
    h = 0xCBF29CE484222325
    for c in word.encode():
        h = (h ^ c) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        return mix(mix(mix(U64(seed)) ^ U64(h)) + U64(n))


def bits(k, i):
    with np.errstate(over="ignore"):
        return mix(k + np.asarray(i, U64) * GOLDEN_RATIO)


def unit(k, i):
    return (bits(k, i) >> U64(11)).astype(np.float64) * 2.0**-53


def normal64(k, i):
    i = np.asarray(i, U64)
    even = i - i % U64(2)
    u = ((bits(k, even) >> U64(11)) + U64(1)).astype(np.float64) * 2.0**-53
    angle = 6.283185307179586 * unit(k, even + U64(1))
    radius = np.sqrt(-2 * np.log(u))
    return radius * np.where(i % U64(2) == 0, np.cos(angle), np.sin(angle))


def normal(k, i):
    return normal64(k, i).astype(np.float32)


# ---- exec/data.h ----


class Data:
    n = 2048

    def __init__(self, scenario):
        self.model, self.training = scenario["model"], scenario["training"]
        self.seed = self.training.get("seed", 0)
        self.regression = self.training.get("data") == "regression20"
        if self.model["kind"] == "mlp":
            self.inputs, self.outputs = self.model["widths"][0], self.model["widths"][-1]
            m = normal64(key(self.seed, "map", 0), np.arange(self.inputs * self.outputs))
            m = (m / np.sqrt(self.inputs)).astype(np.float32)
            self.map = m.reshape(self.inputs, self.outputs)

    def pick(self, step, batch):
        steps = -(-self.n // batch)
        places = (np.arange(batch) + step % steps * batch) % self.n
        k, half = key(self.seed, "shuffle", step // steps), 1
        while (self.n - 1) >> (2 * half):
            half += 1
        return [self.shuffled(k, int(p), half) for p in places]

    def shuffled(self, k, place, half):
        while True:
            left, right = place >> half, place & (1 << half) - 1
            for r in range(6):
                left, right = right, left ^ int(bits(k, (r << 32) + right)) & (1 << half) - 1
            place = left << half | right
            if place < self.n:
                return place

    def features(self, x):
        i = x * self.inputs + np.arange(self.inputs)
        k = key(self.seed, "features", 0)
        return unit(k, i).astype(np.float32) if self.regression else normal(k, i)

    def targets(self, x):
        if self.regression:
            return unit(key(self.seed, "targets", 0), [x]).astype(np.float32)
        return (self.features(x).astype(np.float64) @ self.map.astype(np.float64)).astype(
            np.float32
        )

    def sequence(self, x):
        vocab, n = self.model["vocab"], self.training["seq_len"] + 1
        b = bits(key(self.seed, "sequence", x), np.arange(n))
        chain = key(self.seed, "chain", 0)
        tokens = [int(b[0] % U64(vocab))]
        for t in range(1, n):
            s = [0, 0, 0, 0, 1, 1, 2, 3][int(b[t] % U64(8))]
            tokens.append(int(bits(chain, 4 * tokens[-1] + s) % U64(vocab)))
        return tokens

    # Inputs and targets of these samples, as tensors.
    def batch(self, samples):
        if self.model["kind"] == "transformer":
            s = torch.tensor([self.sequence(x) for x in samples])
            return s[:, :-1].contiguous(), s[:, 1:].contiguous()
        x = torch.from_numpy(np.stack([self.features(i) for i in samples]))
        y = torch.from_numpy(np.stack([self.targets(i) for i in samples]))
        return x, y.argmax(1) if self.training.get("loss") == "cross_entropy" else y


# ---- models: named as lockstep names parameters, layer by layer ----


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        w = m["widths"]
        self.layers = nn.ModuleList()
        for i in range(len(w) - 1):
            layer = nn.Module()
            layer.linear = nn.Linear(w[i], w[i + 1])
            if m.get("batchnorm") and i + 2 < len(w):
                layer.batchnorm = nn.BatchNorm1d(w[i + 1])
            self.layers.append(layer)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer.linear(F.relu(x) if i else x)
            x = layer.batchnorm(x) if hasattr(layer, "batchnorm") else x
        return x


def rotate(x):
    half, t = x.shape[-1] // 2, torch.arange(x.shape[-2], dtype=torch.float64)
    angle = torch.outer(t, 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half))
    c, s = angle.cos().float(), angle.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m
        h, bias = m["hidden"], m.get("norm") != "rmsnorm"
        self.d, self.kv = h // m["heads"], m.get("kv_heads", m["heads"])
        norm = (lambda: nn.LayerNorm(h)) if bias else (lambda: nn.RMSNorm(h, eps=1e-5))
        self.norm1, self.attention, self.norm2, self.mlp = norm(), nn.Module(), norm(), nn.Module()
        self.attention.qkv = nn.Linear(h, h + 2 * self.kv * self.d, bias)
        self.attention.out = nn.Linear(h, h, bias)
        if m.get("gated"):
            self.mlp.gate_up = nn.Linear(h, 2 * m["ffn"], bias)
        else:
            self.mlp.up = nn.Linear(h, m["ffn"], bias)
        self.mlp.down = nn.Linear(m["ffn"], h, bias)

    def forward(self, x):
        b, s, h = x.shape
        m, d = self.m, self.d
        qkv = self.attention.qkv(self.norm1(x)).split([h, self.kv * d, self.kv * d], -1)
        q, k, v = (y.view(b, s, -1, d).transpose(1, 2) for y in qkv)
        if m.get("positions") == "rope":
            q, k = rotate(q), rotate(k)
        k, v = (y.repeat_interleave(m["heads"] // self.kv, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention.out(y.transpose(1, 2).reshape(b, s, h))
        y = self.norm2(x)
        if m.get("gated"):
            gate, up = self.mlp.gate_up(y).chunk(2, -1)
            y = F.silu(gate) * up
        else:
            y = F.gelu(self.mlp.up(y))
        return x + self.mlp.down(y)


class Transformer(nn.Module):
    def __init__(self, m):
        super().__init__()
        h = m["hidden"]
        self.embedding, self.head = nn.Module(), nn.Module()
        self.embedding.tokens = nn.Embedding(m["vocab"], h)
        if m.get("positions", "learned") == "learned":
            self.embedding.positions = nn.Embedding(m["max_seq"], h)
        self.layers = nn.ModuleList([Layer(m) for _ in range(m["layers"])])
        rms = m.get("norm") == "rmsnorm"
        self.head.final_norm = nn.RMSNorm(h, eps=1e-5) if rms else nn.LayerNorm(h)
        if not m.get("tied_embeddings"):
            self.head.head = nn.Linear(h, m["vocab"], False)

    def forward(self, x):
        if self.embedding is not None:
            t, x = x, self.embedding.tokens(x)
            if hasattr(self.embedding, "positions"):
                x = x + self.embedding.positions.weight[: t.shape[1]]
        for layer in self.layers:
            x = layer(x)
        if self.head is None:
            return x
        x = self.head.final_norm(x)
        if hasattr(self.head, "head"):
            return self.head.head(x)
        return x @ self.embedding.tokens.weight.T


def loss_of(scenario, y, target):
    if scenario["model"]["kind"] == "transformer":
        return F.cross_entropy(y.flatten(0, 1), target.flatten())
    if scenario["training"].get("loss") == "cross_entropy":
        return F.cross_entropy(y, target)
    return F.mse_loss(y, target)


# (layer, name) as in exec/params.h; first: number of the stage's first layer.
def identity(name, first=0):
    part, rest = name.split(".", 1)
    if part == "layers":
        layer, rest = rest.split(".", 1)
        return int(layer) + first, rest
    return NONE, rest


def first_value(scenario, layer, name, p):
    k, n = key(scenario["training"].get("seed", 0), name, layer), p.numel()
    bias = name.endswith(".bias")
    if "norm" in name or (bias and scenario["model"]["kind"] != "mlp"):
        x = np.zeros(n, np.float32) if bias else np.ones(n, np.float32)
    elif scenario["model"]["kind"] == "mlp":
        inputs = scenario["model"]["widths"][layer]
        x = ((2 * unit(k, np.arange(n)) - 1) * (1 / np.sqrt(inputs))).astype(np.float32)
    else:
        x = (normal(k, np.arange(n)).astype(np.float64) * 0.02).astype(np.float32)
    return torch.from_numpy(x).view(p.shape)


def make_model(scenario):
    m = scenario["model"]
    model = Mlp(m) if m["kind"] == "mlp" else Transformer(m)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(first_value(scenario, *identity(name), p))
    return model


def make_optimizer(scenario, params):
    t = scenario["training"]
    kind, lr = t["optimizer"], t["lr"]
    decay = t.get("weight_decay", 0.01 if kind == "adamw" else 0)
    if kind in ("sgd", "momentum"):
        momentum = t.get("momentum", 0.9) if kind == "momentum" else 0
        return torch.optim.SGD(params, lr, momentum=momentum, weight_decay=decay)
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return make(params, lr, betas=tuple(t.get("betas", (0.9, 0.999))), weight_decay=decay)


# ---- one job ----


def full(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


# How far each parameter has gone from its first value.
def gone(scenario, named, first=0):
    rows = []
    for name, p in named:
        layer, short = identity(name, first)
        p = full(p.detach())
        d = (p.double() - first_value(scenario, layer, short, p).double()).flatten().numpy()
        u = unit(key(0, "probe", 0), np.arange(len(d))) - 0.5
        rows.append([-1 if layer == NONE else layer, short, float(np.sqrt(d @ d)), float(d @ u)])
    return rows


def wrap(model, how):
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if how.startswith("fsdp"):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer if isinstance(layer, Layer) else layer.linear, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


# Losses of all steps, and where the parameters are after those of `after`.
def train(scenario, how, rank, ranks, steps, after):
    t = scenario["training"]
    data, batch, micro = Data(scenario), t["global_batch"], t["micro_batch"]
    bare = make_model(scenario)
    model = wrap(bare, how)
    optimizer = make_optimizer(scenario, model.parameters())
    losses, rows = [], {}
    for step in range(steps):
        mine = data.pick(step, batch)[rank::ranks]
        total = torch.zeros((), dtype=torch.float64)
        chunks = [mine[i : i + micro] for i in range(0, len(mine), micro)]
        optimizer.zero_grad()
        for i, chunk in enumerate(chunks):
            last = i + 1 == len(chunks)
            if how.startswith("fsdp"):
                model.set_requires_gradient_sync(last)
            elif how == "ddp":
                model.require_backward_grad_sync = last
            x, y = data.batch(chunk)
            loss = loss_of(scenario, model(x), y) / len(chunks)
            loss.backward()
            total += loss.detach().double()
        if ranks > 1:
            dist.all_reduce(total)
        losses.append(float(total) / ranks)
        if t.get("grad_clip"):
            nn.utils.clip_grad_norm_(model.parameters(), t["grad_clip"])
        optimizer.step()
        if step + 1 in after:
            rows[step + 1] = gone(scenario, bare.named_parameters())
    return losses, rows


# A pipeline: each rank has a part of the layers.
def train_pipeline(scenario, how, rank, ranks, steps, after):
    t, n = scenario["training"], scenario["model"]["layers"] // ranks
    data, batch = Data(scenario), t["global_batch"]
    model = make_model(scenario)
    model.layers = model.layers[rank * n : (rank + 1) * n]
    if rank > 0:
        model.embedding = None
    if rank + 1 < ranks:
        model.head = None
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    make = ScheduleGPipe if how == "gpipe" else Schedule1F1B
    schedule = make(stage, batch // t["micro_batch"], loss_fn=lambda y, z: loss_of(scenario, y, z))
    optimizer = make_optimizer(scenario, model.parameters())
    losses, rows = [], {}
    for step in range(steps):
        x, y = data.batch(data.pick(step, batch))
        optimizer.zero_grad()
        each = []
        if rank == 0:
            schedule.step(x)
        elif rank + 1 == ranks:
            schedule.step(target=y, losses=each)
        else:
            schedule.step()
        total = torch.zeros((), dtype=torch.float64)
        if each:
            total = torch.stack(each).detach().double().mean()
        dist.all_reduce(total)
        losses.append(float(total.detach()))
        optimizer.step()
        if step + 1 in after:
            rows[step + 1] = gone(scenario, model.named_parameters(), rank * n)
    return losses, rows


def job(rank, scenario, how, ranks, steps, after, meeting, out):
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group(
            "gloo", init_method="file://" + meeting, rank=rank, world_size=ranks
        )
    run = train_pipeline if how in ("gpipe", "1f1b") else train
    losses, rows = run(scenario, how, rank, ranks, steps, after)
    if ranks > 1 and run is train_pipeline:
        every = [None] * ranks
        dist.all_gather_object(every, rows)
        rows = {s: sum((r[s] for r in every), []) for s in rows}
    if rank == 0:
        with open(out, "w") as f:
            json.dump([losses, rows], f)
    if ranks > 1:
        dist.destroy_process_group()


def run_job(scenario, how, ranks, steps, after):
    with tempfile.TemporaryDirectory() as folder:
        out, meeting = os.path.join(folder, "out"), os.path.join(folder, "meeting")
        arguments = (scenario, how, ranks, steps, after, meeting, out)
        mp.start_processes(job, arguments, ranks, start_method="fork")
        with open(out) as f:
            losses, rows = json.load(f)
    return losses, {int(k): v for k, v in rows.items()}


# ---- what is trained ----

MLP = {"kind": "mlp", "widths": [64, 128, 64], "activation": "relu"}
LINE = {"kind": "mlp", "widths": [20, 1]}
GPT = {
    "kind": "transformer", "layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 96,
    "max_seq": 32, "positions": "learned", "norm": "layernorm", "activation": "gelu",
    "tied_embeddings": True,
}
LLAMA = {
    "kind": "transformer", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176,
    "vocab": 96, "max_seq": 32, "positions": "rope", "norm": "rmsnorm", "activation": "silu",
    "gated": True, "tied_embeddings": False,
}
EVERYWHERE = [("single", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 2), ("fsdp", 4)]
PIPES = [("gpipe", 2), ("1f1b", 2)]


def case(model, optimizer, lr, runs=(("single", 1),), batch=32, micro=None, **more):
    training = {"global_batch": batch, "micro_batch": micro or batch, "precision": "f32"}
    training.update(optimizer=optimizer, lr=lr, seed=5)
    if model["kind"] == "transformer":
        training["seq_len"] = 32
    training.update(more)
    return {"model": model, "training": training}, list(runs)


CASES = {
    "regression20": case(LINE, "sgd", 0.01, EVERYWHERE[:3], data="regression20"),
    "mlp-gradient": case(MLP, "sgd", 1.0),
    "mlp-sgd": case(MLP, "sgd", 0.3, EVERYWHERE, weight_decay=0.01),
    "mlp-momentum": case(MLP, "momentum", 0.1, EVERYWHERE[:4:3], weight_decay=0.01),
    "mlp-adam": case(MLP, "adam", 0.002, EVERYWHERE, weight_decay=0.01),
    "mlp-adamw": case(MLP, "adamw", 0.002, EVERYWHERE, weight_decay=0.1),
    "mlp-clip": case(MLP, "sgd", 0.5, EVERYWHERE, grad_clip=0.05),
    "mlp-accumulate": case(MLP, "adamw", 0.002, EVERYWHERE, micro=4),
    "mlp-epochs": case(MLP, "sgd", 0.3, batch=768),
    "mlp-labels": case(MLP, "adam", 0.002, EVERYWHERE[:2], loss="cross_entropy"),
    "mlp-batchnorm": case(
        dict(MLP, widths=[64, 128, 128, 64], batchnorm=True), "sgd", 0.3, EVERYWHERE[:3]
    ),
    "gpt-gradient": case(GPT, "sgd", 1.0, batch=8),
    "gpt-sgd": case(GPT, "sgd", 0.3, EVERYWHERE, batch=8),
    "gpt-adamw": case(GPT, "adamw", 0.001, EVERYWHERE, batch=8),
    "gpt-clip": case(GPT, "adam", 0.001, EVERYWHERE, batch=8, grad_clip=0.5),
    "gpt-accumulate": case(GPT, "momentum", 0.1, EVERYWHERE, batch=8, micro=2),
    "llama-gradient": case(LLAMA, "sgd", 1.0, batch=8),
    "llama-sgd": case(LLAMA, "sgd", 0.3, EVERYWHERE, batch=8),
    "llama-adamw": case(LLAMA, "adamw", 0.001, EVERYWHERE, batch=8),
    "llama-pipeline": case(LLAMA, "momentum", 0.1, [("single", 1)] + PIPES, batch=8, micro=2),
}


def digits(x, n=9):
    return float(f"{x:.{n}g}")


# A micro-batch is a replica's: where the batch is one piece, each rank takes its share.
def for_ranks(scenario, how, ranks):
    t = dict(scenario["training"])
    if how not in ("gpipe", "1f1b"):
        t["micro_batch"] = min(t["micro_batch"], t["global_batch"] // ranks)
    return {"model": scenario["model"], "training": t}


# A row per parameter: layer, name, then [delta, probe] after each of `after`.
def table(rows, after):
    first = rows[after[0]]
    places = [[rows[s][i][2:] for s in after] for i in range(len(first))]
    return [r[:2] + [[digits(x, 7) for x in d] for d in p] for r, p in zip(first, places)]


def make(name, into):
    scenario, runs = CASES[name]
    steps = 1 if name.endswith("gradient") else 10
    after = [1] if steps == 1 else [1, 10]
    result = {
        "torch": torch.__version__.split("+")[0],
        "command": "python3 tests/parity/make_torch_golden.py",
        "steps": steps,
        "after": after,
        "runs": [],
    }
    for how, ranks in runs:
        losses, rows = run_job(for_ranks(scenario, how, ranks), how, ranks, steps, after)
        run = {"how": how, "ranks": ranks, "losses": [digits(x) for x in losses]}
        if not result["runs"] or "batchnorm" in name:  # elsewhere all replicas agree: said once
            run["parameters"] = table(rows, after)
        result["runs"].append(run)
        print(f"{name}: {how} {ranks}: {losses[0]:.6f} -> {losses[-1]:.6f}", file=sys.stderr)
    write(os.path.join(into, name + ".golden.json"), golden_text(result))
    write(os.path.join(into, name + ".json"), scenario_text(name, scenario))


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def scenario_text(name, scenario):
    here = {"name": "here", "nodes": 1, "gpus_per_node": 8, "gpu": "a10g"}
    here["intra_node"] = {"kind": "shared_memory", "GBps": 5, "latency_us": 1}
    whole = {"name": name, **scenario, "cluster": here, "parallel": {"strategy": "single"}}
    return "{\n%s\n}\n" % lines(whole)


def lines(members):
    return ",\n".join(" %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in members.items())


# A line a run and a parameter.
def golden_text(result):
    runs = []
    for run in result.pop("runs"):
        text = '  {"how": %s, "ranks": %d,\n   "losses": %s' % (
            json.dumps(run["how"]), run["ranks"], json.dumps(run["losses"]))
        if "parameters" in run:
            rows = ",\n    ".join(json.dumps(r) for r in run["parameters"])
            text += ',\n   "parameters": [\n    %s]' % rows
        runs.append(text + "}")
    return '{\n%s,\n "runs": [\n%s\n ]\n}\n' % (lines(result), ",\n".join(runs))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--into", default=os.path.join(here, "..", "golden", "torch"))
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    os.makedirs(options.into, exist_ok=True)
    for name in [options.only] if options.only else CASES:
        make(name, options.into)


if __name__ == "__main__":
    main()
