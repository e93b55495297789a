#!/usr/bin/env bash
#
# profile.sh - the CUPTI collector on a real GPU: is all recorded, what does it cost?
#
#     tests/gpu/profile.sh            every check, a verdict each; needs `make lockstep` and nvcc
#
# For run.sh: one part, about 90 s, after the program has been built.  It leaves in OUT/profile:
# verdicts.txt, the traces (small ones, for traces/samples/) and what failed.  Rows for
# measurements.jsonl: {"part":"profile", ...} with the overhead, tracing off and on.
#
# Environment: BUILD (build), OUT (build/gpu-out), ROWS (OUT/measurements.jsonl), CUDA_HOME, NVCC,
# CC, PYTHON, GPU_ARCH (90).
#
# Exit status 0 all held, 1 something did not, 77 no GPU or no collector.

set -u -o pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
cd "${self%/*}/../.." || exit 1

build=${BUILD:-build}
[[ $build == /* ]] || build=$PWD/$build
out=${OUT:-$build/gpu-out}
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
rows=${ROWS:-$out/measurements.jsonl}
work=$out/profile
lockstep=$build/lockstep
plugin=$build/lockstep-capture.so
traced=$build/gpu/traced
python=${PYTHON:-python3}
cuda=${CUDA_HOME:-$(sh tests/find_cuda.sh)}
nvcc=${NVCC:-$cuda/bin/nvcc}
failed=0
# What is being recorded must not come from outside.
unset CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH NCCL_PROFILER_PLUGIN RANK WORLD_SIZE LOCAL_RANK

# limit S COMMAND...: --foreground, or it would be a group of its own that outlives this script's
limit() {
    timeout --foreground "$@"
}

verdict() { # NAME ok|FAILED TEXT
    echo "profile/$1: $2${3:+, $3}" | tee -a "$work/verdicts.txt"
    [ "$2" != FAILED ] || failed=1
}

# Of the table that lockstep profile prints: the column of the first row.
column() { # FILE NUMBER
    awk -v n="$2" '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 9 { print $n; exit }' "$1"
}

expected() { # FILE WORD
    sed -n "s/^expect.* $2 \([0-9]*\).*/\1/p" "$1"
}

spans() { # TRACE PATTERN: how many events of the trace match
    "$lockstep" convert "$1" "$work/t.json" 2>/dev/null && grep -o -- "$2" "$work/t.json" | wc -l
}

# Where build.sh, or who packed it, has not.
compile() {
    [ ! -x "$traced" ] || return 0
    mkdir -p "$build/gpu"
    "$nvcc" -std=c++17 -O2 -gencode=arch=compute_"${GPU_ARCH:-90}",code=sm_"${GPU_ARCH:-90}" \
        -Xcompiler -fPIC,-fno-threadsafe-statics,-fno-exceptions,-fno-rtti \
        -c -o "$build/gpu/traced_kernels.o" tests/gpu/profile/kernels.cu &&
        ${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -O2 \
            -isystem "$cuda/include" -c -o "$traced.o" tests/gpu/profile/traced.c &&
        "$nvcc" -cudart static -o "$traced" "$traced.o" "$build/gpu/traced_kernels.o" -ldl
}

# Every kernel, copy and step of a program that ends well.
check_plain() {
    local dir=$work/plain log=$work/plain.log rc
    rm -rf "$dir"
    limit 60 "$lockstep" profile --keep-raw --out "$dir" -- "$traced" plain >"$log" 2>&1
    rc=$?
    [ $rc = 77 ] && exit 77
    local kernels copies lost steps
    kernels=$(column "$log" 3) copies=$(column "$log" 5) lost=$(column "$log" 8)
    steps=$(spans "$dir/trace.lstrace" '"ProfilerStep#')
    local text="kernels $kernels of $(expected "$log" kernels), copies $copies, lost $lost"
    text="$text, NVTX steps $steps of $(expected "$log" steps)"
    if [ $rc = 0 ] && [ "$kernels" = "$(expected "$log" kernels)" ] && [ "$lost" = 0 ] &&
        [ "${copies:-0}" -ge "$(expected "$log" copies)" ]; then
        verdict plain ok "$text"
    else
        verdict plain FAILED "status $rc, $text; see $log"
    fi
    [ "$steps" = "$(expected "$log" steps)" ] || verdict nvtx FAILED "$text"
}

# After abort() what was launched and done is there.
check_crash() {
    local dir=$work/crash log=$work/crash.log rc
    rm -rf "$dir"
    limit 60 "$lockstep" profile --out "$dir" -- "$traced" crash >"$log" 2>&1
    rc=$?
    if [ $rc = 134 ] && [ "$(column "$log" 3)" = "$(expected "$log" kernels)" ]; then
        verdict crash ok "$(column "$log" 3) kernels"
    else
        verdict crash FAILED "status $rc, kernels $(column "$log" 3); see $log"
    fi
}

# Ops by external correlation, and by the nodes of a graph.
check_api() {
    local log=$work/api.log op n wrong=
    rm -rf "$work/api" && mkdir -p "$work/api"
    if ! limit 60 "$traced" api "$plugin" "$work/api/x.lsraw" >"$log" 2>&1 ||
        ! "$lockstep" profile --merge "$work/api" --out "$work/api-out" >>"$log" 2>&1 ||
        ! "$lockstep" convert "$work/api-out/trace.lstrace" "$work/api.json" 2>>"$log"; then
        verdict api FAILED "see $log"
        return
    fi
    for op in 100 109 200 209; do
        n=$("$python" - "$work/api.json" $op <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
print(sum(1 for e in events if "traced_" in e.get("name", "")
          and e.get("args", {}).get("op") == int(sys.argv[2])))
END
        )
        [ "$n" = "$([ $op -lt 200 ] && echo 2 || echo 20)" ] || wrong="$wrong op $op: $n kernels;"
    done
    if [ -z "$wrong" ]; then
        verdict api ok "$(tail -n 1 "$log")"
    else
        verdict api FAILED "$wrong see $log"
    fi
}

# The same loop with and without the collector, in turns; the median of three.
check_overhead() {
    local off=() on=() a b
    for _ in 1 2 3; do
        off+=("$("$traced" steps 100 | awk '/^ns_per_step/ { print $2 }')")
        rm -rf "$work/steps"
        on+=("$(limit 60 "$lockstep" profile --out "$work/steps" -- "$traced" steps 100 \
            2>/dev/null | awk '/^ns_per_step/ { print $2 }')")
    done
    a=$(printf '%s\n' "${off[@]}" | sort -n | sed -n 2p)
    b=$(printf '%s\n' "${on[@]}" | sort -n | sed -n 2p)
    if [ -n "$a" ] && [ -n "$b" ]; then
        printf '{"part":"profile","step_ns":%s,"traced_step_ns":%s,"overhead_pct":%s}\n' "$a" "$b" \
            "$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", 100 * (b / a - 1) }')" |
            tee -a "$rows"
        verdict overhead ok "step $a ns, recorded $b ns (200 launches of 20 us a step)"
    else
        verdict overhead FAILED "no times: off ${off[*]}, on ${on[*]}"
    fi
}

# PyTorch under torchrun: a rank, its kernels, NCCL told by its profiler plugin.
check_torch() {
    local log=$work/torch.log rc
    if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        verdict torch skipped "no PyTorch with CUDA"
        return
    fi
    cat >"$work/train.py" <<'END'
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
model = torch.nn.Linear(1024, 1024).cuda()
for step in range(5):
    torch.cuda.nvtx.range_push(f"step {step}")
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
dist.destroy_process_group()
END
    rm -rf "$work/torch"
    limit 30 "$lockstep" profile --out "$work/torch" -- "$python" -m torch.distributed.run \
        --standalone --nproc-per-node 1 "$work/train.py" >"$log" 2>&1
    rc=$?
    if [ $rc = 0 ] && [ "$(column "$log" 3)" -gt 20 ]; then
        verdict torch ok "$(column "$log" 3) kernels, $(column "$log" 4) communication"
    else
        verdict torch FAILED "status $rc, kernels $(column "$log" 3); see $log"
    fi
}

# Two ranks on one GPU over sockets (facts: NCCL_HOSTID): what NCCL chose must be in the trace.
check_nccl() {
    local log=$work/nccl.log rc said chosen
    "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || return
    cat >"$work/pair.sh" <<'END'
export NCCL_HOSTID=h$RANK NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
export NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 NCCL_RAS_ENABLE=0 NCCL_MAX_CTAS=2
exec "$@"
END
    rm -rf "$work/nccl"
    limit 30 "$lockstep" profile --out "$work/nccl" -- "$python" -m torch.distributed.run \
        --standalone --no-python --nproc-per-node 2 bash "$work/pair.sh" "$python" \
        "$work/train.py" >"$log" 2>&1
    rc=$?
    said=$(spans "$work/nccl/trace.lstrace" '"Collective name": *"allreduce"')
    chosen=$(spans "$work/nccl/trace.lstrace" '"\(ring\|tree\|Simple\|LL\|LL128\)"')
    # two ranks, five steps, a weight and a bias
    if [ $rc = 0 ] && [ "${said:-0}" = 20 ] && [ "${chosen:-0}" -gt 0 ]; then
        verdict nccl ok "all_reduce $said times, algorithm and protocol from NCCL"
    else
        verdict nccl FAILED "status $rc, all_reduce $said times; see $log"
    fi
}

mkdir -p "$work"
: >"$work/verdicts.txt"
if [ ! -e "$plugin" ]; then
    echo "profile.sh: $plugin was not built: no CUPTI" >&2
    exit 77
fi
if compile; then
    check_plain
    check_api
    check_crash
    check_overhead
else
    verdict compile FAILED "without tests/gpu/profile/traced.c only PyTorch is recorded"
fi
check_torch
check_nccl
exit $failed
