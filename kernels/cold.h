/* The pairs of datatype and operation that share a kernel: one for each size of element. The kernel looks at
 * the datatype and the operation once for each pack, never for an element: it widens the pack's elements by
 * datatype, combines them in a loop for the operation, and narrows them by datatype at the end. */
#ifndef PEER_KERNELS_COLD_H
#define PEER_KERNELS_COLD_H

#include <type_traits>

#include "number.h"

#ifndef __CUDACC__
    /* Vectors wider than the instruction set's are passed to functions that are inlined. */
    #pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace
{

/* An element of SIZE bytes, of any datatype. 8 and 16 bytes may be complex, which is aligned as its parts are. */
template <uint32_t SIZE>
struct alignas(SIZE < 8 ? SIZE : SIZE / 2) Cold {
    unsigned char bytes[SIZE];
};

struct AnyOp {
    static constexpr bool HOT = false;
    static constexpr bool EVEN_ONLY = false;
    uint32_t datatype; /* PEER_Datatype */
    uint32_t op;       /* PEER_Op */

    PEER_FN static AnyOp of(const peer_call &c)
    {
        return {c.datatype, c.op};
    }
};

/* ---- Elements that only cold pairs have ----------------------------------------------------------------- */

struct Truth {
    uint8_t bits;
};

PEER_FN uint32_t widen(Truth x)
{
    return x.bits != 0;
}

PEER_FN int32_t widen(int8_t x)
{
    return x;
}

PEER_FN uint32_t widen(uint8_t x)
{
    return x;
}

PEER_FN int32_t widen(int16_t x)
{
    return x;
}

PEER_FN uint32_t widen(uint16_t x)
{
    return x;
}

PEER_FN void narrow(uint32_t x, uint8_t &to)
{
    to = (uint8_t)x;
}

PEER_FN void narrow(uint32_t x, uint16_t &to)
{
    to = (uint16_t)x;
}

template <class F>
struct Complex {
    F re, im;

    /* (re * b.re - im * b.im, re * b.im + im * b.re), each product rounded. On the CPU told as vectors: GCC 12
     * makes multiply-and-adds of a difference beside a sum, even where contraction is off. */
    PEER_FN Complex operator*(Complex b) const
    {
#ifdef __CUDACC__
        return {re * b.re - im * b.im, re * b.im + im * b.re};
#else
        typedef F Pair __attribute__((vector_size(2 * sizeof(F))));
        Pair x = Pair{re, re} * Pair{b.re, b.im} + Pair{-im, im} * Pair{b.im, b.re};
        return {x[0], x[1]};
#endif
    }
};

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* What a row of BYTES bytes of A is made of: A, or vectors of it on the CPU, in rows that are long enough.
 * Told as an array of numbers, a row would go through the CPU's memory at every step, at twice the cost of all
 * else. */
template <class A, bool VECTOR>
struct UnitOf {
    using Type = A;

    PEER_FN static A load(const void *from)
    {
        A x;
        memcpy(&x, from, sizeof x);
        return x;
    }

    PEER_FN static void store(void *to, A x)
    {
        memcpy(to, &x, sizeof x);
    }
};

#ifndef __CUDACC__
template <class A>
struct UnitOf<A, true> {
    using Type = typename VectorOf<A>::Type;
    using Anywhere = typename VectorOf<A>::Anywhere;

    PEER_FN static Type load(const void *from)
    {
        return *(const Anywhere *)from;
    }

    PEER_FN static void store(void *to, Type x)
    {
        *(Anywhere *)to = x;
    }
};
#endif

/* Numbers side by side. */
template <class A, uint32_t BYTES>
struct Row {
    using Unit = UnitOf<A, std::is_arithmetic_v<A> && BYTES % REGISTER == 0>;
    using Type = typename Unit::Type;
    static constexpr uint32_t N = BYTES / sizeof(Type);
    Type u[N];

    /* From memory, or from another row: the same bits. */
    PEER_FN void get(const void *from)
    {
        PEER_UNROLL_BOTH
        for (uint32_t i = 0; i < N; i++)
            u[i] = Unit::load((const char *)from + i * sizeof(Type));
    }

    PEER_FN void put(void *to) const
    {
        PEER_UNROLL_BOTH
        for (uint32_t i = 0; i < N; i++)
            Unit::store((char *)to + i * sizeof(Type), u[i]);
    }
};

/* ---- The accumulator ------------------------------------------------------------------------------------ */

/* body(A()), A being what the elements of a datatype of SIZE bytes are combined as. Unsigned integers of 8 and
 * 16 bits are not negative in 32, and so served by the signed ones' operations. */
template <uint32_t SIZE, class Body>
PEER_FN void with_accumulator(uint32_t datatype, Body body)
{
    if constexpr (SIZE == 16) {
        body(Complex<double>());
    } else if constexpr (SIZE == 8) {
        if (datatype == PEER_INT64)
            body(int64_t());
        else if (datatype == PEER_UINT64)
            body(uint64_t());
        else if (datatype == PEER_FLOAT64)
            body(double());
        else
            body(Complex<float>());
    } else {
        if (datatype == PEER_FLOAT32 || datatype == PEER_FLOAT16 || datatype == PEER_BFLOAT16 ||
            datatype == PEER_FLOAT8_E4M3 || datatype == PEER_FLOAT8_E5M2)
            body(float());
        else if (SIZE == 4 && datatype == PEER_UINT32)
            body(uint32_t());
        else
            body(int32_t());
    }
}

/* What sums and quotients of A are made of: of complex numbers the parts, of integers unsigned ones, which wrap. */
template <class A>
struct PartOf {
    using Sum = A;
    using Quotient = A;
};

template <>
struct PartOf<int32_t> {
    using Sum = uint32_t;
    using Quotient = int32_t;
};

template <>
struct PartOf<int64_t> {
    using Sum = uint64_t;
    using Quotient = int64_t;
};

template <class F>
struct PartOf<Complex<F>> {
    using Sum = F;
    using Quotient = F;
};

/* The accumulator of a pack of any datatype and operation. */
template <uint32_t SIZE, uint32_t BYTES>
struct Accumulator<Cold<SIZE>, BYTES, AnyOp> {
    static constexpr uint32_t N = BYTES / SIZE;
    static constexpr uint32_t WIDE_BYTES = SIZE < 4 ? 4 * N : BYTES;
    using MyPack = Pack<Cold<SIZE>, BYTES>;
    using Words = Row<uint32_t, WIDE_BYTES>;
    Words a = {}; /* the bits of whatever the elements accumulate in */

    template <class T>
    PEER_FN static void widen_as(const MyPack &x, Words &w)
    {
        using Wide = decltype(widen(T()));
        T v[N];
        Wide wide[N];
        memcpy(v, x.w, BYTES);
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            wide[i] = widen(v[i]);
        w.get(wide);
    }

    PEER_FN static void widen_all(const MyPack &x, uint32_t datatype, Words &w)
    {
        if constexpr (SIZE == 1) {
            if (datatype == PEER_INT8)
                widen_as<int8_t>(x, w);
            else if (datatype == PEER_UINT8)
                widen_as<uint8_t>(x, w);
            else if (datatype == PEER_FLOAT8_E4M3)
                widen_as<E4M3>(x, w);
            else if (datatype == PEER_FLOAT8_E5M2)
                widen_as<E5M2>(x, w);
            else
                widen_as<Truth>(x, w);
        } else if constexpr (SIZE == 2) {
            if (datatype == PEER_INT16)
                widen_as<int16_t>(x, w);
            else if (datatype == PEER_UINT16)
                widen_as<uint16_t>(x, w);
            else if (datatype == PEER_FLOAT16)
                widen_as<Half>(x, w);
            else
                widen_as<BFloat>(x, w);
        } else {
            w.get(x.w);
        }
    }

    template <class T, class Wide>
    PEER_FN void narrow_as(MyPack &x) const
    {
        T v[N];
        Wide wide[N];
        a.put(wide);
        PEER_UNROLL
        for (uint32_t i = 0; i < N; i++)
            narrow(wide[i], v[i]);
        memcpy(x.w, v, BYTES);
    }

    PEER_FN void narrow_all(uint32_t datatype, MyPack &x) const
    {
        if constexpr (SIZE == 1) {
            if (datatype == PEER_FLOAT8_E4M3)
                narrow_as<E4M3, float>(x);
            else if (datatype == PEER_FLOAT8_E5M2)
                narrow_as<E5M2, float>(x);
            else
                narrow_as<uint8_t, uint32_t>(x);
        } else if constexpr (SIZE == 2) {
            if (datatype == PEER_FLOAT16)
                narrow_as<Half, float>(x);
            else if (datatype == PEER_BFLOAT16)
                narrow_as<BFloat, float>(x);
            else
                narrow_as<uint16_t, uint32_t>(x);
        } else {
            a.put(x.w);
        }
    }

    /* a = f(a), or f(a, w), with the bits taken for numbers of type A */
    template <class A, class F>
    PEER_FN void each(F f)
    {
        Row<A, WIDE_BYTES> x;
        x.get(&a);
        PEER_UNROLL_BOTH
        for (uint32_t i = 0; i < x.N; i++)
            x.u[i] = f(x.u[i]);
        x.put(&a);
    }

    template <class A, class F>
    PEER_FN void each(const Words &w, F f)
    {
        Row<A, WIDE_BYTES> x, y;
        x.get(&a);
        y.get(&w);
        PEER_UNROLL_BOTH
        for (uint32_t i = 0; i < x.N; i++)
            x.u[i] = f(x.u[i], y.u[i]);
        x.put(&a);
    }

    /* MIN and MAX keep x where the two compare equal (+0 and -0); a NaN on either side is the result. False: the
     * operation is another one. */
    template <class A>
    PEER_FN bool combine_order(uint32_t op, const Words &w)
    {
        if (op == PEER_MIN)
            each<A>(w, [](auto x, auto y) { return (y < x) | (y != y) ? y : x; });
        else if (op == PEER_MAX)
            each<A>(w, [](auto x, auto y) { return (x < y) | (y != y) ? y : x; });
        else
            return false;
        return true;
    }

    template <class A>
    PEER_FN bool combine_bits(uint32_t op, const Words &w)
    {
        switch (op) {
        case PEER_LAND:
            each<A>(w, [](auto x, auto y) { return (x != 0) & (y != 0) ? x * 0 + 1 : x * 0; });
            return true;
        case PEER_LOR:
            each<A>(w, [](auto x, auto y) { return (x | y) != 0 ? x * 0 + 1 : x * 0; });
            return true;
        case PEER_LXOR:
            each<A>(w, [](auto x, auto y) { return (x != 0) != (y != 0) ? x * 0 + 1 : x * 0; });
            return true;
        case PEER_BAND:
            each<A>(w, [](auto x, auto y) { return x & y; });
            return true;
        case PEER_BOR:
            each<A>(w, [](auto x, auto y) { return x | y; });
            return true;
        case PEER_BXOR:
            each<A>(w, [](auto x, auto y) { return x ^ y; });
            return true;
        default:
            return false;
        }
    }

    /* Sums first, since they come most often. */
    template <class A>
    PEER_FN void combine_as(uint32_t op, const Words &w)
    {
        using Part = typename PartOf<A>::Sum;
        if (op == PEER_SUM || op == PEER_AVG) {
            each<Part>(w, [](auto x, auto y) { return x + y; });
            return;
        }
        if constexpr (std::is_arithmetic_v<A>)
            if (combine_order<A>(op, w))
                return;
        if constexpr (std::is_integral_v<A>)
            if (combine_bits<Part>(op, w))
                return;
        if constexpr (std::is_arithmetic_v<A>)
            each<Part>(w, [](auto x, auto y) { return x * y; });
        else
            each<A>(w, [](auto x, auto y) { return x * y; });
    }

    PEER_FN void start(const MyPack &x, AnyOp op)
    {
        widen_all(x, op.datatype, a);
    }

    PEER_FN void add(const MyPack &x, AnyOp op)
    {
        Words w;
        widen_all(x, op.datatype, w);
        with_accumulator<SIZE>(op.datatype, [&](auto zero) { combine_as<decltype(zero)>(op.op, w); });
    }

    PEER_FN void join(const Accumulator &next, bool first, AnyOp op)
    {
        if (first)
            a = next.a;
        else
            with_accumulator<SIZE>(op.datatype,
                                   [&](auto zero) { combine_as<decltype(zero)>(op.op, next.a); });
    }

    PEER_FN void save(MyPack (&x)[WIDE_BYTES / BYTES]) const
    {
        a.put(x);
    }

    PEER_FN void restore(const MyPack (&x)[WIDE_BYTES / BYTES])
    {
        a.get(x);
    }

    /* As the hot pairs'. Not unrolled: the code is large, and there to be shared. The packs move up instead, so that the
     * next one is always the first: where an index is not known to the compiler a GPU keeps them all in memory. */
    template <uint32_t GROUP>
    PEER_FN void combine(const MyPack (&x)[GROUP], uint32_t r0, uint32_t nranks, AnyOp op)
    {
        MyPack next[GROUP];
        PEER_UNROLL
        for (uint32_t i = 0; i < GROUP; i++)
            next[i] = x[i];
        PEER_NO_UNROLL
        for (uint32_t i = 0; i < GROUP && r0 + i < nranks; i++) {
            if (r0 + i == 0)
                start(next[0], op);
            else
                add(next[0], op);
            PEER_UNROLL
            for (uint32_t k = 1; k < GROUP; k++)
                next[k - 1] = next[k];
        }
    }

    PEER_FN MyPack result(AnyOp op, uint32_t nranks)
    {
        MyPack x;
        if (op.op == PEER_AVG)
            with_accumulator<SIZE>(op.datatype, [&](auto zero) {
                using Part = typename PartOf<decltype(zero)>::Quotient;
                each<Part>([&](auto sum) { return sum / (Part)nranks; });
            });
        narrow_all(op.datatype, x);
        return x;
    }
};

} // namespace

#endif
