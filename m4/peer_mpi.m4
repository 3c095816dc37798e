# peer_mpi.m4: finds MPI without making mpicc the compiler.
#
# PEER_CHECK_MPI sets MPI_CFLAGS and MPI_LIBS for our C files and peercoll.pc, and MPIEXEC for the tests. They
# are the user's if given; else they are picked out of what `mpicc -show` prints, which Open MPI, MPICH and the
# libraries made from it all know. Ends configure if no MPI program can be linked.

AC_DEFUN([PEER_CHECK_MPI], [
    AC_ARG_VAR([MPICC], [MPI's compiler wrapper, asked for its flags])
    AC_ARG_VAR([MPI_CFLAGS], [compiler flags for MPI, instead of asking MPICC])
    AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, instead of asking MPICC])
    AC_ARG_VAR([MPIEXEC], [mpirun, for the tests])
    AC_PATH_PROGS([MPICC], [mpicc mpicc.openmpi mpicc.mpich])
    AC_PATH_PROGS([MPIEXEC], [mpirun mpiexec], [mpirun])

    AS_IF([test -z "$MPI_CFLAGS$MPI_LIBS" && test -n "$MPICC"], [
        for word in `$MPICC -show 2>/dev/null`; do
            AS_CASE([$word],
                [-I*|-D*], [AS_VAR_APPEND([MPI_CFLAGS], [" $word"])],
                [-L*|-l*|-Wl,*], [AS_VAR_APPEND([MPI_LIBS], [" $word"])],
                [-pthread], [AS_VAR_APPEND([MPI_CFLAGS], [" $word"]); AS_VAR_APPEND([MPI_LIBS], [" $word"])])
        done
        MPI_CFLAGS=${MPI_CFLAGS# }
        MPI_LIBS=${MPI_LIBS# }
    ])

    AC_MSG_CHECKING([whether an MPI program links])
    peer_save_CPPFLAGS=$CPPFLAGS
    peer_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
    LIBS="$MPI_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([MPI was not found. Install it
  Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin
  Fedora:         dnf install openmpi-devel, then: module load mpi/openmpi-x86_64
  Arch:           pacman -S openmpi
or name it: MPICC=/path/to/mpicc, or MPI_CFLAGS=... MPI_LIBS=...])])
    CPPFLAGS=$peer_save_CPPFLAGS
    LIBS=$peer_save_LIBS
    peer_mpi_summary="${MPICC:-flags given} ($MPI_LIBS), run by $MPIEXEC"
])
