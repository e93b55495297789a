#!/usr/bin/env bash
#
# pack.sh - what a machine with a GPU needs and may lack, in one small archive.
#
#     make && tests/gpu/pack.sh [FOLDER]        FOLDER/carry.tar.gz; build-carry when not given
#
# The program, the plugins, the measuring programs (make gpu), and the libraries that are not the C
# library's or CUDA's: cJSON, SQLite, zlib, OpenBLAS for the reference on the CPU.  run.sh unpacks
# it where it finds it (CARRY) and then builds nothing.  Programs need a C library no older than
# this machine's.  CUDA's libraries are the other machine's own.
#
# Environment: BUILD (build).  Exit status 0 packed, 1 something is missing.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${BUILD:-build}
to=${1:-build-carry}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

die() {
    echo "pack.sh: $*" >&2
    exit 1
}

mkdir -p "$folder/bin/gpu" "$folder/lib" "$to" || die "cannot make '$to'"
[ -x "$build/lockstep" ] || die "there is no $build/lockstep: make builds it"
[ -e "$build/lockstep-cuda.so" ] ||
    die "there is no $build/lockstep-cuda.so: make builds it where nvcc and NCCL are"
for file in lockstep lockstep-cuda.so lockstep-capture.so gpu/gpu_measure gpu/gpu_cupti \
    gpu/traced; do
    if [ -e "$build/$file" ]; then
        strip -o "$folder/bin/$file" "$build/$file" 2>/dev/null ||
            cp "$build/$file" "$folder/bin/$file"
    else
        echo "pack.sh: left out, not built: $build/$file" >&2
    fi
done

# Of what a file needs, all but the C library's.
needed() {
    ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
        grep -v -E '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so[.0-9]*$'
}
blas=$(ldconfig -p 2>/dev/null | awk '/libopenblas\.so\.0 / { print $NF; exit }')
[ -n "$blas" ] || die "OpenBLAS is not installed: the reference on the CPU needs it"
{
    needed "$build/lockstep"
    echo "$blas"
    needed "$blas"
} | sort -u | while read -r library; do
    cp -L "$library" "$folder/lib/" || exit 1
done || die "a library cannot be copied"

tar -C "$folder" -czf "$to/carry.tar.gz" bin lib || die "cannot write $to/carry.tar.gz"
bytes=$(wc -c <"$to/carry.tar.gz")
echo "packed $to/carry.tar.gz, $((bytes / 1024 / 1024)) MiB: $(cd "$folder" && echo bin/* lib/*)"
