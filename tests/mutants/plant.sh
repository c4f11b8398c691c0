# plant.sh - sourced by tests/mutants/run and tests/course: which mistakes there are, how one is planted into a copy of
# the sources, and how the exploration programs are built from that copy and run.
#
# The caller is in the root of the repository; `work` is its scratch folder, `schedules` the number of schedules a
# scenario, and `most_seconds` how long an exploration program may run.
cc=${CC:-gcc}
product="frugal*.h frugal_flush.c src"
flags=(-std=c11 -D_GNU_SOURCE -O1 -ffp-contract=off -fno-math-errno -w -DFRUGAL_ROWS_BASELINE)
# Most mutants are caught after a few schedules, so the compiler is what takes time.
instrumented=(-O0 -fsanitize=thread -Dmemcpy=explore_copy -Dmemcmp=explore_compare)

# Copies what mutants are made of and tried with, and goes there, so that the sources may be worked on meanwhile.
enter_copy() {
    # shellcheck disable=SC2086 # paths without blanks
    mkdir "$work/tree" && cp -r $product tests "$work/tree" && cd "$work/tree"
}

# >>mutants: file, or a pattern of files, TAB line TAB occurrence TAB from TAB to TAB name

orders() { # file
    awk -v file="$1" '
        BEGIN {
            split("0 1 -1 -2 -3", neighbour, " ")
            weaker["load_acquire"] = "load_relaxed"
            weaker["store_release"] = "store_relaxed"
            weaker["add_acquire"] = weaker["add_release"] = "add_relaxed"
            weaker["add_acq_rel"] = "add_acquire add_release"
            weaker["or_acquire"] = "or_relaxed"
            weaker["cas_acquire"] = "cas_relaxed cas_acquire_or_relaxed"
            weaker["cas_release"] = "cas_relaxed"
            weaker["cas_acq_rel"] = "cas_acquire cas_release cas_acq_rel_or_relaxed"
        }
        function tag_of(at,    i, text) { # on this line, else one of its neighbours
            for (i = 1; i <= 5; i++) {
                text = lines[at + neighbour[i]]
                if (match(text, /\[(PQ|P|F)[0-9]+\]/)) return substr(text, RSTART, RLENGTH)
            }
            return "[?]"
        }
        { lines[FNR] = $0 }
        END {
            for (n = 1; n <= FNR; n++) {
                if (match(lines[n], /^[A-Za-z].*[a-z0-9_]+\(/)) { # a function: its last word before the bracket
                    where = substr(lines[n], 1, index(lines[n], "(") - 1)
                    sub(/.*[ *]/, "", where)
                }
                if (lines[n] ~ /^#define|^ \*/) continue
                rest = lines[n]
                split("", seen)
                while (match(rest, /frugal_(load|store|add|or|cas)_[a-z_]+\(/)) {
                    call = substr(rest, RSTART + 7, RLENGTH - 8)
                    rest = substr(rest, RSTART + RLENGTH)
                    occurrence = ++seen[call]
                    site = ++sites[where, call]
                    if (!(call in weaker) && call ~ /acquire|release|acq_rel/)
                        weaker[call] = "an_order_unknown_to_this_script"
                    count = split(weaker[call], to, " ")
                    for (i = 1; i <= count; i++)
                        printf "%s\t%d\t%d\tfrugal_%s(\tfrugal_%s(\t%s %s, %s: %s%s -> %s\n", file, n, occurrence, call,
                            to[i], tag_of(n), file, where, call, (site > 1 ? " " site : ""), to[i]
                }
            }
        }' "$1"
}

# Several lines of one mutant are separated by a byte that no source has.
logic() {
    awk -v OFS='\t' '
        function flush() { if (name != "") print file, 0, 1, from, to, "logic: " name; name = "" }
        /^#|^$/ { next }
        /^- /   { from = from (from == "" ? "" : "\036") substr($0, 3); next }
        /^\+/   { to = to (n++ ? "\036" : "") substr($0, 3) " "; next }
        /^  /   { to = to substr($0, 3) " "; next }
        {
            flush()
            file = substr($0, 1, index($0, ": ") - 1)
            name = substr($0, length(file) + 3)
            from = to = ""
            n = 0
        }
        END { flush() }' tests/mutants/logic
}

mutants() {
    for file in frugal_pq.h frugal_p2f.h src/*.h src/*/*.[ch]; do orders "$file"; done
    logic
}

# Writes the mutated files, which are those of a pattern where a mistake is one in several files, below the directory.
# Fails where a text is in none of them.
mutate() { # directory files line occurrence from to
    # shellcheck disable=SC2086 # $2 is a pattern
    awk -v into="$1" -v at="$3" -v occurrence="$4" -v from="$5" -v to="$6" '
        BEGIN { n = split(from, old, "\036"); split(to, new, "\036") }
        at > 0 && FNR == at { # the given occurrence within the line
            rest = $0; done = ""
            while ((i = index(rest, from)) > 0) {
                done = done substr(rest, 1, i - 1) (++found[1] == occurrence ? to : from)
                rest = substr(rest, i + length(from))
            }
            $0 = done rest
        }
        at == 0 { # whole lines
            match($0, /^ */)
            margin = substr($0, 1, RLENGTH)
            text = $0
            gsub(/^ +| +$/, "", text)
            for (k = 1; k <= n; k++)
                if (text == old[k]) { found[k]++; $0 = margin new[k]; sub(/ +$/, "") }
        }
        { print >(into "/" FILENAME) }
        END {
            for (k = 1; k <= n; k++)
                if (found[k] < (at > 0 ? occurrence : 1)) exit 1
        }' $2
}

# Makes the directory: the sources with one mistake. Fails where the text is not there.
plant() { # directory file line occurrence from to
    # shellcheck disable=SC2086 # paths without blanks
    mkdir "$1" && cp -r $product "$1" && mutate "$@" # each file includes what lies beside it
}

# >>trying one

build_explorer() { # once: what no mutant changes
    $cc "${flags[@]}" -I. -c tests/coroutine.c -o "$work/coroutine.o" &&
        $cc "${flags[@]}" -I. -O2 -c tests/explore/explore.c -o "$work/explore.o" &&
        $cc "${flags[@]}" -I. -c tests/explore/explore_main.c -o "$work/explore_main.o" &&
        $cc "${flags[@]}" -I. -c tests/explore/explore_posix.c -o "$work/explore_posix.o"
}

try() { # directory program
    local -a link=("$work/explore_main.o" "$work/explore.o" "$work/coroutine.o")
    # In the mutant's directory the mutated file is found first, before the one it replaces.
    $cc "${flags[@]}" "${instrumented[@]}" -I"$1" -I. -c "tests/explore/$2.c" -o "$1/$2.o" 2>"$1/compiler" || return 2
    if [ "$2" = explore_runtime ]; then
        link+=("$work/explore_posix.o")
    fi
    $cc "$1/$2.o" "${link[@]}" -lm -o "$1/$2" 2>"$1/compiler" || return 2
    FRUGAL_EXPLORE_SCHEDULES=$schedules FRUGAL_EXPLORE_FIRST=1 timeout "$most_seconds" "$1/$2" >"$1/log" 2>&1
}
