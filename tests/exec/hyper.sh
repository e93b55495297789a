#!/bin/sh
# hyper.sh - --hyper lr=A,B trains independent copies side by side: each as if it were alone.
#
#   BUILD=build tests/exec/hyper.sh      from the root of the repository, after make

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

train="$lockstep run $folder/two.json --steps 5"

begin "each copy has the losses of a lone run"
$train --hyper lr=0.1,0.001,0.02 --json >"$folder/all" 2>"$folder/err" ||
    fail "$(cat "$folder/err")"
for lr in 0.1 0.001 0.02; do
    $train --json --set training.lr=$lr >"$folder/alone" 2>/dev/null
    sed -n '/"hyper": "lr='$lr'"/,/^}/p' "$folder/all" >"$folder/copy"
    same_losses "$folder/alone" "$folder/copy"
done
losses "$folder/alone" | tail -n 1 >"$folder/last"
losses "$folder/all" | tail -n 1 | cmp -s - "$folder/last" &&
    fail "another learning rate makes no difference"

begin "copies start anew under a launcher too"
new_port
pids=
for rank in 0 1; do
    $train --hyper lr=0.1,0.02 --json --rank $rank --world 2 \
        --rendezvous tcp://127.0.0.1:$port >"$folder/rank$rank" 2>"$folder/err$rank" &
    pids="$pids $!"
done
# shellcheck disable=SC2086
wait_all $pids || fail "$(cat "$folder"/err?)"
sed -n '/"hyper": "lr=0.02"/,/^}/p' "$folder/rank0" >"$folder/copy"
same_losses "$folder/alone" "$folder/copy"
[ -s "$folder/rank1" ] && fail "rank 1 prints, too" || pass

begin "they are compared"
$train --hyper lr=0.1,0.02 2>/dev/null | tail -n 3 >"$folder/table"
[ "$(awk '{ print $1 }' "$folder/table" | xargs)" = "lr 0.1 0.02" ] && pass ||
    fail "$(cat "$folder/table")"

begin "a value that is none is told before anything is trained"
$train --hyper lr=0.1,fast >"$folder/out" 2>"$folder/err" && fail "status 0"
grep -q '^lockstep: --hyper lr=fast: .*a number is expected' "$folder/err" &&
    ! grep -q 'step 1/5' "$folder/err" && pass || fail "$(cat "$folder/err")"
$train --hyper lr=0.1, 2>&1 | grep -q -e "--hyper takes KEY=V1,V2..., not 'lr=0.1,'" && pass ||
    fail "an empty value is taken"

# start OPTION...: copies that go on for long, $pid; returns when both have trained.
asking=
env --default-signal=INT true 2>/dev/null && asking="env --default-signal=INT"
start()
{
    : >"$folder/err" # what the one before has said is not waited for
    # shellcheck disable=SC2086
    $asking $lockstep run "$folder/two.json" --hyper lr=0.1,0.02 "$@" >"$folder/out" \
        2>"$folder/err" &
    pid=$!
    wait_for 'lr=0.1  step' "$folder/err" && wait_for 'lr=0.02  step' "$folder/err" ||
        fail "they do not train: $(cat "$folder/err")"
}

# left_nothing: no process of theirs.
left_nothing()
{
    tries=0
    while [ "$(ours_alive)" ] && [ $((tries += 1)) -lt 40 ]; do
        sleep 0.05
    done
    [ -z "$(ours_alive)" ] && pass || fail "left: $(ours_alive)"
}

begin "they train at the same time"
start --steps 60000
[ "$(children $pid | wc -l)" = 2 ] && pass || fail "copies: $(children $pid)"

begin "one that is killed is named, the other goes on"
copy=$(children $pid | head -n 1)
kill -KILL "$(children "$copy" | head -n 1)"
wait_for 'lr=0.1 has failed; the other copies go on' "$folder/err" && pass ||
    fail "$(cat "$folder/err")"
grep -q '^lockstep: lr=0.1: rank . (process [0-9]*) was killed by signal 9' "$folder/err" &&
    pass || fail "$(cat "$folder/err")"
[ "$(children $pid | wc -l)" = 1 ] && pass || fail "the other is gone, too"

for number in TERM ${asking:+INT}; do
    begin "SIG$number ends all"
    [ "$number" = TERM ] || start --steps 60000
    kill -$number $pid
    wait $pid
    [ $? = 1 ] && pass || fail "another status"
    [ "$(grep -c '^lockstep: ended by signal' "$folder/err")" = 1 ] && pass ||
        fail "$(cat "$folder/err")"
    [ -s "$folder/out" ] && fail "results of no run: $(cat "$folder/out")" || pass
    left_nothing
done

begin "they end with their starter"
start --steps 60000
kill -KILL $pid
wait $pid 2>/dev/null
left_nothing

begin "a copy that fails leaves the results of the others"
start --steps 8000 --json
copy=$(children $pid | head -n 1)
kill -KILL "$(children "$copy" | head -n 1)"
wait $pid
[ $? = 1 ] && pass || fail "status 0, though a copy has failed"
[ "$(sed -n '/"hyper"/p' "$folder/out" | tr -d ' ,' | xargs)" = "hyper:lr=0.1 hyper:lr=0.02" ] &&
    pass || fail "$(grep hyper "$folder/out")"
grep -q '"failed": ".*rank [01] .* died' "$folder/out" && pass || fail "$(head "$folder/out")"
[ "$(losses "$folder/out" | wc -l)" = 8000 ] && pass || fail "the other's losses are missing"
tally
