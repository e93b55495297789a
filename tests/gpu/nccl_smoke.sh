#!/usr/bin/env bash
#
# nccl_smoke.sh - does the NCCL path work? several ranks, processes, on one GPU.
#
#     tests/gpu/nccl_smoke.sh              after make, from anywhere
#
# NCCL refuses two ranks on one GPU, unless NCCL_HOSTID makes it believe that they are on
# several hosts; then it talks through sockets.  Ranks take turns on the GPU, a time slice each:
# no time measured here says anything, only losses count.  They are compared with the CPU's.
# With as many GPUs as ranks each gets its own, and NCCL_HOSTID is left out.
#
# Environment: BUILD (build), LOCKSTEP, CASE_S (180) a job's limit, STEPS (3).
# Exit status 0 all is well, 1 something is not, 77 no GPU or no plugin.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
lockstep=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}
case_s=${CASE_S:-180}
steps=${STEPS:-3}
folder=$(mktemp -d) || exit 1
pids=()
passed=0 failed=0
export LC_ALL=C

end() {
    local pid
    for pid in "${pids[@]:-}"; do
        # `timeout` leads a group, in which the rank is.
        [ -z "$pid" ] || kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

fail() {
    failed=$((failed + 1))
    echo "nccl_smoke: $*"
}

# Of what NCCL would look for on a real cluster, nothing is wanted here; few blocks each, as all
# ranks' kernels must find room on one GPU.
smoke_environment=(NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0
    NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 NCCL_RAS_ENABLE=0 NCCL_GIN_ENABLE=0 NCCL_MAX_CTAS=2
    NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_DEBUG=WARN)

# rank_environment RANK WORLD: a line each
rank_environment() {
    if [ "$gpus" -lt "$2" ]; then
        printf '%s\n' "${smoke_environment[@]}" "NCCL_HOSTID=h$1"
    fi
}

# start WORLD SCENARIO: all ranks, in the background; their pids in pids
start() {
    local world=$1 scenario=$2 rank
    pids=()
    rm -f "$folder/meet"
    for ((rank = 0; rank < world; rank++)); do
        mapfile -t variables < <(rank_environment "$rank" "$world")
        env "${variables[@]}" timeout -k 5 "$case_s" "$lockstep" run "$scenario" --backend cuda \
            --rank "$rank" --world "$world" --local-rank "$rank" --timeout $((case_s / 2)) \
            --rendezvous "file:$folder/meet" --steps "$run_steps" --json \
            >"$folder/out.$rank" 2>"$folder/err.$rank" &
        pids+=($!)
    done
}

. tests/gpu/losses.sh

# job NAME WORLD SCENARIO
job() {
    local name=$1 world=$2 scenario=$3 pid status=0
    if ! timeout --foreground 60 "$lockstep" run "$scenario" --steps "$steps" --json \
        >"$folder/cpu" 2>"$folder/cpu.err"; then
        fail "$name: the CPU cannot: $(tail -n 1 "$folder/cpu.err")"
        return
    fi
    run_steps=$steps
    start "$world" "$scenario"
    for pid in "${pids[@]}"; do
        wait "$pid" || status=$?
    done
    pids=()
    if [ $status != 0 ]; then
        fail "$name: status $status: $(tail -qn 2 "$folder"/err.* | tr '\n' ' ')"
    elif grep -q 'makes no CUDA graph' "$folder"/err.*; then
        fail "$name: $(grep -hm 1 'makes no CUDA graph' "$folder"/err.*)"
    elif ! same_losses "$folder/cpu" "$folder/out.0" 1e-3; then
        fail "$name: losses $(losses "$folder/out.0" | tr '\n' ' '), on the CPU $(losses \
            "$folder/cpu" | tr '\n' ' ')"
    else
        passed=$((passed + 1))
        echo "nccl_smoke: $name: losses as on the CPU"
    fi
}

# A rank is killed while it trains: the other one ends by itself, with a sentence.
kill_one() {
    local began status rank
    run_steps=100000
    start 2 "$1"
    for ((began = SECONDS; SECONDS - began < 90; )); do
        grep -q 'step ' "$folder/err.0" && break
        sleep 0.5
    done
    if ! grep -q 'step ' "$folder/err.0"; then
        fail "killed rank: no step was made: $(tail -qn 1 "$folder"/err.* | tr '\n' ' ')"
        return
    fi
    # The rank is the child of its `timeout`; where neither tells it, the whole group goes.
    rank=$(cat "/proc/${pids[1]}/task/${pids[1]}/children" 2>/dev/null ||
        pgrep -P "${pids[1]}" 2>/dev/null)
    if [ -n "$rank" ]; then
        kill -KILL $rank
    else
        kill -KILL -- "-${pids[1]}"
    fi
    began=$SECONDS
    wait "${pids[0]}"
    status=$?
    wait "${pids[1]}"
    pids=()
    if [ $status = 1 ] && grep -q 'rank 1' "$folder/err.0"; then
        passed=$((passed + 1))
        echo "nccl_smoke: killed rank: $((SECONDS - began)) s: $(tail -n 1 "$folder/err.0")"
    else
        fail "killed rank: status $status after $((SECONDS - began)) s: $(tail -n 1 \
            "$folder/err.0")"
    fi
}

mlp='"model":{"kind":"mlp","widths":[64,256,64]},"cluster":"dgx-h100","training":{
"global_batch":64,"micro_batch":16,"precision":"f32","optimizer":"adamw"}'
gpt='"model":{"kind":"transformer","layers":4,"hidden":128,"heads":4,"vocab":256,"max_seq":64,
"positions":"learned"},"cluster":"dgx-h100","training":{"global_batch":8,"micro_batch":1,
"seq_len":64,"precision":"f32","optimizer":"adamw"}'
scenario() {
    printf '{"name":"%s",%s,"parallel":%s}\n' "$1" "$2" "$3" >"$folder/$1.json"
}
scenario ddp "$mlp" '{"strategy":"ddp","dp":2}'
scenario fsdp "$gpt" '{"strategy":"fsdp","dp":2}'
scenario tp "$gpt" '{"strategy":"ddp","tp":2,"sequence_parallel":true}'
scenario pp "$gpt" '{"strategy":"ddp","pp":3,"schedule":"1f1b"}'
scenario turns "$gpt" '{"strategy":"ddp","pp":2,"schedule":"interleaved","virtual_stages":2}'

if ! [ -x "$lockstep" ]; then
    echo "nccl_smoke: there is no $lockstep: make builds it"
    exit 77
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" = 0 ] && [ -e /dev/nvidia0 ] && gpus=1
if [ "$gpus" = 0 ]; then
    echo "nccl_smoke: skipped, nvidia-smi shows no GPU"
    exit 77
fi
plugins=${LOCKSTEP_PLUGIN_DIR:-$(dirname "$lockstep")}
if ! [ -e "$plugins/lockstep-cuda.so" ]; then
    echo "nccl_smoke: skipped, there is no $plugins/lockstep-cuda.so"
    exit 77
fi

job "ddp on 2 ranks" 2 "$folder/ddp.json"
job "fsdp on 2 ranks" 2 "$folder/fsdp.json"
job "tensor parallel on 2 ranks" 2 "$folder/tp.json"
job "pipeline of 3 ranks" 3 "$folder/pp.json"
job "interleaved pipeline of 2 ranks" 2 "$folder/turns.json"
kill_one "$folder/ddp.json"
echo "nccl_smoke: $passed passed, $failed failed"
[ $failed = 0 ]
