#!/bin/sh
# netns.sh - jobs on two "hosts": network namespaces joined by a cable of the kernel's.
#
#   BUILD=build tests/exec/netns.sh      from the root of the repository, after make
#
# Ranks of one host share memory, the hosts speak TCP.  netns_rank.c tries collectives and
# messages; `lockstep run` must train as on one host, gather one trace, and end with a
# sentence on both hosts when a rank is killed or the cable is cut.  Needs root and `ip`;
# says so and passes where either is missing.
# shellcheck disable=SC2086 # lists of words, and files without blanks

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

if [ "$(id -u)" != 0 ] || ! has ip; then
    skip "two hosts" "it needs root and the program ip"
    tally
    exit
fi
one=lockstep-$$-1 two=lockstep-$$-2
if ! ip netns add "$one" 2>/dev/null; then
    skip "two hosts" "no network namespaces can be made here"
    tally
    exit
fi
trap 'end; ip netns del "$one"; ip netns del "$two" 2>/dev/null' EXIT
ip netns add "$two" &&
    ip link add name cable1 netns "$one" type veth peer name cable2 netns "$two" &&
    ip -n "$one" addr add 10.77.0.1/24 dev cable1 &&
    ip -n "$two" addr add 10.77.0.2/24 dev cable2 || exit 1
for host in "$one" "$two"; do
    ip -n "$host" link set lo up
done
ip -n "$one" link set cable1 up
ip -n "$two" link set cable2 up

# hosts N COMMAND...: the command for each of four ranks, the first N on the first host.
# %r is the rank, %l the one among those of its host; $second stands before the commands of
# the second host.  Fills $pids; output in rankN, errN.
second=
hosts()
{
    n=$1 pids=
    shift
    rm -f "$folder"/rank? "$folder"/err? # who waits for a line must not see an earlier job's
    for rank in 0 1 2 3; do
        host=$one local=$rank before=
        [ $rank -ge $n ] && host=$two local=$((rank - n)) before=$second
        ip netns exec "$host" $before $(echo "$@" | sed "s/%r/$rank/g; s/%l/$local/g") \
            >"$folder/rank$rank" 2>"$folder/err$rank" &
        pids="$pids $!"
    done
}

# on_hosts WHAT N COMMAND...: all four end well.
on_hosts()
{
    begin "$1"
    shift
    hosts "$@"
    if wait_all $pids; then
        pass
    else
        fail "$(cat "$folder"/err?)"
    fi
}

program=${BUILD:-build}/tests/exec/netns_rank
on_hosts "rendezvous by address" 2 $program %r 4 tcp://10.77.0.1:7701
on_hosts "rendezvous by file" 2 $program %r 4 file:$folder/here

"$lockstep" run "$folder/four.json" --steps 6 --json >"$folder/expect" 2>/dev/null
train="$lockstep run $folder/four.json --json"
by_flags="--rank %r --world 4 --rendezvous tcp://10.77.0.1:7702"
on_hosts "2 + 2 ranks train" 2 $train --steps 6 $by_flags
same_losses "$folder/expect" "$folder/rank0"
on_hosts "1 + 3 ranks train" 1 $train --steps 6 --rank %r --world 4 \
    --rendezvous file:$folder/here
same_losses "$folder/expect" "$folder/rank0"
on_hosts "3 + 1 ranks train, as torchrun starts them" 3 env RANK=%r WORLD_SIZE=4 \
    LOCAL_RANK=%l MASTER_ADDR=10.77.0.1 MASTER_PORT=7703 TORCHELASTIC_RUN_ID=x $train --steps 6
same_losses "$folder/expect" "$folder/rank0"

# In every step each rank waits for all: none may end before all have begun.
steps_overlap()
{
    span='.*"ProfilerStep#\([0-9]*\)","pid":\([0-9]*\).*"ts":\([0-9.]*\),"dur":\([0-9.]*\).*'
    sed -n "s/$span/\1 \2 \3 \4/p" \
        "$1" | awk -v slack_us=1000 '
        { n[$1]++; if (!($1 in last) || $3 > last[$1]) last[$1] = $3
          if (!($1 in first) || $3 + $4 < first[$1]) first[$1] = $3 + $4 }
        END { for (s in n) { steps++; if (n[s] != 4 || last[s] > first[s] + slack_us) bad++ }
              printf "%d steps, %d of them not of all ranks at once\n", steps, bad
              exit steps != 6 || bad }'
}

on_hosts "one trace has all ranks" 1 $train --steps 6 $by_flags --trace $folder/trace.json
steps_overlap "$folder/trace.json" >"$folder/out" && pass || fail "$(cat "$folder/out")"
second="unshare -T --fork --kill-child --monotonic 1000"
if $second true 2>/dev/null; then
    on_hosts "clocks that differ are aligned" 2 $train --steps 6 $by_flags \
        --trace $folder/clocks.json
    steps_overlap "$folder/clocks.json" >"$folder/out" && pass || fail "$(cat "$folder/out")"
else
    skip "clocks that differ" "no time namespaces can be made here"
fi
second=

# ended_within SECONDS WHAT [RANK]: all ranks ended with status 1 in time, and all but RANK,
# who cannot, say why.
ended_within()
{
    started=$(milliseconds)
    for pid in $pids; do
        wait "$pid"
        [ $? != 0 ] || fail "process $pid ended with status 0"
    done
    took=$(($(milliseconds) - started))
    [ $took -le $(($1 * 1000)) ] && pass || fail "it took $took ms"
    for rank in 0 1 2 3; do
        [ "$3" = $rank ] || grep -q "^lockstep: .*$2" "$folder/err$rank" && pass ||
            fail "rank $rank says: $(tail -n 1 "$folder/err$rank")"
    done
}

begin "a killed rank is named on both hosts"
hosts 1 $train --steps 1000000 $by_flags
wait_for "step 1/" "$folder/err0" || fail "it does not train: $(cat "$folder"/err?)"
kill -KILL ${pids##* }
ended_within 5 "rank 3 on .* died" 3

begin "a cable that is cut ends the job on both sides"
hosts 2 $train --steps 1000000 $by_flags --timeout 2
wait_for "step 1/" "$folder/err0" || fail "it does not train: $(cat "$folder"/err?)"
ip -n "$one" link set cable1 down
ended_within 6 "rank [0-3] on .* has been silent for .* s: stopped, or its host is unreachable"
tally
