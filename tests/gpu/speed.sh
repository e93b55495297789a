#!/usr/bin/env bash
#
# speed.sh - tokens/s of `lockstep run --backend cuda`, what was predicted, and PyTorch beside it.
#
#     tests/gpu/speed.sh              after make, from anywhere
#
# GPT-2 124M (16 sequences of 1,024) and a Llama shape of 1.1 B (4 of 2,048), bf16, one GPU.  The
# prediction is for the GPU's file: as it is in the tree, and the one that bench made in this run
# (OUT/gpu.json), when it is there.  PyTorch comes last (torch_speed.py): compiling takes long.
#
# Environment: BUILD (build), LOCKSTEP, OUT (build/gpu-out) for rows of measurements.jsonl
# ({"part":"speed",...}), GPU (h100-80gb) the file in the tree, STEPS (15), CASE_S (60) a run's
# limit, TORCH_S (95) PyTorch's, PYTHON (python3; "" leaves PyTorch out).
# Exit status 0 all ran, 1 one did not, 77 no GPU or no plugin.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
lockstep=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}
out=${OUT:-build/gpu-out}
rows=$out/measurements.jsonl
gpu=${GPU:-h100-80gb}
steps=${STEPS:-15}
case_s=${CASE_S:-60}
python=${PYTHON-python3}
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

# ours MODEL BATCH SEQ NAME [OPTION...]
ours() {
    local model=$1 batch=$2 seq=$3 name=$4 file=$folder/run.json step_s predicted_s
    shift 4
    printf '{"name":"%s","model":"%s","cluster":{"base":"dgx-h100","nodes":1,"gpus_per_node":1,
        "gpu":"%s"},"training":{"global_batch":%s,"micro_batch":%s,"seq_len":%s,
        "precision":"bf16","optimizer":"adamw","lr":6e-4},"parallel":{"strategy":"single"}}\n' \
        "$model" "$model" "$gpu" "$batch" "$batch" "$seq" >"$folder/scenario.json"
    if ! timeout -k 5 "$case_s" "$lockstep" run "$folder/scenario.json" --backend cuda \
        --steps "$steps" --json "$@" >"$file" 2>"$folder/err"; then
        failed=1
        echo "speed: $model, $name: $(tail -n 1 "$folder/err")"
        return
    fi
    step_s=$(number "$file" step_time_s median)
    predicted_s=$(number "$file" predicted step_time_s)
    awk -v m="$model" -v n="$name" -v t="$step_s" -v p="$predicted_s" -v b="$batch" -v s="$seq" \
        -v rows="$rows" 'BEGIN {
        if (t <= 0) exit 1
        printf "{\"part\":\"speed\",\"model\":\"%s\",\"by\":\"lockstep, %s\",", m, n >>rows
        printf "\"batch\":%d,", b >>rows
        printf "\"seq\":%d,\"step_us\":%.1f,\"tokens_per_s\":%.0f,", s, t * 1e6, b * s / t >>rows
        printf "\"predicted_us\":%.1f,\"error_pct\":%.2f}\n", p * 1e6, 100 * (p / t - 1) >>rows
        printf "speed: %s, lockstep, %s: %.2f ms, %.0f tokens/s; predicted %.2f ms (%+.1f %%)\n",
            m, n, t * 1e3, b * s / t, p * 1e3, 100 * (p / t - 1) }' || failed=1
}

if ! [ -x "$lockstep" ] ||
    { ! nvidia-smi -L 2>/dev/null | grep -q '^GPU' && ! [ -e /dev/nvidia0 ]; }; then
    echo "speed: skipped, no GPU or no $lockstep"
    exit 77
fi
plugins=${LOCKSTEP_PLUGIN_DIR:-$(dirname "$lockstep")}
if ! [ -e "$plugins/lockstep-cuda.so" ]; then
    echo "speed: skipped, there is no $plugins/lockstep-cuda.so"
    exit 77
fi

for shape in "gpt2 16 1024" "tinyllama-1.1b 4 2048"; do
    read -r model batch seq <<<"$shape"
    ours "$model" "$batch" "$seq" "graphs"
    ours "$model" "$batch" "$seq" "op by op" --no-cuda-graphs
    [ -s "$out/gpu.json" ] &&
        ours "$model" "$batch" "$seq" "predicted by this run's file" \
            --set "cluster.gpu=$(cd "$out" && pwd)/gpu.json"
done
if [ -n "$python" ]; then
    timeout -k 5 "$((${TORCH_S:-95} + 10))" "$python" tests/gpu/torch_speed.py --out "$rows" \
        --budget-s "${TORCH_S:-95}"
    rc=$?
    ((rc == 0 || rc == 77)) || failed=1
fi
exit $failed
