# kge.sh - sourced by scripts that test kge, after tests/tap.sh: a small graph, and what a program must say.
build=$PWD/${FRUGAL_BUILD:-build}
export OPENBLAS_NUM_THREADS=1

prints() { # PATTERN COMMAND...
    local pattern=$1
    shift
    "$@" >"$scratch/said" 2>&1 || { echo "exit status $?"; cat "$scratch/said"; return 1; }
    grep -Eq "$pattern" "$scratch/said" || { cat "$scratch/said"; return 1; }
}
# exits STATUS COMMAND...: with that status, and one clear line where it is 1
exits() {
    local wanted=$1 got
    shift
    "$@" >/dev/null 2>"$scratch/said"
    got=$?
    [ "$got" -eq "$wanted" ] || { echo "exit status $got, not $wanted:"; cat "$scratch/said"; return 1; }
    [ -s "$scratch/said" ] || { echo "nothing said on stderr"; return 1; }
    [ "$wanted" -ne 1 ] || [ "$(wc -l <"$scratch/said")" -eq 1 ] ||
        { echo "not one line:"; cat "$scratch/said"; return 1; }
}

graph="entities=300,relations=5,triples=2000,seed=3"
small=(--dim 16 --batch 50 --chunk 50 --negatives 20 --steps 60)
tiny() { # DIR OPTION...: trains on a tiny graph, saves to DIR
    local dir=$1
    shift
    case " $* " in
    *' --scoring '*) options=("${small[@]:0:4}" --steps 60) ;; # without --negatives
    *) options=("${small[@]}") ;;
    esac
    once "$build/kge" --generate $graph "${options[@]}" --eval none --eval-every 0 --save "$dir" "$@"
}
