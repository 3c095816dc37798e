#!/bin/sh
# test_tools.sh: peer_info and peer_perf do what they say: every option, columns that can be read by scripts,
# results checked, and for what is wrong a message and a status that is not 0. Run in the build folder without
# mpirun, as a line of tests/list. Times are only looked at for being there.

set -u
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
mpi_setup || exit 1

info=src/tools/peer_info
perf=src/tools/peer_perf
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out
err=$folder/err
failures=0

complain() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    echo "  stdout:" && tail -n 20 "$out" | sed 's/^/    /'
    echo "  stderr:" && tail -n 20 "$err" | sed 's/^/    /'
}

# The command ends with status 0 and prints something that holds each pattern.
good() { # PATTERN... -- COMMAND...
    patterns=
    while [ "$1" != -- ]; do
        patterns="$patterns$1
"
        shift
    done
    shift
    if ! "$@" >"$out" 2>"$err" </dev/null; then
        complain "$* ended with an error"
        return
    fi
    while read -r pattern; do
        if [ -n "$pattern" ] && ! grep -q -e "$pattern" "$out"; then
            complain "$* printed nothing like: $pattern"
        fi
    done <<END
$patterns
END
}

# The command ends with an error and says on stderr something that holds the pattern, COUNT times.
bad() { # COUNT PATTERN COMMAND...
    count=$1
    pattern=$2
    shift 2
    if "$@" >"$out" 2>"$err" </dev/null; then
        complain "$* ended without an error"
    elif [ "$(grep -c -e "$pattern" "$err")" -ne "$count" ]; then
        complain "$* did not say $count times: $pattern"
    fi
}

ranks() { # N COMMAND...
    # shellcheck disable=SC2086 # mpirun and its switches
    $MPI_LAUNCH "$@"
}

# peer_perf on 2 ranks, few calls: short, and times don't matter here.
ranks2() { # COLLECTIVE OPTIONS...
    ranks 2 "$perf" "$@" -n 10 -w 1 -N 2
}

# The rows of the last output: how many, of 13 columns as nccl-tests', nothing wrong, times there. Roots are -1, or
# what is given; of the collective that has one buffer the times in place are not there.
rows() { # HOW-MANY [ROOTS] [one-buffer]
    if ! awk -v want="$1" -v roots="${2:--1}" -v step="${3:+8}" '
        /^#/ || NF == 0 { next }
        {
            n++
            if (NF < 15) { print "line " NR " has " NF " columns"; bad = 1 }
            if (index(" " roots " ", " " $5 " ") == 0) { print "line " NR ": root " $5; bad = 1 }
            if ($1 % $2 != 0) { print "line " NR ": size " $1 ", count " $2; bad = 1 }
            for (i = 6; i <= 10; i += (step ? step : 4)) {
                if ($i + 0 <= 0) { print "line " NR ": time " $i; bad = 1 }
                if ($(i + 3) != "0") { print "line " NR ": #wrong " $(i + 3); bad = 1 }
            }
        }
        END { if (n != want) { print n " rows, not " want; bad = 1 }; exit bad }' "$out"; then
        complain "the table above"
    fi
}

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

# A table of few sizes; then a run with it takes what it says.
test_perf_tune() {
    for collective in allreduce bcast alltoallv barrier; do
        good '^# [0-9]* rows* in .*/tuned' -- \
            ranks 3 "$perf" "$collective" --tune="$folder/tuned" -b 64 -e 512K -f 128 -N 1 -G 0
        if ! awk '/^#/ || NF == 0 { next } { n++; if (NF < 12 || $5 < 1 || $3 < $4) bad = 1 }
                  END { exit bad || n < 1 }' "$out"; then
            complain "its table"
        fi
        good "^[a-z]* *$collective *3-3 " '^# peer_perf .* --tune, 20.* 3 ranks, link ' -- cat "$folder/tuned"
    done
    echo 'host allreduce 2-2 any twoshot.ll.pull 1x1' >"$folder/table"
    good ' 64 .* ipc twoshot.ll.pull 1x1 ' -- \
        ranks 2 env PEER_DEVICE=host PEER_TABLE="$folder/table" "$perf" allreduce --tune="$folder/tuned" -b 64 -N 1
    good 'twoshot.line' -- ranks 2 env PEER_DEVICE=host PEER_ALGORITHM=twoshot.line.push \
        "$perf" allreduce --tune="$folder/tuned" -b 64 -N 1
    good '^host *allreduce *2-2 *64 *twoshot.line *1x1$' -- tail -n 1 "$folder/tuned"
    bad 1 'nothing to choose from where transport self' "$perf" allreduce --tune="$folder/tuned"
    bad 1 '/nowhere/table: No such' ranks 2 "$perf" allreduce --tune=/nowhere/table
    bad 1 'one datatype' "$perf" allreduce --tune="$folder/tuned" -d all
    bad 1 'not -i' "$perf" allreduce --tune="$folder/tuned" -i 8
}

# One document and nothing else.
test_perf_json() {
    if ! grep -q '^#define HAVE_JANSSON 1' config.h; then
        bad 1 'without jansson' "$perf" allreduce --json
        return
    fi
    good '"collective": "allreduce"' '"device": "' '"ranks": \[' '"size": 64,' '"type": "bf16"' '"redop": "sum"' \
        '"root": null' '"wrong": 0' '"us": [0-9]' '"us": null' '"library": "' '"mean_busbw": [0-9]' '"plan": "[a-z]' \
        -- ranks2 allreduce -b 64 -e 256 -f 4 -d bf16 -G 0 --compare mpi --json
    if [ "$(head -n 1 "$out")" != '{' ] || [ "$(tail -n 1 "$out")" != '}' ]; then complain "more than a document"; fi
    if [ "$(grep -c '"size"' "$out")" -ne 2 ]; then complain "not 2 rows"; fi
    cp "$out" "$folder/json"
    if command -v python3 >/dev/null; then good '"size": 64' -- python3 -m json.tool "$folder/json"; fi
    bad 1 'neither --json nor --plot' "$perf" allreduce --tune="$folder/tuned" --json
}

# Two curves in each of two plots; or the word that gnuplot is missing.
test_perf_plot() {
    mkdir "$folder/empty"
    bad 1 'needs gnuplot' ranks 2 env PATH="$folder/empty" "$PWD/$perf" allreduce --plot="$folder/plot.svg"
    bad 1 'a barrier has none' "$perf" barrier --plot="$folder/plot.svg"
    if ! command -v gnuplot >/dev/null; then
        echo "without gnuplot nothing is drawn"
        return
    fi
    bad 1 '/nowhere/plot.svg: No such' "$perf" allreduce --plot=/nowhere/plot.svg
    good 'Wrong elements *: 0 OK' -- ranks2 allreduce -b 64 -e 1K -G 0 --compare mpi --plot="$folder/it's.svg"
    good '^<svg' 'allreduce on 2 ranks' '>peercoll' '>mpi' 'GB/s' '^</svg>' -- cat "$folder/it's.svg"
}

# A row for each rank; publish, reduce and the total are always there, the wait under flag alone.
test_perf_phases() {
    for collective in allreduce bcast alltoall; do
        good '^# launch: ' 'publish *wait *reduce' -- ranks 3 "$perf" "$collective" --phases -b 600 -e 600K -f 32 -G 0
        if ! awk '/^#/ || NF == 0 { next }
                  { n++; if ($3 != (n - 1) % 3 || $5 <= 0 || $7 <= 0 || $10 < $5 || $11 != "eager") bad = 1 }
                  END { exit bad || n != 9 }' "$out"; then
            complain "its table"
        fi
    done
    for way in oneshot.line oneshot.flag twoshot.ll twoshot.flag.pull; do
        good "eager .* $way" -- ranks 2 env PEER_ALGORITHM=$way PEER_DEVICE=host "$perf" allreduce --phases -b 4K
        if ! awk -v flag="${way##*flag*}" -v two="${way##twoshot*}" '/^#/ || NF == 0 { next }
                  ($6 == "-") != (flag != "") || ($8 == "-") != (two != "") { bad = 1 } END { exit bad }' "$out"; then
            complain "its table"
        fi
    done
    bad 1 'a barrier has none' "$perf" barrier --phases
    bad 1 'goes with none' "$perf" allreduce --phases --json
    bad 1 'transport self serves' "$perf" allreduce --phases
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
test_perf_tune
test_perf_json
test_perf_plot
test_perf_phases
test_perf_errors
if [ "$failures" -gt 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all good"
