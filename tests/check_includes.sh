#!/bin/sh
# check_includes.sh - the rules of the house that a compiler does not check.
#
#   tests/check_includes.sh [ROOT]         checks the tree, one test per rule
#   tests/check_includes.sh --self-test    checks the checker on made-up files
#
#   includes   A folder includes core/ and itself; viz/ also profile/metrics.h; only cmd_*.c
#              join folders, and lockstep.c sees their cmd.h.  Names start at the root.
#              A system library stays where `home` below says.
#   functions  No function has more than 70 lines from brace to brace, not counting empty
#              ones, unless its comment or body says: flat table.
#   width      No line has more than 100 columns.
#   header     Every file starts with a comment that says what it is.

# Source files of the tree, without generated ones.
sources()
{
    for folder in core sim exec profile traces viz tests; do
        [ -d "$folder" ] && find "$folder" -name "$1"
    done
    for file in *; do
        # shellcheck disable=SC2254
        case $file in $1) echo "$file" ;; esac
    done
}

c_sources()
{
    for kind in '*.c' '*.h' '*.cu' '*.cuh'; do
        sources "$kind"
    done
}

all_sources()
{
    c_sources
    for kind in '*.sh' '*.inc' Makefile; do
        sources "$kind"
    done
}

check_includes()
{
    c_sources | LC_ALL=C sort | xargs -r awk '
    BEGIN {
        # Header of a system library, and the only files that may include it.
        home["^cjson/|^cJSON"] = "^core/json[.]c$"
        home["^(cuda|cublas|cudnn|curand|nccl|cupti|nvtx|nvToolsExt|nvml|nvrtc)"] = \
            "^exec/backend_cuda|^exec/.*[.]cuh?$|^profile/capture|^tests/(gpu|on_cpu)/"
        home["^SDL"] = "^viz/"
        home["^ft2build|^freetype"] = "^viz/font_file[.]c$"
        home["^png[.]h"] = "^viz/png[.]c$"
        home["^sqlite3"] = "^traces/nsys[.]c$|^tests/(unit/test|bench/bench)_nsys[.]c$"
    }
    function folder(path) { return path ~ "/" ? substr(path, 1, index(path, "/") - 1) : "" }
    function complain(why) {
        printf "%s:%d: \"%s\" may not be included here: %s\n", FILENAME, FNR, name, why
    }
    FNR == 1 { mine = folder(FILENAME); joins = FILENAME ~ "/cmd_[^/]*[.]c$" || mine == "tests" }
    !/^[ \t]*#[ \t]*include[ \t]*[<"]/ { next }
    {
        quoted = $0 ~ "include[ \t]*\""
        name = $0
        gsub(/^[^<"]*[<"]|[>"].*$/, "", name)
        for (header in home)
            if (name ~ header && FILENAME !~ home[header])
                complain("only in " home[header])
        if (!quoted || name ~ /^cJSON|^sqlite3|^SDL/ || FILENAME ~ "^tests/gpu/")
            next
        theirs = folder(name)
        if (theirs == "")
            complain("write its path from the root of the repository")
        else if (theirs == "core" || theirs == mine || joins)
            next
        else if (mine == "viz" && name == "profile/metrics.h")
            next
        else if (FILENAME == "lockstep.c" && name ~ "^[^/]*/cmd[.]h$")
            next
        else
            complain("only core/ and the own folder; cmd_*.c join folders")
    }'
}

check_functions()
{
    c_sources | LC_ALL=C sort | xargs -r awk '
    FNR == 1 { inside = allowed = 0 }
    /flat table/ { allowed = 1 }
    /^\{/ { inside = 1; lines_n = 0; start = FNR }
    inside && !/^[ \t]*$/ { lines_n++ }
    /^\}/ {
        if (inside && lines_n > 70 && !allowed)
            printf "%s:%d: this function has %d lines; 70 is the wall\n", FILENAME, start, lines_n
        inside = allowed = 0
    }'
}

# In the C locale awk counts bytes: the continuation bytes of UTF-8 go first.
check_width()
{
    all_sources | LC_ALL=C sort | LC_ALL=C xargs -r awk '
    length($0) > 100 {
        line = $0
        gsub(/[\200-\277]/, "", line)
        if (length(line) > 100)
            printf "%s:%d: %d columns; 100 is the wall\n", FILENAME, FNR, length(line)
    }'
}

check_header()
{
    all_sources | LC_ALL=C sort | xargs -r awk '
    FNR == 1 && /^#!/ { next }
    FNR <= 2 && !seen[FILENAME]++ {
        c = FILENAME ~ /[.](c|h|cu|cuh)$/
        if (c ? $0 !~ "^/[*]" : $0 !~ "^# ?")
            printf "%s:1: the file does not start with a comment on what it is\n", FILENAME
    }'
}

# Runs each rule on the tree in the working folder.
check_tree()
{
    passed=0 failed=0
    for rule in includes functions width header; do
        found=$("check_$rule")
        if [ -z "$found" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            printf '%s\n' "$found" >&2
        fi
    done
    echo "check_includes: $passed passed, $failed failed"
    [ $failed = 0 ]
}

# ---- the self test ---------------------------------------------------------------------

# expect RULE good|bad FILE WHAT: the text on stdin, put into FILE, is good or bad.
expect()
{
    mkdir -p "$(dirname "$3")"
    cat >"$3"
    found=$("check_$1" 2>&1)
    if { [ "$2" = good ] && [ -z "$found" ]; } || { [ "$2" = bad ] && [ "$found" ]; }; then
        echo passed >>tally
    else
        echo failed >>tally
        echo "check_includes.sh: $4 in $3 should be $2: ${found:-nothing was found}" >&2
    fi
    rm -f "$3"
}

include() # RULE-RESULT FILE INCLUDED
{
    echo "#include $3" | expect includes "$1" "$2" "$3"
}

function_of() # LINES, each a statement between the braces
{
    echo "int f(void) /* $2 */"
    echo "{"
    seq "$1" | sed 's/.*/    g();\n/'
    echo "}"
}

self_test()
{
    include good core/a.c '"core/err.h"'
    include bad core/a.c '"sim/cost.h"'
    include bad core/a.c '"err.h"'
    include good sim/strategy/ddp.c '"sim/build.h"'
    include good sim/a.c '"core/patterns/ring.h"'
    include bad sim/a.c '"profile/metrics.h"'
    include bad sim/a.c '"exec/cmd.h"'
    include good sim/cmd_sim.c '"traces/chrome.h"'
    include bad sim/xcmd_sim.c '"traces/chrome.h"'
    include good viz/a.c '"profile/metrics.h"'
    include bad viz/a.c '"profile/compare.h"'
    include good lockstep.c '"sim/cmd.h"'
    include bad lockstep.c '"sim/cost.h"'
    include good tests/unit/test_a.c '"sim/cost.h"'
    include good core/json.c '<cjson/cJSON.h>'
    include bad core/json_out.c '<cjson/cJSON.h>'
    include bad sim/cmd_sim.c '<cjson/cJSON.h>'
    include bad exec/launch.c '<cuda_runtime.h>'
    include good exec/backend_cuda.c '<nccl.h>'
    include good exec/kernels.cu '<cuda_bf16.h>'
    include good profile/capture.c '<cupti.h>'
    include good tests/gpu/a.c '"kernels.h"'
    include bad tests/unit/test_a.c '<cublasLt.h>'
    include good viz/window.c '<SDL2/SDL.h>'
    include bad profile/a.c '<SDL2/SDL.h>'
    include good viz/png.c '<png.h>'
    include bad viz/raster.c '<png.h>'
    include bad viz/font.c '<ft2build.h>'
    include good traces/nsys.c '<sqlite3.h>'
    include bad traces/chrome.c '<sqlite3.h>'
    include good traces/chrome.c '<zlib.h>'

    function_of 68 "" | expect functions good core/a.c "a function of 70 lines"
    function_of 69 "" | expect functions bad core/a.c "a function of 71 lines"
    function_of 99 "flat table" | expect functions good core/a.c "a flat table of 101 lines"

    printf '%0100d\n' 0 | expect width good core/a.h "a line of 100 columns"
    printf '%0101d\n' 0 | expect width bad tests/a.sh "a line of 101 columns"
    printf '%099d—\n' 0 | expect width good core/a.c "a line of 100 columns in UTF-8"

    printf '/* a.c - text */\n' | expect header good core/a.c "a comment"
    printf '#include "core/a.h"\n' | expect header bad core/a.c "an include"
    printf '#!/bin/sh\n# a.sh - text\n' | expect header good tests/a.sh "a comment"
    printf '#!/bin/sh\nset -e\n' | expect header bad tests/a.sh "a command"

    passed=$(grep -c passed tally) failed=$(grep -c failed tally)
    echo "check_includes_self_test: $passed passed, $failed failed"
    [ $failed = 0 ]
}

if [ "$1" = --self-test ]; then
    folder=$(mktemp -d) && cd "$folder" || exit 1
    self_test
    status=$?
    rm -rf "$folder"
    exit $status
fi
cd "${1:-$(dirname "$0")/..}" && check_tree
