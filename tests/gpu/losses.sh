# losses.sh - losses of --json runs, compared; sourced, with $folder for what lies about.

# losses FILE: one a line
losses() {
    sed -n '/"losses": \[/,/\]/p' "$1" | sed 's/.*\[//; s/\].*//' | tr -d ' \n' | tr ',' '\n'
}

# largest_difference FILE FILE: relative, "bad" when there are not as many numbers
largest_difference() {
    losses "$1" >"$folder/a"
    losses "$2" >"$folder/b"
    echo >>"$folder/a"
    echo >>"$folder/b"
    paste "$folder/a" "$folder/b" | awk '
        $1 == "" && $2 == "" { next }
        $1 !~ /^[-+0-9.eE]+$/ || $2 !~ /^[-+0-9.eE]+$/ { bad = 1 }
        { d = $1 - $2; d = d < 0 ? -d : d; w = $1 < 0 ? -$1 : $1; n++
          if (w > 0 && d / w > most) most = d / w }
        END { print bad || !n ? "bad" : most + 0 }'
}

# same_losses FILE FILE LIMIT
same_losses() {
    local off
    off=$(largest_difference "$1" "$2")
    [ "$off" != bad ] && awk "BEGIN { exit !($off <= $3) }"
}
