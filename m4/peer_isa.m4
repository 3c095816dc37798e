# peer_isa.m4: which instruction sets the kernels for the host are compiled for.
#
# On x86-64 they are compiled three times (base, AVX2, AVX-512) and the library picks one by what the CPU can.
# PEER_CHECK_ISA sets AVX2_CXXFLAGS and AVX512_CXXFLAGS and defines PEER_HAVE_ISA_VARIANTS when that can be done.
# With sanitizers, where a compilation takes minutes and only tests are built, there is one: BASE_CXXFLAGS has it made
# for this machine's own instruction set, which is what the tests would run.

AC_DEFUN([PEER_CHECK_ISA], [
    AVX2_CXXFLAGS="-mavx2 -mf16c"
    AVX512_CXXFLAGS="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mprefer-vector-width=512"
    AC_SUBST([AVX2_CXXFLAGS])
    AC_SUBST([AVX512_CXXFLAGS])
    AC_MSG_CHECKING([whether $CXX compiles for AVX2 and AVX-512])
    AC_LANG_PUSH([C++])
    peer_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS $AVX512_CXXFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
        #include <immintrin.h>
        #if !defined(__x86_64__)
        #error "not x86-64"
        #endif
        __m512 sum(__m512 a, __m256i half) { return _mm512_add_ps(a, _mm512_cvtph_ps(half)); }
        ]], [[return __builtin_cpu_supports("avx512dq") + __builtin_cpu_supports("avx2");]])],
        [peer_have_isa=yes], [peer_have_isa=no])
    CXXFLAGS=$peer_save_CXXFLAGS
    AC_LANG_POP([C++])
    AC_MSG_RESULT([$peer_have_isa])
    BASE_CXXFLAGS=
    AC_SUBST([BASE_CXXFLAGS])
    AS_IF([test "$peer_have_isa" = yes && test "$enable_sanitizers" = yes],
        [BASE_CXXFLAGS=-march=native
         peer_have_isa=no
         peer_isa_summary="kernels for the instruction set of this machine only"],
        [test "$peer_have_isa" = yes],
        [AC_DEFINE([PEER_HAVE_ISA_VARIANTS], [1], [Define if the host kernels are also built for AVX2 and AVX-512.])
         peer_isa_summary="kernels for base, avx2 and avx512"],
        [peer_isa_summary="kernels for the base instruction set only"])
    AM_CONDITIONAL([HAVE_ISA_VARIANTS], [test "$peer_have_isa" = yes])
])
