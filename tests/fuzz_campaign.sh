#!/bin/sh
# fuzz_campaign.sh FUZZER... - fuzzes every reader of traces until RUNS inputs were tried.
# `make fuzz-campaign RUNS=100000000` calls it.
#
# FUZZERS are built with FUZZER=fast, which has no address sanitizer: executions count here.
# Each goes in turns of TURN_SECONDS, JOBS at a time, on a corpus that grows from turn to
# turn; one that is behind its share of RUNS goes first.  Cheap readers (10^5 a second) get
# bigger shares than dear ones (databases, folders of files).  All is kept
# in CAMPAIGN, and going on later counts on:
#
#   CAMPAIGN/runs           a line "NAME EXECUTIONS" for each turn, which --total sums
#   CAMPAIGN/corpus/NAME    what was kept; `make fuzz-replay` looks at it with all sanitizers
#   CAMPAIGN/crashes        inputs that broke something: the fuzzer stops until they are gone
#
#   sh tests/fuzz_campaign.sh --total [CAMPAIGN]
#   sh tests/fuzz_campaign.sh --replay FUZZER...    with sanitizers; `make fuzz-replay` calls it

RUNS=${RUNS:-100000000}
TURN_SECONDS=${TURN_SECONDS:-60}
JOBS=${JOBS:-2}
CAMPAIGN=${CAMPAIGN:-build-clang-fuzz-fast/campaign}

# Parts in a hundred of all executions.
share()
{
    case $1 in
    kineto) echo 14 ;;
    nsys) echo 3 ;;
    rules) echo 15 ;;
    set | unpack) echo 1 ;;
    chakra | native) echo 16 ;;
    *) echo 17 ;; # nccl_tests, pytorch_et
    esac
}

runs_of()
{
    awk -v name="$1" '$1 == name { n += $2 } END { printf "%d\n", n }' "$CAMPAIGN/runs"
}

total()
{
    awk '{ n[$1] += $2; all += $2 }
         END { for (k in n) printf "%-12s %d\n", k, n[k] | "sort"; close("sort")
               printf "%-12s %d\n", "all", all }' "$CAMPAIGN/runs"
}

# The fuzzer that is furthest behind its share, of those that are neither done nor at work
# nor stopped by a crash; nothing when there is none.
next_fuzzer()
{
    for fuzzer in "$@"; do
        name=$(basename "$fuzzer") && name=${name#fuzz_}
        [ -e "$CAMPAIGN/at_work/$name" ] && continue
        [ -n "$(find "$CAMPAIGN/crashes" -name "$name-*" | head -n 1)" ] && continue
        wanted=$(($(share "$name") * (RUNS / 100)))
        done_n=$(runs_of "$name")
        [ "$done_n" -ge "$wanted" ] || echo "$((done_n * 1000 / wanted)) $fuzzer"
    done | sort -n | head -n 1 | cut -d' ' -f2
}

# The longest input of a turn: texts may be short, which is quick; databases need their pages.
length_of()
{
    case $1 in
    nsys) echo 12288 ;;
    native | set) echo 4096 ;;
    unpack) echo 512 ;;
    *) [ $(($2 % 2)) = 0 ] && echo 4096 || echo 512 ;;
    esac
}

turn()
{
    fuzzer=$1 turn_n=$2
    name=$(basename "$fuzzer") && name=${name#fuzz_}
    corpus=$CAMPAIGN/corpus/$name
    log=$CAMPAIGN/$name.log
    if [ ! -d "$corpus" ]; then
        mkdir -p "$corpus"
        cp -R "tests/fuzz/corpus_$name/." "$corpus"
    fi
    dict=
    [ -f "tests/fuzz/$name.dict" ] && dict="-dict=tests/fuzz/$name.dict"
    # shellcheck disable=SC2086
    "$fuzzer" -max_total_time="$TURN_SECONDS" -max_len="$(length_of "$name" "$turn_n")" \
        -entropic=0 -timeout=60 -reload=0 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$CAMPAIGN/crashes/$name-" $dict "$corpus" >"$log" 2>&1
    n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$name ${n:-0}" >>"$CAMPAIGN/runs"
    rm -f "$CAMPAIGN/at_work/$name"
}

if [ "$1" = --total ]; then
    CAMPAIGN=${2:-$CAMPAIGN}
    [ -f "$CAMPAIGN/runs" ] || {
        echo "no campaign in '$CAMPAIGN' yet: make fuzz-campaign begins one" >&2
        exit 1
    }
    total
    exit
fi

# Every input that was kept, once.
replay()
{
    failed=0
    for fuzzer in "$@"; do
        name=$(basename "$fuzzer") && name=${name#fuzz_}
        mkdir -p "$CAMPAIGN/crashes"
        n=$(find "$CAMPAIGN/corpus/$name" "tests/fuzz/corpus_$name" -type f | wc -l)
        if "$fuzzer" -runs=0 -timeout=60 -max_len=65536 \
            -artifact_prefix="$CAMPAIGN/crashes/$name-" \
            "$CAMPAIGN/corpus/$name" "tests/fuzz/corpus_$name" >"$CAMPAIGN/$name.replay" 2>&1
        then
            echo "fuzz_$name: passed, $n inputs"
        else
            tail -n 40 "$CAMPAIGN/$name.replay"
            echo "fuzz_$name: FAILED"
            failed=$((failed + 1))
        fi
    done
    [ "$failed" = 0 ]
}

if [ "$1" = --replay ]; then
    shift
    replay "$@"
    exit
fi

mkdir -p "$CAMPAIGN/crashes" "$CAMPAIGN/at_work" "$CAMPAIGN/corpus"
touch "$CAMPAIGN/runs"
rm -f "$CAMPAIGN"/at_work/*
turn_n=0
while :; do
    while [ "$(find "$CAMPAIGN/at_work" -type f | wc -l)" -ge "$JOBS" ]; do sleep 0.2; done
    fuzzer=$(next_fuzzer "$@")
    if [ -n "$fuzzer" ]; then
        name=$(basename "$fuzzer")
        : >"$CAMPAIGN/at_work/${name#fuzz_}"
        turn "$fuzzer" "$turn_n" &
        turn_n=$((turn_n + 1))
    else
        wait
        [ -z "$(next_fuzzer "$@")" ] && break
    fi
done
total
crashes=$(find "$CAMPAIGN/crashes" -type f | wc -l)
echo "$crashes crashes in $CAMPAIGN/crashes"
[ "$crashes" = 0 ]
