#!/usr/bin/env python3
# make_gpu_file.py - puts the rows that run.sh measured into a GPU file.
#
#     tests/gpu/make_gpu_file.py MEASUREMENTS --into scenarios/gpus/h100-80gb.json
#     tests/gpu/make_gpu_file.py MEASUREMENTS --summary
#
# MEASUREMENTS is run.sh's measurements.jsonl.  Adds its tables to "kernels" as groups whose
# source begins with "tests/gpu/run.sh" (an earlier run's of the same kernels go; --only-these
# drops all others), sets "launch_us" and "host_GBps", and keeps the rest of the file.
# Products are measured back to back for a minute, so by a GPU that has fallen to lower clocks: so,
# it seems, are published ones (what Vidur's of an H100 predict of an H200's is 1 % off in the
# median, 3 to 6 % by size and layout), on which "sustained_scale" is fitted.
# The overlap measurements go into "notes", where the program reads nothing: its constants
# are to be fitted on them.  The same rows give the same bytes.  Rows that were not to be
# trusted (host_bound) are left out; a line that is no JSON (a part was killed while
# writing) is reported and left out.
#
# Exit status 0 done, 1 could not: a sentence on stderr says why, 2 wrong usage.

import argparse
import json
import os
import sys

OURS = "tests/gpu/run.sh"
GEMM_KEYS = ["m", "n", "k"]
FIRST_WITH_NEWER = 90  # compute capability
ATTENTION_KEYS = ["batch", "seq", "heads", "kv_heads", "head_dim", "causal"]
WIDTH_MAX = 96

# The classes of the program's cost model (core/machine_tables.c) and the kernels in them.
MEMORY_CLASSES = {
    "norm": ["layernorm_fwd", "rmsnorm_fwd"],
    "norm_bwd": ["layernorm_bwd", "rmsnorm_bwd"],
    "activation": ["gelu_fwd", "gelu_bwd", "silu_mul_fwd", "silu_mul_bwd"],
    "add": ["add"],
    "softmax": ["softmax_fwd", "softmax_bwd", "cross_entropy_fwd", "cross_entropy_bwd"],
    "copy": ["copy", "cast_f32_bf16", "cast_bf16_f32"],
    "optimizer": ["adamw_f32", "adamw_mixed", "sum_squares"],
    "embedding": ["embedding"],
}


class Failure(Exception):
    """A sentence for the user."""


def read_rows(path):
    rows, bad = [], []
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    if not isinstance(row, dict) or "part" not in row:
                        raise ValueError
                    rows.append(row)
                except ValueError:
                    bad.append(number)
    except OSError as error:
        raise Failure(f"cannot open '{path}': {error.strerror}") from error
    if bad:
        print(f"make_gpu_file.py: {path}: no row in line {bad[0]}"
              f" ({len(bad)} such lines left out)", file=sys.stderr)
    return rows


def of_part(rows, part):
    return [r for r in rows if r["part"] == part]


def significant(value, digits=4):
    """Four digits are more than a measurement repeats; whole numbers stay whole."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) else rounded


# ---- tables ----


def trusted(rows, part):
    return [r for r in of_part(rows, part) if not r.get("host_bound") and r.get("time_us")]


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def means(rows, key_columns, value="time_us"):
    """Sorted [key..., mean of value]: rows that differ in nothing a table knows are one."""
    groups = {}
    for row in rows:
        key = tuple(int(row[c]) for c in key_columns)
        groups.setdefault(key, []).append(row[value])
    return [[*key, significant(sum(groups[key]) / len(groups[key]))] for key in sorted(groups)]


FP8_LAYOUTS = {"dgrad": "NN", "wgrad": "NT"}


def gemm_layout(row):
    """NT+ adds to an f32 output, as fused wgrads do.  fp8 has TN alone: which product of a linear
    layer it was says in which place the program looks for it, and only backward's, whose partial
    sums leave the tensor cores, stand for backward."""
    layout = row["layout"]
    if row["dtype"] == "fp8" and row["use"] in FP8_LAYOUTS:
        if not row.get("promoted"):
            return None
        layout = FP8_LAYOUTS[row["use"]]
    return layout + ("+" if row["accumulate"] else "")


def gemm_groups(rows, where):
    """One group per type and layout."""
    split = {}
    for row in trusted(rows, "gemm"):
        split.setdefault((row["dtype"], gemm_layout(row)), []).append(row)
    source = f"{OURS} on {where}: cuBLASLt, first algorithm, random data not in L2"
    fp8 = {"NN": "; TN of transposed operands, sums promoted to f32", "TN": "; sums in the tensor cores"}
    fp8["NT"] = fp8["NT+"] = fp8["NN"]
    return [{"source": source + (fp8[layout] if dtype == "fp8" else ""), "dtype": dtype,
             "layout": layout, "columns": [*GEMM_KEYS, "time_us"], "rows": means(group, GEMM_KEYS)}
            for (dtype, layout), group in sorted(split.items(), key=str)
            if layout in ("TN", "NN", "NT", "NT+")]


def size_clusters(rows):
    """Rows of about one size together: kernels of a class round their bytes differently."""
    clusters = []
    for row in sorted(rows, key=lambda r: (r["bytes"], r["time_us"])):
        if not clusters or row["bytes"] > 1.5 * clusters[-1][0]["bytes"]:
            clusters.append([])
        clusters[-1].append(row)
    return clusters


def rising(table):
    """Without rows that take longer than one of more bytes: few long lines, not a stream."""
    kept = []
    for row in reversed(table):
        if not kept or row[1] <= kept[-1][1]:
            kept.append(row)
    return kept[::-1]


def memory_groups(rows, where):
    """A row per class and size: its middle kernel's bandwidth.  The program interpolates
    between neighbours, so two rows of one size would only be noise."""
    cold = [r for r in trusted(rows, "memory") if r["cache"] == "cold"]
    groups = []
    for name, ops in MEMORY_CLASSES.items():
        table = []
        for cluster in size_clusters([r for r in cold if r["op"] in ops]):
            size = int(median([r["bytes"] for r in cluster]))
            speed = median([r["bytes"] / r["time_us"] for r in cluster])
            table.append([size, significant(size / speed)])
        if table:
            source = f"{OURS} on {where}: median of {', '.join(ops)}; data not in L2"
            groups.append({"source": source, "op": name, "columns": ["bytes", "time_us"],
                           "rows": rising(table)})
    return groups


def torch_versions(rows):
    for row in of_part(rows, "torch"):
        cudnn = row.get("cudnn") or 0
        return {"flash": f"PyTorch {row['version']}: FlashAttention-2",
                "cudnn": f"PyTorch {row['version']}: cuDNN {cudnn // 10000}.{cudnn // 100 % 100}"}
    return {"flash": "PyTorch: FlashAttention-2", "cudnn": "PyTorch: cuDNN"}


def attention_groups(rows, where, capability):
    """From Hopper on cuDNN's is the newest kernel, and FlashAttention-2 one that is told apart."""
    kernels = {"flash": "newest"}
    if capability >= FIRST_WITH_NEWER:
        kernels = {"cudnn": "newest", "flash": "flash2"}
    said = torch_versions(rows)
    groups = []
    for backend, kernel in kernels.items():
        for op, word in (("attention_fwd", "forward"), ("attention_bwd", "backward")):
            kept = [r for r in trusted(rows, "attention")
                    if r["op"] == op and r["backend"] == backend]
            if kept:
                source = f"{OURS} on {where}, {said[backend]}, bf16"
                groups.append({"source": source, "kernel": kernel, "op": word,
                               "columns": [*ATTENTION_KEYS, "time_us"],
                               "rows": means(kept, ATTENTION_KEYS)})
    return groups


def overlap_note(rows, where, speed):
    kept = [r for r in of_part(rows, "overlap") if r["speed"] in (speed, "none")]
    kept.sort(key=lambda r: (r["kernel"], r["blocks"]))
    source = (f"{OURS} on {where}: a copy kernel of so many blocks, each owning one SM,"
              f" {speed}, beside each kernel")
    return {"source": source, "columns": ["kernel", "blocks", "slowdown"],
            "rows": [[r["kernel"], r["blocks"], significant(r["slowdown"])] for r in kept]}


def comm_matmul_factor(gpu, rows, speed):
    """What products take beside as many blocks as a collective has, of what the SMs left explain."""
    blocks, sms = gpu.get("overlap", {}).get("comm_sms"), gpu.get("sms")
    found = [r["slowdown"] for r in of_part(rows, "overlap")
             if r["kernel"].startswith("gemm") and r["blocks"] == blocks and r["speed"] == speed]
    if not found or not sms:
        return None
    return significant(max(1, median(found) * (sms - blocks) / sms), 3)


def launch_us(rows):
    found = [r["time_us"] for r in of_part(rows, "launch") if r["metric"] == "launch_host"]
    return significant(found[0], 3) if found else None


def host_gbps(rows):
    found = [r["GBps"] for r in of_part(rows, "copy")
             if r["direction"] == "h2d" and r["host"] == "pinned"]
    return significant(max(found), 3) if found else None


# ---- the file ----


def device_of(rows):
    devices = of_part(rows, "device")
    if not devices:
        raise Failure("the measurements have no device row, so nobody knows which GPU they are of")
    return devices[0]


def conditions(device, rows):
    """One sentence: what was measured with what."""
    said = [f"{OURS} on {device['name']}"]
    if device.get("date"):
        said.append(device["date"])
    for key, label, unit in (("driver", "driver", ""), ("runtime_version", "CUDA", ""),
                             ("cublaslt_version", "cuBLASLt", ""), ("power_limit_w", "limit", " W"),
                             ("clock_max_mhz", "clock at most", " MHz"), ("cpu", "host", "")):
        if device.get(key):
            said.append(f"{label} {device[key]}{unit}")
    clocks = [r["clock_mhz"] for r in of_part(rows, "gemm") if r.get("clock_mhz")]
    if clocks:
        said.append(f"matmuls at {significant(median(clocks))} MHz (median)")
    for row in of_part(rows, "torch"):
        said.append(f"PyTorch {row['version']}")
    return ", ".join(said)


def as_list(groups):
    """The program takes one group where it takes a list."""
    return groups if isinstance(groups, list) else [groups]


def is_ours(group):
    return str(group.get("source", "")).startswith(OURS)


def what_of(group):
    """What a group is of, beside its source."""
    return [group.get(key) for key in ("dtype", "layout", "kernel", "op")]


def merge_tables(old, new, only_these):
    """The new groups after those of others; a table without new rows stays as it is.  Rows of
    memory-bound kernels are neighbours, so a class is of one source: the new one."""
    merged = dict(old)
    for name, groups in new.items():
        mine = [what_of(g) for g in groups]
        others = [g for g in as_list(old.get(name, []))
                  if what_of(g) not in mine or not is_ours(g) and name != "memory"]
        if groups:
            merged[name] = groups if only_these else others + groups
    return merged


def conditions_of(table, said, earlier):
    """How a table was measured; after an earlier run's where groups of that are still there."""
    sources = {g["source"].split(":")[0] for g in table if is_ours(g)}
    return f"{earlier}; {said}" if earlier and said not in earlier and len(sources) > 1 else said


def merge(gpu, rows, arguments):
    device = device_of(rows)
    where = ", ".join(filter(None, (device["name"], device.get("date"))))
    said = conditions(device, rows)
    provenance, notes = gpu.get("provenance", {}), gpu.get("notes", {})
    provenance = dict(provenance) if isinstance(provenance, dict) else {"file": provenance}
    notes = dict(notes) if isinstance(notes, dict) else {"file": notes}
    merged = dict(gpu)
    launch, copies = launch_us(rows), host_gbps(rows)
    if copies is not None:
        merged["host_GBps"] = copies
        provenance["host_GBps"] = said
    if launch is not None and arguments.host:
        merged["launch_us"] = launch
        provenance["launch_us"] = said
    elif launch is not None:  # or whoever compares two GPUs compares two hosts
        notes["launch_us_measured"] = {"value": launch, "source": said}
    overlap = overlap_note(rows, where, arguments.hog)
    if overlap["rows"]:
        notes["overlap_measured"] = overlap
    factor = comm_matmul_factor(gpu, rows, arguments.hog)
    if factor is not None:
        merged["overlap"] = {**gpu["overlap"], "comm_matmul_factor": factor}
        provenance["overlap.comm_matmul_factor"] = overlap["source"] + ", median of the products"
    merged["kernels"] = merge_tables(gpu.get("kernels", {}), {
        "gemm": gemm_groups(rows, where),
        "memory": memory_groups(rows, where),
        "attention": attention_groups(rows, where, device_of(rows)["compute_capability"]),
    }, arguments.only_these)
    for part, key in (("gemm", "kernels"), ("attention", "kernels.attention")):
        if of_part(rows, part):  # of several runs each says what it measured
            key = f"{key} of {OURS}"
            table = merged["kernels"].get(part, [])
            provenance[key] = conditions_of(table, said, provenance.get(key))
    merged["provenance"] = provenance
    if notes:
        merged["notes"] = notes
    return merged


ELEMENT_BYTES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2}


def memory_hardly_counts(row, device):
    """A product that takes twice as long as its operands do, by the memory's clock and width."""
    moved = ELEMENT_BYTES.get(row["dtype"], 1) * (
        row["m"] * row["k"] + row["k"] * row["n"] + row["m"] * row["n"])
    bytes_per_us = 2 * device["memory_clock_mhz"] * device["memory_bus_bits"] / 8
    return row["time_us"] > 2 * moved / bytes_per_us


def for_same_chip(gpu, rows):
    """What holds of a GPU that differs from the one measured in its memory and host only."""
    device = device_of(rows)
    if gpu.get("sms") != device.get("sms"):
        raise Failure(f"'{gpu.get('name')}' has {gpu.get('sms')} SMs and '{device['name']}' "
                      f"{device.get('sms')}: not the same chip")
    kept = [r for r in rows if r["part"] in ("attention", "torch") or
            r["part"] == "gemm" and memory_hardly_counts(r, device)]
    return [dict(device, name="the same chip, " + device["name"])] + kept


def check_name(path, device, force):
    """h100-80gb.json is for a device whose name says H100."""
    word = os.path.basename(path).split("-")[0].split(".")[0]
    if word.upper() not in device["name"].upper() and not force:
        raise Failure(f"'{path}' is not the file of '{device['name']}'; --force writes it anyway")


def packed(items, pad):
    """[a, b, ...] over as many lines as it takes, many items a line."""
    lines = [""]
    for i, item in enumerate(items):
        text = item + ("," if i + 1 < len(items) else "")
        if lines[-1] and len(pad) + len(lines[-1]) + 1 + len(text) > WIDTH_MAX:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + text
    return "[\n" + "\n".join(pad + text for text in lines) + "]"


def dump(value, indent=0):
    """JSON for people: short things on a line, table rows packed, long objects as blocks."""
    flat = json.dumps(value, ensure_ascii=False)
    pad = "  " * (indent + 1)
    if len(pad) + len(flat) <= WIDTH_MAX or not isinstance(value, (dict, list)):
        return flat
    if isinstance(value, list) and all(isinstance(v, list) for v in value):
        return packed([json.dumps(v, ensure_ascii=False) for v in value], pad)
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + dump(v, indent + 1) for v in value) + "]"
    lines = [f"{pad}{json.dumps(k, ensure_ascii=False)}: {dump(v, indent + 1)}"
             for k, v in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + "  " * indent + "}"


def read_gpu(path):
    if not os.path.exists(path):
        raise Failure(f"there is no '{path}': its data sheet (peaks, memory) comes first")
    try:
        with open(path, encoding="utf-8") as file:
            gpu = json.load(file)
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read '{path}': {error}") from error
    if not isinstance(gpu, dict):
        raise Failure(f"'{path}' is not a JSON object")
    return gpu


def write_gpu(path, gpu):
    temporary = path + ".new"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(dump(gpu) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise Failure(f"cannot write '{path}': {error.strerror}") from error


# ---- the summary ----


def line(*cells):
    print("  " + "  ".join(cells))


def summarise_gemm(rows):
    by_type = {}
    for row in of_part(rows, "gemm"):
        by_type.setdefault(row["dtype"], []).append(row)
    for dtype, group in by_type.items():
        top = max(group, key=lambda r: r["tflops"])
        gain = sorted(r["time_us"] / r["best_us"] for r in group)[len(group) // 2]
        line(f"gemm {dtype:5}", f"{len(group):5} shapes", f"best {top['tflops']:7.1f} TFLOP/s",
             f"at {top['m']}x{top['n']}x{top['k']}", f"first/best algorithm {gain:.3f}")
    bound = sum(bool(r.get("host_bound")) for r in of_part(rows, "gemm"))
    if bound:
        line(f"gemm: {bound} rows are host-bound and will be left out")
    for row in of_part(rows, "gemm_sustained")[-1:]:
        line("sustained 8192^3", f"{row['tflops']:.1f} TFLOP/s", f"clock {row['clock_mhz']} MHz")


def summarise_memory(rows):
    best = {}
    for row in of_part(rows, "memory"):
        if row["cache"] == "cold":
            best[row["op"]] = max(best.get(row["op"], 0), row["GBps"])
    for op, gbps in best.items():
        line(f"{op:18}", f"{gbps:7.0f} GB/s")


def summarise_rest(rows):
    for row in of_part(rows, "launch"):
        line(f"{row['metric']:24}", f"{row['time_us']:8.3f} us")
    for row in of_part(rows, "overlap"):
        if row["blocks"] == 24:
            line(f"{row['kernel']:26}", f"beside 24 blocks {row['speed']:5}",
                 f"{row['slowdown']:.3f}x", f"hog {row['hog_GBps']:.0f} GB/s")
    ratios = sorted(r["event_us"] / r["cupti_us"] for r in of_part(rows, "cupti") if r["cupti_us"])
    if ratios:
        line("events/CUPTI", f"median {ratios[len(ratios) // 2]:.3f}",
             f"from {ratios[0]:.3f} to {ratios[-1]:.3f}")


def summarise(rows):
    counts = {}
    for row in rows:
        counts[row["part"]] = counts.get(row["part"], 0) + 1
    print("rows: " + ", ".join(f"{part} {n}" for part, n in counts.items()))
    for row in of_part(rows, "check"):
        if not row["ok"]:
            line("WRONG", row["what"], row["detail"], f"error {row['error']}")
    for section in (summarise_gemm, summarise_memory, summarise_rest):
        section(rows)


def main():
    parser = argparse.ArgumentParser(description="measured rows into a GPU file")
    parser.add_argument("measurements", help="measurements.jsonl of tests/gpu/run.sh")
    parser.add_argument("--into", metavar="FILE", help="a scenarios/gpus/NAME.json")
    parser.add_argument("--summary", action="store_true", help="print a short table only")
    parser.add_argument("--hog", choices=["paced", "full"], default="paced")
    parser.add_argument("--only-these", action="store_true", help="drop other sources' rows")
    parser.add_argument("--same-chip", action="store_true", help="products and attention only, "
                        "for a GPU that differs in its memory and host")
    parser.add_argument("--host", action="store_true", help="launch_us, too: of the host that was "
                        "measured, which others need not have")
    parser.add_argument("--force", action="store_true", help="whatever the device's name is")
    arguments = parser.parse_args()
    if bool(arguments.into) == arguments.summary:
        parser.error("say either --into FILE or --summary")
    try:
        rows = read_rows(arguments.measurements)
        if arguments.summary:
            summarise(rows)
            return 0
        check_name(arguments.into, device_of(rows), arguments.force or arguments.same_chip)
        gpu = read_gpu(arguments.into)
        if arguments.same_chip:
            rows = for_same_chip(gpu, rows)
        write_gpu(arguments.into, merge(gpu, rows, arguments))
    except Failure as failure:
        print(f"make_gpu_file.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
