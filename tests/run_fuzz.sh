#!/bin/sh
# run_fuzz.sh FUZZER... - runs each fuzzer for a while.  `make fuzz` calls it.
#
# FUZZ_SECONDS each, as many at once as there are cores.  Inputs to start from stand in
# tests/fuzz/corpus_NAME, words in tests/fuzz/NAME.dict, both optional; new inputs are
# thrown away.  An input that breaks something is kept in $BUILD/crashes; run the fuzzer
# with that file as its argument to see it again.  FUZZ_SEED=0 is another seed each time.

build=${BUILD:-build-clang-san}
exec </dev/null

fuzz_one()
{
    fuzzer=$1
    name=$(basename "$fuzzer") && name=${name#fuzz_}
    corpus=$(mktemp -d) || exit 1
    [ -d "tests/fuzz/corpus_$name" ] && cp -R "tests/fuzz/corpus_$name/." "$corpus"
    dict=
    [ -f "tests/fuzz/$name.dict" ] && dict="-dict=tests/fuzz/$name.dict"
    log=$build/crashes/$name.log
    # shellcheck disable=SC2086
    if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-20}" -seed="${FUZZ_SEED:-0}" -timeout=20 \
        -rss_limit_mb=4096 -artifact_prefix="$build/crashes/$name-" $dict "$corpus" >"$log" 2>&1
    then
        echo "fuzz_$name: passed, $(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "$log")"
    else
        printf '%s\n' "$(tail -n 60 "$log")" "fuzz_$name: FAILED"
        touch "$build/crashes/$name.failed"
    fi
    rm -rf "$corpus"
}

if [ "$1" = --one ]; then
    fuzz_one "$2"
    exit
fi

mkdir -p "$build/crashes"
rm -f "$build"/crashes/*.failed
[ $# -gt 0 ] && printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh tests/run_fuzz.sh --one
failed=$(find "$build/crashes" -name '*.failed' | wc -l)
echo "$(($# - failed)) passed, $failed failed"
[ "$failed" = 0 ]
