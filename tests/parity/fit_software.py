#!/usr/bin/env python3
"""Fits the scalars of training stacks: scenarios/software/NAME.json, "fitted".

    tests/parity/fit_software.py [--lockstep build/lockstep] [--check] [NAME...]

A stack has at most three scalars (sim/software.h): host_scale (cost of a launch),
compute_scale (time of kernels), comm_scale (collectives) or ring_nics in its place (1, or
0: rings pass through all NICs of a node).  They are fitted on the
step times of all rows of scenarios/validation that name the stack, none of them
depending on model, precision, GPU count or batch.  Facts come first: they are
written from sources and never touched here.

With e = ln(predicted / measured) of a row, what is made least is

    J = mean over groups of (median |e| + mean |e|) / 2  +  PULL * sum of |ln scalar|

so that no group outvotes another, a few rows gone wrong move little, and a scalar
that gains next to nothing stays 1.  After a look at some values of host_scale one
scalar after the other, or two at once, is moved on a grid that grows finer; one that
lowers J by less than GAIN is dropped, and the others are moved once more.  Where GPUs of a
node share NICs all that is done again with ring_nics 1, which is kept if J is lower by GAIN.  Scalars
are rounded to three digits and written with the groups they were fitted on.

GPUs that fall to lower clocks under load are slower in every stack: kernels timed one by one do
not show that, and what a stack adds cannot be told from it by one stack alone.  SUSTAINED
names GPUs, and the one of the stacks measured there that has the most rows: the GPUs'
sustained_scale (scenarios/gpus; of matmuls, convolutions and attention, for the memory's clock
does not fall) is fitted in place of its compute_scale, which is 1, and the others' are what they
are slower than that.  Of many GPUs all wait for the slowest: a sustained_spread from SPREADS is
fitted with it, and kept if J is lower by GAIN, which rows of one size of cluster cannot show.  On B200s only one stack was measured; it launches the
kernels of nemo-2025 (Megatron Core on Transformer Engine), so that what they are slower
than alone is the GPU's there too.

A stack without rows has nothing of its own, but those that take host_scale from a
relative (HOST_FROM).  It assumes the median compute_scale of the stacks that were measured:
kernels that are timed one by one come out slower in most programs.  What that is worth is
printed too: every stack's rows as if it had none, with the median of the others and with
1.  One stack was measured block by block instead of in whole steps (BY_BLOCKS): it needs
no scale, and counts as one that was.  generic and lockstep assume nothing: the one is what
a stack can reach, the other is measured on the user's machine.

--check prints what would be written.

Works on a copy of scenarios/ beside a copy of the program, so that nothing else
sees half-fitted files.
"""
import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

PULL, GAIN = 0.01, 0.002
SCALARS = ("host_scale", "compute_scale", "comm_scale")
LISTS = ("published.jsonl", "vtrain-single-node.jsonl", "torch-one-gpu.jsonl")
STEPS = (0.32, 0.08, 0.02)
SPREADS = tuple(k / 200 for k in range(9))
STARTS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of host_scale: it does nothing until the host is what limits
PLAIN = ("generic", "lockstep")  # assume nothing
BY_BLOCKS = {"megatron-lm-2022": 1.0}  # compute_scale: within 3 %, tests/unit/test_layer_times.c
# Stacks without host-bound rows take host_scale from one that has some, and their model code.
HOST_FROM = {name: "megatron-deepspeed-2022" for name in ("megatron-lm-2021", "megatron-lm-2022")}
# Of the stacks measured on the first GPU the one with the most rows; GPUs of the same chip.
SUSTAINED = {"nemo-2025": ("h100-80gb", "h100-80gb-pcie", "h100-94gb-nvl", "h100-96gb-hbm2e",
                           "h200-141gb", "gh200"),
             "megatron-core-2025": ("b200-180gb", "b300-270gb", "gb200-186gb", "gb300")}
WHY_GPUS = {"nemo-2025": "the stack measured there most often",
            "megatron-core-2025": "the only stack measured there, whose kernels are nemo-2025's"}
LOW, HIGH = (0.1, 0.1, 0.1), (30.0, 10.0, 10.0)  # what sim/software.c accepts


def three_digits(x):
    return float(f"{x:.3g}")


def is_compiled_as(folder, name, row):
    """Does another stack's compute_scale count?"""
    if row["training"].get("compile") != "compiled":
        return False
    with open(os.path.join(folder, "software", name + ".json"), encoding="utf-8") as f:
        return "compiled_as" in json.load(f)["kernels"]


def rows_by_software(folder):
    """name -> (group, measured step time, the scenario as a line) of each row"""
    rows = {}
    for name in LISTS:
        with open(os.path.join(folder, "validation", name), encoding="utf-8") as f:
            for line in f:
                if line.strip():
                    row = json.loads(line)
                    for m in row.get("measured", []):
                        if m["metric"] == "step_time_s":
                            name = row.get("software", "generic")
                            if not is_compiled_as(folder, name, row):
                                rows.setdefault(name, []).append((row["group"], m["value"], line))
    return rows


class Trial:
    """One stack in a copy of the tree."""

    def __init__(self, tree, name, rows, gpus=()):
        """gpus: the scalar of kernels is their sustained_scale"""
        self.tree, self.rows, self.ring_nics, self.name, self.gpus = tree, rows, 0, name, gpus
        self.spread = 0.0
        self.path = os.path.join(tree, "scenarios", "software", name + ".json")
        self.list = os.path.join(tree, name + ".jsonl")
        with open(self.list, "w", encoding="utf-8") as f:
            f.writelines(line for _, _, line in rows)
        with open(self.path, encoding="utf-8") as f:
            self.doc = json.load(f)
        self.known = {}

    def errors(self, scalars):
        """ln(predicted / measured) by group."""
        scenarios = os.path.join(self.tree, "scenarios")
        for gpu in self.gpus:
            write_sustained(scenarios, gpu, self.name, (scalars[1], self.spread), "a trial")
        if self.gpus:
            scalars = (scalars[0], 1.0, scalars[2])
        self.doc["fitted"] = dict(zip(SCALARS, scalars), fitted_on="a trial")
        if self.ring_nics:
            self.doc["fitted"]["ring_nics"] = self.ring_nics
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump(self.doc, f)
        program = os.path.join(self.tree, "bin", "lockstep")
        out = subprocess.run([program, "sim", self.list, "--json"], check=True,
                             capture_output=True, text=True).stdout
        reports = json.loads(out)
        groups = {}
        for (group, measured, _), report in zip(self.rows, reports.get("scenarios", [reports])):
            groups.setdefault(group, []).append(math.log(report["step_time_s"] / measured))
        return groups

    def misfit(self, scalars):
        key = scalars, self.ring_nics, self.spread
        if key not in self.known:
            each = []
            for errors in self.errors(scalars).values():
                sizes = [abs(e) for e in errors]
                each.append((statistics.median(sizes) + statistics.fmean(sizes)) / 2)
            pull = sum(abs(math.log(s)) for s in scalars)
            self.known[key] = statistics.fmean(each) + PULL * pull
        return self.known[key]

    def moved(self, scalars, move, step):
        s = list(scalars)
        for i, sign in move:
            s[i] = three_digits(min(HIGH[i], max(LOW[i], s[i] * math.exp(sign * step))))
        return tuple(s)

    def fit(self, host):
        """host: scale taken from a relative, or None."""
        every = [i for i in range(len(SCALARS)) if i > 0 or host is None]
        best = self.fit_some(every, host)
        if not any(shares_nics(self.tree, line) for _, _, line in self.rows):
            return best
        least, self.ring_nics = self.misfit(best), 1
        free = [i for i in every if SCALARS[i] != "comm_scale"]
        self.free = list(free)
        ringed = min((self.descend(best[:2] + (1.0,)), self.fit_some(free, host)), key=self.misfit)
        if self.misfit(ringed) < least - GAIN:
            return ringed
        self.ring_nics = 0
        return best

    def fit_some(self, free, host):
        self.free = free
        starts = STARTS if host is None else (host,)
        start = min(((h, 1.0, 1.0) for h in starts), key=self.misfit)
        return self.without_idle(self.descend(start))

    def moves(self):
        """One scalar up or down, then two at once: cheaper kernels and dearer transfers, say."""
        one = [(i, sign) for i in self.free for sign in (1, -1)]
        two = [(a, b) for k, a in enumerate(one) for b in one[k:] if a[0] != b[0]]
        return [(move,) for move in one] + two

    def descend(self, best):
        for step in STEPS:
            again = True
            while again:
                again = False
                for move in self.moves():
                    tried = self.moved(best, move, step)
                    while tried != best and self.misfit(tried) < self.misfit(best) - 1e-6:
                        best, again = tried, True
                        tried = self.moved(best, move, step)
        return best

    def without_idle(self, best):
        """Scalars that gain too little are 1, and the others fitted to that."""
        for i in tuple(self.free):
            if best[i] == 1.0:
                continue
            self.free.remove(i)
            plain = self.descend(tuple(1.0 if j == i else s for j, s in enumerate(best)))
            if self.misfit(plain) < self.misfit(best) + GAIN:
                best = plain
            else:
                self.free.append(i)
        return best


def shares_nics(tree, line):
    """Does the row's cluster have fewer NICs than GPUs on a node?"""
    cluster = json.loads(line)["cluster"]
    if isinstance(cluster, str):
        with open(os.path.join(tree, "scenarios", "clusters", cluster + ".json"), encoding="utf-8") as f:
            cluster = json.load(f)
    inter = cluster.get("inter_node", {})
    return 0 < inter.get("nics_per_node", 0) < cluster.get("gpus_per_node", 0)


def host_of(folder, name):
    """host_scale of the relative, None without one."""
    if name not in HOST_FROM:
        return None
    with open(os.path.join(folder, "software", HOST_FROM[name] + ".json"), encoding="utf-8") as f:
        return json.load(f).get("fitted", {}).get("host_scale", 1.0)


def write_fitted(path, name, scalars, ring_nics, rows):
    """Replaces or adds the line "fitted", leaving the rest of the file as it is."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r'\n  "fitted": \{.*\},', "", text)
    if ring_nics or any(s != 1 for s in scalars):
        counts = {}
        for group, _, _ in rows:
            counts[group] = counts.get(group, 0) + 1
        on = ", ".join(f"{group} ({n} rows)" for group, n in sorted(counts.items()))
        fitted = {k: s for k, s in zip(SCALARS, scalars) if s != 1}
        if ring_nics:
            fitted["ring_nics"] = ring_nics
        parts = []
        if name in HOST_FROM and "host_scale" in fitted:
            parts.append("host_scale is that of " + HOST_FROM[name] + ", the same model code, eager")
        if len(fitted) > len(parts):
            parts.append(("" if not parts else "the rest: ") + "step times of " + on)
        fitted["fitted_on"] = "; ".join(parts) + "; tests/parity/fit_software.py"
        line = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in fitted.items())
        text = text.replace('\n  "sources": {', f'\n  "fitted": {{ {line} }},\n  "sources": {{', 1)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def write_sustained(folder, gpu, name, sustained, source):
    """sustained: scale and spread"""
    path = os.path.join(folder, "gpus", gpu + ".json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text, n = re.subn(r'("sustained_scale": )[0-9.]+', rf"\g<1>{sustained[0]:g}", text)
    text, s = re.subn(r'("sustained_spread": )[0-9.]+', rf"\g<1>{sustained[1]:g}", text)
    text, k = re.subn(r'("sustained_from": )"[^"]*"', lambda m: m.group(1) + json.dumps(name), text)
    text, m = re.subn(r'("sustained_scale": )"[^"]*"', lambda m: m.group(1) + json.dumps(source), text)
    if (n, s, k, m) != (1, 1, 1, 1):
        sys.exit(f"{path}: sustained_scale, _spread, _from and a source are expected once")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def forget_gpus(name, tree):
    for gpu in SUSTAINED.get(name, ()):
        write_sustained(os.path.join(tree, "scenarios"), gpu, name, (1, 0), "a trial")


def settle_gpus(name, scenarios, tree, rows, check):
    """What slows one stack on some GPUs is theirs."""
    forget_gpus(name, tree)
    trial = Trial(tree, name, rows[name], SUSTAINED[name])
    found = []
    for trial.spread in SPREADS:
        scalars = trial.fit(1.0)
        found.append((trial.misfit(scalars), scalars[1], trial.spread))
        print(f"{name}: spread {trial.spread:g}: J {found[-1][0]:.5f} with {scalars[1]:g}", flush=True)
    best = min(found)
    scale, spread = (best if best[0] < found[0][0] - GAIN else found[0])[1:]
    if scale < 1:
        sys.exit(f"{name} is faster than kernels timed alone: {scale:g}")
    print(f"{name} on {', '.join(SUSTAINED[name])}: sustained_scale {scale:g}, spread {spread:g}")
    for k, gpu in enumerate(SUSTAINED[name]):
        source = f"what slows {name}, {len(rows[name])} published steps on " \
                 f"{SUSTAINED[name][0]}, {WHY_GPUS[name]}; tests/parity/fit_software.py"
        if k > 0:
            source = f"as {SUSTAINED[name][0]}: " + source
        write_sustained(os.path.join(tree, "scenarios"), gpu, name, (scale, spread), source)
        if not check:
            write_sustained(scenarios, gpu, name, (scale, spread), source)


def fitted_scale(folder, name):
    """The stack's compute_scale, 1 where none was fitted."""
    with open(os.path.join(folder, "software", name + ".json"), encoding="utf-8") as f:
        return json.load(f).get("fitted", {}).get("compute_scale", 1.0)


def write_assumed(path, scale, names):
    """Replaces or adds the line "assumed"; scale None: takes it away."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r'\n  "assumed": \{.*\},', "", text)
    if scale is not None:
        assumed = {"compute_scale": scale,
                   "assumed_from": "never measured: the median of " + ", ".join(sorted(names))
                                   + "; tests/parity/fit_software.py"}
        line = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in assumed.items())
        text = text.replace('\n  "sources": {', f'\n  "assumed": {{ {line} }},\n  "sources": {{', 1)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def read_sustained(tree, gpu):
    with open(os.path.join(tree, "scenarios", "gpus", gpu + ".json"), encoding="utf-8") as f:
        gpu = json.load(f)
    return gpu["sustained_scale"], gpu["sustained_spread"]


def judge_assumed(tree, rows, host, scales):
    """Every stack as if it had never been measured, nor what it shows of GPUs: with 1, and with the
    median of the others."""
    sizes = {}
    for name in scales.keys() & rows.keys():
        others = statistics.median(s for n, s in scales.items() if n != name)
        kept = {gpu: read_sustained(tree, gpu) for gpu in SUSTAINED.get(name, ())}
        forget_gpus(name, tree)
        trial = Trial(tree, name, rows[name])
        for what, scale in (("1", 1.0), ("the median of the others", others)):
            groups = trial.errors((host(name), three_digits(scale), 1.0)).values()
            sizes.setdefault(what, []).append([abs(math.expm1(e)) for g in groups for e in g])
        for gpu, sustained in kept.items():
            write_sustained(os.path.join(tree, "scenarios"), gpu, name, sustained, "a trial")
    for what, each in sizes.items():
        every = sorted(s for stack in each for s in stack)
        median, p90 = statistics.median(every), every[int(0.9 * len(every))]
        mean = statistics.fmean(statistics.median(stack) for stack in each)
        print(f"compute_scale {what}: rows {100 * median:.1f} / {100 * p90:.1f} % median / p90, "
              f"mean over stacks of their median {100 * mean:.1f} %", flush=True)


def assume(scenarios, tree, rows, check):
    """compute_scale of the stacks that were never measured."""
    def host(name):
        with open(os.path.join(scenarios, "software", name + ".json"), encoding="utf-8") as f:
            return json.load(f).get("fitted", {}).get("host_scale", 1.0)

    names = sorted(n[:-5] for n in os.listdir(os.path.join(scenarios, "software")))
    scales = {n: fitted_scale(scenarios, n) for n in names if n in rows and n not in PLAIN} | BY_BLOCKS
    judge_assumed(tree, rows, host, scales)
    scale = three_digits(statistics.median(scales.values()))
    print(f"assumed where nothing was measured: compute_scale {scale:g}")
    if not check:
        for name in names:
            plain = name in scales or name in PLAIN
            path = os.path.join(scenarios, "software", name + ".json")
            write_assumed(path, None if plain else scale, scales)


def show(name, trial, scalars):
    ring_nics = trial.ring_nics
    for when, s, trial.ring_nics in (("before", (1.0, 1.0, 1.0), 0), ("after", scalars, ring_nics)):
        parts = []
        for group, errors in sorted(trial.errors(s).items()):
            sizes = sorted(abs(math.expm1(e)) for e in errors)
            p90 = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
            parts.append(f"{group} {100 * statistics.median(sizes):.1f} / {100 * p90:.1f} %")
        values = " ".join(f"{x:g}" for x in s) + (f" ring_nics {ring_nics}" if trial.ring_nics else "")
        print(f"{name:24} {when:6} {values:20} median / p90: " + ", ".join(parts), flush=True)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    args = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    args.add_argument("--lockstep", default=os.path.join(root, "build", "lockstep"))
    args.add_argument("--check", action="store_true", help="write nothing")
    args.add_argument("names", nargs="*", metavar="NAME", help="stacks; all that have rows")
    args = args.parse_args()
    scenarios = os.path.join(root, "scenarios")
    rows = rows_by_software(scenarios)
    unknown = [n for n in args.names if n not in rows and n not in HOST_FROM]
    if unknown:
        sys.exit("no rows name " + ", ".join(unknown))
    with tempfile.TemporaryDirectory() as tree:
        shutil.copytree(scenarios, os.path.join(tree, "scenarios"))
        os.mkdir(os.path.join(tree, "bin"))
        shutil.copy(args.lockstep, os.path.join(tree, "bin", "lockstep"))
        for name in SUSTAINED:
            if not args.names or name in args.names:  # it moves every stack on these GPUs
                settle_gpus(name, scenarios, tree, rows, args.check)
        for name in sorted(args.names or {*rows, *HOST_FROM}, key=lambda n: (n in HOST_FROM, n)):
            path = os.path.join(scenarios, "software", name + ".json")
            if not os.path.exists(path):
                print(f"{name}: no file", file=sys.stderr)
                continue
            host = host_of(scenarios, name)
            scalars, ring_nics = (host or 1.0, 1.0, 1.0), 0
            if name in rows:
                trial = Trial(tree, name, rows[name])
                scalars = trial.fit(host)
                ring_nics = trial.ring_nics
                show(name, trial, scalars)
            if not args.check:
                write_fitted(path, name, scalars, ring_nics, rows.get(name, []))
        assume(scenarios, tree, rows, args.check)


if __name__ == "__main__":
    main()
