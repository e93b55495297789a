#!/bin/sh
# find_cuda.sh - prints the folder of a CUDA toolkit that has bin/nvcc, or nothing.
# Looks in $CUDA_HOME, /usr/local/cuda, PATH, and Python's nvidia wheels, in this order.

has_nvcc()
{
    [ -n "$1" ] && [ -x "$1/bin/nvcc" ] && echo "$1"
}

# Wheels for CUDA 13 share one folder (nvidia/cu13); older ones have one per package.
wheel_folders()
{
    python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages(), sep="\n")' |
    while read -r packages; do
        ls -d "$packages"/nvidia/cu[0-9]* "$packages"/nvidia/cuda_nvcc
    done
}

# nvcc in PATH may be a link or a wrapper script: take its folder only if it looks like one.
path_nvcc=$(command -v nvcc) && path_nvcc=$(readlink -f "$path_nvcc")

has_nvcc "$CUDA_HOME" && exit
has_nvcc /usr/local/cuda && exit
has_nvcc "${path_nvcc%/bin/nvcc}" && exit
wheel_folders 2>/dev/null | while read -r folder; do
    has_nvcc "$folder" && break
done
exit 0
