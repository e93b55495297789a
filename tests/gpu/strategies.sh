#!/usr/bin/env bash
#
# strategies.sh - does a GPU train as the CPU does? every strategy, ranks in a loop on one GPU.
#
#     tests/gpu/strategies.sh              after make, from anywhere
#
# The same scenario on both backends, the losses of each step side by side.  A loss of step k
# has seen the gradients and updates of all steps before it, and clipping has seen their norm:
# gradients that are wrong show in the next loss: what bf16 is trained with is SGD, as AdamW's
# steps are the same for gradients ten times too large.  f32 is compared to 1 in 10,000 (tf32 is off
# by 1 in 1,000 from then on), bf16 and f16 to 5: on the CPU they are off from f32 by 1, and
# gradients that are 10 % too small are seen as 20 or more.
#
# One rank trains as `run` does it, with CUDA graphs: a step op by op, one recorded, and played
# from then on.  A step that makes no graph is a failure.
#
# Environment: BUILD (build), LOCKSTEP, CASE_S (60) a case's limit, STEPS (4), OUT for rows of
# measurements.jsonl: {"part":"strategies","case":...,"off":...}, ALL_ON_CPU=1 compares the CPU
# with itself (a test of this file).
# Exit status 0 all equal, 1 one is not, 77 no GPU or no plugin.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
lockstep=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}
case_s=${CASE_S:-60}
steps=${STEPS:-4}
rows=${OUT:+$OUT/measurements.jsonl}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
export LC_ALL=C

. tests/gpu/losses.sh

# A limit within a limit: --foreground, or it would be a group of its own that outlives this one.
cuda=(--backend cuda)
loop=(--comm loop)
[ -z "${ALL_ON_CPU:-}" ] || cuda=() loop=()

# same NAME MODEL PARALLEL PRECISION LIMIT [OPTION...]
same() {
    local name=$1 scenario=$folder/scenario.json limit=$5 off
    printf '{"name":"%s",%s,"parallel":%s}\n' "$name" "${2/PRECISION/$4}" "$3" >"$scenario"
    shift 5
    local settings=() # of the scenario: for the CPU as well
    [ "${1:-}" != --set ] || settings=("$1" "$2")
    if ! timeout --foreground -k 5 "$case_s" "$lockstep" run "$scenario" --steps "$steps" --json \
        "${settings[@]}" >"$folder/cpu" 2>"$folder/err"; then
        failed=$((failed + 1))
        echo "strategies: $name: the CPU cannot: $(tail -n 1 "$folder/err")"
        return
    fi
    if ! timeout --foreground -k 5 "$case_s" "$lockstep" run "$scenario" --steps "$steps" --json \
        "${cuda[@]}" "$@" >"$folder/gpu" 2>"$folder/err" ||
        grep -q 'makes no CUDA graph' "$folder/err"; then
        failed=$((failed + 1))
        echo "strategies: $name: $(tail -n 1 "$folder/err")"
        return
    fi
    off=$(largest_difference "$folder/cpu" "$folder/gpu")
    [ -z "$rows" ] || printf '{"part":"strategies","case":"%s","off":"%s","limit":%s}\n' \
        "$name" "$off" "$limit" >>"$rows"
    if same_losses "$folder/cpu" "$folder/gpu" "$limit"; then
        passed=$((passed + 1))
        echo "strategies: $name: losses of $steps steps differ by $off at most"
    else
        failed=$((failed + 1))
        echo "strategies: $name: differ by $off: $(losses "$folder/cpu" | tr '\n' ' ') on the" \
            "CPU, $(losses "$folder/gpu" | tr '\n' ' ') on the GPU"
    fi
}

# The same with ranks in a loop.
loop() {
    same "$@" "${loop[@]}"
}

cluster='"cluster":{"base":"pcie-workstation","nodes":1,"gpus_per_node":8}'
mlp="\"model\":{\"kind\":\"mlp\",\"widths\":[64,256,256,64],\"activation\":\"relu\"},$cluster,
\"training\":{\"global_batch\":64,\"micro_batch\":8,\"precision\":\"PRECISION\",\"lr\":0.05,
\"optimizer\":\"momentum\",\"loss\":\"mse\",\"grad_clip\":0.5}"
gpt="\"model\":{\"kind\":\"transformer\",\"layers\":4,\"hidden\":128,\"heads\":8,\"vocab\":256,
\"max_seq\":64,\"activation\":\"gelu\",\"norm\":\"layernorm\",\"positions\":\"learned\",
\"tied_embeddings\":true},$cluster,\"training\":{\"global_batch\":8,\"micro_batch\":1,
\"seq_len\":64,\"precision\":\"PRECISION\",\"lr\":0.001,\"optimizer\":\"adamw\",\"grad_clip\":0.5}"
llama="\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":256,\"heads\":4,\"kv_heads\":2,
\"ffn\":512,\"vocab\":512,\"max_seq\":128,\"activation\":\"silu\",\"gated\":true,
\"norm\":\"rmsnorm\",\"positions\":\"rope\"},$cluster,\"training\":{\"global_batch\":4,
\"micro_batch\":1,\"seq_len\":128,\"precision\":\"PRECISION\",\"lr\":0.001,
\"optimizer\":\"adamw\",\"grad_clip\":1}"

sgd='"lr":0.6,"optimizer":"sgd"'
llama=${llama/\"lr\":0.001,
\"optimizer\":\"adamw\",\"grad_clip\":1/$sgd}
wide=${llama/\"heads\":4,\"kv_heads\":2/\"heads\":2,\"kv_heads\":2}
# As `speed` trains it: biases, tanh GELU, weights of the embedding and the head tied.
gpt2="\"model\":{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],
\"activation_function\":\"gelu_new\",\"n_ctx\":64,\"n_embd\":128,\"n_head\":2,\"n_layer\":2,
\"n_positions\":64,\"vocab_size\":256},$cluster,\"training\":{\"global_batch\":4,
\"micro_batch\":4,\"seq_len\":64,\"precision\":\"PRECISION\",$sgd}"

if ! [ -x "$lockstep" ]; then
    echo "strategies: there is no $lockstep: make builds it"
    exit 77
fi
plugins=${LOCKSTEP_PLUGIN_DIR:-$(dirname "$lockstep")}
if [ -z "${ALL_ON_CPU:-}" ]; then
    if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU' && ! [ -e /dev/nvidia0 ]; then
        echo "strategies: skipped, nvidia-smi shows no GPU"
        exit 77
    fi
    if ! [ -e "$plugins/lockstep-cuda.so" ]; then
        echo "strategies: skipped, there is no $plugins/lockstep-cuda.so"
        exit 77
    fi
fi

single='{"strategy":"single"}'
same "one GPU, mlp" "$mlp" "$single" f32 1e-4
same "one GPU, gpt" "$gpt" "$single" f32 1e-4
same "one GPU, llama, bf16" "$llama" "$single" bf16 5e-4
same "one GPU, gpt2, bf16" "$gpt2" "$single" bf16 5e-4
same "one GPU, head_dim 128, bf16" "$wide" "$single" bf16 5e-4
same "one GPU, gpt2, bf16, no flash" "$gpt2" "$single" bf16 5e-4 --set training.attention=math
same "one GPU, gpt2, bf16, recomputed" "$gpt2" "$single" bf16 5e-4 --set training.recompute=full
same "one GPU, gpt2, f16" "$gpt2" "$single" f16 5e-4
loop "ddp 4" "$mlp" '{"strategy":"ddp","dp":4}' f32 1e-4
loop "fsdp 4" "$gpt" '{"strategy":"fsdp","dp":4}' f32 1e-4
loop "tp 2" "$gpt" '{"strategy":"ddp","tp":2}' f32 1e-4
loop "tp 2, sequence parallel" "$gpt" '{"strategy":"ddp","tp":2,"sequence_parallel":true}' f32 1e-4
loop "1f1b 4" "$gpt" '{"strategy":"ddp","pp":4,"schedule":"1f1b"}' f32 1e-4
loop "fsdp 2 x tp 2, bf16" "$llama" '{"strategy":"fsdp","dp":2,"tp":2}' bf16 5e-4
loop "zero1 2" "$mlp" '{"strategy":"zero1","dp":2}' f32 1e-4
loop "zero2 4" "$mlp" '{"strategy":"zero2","dp":4}' f32 1e-4
loop "hsdp 2 x 2" "$mlp" '{"strategy":"hsdp","dp":4,"shard_size":2}' f32 1e-4
loop "dp 2 (DataParallel)" "$mlp" '{"strategy":"dp","dp":2}' f32 1e-4
loop "cp 2" "$gpt" '{"strategy":"ddp","cp":2}' f32 1e-4
loop "gpipe 2 x ddp 2" "$gpt" '{"strategy":"ddp","pp":2,"schedule":"gpipe","dp":2}' f32 1e-4
loop "interleaved 2" "$gpt" \
    '{"strategy":"ddp","pp":2,"schedule":"interleaved","virtual_stages":2}' f32 1e-4
loop "naive 2" "$gpt" '{"strategy":"ddp","pp":2,"schedule":"naive"}' f32 1e-4
[ -n "${ALL_ON_CPU:-}" ] ||
    loop "ddp 2, rings" "$mlp" '{"strategy":"ddp","dp":2}' f32 1e-4 --collectives ring
echo "strategies: $passed passed, $failed failed"
[ $failed = 0 ]
