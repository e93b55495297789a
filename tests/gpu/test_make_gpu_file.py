#!/usr/bin/env python3
# test_make_gpu_file.py - make_gpu_file.py on rows made up here; run by hand, needs no GPU.
#
#     python3 tests/gpu/test_make_gpu_file.py

import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_gpu_file.py")

DEVICE = {"part": "device", "name": "NVIDIA H100 80GB HBM3", "date": "2000-01-02",
          "compute_capability": 90,
          "driver_version": 13000, "cublaslt_version": 130002}


def gemm(m, n, k, time_us, layout="TN", **more):
    row = {"part": "gemm", "use": "fwd", "m": m, "n": n, "k": k, "dtype": "bf16",
           "layout": layout, "accumulate": False, "time_us": time_us, "best_us": time_us,
           "clock_mhz": 1755.0, "host_bound": False, "tflops": 2.0 * m * n * k / time_us * 1e-6}
    return {**row, **more}


def memory(op, size, time_us, cache="cold"):
    return {"part": "memory", "op": op, "bytes": size, "time_us": time_us, "cache": cache,
            "GBps": size / time_us * 1e-3, "host_bound": False}


def attention(op, time_us, backend="flash"):
    return {"part": "attention", "op": op, "batch": 1, "seq": 8192, "heads": 32, "kv_heads": 8,
            "head_dim": 128, "causal": True, "backend": backend, "time_us": time_us}


def overlap(blocks, slowdown, speed):
    return {"part": "overlap", "kernel": "add", "blocks": blocks, "speed": speed,
            "slowdown": slowdown, "hog_GBps": 10.0}


ROWS = [
    DEVICE,
    gemm(512, 768, 256, 10.0),
    gemm(512, 768, 256, 20.0, layout="NN"),
    gemm(512, 768, 256, 999.0, layout="NT", accumulate=True),
    gemm(128, 128, 128, 999.0, host_bound=True),
    gemm(256, 256, 256, 3.14159265),
    memory("add", 1000000, 2.5),
    memory("add", 1000000, 0.5, cache="warm"),
    memory("layernorm_fwd", 4000000, 4.0),
    memory("layernorm_fwd", 4100000, 2.05),
    memory("rmsnorm_fwd", 4200000, 2.1),
    memory("rmsnorm_fwd", 64000000, 32.0),
    attention("attention_fwd", 1000.0),
    attention("attention_fwd", 500.0, backend="cudnn"),
    overlap(0, 1, "none"),
    overlap(24, 1.25, "paced"),
    overlap(24, 1.75, "full"),
    {"part": "launch", "metric": "launch_host", "time_us": 2.123456},
    {"part": "copy", "direction": "h2d", "host": "pinned", "GBps": 53.219},
    {"part": "copy", "direction": "h2d", "host": "pageable", "GBps": 99.0},
    {"part": "cupti", "event_us": 11.0, "cupti_us": 10.0},
]


SHEET = {"name": "h100-80gb", "peak_tflops": {"bf16": 989}, "launch_us": 9, "notes": "a note",
         "kernels": {"gemm": [{"source": "somebody", "dtype": "f16",
                               "columns": ["m", "n", "k", "time_us"], "rows": [[1, 2, 3, 4]]}]},
         "provenance": {"peaks": "x"}}


class MakeGpuFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rows = self.path("measurements.jsonl")
        self.gpu = self.path("h100-80gb.json")
        self.write(ROWS)
        with open(self.gpu, "w", encoding="utf-8") as file:
            json.dump(SHEET, file)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, rows, tail=""):
        with open(self.rows, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(r) + "\n" for r in rows) + tail)

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, self.rows, *arguments], check=False,
                              capture_output=True, text=True)

    def make(self, *arguments):
        done = self.run_script("--into", self.gpu, *arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        with open(self.gpu, encoding="utf-8") as file:
            return json.load(file)

    def table(self, gpu, name, key, word):
        found = [g for g in gpu["kernels"][name]
                 if g["source"].startswith("tests/gpu/run.sh") and g.get(key) == word]
        self.assertEqual(1, len(found))
        return found[0]

    def test_products_are_grouped_by_layout_and_untrusted_rows_left_out(self):
        gpu = self.make()
        forward = self.table(gpu, "gemm", "layout", "TN")
        self.assertEqual("bf16", forward["dtype"])
        self.assertEqual(["m", "n", "k", "time_us"], forward["columns"])
        self.assertEqual([[256, 256, 256, 3.142], [512, 768, 256, 10]], forward["rows"])
        self.assertEqual([[512, 768, 256, 20]], self.table(gpu, "gemm", "layout", "NN")["rows"])
        self.assertEqual([[512, 768, 256, 999]], self.table(gpu, "gemm", "layout", "NT+")["rows"])

    def test_fp8_is_told_apart_by_what_it_is_for(self):
        def fp8(time_us, use, promoted, **more):
            return gemm(256, 256, 256, time_us, dtype="fp8", use=use, promoted=promoted, **more)
        self.write([DEVICE, fp8(1, "fwd", False), fp8(2, "dgrad", True), fp8(3, "wgrad", True),
                    fp8(4, "wgrad", True, accumulate=True), fp8(9, "dgrad", False)])
        gpu = self.make()
        for layout, time_us in (("TN", 1), ("NN", 2), ("NT", 3), ("NT+", 4)):
            self.assertEqual([[256, 256, 256, time_us]],
                             self.table(gpu, "gemm", "layout", layout)["rows"])

    def test_what_a_later_run_has_not_measured_stays(self):
        self.make()
        self.write([dict(DEVICE, date="2000-01-03"), gemm(256, 256, 256, 1, dtype="fp8")])
        gpu = self.make()
        ours = [(g["dtype"], g["layout"]) for g in gpu["kernels"]["gemm"]
                if g["source"].startswith("tests/gpu/run.sh")]
        self.assertEqual([("bf16", "NN"), ("bf16", "NT+"), ("bf16", "TN"), ("fp8", "TN")], ours)
        self.assertIn("2000-01-02", gpu["provenance"]["kernels of tests/gpu/run.sh"])
        self.assertIn("2000-01-03", gpu["provenance"]["kernels of tests/gpu/run.sh"])

    def test_memory_rows_are_cold_one_for_a_size(self):
        gpu = self.make()
        self.assertEqual([[1000000, 2.5]], self.table(gpu, "memory", "op", "add")["rows"])
        # The middle one of 1000, 2000 and 2000 bytes a microsecond, at the middle size.
        self.assertEqual([[4100000, 2.05], [64000000, 32]],
                         self.table(gpu, "memory", "op", "norm")["rows"])

    def test_memory_rows_never_take_longer_than_those_of_more_bytes(self):
        self.write([DEVICE, memory("add", 1000, 9.0), memory("add", 4000, 3.0),
                    memory("add", 16000, 3.0), memory("add", 64000, 8.0)])
        self.assertEqual([[4000, 3], [16000, 3], [64000, 8]],
                         self.table(self.make(), "memory", "op", "add")["rows"])

    def test_attention_is_of_the_newest_kernel_and_of_flash2_apart(self):
        where = [1, 8192, 32, 8, 128, 1]
        gpu = self.make()
        self.assertEqual([[*where, 500]], self.table(gpu, "attention", "kernel", "newest")["rows"])
        self.assertEqual([[*where, 1000]], self.table(gpu, "attention", "kernel", "flash2")["rows"])

    def test_before_hopper_flash2_is_the_newest(self):
        self.write([dict(DEVICE, compute_capability=80)] + ROWS[1:])
        groups = self.make()["kernels"]["attention"]
        self.assertEqual([("newest", 1000)], [(g["kernel"], g["rows"][0][-1]) for g in groups])

    def test_overlap_is_a_note_of_the_chosen_hog(self):
        paced = self.make()["notes"]
        self.assertEqual("a note", paced["file"])
        self.assertEqual([["add", 0, 1], ["add", 24, 1.25]], paced["overlap_measured"]["rows"])
        full = self.make("--hog", "full")["notes"]["overlap_measured"]
        self.assertEqual([["add", 0, 1], ["add", 24, 1.75]], full["rows"])

    def test_products_beside_a_collective_are_of_what_the_sms_left_explain(self):
        with open(self.gpu, "w", encoding="utf-8") as file:
            json.dump({**SHEET, "sms": 132, "overlap": {"comm_sms": 24}}, file)
        beside = [dict(overlap(24, x, "paced"), kernel=f"gemm {x}") for x in (1.1, 1.32, 1.98)]
        self.write(ROWS + beside + [dict(overlap(16, 9, "paced"), kernel="gemm")])
        gpu = self.make()
        self.assertEqual({"comm_sms": 24, "comm_matmul_factor": 1.08}, gpu["overlap"])
        self.assertIn("paced", gpu["provenance"]["overlap.comm_matmul_factor"])

    def test_a_gpu_of_the_same_chip_gets_what_its_memory_does_not_change(self):
        device = dict(DEVICE, sms=132, memory_clock_mhz=2500, memory_bus_bits=4096)
        moves_us = 2 * (512 * 256 + 256 * 768 + 512 * 768) / 2.56e6
        near, far = gemm(512, 768, 256, 1.9 * moves_us), gemm(512, 768, 256, 2.1 * moves_us)
        with open(self.gpu, "w", encoding="utf-8") as file:
            json.dump({**SHEET, "name": "gh200", "sms": 132}, file)
        self.write([device, near, far, memory("add", 1000000, 2.5)] + ROWS[-7:] +
                   [attention("attention_fwd", 500.0, backend="cudnn")])
        gpu = self.make("--same-chip")
        ours = gpu["kernels"]["gemm"][1]
        self.assertIn("the same chip, NVIDIA H100", ours["source"])
        self.assertEqual([[512, 768, 256, float(f"{2.1 * moves_us:.4g}")]], ours["rows"])
        self.assertEqual(500, gpu["kernels"]["attention"][0]["rows"][0][-1])
        self.assertNotIn("memory", gpu["kernels"])
        self.assertEqual(9, gpu["launch_us"])
        self.assertNotIn("host_GBps", gpu)

    def test_another_chip_is_refused(self):
        with open(self.gpu, "w", encoding="utf-8") as file:
            json.dump({**SHEET, "sms": 108}, file)
        self.write([dict(DEVICE, sms=132)] + ROWS[1:])
        done = self.run_script("--into", self.gpu, "--same-chip")
        self.assertEqual(1, done.returncode)
        self.assertIn("not the same chip", done.stderr)

    def test_what_the_file_says_already_is_kept(self):
        gpu = self.make()
        self.assertEqual({"bf16": 989}, gpu["peak_tflops"])
        self.assertEqual("somebody", gpu["kernels"]["gemm"][0]["source"])
        self.assertEqual("x", gpu["provenance"]["peaks"])

    def test_measured_constants_say_who_measured(self):
        gpu = self.make("--host")
        self.assertEqual(2.12, gpu["launch_us"])
        self.assertEqual(53.2, gpu["host_GBps"])
        for key in ("launch_us", "host_GBps", "kernels of tests/gpu/run.sh"):
            self.assertIn("NVIDIA H100 80GB HBM3, 2000-01-02", gpu["provenance"][key])
            self.assertIn("matmuls at 1755 MHz", gpu["provenance"][key])

    def test_a_launch_is_the_hosts(self):
        gpu = self.make()
        self.assertEqual(9, gpu["launch_us"])
        self.assertEqual(2.12, gpu["notes"]["launch_us_measured"]["value"])
        self.assertIn("NVIDIA H100 80GB HBM3", gpu["notes"]["launch_us_measured"]["source"])

    def test_a_second_run_replaces_the_first(self):
        first = self.make()
        self.assertEqual(first, self.make())

    def test_only_these_drops_other_sources(self):
        groups = self.make("--only-these")["kernels"]["gemm"]
        self.assertNotIn("somebody", [g["source"] for g in groups])

    def test_a_file_that_is_not_there_is_refused(self):
        self.gpu = self.path("h100-96gb.json")
        done = self.run_script("--into", self.gpu)
        self.assertEqual(1, done.returncode)
        self.assertIn("data sheet", done.stderr)

    def test_the_same_rows_give_the_same_bytes(self):
        self.make()
        with open(self.gpu, "rb") as file:
            first = file.read()
        self.write([ROWS[0], *reversed(ROWS[1:])])
        self.make()
        with open(self.gpu, "rb") as file:
            self.assertEqual(first, file.read())

    def test_a_line_cut_short_is_reported_and_left_out(self):
        self.write(ROWS, tail='{"part": "gemm", "m": 51')
        done = self.run_script("--into", self.gpu)
        self.assertEqual(0, done.returncode)
        self.assertIn(f"no row in line {len(ROWS) + 1}", done.stderr)

    def test_a_part_that_did_not_run_leaves_the_old_table(self):
        self.make()
        self.write([r for r in ROWS if r["part"] != "memory"])
        add = self.table(self.make(), "memory", "op", "add")
        self.assertEqual([[1000000, 2.5]], add["rows"])

    def test_another_gpus_file_is_refused(self):
        self.gpu = self.path("h200-141gb.json")
        done = self.run_script("--into", self.gpu)
        self.assertEqual(1, done.returncode)
        self.assertIn("is not the file of 'NVIDIA H100", done.stderr)
        self.assertFalse(os.path.exists(self.gpu))

    def test_measurements_without_a_device_are_refused(self):
        self.write(ROWS[1:])
        done = self.run_script("--into", self.gpu)
        self.assertEqual(1, done.returncode)
        self.assertIn("no device row", done.stderr)

    def test_a_missing_file_is_a_sentence(self):
        self.rows = self.path("nothing.jsonl")
        done = self.run_script("--summary")
        self.assertEqual(1, done.returncode)
        self.assertIn("cannot open", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_neither_or_both_actions_is_wrong_usage(self):
        self.assertEqual(2, self.run_script().returncode)
        self.assertEqual(2, self.run_script("--summary", "--into", self.gpu).returncode)

    def test_the_summary_counts_rows_and_names_wrong_kernels(self):
        self.write([*ROWS, {"part": "check", "what": "gelu_fwd", "detail": "slot 1",
                            "ok": False, "error": None}])
        done = self.run_script("--summary")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("gemm 5", done.stdout)
        self.assertIn("WRONG  gelu_fwd", done.stdout)


if __name__ == "__main__":
    unittest.main()
