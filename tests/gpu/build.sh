#!/usr/bin/env bash
#
# build.sh - compiles and links the measuring programs into $BUILD/gpu.
#
#     tests/gpu/build.sh            gpu_measure; gpu_cupti where CUPTI is, traced where NVTX is
#
# The only way they are built: `make gpu`, CI and run.sh all come here, so what compiles
# without a GPU is what runs on one.  Needs nvcc, a C11 compiler and cuBLASLt.
#
# Environment: CUDA_HOME where CUDA is (default: what tests/find_cuda.sh finds), NVCC the
# compiler in it, CC the C compiler, BUILD the folder (default build), GPU_ARCH the
# architecture (default 90: H100, H200), PYTHON the interpreter whose nvidia-* wheels may
# hold cuBLAS and CUPTI.  WERROR= lets warnings pass.
#
# Exit status 0 built, 1 could not: a sentence on stderr says why.

set -u -o pipefail
shopt -s nullglob

self=${BASH_SOURCE[0]}
[[ $self == */* ]] || self=./$self
source_dir=$(cd "${self%/*}" && pwd) || exit 1
cd "$source_dir/../.." || exit 1
out=${BUILD:-build}/gpu
arch=${GPU_ARCH:-90}

die() {
    echo "build.sh: $*" >&2
    exit 1
}

# ---- where CUDA is ----

# Folders of the nvidia-* wheels: one a library (CUDA 12), or one for all (CUDA 13).
wheel_roots() {
    local python=${PYTHON:-python3} site folders
    command -v "$python" >/dev/null 2>&1 || return 0
    "$python" -c '
import site, sysconfig
paths = [sysconfig.get_paths()["purelib"]] + site.getsitepackages()
print("\n".join(dict.fromkeys(paths)))' 2>/dev/null |
        while read -r site; do
            folders=("$site"/nvidia/cu[0-9]* "$site"/nvidia/*/)
            [ ${#folders[@]} -gt 0 ] && printf '%s\n' "${folders[@]}"
        done
}

# first_with FILE DIR...: the first folder that holds the file (a pattern)
first_with() {
    local pattern=$1 dir hits
    shift
    for dir in "$@"; do
        # shellcheck disable=SC2206  # the pattern is meant to expand
        hits=("$dir"/$pattern)
        if [ ${#hits[@]} -gt 0 ] && [ -e "${hits[0]}" ]; then
            echo "$dir"
            return
        fi
    done
    return 1
}

include_dirs=()
library_dirs=()
list_dirs() {
    local root
    for root in "$cuda" "$cuda/targets/x86_64-linux" "$cuda/extras/CUPTI" "${roots[@]}" /usr; do
        root=${root%/}
        include_dirs+=("$root/include")
        library_dirs+=("$root/lib64" "$root/lib" "$root/lib/x86_64-linux-gnu")
    done
}

cuda=${CUDA_HOME:-$(sh tests/find_cuda.sh 2>/dev/null)}
nvcc=${NVCC:-$cuda/bin/nvcc}
command -v "$nvcc" >/dev/null 2>&1 ||
    die "no nvcc: there is none in ${CUDA_HOME:-CUDA_HOME, /usr/local/cuda, PATH or wheels}"
mapfile -t roots < <(wheel_roots)
cc=${CC:-$(command -v cc || command -v gcc || echo cc)}
command -v "$cc" >/dev/null 2>&1 || die "no C compiler '$cc'"
list_dirs

cudart_include=$(first_with cuda_runtime.h "${include_dirs[@]}") || die "no cuda_runtime.h"
lt_include=$(first_with cublasLt.h "${include_dirs[@]}") || die "no cublasLt.h"
lt_library=$(first_with 'libcublasLt.so*' "${library_dirs[@]}") || die "no libcublasLt"
cupti_include=$(first_with cupti.h "${include_dirs[@]}") || cupti_include=
cupti_library=$(first_with 'libcupti.so*' "${library_dirs[@]}") || cupti_library=

# ---- compiling, all files at once ----

c_flags=(-std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
cu_flags=(-std=c++17 -O2 "-gencode=arch=compute_$arch,code=sm_$arch"
    "-gencode=arch=compute_$arch,code=compute_$arch"
    -Xcompiler "-fPIC,-fno-threadsafe-statics,-fno-exceptions,-fno-rtti,-Wall,-Wextra")
[ "${WERROR-yes}" ] && c_flags+=(-Werror) && cu_flags+=(-Werror all-warnings)
c_includes=(-isystem "$cudart_include" -isystem "$lt_include")
cu_includes=(-I "$cudart_include")
[ -n "$cupti_include" ] && c_includes+=(-isystem "$cupti_include")

nvtx_include=$(first_with nvtx3/nvToolsExt.h "${include_dirs[@]}") || nvtx_include=
jobs_pids=()
compile() {
    "$@" &
    jobs_pids+=($!)
}

wait_for_all() {
    local pid failed=0
    for pid in "${jobs_pids[@]}"; do
        wait "$pid" || failed=1
    done
    jobs_pids=()
    return $failed
}

mkdir -p "$out" || die "cannot make '$out'"
common=()
for file in "$source_dir"/*.cu; do
    name=${file##*/}
    compile "$nvcc" "${cu_flags[@]}" "${cu_includes[@]}" -c "$file" -o "$out/$name.o"
    common+=("$out/$name.o")
done
for file in "$source_dir"/*.c; do
    name=${file##*/}
    case $name in
    capture.c | part_cupti.c) [ -n "$cupti_include" ] || continue ;;
    measure.c | part_[!c]* | part_check.c | part_copy.c) ;;
    *) common+=("$out/$name.o") ;;
    esac
    compile "$cc" "${c_flags[@]}" "${c_includes[@]}" -c "$file" -o "$out/$name.o"
done
# traced: what profile.sh records.
if [ -n "$nvtx_include" ]; then
    compile "$nvcc" "${cu_flags[@]}" "${cu_includes[@]}" -c "$source_dir/profile/kernels.cu" \
        -o "$out/traced_kernels.o"
    compile "$cc" "${c_flags[@]}" -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. \
        "${c_includes[@]}" -isystem "$nvtx_include" -c "$source_dir/profile/traced.c" \
        -o "$out/traced.o"
fi
wait_for_all || die "a file does not compile, see above"

# ---- linking; nvcc knows where its runtime library is ----

# link PROGRAM OBJECT... : libraries are named by file, wheels have no lib*.so links
link() {
    local program=$1
    shift
    "$nvcc" -cudart static -o "$out/$program" "$@" "${common[@]}" "${libraries[@]}" \
        -Xlinker -rpath -Xlinker "$lt_library" -ldl -lpthread -lm ||
        die "cannot link $program"
}

lt_files=("$lt_library"/libcublasLt.so*)
libraries=("${lt_files[0]}")
link gpu_measure "$out"/measure.c.o "$out"/part_{device,check,gemm,memory,overlap,launch,copy}.c.o

if [ -n "$cupti_include" ] && [ -n "$cupti_library" ]; then
    cupti_files=("$cupti_library"/libcupti.so*)
    libraries+=("${cupti_files[0]}" -Xlinker -rpath -Xlinker "$cupti_library")
    link gpu_cupti "$out"/part_cupti.c.o "$out"/capture.c.o
else
    echo "build.sh: no CUPTI here, gpu_cupti is not built" >&2
fi
if [ -n "$nvtx_include" ]; then
    common=() libraries=() # none of those
    link traced "$out/traced.o" "$out/traced_kernels.o"
else
    echo "build.sh: no NVTX here, traced is not built" >&2
fi
echo "built $out/gpu_measure with $nvcc, cuBLASLt of $lt_library"
