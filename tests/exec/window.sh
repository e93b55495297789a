#!/bin/sh
# window.sh - people's sessions with the viewer, in a real window on a display of its own.
#
#   BUILD=build tests/exec/window.sh      from the root of the repository, after make
#
# Events go through SDL's queue (viz/sdl_script.c); what the window shows is read back from
# it and must be, byte for byte, the picture that --render's rasteriser makes of that state.
# Needs Xvfb; without it, or without SDL2, there is nothing to try here.

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh
view=${LOCKSTEP:-$PWD/${BUILD:-build}/lockstep}-view

if ! has Xvfb || [ ! -x "$view" ]; then
    skip "the window" "no Xvfb here, or lockstep was built without SDL2"
    tally
    exit
fi

# A display that nobody has: Xvfb picks its number and says it on descriptor 3.
mkfifo "$folder/display"
Xvfb -displayfd 3 -screen 0 1600x1000x24 -nolisten tcp 3>"$folder/display" 2>/dev/null &
xvfb=$!
read -r number <"$folder/display"
export DISPLAY=":$number"
trap 'kill $xvfb 2>/dev/null; end' EXIT

# play NAME TRACE... < session: every "shot N" becomes a frame and a picture to compare.
play()
{
    name=$1
    shift
    sed "s|^shot \(.*\)|frame $folder/$name.\1.window.png\nsave $folder/$name.\1.list.png|" \
        >"$folder/$name.session"
    if timeout 60 "$view" "$@" --size 1280x720 --script "$folder/$name.session" \
        >"$folder/out" 2>"$folder/err"; then
        pass
    else
        fail "$(tail -n 3 "$folder/err")"
    fi
    for shot in "$folder/$name".*.window.png; do
        cmp -s "$shot" "${shot%.window.png}.list.png" && pass || fail "$shot is another picture"
    done
}

# shots NAME: how many of the pictures of a session differ from one another.
shots()
{
    cksum "$folder/$1".*.window.png | awk '{ print $1 }' | sort -u | wc -l
}

"$lockstep" sim "$folder/four.json" --trace "$folder/sim.lstrace" --expand-ranks \
    >/dev/null 2>"$folder/err" || fail "$(cat "$folder/err")"
"$lockstep" run "$folder/four.json" --steps 3 --clock virtual --trace "$folder/run.lstrace" \
    >/dev/null 2>"$folder/err" || fail "$(cat "$folder/err")"

begin "zoom, pan, history; nothing is drawn while nothing moves"
play zoom "$folder/run.lstrace" <<'END'
idle
shot 1
key w
key w
shot 2
key d
shot 3
key Backspace
key Backspace
key Backspace
shot 4
key 0
idle
END
[ "$(shots zoom)" = 3 ] && pass || fail "$(shots zoom) different pictures of 4, 3 expected"
cmp -s "$folder/zoom.1.window.png" "$folder/zoom.4.window.png" && pass || fail "not back"

begin "a selection, its numbers, search, filter, palette, help"
play find "$folder/run.lstrace" <<'END'
drag 400 200 800 400
expect selection = 1
expect selection_ns > 0
expect window_ns > 0
shot 1
key Esc
expect selection = 0
key /
expect omni = 1
type linear
expect message = 1
shot 2
key Enter
expect omni = 0
expect picked = 1
shot 3
key :
type class:comm
key Enter
expect filter = 1
shot 4
key >
type larger
expect offers = 1
shot 5
key Enter
shot 6
key Ctrl+-
key ?
expect help = 1
shot 7
key Esc
key c
shot 8
key q
expect drawer = 0
shot 9
END
[ "$(shots find)" = 9 ] && pass || fail "$(shots find) different pictures of 9"

begin "signs are what the keyboard's layout types, once"
play signs "$folder/run.lstrace" <<'END'
key /
expect typed = 1
key Esc
key Shift+7 /
expect omni = 1
expect typed = 1
type linear
expect typed = 7
key Enter
expect picked = 1
key Esc
key @
expect offers = 4
key Esc
key q @
expect drawer = 0
expect omni = 0
key q
key Ctrl+p
expect typed = 1
type rank
expect offers = 4
key /
expect typed = 6
key Esc
key Shift+. :
expect typed = 1
key Esc
key Shift+- ?
expect help = 1
key ?
expect help = 0
key Shift+, ;
expect picked = 0
shot 1
END

begin "a run beside its simulation: split, diff, the twin of an op"
play diff "$folder/run.lstrace" --compare "$folder/sim.lstrace" <<'END'
expect mode = 2
shot 1
key v
expect mode = 3
shot 2
key v
expect mode = 0
shot 3
key v
expect mode = 1
shot 4
key v
key .
expect picked = 1
key x
expect picked = 1
shot 5
END
[ "$(shots diff)" = 5 ] && pass || fail "$(shots diff) different pictures of 5"

begin "ranks by process group, by keyboard"
play groups "$folder/run.lstrace" <<'END'
shot 1
key g
expect grouped = 1
expect message = 1
shot 2
key Tab
key Enter
expect rows = 1
shot 3
key Shift+g
expect rows > 4
key Shift+g
expect rows = 1
key g
expect grouped = 0
END
[ "$(shots groups)" = 3 ] && pass || fail "$(shots groups) different pictures of 3"

begin "the window's size"
play size "$folder/run.lstrace" <<'END'
size 900 500
expect width = 900
shot 1
size 400 300
shot 2
size 1500 900
key l
shot 3
idle
END

begin "triangles instead of pixels: nearly the same picture"
LOCKSTEP_VIEW_RENDERER=sdl timeout 60 "$view" "$folder/run.lstrace" --size 640x400 \
    --script /dev/stdin >/dev/null 2>"$folder/err" <<END && pass || fail "$(cat "$folder/err")"
frame $folder/gpu.png
END
[ -s "$folder/gpu.png" ] && pass || fail "no picture"

begin "a session that goes wrong says where"
printf 'expect mode = 7\n' >"$folder/wrong"
"$view" "$folder/run.lstrace" --script "$folder/wrong" >/dev/null 2>"$folder/err" &&
    fail "status 0"
grep -q "wrong:1: mode is 0, expected = 7" "$folder/err" && pass || fail "$(cat "$folder/err")"

kill $xvfb
wait $xvfb 2>/dev/null
tally
