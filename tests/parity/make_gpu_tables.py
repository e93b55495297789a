#!/usr/bin/env python3
"""Makes scenarios/gpus/*.json: data sheets (below, each with its source), measured
kernels (from ../shared/data/kernels) and the constants of the cost model fitted on them.

    python3 tests/parity/make_gpu_tables.py              writes scenarios/gpus/*.json
    python3 tests/parity/make_gpu_tables.py --check      fits and prints, writes nothing
    python3 tests/parity/make_gpu_tables.py --links      fits of the links (core/machine_links.c)
    python3 tests/parity/make_gpu_tables.py --unaligned  what the rows of Hopper's files say of
                                                         matmul_model.unaligned

Run by hand from the root of the repository when the data or a sheet changes; standard
library only.  Nothing in data/validation is read.

HOW IT FITS.  The matmul model is sim/cost_matmul.c's, restated in matmul_ns() below.
Its four constants (efficiency, tile_loss, wave_rounding, fill) are those that make
median + 0.3 * 90th percentile of |log(model / measured)| smallest over the GPU's rows:
a grid, then coordinate descent.  That is robust: half of the rows may be anything.
Rows of the largest matmuls weigh like all others.  GPUs without rows take the constants
of the nearest relative and say so in "provenance".
"""
import gzip
import json
import math
import os
import statistics
import sys

DATA = "../shared/data"
OUT = "scenarios/gpus"
FLAGS = ("--check", "--links", "--unaligned")
DTYPES = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp8": "fp8"}

# ---- data sheets -----------------------------------------------------------------------

V100_SHEET = "NVIDIA V100 data sheet (DS-8473, 2018), SXM2 column"
A100_SHEET = "NVIDIA A100 data sheet (2021), dense (the sheet's * values halved)"
A800_SOURCE = ("A800 is this chip with NVLink of 400 GB/s in place of 600 (NVIDIA, November 2022), "
               "which a cluster says: intra_node.GBps 200")
H800_SOURCE = ("H800 is this chip with NVLink of 400 GB/s in place of 900, which a cluster says "
               "(intra_node.GBps 200), and less FP64, which no training step has (arXiv "
               "2505.09343, section 4)")
H100_SHEET = "NVIDIA H100 data sheet, SXM column, dense (the sheet's values with sparsity halved)"
TORCH = "what PyTorch's out-of-memory messages print as total capacity on this GPU: "
PROPERTIES = "total_memory of PyTorch's device properties on this GPU: "
TRACE = "totalGlobalMem in a Kineto trace: "
GIB = 1 << 30


def gib(x):
    return round(x * GIB)


# The efficiency of fused attention: see ATTENTION below.
SHEETS = {
    "v100-16gb": dict(
        generation="volta", sms=80, memory_GB=16, memory_GBps=900, tdp_w=300, host_GBps=12,
        peak=dict(f32=15.7, f16=125), memory_bytes=gib(15.78),
        aliases=["V100-SXM2-16GB", "Tesla V100-SXM2-16GB"], sheet=V100_SHEET,
        memory_source=TORCH + "15.78 GiB",
        host_source="PCIe 3.0 x16: 15.75 GB/s, of which nvbandwidth-like copies reach about 12"),
    "v100-32gb": dict(
        generation="volta", sms=80, memory_GB=32, memory_GBps=900, tdp_w=300, host_GBps=12,
        peak=dict(f32=15.7, f16=125), memory_bytes=34079899648,
        aliases=["V100-SXM2-32GB", "Tesla V100-SXM2-32GB", "v100"], sheet=V100_SHEET,
        memory_source=TRACE + "data/traces/param-dlrm8",
        host_source="PCIe 3.0 x16: 15.75 GB/s, of which nvbandwidth-like copies reach about 12"),
    "a100-40gb": dict(
        generation="ampere", sms=108, memory_GB=40, memory_GBps=1555, tdp_w=400, host_GBps=26.3,
        peak=dict(f32=19.5, tf32=156, f16=312, bf16=312), memory_bytes=42297524224,
        aliases=["A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"], sheet=A100_SHEET,
        memory_source=TRACE + "data/traces/single/nccl_data_rank0of2_a100",
        host_source="membw-00005 (nvbandwidth host to device, A100-80GB)"),
    "a100-80gb": dict(
        generation="ampere", sms=108, memory_GB=80, memory_GBps=2039, tdp_w=400, host_GBps=26.3,
        peak=dict(f32=19.5, tf32=156, f16=312, bf16=312), memory_bytes=85174583296,
        aliases=["A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "a100", "a800", "a800-80gb",
                 "A800-SXM4-80GB", "NVIDIA A800-SXM4-80GB"], sheet=A100_SHEET,
        alias_source=A800_SOURCE,
        memory_source=TRACE + "data/traces/megatron-tp8",
        host_source="membw-00005 (nvbandwidth host to device)"),
    "a100-80gb-pcie": dict(
        generation="ampere", sms=108, memory_GB=80, memory_GBps=1935, tdp_w=300, host_GBps=26.3,
        peak=dict(f32=19.5, tf32=156, f16=312, bf16=312), memory_bytes=85174583296,
        aliases=["A100-PCIe-80GB", "A100-PCIE-80GB", "NVIDIA A100 80GB PCIe"], sheet=A100_SHEET,
        memory_source="as a100-80gb",
        host_source="as a100-80gb (the same PCIe 4.0 x16)"),
    "h100-80gb": dict(
        generation="hopper", sms=132, memory_GB=80, memory_GBps=3350, tdp_w=700, host_GBps=51,
        peak=dict(f32=66.9, tf32=494.7, f16=989.4, bf16=989.4, fp8=1978.9),
        memory_bytes=gib(79.19),
        aliases=["H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "h100", "h800", "h800-80gb",
                 "H800-SXM5-80GB", "NVIDIA H800", "H100-SXM", "H100-SXM5"],
        alias_source=H800_SOURCE, sheet=H100_SHEET, memory_source=TORCH + "79.18 to 79.19 GiB",
        host_source="membw-00013 (nvbandwidth host to device)"),
    "h100-96gb-hbm2e": dict(
        generation="hopper", sms=132, memory_GB=96, memory_GBps=2400, tdp_w=500, host_GBps=51,
        peak=dict(f32=66.9, tf32=494.7, f16=989.4, bf16=989.4, fp8=1978.9),
        memory_bytes=gib(94.99), aliases=["H100-96GB-HBM2e-500W"],
        sheet="torchtitan's benchmarks: an H100 of 96 GB HBM2e at 2.4 TB/s and 500 W; peaks as "
              "H100 SXM, which it holds at lower clocks (see efficiency)",
        memory_source="torchtitan's logs of this GPU: CUDA capacity 94.99 GiB",
        host_source="as h100-80gb (PCIe 5.0 x16)"),
    "h100-80gb-pcie": dict(
        generation="hopper", sms=114, memory_GB=80, memory_GBps=2039, tdp_w=350, host_GBps=51,
        peak=dict(f32=51.2, tf32=378, f16=756, bf16=756, fp8=1513), memory_bytes=gib(79.11),
        aliases=["H100-PCIe-80GB", "H100-PCIE-80GB", "NVIDIA H100 PCIe"],
        sheet="NVIDIA H100 data sheet, PCIe column, dense; sms: the driver's count",
        memory_source=PROPERTIES + "81008 MB", host_source="as h100-80gb (PCIe 5.0 x16)"),
    "h100-94gb-nvl": dict(
        generation="hopper", sms=132, memory_GB=94, memory_GBps=3938, tdp_w=400, host_GBps=51,
        peak=dict(f32=60, tf32=417.5, f16=835.5, bf16=835.5, fp8=1670.5),
        memory_bytes=gib(93.10), aliases=["H100-NVL", "NVIDIA H100 NVL"],
        sheet="NVIDIA H100 data sheet, NVL column (of one of the pair), dense",
        memory_source=TORCH + "93.10 to 93.11 GiB", host_source="as h100-80gb (PCIe 5.0 x16)"),
    "h200-141gb": dict(
        generation="hopper", sms=132, memory_GB=141, memory_GBps=4800, tdp_w=700, host_GBps=52,
        peak=dict(f32=66.9, tf32=494.7, f16=989.4, bf16=989.4, fp8=1978.9),
        memory_bytes=gib(139.80), aliases=["H200-SXM5-141GB", "NVIDIA H200", "h200", "H200-SXM"],
        sheet="NVIDIA H200 data sheet, SXM column, dense",
        memory_source=TORCH + "139.72 to 139.81 GiB",
        host_source="membw-00021 (nvbandwidth host to device)"),
    "gh200": dict(
        generation="hopper", sms=132, memory_GB=96, memory_GBps=4000, tdp_w=900, host_GBps=375,
        peak=dict(f32=66.9, tf32=494.7, f16=989.4, bf16=989.4, fp8=1978.9),
        memory_bytes=gib(94.50), aliases=["GH200-96GB", "NVIDIA GH200 480GB"],
        sheet="NVIDIA GH200 data sheet, 96 GB HBM3 variant, dense; tdp_w: the module's 1000 W "
              "less the Grace CPU",
        memory_source=TORCH + "94.50 GiB",
        host_source="NVLink-C2C: 450 GB/s each way, of which copies reach about 375"),
    "b200-180gb": dict(
        generation="blackwell", sms=148, memory_GB=180, memory_GBps=7672, tdp_w=1000,
        host_GBps=55, peak=dict(f32=75, tf32=1125, f16=2250, bf16=2250, fp8=4500),
        memory_bytes=gib(178.35), aliases=["B200-SXM", "NVIDIA B200", "b200"],
        sheet="NVIDIA DGX B200 data sheet / 8, dense; memory_GBps: 7680 bits at 3996 MHz, as the "
              "driver reports them (github.com/pytorch/ao/pull/4002; the sheet says 8 TB/s)",
        memory_source="total global memory of the same report: 178.35 GiB",
        host_source="PCIe 5.0 x16, a little above h100-80gb's 51"),
    "b300-270gb": dict(
        generation="blackwell", sms=148, memory_GB=270, memory_GBps=8000, tdp_w=1100,
        host_GBps=55, peak=dict(f32=75, tf32=1125, f16=2250, bf16=2250, fp8=4500),
        memory_bytes=gib(267.69), aliases=["B300-SXM", "NVIDIA B300", "NVIDIA B300 SXM6 AC", "b300"],
        sheet="NVIDIA HGX B300 data sheet / 8, dense; 288 GB fitted, 270 usable; sms: as "
              "b200-180gb", memory_source=TORCH + "267.69 GiB",
        host_source="as b200-180gb"),
    "gb200-186gb": dict(
        generation="blackwell", sms=152, memory_GB=186, memory_GBps=7928, tdp_w=1200,
        host_GBps=201, peak=dict(f32=80, tf32=1250, f16=2500, bf16=2500, fp8=5000),
        memory_bytes=gib(184.31), aliases=["GB200", "NVIDIA GB200"],
        sheet="NVIDIA GB200 NVL72 data sheet / 72, dense; sms: the driver's count; memory_GBps: "
              "7936 bits at 3996 MHz, as the driver reports them "
              "(github.com/pytorch/pytorch/pull/172523; the sheet says 8 TB/s)",
        memory_source=TORCH + "184.31 GiB",
        host_source="nvbandwidth host to device (github.com/Azure/AI-benchmarking-guide, "
                    "ND_GB200_v6_results.md); two GPUs share a Grace's NVLink-C2C of 450 GB/s "
                    "each way"),
    "gb300": dict(
        generation="blackwell", sms=152, memory_GB=279, memory_GBps=8000, tdp_w=1400,
        host_GBps=211, peak=dict(f32=80, tf32=1250, f16=2500, bf16=2500, fp8=5000),
        memory_bytes=gib(276.50), aliases=["GB300", "NVIDIA GB300"],
        sheet="NVIDIA GB300 NVL72 data sheet / 72, dense; 288 GB fitted, 279 usable "
              "(github.com/pytorch/pytorch/pull/196944); sms: as gb200-186gb",
        memory_source=TORCH + "276.50 GiB",
        host_source="nvbandwidth host to device (github.com/NVIDIA/Megatron-LM/issues/6491); "
                    "two GPUs share a Grace's NVLink-C2C of 450 GB/s each way"),
    "rtxpro6000": dict(
        generation="blackwell", sms=188, memory_GB=96, memory_GBps=1597, tdp_w=600, host_GBps=51,
        peak=dict(f32=120, tf32=251.9, f16=503.8, bf16=503.8, fp8=1007.6),
        memory_bytes=gib(94.97),
        aliases=["RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                 "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"],
        sheet="NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet, dense: 4 fp4 PFLOP/s with "
              "sparsity, of which bf16 is an eighth; memory_GBps: as there (the Workstation "
              "Edition has 1792)",
        memory_source=TORCH + "94.97 GiB", host_source="PCIe 5.0 x16, as h100-80gb"),
    "rtx5090": dict(
        generation="blackwell", sms=170, memory_GB=32, memory_GBps=1792, tdp_w=575, host_GBps=51,
        peak=dict(f32=104.8, tf32=104.8, f16=209.5, bf16=209.5, fp8=419),
        memory_bytes=gib(31.36), aliases=["RTX 5090", "NVIDIA GeForce RTX 5090"],
        sheet="NVIDIA RTX Blackwell architecture white paper, appendix A, sums in f32, dense",
        memory_source=TORCH + "31.34 to 31.39 GiB", host_source="PCIe 5.0 x16, as h100-80gb"),
    "l40s": dict(
        generation="ada", sms=142, memory_GB=48, memory_GBps=864, tdp_w=350, host_GBps=25,
        peak=dict(f32=91.6, tf32=183, f16=362, bf16=362, fp8=733), memory_bytes=gib(44.40),
        aliases=["L40S", "NVIDIA L40S"], sheet="NVIDIA L40S data sheet, dense",
        memory_source=TORCH + "44.39 to 44.42 GiB",
        host_source="PCIe 4.0 x16, as a100-80gb"),
    "rtx4090": dict(
        generation="ada", sms=128, memory_GB=24, memory_GBps=1008, tdp_w=450, host_GBps=25,
        peak=dict(f32=82.6, tf32=82.6, f16=165.2, bf16=165.2, fp8=330.3),
        memory_bytes=gib(23.65), aliases=["RTX 4090", "NVIDIA GeForce RTX 4090"],
        sheet="NVIDIA Ada architecture white paper, appendix A, sums in f32, dense",
        memory_source=TORCH + "23.65 GiB", host_source="PCIe 4.0 x16, as a100-80gb"),
    "rtx3090": dict(
        generation="ampere", sms=82, memory_GB=24, memory_GBps=936, tdp_w=350, host_GBps=25,
        peak=dict(f32=35.6, tf32=35.6, f16=71, bf16=71), memory_bytes=gib(23.69),
        aliases=["RTX 3090", "NVIDIA GeForce RTX 3090"],
        sheet="NVIDIA Ampere GA102 architecture white paper, appendix A, sums in f32, dense",
        memory_source=PROPERTIES + "24259 MB", host_source="PCIe 4.0 x16, as a100-80gb"),
    "rtxa6000": dict(
        generation="ampere", sms=84, memory_GB=48, memory_GBps=768, tdp_w=300, host_GBps=25,
        peak=dict(f32=38.7, tf32=77.4, f16=154.8, bf16=154.8), memory_bytes=gib(47.53),
        aliases=["RTX A6000", "NVIDIA RTX A6000"],
        sheet="NVIDIA Ampere GA102 architecture white paper, appendix C, dense",
        memory_source=PROPERTIES + "48676 MB", host_source="PCIe 4.0 x16, as a100-80gb"),
    "a10g": dict(
        generation="ampere", sms=80, memory_GB=24, memory_GBps=600, tdp_w=300, host_GBps=25,
        peak=dict(f32=35, tf32=35, f16=70, bf16=70), memory_bytes=gib(22.20),
        aliases=["A10G", "NVIDIA A10G"],
        sheet="NVIDIA A10G data sheet (the AWS part; tensor peaks are half of A10's), dense",
        memory_source=TORCH + "22.20 GiB", host_source="PCIe 4.0 x16, as a100-80gb"),
    "t4": dict(
        generation="turing", sms=40, memory_GB=16, memory_GBps=320, tdp_w=70, host_GBps=12,
        peak=dict(f32=8.1, f16=65), memory_bytes=gib(14.75), aliases=["T4", "Tesla T4"],
        sheet="NVIDIA T4 data sheet", memory_source=TORCH + "14.75 GiB",
        host_source="PCIe 3.0 x16, as v100-16gb"),
    "mi300x": dict(
        generation="cdna3", sms=304, memory_GB=192, memory_GBps=5300, tdp_w=750, host_GBps=50,
        peak=dict(f32=163.4, tf32=653.7, f16=1307.4, bf16=1307.4, fp8=2614.9),
        memory_bytes=gib(191.98), aliases=["MI300X", "AMD Instinct MI300X"],
        sheet="AMD Instinct MI300X data sheet, dense; sms: compute units",
        memory_source=TORCH + "191.98 GiB", host_source="PCIe 5.0 x16, as h100-80gb"),
    "mi325x": dict(
        generation="cdna3", sms=304, memory_GB=256, memory_GBps=6000, tdp_w=1000, host_GBps=50,
        peak=dict(f32=163.4, tf32=653.7, f16=1307.4, bf16=1307.4, fp8=2614.9),
        memory_bytes=gib(255.98), aliases=["MI325X", "AMD Instinct MI325X"],
        sheet="AMD Instinct MI325X data sheet, dense; sms: compute units",
        memory_source=TORCH + "255.98 GiB", host_source="PCIe 5.0 x16, as h100-80gb"),
}

# ---- the matmul model (sim/cost_matmul.c) -----------------------------------------------

TILES = [(256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128),
         (64, 64), (32, 128), (32, 64), (16, 128), (16, 64)]
EDGES = 1 / 256 + 1 / 128


def tilings(m, n, k, sms):
    """(tiles, split) of every tiling the model considers."""
    for tm, tn in TILES:
        count = -(-m // tm) * -(-n // tn)
        split = 1
        while split <= 8 and not (split > 1 and (k // split < 512 or count * split > 2 * sms)):
            yield tm, tn, count * split, split
            split *= 2


def matmul_ns(shape, gpu, c):
    m, n, k = shape
    efficiency, loss, rounding, fill = c
    sm_flops = gpu["peak_ns"] * efficiency / gpu["sms"]
    best = math.inf
    for tm, tn, count, split in tilings(m, n, k, gpu["sms"]):
        x = count / gpu["sms"]
        waves = 1 if x <= 1 else x + rounding * (math.ceil(x) - x)
        slower = (1 + loss * (1 / tm + 1 / tn)) / (1 + loss * EDGES)
        ns = waves * 2 * tm * tn * (k / split) / sm_flops * slower
        if split > 1:
            ns += 8 * m * n * split / gpu["bandwidth"]
        best = min(best, ns)
    moved = gpu["bytes"] * (m * k + k * n + m * n) / (gpu["bandwidth"] * gpu["memory_eff"])
    return fill * 1e3 + max(best, moved)


def errors(rows, gpu, c):
    return sorted(abs(math.log(matmul_ns(r[:3], gpu, c) / r[3])) for r in rows)


def badness(rows, gpu, c):
    e = errors(rows, gpu, c)
    return e[len(e) // 2] + 0.3 * e[int(0.9 * (len(e) - 1))]


FILL_MAX = 6  # us; longer would be longer than whole small kernels in Kineto traces


def fit_matmul(rows, gpu):
    """The constants (efficiency, tile_loss, wave_rounding, fill_us); see HOW IT FITS."""
    few = rows[::max(1, len(rows) // 120)]
    grid = ((e, l, r, f) for e in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9) for l in (0, 16, 32)
            for r in (0, 0.5, 1) for f in (1, 3, 6))
    best = min(grid, key=lambda c: badness(few, gpu, c))
    steps = [0.05, 8, 0.25, 1]
    while steps[0] > 0.004:
        for i in range(4):
            for d in (-steps[i], steps[i]):
                c = list(best)
                c[i] = round(min(max(c[i] + d, 0), (1, 64, 1, FILL_MAX)[i]), 4)
                if c[0] > 0.05 and badness(rows, gpu, c) < badness(rows, gpu, best) - 1e-9:
                    best = tuple(c)
        steps = [s / 2 for s in steps]
    return best


# Rows of 16-bit matrices that begin at odd multiples of 2 bytes: Hopper runs kernels of compute
# capability 8.0 then, whose loads are what takes the time.  So what they reach per clock and SM
# on H100 is taken for all that have such kernels, up to what their matrix units do.
UNALIGNED = 0.169                # --unaligned
PER_CLOCK = {"a100": 2048, "l40s": 1024, "rtx4090": 512, "a10g": 512, "rtx3090": 512,
             "rtxa6000": 1024, "rtx5090": 512, "rtxpro6000": 1024, "hopper": 4096,
             "blackwell": 8192}  # FLOP a clock and SM, dense, f32 sums
UNALIGNED_SOURCE = ("the sixteen rows of kernels.gemm of h100-80gb and h200-141gb whose rows are not "
                    "aligned (geometric mean of those at 2 bytes); tests/parity/make_gpu_tables.py "
                    "--unaligned",
                    "no row of its own: those kernels load by 2 bytes and reach 519 FLOP a clock "
                    "and SM on H100; tests/parity/make_gpu_tables.py")


def unaligned(name, generation, efficiency):
    """(fraction, source), or None where nothing is known or nothing lost."""
    per_clock = PER_CLOCK.get(name.split("-")[0], PER_CLOCK.get(generation))
    if not per_clock:
        return None
    if generation == "hopper":
        return UNALIGNED, UNALIGNED_SOURCE[0]
    part = UNALIGNED * PER_CLOCK["hopper"] * 0.75 / (per_clock * efficiency)
    return (round(part, 3), UNALIGNED_SOURCE[1]) if part < 1 else None


def print_unaligned():
    by_bytes = {}
    for name in ("h100-80gb", "h200-141gb"):
        with open(f"{OUT}/{name}.json") as f:
            g = json.load(f)
        gpu = dict(sms=g["sms"], peak_ns=g["peak_tflops"]["bf16"] * 1e3, bytes=2,
                   bandwidth=g["memory_GBps"], memory_eff=g["efficiency"]["memory"])
        model = g["matmul_model"]
        c = (g["efficiency"]["matmul"]["bf16"], model["tile_loss"], model["wave_rounding"],
             model["fill_us"])
        for t in g["kernels"]["gemm"]:
            for m, n, k, us in t["rows"]:
                both = 2 * (n | (m if t["layout"].startswith("NT") else k)) | 16
                if t["dtype"] in ("f16", "bf16") and both & -both < 16:
                    part = (matmul_ns((m, n, k), gpu, c) / 1e3 - c[3]) / (us - c[3])
                    by_bytes.setdefault(both & -both, []).append(part)
                    print(f"{name:11} {t['layout']:3} {m:6} {n:6} {k:6} {us:8} us: {part:.3f}")
    for size, parts in sorted(by_bytes.items()):
        print(f"{size} bytes: {statistics.geometric_mean(parts):.3f}")


# ---- measured rows ----------------------------------------------------------------------

def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(f"{DATA}/{path}", "rt") as f:
        return [json.loads(line) for line in f]


def usable_gemm(r):
    """Not: batched and grouped rows, envelopes ('best shape found'), all-zero inputs."""
    notes = r["notes"]
    return ("batch" not in r and not notes.startswith("GROUPED") and "best shape" not in notes
            and "zero/low-entropy" not in notes)


def layout_of(r):
    notes = r["notes"]
    if "layout=" in notes:
        layout = notes.split("layout=")[1][:2]
        return layout + "+" if layout == "NT" and "accumulate=True" in notes else layout
    if "A_trans=" in notes:  # DeepBench, in cuBLAS words; m and n swap: it is column-major
        return notes.split("A_trans=")[1][0] + notes.split("B_trans=")[1][0]
    return "TN" if "vidur" in r["source"] else "any"


def gemm_groups(rows, gpu):
    groups = {}
    for r in rows:
        if r["gpu"] == gpu and usable_gemm(r):
            key = (r["source"], DTYPES[r["dtype"]], layout_of(r))
            m, n = (r["n"], r["m"]) if "A_trans=" in r["notes"] else (r["m"], r["n"])
            groups.setdefault(key, []).append([m, n, r["k"], round(r["time_us"], 3)])
    return [{"source": s, "dtype": d, "layout": l, "columns": ["m", "n", "k", "time_us"],
             "rows": sorted(v)} for (s, d, l), v in sorted(groups.items())]


def attention_group(rows, gpu):
    """SimuMax's efficiencies back into times: its benchmark (test_fa_efficiency.py) counts a
    causal kernel as 2 b s^2 h (d_qk + d_v) forward and 2.5 times that backward.  Rows whose
    heads have d_qk != d_v (MLA) have no place in the table."""
    out = {}
    for r in rows:
        if r["gpu"] != gpu or not r["op"].startswith("attention") or \
           r["head_dim"] != r["v_head_dim"]:
            continue
        flops = 4 * r["batch"] * r["seq"] ** 2 * r["heads"] * r["head_dim"]
        if r["op"] == "attention_bwd":
            flops *= 2.5
        key = ("backward" if r["op"] == "attention_bwd" else "forward", r["batch"], r["seq"],
               r["heads"], r["kv_heads"], r["head_dim"], 1)
        out.setdefault(key, []).append(flops / r["tflops"] / 1e6)
        source = r["source"]
    if not out:
        return []
    return [{"source": source + ", bf16, TransformerEngine",
             "columns": ["op", "batch", "seq", "heads", "kv_heads", "head_dim", "causal",
                         "time_us"],
             "rows": [list(k) + [round(statistics.mean(v), 3)] for k, v in sorted(out.items())]}]


def memory_groups(rows, gpu):
    """vidur's 'add' alone (phi-2's are two adds in one, left out).  Its norm and activation
    are vLLM's of 2023 (35 and 48 % of the bandwidth), which no training stack runs.
    LLMCompass's PyTorch kernels hold about 50 us of host time in every measurement; what
    they say of large sizes is in sim/cost_memory.c."""
    out = {}
    for r in rows:
        if r["gpu"] == gpu and r["op"] == "add" and "phi-2" not in r["model"]:
            out.setdefault(r["min_bytes"], []).append(r["time_us"])
    if not out:
        return []
    return [{"source": "https://github.com/microsoft/vidur data/profiling/compute mlp.csv, add; "
                       "means of equal sizes", "op": "add", "columns": ["bytes", "time_us"],
             "rows": [[size, round(statistics.mean(v), 3)] for size, v in sorted(out.items())]}]


# ---- attention (sim/cost_attention.c) ---------------------------------------------------

BLOCK, NARROW, FULL, TAIL = 128, 40, 128, 1.5
SHORT = {"forward": 160, "backward": 256}


def attention_implied(row, gpu):
    """The efficiency with which the model gives the row's time."""
    op, batch, seq, heads, _, dim, causal, us = row
    flops = 4 * batch * seq * seq * heads * dim * (2.5 if op == "backward" else 1)
    keys = seq / 2 if causal else seq
    flops *= 0.5 if causal else 1
    x = batch * heads * -(-seq // BLOCK) / gpu["sms"]
    waves = max(x + TAIL, 2) if causal else max(x + 0.5 * (math.ceil(x) - x), 1)
    wide = min(1, dim / (dim + NARROW) * (FULL + NARROW) / FULL)
    ns = us * 1e3 - gpu["fill_us"] * 1e3
    return flops / gpu["peak_ns"] / ns * waves / x * (keys + SHORT[op]) / keys / wide


def fit_attention(group, gpu, op):
    rows = [r for r in group["rows"] if r[0] == op]
    implied = [attention_implied(r, gpu) for r in rows]
    e = statistics.median(implied)
    off = sorted(abs(x / e - 1) for x in implied)
    return round(min(e, 1), 3), off[len(off) // 2], off[int(0.9 * (len(off) - 1))]


# Where nobody measured in data/kernels.
PUBLISHED_ATTENTION = {
    "hopper": (0.61, 0.53, "FlashAttention-3 paper (arXiv 2407.08608), H100 SXM5, head_dim 128, "
                           "16k keys, cuDNN: 595 TFLOP/s forward, 539 causal, 516 backward "
                           "(FlashAttention-2 would be 0.38 and 0.33, FlashAttention-3 0.68 and "
                           "0.57)"),
}

# ---- constants that are not fitted ------------------------------------------------------

# Fraction of the data sheet's bandwidth that a stream of three operands reaches.
STREAM = {
    "v100-16gb": (814 / 900, "membw-00051 (gpu-benches triad 814 GB/s)"),
    "a100-40gb": (1360 / 1555, "membw-00033 (gpu-benches triad 1360 GB/s)"),
    "a100-80gb": (1700 / 2039, "membw-00002 (BabelStream add 1700 GB/s)"),
    "h100-80gb": (2970 / 3350, "membw-00010 (BabelStream add 2970 GB/s)"),
    "h200-141gb": (4150 / 4800, "membw-00018 (BabelStream add 4150 GB/s)"),
    "h100-80gb-pcie": (1832 / 2039, "membw-00039 (gpu-benches triad 1832 GB/s)"),
    "a40": (653 / 696, "membw-00057 (gpu-benches triad 653 GB/s on A40, memory of the same kind)"),
    "l40s": (768 / 864, "membw-00063 (gpu-benches triad 768 GB/s on L40, the same memory)"),
}
STREAM_LIKE = {"v100-32gb": "v100-16gb", "a100-80gb-pcie": "a100-80gb",
               "h100-96gb-hbm2e": "h100-80gb", "gh200": "h200-141gb", "b200-180gb": "h200-141gb",
               "gb200-186gb": "h200-141gb", "gb300": "h200-141gb", "rtx4090": "l40s",
               "a10g": "a100-80gb", "t4": "v100-16gb", "mi300x": "h200-141gb",
               "h100-94gb-nvl": "h100-80gb", "b300-270gb": "h200-141gb", "rtxpro6000": "l40s",
               "rtx5090": "l40s", "rtx3090": "a40", "rtxa6000": "a40", "mi325x": "h200-141gb"}

# SMs that a running collective takes: NCCL's channels.
COMM_SMS = {
    "volta": (12, "NCCL: 6 rings of a DGX-1, each twice"),
    "turing": (4, "NCCL: 2 PCIe rings, each twice"),
    "ampere": (24, "NCCL: '24 coll channels' on 8 GPUs with NVSwitch"),
    "ada": (4, "NCCL: 2 PCIe rings, each twice"),
    "hopper": (24, "NCCL: '24 coll channels' on 8 GPUs with NVSwitch; NVLS takes 16"),
    "blackwell": (24, "as hopper; no measurement"),
    "cdna3": (32, "RCCL uses more channels than NCCL; no measurement"),
}
# What matmuls take beside a collective, of what they would on the SMs that it leaves.
COMM_MATMUL = {
    "hopper": (1.17, "as h100-80gb: tests/gpu/run.sh on an H100, 2026-11-27, median of six products "
                     "beside 24 blocks that copy"),
}
COMM_SMS_PCIE = ("a100-80gb-pcie", "a10g", "h100-80gb-pcie", "h100-94gb-nvl", "rtxpro6000",
                 "rtx5090", "rtx3090", "rtxa6000")  # as cards of other generations without NVLink

LAUNCH_US, FLOOR_US = 4.0, 2.0
LAUNCH_SOURCE = ("cudaLaunchKernel in Kineto traces: 3.8 to 4 us at the 10th percentile on V100 "
                 "(data/traces/param-dlrm8, single/ns_resolution), 5.5 on A100 (nccl_data); "
                 "medians of 5 to 10 us hold the profiler's own time")
FLOOR_SOURCE = ("shortest tenth of the kernels in the same traces: 1.8 us on V100, 2.1 us on A100")

# GeForce cards add up in f32 at half the rate of their matrix units, which they keep up.
GEFORCE, GEFORCE_WHY = 1.259, ("scaled to all of the peak: 8192^3 in f16 at 81.3 TFLOP/s on an RTX "
                               "3090 Ti, whose sheet says 80, in tf32 at 42.1 of 40; data/kernels, "
                               "mli/transformers-benchmarks")

# Whose matmul rows and constants stand in.  rows: may the relative's compute-bound rows be
# carried?  scale: of the efficiency.
RELATIVES = {
    "v100-32gb": ("v100-16gb", True, 1, "the same chip"),
    "a100-40gb": ("a100-80gb", True, 1, "the same chip; its compute-bound rows"),
    "h200-141gb": ("h100-80gb", True, 1, "the same chip; its compute-bound rows"),
    "gh200": ("h100-80gb", True, 1, "the same chip; its compute-bound rows"),
    "h100-96gb-hbm2e": ("h100-80gb", False, 0.9, "500 W instead of 700 W: clocks fall by about "
                        "(5/7)^(1/3), inferred"),
    "gb200-186gb": ("b200-180gb", False, 0.94, "scaled by what the best shapes reach: 1822 of "
                    "2500 against 1745 of 2250 TFLOP/s (ml-engineering, MAMF)"),
    "gb300": ("b200-180gb", False, 0.91, "scaled by what the best shapes reach on B300: 1769 of "
              "2500 against 1745 of 2250 TFLOP/s (ml-engineering, MAMF)"),
    "h100-80gb-pcie": ("h100-80gb", False, 1, "no measurement; the same chip, whose peak is given "
                       "at lower clocks"),
    "h100-94gb-nvl": ("h100-80gb", False, 1, "no measurement; the same chip, whose peak is given "
                      "at lower clocks"),
    "b300-270gb": ("b200-180gb", False, 1.014, "scaled by what the best shapes reach: 1769 against "
                   "1745 of 2250 TFLOP/s (ml-engineering, MAMF)"),
    "rtxpro6000": ("a100-80gb", False, 1, "no measurement; matrix instructions as Ampere's"),
    "rtx5090": ("a100-80gb", False, GEFORCE, GEFORCE_WHY),
    "rtx3090": ("a100-80gb", False, GEFORCE, GEFORCE_WHY),
    "rtxa6000": ("a100-80gb", False, 1, "no measurement; the same generation"),
    "l40s": ("a100-80gb", False, 1, "no measurement; Ada's matrix units are Ampere's"),
    "rtx4090": ("a100-80gb", False, GEFORCE, GEFORCE_WHY),
    "a10g": ("a100-80gb", False, 1, "no measurement; the same generation"),
    "t4": ("v100-16gb", False, 1, "no measurement; the generation before"),
    "mi300x": ("h100-80gb", False, 0.64, "scaled by what the best shapes reach: 668 of 1307 "
               "against 794 of 989 TFLOP/s (ml-engineering, MAMF)"),
    "mi325x": ("h100-80gb", False, 0.64, "as mi300x, the same chip"),
}
# fp8 against bf16: what the best shapes reach of the peak (ml-engineering, MAMF).
FP8_SCALE = (0.709 / 0.803, "1402.6 of 1978.9 against 794.5 of 989.4 TFLOP/s on H100")


# ---- one file ---------------------------------------------------------------------------

def gpu_of(name):
    s = SHEETS[name]
    stream = STREAM[name] if name in STREAM else STREAM[STREAM_LIKE[name]]
    return {"peak_ns": s["peak"]["f16"] * 1e3, "sms": s["sms"], "bytes": 2,
            "bandwidth": s["memory_GBps"], "memory_eff": round(stream[0], 3)}


def fit_rows(groups, dtypes):
    return [(m, n, k, us * 1e3) for g in groups if g["dtype"] in dtypes
            for m, n, k, us in g["rows"]]


def compute_bound(groups, name):
    """Rows that another memory would not change: twice as long as their operands take."""
    gpu = gpu_of(name)
    out = []
    for g in groups:
        rows = [r for r in g["rows"]
                if r[3] * 1e3 > 2 * 2 * (r[0] * r[2] + r[2] * r[1] + r[0] * r[1])
                / gpu["bandwidth"]]
        if rows:
            out.append(dict(g, rows=rows))
    return out


def report(name, what, rows, gpu, c):
    e = [abs(matmul_ns(r[:3], gpu, c) / r[3] - 1) for r in rows]
    e.sort()
    print(f"{name:16} {what:4} {len(rows):5} rows  efficiency {c[0]:.3f} tile_loss {c[1]:4.1f} "
          f"wave_rounding {c[2]:.2f} fill {c[3]:.1f} us: error median {100 * e[len(e) // 2]:.1f} % "
          f"p90 {100 * e[int(0.9 * (len(e) - 1))]:.1f} %")


def fit_all(gemm):
    """{name: {"half": constants, "f32": efficiency or None, "groups": [...]}}"""
    fits = {}
    for name in SHEETS:
        groups = gemm_groups(gemm, name)
        half = fit_rows(groups, ("f16", "bf16"))
        if not half:
            continue
        gpu = gpu_of(name)
        c = fit_matmul(half, gpu)
        report(name, "half", half, gpu, c)
        fits[name] = {"half": c, "f32": None, "groups": groups}
        full = fit_rows(groups, ("f32",))
        if full:
            gpu = dict(gpu, peak_ns=SHEETS[name]["peak"]["f32"] * 1e3, bytes=4)
            e = min((x / 100 for x in range(40, 101)),
                    key=lambda x: badness(full, gpu, (x,) + tuple(c[1:])))
            report(name, "f32", full, gpu, (e,) + tuple(c[1:]))
            fits[name]["f32"] = e
    return fits


def matmul_efficiency(name, c, scale, fits):
    e = {}
    for dtype in SHEETS[name]["peak"]:
        x = c[0] * scale
        if dtype == "f32":
            x = fits["v100-16gb"]["f32"]
        elif dtype == "fp8":
            x *= FP8_SCALE[0]
        e[dtype] = round(x, 3)
    return e


def gpu_file(name, fits, memory):
    s = SHEETS[name]
    relative, carry, scale, why = RELATIVES.get(name, (name, True, 1, None))
    fit = fits[relative]
    c = fit["half"]
    fitted = f"fitted on {sum(len(g['rows']) for g in fit['groups'])} rows of kernels.gemm"
    groups = fit["groups"] if carry else []
    if carry and relative != name and SHEETS[relative]["memory_GBps"] != s["memory_GBps"]:
        groups = compute_bound(groups, relative)
    like = STREAM_LIKE.get(name)
    stream = STREAM[like or name]
    sms, sms_source = COMM_SMS["ada" if name in COMM_SMS_PCIE else s["generation"]]
    slowed, slowed_source = COMM_MATMUL.get(s["generation"], (1, None))
    attention, attention_bwd, attention_source = attention_of(name, memory, c[3])
    efficiency = matmul_efficiency(name, c, scale, fits)
    odd = unaligned(name, s["generation"], efficiency["f16"])
    kernels = {}
    if groups:
        kernels["gemm"] = groups
    for key, g in (("memory", memory_groups(memory, name)),
                   ("attention", attention_group(memory, name))):
        if g:
            kernels[key] = g
    return {
        "name": name,
        "generation": s["generation"],
        "aliases": s["aliases"],
        "peak_tflops": s["peak"],
        "memory_GB": s["memory_GB"],
        "memory_bytes": s["memory_bytes"],
        "memory_GBps": s["memory_GBps"],
        "host_GBps": s["host_GBps"],
        "sms": s["sms"],
        "tdp_w": s["tdp_w"],
        "launch_us": LAUNCH_US,
        "kernel_floor_us": FLOOR_US,
        "matmul_model": {"fill_us": c[3], "tile_loss": c[1], "wave_rounding": c[2],
                         **({"unaligned": odd[0]} if odd else {})},
        "efficiency": {"matmul": efficiency,
                       "attention": attention, "attention_bwd": attention_bwd,
                       "memory": round(stream[0], 3)},
        "overlap": {"comm_sms": sms, "comm_memory_factor": 2.5,
                    **({"comm_matmul_factor": slowed} if slowed_source else {})},
        "kernels": kernels,
        "provenance": {
            "data sheet (peak_tflops, memory_GB, memory_GBps, sms, tdp_w)": s["sheet"],
            **({"aliases": s["alias_source"]} if "alias_source" in s else {}),
            "memory_bytes": s["memory_source"],
            "host_GBps": s["host_source"],
            "launch_us": LAUNCH_SOURCE,
            "kernel_floor_us": FLOOR_SOURCE,
            "matmul_model, efficiency.matmul":
                (f"of {relative} ({why}), {fitted}" if why else fitted) +
                " by tests/parity/make_gpu_tables.py" +
                ("; f32 " + ("fitted on its own rows" if fit["f32"] else "as v100-16gb")) +
                ("; fp8: bf16 times " + f"{FP8_SCALE[0]:.2f} ({FP8_SCALE[1]})"
                 if "fp8" in s["peak"] else ""),
            **({"matmul_model.unaligned": odd[1]} if odd else {}),
            "efficiency.attention": attention_source,
            "efficiency.memory": ("as " + like + ": " if like else "") + stream[1],
            "overlap.comm_sms": sms_source,
            **({"overlap.comm_matmul_factor": slowed_source} if slowed_source else {}),
            "overlap.comm_memory_factor": "2 bytes moved per byte sent where data are only "
                                          "copied, 3 where they are added",
        },
    }


def attention_of(name, memory, fill_us):
    gpu = dict(gpu_of(name), fill_us=fill_us)
    groups = attention_group(memory, name)
    if groups:
        forward = fit_attention(groups[0], gpu, "forward")
        backward = fit_attention(groups[0], gpu, "backward")
        print(f"{name:16} attention {forward[0]} (error median {100 * forward[1]:.0f} % p90 "
              f"{100 * forward[2]:.0f} %), backward {backward[0]} ({100 * backward[1]:.0f} %, "
              f"{100 * backward[2]:.0f} %)")
        return forward[0], backward[0], "fitted on kernels.attention (FlashAttention, causal)"
    if SHEETS[name]["generation"] in PUBLISHED_ATTENTION:
        return PUBLISHED_ATTENTION[SHEETS[name]["generation"]]
    other = "b200-180gb" if SHEETS[name]["generation"] == "blackwell" and name not in COMM_SMS_PCIE \
        else "a100-80gb-pcie"
    group = attention_group(memory, other)[0]
    gpu = dict(gpu_of(other), fill_us=fill_us)
    return (fit_attention(group, gpu, "forward")[0], fit_attention(group, gpu, "backward")[0],
            f"as {other}, whose fused kernels these GPUs run or come nearest to")


IDEAL = {
    "name": "ideal",
    "generation": "other",
    "peak_tflops": {t: 1000 for t in ("f32", "tf32", "f16", "bf16", "fp8")},
    "memory_GB": 1000,
    "memory_GBps": 1000,
    "host_GBps": 1000,
    "sms": 0,
    "tdp_w": 0,
    "launch_us": 0,
    "kernel_floor_us": 0,
    "matmul_model": {"fill_us": 0, "tile_loss": 0, "wave_rounding": 0},
    "efficiency": {"matmul": 1, "attention": 1, "attention_bwd": 1, "memory": 1},
    "overlap": {"comm_sms": 0, "comm_memory_factor": 0},
    "provenance": {"all": "round numbers, so that closed forms are exact: a kernel takes "
                          "max(flops / 10^15, bytes / 10^12) s, nothing else"},
}


def write_rows(f, rows, indent):
    line = indent
    for i, row in enumerate(rows):
        text = json.dumps(row) + ("," if i + 1 < len(rows) else "")
        if len(line) > len(indent) and len(line) + len(text) + 1 > 100:
            f.write(line.rstrip() + "\n")
            line = indent
        line += text + " "
    f.write(line.rstrip() + "\n")


def write_kernels(f, kernels):
    f.write('  "kernels": {\n')
    for t, (table, groups) in enumerate(kernels.items()):
        f.write(f'    "{table}": [\n')
        for i, g in enumerate(groups):
            head = {k: v for k, v in g.items() if k != "rows"}
            f.write("      {" + json.dumps(head)[1:-1] + ',\n       "rows": [\n')
            write_rows(f, g["rows"], "        ")
            f.write("       ]}" + ("," if i + 1 < len(groups) else "") + "\n")
        f.write("    ]" + ("," if t + 1 < len(kernels) else "") + "\n")
    f.write("  },\n")


def keep_sustained(path, gpu):
    """What tests/parity/fit_software.py found stays, with its source."""
    if not os.path.exists(path):
        return gpu
    with open(path, encoding="utf-8") as f:
        old = json.load(f)
    if "sustained_scale" not in old:
        return gpu

    def with_scale(x, of):
        pairs = [(k, v) for k, v in x.items()]
        at = 1 + [k for k, _ in pairs].index("kernel_floor_us")
        kept = [(k, of[k]) for k in ("sustained_scale", "sustained_spread", "sustained_from") if k in of]
        return dict(pairs[:at] + kept + pairs[at:])

    kept = with_scale(gpu, old)
    kept["provenance"] = with_scale(gpu["provenance"], old["provenance"])
    return kept


def write_file(path, gpu):
    with open(path, "w") as f:
        f.write("{\n")
        last = list(gpu)[-1]
        for key, value in gpu.items():
            if key == "kernels":
                if value:
                    write_kernels(f, value)
                continue
            if key == "provenance":
                f.write('  "provenance": {\n')
                items = [f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
                f.write(",\n".join(items) + "\n  }\n")
                continue
            f.write(f"  {json.dumps(key)}: {json.dumps(value)}" +
                    ("," if key != last else "") + "\n")
        f.write("}\n")


# ---- links (core/machine_links.c, sim/network.c) ----------------------------------------

LINK_PEAK = {"v100-16gb": 150, "a100-40gb": 300, "a100-80gb": 300, "h100-80gb": 450,
             "h200-141gb": 450}
# The defaults of core/machine_links.c, in us and fractions.
BASE = {"a100-80gb": (6.6, 40, 40), "h100-80gb": (6.6, 14, 25), "h200-141gb": (6.6, 14, 25)}
BASE_NCCL, BASE_TREE = (6.6, 14, 8.4), (6.8, 14, 8.4)
HOP, TREE_HOP, NET, TREE_NET = (.6, 1.9, 3.4), (.6, 1.25, 4), (6, 8.5, 6), (5, 8.5, 14)
CURVES = {"v100-16gb": [(2, .150), (3, .301), (4, .569), (5, .248), (6, .305), (7, .580),
                        (8, .897)],
          "a100-80gb": [(2, .657), (3, .706), (4, .740), (5, .748), (6, .757), (7, .757),
                        (8, .765)],
          "h100-80gb": [(2, .69), (4, .755), (8, .793), (16, .73)]}
CURVES["h200-141gb"] = CURVES["h100-80gb"]
CURVES["a100-40gb"] = CURVES["a100-80gb"]
NVLS_US, NVLS_CURVE, INTER_EFFICIENCY = 75, [(4, .543), (8, .612)], .975
NVLS_TREE_US, NVLS_LEVEL_US, JUDGED_PART = 25, 20.9, .85 * 15 / 16
# NCCL's treeCorrectionFactor, from 64 bytes on.
TREE_CORRECTION = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9))


def curve_at(curve, n):
    for (a, x), (b, y) in zip(curve, curve[1:]):
        if n <= b:
            return x + (y - x) * max(n - a, 0) / (b - a)
    return curve[-1][1]


def traffic_and_steps(op, n):
    if op == "all_reduce":
        return 2 * (n - 1) / n, 2
    return (n - 1) / n, 1


def tree_part(protocol, gpu, here, size):
    """What a tree of that size reaches of its bandwidth."""
    of = TREE_CORRECTION[protocol]
    at = size.bit_length() - 7
    simple = here > 1 and gpu[:4] in ("h100", "h200")
    return (of[at] if 0 <= at < len(of) else 1) * (.85 if simple else 1)


def predict_us(r, nic):
    """What sim/network.c says of one row: the cheapest of ring, tree, NVLS and NVLSTree."""
    n, nodes, size, gpu = r["ranks"], r["nodes"], r["size_bytes"], r["gpu"]
    here, factor = n // nodes, (2, 1 / 0.92, 1)
    rate = LINK_PEAK[gpu] * curve_at(CURVES[gpu], n) if here > 1 else math.inf
    if nodes > 1:
        rate = min(rate, nic * INTER_EFFICIENCY * here)
    part, rounds = traffic_and_steps(r["op"], n)
    inter = rounds * (nodes - 1)
    best, large_ring = math.inf, False
    for p in range(3):
        latency = BASE.get(gpu, BASE_NCCL)[p] + (rounds * (n - 1) - inter) * HOP[p] + \
            inter * NET[p]
        us = latency + part * size * factor[p] / rate / 1e3
        best, large_ring = min((best, large_ring), (us, p == 2))
        if r["op"] == "all_reduce" and nodes > 1:
            latency = BASE_TREE[p] + 2 * ((here - 1) * TREE_HOP[p] +
                                          math.ceil(math.log2(nodes)) * TREE_NET[p])
            slower = (3.8, 128 / 120, 1)[p] / 0.92 / tree_part(p, gpu, here, size)
            us = latency + 2 * size * slower / rate / 1e3
            best, large_ring = min((best, large_ring), (us, False))
    if r["op"] != "all_reduce" or here < 3 or gpu[:4] not in ("h100", "h200"):
        return best
    switch_us = size / (LINK_PEAK[gpu] * curve_at(NVLS_CURVE, here)) / 1e3
    if nodes == 1:
        return min(best, NVLS_US + switch_us)
    copies = 2 if nodes > 2 else 1
    us = max(switch_us, copies * size / (nic * INTER_EFFICIENCY * here) / 1e3)
    levels = 2 * math.ceil(math.log2(nodes))
    latency = NVLS_TREE_US + levels * NVLS_LEVEL_US
    each, chunk = 16 * here, 65536 if nodes >= 4 else 131072
    chunk = 65536 if size < 4 * each * chunk else chunk
    chunk = 32768 if size < each * chunk else chunk
    passing = levels * min(each * chunk, size) / size * us
    ring = 1.4 * (8.4 + 3.4 * (2 * (n - 1) - inter) + 14 * inter) + part * size / rate / 1e3
    prefers_ring = large_ring and latency + us / JUDGED_PART >= ring
    return best if prefers_ring else min(best, latency + passing + us)


def links():
    rows = [r for r in read("collectives/nccl.jsonl.gz")
            if r["op"] in ("all_reduce", "all_gather", "reduce_scatter")
            and "pairs" not in r["interconnect"]]
    print("bus bandwidth of the largest messages over the data sheet's, inside a node:")
    large = {}
    for r in rows:
        if r["nodes"] == 1 and r["size_bytes"] >= 512e6:
            key = (r["machine"], r["op"], r["ranks"])
            large.setdefault(key, []).append(r["busbw_GBps"] / LINK_PEAK[r["gpu"]])
    for (machine, op, ranks), v in sorted(large.items()):
        print(f"  {machine:38} {op:14} {ranks:2} GPUs  {statistics.median(v):.3f}  "
              f"({len(v)} rows)")
    print("predicted over measured, by machine, nodes and size (Slingshot and vidur's Ethernet "
          "are not what inter_efficiency stands for):")
    by = {}
    for r in rows:
        size = r["size_bytes"]
        band = "below 1 MB" if size < 1e6 else "1 to 32 MB" if size < 32e6 else \
            "32 to 512 MB" if size < 512e6 else "above"
        nic = 25 / 2 if "argonne" in r["machine"] else 50
        ratio = predict_us(r, nic) / r["time_us"]
        by.setdefault((r["machine"], r["nodes"], band), []).append(ratio)
    for (machine, nodes, band), v in sorted(by.items()):
        off = sorted(abs(x - 1) for x in v)
        print(f"  {machine:38} {nodes:3} nodes  {band:12} {len(v):4} rows  median "
              f"{statistics.median(v):.2f}  error median {100 * off[len(off) // 2]:.0f} % p90 "
              f"{100 * off[int(0.9 * (len(off) - 1))]:.0f} %")


def main():
    flags = sys.argv[1:]
    if len(flags) > 1 or (flags and flags[0] not in FLAGS):
        sys.exit(f"make_gpu_tables.py: {' '.join(flags)}: no flag, or one of {', '.join(FLAGS)}")
    if "--links" in flags:
        links()
        return
    if "--unaligned" in flags:
        print_unaligned()
        return
    gemm = read("kernels/gemm.jsonl.gz")
    memory = read("kernels/memory-bound-ops.jsonl.gz")
    fits = fit_all(gemm)
    for name in SHEETS:
        gpu = gpu_file(name, fits, memory)
        if "--check" not in flags:
            path = f"{OUT}/{name}.json"
            write_file(path, keep_sustained(path, gpu))
    if "--check" not in flags:
        write_file(f"{OUT}/ideal.json", IDEAL)


if __name__ == "__main__":
    main()
