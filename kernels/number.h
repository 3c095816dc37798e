/* Elements: how one is widened for accumulating and narrowed once at the end; packs of them, and the accumulator of
 * the hot pairs, those of datatype and operation that have kernels of their own (all others: kernels/cold.h).
 * The CUDA and the CPU form give the same bits (payloads of NaNs apart). */
#ifndef PEER_KERNELS_NUMBER_H
#define PEER_KERNELS_NUMBER_H

#include "device.h"

#ifdef __CUDACC__
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
#endif

namespace
{

struct Half {
    uint16_t bits;
};

struct BFloat {
    uint16_t bits;
};

struct E4M3 {
    uint8_t bits;
};

struct E5M2 {
    uint8_t bits;
};

template <class To, class From>
PEER_FN To bits_as(From x)
{
    static_assert(sizeof(To) == sizeof(From), "a change of type, not of size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

PEER_FN float widen(float x)
{
    return x;
}

PEER_FN double widen(double x)
{
    return x;
}

PEER_FN uint32_t widen(uint32_t x)
{
    return x;
}

PEER_FN uint64_t widen(uint64_t x)
{
    return x;
}

PEER_FN float widen(BFloat x)
{
    return bits_as<float>((uint32_t)x.bits << 16);
}

template <class T>
PEER_FN void narrow(T x, T &to)
{
    to = x;
}

/* The bits of a narrower float with MANTISSA bits of mantissa and this BIAS of the exponent, for the bits of a
 * float that is not negative, not a NaN, and no larger than the narrower one can tell. Round to nearest, ties
 * to even. Without branches, so that a loop over it can be vectorised: adding a power of two whose last
 * mantissa bit is the last bit that the narrower float can keep makes the float adder round there; subtracting
 * it again leaves the rounded value, and a product with a power of two moves the exponent, for subnormals too. */
template <uint32_t MANTISSA, uint32_t BIAS>
PEER_FN uint32_t round_to(uint32_t bits)
{
    constexpr uint32_t LEAST = (128 - BIAS) << 23; /* the least normal value: below, subnormals */
    uint32_t exponent = bits & 0x7f800000;
    uint32_t floor_exponent = exponent < LEAST ? LEAST : exponent;
    float magic = bits_as<float>(floor_exponent + ((23 - MANTISSA) << 23));
    float rounded = (bits_as<float>(bits) + magic) - magic;
    return bits_as<uint32_t>(rounded * bits_as<float>(BIAS << 23)) >> (23 - MANTISSA);
}

#ifdef __CUDACC__

PEER_FN float widen(Half x)
{
    return __half2float(__ushort_as_half(x.bits));
}

PEER_FN void narrow(float x, Half &to)
{
    to.bits = __half_as_ushort(__float2half_rn(x));
}

PEER_FN void narrow(float x, BFloat &to)
{
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

#else

/* Without branches, so that a loop over it can be vectorised. A half's exponent and mantissa, put at the place
 * of a float's, are the value times 2^-112; the product with 2^112 is exact, for subnormals too. */
PEER_FN float widen(Half x)
{
    uint32_t magnitude = (uint32_t)(x.bits & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16;
    uint32_t finite = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000;
    return bits_as<float>(sign | (magnitude >= 0x0f800000 ? special : finite));
}

PEER_FN void narrow(float x, Half &to)
{
    constexpr uint32_t CAP = 0x47800000; /* 2^16, which becomes infinity */
    uint32_t bits = bits_as<uint32_t>(x);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t rounded = round_to<10, 15>(magnitude > CAP ? CAP : magnitude);
    to.bits = (uint16_t)(magnitude > 0x7f800000 ? 0x7fff : sign | rounded);
}

PEER_FN void narrow(float x, BFloat &to)
{
    uint32_t bits = bits_as<uint32_t>(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to.bits = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

#endif

/* An exponent and a mantissa put at the place of a float's, as for Half; 0x7f is the NaN, there are no
 * infinities. */
PEER_FN float widen(E4M3 x)
{
    uint32_t magnitude = (uint32_t)(x.bits & 0x7f) << 20;
    uint32_t sign = (uint32_t)(x.bits & 0x80) << 24;
    uint32_t finite = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p120f);
    return bits_as<float>(sign | (magnitude == 0x7f00000 ? 0x7fffffff : finite));
}

/* The upper half of an fp16. */
PEER_FN float widen(E5M2 x)
{
    return widen(Half{(uint16_t)(x.bits << 8)});
}

/* fp8 with the largest value MOST, a float's bits, in place of all that is beyond. */
template <uint32_t MANTISSA, uint32_t BIAS, uint32_t MOST>
PEER_FN uint8_t narrow_saturating(float x)
{
    uint32_t bits = bits_as<uint32_t>(x);
    uint32_t sign = (bits >> 24) & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t rounded = round_to<MANTISSA, BIAS>(magnitude > MOST ? MOST : magnitude);
    return (uint8_t)(magnitude > 0x7f800000 ? 0x7f : sign | rounded);
}

PEER_FN void narrow(float x, E4M3 &to)
{
    to.bits = narrow_saturating<3, 7, 0x43e00000>(x); /* 448 */
}

PEER_FN void narrow(float x, E5M2 &to)
{
    to.bits = narrow_saturating<2, 15, 0x47600000>(x); /* 57,344 */
}

/* Sums, from rank 0 on. */
struct Sum {
    static constexpr bool HOT = true;
    static constexpr bool EVEN_ONLY = false;

    PEER_FN static Sum of(const peer_call &)
    {
        return {};
    }

    template <class A>
    PEER_FN A operator()(A a, A b) const
    {
        return a + b;
    }
};

/* The same where calls that are not even (peer_call) are served by other kernels. */
struct EvenSum : Sum {
    static constexpr bool EVEN_ONLY = true;

    PEER_FN static EvenSum of(const peer_call &)
    {
        return {};
    }
};

/* A pack: what one thread moves at a time, BYTES of elements of type T. */
template <class T, uint32_t BYTES>
struct Pack {
    static constexpr uint32_t N = BYTES / sizeof(T);
    uint32_t w[BYTES / 4];

    PEER_FN void get(T (&v)[N]) const
    {
        memcpy(v, w, BYTES);
    }

    PEER_FN void set(const T (&v)[N])
    {
        memcpy(w, v, BYTES);
    }
};

/* The accumulator of a pack; kernels/cold.h has one more. */
template <class T, uint32_t BYTES, class Op>
struct Accumulator {
    static constexpr uint32_t N = BYTES / sizeof(T);
    using Wide = decltype(widen(T()));
    static constexpr uint32_t WIDE_BYTES = N * sizeof(Wide);
    Wide a[N] = {};

    PEER_FN void start(const Pack<T, BYTES> &x, Op)
    {
        T v[N];
        x.get(v);
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            a[i] = widen(v[i]);
    }

    PEER_FN void add(const Pack<T, BYTES> &x, Op op)
    {
        T v[N];
        x.get(v);
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            a[i] = op(a[i], widen(v[i]));
    }

    /* Adds another sum; the first one starts it. */
    PEER_FN void join(const Accumulator &next, bool first, Op op)
    {
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            a[i] = first ? next.a[i] : op(a[i], next.a[i]);
    }

    /* As bits, in packs, and back. */
    PEER_FN void save(Pack<T, BYTES> (&x)[WIDE_BYTES / BYTES]) const
    {
        memcpy(x, a, WIDE_BYTES);
    }

    PEER_FN void restore(const Pack<T, BYTES> (&x)[WIDE_BYTES / BYTES])
    {
        memcpy(a, x, WIDE_BYTES);
    }

    /* Adds the packs of the ranks r0 .. r0+GROUP-1, as far as there are; that of rank 0 starts the sum. */
    template <uint32_t GROUP>
    PEER_FN void combine(const Pack<T, BYTES> (&x)[GROUP], uint32_t r0, uint32_t nranks, Op op)
    {
        if (r0 == 0)
            start(x[0], op);
        else
            add(x[0], op);
        PEER_UNROLL
        for (uint32_t i = 1; i < GROUP; i++) {
            if (r0 + i >= nranks)
                break;
            add(x[i], op);
        }
    }

    /* Once all nranks are in. */
    PEER_FN Pack<T, BYTES> result(Op, uint32_t) const
    {
        Pack<T, BYTES> x;
        T v[N];
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            narrow(a[i], v[i]);
        x.set(v);
        return x;
    }
};

/* The first `left` elements of a pack, or all: element by element on a GPU, whose accesses must be aligned. And those of an
 * even buffer (peer_call), of whose last pack words may be missing on a GPU, and on a CPU nothing. */
#ifdef __CUDACC__

template <class T, uint32_t BYTES>
PEER_FN Pack<T, BYTES> load_part(const T *from, uint64_t left)
{
    constexpr uint32_t N = BYTES / sizeof(T);
    Pack<T, BYTES> x;
    T v[N] = {};
    PEER_UNROLL
    for (uint32_t k = 0; k < N; k++)
        if (k < left)
            v[k] = from[k];
    x.set(v);
    return x;
}

template <class T, uint32_t BYTES>
PEER_FN void store_part(T *to, uint64_t left, const Pack<T, BYTES> &x)
{
    constexpr uint32_t N = BYTES / sizeof(T);
    T v[N];
    x.get(v);
    PEER_UNROLL
    for (uint32_t k = 0; k < N; k++)
        if (k < left)
            to[k] = v[k];
}

template <class T, uint32_t BYTES>
PEER_FN Pack<T, BYTES> load_even(const T *from, uint64_t left)
{
    Pack<T, BYTES> x;
    if (left >= x.N) {
        load_chunks<BYTES, ChunkOf<BYTES>::VALUE>(x.w, from);
        return x;
    }
    PEER_UNROLL
    for (uint32_t k = 0; k < BYTES / 4; k++)
        x.w[k] = k < left * sizeof(T) / 4 ? ((const uint32_t *)from)[k] : 0;
    return x;
}

template <class T, uint32_t BYTES>
PEER_FN void store_even(T *to, uint64_t left, const Pack<T, BYTES> &x)
{
    if (left >= x.N) {
        store_chunks<BYTES, ChunkOf<BYTES>::VALUE>(to, x.w);
        return;
    }
    PEER_UNROLL
    for (uint32_t k = 0; k < BYTES / 4; k++)
        if (k < left * sizeof(T) / 4)
            ((uint32_t *)to)[k] = x.w[k];
}

#else

template <class T, uint32_t BYTES>
PEER_FN Pack<T, BYTES> load_part(const T *from, uint64_t left)
{
    Pack<T, BYTES> x = {};
    uint64_t bytes = left * sizeof(T) < BYTES ? left * sizeof(T) : BYTES;
    #ifdef __AVX512BW__
    /* Straight into a register: a wide load of what a narrow store just wrote would wait for the stores before it,
     * and those are on their way to a peer. */
    if constexpr (BYTES == 64) {
        __m512i v = _mm512_maskz_loadu_epi8(~0ull >> (64 - bytes), from);
        memcpy(x.w, &v, sizeof v);
        return x;
    }
    #endif
    memcpy(x.w, from, bytes);
    return x;
}

template <class T, uint32_t BYTES>
PEER_FN void store_part(T *to, uint64_t left, const Pack<T, BYTES> &x)
{
    uint64_t bytes = left * sizeof(T) < BYTES ? left * sizeof(T) : BYTES;
    #ifdef __AVX512BW__
    if constexpr (BYTES == 64) {
        _mm512_mask_storeu_epi8(to, ~0ull >> (64 - bytes), _mm512_loadu_si512(x.w));
        return;
    }
    #endif
    memcpy(to, x.w, bytes);
}

template <class T, uint32_t BYTES>
PEER_FN Pack<T, BYTES> load_even(const T *from, uint64_t)
{
    Pack<T, BYTES> x;
    load_chunks<BYTES, ChunkOf<BYTES>::VALUE>(x.w, from);
    return x;
}

template <class T, uint32_t BYTES>
PEER_FN void store_even(T *to, uint64_t, const Pack<T, BYTES> &x)
{
    store_chunks<BYTES, ChunkOf<BYTES>::VALUE>(to, x.w);
}

#endif

/* Pack i of a user's buffer of `count` elements, which is aligned to `align` bytes, at least an element. Elements
 * past the end load as zeros and are not stored. EVEN: the caller knows that the buffer is even (peer_call); then the code
 * for the rest, which is large, is not there. */
template <class T, uint32_t BYTES, bool EVEN>
PEER_FN Pack<T, BYTES> load_pack(const T *from, uint64_t i, uint64_t count, uint32_t align)
{
    constexpr uint32_t N = BYTES / sizeof(T);
    constexpr uint32_t CHUNK = ChunkOf<BYTES>::VALUE;
    Pack<T, BYTES> x;
    uint64_t first = i * N;
    if constexpr (EVEN)
        return load_even<T, BYTES>(from + first, count - first);
    if (first + N <= count && align >= CHUNK) {
        load_chunks<BYTES, CHUNK>(x.w, from + first);
        return x;
    }
    return load_part<T, BYTES>(from + first, count - first);
}

template <class T, uint32_t BYTES, bool EVEN>
PEER_FN void store_pack(T *to, uint64_t i, uint64_t count, uint32_t align, const Pack<T, BYTES> &x)
{
    constexpr uint32_t N = BYTES / sizeof(T);
    constexpr uint32_t CHUNK = ChunkOf<BYTES>::VALUE;
    uint64_t first = i * N;
    if constexpr (EVEN) {
        store_even<T, BYTES>(to + first, count - first, x);
        return;
    }
    if (first + N <= count && align >= CHUNK) {
        store_chunks<BYTES, CHUNK>(to + first, x.w);
        return;
    }
    store_part<T, BYTES>(to + first, count - first, x);
}

} // namespace

#endif
