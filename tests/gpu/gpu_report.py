#!/usr/bin/env python3
# gpu_report.py - what came back from run.sh, as files of the tree and a section of the README.
#
#     make gpu-report DIR=build/gpu-out
#
# DIR holds what run.sh left in OUT.  The kernels of measurements.jsonl go into the GPU's file in
# scenarios/gpus (make_gpu_file.py, which knows which file is whose), small traces into
# traces/samples, and README-gpu.md, written into DIR, says what ran, what failed, how fast it was
# and how far off the predictions were: only numbers that are in DIR.

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE_BYTES_MAX = 1 << 20
GPU_FILES = [("H200", "h200-141gb"), ("H100", "h100-80gb"), ("A100", "a100-80gb")]


class Failure(Exception):
    pass


def read_rows(directory):
    path = os.path.join(directory, "measurements.jsonl")
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if line.strip()]
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            print(f"gpu_report.py: line {number} was cut short and is left out", file=sys.stderr)
    return rows


def of_part(rows, part):
    return [row for row in rows if row.get("part") == part]


def verdicts(directory):
    """The last table of run.log: each part once, as it ended."""
    found = {}
    try:
        with open(os.path.join(directory, "run.log"), encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("PART ") and ": " in line:
                    name, text = line[5:].rstrip("\n").split(": ", 1)
                    found[name] = text
    except OSError:
        pass
    return found


def device_of(rows):
    devices = of_part(rows, "device")
    if not devices:
        raise Failure("there is no device row, so nobody knows which GPU it was")
    return devices[0]


def file_of(device):
    for word, name in GPU_FILES:
        if word in device["name"].upper():
            return name
    raise Failure(f"no file in scenarios/gpus is known for '{device['name']}'")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def trained(row):
    """What was trained: PyTorch is compared with the same only."""
    options = f", {row['options']}" if row.get("options") else ""
    return f"{row['model']} {row['batch']} x {row['seq']}{options}"


def speed_section(rows):
    speeds = of_part(rows, "speed")
    if not speeds:
        return ["Speed was not measured.", ""]
    best = {}
    for row in speeds:
        if row["by"].startswith("torch-"):
            best[trained(row)] = max(best.get(trained(row), 0), row["tokens_per_s"])
    lines = []
    for row in speeds:
        beside = best.get(trained(row), 0)
        lines.append([trained(row), row["by"], f"{row['step_us'] / 1e3:.2f}",
                      f"{row['tokens_per_s']:,.0f}",
                      f"{row['tokens_per_s'] / beside:.2f}" if beside else "",
                      f"{row['predicted_us'] / 1e3:.2f} ({row['error_pct']:+.1f} %)"
                      if row.get("predicted_us") else ""])
    return table(["model", "by", "step, ms", "tokens/s", "of PyTorch's best",
                  "predicted, ms (error)"], lines) + [""]


def strategies_section(rows):
    cases = of_part(rows, "strategies")
    if not cases:
        return ["No strategy was compared with the CPU.", ""]
    good = [c for c in cases if c["off"] != "bad" and float(c["off"]) <= c["limit"]]
    lines = [f"Losses on the GPU (ranks in a loop) beside the CPU's: {len(good)} of {len(cases)} "
             "cases agree."]
    lines += [f"- **not equal**: {c['case']}, off by {c['off']}, {c['limit']} is allowed"
              for c in cases if c not in good]
    return lines + [""]


def kernels_section(rows):
    gemms = [r for r in of_part(rows, "gemm") if not r.get("host_bound")]
    lines = []
    if gemms:
        top = max(gemms, key=lambda r: r["tflops"])
        lines.append(f"cuBLASLt: {len(gemms)} products, the best {top['dtype']} {top['m']} x "
                     f"{top['n']} x {top['k']} at {top['tflops']:.0f} TFLOP/s.")
    copies = [r["GBps"] for r in of_part(rows, "memory") if r.get("cache") == "cold"]
    if copies:
        lines.append(f"Kernels limited by memory: up to {max(copies):,.0f} GB/s.")
    slower = [r["slowdown"] for r in of_part(rows, "overlap") if r.get("blocks") == 24]
    if slower:
        lines.append("Beside 24 blocks that copy, kernels take "
                     f"{statistics.median(slower):.2f} times as long (median).")
    return lines + [""] if lines else []


def section(directory, rows):
    device = device_of(rows)
    said = [str(device[k]) for k in ("driver", "runtime_version", "date") if device.get(k)]
    lines = [f"### {device['name']}", "", f"`tests/gpu/run.sh`, {', '.join(said)}.", ""]
    ended = verdicts(directory)
    bad = [f"{name}: {text}" for name, text in ended.items() if not text.startswith("ok")]
    ok = sum(text.startswith("ok") for text in ended.values())
    lines += [f"{ok} of {len(ended)} parts ended well{'; ' if bad else ''}{'; '.join(bad)}.", ""]
    lines += speed_section(rows) + strategies_section(rows) + kernels_section(rows)
    for row in of_part(rows, "profile"):
        lines.append("Collector: " + ", ".join(f"{k} {v}" for k, v in row.items() if k != "part"))
    return "\n".join(lines).rstrip() + "\n"


def copy_traces(directory, name, root):
    kept = []
    for kind in ("loop", "plain"):
        source = os.path.join(directory, f"{kind}.lstrace")
        if not os.path.exists(source):
            continue
        if os.path.getsize(source) > SAMPLE_BYTES_MAX:
            print(f"gpu_report.py: '{source}' is too large for traces/samples", file=sys.stderr)
            continue
        target = os.path.join(root, "traces", "samples", f"{name}-{kind}.lstrace")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        kept.append(target)
    return kept


def main():
    parser = argparse.ArgumentParser(description="what run.sh left, as files of the tree")
    parser.add_argument("directory", help="what run.sh left in OUT")
    parser.add_argument("--root", default=os.path.join(HERE, "..", ".."), help="the tree")
    arguments = parser.parse_args()
    try:
        rows = read_rows(arguments.directory)
        name = file_of(device_of(rows))
        text = section(arguments.directory, rows)
        into = os.path.join(arguments.root, "scenarios", "gpus", f"{name}.json")
        if of_part(rows, "gemm") or of_part(rows, "memory"):
            done = subprocess.run([sys.executable, os.path.join(HERE, "make_gpu_file.py"),
                                   os.path.join(arguments.directory, "measurements.jsonl"),
                                   "--into", into], check=False)
            if done.returncode != 0:
                raise Failure(f"'{into}' is as it was")
            print(f"wrote {into}")
        for path in copy_traces(arguments.directory, name, arguments.root):
            print(f"wrote {path}")
        path = os.path.join(arguments.directory, "README-gpu.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"wrote {path}")
    except (Failure, OSError, KeyError, TypeError, ValueError) as failure:
        print(f"gpu_report.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
