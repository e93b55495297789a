#!/usr/bin/env bash
#
# run.sh - measures a GPU: builds the programs here, then runs the parts one by one.
#
#     tests/gpu/run.sh                 all parts, the most valuable first, within TOTAL_S
#     tests/gpu/run.sh gemm overlap    these parts (after building)
#
# Every part is a process with a time limit.  One that fails or takes too long is noted,
# its rows so far are kept, and the next one runs.  Left in OUT:
#
#     measurements.jsonl    a JSON object a line, first key "part"
#     run.log               what was printed
#
# README.md here says what the parts measure and how a GPU file is made of the rows.
# Settings of the GPU are only read.
#
# Environment: OUT (default build/gpu-out), TOTAL_S (default 520, building included),
# PYTHON (default python3; the torch parts need PyTorch), and those of build.sh.
#
# Exit status 0 all parts ran, 1 something could not, 77 no usable GPU.

set -u -o pipefail

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
cd "${self%/*}/../.." || exit 1

out=${OUT:-build/gpu-out}
build=${BUILD:-build}
total_s=${TOTAL_S:-520}
python=${PYTHON:-python3}
here=tests/gpu
rows=$out/measurements.jsonl
log=$out/run.log

export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

all_parts=(device check gemm memory overlap launch copy torch-ops cupti torch-train)
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

# part NAME LIMIT_S COMMAND...: runs it unless it was not asked for
part() {
    local name=$1 limit_s=$2 began=$SECONDS left_s=$((total_s - SECONDS)) rc
    shift 2
    [[ " ${parts[*]} " == *" $name "* ]] || return 0
    if ((left_s < 15)); then
        failed=1
        verdict "$name" "SKIPPED, no time left"
        return 0
    fi
    ((limit_s > left_s)) && limit_s=$left_s

    echo "---- $name" | tee -a "$log"
    timeout -k 5 "$limit_s" "$@" 2>&1 | tee -a "$log"
    rc=${PIPESTATUS[0]}
    # A row cut short must not take the next part's first row with it.
    [ -z "$(tail -c 1 "$rows")" ] || echo >>"$rows"
    case $rc in
    0) verdict "$name" "ok ($((SECONDS - began)) s)" ;;
    77) verdict "$name" "SKIPPED ($((SECONDS - began)) s)" ;;
    124 | 137)
        failed=1
        verdict "$name" "TIMEOUT ($((SECONDS - began)) s)"
        ;;
    *)
        failed=1
        verdict "$name" "FAILED($rc) ($((SECONDS - began)) s)"
        ;;
    esac
    return 0
}

measure() { # NAME LIMIT_S BUDGET_S
    part "$1" "$2" "$build/gpu/gpu_measure" "$1" --out "$rows" --budget-s "$3" --date "$date"
}

parts=("$@")
((${#parts[@]})) || parts=("${all_parts[@]}")
for name in "${parts[@]}"; do
    [[ " ${all_parts[*]} " == *" $name "* ]] || die "no part '$name', there are: ${all_parts[*]}"
done

# ---- build, and look for a GPU ----

# A newer compiler's new warning must not cost the run.
BUILD=$build WERROR='' "$BASH" $here/build.sh || exit 1
mkdir -p "$out" || die "cannot make '$out'"
: >"$rows" || die "cannot write '$rows'"
: >"$log"
date=$(date -u +%Y-%m-%d)
echo "built in $SECONDS s" | tee -a "$log"

"$build/gpu/gpu_measure" device --out "$rows" --date "$date" 2>&1 | tee -a "$log"
rc=${PIPESTATUS[0]}
((rc == 77)) && exit 77
: >"$rows"

# ---- the parts, the most valuable first ----

measure device 30 30
measure check 60 60
measure gemm 160 135
measure memory 60 45
measure overlap 60 45
measure launch 30 30
measure copy 45 30
part torch-ops 75 "$python" $here/torch_ops.py --out "$rows" --budget-s 60
if [ -x "$build/gpu/gpu_cupti" ]; then
    part cupti 40 "$build/gpu/gpu_cupti" cupti --out "$rows" --budget-s 30
fi
part torch-train 120 "$python" $here/torch_train.py --out "$rows" --budget-s 105

# ---- the table ----

{
    echo
    echo "==== $SECONDS s, $(wc -l <"$rows") rows in $rows"
    printf '%s\n' "${verdicts[@]}"
    "$python" $here/make_gpu_file.py --summary "$rows"
} 2>&1 | tee -a "$log"
exit $failed
