# races.sh - which of compute-sanitizer's findings are ours; sourced by run.sh and its test.
# shellcheck shell=bash

# only_races_of_others TOOL STATUS LOG: kernels of cuBLASLt order accesses in ways that racecheck
# does not know.  A run that was cut short has found out nothing.
only_races_of_others() {
    local ours=0 races=0 line
    [ "$1" = racecheck ] && [ "$2" = 9 ] && grep -q 'SUMMARY' "$3" || return 1
    while read -r line; do
        races=$((races + 1))
        [[ $line =~ cublas|nvjet|xmma|cutlass|gemm|splitK ]] || ours=$((ours + 1))
    done < <(grep 'Race reported' "$3")
    [ $races -gt 0 ] && [ $ours = 0 ] || return 1
    echo "sanitize: $races races reported, all within cuBLASLt's kernels"
}
