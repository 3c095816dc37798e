#!/bin/sh
# check-install.sh: compiles the smallest example with what pkg-config says of the installed library, and runs it
# on 2 ranks. `make installcheck` calls it with CC, CFLAGS, PKG_CONFIG, PKG_CONFIG_PATH, LIBDIR and MPIEXEC set.

set -eu
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
mpi_setup

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PKG_CONFIG_PATH
flags=$("$PKG_CONFIG" --cflags --libs peercoll)
# shellcheck disable=SC2086 # flags are words
$CC $CFLAGS -o "$folder/allreduce" "$sources/mpi-examples/allreduce.c" $flags
LD_LIBRARY_PATH=$LIBDIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
$MPI_LAUNCH 2 "$folder/allreduce"
