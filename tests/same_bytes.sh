#!/bin/sh
# same_bytes.sh - the same input gives the same bytes: twice, and from every build.
#
#   tests/same_bytes.sh PROGRAM...     each example as JSON and as a trace; one test an example
#
# Every program runs every example of scenarios/examples twice, as many examples at once as there
# are cores.  The one number that is the machine's and not the scenario's, sim.wall_s, is left
# out.  The last line is "N passed, N failed".

cd "$(dirname "$0")/.." || exit 1

# All that program $1 says of example $2, by way of the folder $3.
say()
{
    "$1" sim "$2" --json --trace "$3/trace.json" --graph "$3/graph.json" |
        sed 's/"wall_s": *[^,}]*//' && cat "$3/trace.json" "$3/graph.json"
}

# same EXAMPLE PROGRAM...
same()
{
    example=$1 first=
    shift
    dir=$(mktemp -d) || return 1
    for program; do
        for time in 1 2; do
            rm -f "$dir"/*
            sum=$(say "$program" "$example" "$dir" | cksum)
            [ -s "$dir/trace.json" ] && [ -s "$dir/graph.json" ] || sum=nothing
            if [ "$sum" = nothing ] || [ "$sum" != "${first:=$sum}" ]; then
                echo "$example: other bytes from $program, run $time"
                rm -rf "$dir"
                return 1
            fi
        done
    done
    rm -rf "$dir"
    echo "$example: the same bytes"
}

if [ "$1" = --one ]; then
    shift
    same "$@"
    exit
fi
said=$(for example in scenarios/examples/*.json; do
    printf '%s\n' "sh tests/same_bytes.sh --one $example $*"
done | xargs -P "$(nproc)" -I {} sh -c '{}')
printf '%s\n' "$said" | grep -v ': the same bytes$'
passed=$(printf '%s\n' "$said" | grep -c ': the same bytes$')
failed=$(($(ls scenarios/examples/*.json | wc -l) - passed))
echo "$passed passed, $failed failed"
[ $failed = 0 ]
