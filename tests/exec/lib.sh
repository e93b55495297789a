# lib.sh - what the scripts of this folder share; they source it from the root.
#
#   begin NAME          names the test that comes, in the log
#   pass, fail WHY      count it
#   skip WHAT WHY       says that it cannot be done here
#   tally               prints "NAME: N passed, M failed"; its status is the script's
#
# Every script has a folder of its own, $folder, that goes when it ends, with two jobs in
# it: two.json (a small mlp on two ranks) and four.json.  LOCKSTEP is the program.

lockstep=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}
script=exec_$(basename "$0" .sh)
passed=0 failed=0 test=
folder=$(mktemp -d) || exit 1
trap end EXIT
trap 'exit 130' INT TERM
export LC_ALL=C

# Whatever is still there of this script's jobs goes with it.
end()
{
    for pid in $(ours_alive); do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$folder"
}

begin()
{
    test=$1
    echo "-- $test"
}

pass()
{
    passed=$((passed + 1))
}

fail()
{
    failed=$((failed + 1))
    echo "$script: $test: $*"
}

skip()
{
    echo "$script: $1: skipped, $2"
}

tally()
{
    echo "$script: $passed passed, $failed failed"
    [ $failed = 0 ]
}

has()
{
    command -v "$1" >/dev/null 2>&1
}

# job FILE RANKS [WIDTHS]: data parallel over so many.
job()
{
    cat >"$1" <<END
{ "name": "$2 ranks", "model": { "kind": "mlp", "widths": [${3:-8,32,8}] },
  "cluster": { "base": "pcie-workstation", "nodes": 1, "gpus_per_node": $2 },
  "training": { "global_batch": 32, "micro_batch": 4, "precision": "f32", "lr": 0.05,
                "optimizer": "adamw", "loss": "mse", "data": "synthetic" },
  "parallel": { "strategy": "zero1", "dp": $2 } }
END
}
job "$folder/two.json" 2
job "$folder/four.json" 4

# The losses of a --json run, one a line, every digit.
losses()
{
    awk '/"losses": \[/ { on = 1; next } on && /\]/ { exit } on' "$1" | tr -d ' ,'
}

# same_losses EXPECTED FILE [FROM]: bit for bit, from the step FROM of EXPECTED on.
same_losses()
{
    losses "$1" | tail -n "+$((${3:-0} + 1))" >"$folder/losses.1"
    losses "$2" >"$folder/losses.2"
    if [ -s "$folder/losses.2" ] && cmp -s "$folder/losses.1" "$folder/losses.2"; then
        pass
    else
        fail "other losses: $(paste "$folder/losses.1" "$folder/losses.2" | head -n 3)"
    fi
}

# A port that hardly anybody has.
new_port()
{
    port=$((20000 + ($$ * 7 + passed * 131 + failed * 17 + $(date +%s)) % 12000))
}

# wait_all PID...: the worst status.
wait_all()
{
    worst=0
    for pid; do
        wait "$pid" || worst=$?
    done
    return $worst
}

# wait_for WHAT FILE: until FILE contains WHAT; no longer than 20 s.
wait_for()
{
    tries=0
    until grep -q -e "$1" "$2" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -gt 400 ] && return 1
        sleep 0.05
    done
}

milliseconds()
{
    echo $(($(date +%s%N) / 1000000))
}

# Processes that work on this script's files.
ours_alive()
{
    grep -l -a -e "[l]ockstep.run.$folder" /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3
}

# children PID: its children, the oldest first; by number, which may begin anew between two of them,
# only where the kernel does not list them.
children()
{
    cat /proc/$1/task/*/children 2>/dev/null | tr ' ' '\n' | grep . ||
        cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [A-Z] $1 .*/\1/p" | sort -n
}
