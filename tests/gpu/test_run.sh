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

check "the scripts parse" 0 "" "$bash" -n tests/gpu/run.sh tests/gpu/build.sh
check "without nvcc one sentence and 1" 1 "no nvcc" \
    env -i PATH="$folder" CUDA_HOME="$folder/cuda" "$bash" tests/gpu/run.sh
check "it is one line" 0 "" \
    one_line env -i PATH="$PATH" CUDA_HOME="$folder/cuda" "$bash" tests/gpu/run.sh
check "an unknown part is named" 1 "no part 'gem', there are: device" \
    "$bash" tests/gpu/run.sh gem

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
