# mpi.sh - sourced by tests that run ranks on this machine, more than it has cores.
#
#   mpi_missing             why there are no ranks; nothing if there are
#   ranks N COMMAND...      runs it N times, as ranks, for at most RANKS_SECONDS (120)

mpi_missing() {
    if ! command -v mpicc >/dev/null 2>&1; then
        echo "mpicc is not installed (apt-get install libopenmpi-dev)"
    elif ! command -v mpirun >/dev/null 2>&1; then
        echo "mpirun is not installed (apt-get install openmpi-bin)"
    fi
}

# Open MPI: root is refused without a word, and ranks that wait keep the cores; in some containers they may not read
# each other's memory.
ranks() {
    local n=$1 flags=()
    shift
    ! mpirun --version 2>&1 | grep -q 'Open MPI' ||
        flags=(--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1
            --mca btl_vader_single_copy_mechanism none)
    timeout -k 5 "${RANKS_SECONDS:-120}" mpirun "${flags[@]}" -n "$n" "$@" </dev/null
}
