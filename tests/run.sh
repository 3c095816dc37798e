#!/bin/sh
# run.sh: runs the lines of tests/list, each as one test, and counts. `make check` calls it in the build folder:
#
#   MPIEXEC=mpirun SOURCES/tests/run.sh [NAME...]      NAME may be a shell pattern; none means all
#
# A line of the list is: NAME RANKS [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]
#   RANKS            how many mpirun starts; 0 runs the program without mpirun
#   VARIABLE=VALUE   environment; TEST_TIMEOUT=SECONDS is ours: the most that this test may take. Without it, that
#                    is what TEST_TIMEOUT says where run.sh is called, or 120
#   PROGRAM          relative to the build folder, or to the sources
# A program passes by exit status 0, and skips by 77 after a line "SKIP: reason". All else is a failure, whose
# output is shown. Every output is kept in tests/logs/NAME.log. With PEER_DEVICE=cuda the ranks share the GPUs
# by MPS. The last line is "N passed, N failed, N skipped"; exit status 0 if none failed.

set -u -f # -f: arguments and patterns are not file names
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"

passed=0
failed=0
skipped=0

# Takes a line of the list apart into name, ranks, settings, limit and command.
parse_line() {
    name=$1
    ranks=$2
    shift 2
    settings=
    limit=${TEST_TIMEOUT:-120}
    while :; do
        case $1 in
        TEST_TIMEOUT=*) limit=${1#*=} ;;
        [A-Z]*=*) settings="$settings $1" ;;
        *) break ;;
        esac
        shift
    done
    if [ -x "$1" ]; then command=$1; else command=$sources/$1; fi
    shift
    command="$command $*"
    if [ "$ranks" -gt 0 ]; then command="$MPI_LAUNCH $ranks $command"; fi
}

# Whether $name is among the names asked for. No name asks for all.
wanted() {
    if [ $# -eq 0 ]; then return 0; fi
    for pattern in "$@"; do
        # shellcheck disable=SC2254 # a pattern is what it shall be
        case $name in $pattern) return 0 ;; esac
    done
    return 1
}

run_line() {
    log=tests/logs/$name.log
    began=$(date +%s)
    # --foreground: an interrupt from the keyboard reaches mpirun, which ends its ranks.
    # shellcheck disable=SC2086 # words are what they shall be
    env $settings timeout --foreground -k 10 "$limit" $command >"$log" 2>&1 </dev/null
    status=$?
    took=$(($(date +%s) - began))
    case $status in
    0)
        passed=$((passed + 1))
        echo "PASS: $name ($took s)"
        ;;
    77)
        skipped=$((skipped + 1))
        echo "SKIP: $name: $(sed -n 's/^SKIP: *//p' "$log" | head -n 1)"
        ;;
    *)
        failed=$((failed + 1))
        why="exit status $status"
        if [ "$took" -ge "$limit" ]; then why="not done after $limit s"; fi
        echo "FAIL: $name: $why; the end of $log:"
        echo "    \$$settings $command"
        tail -n 40 "$log" | sed 's/^/    /'
        ;;
    esac
}

run_list() {
    while read -r line; do
        case $line in '' | '#'*) continue ;; esac
        # shellcheck disable=SC2086 # words are what they shall be
        parse_line $line
        if wanted "$@"; then run_line; fi
    done <"$sources/tests/list"
}

mkdir -p tests/logs
mpi_setup || exit 1
# Read by builds with sanitizers only. MPI leaks by itself: whole call stacks show where a leak comes from. And up to
# GCC 13 the search for leaks now and then misreads thread-local memory and crashes, unless told to let it be.
export ASAN_OPTIONS="fast_unwind_on_malloc=0:intercept_tls_get_addr=0"
export LSAN_OPTIONS="suppressions=$sources/tests/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
if [ "${PEER_DEVICE:-}" = cuda ]; then
    trap mps_stop EXIT
    trap 'exit 130' INT TERM
    mps_start
fi

run_list "$@"
if [ $((passed + failed + skipped)) -eq 0 ]; then
    echo "no line of tests/list is called: $*"
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
