#!/bin/sh
# run_afl.sh FUZZER... - runs each fuzzer, built by afl-clang-fast, under afl-fuzz for
# AFL_SECONDS (20).  `make afl` calls it.
#
# The harnesses are those of libFuzzer, in AFL++'s persistent mode (its driver calls
# LLVMFuzzerTestOneInput).  Inputs to start from stand in tests/fuzz/corpus_NAME, words in
# tests/fuzz/NAME.dict.  What breaks something is kept in $BUILD/afl/NAME/default/crashes.

build=${BUILD:-build-afl-clang-fast-fuzz}
export AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_NO_AFFINITY=1 AFL_NO_UI=1

failed=0
for fuzzer in "$@"; do
    name=$(basename "$fuzzer") && name=${name#fuzz_}
    out=$build/afl/$name
    rm -rf "$out" && mkdir -p "$out"
    dict=
    [ -f "tests/fuzz/$name.dict" ] && dict="-x tests/fuzz/$name.dict"
    # shellcheck disable=SC2086
    afl-fuzz -V "${AFL_SECONDS:-20}" -t 5000 -i "tests/fuzz/corpus_$name" -o "$out" $dict \
        -- "$fuzzer" >"$out/log" 2>&1 </dev/null
    stats=$out/default/fuzzer_stats
    runs=$(sed -n 's/^execs_done *: *//p' "$stats" 2>/dev/null)
    crashes=$(sed -n 's/^saved_crashes *: *//p' "$stats" 2>/dev/null)
    if [ "${runs:-0}" -gt 0 ] && [ "$crashes" = 0 ]; then
        echo "fuzz_$name: passed, $runs runs"
    else
        tail -n 20 "$out/log"
        echo "fuzz_$name: FAILED, ${crashes:-no} crashes in ${runs:-0} runs"
        failed=$((failed + 1))
    fi
done
echo "$(($# - failed)) passed, $failed failed"
[ "$failed" = 0 ]
