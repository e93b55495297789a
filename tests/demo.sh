#!/bin/sh
# demo.sh - what `make demo` shows: one model, three strategies, and a trace to look at; then a
# small network that two processes train for real, with what was predicted beside it.
# LOCKSTEP is the program to run.

cd "$(dirname "$0")/.." || exit 1
lockstep=${LOCKSTEP:-build/lockstep}
trace=$(dirname "$lockstep")/demo-trace.json

# Shows a command as one would type it, then runs it.
show()
{
    printf '\n$ %s\n' "$*"
    "$@" || exit 1
}

show "$lockstep" sim scenarios/examples/llama3-8b-ddp.json \
    scenarios/examples/llama3-8b-fsdp.json scenarios/examples/llama3-8b-tp.json
show "$lockstep" sim scenarios/examples/llama3-8b-fsdp.json --trace "$trace"
printf '\nOpen %s in ui.perfetto.dev or chrome://tracing.\n' "$trace"

printf '\nAnd for real: two processes train a small network on this machine.\n'
show "$lockstep" run scenarios/examples/small-mlp-ddp.json --steps 50
