#!/usr/bin/env bash
#
# speed.sh - tokens/s of `lockstep run --backend cuda`, what was predicted, and PyTorch beside it.
#
#     tests/gpu/speed.sh              after make, from anywhere
#
# GPT-2 124M (16 sequences of 1,024) and a Llama shape of 1.1 B (4 of 2,048), bf16, one GPU: see
# trained.sh.  The prediction is for the GPU's file: as it is in the tree, and the one that bench
# made in this run (OUT/gpu.json), when it is there.  PyTorch comes last (torch_speed.py), with
# what is left of the time: compiling takes long.
#
# Environment: BUILD (build), LOCKSTEP, OUT (build/gpu-out) for rows of measurements.jsonl
# ({"part":"speed",...}), GPU (h100-80gb) the file in the tree, STEPS (15), CASE_S (60) a run's
# limit, SPEED_S (140) that of all, PYTHON (python3; "" leaves PyTorch out), SHAPES what is run
# ("model batch seq vocabulary [KEY=VALUE...]" a line, the rest as for --set), OP_BY_OP=0 leaves
# the run without graphs out, ALL_ON_CPU=1 runs it on the CPU (a test of this file).
# Exit status 0 all ran, 1 one did not, 77 no GPU or no plugin.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
lockstep=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}
out=${OUT:-build/gpu-out}
rows=$out/measurements.jsonl
gpu=${GPU:-h100-80gb}
steps=${STEPS:-15}
case_s=${CASE_S:-60}
speed_s=${SPEED_S:-140}
python=${PYTHON-python3}
. tests/gpu/trained.sh
. tests/gpu/losses.sh
shapes=${SHAPES:-$trained}
cuda=(--backend cuda)
plain=(--no-cuda-graphs)
[ -z "${ALL_ON_CPU:-}" ] || cuda=() plain=()
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
failed=0
export LC_ALL=C
mkdir -p "$out" || exit 1

# number FILE KEY...: the first number behind the keys, one after another
number() {
    local file=$1 pattern='' key
    shift
    for key in "$@"; do
        pattern="$pattern.*\"$key\":"
    done
    tr -d '\n' <"$file" | sed -n "s/^$pattern *\([-+0-9.eE]*\).*/\1/p"
}

# row MODEL BATCH SEQ NAME STEP_S PREDICTED_S
row() {
    awk -v m="$1" -v b="$2" -v s="$3" -v n="$4" -v t="$5" -v p="$6" -v rows="$rows" \
        -v o="${options[*]}" -v g="$global" 'BEGIN {
        if (t <= 0 || p <= 0) exit 1
        printf "{\"part\":\"speed\",\"model\":\"%s\",\"by\":\"lockstep, %s\",", m, n >>rows
        printf "\"batch\":%d,", b >>rows
        if (o != "") printf "\"options\":\"%s\",", o >>rows
        printf "\"seq\":%d,\"step_us\":%.1f,\"tokens_per_s\":%.0f,", s, t * 1e6, g * s / t >>rows
        printf "\"predicted_us\":%.1f,\"error_pct\":%.2f}\n", p * 1e6, 100 * (p / t - 1) >>rows
        printf "speed: %s %d x %d%s, lockstep, %s: ", m, b, s, o == "" ? "" : " " o, n
        printf "%.2f ms, %.0f tokens/s; predicted %.2f ms (%+.1f %%)\n",
            t * 1e3, g * s / t, p * 1e3, 100 * (p / t - 1) }' || failed=1
}

# within S COMMAND...: but no longer than what is left of SPEED_S.  --foreground, or it would be a
# group of its own that outlives this script's.
within() {
    local left_s=$((speed_s - SECONDS)) limit_s=$1
    shift
    ((limit_s < left_s)) || limit_s=$left_s
    ((limit_s > 0)) || {
        echo "no time left" >&2
        return 124
    }
    timeout --foreground -k 5 "$limit_s" "$@"
}

# ours MODEL BATCH SEQ NAME [OPTION...]: step_s is what a step took
ours() {
    local model=$1 batch=$2 seq=$3 name=$4 file=$folder/run.json
    shift 4
    step_s=
    trained_scenario "$model" "$batch" "$seq" "$gpu" >"$folder/scenario.json"
    if ! within "$case_s" "$lockstep" run "$folder/scenario.json" "${cuda[@]}" \
        --steps "$steps" --json --set model.vocab="$vocab" "${sets[@]}" "$@" \
        >"$file" 2>"$folder/err"; then
        failed=1
        echo "speed: $model, $name: $(tail -n 1 "$folder/err")"
        return
    fi
    if grep -q 'makes no CUDA graph' "$folder/err"; then
        failed=1
        name="op by op, as it made no graph"
        grep -m 1 'makes no CUDA graph' "$folder/err"
    fi
    step_s=$(number "$file" step_time_s median)
    row "$model" "$batch" "$seq" "$name" "$step_s" "$(number "$file" predicted step_time_s)"
}

# again MODEL BATCH SEQ: the last run's time beside what the file made in this run predicts
again() {
    [ -n "$step_s" ] && [ -s "$out/gpu.json" ] || return
    if ! within 20 "$lockstep" sim "$folder/scenario.json" --json --set software=lockstep \
        --set model.vocab="$vocab" "${sets[@]}" --set "cluster.gpu=$(cd "$out" && pwd)/gpu.json" \
        >"$folder/sim.json" 2>"$folder/err"; then
        failed=1
        echo "speed: $1, by $out/gpu.json: $(tail -n 1 "$folder/err")"
        return
    fi
    row "$@" "predicted by this run's file" "$step_s" "$(number "$folder/sim.json" step_time_s)"
}

# What is played from a graph trains as what is launched op by op: the same seed, the same data.
check_graphs() {
    [ -n "$step_s" ] && [ -s "$folder/graphs.json" ] || return
    local off
    off=$(largest_difference "$folder/graphs.json" "$folder/run.json")
    echo "speed: losses of $steps steps with graphs and without differ by $off"
    same_losses "$folder/graphs.json" "$folder/run.json" 1e-3 || failed=1
}

if ! [ -x "$lockstep" ]; then
    echo "speed: there is no $lockstep: make builds it"
    exit 77
fi
if [ -z "${ALL_ON_CPU:-}" ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU' &&
    ! [ -e /dev/nvidia0 ]; then
    echo "speed: skipped, nvidia-smi shows no GPU"
    exit 77
fi
plugins=${LOCKSTEP_PLUGIN_DIR:-$(dirname "$lockstep")}
if [ -z "${ALL_ON_CPU:-}" ] && ! [ -e "$plugins/lockstep-cuda.so" ]; then
    echo "speed: skipped, there is no $plugins/lockstep-cuda.so"
    exit 77
fi

op_by_op=${OP_BY_OP-1} # of the first only
[ "$op_by_op" != 0 ] || op_by_op=
while read -r model batch seq vocab options; do
    read -ra options <<<"$options"
    sets=() global=$batch
    for option in "${options[@]}"; do
        sets+=(--set "$option")
        [[ $option != training.global_batch=* ]] || global=${option#*=}
    done
    ours "$model" "$batch" "$seq" "graphs" </dev/null
    again "$model" "$batch" "$seq"
    if [ -n "$op_by_op" ]; then
        cp "$folder/run.json" "$folder/graphs.json" 2>/dev/null
        ours "$model" "$batch" "$seq" "op by op" "${plain[@]}" </dev/null
        check_graphs
    fi
    op_by_op=
done <<<"$shapes"
left_s=$((speed_s - SECONDS))
if [ -n "$python" ] && ((left_s > 20)); then
    timeout --foreground -k 5 "$left_s" "$python" tests/gpu/torch_speed.py --out "$rows" \
        --budget-s "$((left_s - 10))"
    rc=$?
    ((rc == 0 || rc == 77)) || failed=1
fi
exit $failed
