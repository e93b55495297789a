#!/bin/sh
# run_tests.sh - runs test suites in parallel and sums them up.  `make test` calls it.
#
#   tests/run_tests.sh [SUITE...]     unit on_cpu cli exec house format gpu; all when none is named
#
#   unit     every program of tests/unit and tests/property, one test per function; and on_cpu
#   on_cpu   those of tests/on_cpu, where a C++ compiler is: the CUDA side on a stand-in
#   cli      every transcript tests/cli/*.test, one test per command; *_all.test, which are
#            long, only where all cases are taken
#   exec     every script tests/exec/*.sh, which run real jobs: launchers, hosts, faults,
#            kills.  What a script cannot do here it skips, with a line that says so.
#   house    tests/check_includes.sh: includes, lengths, header comments
#   format   is the source as clang-format 14 would write it?  (skipped without it)
#   gpu      does what needs CUDA compile?  (skipped without nvcc)
#
# program:FOLDER/NAME is one program, tests/FOLDER/NAME.
# LOCKSTEP_CASES=N: one in N of many like cases (tests/check.h).  Builds with
# clang or a sanitizer take one in eight unless told otherwise; gcc's takes all.
# BUILD is the build folder, CUDA_HOME where CUDA is, SECONDS_MAX (400) a program's limit.
# Logs stand in $BUILD/test-logs.
# The last line is "N passed, N failed"; the exit status is 1 when a test failed.

cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
logs=$build/test-logs
seconds_max=${SECONDS_MAX:-400}
exec </dev/null

# What went wrong, in words, when a program ended with status $1.
cause()
{
    case $1 in
    0) echo "it printed no tally" ;;
    124) echo "stopped after $seconds_max s" ;;
    *)  if [ "$1" -gt 128 ]; then
            echo "killed by SIG$(kill -l $(($1 - 128)))"
        else
            echo "exit status $1"
        fi ;;
    esac
}

# Runs one program that tallies its own tests ("NAME: N passed, M failed" in its last
# lines), or, with tally=one, a command that counts as one test.
run_one()
{
    tally=$1 name=$2
    shift 2
    log=$logs/$name.log
    [ "$tally" = one ] && seconds_max=600
    started=$(date +%s)
    timeout -k 5 $seconds_max "$@" >"$log" 2>&1
    status=$?
    took=$(($(date +%s) - started))

    note=
    counts=$(sed -n 's/^[^ ]*: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    if [ "$tally" = one ]; then
        counts="$((status == 0)) $((status != 0))"
    elif [ -z "$counts" ] || { [ $status != 0 ] && [ "${counts#* }" = 0 ]; }; then
        test=$(sed -n 's/^-- //p' "$log" | tail -n 1)
        [ "$counts" ] && test= # it had tallied, so it was in no test any more
        note=" ($(cause $status)${test:+ in $test})"
        counts="${counts%% *}"
        counts="${counts:-0} 1"
    fi
    [ $took -ge 5 ] && note="$note [$took s]"
    echo "$counts" >"$logs/$name.tally"
    report="$name: ${counts% *} passed, ${counts#* } failed$note"
    if [ "${counts#* }" != 0 ]; then
        report="$(grep -v -e '^-- ' -e '^[^ ]*: [0-9]* passed, ' "$log" | tail -n 100)
$report"
    fi
    skipped=$(grep ': skipped, ' "$log")
    printf '%s\n' "${skipped:+$skipped
}$report"
}

if [ "$1" = --one ]; then
    shift
    run_one "$@"
    exit
fi

# One line per program: how it tallies, its name, the command.
list_unit()
{
    for source in tests/unit/test_*.c tests/property/test_*.c; do
        [ -f "$source" ] || continue
        echo "own $(basename "$source" .c) $build/${source%.c}"
    done
    list_on_cpu
}

list_on_cpu()
{
    for program in "$build"/tests/on_cpu/test_* "$build"/tests/on_cpu/twin_*; do
        [ -x "$program" ] || continue
        echo "own on_cpu_$(basename "$program") $program"
    done
}

list_cli()
{
    for script in tests/cli/*.test; do
        [ -f "$script" ] || continue
        case $script in
        *_all.test) [ "${LOCKSTEP_CASES:-1}" = 1 ] || continue ;;
        esac
        echo "own cli_$(basename "$script" .test) $build/tests/cli_runner $script"
    done
}

list_exec()
{
    for script in tests/exec/*.sh; do
        [ "${script##*/}" = lib.sh ] && continue
        echo "own exec_$(basename "$script" .sh) sh $script"
    done
}

list_house()
{
    echo "own check_includes sh tests/check_includes.sh"
    echo "own check_includes_self_test sh tests/check_includes.sh --self-test"
}

list_format()
{
    version=$(clang-format --version 2>/dev/null | sed 's/.*version \([0-9]*\).*/\1/')
    case $version in
    14) echo "one check_format ${MAKE:-make} -s check-format" ;;
    '') echo "format: skipped, no clang-format here" >&2 ;;
    *) echo "format: skipped, clang-format $version breaks some lines elsewhere than 14 does" >&2 ;;
    esac
}

list_gpu()
{
    if [ -x "${CUDA_HOME:-$(sh tests/find_cuda.sh)}/bin/nvcc" ]; then
        echo "one gpu_compiles ${MAKE:-make} -s gpu"
    else
        echo "gpu: skipped, no nvcc here" >&2
    fi
}

[ $# = 0 ] && set -- unit cli exec house format gpu
rm -rf "$logs"
mkdir -p "$logs"
export CHECK_VERBOSE=1 BUILD="$build" ROOT="$PWD" LOCKSTEP="$PWD/$build/lockstep"
case $build in
*-clang* | *-san* | *-tsan*) export LOCKSTEP_CASES="${LOCKSTEP_CASES:-8}" ;;
esac
export UBSAN_OPTIONS=print_stacktrace=1
# Memory that is used after it was freed is seen for so much that is freed in between; 256 MB, as
# it is by itself, never let searches use a page twice, half of whose time was the kernel's.
export ASAN_OPTIONS="quarantine_size_mb=32${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
for suite; do
    case $suite in
    program:*) echo "own ${suite##*/} $build/tests/${suite#program:}" ;;
    *) "list_$suite" || exit 2 ;;
    esac
done >"$logs/all"
# Two lists, each with as many at once as there are cores: tests that mostly wait (for time-outs,
# for the dead) take no core from those that compute.  Of these the long ones go first, so that
# no core waits for a single one at the end.
waiting=' (exec_(faults|kills|launchers|netns)|test_(fabric_faults|launch|rendezvous)) '
longest=' (exec_hyper|test_(cuda_loop|fabric|planner|same_loss|steady|torch_golden|virtual|fold)'
longest="$longest|test_engine_graphs|on_cpu_test_cuda_(training|strategies|comm|kernels)"
longest="$longest|cli_(plan|validate.*|run)) "
run_list()
{
    xargs -r -P "$(nproc)" -L 1 sh tests/run_tests.sh --one
}
grep -E "$waiting" "$logs/all" | run_list &
grep -vE "$waiting" "$logs/all" >"$logs/list"
{ grep -E "$longest" "$logs/list"; grep -vE "$longest" "$logs/list"; } | run_list
wait

# Who killed xargs, or what it started, kept tests from running.
while read -r _ name _; do
    [ -e "$logs/$name.tally" ] || echo "$name: 0 passed, 1 failed (it did not run to its end)"
    [ -e "$logs/$name.tally" ] || echo "0 1" >"$logs/$name.tally"
done <"$logs/all"

find "$logs" -name '*.tally' -exec cat {} + |
    awk '{ passed += $1; failed += $2 }
         END { printf "%d passed, %d failed\n", passed, failed; exit failed > 0 }'
