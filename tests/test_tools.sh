#!/bin/sh
# test_tools.sh: peer_info and peer_perf do what they say: every option, columns that can be read by scripts,
# results checked, and for what is wrong a message and a status that is not 0. Run in the build folder without
# mpirun, as a line of tests/list. Times are only looked at for being there.

set -u
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
. "$sources/tests/tools.sh"
info=src/tools/peer_info

test_info() {
    good '^peercoll [0-9]' 'MPI' 'CUDA' 'NCCL' 'CPU kernels' '^GPUs' -- "$info"
    good '^PEER_DEVICE' '^PEER_TIMEOUT_MS' -- "$info" --settings
    good '^host *allreduce' '^wire *barrier' -- "$info" --table
    good '^host.*ipc [a-z]*[.][a-z]* ' '^wire.*nccl' '^host.* mpi ' -- "$info" --select allreduce 43008 bf16 8
    echo 'wire allreduce 8-8 65536 twoshot.ll 7x96' >"$folder/table"
    good '^wire.*ipc twoshot.ll 7x96 *row: wire .*  of PEER_TABLE .*/table$' -- \
        env PEER_TABLE="$folder/table" "$info" --select allreduce 43008 bf16 8
    good "^# PEER_TABLE $folder/table" '^wire *allreduce *8-8 *65536 *twoshot.ll *7x96$' '^host *allreduce' -- \
        env PEER_TABLE="$folder/table" "$info" --table
    cp "$out" "$folder/all"
    good '^host *allreduce' -- env PEER_TABLE="$folder/all" "$info" --table
    echo 'wire allreduce 8-8 64K nccl' >"$folder/table"
    bad 1 'table, line 1: BYTES' env PEER_TABLE="$folder/table" "$info" --table
    bad 1 'table, line 1: BYTES' env PEER_TABLE="$folder/table" "$info" --select allreduce 8 fp32 2
    good '^local.*self' -- "$info" --select barrier 0 int32 1
    good '^peer_info (peercoll) [0-9]' -- "$info" --version
    good '--select' -- "$info" -h
    good '^ranks *2$' '^device' '^transport' '^plan' -- ranks 2 "$info" --comm
    if [ "$(grep -c '^ranks' "$out")" -ne 1 ]; then complain "--comm is not printed by one rank alone"; fi
    good '^stores, GB/s' '^loads, GB/s' '^flags, us' '^ *2 .* -$' 'to all in turn *[0-9]' '^islands' -- \
        ranks 3 env XDG_CACHE_HOME="$folder" "$info" --matrix
    if [ "$(grep -c '^ *[0-2]  .*-' "$out")" -ne 9 ]; then complain "--matrix has not three rows in each of three"; fi
    good '^ranks *3$' '^stores, GB/s' -- ranks 3 env XDG_CACHE_HOME="$folder" "$info" --comm
    bad 1 'no such collective' "$info" --select allsort 8 fp32 2
    bad 1 'BYTES' "$info" --select allreduce 8Q fp32 2
    bad 1 'whole number' "$info" --select allreduce 3 fp32 2
    bad 1 'TYPE' "$info" --select allreduce 8 fp33 2
    bad 1 'RANKS' "$info" --select allreduce 8 fp32 0
    bad 1 'needs COLLECTIVE' "$info" --select allreduce
    bad 1 'one thing' "$info" --table --settings
    bad 1 'no use' "$info" allreduce
    bad 1 'PEER_TIMEOUT_MS' env PEER_TIMEOUT_MS=soon "$info" --settings
}

# Starting MPI takes most of the time, so each run here is to show several things.
test_perf_tables() {
    good 'Wrong elements *: 0 OK' '^# rank 1: ' -- ranks2 allreduce -b 8 -e 32K -f 16 -G 0
    rows 4
    good 'Wrong elements *: 0 OK' -- ranks2 allreduce -b 1000 -e 1100 -i 50 -d all -o all -G 0
    rows 381
    # NCCL may serve or not, MPI adds up 12 of the 16 types that have a sum.
    good '^#.*nccl *ratio *mpi *ratio *plan' '^# nccl: ' 'Geometric mean of mpi / ours, eager: [0-9.]* (rows: 24)' \
        '^ .* bf16 .* eager .* -  *-  [a-z]' -- ranks2 allreduce -b 4K -e 8K -d all --compare mpi,nccl -G 0
    rows 32
    good ' graph ' ' N/A ' -- ranks2 allreduce -b 64 -G 5 -c 0
    good '^ .* none .* eager' -- ranks2 barrier --compare mpi -G 0
    # Without -n the number of calls is chosen.
    good 'Wrong elements *: 0 OK' -- ranks 1 "$perf" allreduce -b 8 -N 1 -G 0
    rows 1
    good 'Usage: ' -- ranks 2 "$perf" -h
    if [ "$(grep -c 'Usage: ' "$out")" -ne 1 ]; then complain "-h is not printed by one rank alone"; fi
    good '^peer_perf (peercoll) [0-9]' -- "$perf" --version
}

# 3 ranks: sizes don't come out even. The smallest is less than an element for each rank.
ranks3() { # COLLECTIVE OPTIONS...
    good 'Wrong elements *: 0 OK' -- ranks 3 "$perf" -b 8 -e 1M -f 19 -G 0 -n 3 -w 1 -N 1 "$@"
}

test_perf_collectives() {
    for collective in allgather allgatherv alltoall alltoallv; do
        ranks3 "$collective" --compare mpi
        rows 5
    done
    for collective in reduce_scatter_block reduce_scatter; do
        ranks3 "$collective" -d all -o all -e 4K
        rows 381
    done
    for collective in reduce gather scatter; do
        ranks3 "$collective" -r -1 --compare mpi
        rows 15 '0 1 2'
    done
    ranks3 bcast -r 2 -d all -e 4K --compare mpi # 8 bytes are no complex128
    rows 50 2 one-buffer
}

# One rank tells of what all see. The rest goes without mpirun, which takes its time to end when a rank fails.
test_perf_errors() {
    bad 1 'which collective' ranks2
    bad 1 'PEER_STAGING_BYTES' ranks 2 env PEER_STAGING_BYTES=1 "$perf" allreduce
    bad 1 'no such collective; there are allreduce' "$perf" allsort
    bad 1 'one collective at a time' "$perf" allreduce barrier
    bad 1 '-b -8: not a size' "$perf" allreduce -b -8
    bad 1 'exchange -b and -e' "$perf" allreduce -b 16 -e 8
    bad 1 'one of int8' "$perf" allreduce -d float99
    bad 1 '-r 1: give a rank, from 0 to 0' "$perf" bcast -r 1
    bad 1 'bool' "$perf" allreduce -d bool -o sum
    bad 1 '-f 1: give a number from 2' "$perf" allreduce -f 1
    bad 1 'give nccl, mpi' "$perf" allreduce --compare gloo
    bad 1 'unrecognized option' "$perf" allreduce --frobnicate
}

test_info
test_perf_tables
test_perf_collectives
test_perf_errors
end_checks
