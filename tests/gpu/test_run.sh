#!/usr/bin/env bash
#
# test_run.sh - what run.sh does where it cannot measure; run by hand, needs no GPU.
#
#     tests/gpu/test_run.sh
#
# The last line is a tally; exit status 1 when a test failed.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bash=$(command -v bash)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0
failed=0
export CARRY=$folder/none # what is built here is meant, not what may lie about

# check NAME STATUS TEXT COMMAND...: exit status and a text that its output has
check() {
    local name=$1 status=$2 text=$3 output rc
    shift 3
    output=$("$@" 2>&1)
    rc=$?
    if [ $rc -eq "$status" ] && [[ $output == *"$text"* ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: status $rc, wanted $status and '$text' in: $output"
    fi
}

one_line() {
    [ "$("$@" 2>&1 | wc -l)" -eq 1 ]
}

for script in tests/gpu/*.sh; do
    check "${script##*/} parses" 0 "" "$bash" -n "$script"
done
check "without nvcc one sentence and 1" 1 "no nvcc" \
    env -i CARRY="$CARRY" PATH="$folder" CUDA_HOME="$folder/cuda" "$bash" tests/gpu/run.sh
check "it is one line" 0 "" \
    one_line env -i CARRY="$CARRY" PATH="$PATH" CUDA_HOME="$folder/cuda" "$bash" tests/gpu/run.sh
check "an unknown part is named" 1 "no part 'gem', there are: device" \
    "$bash" tests/gpu/run.sh gem

# The parts of their own, each where it finds nothing to run on.
for script in strategies speed nccl_smoke; do
    check "$script without a program is skipped" 77 "$script: " \
        env LOCKSTEP="$folder/none" OUT="$folder/parts" "$bash" "tests/gpu/$script.sh"
done
lockstep=${LOCKSTEP:-${BUILD:-build}/lockstep}
if [ -x "$lockstep" ]; then
    lockstep=$(realpath "$lockstep")
    check "every strategy runs; the CPU is as the CPU" 0 "0 failed" \
        env ALL_ON_CPU=1 STEPS=2 LOCKSTEP="$lockstep" OUT="$folder" \
        "$bash" tests/gpu/strategies.sh
    check "each leaves a row" 0 "22" grep -c '"part":"strategies"' "$folder/measurements.jsonl"
fi
if [ -x "$lockstep" ]; then
    check "speed runs; the CPU op by op is as the CPU" 0 "with graphs and without differ by 0" \
        env ALL_ON_CPU=1 STEPS=2 PYTHON= SHAPES='gpt2 1 16 256' LOCKSTEP="$lockstep" \
        OUT="$folder" "$bash" tests/gpu/speed.sh
fi
check "pack.sh says what is missing" 1 "pack.sh: there is no" \
    env BUILD="$folder/nothing" "$bash" tests/gpu/pack.sh "$folder/carry"
mkdir -p "$folder/broken" && echo nonsense >"$folder/broken/carry.tar.gz"
check "a broken archive is no archive" 1 "no nvcc" \
    env CARRY="$folder/broken" BUILD="$folder/b" CUDA_HOME="$folder/cuda" \
    "$bash" tests/gpu/run.sh

# races NAME STATUS TEXT TOOL RC LINE...: only_races_of_others of a log of these lines
races() {
    local name=$1 status=$2 text=$3 tool=$4 rc=$5
    shift 5
    printf '========= %s\n' "$@" >"$folder/races.txt"
    check "$name" "$status" "$text" only_races_of_others "$tool" "$rc" "$folder/races.txt"
}
. tests/gpu/races.sh
theirs='Error: Race reported between Write access at cublasLt::splitKreduce_kernel+0x10'
mine='Error: Race reported between Write access at norm_kernel(Norm, NormArgs, bool)+0x10'
summary='RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'
races "a race of cuBLASLt's is no failure" 0 "1 races" racecheck 9 "$theirs" "$summary"
races "one of ours is" 1 "" racecheck 9 "$theirs" "$mine" "$summary"
races "a run that was cut short is" 1 "" racecheck 124 "$theirs"
races "and one that ends otherwise" 1 "" racecheck 1 "$theirs" "$summary"
races "no race, no excuse" 1 "" racecheck 9 "$summary"
races "memcheck has none" 1 "" memcheck 9 "$theirs" "$summary"

# On a machine with nvcc and no GPU; with one, this would measure.
if [ "$(sh tests/find_cuda.sh)" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    check "without a GPU a sentence and 77" 77 "no usable GPU" \
        env OUT="$folder/out" BUILD="$folder/build" "$bash" tests/gpu/run.sh
    check "and nothing was measured" 0 "" test ! -s "$folder/out/measurements.jsonl"
    check "a missing --out is wrong usage" 2 "usage" "$folder/build/gpu/gpu_measure" gemm
    check "an unknown part is wrong usage" 2 "usage" \
        "$folder/build/gpu/gpu_measure" gem --out "$folder/x"
    check "a budget must be a number" 2 "usage" \
        "$folder/build/gpu/gpu_measure" gemm --out "$folder/x" --budget-s ten
fi

echo "test_run: $passed passed, $failed failed"
[ $failed -eq 0 ]
