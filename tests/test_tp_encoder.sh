#!/bin/sh
# test_tp_encoder.sh: the example tp_encoder gives what the model's reference implementation gives. Run in the build
# folder without mpirun, as a line of tests/list:
#
#   test_tp_encoder.sh RANKS...     checks on each of these numbers of ranks
#   test_tp_encoder.sh tokens       checks the tokenizer, and what is said about wrong options and files
#
# The model is in the folder $TP_ENCODER_MODEL, or get-model fetches it, once for the build folder. Where it is not to be had,
# or the example was not built, the test is skipped.

set -u
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
mpi_setup || exit 1

encoder=mpi-examples/tp_encoder/tp_encoder
data=$sources/tests/tp_encoder
model=${TP_ENCODER_MODEL:-mpi-examples/tp_encoder/all-MiniLM-L6-v2}
. "$sources/tests/checks.sh"

skip() {
    echo "SKIP: $*"
    exit 77
}

need_model() {
    if [ ! -x $encoder ]; then skip "the example was not built; configure's summary says why"; fi
    if [ -n "${TP_ENCODER_MODEL:-}" ]; then return; fi
    timeout 60 "$sources/mpi-examples/tp_encoder/get-model" "$model" >"$folder/log" 2>&1 ||
        skip "the model is not to be had: $(tail -n 1 "$folder/log")"
}

ranks() { # N ARGUMENT...
    n=$1
    shift
    # shellcheck disable=SC2086 # mpirun and its switches
    $MPI_LAUNCH "$n" $encoder --model="$model" "$@" </dev/null
}

# One rank without mpirun, which takes its time to end when a rank fails.
alone() { # ARGUMENT...
    $encoder --model="$model" "$@" </dev/null
}

# The first count's vectors are what the others are compared with.
check_ranks() { # N...
    first=
    for n in "$@"; do
        echo "$n ranks:"
        ranks "$n" --check="$data/reference.txt" "$data/sentences.txt" || complain "$n ranks against the reference"
        if [ -z "$first" ]; then
            first=$n
            ranks "$n" "$data/sentences.txt" >"$folder/vectors" || complain "$n ranks"
        else
            ranks "$n" --check="$folder/vectors" --within=1e-5 "$data/sentences.txt" ||
                complain "$n ranks against $first"
        fi
    done
}

check_tokens() {
    grep -v '^#' "$data/ids.txt" >"$folder/ids"
    alone --tokens "$data/texts.txt" >"$out" || complain "--tokens"
    diff "$folder/ids" "$out" || complain "these lines' tokens are not the reference's"
}

# A file that begins like the model's.
broken_model() { # BYTES [REPLACE-DTYPE]
    rm -rf "$folder/model"
    mkdir "$folder/model"
    cp "$model/vocab.txt" "$folder/model"
    head -c "$1" "$model/model.safetensors" | LC_ALL=C sed "${2:-}" >"$folder/model/model.safetensors"
}

check_errors() {
    bad 1 'nowhere/vocab.txt: No such file' alone "$data/sentences.txt" --model=nowhere
    broken_model 5
    bad 1 '5 bytes only' alone "$data/sentences.txt" --model="$folder/model"
    broken_model 1000
    bad 1 'cut off: its header' alone "$data/sentences.txt" --model="$folder/model"
    broken_model 1000000
    bad 1 'damaged, or cut off' alone "$data/sentences.txt" --model="$folder/model"
    broken_model 12000 's/F32/F16/g'
    bad 1 'of type F16' alone "$data/sentences.txt" --model="$folder/model"
    broken_model 12000 's/word_embed/xord_embed/g'
    bad 1 'no tensor embeddings.word_embeddings.weight' alone "$data/sentences.txt" --model="$folder/model"
    head -n 100 "$model/vocab.txt" >"$folder/model/vocab.txt"
    bad 1 '100 tokens' alone "$data/sentences.txt" --model="$folder/model"
    bad 1 'vector 1 has 0 numbers' alone "$data/sentences.txt" --check="$data/texts.txt"
    bad 1 'nowhere.txt: No such file' alone nowhere.txt
    bad 1 'whole number from 1' alone --batch=0
    bad 1 'one file at a time' alone a b
    bad 1 'unrecognized option' alone --frobnicate
    alone --check="$data/reference.txt" --cosine=1.1 "$data/sentences.txt" >"$out" 2>"$err" &&
        complain "a cosine of 1.1 was reached"
    grep -q 'too far off' "$err" || complain "nothing is said of vectors that are too far off"
    alone --help | grep -q 'Usage: ' || complain "--help"
    alone /dev/null || complain "no lines at all"
}

# Two sentences that mean the same find each other; times are only looked at for being there.
check_prints() {
    ranks 2 --similar=1 "$data/sentences.txt" >"$out" 2>"$err" || complain "--similar"
    grep -A1 '^How do I reset' "$out" | grep -q "I can't log in" || complain "--similar found something else"
    ranks 2 --time=3 --batch=2 "$data/sentences.txt" >"$out" 2>"$err" || complain "--time"
    for row in '^peercoll .* %$' '^NCCL ' '^MPI .* %$' '^nothing '; do
        grep -q "$row" "$out" || complain "--time printed nothing like: $row"
    done
}

need_model
if [ "${1:-}" = tokens ]; then
    check_tokens
    check_errors
    check_prints
else
    check_ranks "$@"
fi
end_checks
