# peer_cuda.m4: finds CUDA and NCCL's header.
#
# PEER_CHECK_CUDA sets NVCC, CUDA_CPPFLAGS, CUDA_LIBS and GENCODE, defines HAVE_CUDA for C and for the Makefile.
# The runtime is linked statically and the driver not at all, so what we build also runs where neither is.
# PEER_CHECK_NCCL defines HAVE_NCCL when there is a CUDA and an nccl.h. The library is opened at run time.

# The architectures that get machine code by default, as far as the nvcc found knows them.
m4_define([PEER_DEFAULT_ARCHS], [75 80 86 89 90 100 120])

AC_DEFUN([PEER_CHECK_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=DIR|auto|no], [the CUDA toolkit [auto: nvcc on PATH, or /usr/local/cuda]])],
        [], [with_cuda=auto])
    AC_ARG_WITH([gencode],
        [AS_HELP_STRING([--with-gencode=LIST], [GPU architectures as numbers, or nvcc -gencode options
            [as many of PEER_DEFAULT_ARCHS as nvcc knows, and PTX of the newest]])],
        [], [with_gencode=])
    AC_ARG_VAR([NVCC], [CUDA compiler])
    AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
    AS_IF([test "$enable_sanitizers:$with_cuda" = yes:auto], [with_cuda=no])
    AS_IF([test "$enable_sanitizers" = yes && test "$with_cuda" != no],
        [AC_MSG_ERROR([--enable-sanitizers is for builds without CUDA: add --with-cuda=no])])

    peer_have_cuda=no
    AS_CASE([$with_cuda],
        [no], [peer_cuda_summary="not asked for"],
        [auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
        [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
    AS_IF([test "$with_cuda" != no], [
        AS_IF([test -n "$NVCC"], [_PEER_TRY_CUDA], [peer_cuda_summary="nvcc was not found"])
        AS_IF([test "$peer_have_cuda:$with_cuda" = no:auto], [AC_MSG_WARN([building without CUDA: $peer_cuda_summary])],
            [test "$peer_have_cuda" = no], [AC_MSG_ERROR([--with-cuda=$with_cuda: $peer_cuda_summary])])
    ])
    AS_IF([test "$peer_have_cuda" = yes],
        [AC_DEFINE([HAVE_CUDA], [1], [Define if the cuda device is built in.])],
        [CUDA_CPPFLAGS= CUDA_LIBS=
         peer_cuda_summary="no: $peer_cuda_summary"])
    AM_CONDITIONAL([HAVE_CUDA], [test "$peer_have_cuda" = yes])
    AC_SUBST([with_cuda])
    AC_SUBST([with_gencode])
    AC_SUBST([CUDA_CPPFLAGS])
    AC_SUBST([CUDA_LIBS])
    AC_SUBST([GENCODE])
])

# With NVCC found: sets the flags and peer_have_cuda, or says in peer_cuda_summary why not.
AC_DEFUN([_PEER_TRY_CUDA], [
    # bin/nvcc may be a link into the toolkit; headers and libraries are beside the real one.
    peer_cuda_dir=`readlink -f "$NVCC" | sed 's,/bin/[[^/]]*$,,'`
    # -isystem /usr/include would hide the compiler's own headers, and is not needed.
    AS_IF([test "$peer_cuda_dir" = /usr], [CUDA_CPPFLAGS=], [CUDA_CPPFLAGS="-isystem $peer_cuda_dir/include"])
    CUDA_LIBS="-lcudart_static -lrt -lpthread -ldl"
    for dir in lib64 lib; do
        AS_IF([test "$peer_cuda_dir" != /usr && test -f "$peer_cuda_dir/$dir/libcudart_static.a"],
            [CUDA_LIBS="-L$peer_cuda_dir/$dir $CUDA_LIBS"; break])
    done

    AC_MSG_CHECKING([whether the CUDA runtime links])
    peer_save_CPPFLAGS=$CPPFLAGS
    peer_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    LIBS="$CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>]], [[int v; return cudaRuntimeGetVersion(&v);]])],
        [peer_have_cuda=yes],
        [peer_cuda_summary="$NVCC is there, but $peer_cuda_dir has no usable cuda_runtime_api.h and libcudart_static.a"])
    AC_MSG_RESULT([$peer_have_cuda])
    CPPFLAGS=$peer_save_CPPFLAGS
    LIBS=$peer_save_LIBS

    AS_IF([test "$peer_have_cuda" = yes], [_PEER_GENCODE
        AC_MSG_CHECKING([whether nvcc compiles])
        echo '__global__ void kernel(int *p) { *p = 1; }' >conftest.cu
        AS_IF([AC_RUN_LOG([$NVCC $NVCCFLAGS -std=c++17 $GENCODE -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD])],
            [peer_cuda_summary="$NVCC, for "`echo "$GENCODE" | sed 's/-gencode=[[^ ]]*code=//g'`],
            [peer_have_cuda=no
             peer_cuda_summary="$NVCC fails on a small kernel (config.log has its message)"])
        AC_MSG_RESULT([$peer_have_cuda])

        # Newer launch stubs hold C++ statics whose locks are in libstdc++. The older form needs no C++ library;
        # older nvccs know no other.
        AC_MSG_CHECKING([whether nvcc has -legacy-launch-seq])
        AS_IF([$NVCC $NVCCFLAGS -legacy-launch-seq -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
            [NVCC_LEGACY_LAUNCH=-legacy-launch-seq
             AC_MSG_RESULT([yes])],
            [NVCC_LEGACY_LAUNCH=
             AC_MSG_RESULT([no])])
        AC_SUBST([NVCC_LEGACY_LAUNCH])
        rm -f conftest.cu conftest.o
    ])
])

# GENCODE from --with-gencode or the default: a number gets machine code, any other word goes to nvcc as it is.
AC_DEFUN([_PEER_GENCODE], [
    AC_MSG_CHECKING([for GPU architectures])
    GENCODE=
    AS_IF([test -n "$with_gencode"], [
        for word in $with_gencode; do
            AS_CASE([$word],
                [[[0-9]]*], [AS_VAR_APPEND([GENCODE], [" -gencode=arch=compute_$word,code=sm_$word"])],
                [AS_VAR_APPEND([GENCODE], [" $word"])])
        done
    ], [
        peer_known=`$NVCC --list-gpu-arch`
        for word in PEER_DEFAULT_ARCHS; do
            AS_IF([echo "$peer_known" | grep -qx "compute_$word"], [
                AS_VAR_APPEND([GENCODE], [" -gencode=arch=compute_$word,code=sm_$word"])
                peer_newest=$word
            ])
        done
        AS_VAR_APPEND([GENCODE], [" -gencode=arch=compute_$peer_newest,code=compute_$peer_newest"])
    ])
    GENCODE=${GENCODE# }
    AC_MSG_RESULT([$GENCODE])
])

AC_DEFUN([PEER_CHECK_NCCL], [
    AC_ARG_WITH([nccl],
        [AS_HELP_STRING([--with-nccl=DIR|auto|no], [where include/nccl.h is [auto: beside CUDA's headers, or in the
            compiler's path]])],
        [], [with_nccl=auto])
    peer_have_nccl=no
    AS_IF([test "$with_nccl" = no], [peer_nccl_summary="no (--with-nccl=no)"],
        [test "$peer_have_cuda" = no], [peer_nccl_summary="no: it needs CUDA"], [
            AS_CASE([$with_nccl], [auto|yes], [peer_nccl_header=nccl.h], [
                peer_nccl_header=$with_nccl/include/nccl.h
                CUDA_CPPFLAGS="-isystem $with_nccl/include $CUDA_CPPFLAGS"
            ])
            peer_save_CPPFLAGS=$CPPFLAGS
            CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
            AC_CHECK_HEADER([$peer_nccl_header], [peer_have_nccl=yes])
            CPPFLAGS=$peer_save_CPPFLAGS
            AS_IF([test "$peer_have_nccl" = yes],
                [peer_nccl_summary="header found; the library is opened at run time"
                 AC_DEFINE([HAVE_NCCL], [1], [Define if the NCCL fallback is built in.])],
                [test "$with_nccl" = auto], [peer_nccl_summary="no: nccl.h was not found"],
                [AC_MSG_ERROR([--with-nccl=$with_nccl: $peer_nccl_header was not found
  (Debian, Ubuntu with NVIDIA's repository: apt-get install libnccl-dev)])])
        ])
    AM_CONDITIONAL([HAVE_NCCL], [test "$peer_have_nccl" = yes])
    AC_SUBST([with_nccl])
])

# PEER_CHECK_NVTX, after PEER_CHECK_CUDA, defines HAVE_NVTX if ranges for profilers are asked for.
AC_DEFUN([PEER_CHECK_NVTX], [
    AC_ARG_ENABLE([nvtx],
        [AS_HELP_STRING([--enable-nvtx], [show the calls to profilers such as Nsight Systems, by NVTX ranges])],
        [], [enable_nvtx=no])
    AS_IF([test "$enable_nvtx" != no], [
        peer_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
        AC_CHECK_HEADER([nvtx3/nvToolsExt.h], [],
            [AC_MSG_ERROR([--enable-nvtx: nvtx3/nvToolsExt.h was not found; it comes with CUDA, see --with-cuda])])
        CPPFLAGS=$peer_save_CPPFLAGS
        AC_DEFINE([HAVE_NVTX], [1], [Define if calls are NVTX ranges.])
    ])
])
