#!/usr/bin/env bash
#
# run.sh - measures a GPU: builds the programs here, then runs the parts one by one.
#
#     tests/gpu/run.sh                 all parts, the most valuable first, within TOTAL_S
#     tests/gpu/run.sh gemm overlap    these parts (after building)
#
# Every part is a process with a time limit.  One that fails or takes too long is noted,
# its rows so far are kept, and the next one runs.  Left in OUT, never more than 8 files:
#
#     measurements.jsonl    a JSON object a line, first key "part"
#     run.log               what was printed
#     bench.json            what `lockstep bench --backend cuda` measured
#     gpu.json, gpu-cluster.json     the files made of it
#     loop.lstrace, plain.lstrace    a trace of overlapping ranks, and one of a single GPU
#     rest.tar.gz           all else: recordings, other traces, logs of the parts
#
# What is run is unpacked from CARRY, where pack.sh put it on a machine that has all libraries,
# or built here.  README.md here says what the parts measure and what comes of the rows; where
# the log ends, `make gpu-report` goes on.  Settings of the GPU are only read.
#
# Environment: OUT (default build/gpu-out), TOTAL_S (default 520, building included), CARRY
# (default build-carry), REBUILD=1 builds although CARRY is there, GPU the file in scenarios/gpus
# (default by the GPU's name), GEMM_S (55; 140 for all products), FP8_S (20; 75 for all), SWEPT
# (what sweep trains, lines as in trained.sh), PYTHON (default python3; the torch parts need
# PyTorch), and those of build.sh.
#
# Exit status 0 all parts ran, 1 something could not, 77 no usable GPU.

set -u -o pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
cd "${self%/*}/../.." || exit 1

out=${OUT:-build/gpu-out}
build=${BUILD:-build}
total_s=${TOTAL_S:-520}
gemm_s=${GEMM_S:-55}
fp8_s=${FP8_S:-20}
python=${PYTHON:-python3}
here=tests/gpu
rows=$out/measurements.jsonl
log=$out/run.log
carry=${CARRY:-build-carry}

export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

all_parts=(device strategies nccl sanitize torch-warm check bench-trained bench speed torch-speed
    sweep profile traces gemm gemm-fp8 overlap memory launch copy torch-ops cupti torch-train
    torch-more)
late=() # parts for which no time was left
verdicts=()
failed=0

die() {
    echo "run.sh: $*" >&2
    exit 1
}

# verdict NAME TEXT: one line now, and again in the table at the end
verdict() {
    verdicts+=("PART $1: $2")
    echo "PART $1: $2" | tee -a "$log"
}

# outcome NAME STATUS SECONDS
outcome() {
    # A row cut short must not take the next part's first row with it.
    [ -z "$(tail -c 1 "$rows")" ] || echo >>"$rows"
    case $2 in
    0) verdict "$1" "ok ($3 s)" ;;
    77) verdict "$1" "SKIPPED ($3 s)" ;;
    124 | 137)
        failed=1
        verdict "$1" "TIMEOUT ($3 s)"
        ;;
    *)
        failed=1
        verdict "$1" "FAILED($2) ($3 s)"
        ;;
    esac
}

# asked_for NAME: whether it is to run; says so where the time is over
asked_for() {
    [[ " ${parts[*]} " == *" $1 "* ]] || return 1
    ((total_s - SECONDS < 15)) || return 0
    failed=1
    late+=("$1")
    verdict "$1" "SKIPPED, no time left"
    return 1
}

# at_most LIMIT_S: and no longer than what is left
at_most() {
    local left_s=$((total_s - SECONDS))
    echo $(($1 < left_s ? $1 : left_s))
}

# part NAME LIMIT_S COMMAND...: runs it unless it was not asked for; with `beside` set, beside what
# comes next, up to join.  Of those only the verdict counts, not a time.
part() {
    local name=$1 limit_s=$2 began=$SECONDS
    shift 2
    asked_for "$name" || return 0
    limit_s=$(at_most "$limit_s")
    if [ -n "${beside:-}" ]; then
        timeout -k 5 "$limit_s" "$@" >"$work/$name.log" 2>&1 &
        running+=("$name $!")
        return 0
    fi
    echo "---- $name" | tee -a "$log"
    timeout -k 5 "$limit_s" "$@" 2>&1 | tee -a "$log"
    outcome "$name" "${PIPESTATUS[0]}" $((SECONDS - began))
}

running=() # "name pid", of those beside each other
join() {
    local name pid
    for pid in "${running[@]}"; do
        name=${pid% *} pid=${pid#* }
        wait "$pid"
        local rc=$?
        {
            echo "---- $name"
            cat "$work/$name.log"
        } | tee -a "$log"
        outcome "$name" $rc $((SECONDS - together_began))
    done
    running=()
}

parts=("$@")
((${#parts[@]})) || parts=("${all_parts[@]}")
for name in "${parts[@]}"; do
    [[ " ${all_parts[*]} " == *" $name "* ]] || die "no part '$name', there are: ${all_parts[*]}"
done

# ---- build, or unpack what was built elsewhere ----

make_jobs() { # all cores, but no more than 16
    local n
    n=$(nproc 2>/dev/null || echo 4)
    echo $((n > 16 ? 16 : n))
}

# NCCL is Python's where the toolkit has none.
find_nccl() {
    local root
    for root in "${NCCL_HOME:-}" "$1" /usr "${wheels[@]}"; do
        if [ -n "$root" ] && [ -e "$root/include/nccl.h" ]; then
            echo "$root"
            return
        fi
    done
    return 1
}

python_wheels() {
    command -v "$python" >/dev/null 2>&1 || return 0
    "$python" -c '
import glob, site, sysconfig
for p in dict.fromkeys([sysconfig.get_paths()["purelib"]] + site.getsitepackages()):
    print(*sorted(glob.glob(p + "/nvidia/*")), sep="\n")' 2>/dev/null | grep .
}

# The program and its plugins; the measuring programs are build.sh's.
build_program() {
    local cuda nccl
    cuda=${CUDA_HOME:-$(sh tests/find_cuda.sh)}
    nccl=$(find_nccl "$cuda") || echo "run.sh: no nccl.h: there will be no CUDA plugin"
    LOCKSTEP_NO_INSTALL=1 make -s -j "$(make_jobs)" BUILD="$build" WERROR= CUDA_HOME="$cuda" \
        ${nccl:+NCCL_HOME="$nccl"} lockstep
}

# search_for PLUGIN: where its libraries are in none of the usual places, everywhere
search_for() {
    local library at
    for library in $(ldd "$1" 2>/dev/null | awk '/not found/ { print $1 }'); do
        at=$(find / -xdev -name "$library" -print -quit 2>/dev/null)
        [ -z "$at" ] || LD_LIBRARY_PATH=$LD_LIBRARY_PATH:${at%/*}
    done
}

unpack() {
    mkdir -p "$build/carried" && tar -C "$build/carried" -xzf "$carry/carry.tar.gz" || return 1
    program=$build/carried/bin
    # What this machine has itself fits it better.
    local library
    local have # whole: with pipefail, who stops reading early makes ldconfig fail
    have=$(ldconfig -p 2>/dev/null)
    for library in "$build"/carried/lib/*; do
        [[ $have != *"${library##*/} "* ]] || rm -f "$library"
    done
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(printf '%s:' "${wheels[@]/%//lib}")
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH}/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64
    export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$PWD/$build/carried/lib
    export LOCKSTEP_SHARE=$PWD/scenarios
    "$program/lockstep" --version >/dev/null || return 1
    # A plugin whose libraries are nowhere here is built again with what is here; without CUPTI
    # only the recording of other programs is lost.
    local plugin
    for plugin in "$program"/lockstep-*.so; do
        [ -e "$plugin" ] || continue
        search_for "$plugin"
        ldd "$plugin" 2>/dev/null | grep 'not found' || continue
        [[ $plugin == */lockstep-capture.so ]] || return 1
        rm -f "$plugin"
    done
    return 0
}

# Held open, or the driver may start the GPU anew for every process.
[ ! -r /dev/nvidia0 ] || exec 9</dev/nvidia0

mapfile -t wheels < <(python_wheels)
program=$build
how="unpacked from $carry"
if [ -n "${REBUILD:-}" ] || ! [ -e "$carry/carry.tar.gz" ] || ! unpack; then
    program=$build
    how=built
    # A newer compiler's new warning must not cost the run.
    BUILD=$build WERROR='' "$BASH" $here/build.sh || exit 1
fi
mkdir -p "$out" || die "cannot make '$out'"
[[ $program == /* ]] || program=$PWD/$program
out=$(cd "$out" && pwd)
rows=$out/measurements.jsonl log=$out/run.log
: >"$rows" || die "cannot write '$rows'"
: >"$log"
date=$(date -u +%Y-%m-%d)
echo "$how in $SECONDS s" | tee -a "$log"

timeout -k 5 60 "$program/gpu/gpu_measure" device --out "$rows" --date "$date" 2>&1 | tee -a "$log"
rc=${PIPESTATUS[0]}
((rc == 77)) && exit 77
: >"$rows"

if [ "$how" = built ] && command -v make >/dev/null 2>&1; then
    build_program >>"$log" 2>&1 || tail -n 20 "$log"
    echo "built the program in $SECONDS s" | tee -a "$log"
fi
export LOCKSTEP=$program/lockstep LOCKSTEP_PLUGIN_DIR=$program OUT=$out
[ -x "$LOCKSTEP" ] && [ -e "$program/lockstep-cuda.so" ] || {
    failed=1
    verdict plugin "FAILED, there is no $LOCKSTEP with lockstep-cuda.so beside it"
}
work=$(mktemp -d) || die "cannot make a temporary folder"
trap 'rm -rf "$work"' EXIT

# H200 before H100: names of files, by what the driver calls the GPU.
gpu_file() {
    case $(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2>/dev/null) in
    *H200*) echo h200-141gb ;;
    *H100*) echo h100-80gb ;;
    *A100*80*) echo a100-80gb ;;
    *A100*) echo a100-40gb ;;
    *) echo h100-80gb ;;
    esac
}
export GPU=${GPU:-$(gpu_file)}

# ---- parts of several commands ----

no_plugin() {
    [ -x "$LOCKSTEP" ] && [ -e "$LOCKSTEP_PLUGIN_DIR/lockstep-cuda.so" ] && return 1
    echo "there is no $LOCKSTEP with lockstep-cuda.so beside it"
}

# The kernels of what speed.sh trains, as large as there: of their sizes the models' own say little.
bench_trained() {
    local model batch seq vocab
    no_plugin && return 77
    while read -r model batch seq vocab; do
        trained_scenario "$model" "$batch" "$seq" "$GPU" >"$work/$model.json"
        "$LOCKSTEP" bench gemm memory "$work/$model.json" --set model.vocab="$vocab" \
            --backend cuda --seconds 3 --out "$work/bench-$model.json" </dev/null || return 1
    done <<<"$trained"
}

# What the executor's kernels take, and files of it: a copy of the tree's file for the GPU, with
# this GPU's tables; a cluster of four ranks in a loop on one GPU (functional, not a real link).
bench_part() {
    local budget=$1
    no_plugin && return 77
    "$LOCKSTEP" bench gemm memory --backend cuda --seconds "$((budget / 2 - 5))" \
        --out "$out/bench.json" || return 1
    local trained_too=("$work"/bench-*.json)
    [ -e "${trained_too[0]}" ] || trained_too=()
    cp "scenarios/gpus/$GPU.json" "$out/gpu.json" &&
        "$LOCKSTEP" calibrate "$out/bench.json" "${trained_too[@]}" \
            --into "$out/gpu.json" || return 1
    "$LOCKSTEP" bench overlap collective --backend cuda --comm loop --ranks 2 --seconds 8 \
        --out "$work/loop-bench.json" &&
        "$LOCKSTEP" calibrate "$work/loop-bench.json" --into "$out/gpu-cluster.json" \
            >"$work/calibrate.txt" || return 1
    head -40 "$work/calibrate.txt"
}

# Ranks in a loop on one GPU that transfer while they compute, as the executor recorded it; what a
# trace says of overlap; the prediction beside it.
traces_part() {
    local scenario=$work/loop.json
    no_plugin && return 77
    printf '{"name":"gpt2, fsdp on 4 ranks of one GPU","model":"gpt2","cluster":{"base":"dgx-h100",
        "nodes":1,"gpus_per_node":4,"gpu":"%s"},"training":{"global_batch":16,"micro_batch":4,
        "seq_len":512,"precision":"bf16","optimizer":"adamw"},
        "parallel":{"strategy":"fsdp","dp":4}}\n' "$GPU" >"$scenario"
    "$LOCKSTEP" run "$scenario" --backend cuda --comm loop --steps 4 \
        --trace "$out/loop.lstrace" || return 1
    "$LOCKSTEP" report "$out/loop.lstrace" --step 3 || return 1
    "$LOCKSTEP" run "$scenario" --backend cuda --set parallel.strategy=single \
        --set parallel.dp=1 --set training.global_batch=4 --steps 4 \
        --trace "$out/plain.lstrace" || return 1
    "$LOCKSTEP" sim "$scenario" --set software=lockstep --set parallel.strategy=single \
        --set parallel.dp=1 --set training.global_batch=4 --trace "$work/sim.lstrace" >/dev/null &&
        "$LOCKSTEP" compare "$work/sim.lstrace" "$out/plain.lstrace" || return 1
    trace_trained
}

# Of what speed.sh trains a short recording each, to see where its time goes.
trace_trained() {
    local model batch seq vocab
    while read -r model batch seq vocab; do
        trained_scenario "$model" "$batch" "$seq" "$GPU" >"$work/$model.json"
        "$LOCKSTEP" run "$work/$model.json" --set model.vocab="$vocab" --backend cuda --steps 4 \
            --trace "$work/$model.lstrace" </dev/null || return 1
        "$LOCKSTEP" report "$work/$model.lstrace" --step 3 || return 1
    done <<<"$trained"
}

nccl_part() {
    CASE_S=50 "$BASH" $here/nccl_smoke.sh
}

# profile.sh compiles its own program, so it needs nvcc; the rest it takes from `program`.
profile_part() {
    BUILD=$program OUT=$work/profile-out ROWS=$rows "$BASH" $here/profile.sh
}

# Our kernels under the toolkit's checker: addresses, then races within blocks; in f32 attention has
# no tensor cores, and kernels of its own.
sanitize_part() {
    local scenario=$work/tiny.json tool precision what found rc failed=0 quiet
    no_plugin && return 77
    command -v compute-sanitizer >/dev/null 2>&1 ||
        PATH=$PATH:${CUDA_HOME:-$(sh tests/find_cuda.sh)}/bin
    command -v compute-sanitizer >/dev/null 2>&1 || return 77
    printf '{"name":"tiny","model":{"kind":"transformer","layers":1,"hidden":128,"heads":2,
        "vocab":257,"max_seq":64},"cluster":{"base":"dgx-h100","nodes":1,"gpus_per_node":8,
        "gpu":"%s"},"training":{"global_batch":2,"micro_batch":2,"seq_len":64,
        "precision":"bf16","optimizer":"adamw"},"parallel":{"strategy":"single"}}\n' \
        "$GPU" >"$scenario"
    for what in memcheck/f32 racecheck/f32 memcheck/bf16 racecheck/bf16; do
        tool=${what%/*} precision=${what#*/}
        found=$work/$tool-$precision.txt
        # An event may say "not yet", which is an answer; lockstep looks at every one itself.
        quiet=()
        [ "$tool" != memcheck ] || quiet=(--report-api-errors no)
        # --comm loop: in the process that the checker has started, not in a child of it
        timeout --foreground -k 5 40 compute-sanitizer --tool "$tool" "${quiet[@]}" \
            --error-exitcode 9 "$LOCKSTEP" run "$scenario" --backend cuda --comm loop \
            --set training.precision="$precision" --no-cuda-graphs --steps 2 \
            >"$found" 2>&1
        rc=$?
        if [ $rc != 0 ] && ! only_races_of_others "$tool" $rc "$found"; then
            echo "sanitize: $what: $(grep -m 5 '=========' "$found" | tr '\n' ' ')"
            failed=1
            continue
        fi
        echo "sanitize: $what: $(grep 'SUMMARY' "$found" | tail -n 1)"
    done
    return $failed
}

. $here/races.sh
. $here/trained.sh

# own NAME LIMIT_S FUNCTION...: a function as a part; it sees this shell's variables
own() {
    local name=$1 limit_s=$2
    shift 2
    export -f no_plugin bench_part bench_trained trace_trained traces_part nccl_part
    export -f profile_part sanitize_part only_races_of_others trained_scenario
    export out work here rows program trained
    part "$name" "$limit_s" "$BASH" -c '"$@"' "$name" "$@"
}

# ---- the parts, the most valuable first ----

measure() { # NAME LIMIT_S BUDGET_S
    part "$1" "$2" "$program/gpu/gpu_measure" "$1" --out "$rows" --budget-s "$3" --date "$date"
}

measure device 30 30

# Does it train as the CPU does?  Nothing is timed, so all at once.
together_began=$SECONDS beside=1
part strategies 130 env CASE_S=30 "$BASH" $here/strategies.sh
own nccl 130 nccl_part
own sanitize 130 sanitize_part
part torch-warm 80 "$python" $here/torch_speed.py --out "$rows" --warm
beside=
join

measure check 40 40
own bench-trained 30 bench_trained
own bench 90 bench_part 60
part speed 120 env CASE_S=60 SPEED_S=115 PYTHON= "$BASH" $here/speed.sh
part torch-speed 95 "$python" $here/torch_speed.py --out "$rows" --budget-s 85
part sweep 100 env CASE_S=30 SPEED_S=95 STEPS=10 OP_BY_OP=0 PYTHON= SHAPES="${SWEPT:-$swept}" \
    "$BASH" $here/speed.sh
own profile 100 profile_part
own traces 60 traces_part
measure gemm $((gemm_s + 15)) "$gemm_s"
measure gemm-fp8 $((fp8_s + 15)) "$fp8_s"
measure overlap 40 30
measure memory 40 30
measure launch 20 20
measure copy 30 20
part torch-ops 60 "$python" $here/torch_ops.py --out "$rows" --budget-s 45
if [ -x "$program/gpu/gpu_cupti" ]; then
    part cupti 40 "$program/gpu/gpu_cupti" cupti --out "$rows" --budget-s 30
fi
part torch-train 120 "$python" $here/torch_train.py --out "$rows" --budget-s 105
part torch-more 130 "$python" $here/torch_speed.py --out "$rows" --more --budget-s 115

# ---- the table, and what goes back ----

{
    echo
    echo "==== $SECONDS s, $(wc -l <"$rows") rows in $rows"
    printf '%s\n' "${verdicts[@]}"
    ((${#late[@]} == 0)) || echo "for the rest, into another OUT: $here/run.sh ${late[*]}"
    "$python" $here/make_gpu_file.py --summary "$rows"
} 2>&1 | tee -a "$log"

tar -C "$work" -czf "$out/rest.tar.gz" . 2>>"$log"
# A file that is too large to come back would be lost silently.
for file in "$out"/*; do
    bytes=$(wc -c <"$file" 2>/dev/null || echo 0)
    ((bytes <= 16 * 1024 * 1024)) ||
        echo "TOO LARGE to come back: $file, $bytes bytes" | tee -a "$log"
done
exit $failed
