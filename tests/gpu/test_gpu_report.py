# test_gpu_report.py - what gpu_report.py makes of rows by hand; needs no GPU, run by hand.

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

ROWS = [
    {"part": "device", "name": "NVIDIA H200", "driver": "580.1", "date": "2026-01-31"},
    {"part": "speed", "model": "gpt2", "by": "lockstep, graphs", "step_us": 40000.0,
     "batch": 16, "seq": 1024, "tokens_per_s": 409600, "predicted_us": 38000.0, "error_pct": -5.0},
    {"part": "speed", "model": "gpt2", "by": "torch-eager", "step_us": 64000.0,
     "batch": 16, "seq": 1024, "tokens_per_s": 256000},
    {"part": "speed", "model": "gpt2", "by": "torch-compiled", "step_us": 50000.0,
     "batch": 16, "seq": 1024, "tokens_per_s": 327680},
    {"part": "speed", "model": "gpt2", "by": "lockstep, graphs", "step_us": 9000.0,
     "batch": 4, "seq": 1024, "options": "training.recompute=full", "tokens_per_s": 455111},
    {"part": "strategies", "case": "ddp 4", "off": "1e-06", "limit": 1e-4},
    {"part": "strategies", "case": "tp 2", "off": "bad", "limit": 1e-4},
    {"part": "strategies", "case": "cp 2", "off": "0.01", "limit": 1e-4},
]
LOG = "PART speed: ok (9 s)\nnoise\nPART nccl: TIMEOUT (90 s)\nPART speed: ok (9 s)\n"


def report(rows, log=LOG, traces=()):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "measurements.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows)
        with open(os.path.join(folder, "run.log"), "w", encoding="utf-8") as file:
            file.write(log)
        for name, size in traces:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"x" * size)
        done = subprocess.run([sys.executable, os.path.join(HERE, "gpu_report.py"), folder,
                               "--root", folder], capture_output=True, text=True, check=False)
        path = os.path.join(folder, "README-gpu.md")
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        samples = os.path.join(folder, "traces", "samples")
        kept = sorted(os.listdir(samples)) if os.path.isdir(samples) else []
        return done, text, kept


class Report(unittest.TestCase):
    def test_numbers_come_from_the_rows(self):
        done, text, _ = report(ROWS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("### NVIDIA H200", text)
        self.assertIn("| gpt2 16 x 1024 | lockstep, graphs | 40.00 | 409,600 | 1.25 | 38.00 (-5.0 %) |",
                      text)
        self.assertIn("| gpt2 4 x 1024, training.recompute=full | lockstep, graphs | 9.00 |", text)
        self.assertIn("| gpt2 16 x 1024 | torch-eager | 64.00 | 256,000 | 0.78 |  |", text)
        self.assertIn("1 of 3 cases agree", text)
        self.assertIn("**not equal**: cp 2, off by 0.01", text)
        self.assertIn("1 of 2 parts ended well; nccl: TIMEOUT (90 s).", text)

    def test_what_was_not_measured_is_said(self):
        done, text, _ = report(ROWS[:1], log="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Speed was not measured.", text)
        self.assertIn("No strategy was compared", text)

    def test_a_row_cut_short_costs_no_other(self):
        done, text, _ = report([*ROWS, '{"part": "sp'])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("line 9 was cut short", done.stderr)
        self.assertIn("409,600", text)

    def test_large_traces_stay_behind(self):
        _, _, kept = report(ROWS, traces=[("loop.lstrace", 1000), ("plain.lstrace", 2 << 20)])
        self.assertEqual(kept, ["h200-141gb-loop.lstrace"])

    def test_an_unknown_gpu_and_no_device_are_sentences(self):
        done, _, _ = report([{"part": "device", "name": "Voodoo 2"}])
        self.assertEqual(done.returncode, 1)
        self.assertIn("no file in scenarios/gpus is known for 'Voodoo 2'", done.stderr)
        done, _, _ = report(ROWS[1:])
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no device row", done.stderr)


if __name__ == "__main__":
    unittest.main()
