#!/bin/sh
# kills.sh - training is killed at random moments and resumed until it is done: as if
# nothing had happened.
#
#   BUILD=build tests/exec/kills.sh          as many kills as fit into 15 s
#   KILLS=200 SEED=7 ... tests/exec/kills.sh      so many, chosen by SEED (1)
#
# A snapshot every few steps; each time a rank or the launcher is killed, whatever it is
# doing then.  At the end parameters, optimizer states and losses are, bit for bit, those of
# a run that nobody has disturbed; no snapshot was lost, no process or file is left.
# shellcheck disable=SC2086 # lists of words, and files without blanks

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

steps=600 last=step-00000600
kills_max=${KILLS:-100000} seconds_max=15
[ "$KILLS" ] && seconds_max=100000
random=${SEED:-1}
echo "$script: SEED=$random"

# below N: a random number, $picked.
below()
{
    random=$(((random * 1103515245 + 12345) % 2147483648))
    picked=$((random / 65536 % $1))
}

# train FOLDER STEPS [OPTION...]: in the background, $pid.
train()
{
    "$lockstep" run "$scenario" --json --checkpoint "$@" >"$folder/out" 2>"$folder/err" &
    pid=$!
}

# Steps done according to the newest snapshot of $work.
done_steps()
{
    sed -n 's/^step-0*\([0-9]\)/\1/p' "$work/latest" 2>/dev/null | grep . || echo 0
}

# kill_somebody: the launcher, or a rank if there are any yet.
kill_somebody()
{
    ranks=$(children $pid)
    below $(($(echo $ranks | wc -w) + 1))
    victim=launcher number=$pid
    [ $picked = 0 ] || victim="rank $((picked - 1))" \
        number=$(echo $ranks | cut -d ' ' -f $picked)
    kill -KILL "$number" 2>/dev/null
}

# What must hold when the job has ended by the kill, $took ms after it.
check_end()
{
    [ $took -le 5000 ] || fail "it ended $took ms after the kill of $victim"
    case $victim in
    rank*) grep -q "$victim .*(process $number) \(was killed\|died\)" "$folder/err" ||
        fail "nobody names $victim, killed: $(cat "$folder/err")" ;;
    esac
    tries=0
    while [ "$(ours_alive)" ] && [ $((tries += 1)) -lt 20 ]; do
        sleep 0.05
    done
    left=$(ours_alive)
    [ -z "$left" ] || fail "left after the kill of $victim: $left"
    now=$(done_steps)
    [ "$now" -ge "$before" ] || fail "step $before was kept, now it is $now"
}

goes_on()
{
    [ $kills -lt "$kills_max" ] && [ $(($(date +%s) - started)) -lt $seconds_max ] &&
        [ $failed = 0 ]
}

# One start; sets $status: 0 when it came to the end before somebody killed it.
attempt()
{
    before=$(done_steps)
    resume= status=0
    [ "$before" = $steps ] && return # killed behind its last snapshot
    [ "$before" = 0 ] || resume=--resume
    train "$work" --every 5 --steps $steps $resume
    below $half
    sleep "$((picked / 1000)).$(printf '%03d' $((picked % 1000)))"
    goes_on && kill_somebody
    killed=$(milliseconds)
    wait $pid
    status=$?
    took=$(($(milliseconds) - killed))
    [ $status = 0 ] && return
    kills=$((kills + 1))
    check_end
}

# The last part of the losses, and all numbers, are those of the undisturbed run.
check_training()
{
    [ "$before" = $steps ] || same_losses "$expect.json" "$folder/out" "$before"
    for part in "$expect/$last"/rank-*; do
        cmp -s "$part" "$work/$last/${part##*/}" && pass || fail "$part differs"
    done
    # Who was killed behind the last snapshot may not have come to removing an older one, which is
    # the next start's work.
    for part in $(ls "$expect"); do
        [ -e "$work/$part" ] && pass || fail "lacks $part: $(ls "$work")"
    done
    [ "$before" = $steps ] || [ "$(ls "$work")" = "$(ls "$expect")" ] && pass ||
        fail "left: $(ls "$work")"
}

for jobs in two four; do
    begin "undisturbed, $jobs"
    scenario=$folder/$jobs.json expect=$folder/expect-$jobs
    began=$(milliseconds)
    train "$expect" --every 5 --steps $steps
    wait $pid && pass || fail "$(cat "$folder/err")"
    half=$((($(milliseconds) - began) / 2)) # kills come before that
    mv "$folder/out" "$expect.json"
done

kills=0 trainings=0 work=$folder/work started=$(date +%s) undisturbed=$passed
while goes_on; do
    jobs=two
    [ $((trainings % 3)) = 2 ] && jobs=four
    begin "training $trainings, kill $kills"
    scenario=$folder/$jobs.json expect=$folder/expect-$jobs status=1
    rm -rf "$work"
    while [ $status != 0 ] && [ $failed = 0 ]; do
        attempt
    done
    check_training
    trainings=$((trainings + 1))
done
passed=$undisturbed # all trainings are one test: how many there is time for is the machine's
[ $kills -gt 0 ] && pass || fail "nobody was killed"
echo "$script: $kills kills in $trainings trainings"
tally
