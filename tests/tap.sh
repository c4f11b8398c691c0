# tap.sh - sourced by test scripts: each check is one TAP case. The plan comes last, so a script that dies
# early is seen by tests/run.
cases=0 failed=0 skipped=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# short, long: whether this run has checks of that tier. `ninja test` runs what is short; `ninja test-long` sets
# FRUGAL_TIER=long, and runs what is left; `ninja test-all` runs the two. A script run with FRUGAL_TIER=all does all.
short() {
    [ "${FRUGAL_TIER:-short}" != long ]
}
long() {
    [ "${FRUGAL_TIER:-short}" != short ]
}
# in_tier short|long|both: the tier of the checks that follow. ok and skip pass over those that are not of this run.
checks_of=both
in_tier() {
    checks_of=$1
}
passed_over() {
    case $checks_of in
    short) ! short ;;
    long) ! long ;;
    *) false ;;
    esac
}

# ok NAME COMMAND...: passes if the command succeeds; shows what it said if it does not.
ok() {
    local name=$1
    passed_over && return
    shift
    cases=$((cases + 1))
    if "$@" >"$scratch/output" 2>&1; then
        echo "ok $cases - $name"
    else
        failed=$((failed + 1))
        echo "not ok $cases - $name"
        head -n 40 "$scratch/output" | sed 's/^/# /'
    fi
}

# skip NAME REASON
skip() {
    passed_over && return
    cases=$((cases + 1)) skipped=$((skipped + 1))
    echo "ok $cases - $1 # SKIP $2"
}

# choices PROGRAM OPTION: the words that its help lists for the option; `none` if there are none.
choices() {
    local words
    words=$("$1" --help | sed -n "s/^ *$2 NAME *\([^:]*\):.*/\1/p" | tr -d ,)
    echo "${words:-none}"
}

# once COMMAND OPTION...: runs it with the last of each option alone, because programs refuse what is given twice: so
# checks can have options in common that some of them say otherwise. --data may come several times.
once() {
    local -A begins=()
    local word words=() of=() name= n=0 i
    for word; do
        if [[ $word == --?* ]]; then
            name=${word%%=*} n=$((n + 1))
            if [[ $name != --data && -n ${begins[$name]} ]]; then
                for i in "${!of[@]}"; do [ "${of[i]}" -ne "${begins[$name]}" ] || unset "words[i]" "of[i]"; done
            fi
            begins[$name]=$n
        fi
        words+=("$word") of+=("$n")
    done
    "${words[@]}"
}

# enough LEAST: passes lines on; fails if there are fewer, so that a check of nothing does not pass.
enough() {
    awk -v least="$1" '{ print } END { if (NR < least) { print "only " NR " found" > "/dev/stderr"; exit 1 } }'
}

# flip FILE AT: changes a byte, whatever its value is. Setting it to a constant could change nothing, because drawn
# values (an id, a checksum) may equal any constant.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1") || return 1
    printf "\\x$(printf %02x $((byte ^ 0x40)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# parts N BYTES FILE: N parts, BYTES again and again: parts 5 '\000\001' FILE.
parts() {
    local one
    one=$(printf '%b' "$2" | wc -c)
    # shellcheck disable=SC2059 # the bytes are the format
    printf "$2%.0s" $(seq $((($1 + one - 1) / one))) | head -c "$1" >"$3"
}

finish() {
    echo "1..$cases"
    [ "$failed" -eq 0 ]
}

# The last line of scripts that are run by themselves, as of tests/run.
count() {
    echo "$((cases - failed - skipped)) passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
