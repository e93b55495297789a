#!/bin/sh
# hyper.sh - --hyper lr=A,B trains independent copies: each as if it were alone.
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
tally
