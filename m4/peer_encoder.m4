# peer_encoder.m4: what mpi-examples/tp_encoder needs besides the library.
#
# PEER_CHECK_ENCODER, after PEER_CHECK_CUDA and the check for jansson, sets ENCODER_CFLAGS and ENCODER_LIBS, and defines
# HAVE_ENCODER for the Makefile when the example can be built, HAVE_CUBLAS for C and the Makefile when its GPU part can.

AC_DEFUN([PEER_CHECK_ENCODER], [
    PKG_CHECK_MODULES([OPENBLAS], [openblas], [peer_have_openblas=yes], [peer_have_openblas=no])
    PKG_CHECK_MODULES([UTF8PROC], [libutf8proc], [peer_have_utf8proc=yes], [peer_have_utf8proc=no])
    ENCODER_CFLAGS="$JANSSON_CFLAGS $OPENBLAS_CFLAGS $UTF8PROC_CFLAGS"
    ENCODER_LIBS="$JANSSON_LIBS $OPENBLAS_LIBS $UTF8PROC_LIBS"

    peer_have_cublas=no
    AS_IF([test "$peer_have_cuda" = yes], [_PEER_TRY_CUBLAS])
    AS_IF([test "$peer_have_cublas" = yes],
        [AC_DEFINE([HAVE_CUBLAS], [1], [Define if the examples can use cuBLAS.])])
    AM_CONDITIONAL([HAVE_CUBLAS], [test "$peer_have_cublas" = yes])

    peer_missing=
    AS_IF([test "$peer_have_jansson" = no], [AS_VAR_APPEND([peer_missing], [" jansson"])])
    AS_IF([test "$peer_have_openblas" = no], [AS_VAR_APPEND([peer_missing], [" openblas"])])
    AS_IF([test "$peer_have_utf8proc" = no], [AS_VAR_APPEND([peer_missing], [" libutf8proc"])])
    AS_IF([test -n "$peer_missing"],
        [peer_encoder_summary="the example is not built: pkg-config does not find$peer_missing"],
        [test "$peer_have_cublas" = yes], [peer_encoder_summary="OpenBLAS, cuBLAS"],
        [test "$peer_have_cuda" = yes], [peer_encoder_summary="OpenBLAS; host device only, since cuBLAS was not found"],
        [peer_encoder_summary="OpenBLAS"])
    AM_CONDITIONAL([HAVE_ENCODER], [test -z "$peer_missing"])
    AC_SUBST([ENCODER_CFLAGS])
    AC_SUBST([ENCODER_LIBS])
    AC_SUBST([CUBLAS_LIBS])
])

# cuBLAS comes as a shared library, which need not be where the loader looks: hence -R.
AC_DEFUN([_PEER_TRY_CUBLAS], [
    CUBLAS_LIBS=-lcublas
    for dir in lib64 lib; do
        AS_IF([test "$peer_cuda_dir" != /usr && test -e "$peer_cuda_dir/$dir/libcublas.so"],
            [CUBLAS_LIBS="-L$peer_cuda_dir/$dir -R$peer_cuda_dir/$dir -lcublas"; break])
    done
    AC_MSG_CHECKING([whether cuBLAS links])
    peer_save_CPPFLAGS=$CPPFLAGS
    peer_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    # -R is libtool's
    LIBS="`echo "$CUBLAS_LIBS" | sed 's/-R[[^ ]]*//'` $CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cublas_v2.h>]], [[cublasHandle_t h; return cublasCreate(&h);]])],
        [peer_have_cublas=yes])
    AC_MSG_RESULT([$peer_have_cublas])
    CPPFLAGS=$peer_save_CPPFLAGS
    LIBS=$peer_save_LIBS
])
