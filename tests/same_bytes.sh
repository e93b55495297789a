#!/bin/sh
# same_bytes.sh - the same input gives the same bytes: twice, and from every build.
#
#   tests/same_bytes.sh PROGRAM...     each example as JSON and as a trace; one test an example
#
# Every program runs every example of scenarios/examples twice.  The one number that is
# the machine's and not the scenario's, sim.wall_s, is left out.  The last line is
# "N passed, N failed".

cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# One example by one program, everything it can say, into $2.
say()
{
    "$1" sim "$3" --json | sed 's/"wall_s": *[^,}]*//' &&
        "$1" sim "$3" --trace "$dir/trace.json" >/dev/null && cat "$dir/trace.json" &&
        "$1" sim "$3" --graph "$dir/graph.json" >/dev/null && cat "$dir/graph.json"
}

for example in scenarios/examples/*.json; do
    first=
    same=yes
    for program in "$@"; do
        for time in 1 2; do
            sum=$(say "$program" - "$example" | cksum)
            [ -z "$first" ] && first=$sum
            [ "$sum" = "$first" ] || same="$program, run $time"
        done
    done
    if [ "$same" = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$example: other bytes from $same"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
