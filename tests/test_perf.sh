#!/bin/sh
# test_perf.sh: what peer_perf does beside its table of times: --tune, --json, --plot, --phases. Run in the build folder
# without mpirun, as a line of tests/list.

set -u
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
. "$sources/tests/tools.sh"

# A table of few sizes; then a run with it takes what it says.
test_perf_tune() {
    for collective in allreduce bcast alltoallv barrier; do
        good '^# [0-9]* rows* in .*/tuned' -- \
            ranks 3 "$perf" "$collective" --tune="$folder/tuned" -b 64 -e 256K -f 64 -N 1 -G 0
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
    bad 1 'goes with none' "$perf" allreduce --phases --json
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
        good '^# launch: ' 'publish *wait *reduce' -- ranks 3 "$perf" "$collective" --phases -b 600 -e 60K -f 10 -G 0
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
    bad 1 'transport self serves' "$perf" allreduce --phases
}

test_perf_tune
test_perf_json
test_perf_plot
test_perf_phases
end_checks
