#!/bin/sh
# setup.sh - sees to it that what lockstep is built and tested with is installed.
#
#   sh tests/setup.sh          what the program needs, and what it can use
#   sh tests/setup.sh test     also what only tests use
#
# The lack of what is not needed is a note, no failure.
#
# With root, or with sudo that asks no password, missing packages are installed
# (Debian and its relatives).  Else prints the line to run.  LOCKSTEP_NO_INSTALL=1
# forbids installing.  When nothing is missing this looks, says nothing and is quick.

# Package, then how to see whether it is there: a command, a header, or a function below.
required="
gcc             command gcc
make            command make
libc6-dev       header stdio.h
libcjson-dev    header cjson/cJSON.h
zlib1g-dev      header zlib.h
libsqlite3-dev  header sqlite3.h
libpng-dev      header png.h
libfreetype-dev file /usr/include/freetype2/ft2build.h
libopenblas0-pthread library libopenblas.so.0
"
optional="
libsdl2-dev       header SDL2/SDL.h
fonts-inter       file /usr/share/fonts/opentype/inter/Inter-Regular.otf
fonts-dejavu-core file /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
"
test_only="
clang           command clang
g++             command g++
libclang-rt-dev fuzzer_runtime
lld             command ld.lld
clang-format    command clang-format
xvfb            command Xvfb
"

header()
{
    echo "#include <$1>" | gcc -E - >/dev/null 2>&1
}

file()
{
    [ -f "$1" ]
}

# Loaded at run time: is it where the loader looks?
library()
{
    ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
    "$ldconfig" -p 2>/dev/null | grep -q "$1"
}

fuzzer_runtime()
{
    ls "$(clang -print-runtime-dir 2>/dev/null)"/libclang_rt.fuzzer* >/dev/null 2>&1
}

# The packages of a table that are not there, in one line.
missing()
{
    echo "$1" | while read -r package probe argument; do
        [ -z "$package" ] && continue
        if [ "$probe" = command ]; then
            command -v "$argument" >/dev/null && continue
        else
            "$probe" "$argument" && continue
        fi
        echo "$package"
    done | xargs
}

as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
fi
install_line="apt-get install -y --no-install-recommends"

may_install()
{
    [ -z "$LOCKSTEP_NO_INSTALL" ] && command -v apt-get >/dev/null &&
        { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }
}

install_packages()
{
    may_install || return 1
    echo "setup: installing $*" >&2
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 &&
        $as_root env DEBIAN_FRONTEND=noninteractive $install_line -qq "$@" >/dev/null
}

needed=$(missing "$required")
[ "$1" = test ] && optional="$optional$test_only"
wanted=$(missing "$optional")
[ -z "$needed$wanted" ] && exit 0

# All at once; and if that fails, what the program needs, and of the rest what there is.
# shellcheck disable=SC2086
if ! install_packages $needed $wanted && may_install; then
    [ -n "$needed" ] && install_packages $needed
    for package in $wanted; do
        install_packages "$package"
    done
fi
needed=$(missing "$required")
[ -n "$wanted" ] && wanted=$(missing "$optional")

if [ -n "$wanted" ]; then
    echo "setup: some tests, or the window of 'lockstep view', or letters beyond Latin are" >&2
    echo "setup: left out without: $wanted" >&2
fi
if [ -n "$needed" ]; then
    echo "setup: lockstep cannot be built without: $needed" >&2
    echo "setup: on Debian run, as root: apt-get update && $install_line $needed" >&2
    exit 1
fi
