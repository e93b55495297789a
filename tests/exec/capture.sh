#!/bin/sh
# capture.sh - the collector, recording programs: on a stand-in for CUPTI and for the driver
# (tests/cupti/), so without a GPU.  Skipped where the collector was not built.

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

build=$(dirname "$lockstep")
plugin=$build/lockstep-capture.so
if [ ! -e "$plugin" ] || [ ! -e "$build/tests/cupti/gpu_program" ]; then
    skip capture "the collector was not built: no CUPTI here"
    tally
    exit
fi

# The stand-in has the name of the library that the plugin depends on, and comes before it.
mkdir "$folder/lib"
soname=$(readelf -d "$plugin" | sed -n 's/.*NEEDED.*\[\(libcupti[^]]*\)\]/\1/p')
cp "$build/tests/cupti/libcupti.so" "$folder/lib/$soname"
cp "$build/tests/cupti/libcuda.so.1" "$folder/lib/"
FAKE_CUPTI=$soname
export FAKE_CUPTI LD_LIBRARY_PATH="$folder/lib"
unset RANK WORLD_SIZE CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH NCCL_PROFILER_PLUGIN
program=$PWD/$build/tests/cupti/gpu_program
case $build in /*) program=$build/tests/cupti/gpu_program ;; esac
trace=$folder/p/trace.lstrace

# profile ARGUMENT...: gpu_program under the collector; sets status, out and err.
profile()
{
    rm -rf "$folder/p"
    "$lockstep" profile --out "$folder/p" -- "$program" "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    out=$(cat "$folder/out") err=$(cat "$folder/err")
}

# The first row of the table says: rank process kernels comm copies calls seconds lost ...
column()
{
    sed -n 3p "$folder/out" | awk "{ print \$$1 }"
}

# expect WHAT IS SHOULD
expect()
{
    if [ "$2" = "$3" ]; then
        pass
    else
        fail "$1 is '$2', not '$3': $out $err"
    fi
}

# said TEXT: standard error has a line with it.
said()
{
    case $err in
    *"$1"*) pass ;;
    *) fail "standard error lacks '$1': $err" ;;
    esac
}

names()
{
    "$lockstep" convert "$trace" "$folder/t.json" && grep -o "$1" "$folder/t.json" | sort |
        uniq -c | awk '{ $1 = $1; print }'
}

begin "a program that ends well is recorded to its last kernel"
profile 30000
expect status "$status" 0
expect kernels "$(column 3)" 30000
expect calls "$(column 6)" 30000
expect lost "$(column 8)" 0
expect "standard error" "$err" ""
expect "names of kernels" "$(names 'void gemm<float>(int)')" "30000 void gemm<float>(int)"
expect "raw folders" "$(ls "$folder/p")" trace.lstrace

begin "a crash keeps what was recorded"
profile 20000 segv
expect status "$status" 139
expect kernels "$(column 3)" 20000
said "was ended by signal 11 (Segmentation fault); what it had recorded is here"
profile 100 abort
expect status "$status" 134
expect kernels "$(column 3)" 100

begin "a program that leaves without a word loses its last second at most"
profile 500 quit
expect status "$status" 0
expect kernels "$(column 3)" 500
said "did not end in order"

begin "a signal to lockstep ends the program and keeps the recording"
rm -rf "$folder/p"
"$lockstep" profile --out "$folder/p" -- "$program" 700 term >"$folder/out" 2>"$folder/err" &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(find "$folder/p" -name '*.lsraw' 2>/dev/null)" ] && break
    sleep 0.2
done
sleep 0.3
kill -TERM $pid
wait $pid
status=$? out=$(cat "$folder/out") err=$(cat "$folder/err")
expect status "$status" 143
expect kernels "$(column 3)" 700
said "signal 15 (Terminated): the command gets it"

begin "a child that is forked leaves the parent's recording alone"
profile 300 fork
expect status "$status" 0
expect kernels "$(column 3)" 301
expect "standard error" "$err" ""

begin "a program that becomes another is recorded twice, as one rank"
profile 40 exec
expect status "$status" 0
expect "kernels of both" "$(column 3) $(sed -n 4p "$folder/out" | awk '{ print $1, $3 }')" "40 1 40"

begin "ranks of a job"
rm -rf "$folder/p"
"$lockstep" profile --out "$folder/p" -- sh -c "for r in 0 1 2; do
    RANK=\$r WORLD_SIZE=3 LOCAL_RANK=\$r $program \$((r + 1))0 & done; wait" >"$folder/out" 2>&1
out=$(cat "$folder/out")
expect "ranks and kernels" "$(sed -n '3,5p' "$folder/out" | awk '{ printf "%s:%s ", $1, $3 }')" \
    "0:10 1:20 2:30 "
expect "traces of ranks" "$(ls "$folder/p/ranks" | tr '\n' ' ')" \
    "rank0.lstrace rank1.lstrace rank2.lstrace "

begin "what NCCL says is joined with its kernels"
profile 5 nccl
expect kernels "$(column 3)" 7
expect "communication" "$(column 4)" 2
expect "algorithm" "$(names '"TREE"\|"tree"')" '2 "tree"'
expect "protocol" "$(names '"LL128"')" '2 "LL128"'

begin "another tool that is attached is named"
FAKE_OTHER="Nsight Systems" profile 5
expect status "$status" 1
said "another tool is attached to CUPTI: Nsight Systems, and it serves one at a time"
said "nothing was recorded:"
expect "what is left" "$(ls -d "$folder/p" 2>/dev/null)" ""

begin "dropped records are counted"
FAKE_NO_BUFFERS=1 profile 5
expect status "$status" 1
said "nothing was recorded: the program opened a GPU and ran nothing on it"
said "CUPTI dropped 10 records"

begin "there is a buffer for each of many threads"
FAKE_THREADS=300 profile 60000
expect status "$status" 0
expect kernels "$(column 3)" 60000
expect lost "$(column 8)" 0
FAKE_KEEPS=1 FAKE_THREADS=3000 profile 3000 # two records a kernel: two in each of 1024 buffers
said "CUPTI dropped 3952 records, it had no buffer free"
expect lost "$(column 8)" 3952

begin "a file that cannot grow ends the recording, not the program"
out=$( (ulimit -f 1000; rm -rf "$folder/p"; "$lockstep" profile --keep-raw --out "$folder/p" -- \
    "$program" 60000 quit) 2>&1)
status=$? err=$out
said "could not grow (File too large)"
echo "$out" >"$folder/out"
kept=$(echo "$out" | awk '$1 == 0 && $2 ~ /^[0-9]+$/ { print $3 }')
if [ "${kept:-0}" -gt 1000 ] && [ "$kept" -lt 60000 ]; then
    pass
else
    fail "kernels kept: '$kept' of 60000: $out"
fi

begin "a program records itself: ops, graphs, and not a word where there is none"
out=$("$program" 4 api "$plugin" "$folder/x.lsraw")
expect "what it says" "$out" "stop: whole, 0 dropped, records"
mkdir "$folder/raw" && mv "$folder/x.lsraw" "$folder/raw/" && rm -rf "$folder/p"
out=$("$lockstep" profile --merge "$folder/raw" --out "$folder/p" 2>&1)
expect "kernels" "$(echo "$out" | sed -n 3p | awk '{ print $3 }')" 7
expect "ops" "$(names '"op": *4[0-9]' | tr -d ' ')" '9"op":41
1"op":43'
rm -f "$folder/x.lsraw"
out=$(FAKE_OTHER=gdb "$program" 4 api "$plugin" "$folder/x.lsraw")
case $out in
"start: another tool is attached to CUPTI: gdb"*) pass ;;
*) fail "it says: $out" ;;
esac

# The whole of `run --trace` on GPUs: the CUDA backend on its own stand-in tells this one what it
# launches (tests/on_cpu/runtime.cu).  From the third step on a CUDA graph is played.
# train NAME ARGUMENT...: writes $folder/NAME.lstrace and .json; sets out and err.
train()
{
    name=$1
    shift
    LOCKSTEP_PLUGIN_DIR=$build/tests/on_cpu "$lockstep" run "$folder/gpt.json" --backend cuda \
        --json --trace "$folder/$name.lstrace" "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    out=$(cat "$folder/out") err=$(cat "$folder/err")
    "$lockstep" convert "$folder/$name.lstrace" "$folder/$name.json"
}

# kernels_with NAME TEXT: how many spans have it.
kernels_with()
{
    tr '}' '\n' <"$folder/$1.json" | grep -c "$2"
}

cat >"$folder/gpt.json" <<'END'
{ "name": "gpt", "model": { "kind": "transformer", "layers": 1, "hidden": 16, "heads": 2,
    "vocab": 24, "max_seq": 8 },
  "cluster": { "base": "pcie-workstation", "nodes": 1, "gpus_per_node": 2 },
  "training": { "global_batch": 2, "micro_batch": 1, "seq_len": 8, "precision": "f32" },
  "parallel": { "strategy": "ddp", "dp": 1 } }
END
if [ -e "$build/tests/on_cpu/lockstep-cuda.so" ]; then
    begin "a training's kernels have their ops, launched one by one and played"
    train one --steps 4 --trace-predicted "$folder/predicted.lstrace"
    expect status "$status" 0
    expect "its times" "$(grep -o '"trace_times": "[a-z]*' "$folder/out")" '"trace_times": "cupti'
    all=$(kernels_with one stand_in)
    expect "kernels with an op" "$(kernels_with one 'stand_in.*"op"')" "$all"
    expect "kernels of a logical op" "$(kernels_with one 'stand_in.*"logical"')" "$all"
    expect "kernels of four like steps" "$((all > 200 && all % 4 == 0))" 1
    expect "steps" "$(kernels_with one ProfilerStep)" 4
    # Of every kernel the call that launched it.
    expect "unknown launches" "$("$lockstep" report "$folder/one.lstrace" |
        awk '$1 " " $2 == "rank 0" && NF == 14 { print $NF }')" 0
    expect "op by op" "$("$lockstep" compare "$folder/one.lstrace" "$folder/one.lstrace" |
        grep -c 'paired, by op id')" 1

    # "stand_in" says no class: the op's name does.
    "$lockstep" compare "$folder/predicted.lstrace" "$folder/one.lstrace" >"$folder/compared"
    expect "beside the prediction" "$(grep -o '.* is paired, by op id' "$folder/compared")" \
        "100.0 % of real GPU time is paired, by op id"
    expect "ops without a class" "$(grep -c '^other' "$folder/compared")" 0

    # Another stack's prediction of the same model: by what its kernels do of it.
    "$lockstep" sim "$folder/gpt.json" --trace "$folder/generic.lstrace" >/dev/null
    expect "beside another stack's" "$("$lockstep" compare "$folder/generic.lstrace" \
        "$folder/one.lstrace" | grep -o '.* is paired, by [a-z ]*')" \
        "100.0 % of real GPU time is paired, by logical op"

    # What was recorded calibrates a GPU's file, the kernels of an op added up.
    echo '{"base": "h100-80gb"}' >"$folder/gpu.json"
    "$lockstep" calibrate "$folder/one.lstrace" --scenario "$folder/gpt.json" \
        --into "$folder/gpu.json" >"$folder/calibrated" 2>"$folder/err"
    expect "calibrates, $(cat "$folder/err")" "$?" 0
    "$lockstep" sim "$folder/gpt.json" --set software=lockstep \
        --set "cluster.gpu=$folder/gpu.json" --trace "$folder/again.lstrace" >/dev/null
    "$lockstep" compare "$folder/again.lstrace" "$folder/one.lstrace" >"$folder/compared"
    expect "predicted by it" "$(awk '$1 == "compute" {
        print ($NF == "%" && $(NF - 1) > -20 && $(NF - 1) < 20) }' "$folder/compared")" 1

    begin "ranks that share a process have kernels of their own"
    train two --steps 2 --comm loop --set parallel.dp=2
    expect status "$status" 0
    # An all-reduce of several kernels, one in each step.
    expect "all-reduces" "$("$lockstep" report "$folder/two.lstrace" |
        awk '$1 == "all_reduce" { print $6, $4, $5; exit }')" "2 14.94 KiB"
    for pid in 1 2; do
        [ "$(kernels_with two "all_reduce.*\"pid\": *$pid,")" -gt 0 ]
        expect "rank $((pid - 1)) reduces" "$?" 0
    done

    begin "where the collector does not attach, events take the times"
    FAKE_OTHER=gdb train none --steps 2
    expect status "$status" 0
    expect "its times" "$(grep -o '"trace_times": "[a-z]*' "$folder/out")" '"trace_times": "events'
    said "times of the trace are those of CUDA's events: another tool is attached to CUPTI: gdb"
    LOCKSTEP_CAPTURE=$folder/nowhere train none --steps 1
    said "CUDA's events: there is no lockstep-capture.so: it is built where CUPTI is"
    LOCKSTEP_CAPTURE=$folder/gpt.json train none --steps 1
    said "CUDA's events: the collector cannot be loaded: "
    LOCKSTEP_CAPTURE=$build/tests/on_cpu/lockstep-cuda.so train none --steps 1
    said "belongs to another build of lockstep"
else
    skip "training" "the stand-in was not built: no C++ compiler"
fi

tally
