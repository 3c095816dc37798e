#!/bin/sh
# test_check.sh: mpirun -np N peer_info --check on this machine, whatever is right or wrong with it: all ranks end with
# one status that agrees with what is printed, as text and as JSON, and what is made wrong is found. Run in the build
# folder without mpirun, as a line of tests/list. tests/test_doctor.c has the checks themselves.

set -u
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
. "$sources/tests/tools.sh"

info=src/tools/peer_info

# Runs --check on 2 ranks; its exit status goes to $status.
check() { # [VARIABLE=VALUE...] [OPTION...]
    settings=
    while :; do
        case ${1:-} in
        [A-Z]*=*) settings="$settings $1" && shift ;;
        *) break ;;
        esac
    done
    # shellcheck disable=SC2086 # words are what they shall be
    env $settings $MPI_LAUNCH 2 "$info" --check "$@" >"$out" 2>"$err" </dev/null
    status=$?
}

printed() { # PATTERN...
    for pattern in "$@"; do
        if ! grep -q -e "$pattern" "$out"; then complain "nothing like: $pattern"; fi
    done
}

# The status that fits what was printed.
fits() {
    wanted=0
    if grep -q '^verdict: [0-9]* finding' "$out"; then wanted=1; fi
    if [ "$status" -ne "$wanted" ]; then complain "status $status, not $wanted"; fi
    if [ "$(grep -c '^verdict: ' "$out")" -ne 1 ]; then complain "not one verdict"; fi
}

is_json() {
    if command -v python3 >/dev/null && ! python3 -m json.tool <"$out" >/dev/null; then complain "no JSON"; fi
}

test_text() {
    check
    fits
    printed '^2 ranks, device ' 'settings: every PEER_ variable is a setting'
    check PEER_TRANSPORT=mpi PEER_TRANSPRT=ipc PEER_LOG=off
    fits
    printed 'device [a-z]*, transport mpi' '(peer-path)$' 'calls go through mpi, as PEER_TRANSPORT says' \
        '  do   unset PEER_TRANSPORT' 'PEER_TRANSPRT is no setting' '^verdict: [0-9]* findings'
    check PEER_DEVICE=host PEER_STAGING_BYTES=64K
    fits
    printed '^2 ranks, device host, transport ipc$' 'peer-path: ipc: the ranks map each other' 'shm: .* are needed' \
        '^not checked$' 'no GPU is in use'
}

# A path that is asked for and can't be is a finding like others, not the end.
test_no_communicator() {
    check PEER_DEVICE=host PEER_TRANSPORT=nccl
    fits
    printed "no communicator can be made: PEER_TRANSPORT=nccl can't serve"
}

test_json() {
    check PEER_DEVICE=host PEER_TRANSPORT=mpi --json
    if grep -q 'built without jansson' "$err"; then
        if [ "$status" -ne 2 ]; then complain "status $status without jansson, not 2"; fi
        echo "without jansson the document is not tested"
        return
    fi
    is_json
    printed '"ranks": 2' '"device": "host"' '"transport": "mpi"' '"check": "peer-path"' '"do": "unset PEER_TRANSPORT' \
        '"not_checked": \['
    if [ "$status" -ne 1 ]; then complain "status $status, not 1"; fi
    check PEER_DEVICE=host --json
    is_json
    printed '"transport": "ipc"'
}

# What can't be checked at all.
test_unable() {
    check PEER_BLOCKS=many
    if [ "$status" -ne 2 ]; then complain "status $status, not 2"; fi
    if [ "$(grep -c 'PEER_BLOCKS is "many"' "$err")" -ne 1 ]; then complain "not one message"; fi
    "$info" --json >"$out" 2>"$err"
    if [ $? -ne 2 ] || ! grep -q -e '--json goes with --check' "$err"; then complain "--json alone"; fi
    # Nothing but itself to talk to is no reason to fail.
    "$info" --check >"$out" 2>"$err"
    status=$?
    fits
    printed '^1 rank, ' 'mpirun -np N starts more'
}

test_text
test_no_communicator
test_json
test_unable
end_checks
