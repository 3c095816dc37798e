# tools.sh: what the tests of programs share. Sourced (POSIX sh) in the build folder, after mpirun.sh: starts MPI, and has
# checks.sh.

. "$sources/tests/checks.sh"
mpi_setup || exit 1

perf=src/tools/peer_perf

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
