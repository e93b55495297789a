#!/bin/sh
# faults.sh - what goes wrong in a job ends it on every rank: one sentence, status 1,
# nothing left, and the last snapshot as good as before.
#
#   BUILD=build tests/exec/faults.sh      from the root of the repository, after make
#
# shellcheck disable=SC2086 # lists of words, and files without blanks

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

train="$lockstep run $folder/two.json --json"

# nothing_left: no process, no shared memory.
nothing_left()
{
    left=$(ours_alive)$(ls /dev/shm 2>/dev/null | grep lockstep | grep -v lockstep-fuzz)
    [ -z "$left" ] && pass || fail "left: $left"
}

# says STATUS SENTENCE...: all that the job of $folder/err said, which ended with $status.
says()
{
    [ $status = "$1" ] && pass || fail "status $status, not $1"
    shift
    grep '^lockstep: ' "$folder/err" >"$folder/said"
    [ "$(grep -c . "$folder/said")" = $# ] && pass || fail "it says: $(cat "$folder/said")"
    for sentence; do
        grep -q -e "$sentence" "$folder/said" && pass || fail "it says: $(cat "$folder/said")"
    done
    nothing_left
}

# ends STATUS SENTENCE COMMAND...
ends()
{
    expected=$1 sentence=$2
    shift 2
    "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    says "$expected" "$sentence"
}

# A shell has its background ignore SIGINT.
asking=
env --default-signal=INT true 2>/dev/null && asking="env --default-signal=INT"

# start [OPTION...]: a job that goes on for long, $pid; returns when it has trained.
start()
{
    rm -rf "$folder/busy"
    $asking $train --steps 1000000 --checkpoint "$folder/busy" --every 20 "$@" \
        >"$folder/out" 2>"$folder/err" &
    pid=$!
    wait_for step "$folder/busy/latest" || fail "it does not train: $(cat "$folder/err")"
}

# ended_within SECONDS STATUS SENTENCE...: the job that was started.
ended_within()
{
    started=$(milliseconds)
    wait $pid
    status=$?
    took=$(($(milliseconds) - started))
    [ $took -le $(($1 * 1000)) ] && pass || fail "it took $took ms"
    shift
    says "$@"
}

# goes_on: what the job left is whole.
goes_on()
{
    kept=$(sed -n 's/^step-0*//p' "$folder/busy/latest")
    $train --steps $((kept + 2)) --checkpoint "$folder/busy" --resume >"$folder/out" \
        2>"$folder/err" && grep -q '"steps": 2,' "$folder/out" && pass ||
        fail "it does not go on: $(cat "$folder/err")"
}

# ---- that cannot begin ----

begin "the world is not what the degrees say"
ends 2 "ranks 3 is not what the scenario splits the work over" $train --ranks 3
ends 2 "3 ranks were started, which is not what the scenario splits the work over" \
    env RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 $train
begin "nobody comes"
new_port
ends 1 "rank 1 of 2 did not come to 'tcp://127.0.0.1:$port' within 1 s" \
    $train --rank 0 --world 2 --rendezvous tcp://127.0.0.1:$port --timeout 1
begin "nobody is there"
ends 1 "cannot reach rank 0 at 'tcp://127.0.0.1:$port' within 1 s: Connection refused" \
    $train --rank 1 --world 2 --rendezvous tcp://127.0.0.1:$port --timeout 1
ends 1 "cannot reach rank 0 at 'tcp://nowhere.invalid:$port' within .* s: no such host" \
    $train --rank 1 --world 2 --rendezvous tcp://nowhere.invalid:$port --timeout 1
begin "the port is taken"
$train --rank 0 --world 2 --rendezvous tcp://127.0.0.1:$port --timeout 30 2>"$folder/err0" &
pid=$!
sleep 0.6
$train --rank 0 --world 2 --rendezvous tcp://127.0.0.1:$port >"$folder/out" 2>"$folder/err"
status=$?
kill -KILL $pid
wait $pid 2>/dev/null
says 1 "port $port of '127.0.0.1' is taken by another program: choose another port"
begin "two ranks run different things"
$train --rank 0 --world 2 --rendezvous file:$folder/here >"$folder/out" 2>"$folder/err0" &
pid=$!
$train --rank 1 --world 2 --rendezvous file:$folder/here --set training.lr=0.1 \
    >"$folder/out" 2>"$folder/err"
status=$?
differs="rank 1 runs something else than rank 0: scenario, options or version differ"
wait $pid && fail "rank 0 ended with status 0"
says 1 "$differs"
mv "$folder/err0" "$folder/err"
says 1 "$differs"
for options in "--steps 7" "--collectives ring" "--clock virtual" "--trace $folder/x.json" \
    "--checkpoint $folder/c"; do
    begin "two ranks run with and without $options"
    $train --rank 0 --world 2 --rendezvous file:$folder/here >"$folder/out" 2>"$folder/err0" &
    pid=$!
    $train --rank 1 --world 2 --rendezvous file:$folder/here $options \
        >"$folder/out" 2>"$folder/err"
    status=$?
    wait $pid && fail "rank 0 ended with status 0"
    says 1 "$differs"
    mv "$folder/err0" "$folder/err"
    says 1 "$differs"
done
begin "two ranks vary a key over lists of two lengths"
$train --rank 0 --world 2 --rendezvous file:$folder/here --timeout 2 --hyper lr=0.1,0.2 \
    >"$folder/out" 2>"$folder/err0" &
pid=$!
$train --rank 1 --world 2 --rendezvous file:$folder/here --timeout 2 --hyper lr=0.1 \
    >"$folder/out" 2>"$folder/err"
status=$?
wait $pid
[ $status = 1 ] && grep -q "$differs" "$folder/err" && pass || fail "$(cat "$folder/err")"
begin "a number of steps that is none"
ends 2 "every takes a whole number from 1" $train --checkpoint "$folder/c" --every 0
ends 2 "timeout takes a whole number from 1" $train --timeout 0
ends 2 "resume needs --checkpoint DIR" $train --resume

# ---- memory ----

begin "a job that is too large"
job "$folder/large.json" 2 8,400000,400000,8
large="$lockstep run $folder/large.json --json"
ends 1 "^lockstep: 2 ranks need .* GiB of memory, .* GiB are free here" $large
ends 1 "a rank needs .* GiB of memory, .* GiB are free here" \
    $large --rank 0 --world 2 --rendezvous file:$folder/large
begin "a limit of the shell"
job "$folder/limited.json" 2 8,8000,8000,8
ends 1 "cannot map .* GiB of shared memory\|out of memory" \
    sh -c "ulimit -v 600000; exec $lockstep run $folder/limited.json"
for limit in 150000 200000; do
    ends 1 "no address space for OpenBLAS\|cannot be loaded\|cannot start a thread\|out of memory" \
        sh -c "ulimit -v $limit; exec timeout 60 $train"
done

# Each rank of eight has a connection to each other one, and another for each kind of transfer.
begin "few open files, of which more may be had"
job "$folder/eight.json" 8
eight="$lockstep run $folder/eight.json --steps 1 --clock virtual"
sh -c "ulimit -S -n 30; LOCKSTEP_TCP_ONLY=1 exec $eight" >"$folder/out" 2>"$folder/err" && pass ||
    fail "$(cat "$folder/err")"
for files in 6 8 9 10 11 12 13; do
    begin "$files open files and no more"
    started=$(milliseconds)
    sh -c "ulimit -n $files; exec $train --steps 1" >"$folder/out" 2>"$folder/err"
    status=$?
    took=$(($(milliseconds) - started))
    [ $took -le 10000 ] && pass || fail "it took $took ms"
    [ $status = 0 ] || says 1 "open files\|still meeting\|share"
done

begin "a control group that allows less"
group=/sys/fs/cgroup/memory/lockstep-$$ limit=memory.limit_in_bytes
[ -e /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/lockstep-$$ limit=memory.max
job "$folder/tight.json" 2 8,3000,3000,8
tight="exec $lockstep run $folder/tight.json --steps 1"
if mkdir $group 2>/dev/null && echo 300000000 2>/dev/null >$group/$limit; then
    ends 1 "2 ranks need .* GiB of memory, .* GiB are free here" \
        sh -c "echo \$\$ >$group/cgroup.procs; $tight"
    echo 600000000 >$group/$limit
    sh -c "echo \$\$ >$group/cgroup.procs; $tight" >"$folder/out" 2>"$folder/err" && pass ||
        fail "$(cat "$folder/err")"
else
    skip "a control group" "none can be made here"
fi
rmdir $group 2>/dev/null

# ---- snapshots ----

good=$folder/good
$train --steps 6 --checkpoint "$folder/whole" --every 3 >"$folder/expect" 2>/dev/null
$train --steps 3 --checkpoint "$good" >"$folder/out" 2>/dev/null
part=step-00000003/rank-00001.part

begin "no snapshot"
ends 1 "no snapshot in '$folder/none': No such file" \
    $train --resume --checkpoint "$folder/none"
begin "a folder that cannot be, told before training"
: >"$folder/file"
ends 1 "rank 0: '$folder/file' is not a folder" $train --checkpoint "$folder/file"
grep -q 'step 1/' "$folder/err" && fail "it has trained" || pass
ends 1 "rank 0: cannot make the folder '/proc/none'" $train --checkpoint /proc/none
begin "a trace that cannot be, too"
ends 1 "cannot create '/proc/none/t.json'" $train --trace /proc/none/t.json
grep -q 'step 1/' "$folder/err" && fail "it has trained" || pass
ends 1 "cannot create '/proc/none/p.json'" $train --trace-predicted /proc/none/p.json
begin "a trace that does not fit leaves the results"
ln -s /dev/full "$folder/full.json"
ends 1 "cannot write .*full.json.: No space left on device" $train \
    --trace-predicted "$folder/full.json"
grep -q '"losses"' "$folder/out" && pass || fail "no results"
begin "of another model"
job "$folder/other.json" 2 8,48,8
of=$good/step-00000003/rank-00000.part
ends 1 "rank 0: '$of' is of another model: model.widths is [0-9,]* there, 8,48,8 here$" \
    $lockstep run "$folder/other.json" --resume --checkpoint "$good"
begin "of another optimizer"
ends 1 "rank 0: '$of' is of another training: training.optimizer is adamw there, sgd here$" \
    $train --resume --checkpoint "$good" --set training.optimizer=sgd
begin "a snapshot of another seed"
ends 1 "the snapshot in '$good' is of training.seed 0, here it is 5: other data would follow" \
    $train --resume --checkpoint "$good" --set training.seed=5
begin "a part cut short"
cp -R "$good" "$folder/short"
size=$(wc -c <"$good/$part")
head -c $((size - 7)) "$good/$part" >"$folder/short/$part"
ends 1 "rank [01]: '$folder/short/$part' has $((size - 7)) bytes" \
    $train --resume --checkpoint "$folder/short"
begin "a flipped bit"
cp -R "$good" "$folder/flipped"
printf '\377' | dd of="$folder/flipped/$part" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
ends 1 "rank 1: '$folder/flipped/$part'" $train --resume --checkpoint "$folder/flipped"
begin "a part that is missing"
cp -R "$good" "$folder/missing"
rm "$folder/missing/$part"
ends 1 "rank [01]: .*'$folder/missing/$part'" $train --resume --checkpoint "$folder/missing"

begin "the good one goes on, bit for bit"
$train --steps 6 --resume --checkpoint "$good" >"$folder/out" 2>/dev/null
same_losses "$folder/expect" "$folder/out" 3
cmp "$good/step-00000006/rank-00001.part" "$folder/whole/step-00000006/rank-00001.part" &&
    pass || fail "other parameters"

begin "the disk is full"
mkdir "$folder/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=64k lockstep "$folder/full" 2>/dev/null; then
    $train --steps 3 --checkpoint "$folder/full/c" >"$folder/out" 2>"$folder/err" ||
        fail "not even one snapshot: $(cat "$folder/err")"
    head -c 100000 /dev/zero >"$folder/full/ballast" 2>/dev/null
    ends 1 "rank [01]: cannot write .*: No space left on device" \
        $train --steps 6 --resume --checkpoint "$folder/full/c"
    rm "$folder/full/ballast"
    $train --steps 6 --resume --checkpoint "$folder/full/c" >"$folder/out" 2>"$folder/err"
    same_losses "$folder/expect" "$folder/out" 3
    umount "$folder/full"
else
    skip "a full disk" "no file system can be mounted here"
fi
begin "files may not grow"
ends 1 "cannot allocate .* of shared memory: File too large" sh -c "ulimit -f 2; exec $train"

begin "two jobs want one folder"
start
$train --steps 3 --checkpoint "$folder/busy" >"$folder/out" 2>"$folder/err2"
status=$?
kill -TERM $pid
wait $pid
cp "$folder/err2" "$folder/err"
says 1 "rank 0: another job is writing its snapshots into '$folder/busy'"
goes_on

# ---- signals ----

# Ranks come in order of their start, so of their numbers.
rank_of()
{
    children $pid | sed -n "$(($1 + 1))p"
}

for number in ${asking:+INT} TERM; do
    begin "SIG$number to the launcher"
    start
    kill -$number $pid
    ended_within 5 1 "ended by signal [0-9]* ("
    goes_on
done
for rank in 0 1; do
    begin "rank $rank is killed"
    start
    kill -KILL "$(rank_of $rank)"
    ended_within 5 1 "rank $rank .* was killed by signal 9" "rank $rank on .* died"
    goes_on
    begin "rank $rank is stopped"
    start --timeout 1
    kill -STOP "$(rank_of $rank)"
    ended_within 5 1 "rank $rank on .* has been silent for .* s: stopped" \
        "rank $rank .* is stopped, and is killed"
    goes_on
done
begin "all ranks are stopped"
start --timeout 1
kill -STOP $(children $pid)
ended_within 5 1 "all ranks have been stopped for 1 s" "rank 0 .* is stopped, and is killed" \
    "rank 1 .* is stopped, and is killed"
goes_on
begin "a rank is asked to end"
start
kill -TERM "$(rank_of 1)"
ended_within 5 1 "rank 1 .* was killed by signal 15" "rank 1 on .* died"
goes_on
begin "the launcher is killed"
start
ranks=$(children $pid)
kill -KILL $pid
wait $pid 2>/dev/null
for tries in 1 2 3 4 5 6 7 8 9 10; do
    [ -z "$(ours_alive)" ] && break
    sleep 0.1
done
[ "$(echo $ranks | wc -w)" = 2 ] && pass || fail "its ranks were: $ranks"
nothing_left
goes_on
begin "a part of bench that fails: what was measured before is kept"
rm -f "$folder/bench.json"
"$lockstep" bench memory collective --ranks 2 --seconds 6 --out "$folder/bench.json" \
    >"$folder/out" 2>"$folder/err" &
pid=$!
tries=0
until grep -q 'measuring collective' "$folder/err" || [ $((tries += 1)) -gt 600 ]; do
    sleep 0.05
done
kill -KILL $(children $pid | tail -n 1)
wait $pid
status=$?
says 1 "measuring memory" "measuring collective" "was killed by signal 9" "rank 1 .* died" \
    "what was measured before is in '$folder/bench.json'"
echo '{"base":"h100-80gb"}' >"$folder/some.json"
"$lockstep" calibrate "$folder/bench.json" --into "$folder/some.json" >"$folder/out" 2>&1
grep -q '^memory-bound' "$folder/out" && pass || fail "it holds no kernels: $(cat "$folder/out")"
begin "a signal before training begins"
$train --rank 0 --world 2 --rendezvous file:$folder/here >"$folder/out" 2>"$folder/err" &
pid=$!
tries=0
until [ -e "$folder/here" ] || [ $((tries += 1)) -gt 100 ]; do
    sleep 0.05
done
kill -TERM $pid
wait $pid
[ $? != 0 ] && pass || fail "status 0"
nothing_left
tally
