#!/bin/sh
# netns.sh - ranks of two "hosts": network namespaces joined by a cable of the kernel's.
#
#   BUILD=build tests/exec/netns.sh      from the root of the repository, after make
#
# Runs netns_rank.c once per rank: ranks 0 and 1 on the first host, 2 and 3 on the second.
# Ranks of one host share memory, the hosts speak TCP.  Needs root and `ip`; says so and
# passes where either is missing.

if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null 2>&1; then
    echo "netns: skipped, it needs root and the program ip"
    exit 0
fi
one=lockstep-$$-1 two=lockstep-$$-2
if ! ip netns add "$one" 2>/dev/null; then
    echo "netns: skipped, no network namespaces can be made here"
    exit 0
fi
folder=$(mktemp -d)
trap 'ip netns del "$one"; ip netns del "$two" 2>/dev/null; rm -rf "$folder"' EXIT

program=$folder/netns_rank
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -O2 $CFLAGS \
    -o "$program" tests/exec/netns_rank.c "${BUILD:-build}/liblockstep.a" \
    -lcjson -lz -lm -lpthread || exit 1

ip netns add "$two" &&
    ip link add name cable1 netns "$one" type veth peer name cable2 netns "$two" &&
    ip -n "$one" addr add 10.77.0.1/24 dev cable1 &&
    ip -n "$two" addr add 10.77.0.2/24 dev cable2 || exit 1
for host in "$one" "$two"; do
    ip -n "$host" link set lo up
done
ip -n "$one" link set cable1 up
ip -n "$two" link set cable2 up

passed=0 failed=0

# run NAME RENDEZVOUS: four ranks on two hosts.
run()
{
    pids=
    for rank in 0 1 2 3; do
        host=$one
        [ $rank -ge 2 ] && host=$two
        ip netns exec "$host" "$program" $rank 4 "$2" &
        pids="$pids $!"
    done
    status=0
    for pid in $pids; do
        wait "$pid" || status=1
    done
    if [ $status = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "netns: $1 failed" >&2
    fi
}

run "rendezvous by address" tcp://10.77.0.1:7701
run "rendezvous by file" "file:$folder/here"
echo "netns: $passed passed, $failed failed"
[ $failed = 0 ]
