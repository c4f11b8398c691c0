# trains.sh - sourced by tests of how others get the library: the version, and whether a program that they make trains.
version_of() { # FOLDER
    sed -nE 's/^#define FRUGAL_VERSION_STRING +"([0-9.]+)"$/\1/p' "$1/frugal_pq.h"
}
trains() { # PROGRAM, of examples/quickstart.c: its error falls to less than a tenth
    "$1" >"$scratch/trained" 2>&1 || { cat "$scratch/trained" && return 1; }
    awk '/steps: error/ { for (i = 1; i < NF; i++) if ($i == "error") { from = $(i + 1); to = $(i + 3) } }
        END { print "error from", from, "to", to; exit !(from > 0 && to + 0 < from / 10) }' "$scratch/trained"
}
