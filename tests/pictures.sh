#!/bin/sh
# pictures.sh - the pictures of the README, 1280x720, drawn without a display.
#
#   pictures.sh FOLDER      into FOLDER; LOCKSTEP is the program
#
# Those of recorded traces are drawn where ../shared/data/traces stands beside the repository;
# elsewhere the ones in FOLDER stay as they are.  A picture over 200 KB is an error.

cd "$(dirname "$0")/.." || exit 1
lockstep=${LOCKSTEP:-build/lockstep}
to=${1:?usage: pictures.sh FOLDER}
traces=../shared/data/traces
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$to" || exit 1

# draw NAME ARGUMENT...: lockstep view ARGUMENT... into NAME.png
draw()
{
    name=$1
    shift
    "$lockstep" view "$@" --size 1280x720 --render "$to/$name.png" || exit 1
    bytes=$(wc -c <"$to/$name.png")
    echo "$to/$name.png: $((bytes / 1000)) KB"
    [ "$bytes" -lt 200000 ] || { echo "pictures.sh: $name.png is over 200 KB" >&2; exit 1; }
}

# simulate NAME ARGUMENT...: lockstep sim ARGUMENT... into a trace
simulate()
{
    name=$1
    shift
    "$lockstep" sim "$@" --trace "$work/$name.lstrace" >"$work/log" || { cat "$work/log"; exit 1; }
}

simulate fsdp llama3-8b-fsdp --expand-ranks
draw fsdp "$work/fsdp.lstrace" --ranks 0-3
simulate pipeline gpt3-175b-pp --set training.global_batch=16
draw pipeline "$work/pipeline.lstrace"
draw pipeline-close "$work/pipeline.lstrace" --window 1.75s+120ms --ranks 8-23 --theme light

# A small network trained for real by two processes, beside what was predicted.  Where `run`
# does not write its prediction, a machine is made up on which processes can keep pace.
set -- small-mlp-ddp --steps 5 --trace "$work/run.lstrace"
slow='--set cluster.gpu.peak_tflops.f32=0.04 --set cluster.gpu.memory_GBps=1
      --set cluster.gpu.launch_us=50'
if "$lockstep" run --help | grep -q -- --trace-predicted; then
    "$lockstep" run "$@" --trace-predicted "$work/predicted.lstrace" >"$work/log" || exit 1
else
    # shellcheck disable=SC2086
    "$lockstep" run "$@" --clock paced $slow >"$work/log" || exit 1
    # shellcheck disable=SC2086
    simulate predicted small-mlp-ddp --expand-ranks $slow
fi
draw split "$work/run.lstrace" --compare "$work/predicted.lstrace" --view split
draw diff "$work/run.lstrace" --compare "$work/predicted.lstrace" --view diff

simulate gpu traces/samples/gpt2.json --set model.vocab=50304 \
    --set cluster.gpu=traces/samples/h200-lockstep.json
draw gpu traces/samples/gpt2.lstrace --compare "$work/gpu.lstrace" --view split \
    --window 279.4ms+7ms

if [ -d "$traces" ]; then
    draw megatron "$traces"/megatron-tp8/kineto_rank*.json.gz --window 280ms+60ms
    draw critical "$traces"/megatron-tp8/kineto_rank*.json.gz --window 300ms+20ms --critical
    draw dlrm "$traces/param-dlrm8" --theme light
fi
