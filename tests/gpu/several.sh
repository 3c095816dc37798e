#!/bin/bash
# several.sh: peercoll on a machine with several GPUs, a rank on each, beside NCCL:
#
#   tests/gpu/several.sh TARBALL RESULTS
#
# Builds the released TARBALL in a folder of its own, for the GPUs that are here, and leaves in the folder RESULTS what
# it finds: machine.txt (GPUs, links, NCCL, the doctor), matrix.txt (the full probe), tests.txt, perf.txt (each row with its
# transport, ranks and collective in front), step.txt (verify_step), table-N.txt (a tuned table for N ranks), soak.txt, and summary.txt,
# which is printed as well. Exit status 0 if all tests and the soak pass and no result is wrong.
#
# Environment, for less or more of it:
#   RANKS        counts of ranks, 2 4 8 by default; those above the number of GPUs are left out
#   COLLECTIVES  of the sweeps over ipc, and SHM_COLLECTIVES of those over shm: all by default
#   FACTOR       from one size of a sweep to the next, 4 by default; the sweeps go from 8 bytes to 64 MiB
#   SOAK         seconds, 120 by default
#   TESTS        patterns of names in tests/list; by default all that need no more ranks than there are GPUs
#   PARTS        of what follows the build: machine tests sweeps step tune soak, all by default
# NVLink multicast stays off.

set -uo pipefail
tarball=$(realpath "$1") && results=$(mkdir -p "$2" && realpath "$2") || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$SECONDS
failures=0
all="allreduce allgather allgatherv reduce_scatter_block reduce_scatter bcast reduce gather scatter alltoall alltoallv barrier"

say() { echo "[$((SECONDS - began)) s] $*" | tee -a "$results/summary.txt"; }

fail() {
    failures=$((failures + 1))
    say "FAILED: $*"
}

gpus=$(nvidia-smi -L | grep -c '^GPU') || exit 2
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr -d . | xargs)
: >"$results/summary.txt"

# ---- Build

tar xf "$tarball" -C "$work" && cd "$work"/peercoll-*/ && mkdir build && cd build || exit 2
if ! { ../configure --with-gencode="$capability" && make -j "$(nproc)" && make -j "$(nproc)" check-gpu RUN=library; } \
    >"$results/build.txt" 2>&1; then
    tail -n 30 "$results/build.txt"
    exit 1
fi
. ../tests/mpirun.sh
mpi_setup || exit 2
export NCCL_NVLS_ENABLE=0 PEER_DEVICE=cuda
say "built for $gpus GPUs of compute capability $capability"

ranks=
for n in ${RANKS:-2 4 8}; do
    if [ "$n" -le "$gpus" ]; then ranks="$ranks $n"; fi
done

# A program on N ranks, a rank on each GPU; three minutes at most.
on() { # N PROGRAM ARGUMENT...
    # shellcheck disable=SC2086 # mpirun and its switches
    timeout --foreground -k 10 180 $MPI_LAUNCH "$@" </dev/null
}

wanted() {
    case " ${PARTS:-machine tests sweeps step tune soak} " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

# ---- The machine

machine() {
    nvidia-smi --query-gpu=index,name,pci.bus_id,driver_version,pcie.link.gen.max,pcie.link.width.current --format=csv
    nvidia-smi topo -m
    src/tools/peer_info
    on "$gpus" src/tools/peer_info --check
}

if wanted machine; then
    machine >"$results/machine.txt" 2>&1
    on "$gpus" src/tools/peer_info --matrix >"$results/matrix.txt" 2>&1 || fail "peer_info --matrix"
    say "machine: $(grep -c . "$results/machine.txt") lines; $(tail -n 1 "$results/machine.txt")"
fi

# ---- Tests

if wanted tests; then
    names=$(awk -v most="$gpus" '/^[a-z]/ && $2 <= most {print $1}' ../tests/list | xargs)
    make -s check-gpu RUN="${TESTS:-$names}" >"$results/tests.txt" 2>&1 || fail "tests"
    say "tests: $(tail -n 2 "$results/tests.txt" | grep passed)"
fi

# ---- Sweeps

sweep() { # TRANSPORT RANKS COLLECTIVE
    local sizes="-b 8 -e 64M -f ${FACTOR:-4}"
    if [ "$3" = barrier ]; then sizes=; fi
    # shellcheck disable=SC2086 # options
    PEER_TRANSPORT=$1 on "$2" src/tools/peer_perf "$3" $sizes -d bf16 -N 3 --compare nccl >"$work/rows" 2>&1 ||
        fail "peer_perf $3 over $1 on $2 ranks"
    grep -vE '^ *#|^$' "$work/rows" | sed "s/^/$1 $2 $3 /" >>"$results/perf.txt"
    grep -E '^# (rank|nccl|device)' "$work/rows" >"$results/perf-head.txt"
}

if wanted sweeps; then : >"$results/perf.txt"; fi
for n in $ranks; do
    wanted sweeps || break
    for collective in ${COLLECTIVES:-$all}; do sweep ipc "$n" "$collective"; done
    for collective in ${SHM_COLLECTIVES:-$all}; do sweep shm "$n" "$collective"; done
    PEER_TRANSPORT=auto on "$n" src/tools/peer_perf allreduce -b 43008 -e 43008 -d bf16 -N 5 --compare nccl 2>&1 |
        grep -vE '^ *#|^$' | sed "s/^/auto $n allreduce /" >>"$results/perf.txt"
done
if wanted sweeps; then say "sweeps: $(grep -c . "$results/perf.txt") rows"; fi

# ---- A step, a tuned table, the soak

for n in $ranks; do
    wanted step || break
    on "$n" mpi-examples/verify_step >>"$results/step.txt" 2>&1 || fail "verify_step on $n ranks"
done
for n in $ranks; do
    wanted tune || break
    on "$n" src/tools/peer_perf allreduce -b 8 -e 64M -d bf16 --tune="$results/table-$n.txt" >>"$results/tune.txt" 2>&1 ||
        fail "peer_perf --tune on $n ranks"
    say "table for $n ranks: $(grep -c '^[a-z]' "$results/table-$n.txt") rows"
done

wanted soak || SOAK=0
end=$((SECONDS + ${SOAK:-120}))
rounds=0
while [ $SECONDS -lt $end ] && [ "$failures" -lt 10 ]; do
    on "$gpus" tests/test_sequence 10000 "$RANDOM" >>"$results/soak.txt" 2>&1 || fail "soak, round $rounds"
    rounds=$((rounds + 1))
done
say "soak: $rounds rounds of 10000 random calls"
say "$failures failed"
[ "$failures" -eq 0 ]
