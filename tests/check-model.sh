#!/bin/sh
# check-model.sh: the table in docs/model.md is what the model says of the measurements in docs/model-data.txt, and no group
# of them is further off than its bound. And peer_info --model says what is wrong with a line that it can't read. Run in the
# build folder without mpirun, as a line of tests/list.

set -u
export LC_ALL=C
sources=$(cd "$(dirname "$0")/.." && pwd)
page=$sources/docs/model.md
data=$sources/docs/model-data.txt
info=src/tools/peer_info
mark='<!-- from here on: peer_info --model-check docs/model-data.txt -->'
. "$sources/tests/checks.sh"

# A file of one more line than a good beginning.
bad_line() { # PATTERN LINE
    printf 'machine a ranks=2 flag_us=1 all_store_gbs=10\ngroup 10 Some\n%s\n' "$2" >"$folder/data"
    bad 1 "$folder/data:3: $1" "$info" --model-check "$folder/data"
}

test_page() {
    if ! "$info" --model-check "$data" >"$folder/now"; then complain "the model is further off than a bound"; fi
    awk -v mark="$mark" 'on { print } $0 == mark { on = 1 }' "$page" >"$folder/page"
    if ! diff -u "$folder/page" "$folder/now"; then
        complain "$page is not what the model says; to renew it:" \
            "sed -i '/^<!-- from here/q' docs/model.md && peer_info --model-check docs/model-data.txt >>docs/model.md"
    fi
}

test_data() {
    bad 1 'No such file' "$info" --model-check "$folder/none"
    bad_line 'speed=3: there are link, ' 'machine b ranks=2 flag_us=1 speed=3'
    bad_line 'flag_us=0: .*a figure more than 0' 'machine b ranks=2 flag_us=0'
    bad_line 'b: ranks' 'machine b flag_us=1'
    bad_line 'b: ranks' 'machine b ranks=2'
    bad_line 'a group has a BOUND' 'group good Title'
    bad_line 'rows belong to a group' 'rows b me allreduce oneshot.flag 8:1'
    bad_line '.*no collective' 'rows a me allsort oneshot.flag 8:1'
    bad_line '.*no way to do one' 'rows a me allreduce threeshot.flag 8:1'
    bad_line '.*is not given' 'rows a me allreduce oneshot.flag.pull 8:1'
    bad_line '8=1: not BYTES:US' 'rows a me allreduce oneshot.flag 8=1'
    bad_line 'row: a line begins with' 'row a'
    printf 'machine a ranks=2 flag_us=1 all_store_gbs=10\ngroup 10 Some\nrows a me allreduce oneshot.flag 8:1\n' \
        >"$folder/data"
    bad 1 'more than its bound' "$info" --model-check "$folder/data"
}

test_model() {
    if ! "$info" --model bcast 4 flag_us=0.7 all_store_gbs=25 all_load_gbs=20 >"$out" 2>"$err"; then
        complain "--model ended with an error"
    fi
    # A line for each power of two, times or none in 13 columns, then rows up to any size.
    if ! awk '/^[0-9]/ { n++; if (NF != 14 || $2 + 0 <= 0 || $14 != "-") bad = 1 }
              /^wire *bcast *4-4 *any / { any++ }
              END { exit bad || n != 24 || any != 1 }' "$out"; then
        complain "--model printed another table"
    fi
    bad 1 'needs COLLECTIVE RANKS' "$info" --model
    bad 1 'no such collective' "$info" --model allsort 8 flag_us=1
    bad 1 'RANKS' "$info" --model allreduce 1 flag_us=1
    bad 1 'RANKS' "$info" --model allreduce 17 flag_us=1
    bad 1 'flag_us, the way' "$info" --model allreduce 8 all_store_gbs=20
    bad 1 'a link is host' "$info" --model allreduce 8 link=rope
    bad 1 'a figure more than 0' "$info" --model allreduce 8 flag_us=quick
    bad 1 ': speed' "$info" --model allreduce 8 "speed$(printf '%0470d' 0)=1"
}

test_page
test_data
test_model
end_checks
