#!/usr/bin/env python3
"""Measured collectives as logs of nccl-tests, for `lockstep calibrate`.

    tests/parity/collectives_to_logs.py ../shared/data/collectives/nccl.jsonl.gz MACHINE OUT.log

MACHINE is part of a row's "machine", "vTrain/a100" say.  Each collective on so many ranks and
nodes becomes one test of the log; what it was measured with is not in the rows.
"""

import gzip
import json
import sys

PROGRAM = {"all_reduce": "all_reduce", "all_gather": "all_gather", "send_recv": "sendrecv",
           "reduce_scatter": "reduce_scatter", "all_to_all": "alltoall", "broadcast": "broadcast"}


def tests_of(path, machine):
    tests = {}
    with gzip.open(path, "rt") as rows:
        for row in map(json.loads, rows):
            if machine in row["machine"] and row["ranks"] % row["nodes"] == 0:
                key = (row["op"], row["nodes"], row["ranks"], row["gpu"])
                tests.setdefault(key, []).append((row["size_bytes"], row["time_us"]))
    return tests


def write_test(out, key, rows):
    op, nodes, ranks, gpu = key
    print(f"# Collective test starting: {PROGRAM[op]}_perf\n# nThread 1 nGpus 1", file=out)
    for rank in range(ranks):
        host = rank // (ranks // nodes)
        print(f"#  Rank {rank} Group 0 Pid 1 on host{host} device {rank % (ranks // nodes)} "
              f"[0000:00:00] {gpu}", file=out)
    print("#  size  count  type  redop  root  time  algbw  busbw  #wrong", file=out)
    for size, us in sorted(rows):
        print(f"{size} 1 float sum -1 {us:.3f} {size / us / 1e3:.3f} 1 0", file=out)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    path, machine, name = sys.argv[1:]
    tests = tests_of(path, machine)
    if not tests:
        sys.exit(f"no row of '{machine}' in {path}")
    with open(name, "w", encoding="utf-8") as out:
        for key in sorted(tests):
            write_test(out, key, tests[key])


main()
