#!/bin/sh
# cuda_plugin.sh - the CUDA plugin loads, with all that it takes from lockstep, and declines
# politely where there is no GPU.
#
#   BUILD=build tests/exec/cuda_plugin.sh    from the root of the repository, after make
#
# The toolkit's stub of the driver lets it come that far without one.

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

plugin=$(dirname "$lockstep")/lockstep-cuda.so
cuda=$(sh tests/find_cuda.sh)
stub=$cuda/lib64/stubs/libcuda.so
if [ ! -f "$plugin" ] || [ ! -f "$stub" ]; then
    [ -f "$plugin" ] && plugin=$stub
    skip "loading the CUDA plugin" "there is no $plugin"
    tally
    exit
fi

begin "the plugin declines where there is only a stub of the driver"
mkdir "$folder/driver"
ln -s "$stub" "$folder/driver/libcuda.so.1"
LD_LIBRARY_PATH=$folder/driver "$lockstep" run "$folder/two.json" --backend cuda --ranks 2 \
    >"$folder/out" 2>"$folder/err"
status=$?
if [ $status != 1 ]; then
    fail "status $status: $(cat "$folder/err")"
elif grep -q 'cannot be loaded' "$folder/err" || ! grep -q 'stub, no driver' "$folder/err"; then
    fail "$(cat "$folder/err")"
elif [ "$(wc -l <"$folder/err")" != 1 ]; then
    fail "more than a sentence: $(cat "$folder/err")"
else
    pass
fi

begin "nothing is missing in it but what the driver brings"
LD_LIBRARY_PATH=$folder/driver LD_BIND_NOW=1 "$lockstep" run "$folder/two.json" \
    --backend cuda --ranks 2 >"$folder/out" 2>"$folder/err"
if grep -q 'undefined symbol' "$folder/err"; then
    fail "$(cat "$folder/err")"
else
    pass
fi

tally
