#!/bin/sh
# encoder.sh: the example tp_encoder on a machine with a GPU: checks its vectors and prints its times. Run in the folder of
# a build with CUDA and cuBLAS; MODEL is a folder as get-model makes it:
#
#   SOURCES/tests/gpu/encoder.sh MODEL [RANKS...]        RANKS are 2 and 4 if not given
#
# Ranks share the GPUs by MPS. NCCL is told to accept that, which needs 2.30.3 or newer, and on one GPU to keep its
# kernels small enough that those of all ranks fit there at once. Exit status 0 if all vectors are right.

set -u
sources=$(cd "$(dirname "$0")/../.." && pwd)
. "$sources/tests/mpirun.sh"

encoder=mpi-examples/tp_encoder/tp_encoder
data=$sources/tests/tp_encoder

if [ $# -eq 0 ] || [ ! -e "$1/model.safetensors" ]; then
    echo "usage: encoder.sh MODEL [RANKS...], where MODEL is a folder with model.safetensors and vocab.txt" >&2
    exit 2
fi
if [ ! -x $encoder ]; then
    echo "there is no $encoder: run this in the folder of a build; configure's summary says whether it is built" >&2
    exit 2
fi
model=$1
shift
if [ $# -eq 0 ]; then set -- 2 4; fi

mpi_setup || exit 1
export PEER_DEVICE=cuda
export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0
if [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -eq 1 ]; then export NCCL_MAX_CTAS=4; fi
failures=0
folder=$(mktemp -d)
trap 'mps_stop; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
mps_start

# A run that hangs costs three minutes and is a failure.
ranks() { # N ARGUMENT...
    n=$1
    shift
    # shellcheck disable=SC2086 # mpirun and its switches
    timeout --foreground -k 10 180 $MPI_LAUNCH "$n" $encoder --model="$model" "$@" </dev/null
}

good() { # N ARGUMENT...
    if ! ranks "$@"; then
        failures=$((failures + 1))
        echo "FAILED: $*"
    fi
}

# Vectors of one rank, which makes no all-reduce: the others are compared with them too.
echo "==== 1 rank"
good 1 --check="$data/reference.txt" --within=1e-5 "$data/sentences.txt"
ranks 1 "$data/sentences.txt" >"$folder/vectors"
for n in "$@"; do
    echo "==== $n ranks"
    good "$n" --check="$data/reference.txt" --within=1e-5 "$data/sentences.txt"
    good "$n" --check="$folder/vectors" --within=1e-5 "$data/sentences.txt"
    for batch in 1 8 32; do
        good "$n" --batch=$batch --time=200 "$data/sentences.txt"
        echo
    done
done
echo "$failures failed"
[ "$failures" -eq 0 ]
