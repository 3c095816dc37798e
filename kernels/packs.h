/* Packs: how data travel under each protocol, between a user's buffer, registers, a peer's staging and this
 * rank's own. A pack is what one thread moves at a time. Under `line` and `ll` it is one or more 16-byte lines
 * that carry their tag; under `flag` it is PEER_VECTOR bytes of data. Where packs lie is the algorithm's affair. */
#ifndef PEER_KERNELS_PACKS_H
#define PEER_KERNELS_PACKS_H

#include <type_traits>

#include "protocol.h"

namespace
{

/* ---- Line formats --------------------------------------------------------------------------------------- */

/* How data and tag share 16 bytes. `line` needs 128-bit accesses that don't tear, `ll` 64-bit ones. */
struct LineFormat {
    static constexpr uint32_t PROTOCOL = PEER_PROTO_LINE;
    static constexpr uint32_t WORDS = 3;

    PEER_FN static void store(void *to, const uint32_t *w, uint32_t tag)
    {
        line_store(to, Line{{w[0], w[1], w[2], tag}});
    }

    PEER_FN static Line load(const void *from)
    {
        return line_load(from);
    }

    PEER_FN static bool fresh(const Line &x, uint32_t tag)
    {
        return x.w[3] == tag;
    }

    PEER_FN static void unpack(const Line &x, uint32_t *w)
    {
        w[0] = x.w[0], w[1] = x.w[1], w[2] = x.w[2];
    }
};

struct LlFormat {
    static constexpr uint32_t PROTOCOL = PEER_PROTO_LL;
    static constexpr uint32_t WORDS = 2;

    PEER_FN static void store(void *to, const uint32_t *w, uint32_t tag)
    {
        halves_store(to, Line{{w[0], tag, w[1], tag}});
    }

    PEER_FN static Line load(const void *from)
    {
        return halves_load(from);
    }

    PEER_FN static bool fresh(const Line &x, uint32_t tag)
    {
        return x.w[1] == tag && x.w[3] == tag;
    }

    PEER_FN static void unpack(const Line &x, uint32_t *w)
    {
        w[0] = x.w[0], w[1] = x.w[2];
    }
};

/* ---- Packs in lines ------------------------------------------------------------------------------------- */

template <class T, class Format>
struct LinePacks {
    static constexpr uint32_t LINES = /* of a pack: the fewest that hold whole elements */
        Format::WORDS * 4 % sizeof(T) == 0   ? 1
        : Format::WORDS * 8 % sizeof(T) == 0 ? 2
                                             : 4;
    static constexpr uint32_t BYTES = LINES * Format::WORDS * 4;
    static constexpr uint32_t STAGED = LINES * 16; /* bytes of a pack in the staging */
    static constexpr uint32_t GROUP = LINES < TOGETHER ? TOGETHER / LINES : 1; /* peers read together */
    using MyPack = Pack<T, BYTES>;

    /* Line k of pack j of a run of `stride` packs: neighbours in j are neighbours in memory, so that a warp stores
     * one run. */
    PEER_FN static char *line_of(char *packs, uint32_t stride, uint32_t j, uint32_t k)
    {
        return packs + ((uint64_t)k * stride + j) * 16;
    }

    PEER_FN static void push(char *packs, uint32_t stride, uint32_t j, const MyPack &x, uint32_t tag)
    {
        PEER_UNROLL
        for (uint32_t k = 0; k < LINES; k++)
            Format::store(line_of(packs, stride, j, k), x.w + k * Format::WORDS, tag);
    }

    /* Waits for pack j of the ranks r0 .. r0+G-1, as far as wanted(r) says so. from(r): where r's packs lie
     * here. */
    template <uint32_t G, class Wanted, class From>
    PEER_FN static bool pull(Block &b, uint32_t stride, uint32_t r0, uint32_t j, uint32_t tag, Wanted wanted,
                             From from, MyPack (&x)[G])
    {
        return wait_until(b, [&] {
            Line line[G][LINES];
            bool fresh = true;
            PEER_UNROLL
            for (uint32_t i = 0; i < G; i++) {
                if (!wanted(r0 + i))
                    continue;
                PEER_UNROLL
                for (uint32_t k = 0; k < LINES; k++)
                    line[i][k] = Format::load(line_of(from(r0 + i), stride, j, k));
            }
            PEER_UNROLL
            for (uint32_t i = 0; i < G; i++) {
                if (!wanted(r0 + i))
                    continue;
                PEER_UNROLL
                for (uint32_t k = 0; k < LINES; k++) {
                    fresh = fresh && Format::fresh(line[i][k], tag);
                    Format::unpack(line[i][k], x[i].w + k * Format::WORDS);
                }
            }
            return fresh;
        });
    }

    /* Waits for pack j of one rank's packs. */
    PEER_FN static bool pull_one(Block &b, char *packs, uint32_t stride, uint32_t j, uint32_t tag, MyPack &x)
    {
        MyPack one[1];
        bool ok = pull(
            b, stride, 0, j, tag, [](uint32_t) { return true; }, [&](uint32_t) { return packs; }, one);
        x = one[0];
        return ok;
    }

    /* Pack j added up over n ranks, of which this is the self-th, its pack being `own`; from(r): where r's packs lie
     * here. */
    template <class Op, class From>
    PEER_FN static bool add_up(Block &b, uint32_t stride, uint32_t j, uint32_t tag, const MyPack &own,
                               uint32_t self, uint32_t n, Op op, From from, Accumulator<T, BYTES, Op> &acc)
    {
        auto wanted = [&](uint32_t r) { return r < n && r != self; };
        uint32_t r0 = 0;
        do {
            MyPack x[GROUP];
            PEER_UNROLL
            for (uint32_t i = 0; i < GROUP; i++)
                x[i] = own; /* where it stays, or until the peer's is here */
            if (!pull(b, stride, r0, j, tag, wanted, from, x))
                return false;
            acc.combine(x, r0, n, op);
            r0 += GROUP;
        } while (r0 < n);
        return true;
    }

    /* Pack j combined over all ranks. */
    template <class Op, class From>
    PEER_FN static bool reduce(Block &b, uint32_t stride, uint32_t j, uint32_t tag, const MyPack &own, Op op,
                               From from, MyPack &result)
    {
        const peer_call &c = b.c;
        Accumulator<T, BYTES, Op> acc;
        if (!add_up(b, stride, j, tag, own, c.rank, c.nranks, op, from, acc))
            return false;
        result = acc.result(op, c.nranks);
        return true;
    }
};

/* What the compiler knows of a pack: that it is whole, and lies where it can be moved at once; or nothing. */
using Whole = std::true_type;
using Partly = std::false_type;

/* A thread's packs: first, first + step, ... below stop. Those below `whole` are. */
struct Run {
    uint32_t first, whole, stop, step;

    /* The first that may not be. Takes a division. */
    PEER_FN uint32_t rest() const
    {
        return whole <= first ? first : first + (whole - first + step - 1) / step * step;
    }
};

/* ---- Packs behind flags --------------------------------------------------------------------------------- */

template <class T>
struct FlagPacks {
    static constexpr uint32_t BYTES = PEER_VECTOR;
    static constexpr uint32_t STAGED = PEER_VECTOR;
    using MyPack = Pack<T, BYTES>;

    PEER_FN static MyPack load(const char *packs, uint32_t j)
    {
        MyPack x;
        load_chunks<BYTES, ChunkOf<BYTES>::VALUE>(x.w, packs + (uint64_t)j * BYTES);
        return x;
    }

    /* Pack j added up over n ranks, of which this is the self-th, its pack being own(); from(r): where r's packs lie. */
    template <class From, class Op, class Own>
    PEER_FN static void add_up(From from, uint32_t j, uint32_t self, uint32_t n, Op op, Own own,
                               Accumulator<T, BYTES, Op> &acc)
    {
        uint32_t r0 = 0;
        do {
            MyPack x[TOGETHER] = {};
            PEER_UNROLL
            for (uint32_t i = 0; i < TOGETHER; i++) {
                if (i > 0 && r0 + i >= n)
                    break;
                x[i] = r0 + i == self ? own() : load(from(r0 + i), j);
            }
            acc.combine(x, r0, n, op);
            r0 += TOGETHER;
        } while (r0 < n);
    }

    /* body(j, pack j combined over all ranks) for the whole packs of a run, PACKS of them at a time, so that few ranks
     * have as many loads under way as many. own: where this rank's packs lie. */
    template <uint32_t PACKS, uint32_t PEERS, class From, class Op, class Body>
    PEER_FN static void reduce_whole(const Run &run, From from, const char *own, uint32_t self, uint32_t n,
                                     Op op, Body body)
    {
        const char *packs[PEERS];
        PEER_UNROLL
        for (uint32_t i = 0; i < PEERS; i++)
            packs[i] = i == self || i >= n ? own : from(i);
        PEER_NO_UNROLL
        for (uint32_t j = run.first; j < run.whole; j += PACKS * run.step) {
            MyPack x[PACKS][PEERS] = {};
            PEER_UNROLL
            for (uint32_t k = 0; k < PACKS && j + k * run.step < run.whole; k++) {
                PEER_UNROLL
                for (uint32_t i = 0; i < PEERS && i < n; i++)
                    x[k][i] = load(packs[i], j + k * run.step);
            }
            PEER_UNROLL
            for (uint32_t k = 0; k < PACKS && j + k * run.step < run.whole; k++) {
                Accumulator<T, BYTES, Op> acc;
                acc.combine(x[k], 0, n, op);
                body(j + k * run.step, acc.result(op, n), Whole());
            }
        }
    }

    /* The same for all packs of a run, in the way that suits so many of so many ranks. load_own(j): this rank's. */
    template <class From, class Op, class LoadOwn, class Body>
    PEER_FN static void reduce_run(const Run &run, From from, const char *own, uint32_t self, uint32_t n,
                                   Op op, LoadOwn load_own, Body body)
    {
        uint32_t j = run.first;
        if constexpr (TOGETHER > 4) {
            if (run.first + run.step < run.whole && n <= 4) {
                if (n == 2)
                    reduce_whole<TOGETHER / 2, 2>(run, from, own, self, n, op, body);
                else
                    reduce_whole<TOGETHER / 4, 4>(run, from, own, self, n, op, body);
                if (run.whole == run.stop)
                    return;
                j = run.rest();
            }
        }
        PEER_NO_UNROLL
        for (; j < run.stop; j += run.step) {
            Accumulator<T, BYTES, Op> acc;
            add_up(
                from, j, self, n, op, [&] { return load_own(j); }, acc);
            body(j, acc.result(op, n), Partly());
        }
    }
};

/* store(j, load(j)) for the packs of a run, with a few loads under way at once. */
template <class Load, class Store>
PEER_FN void over_run(const Run &run, Load load, Store store)
{
    uint32_t j = run.first;
    if constexpr (AHEAD > 1) {
        PEER_NO_UNROLL
        for (; j < run.whole; j += AHEAD * run.step) {
            decltype(load(j, Whole())) x[AHEAD] = {};
            PEER_UNROLL
            for (uint32_t k = 0; k < AHEAD && j + k * run.step < run.whole; k++)
                x[k] = load(j + k * run.step, Whole());
            PEER_UNROLL
            for (uint32_t k = 0; k < AHEAD && j + k * run.step < run.whole; k++)
                store(j + k * run.step, x[k], Whole());
        }
        if (run.whole == run.stop)
            return;
        j = run.rest();
    }
    PEER_NO_UNROLL
    for (; j < run.stop; j += run.step)
        store(j, load(j, Partly()), Partly());
}

/* Stores the packs own(j) of a run to a peer's staging. */
template <bool STREAM, class Own>
PEER_FN void store_run(const Run &run, char *to, Own own)
{
    over_run(run, own, [&](uint32_t j, const auto &x, auto) {
        Pusher::store<STREAM>(to + (uint64_t)j * PEER_VECTOR, x.w);
    });
}

template <class Own>
PEER_FN void push_run(const Block &b, const Run &run, char *to, Own own)
{
    const uint64_t lines = run.stop > run.first ? run.stop - run.first : 0;
    Pusher pusher(b.c, lines);
    if (pusher.streaming)
        store_run<true>(run, to, own);
    else
        store_run<false>(run, to, own);
    pusher.end(lines);
}

/* How data travel under a protocol. */
template <class T, uint32_t PROTOCOL>
struct PacksOf {
    using Type = FlagPacks<T>;
};

template <class T>
struct PacksOf<T, PEER_PROTO_LINE> {
    using Type = LinePacks<T, LineFormat>;
};

template <class T>
struct PacksOf<T, PEER_PROTO_LL> {
    using Type = LinePacks<T, LlFormat>;
};

/* ---- Kinds of calls ------------------------------------------------------------------------------------- */

/* What the compiler knows of a call. EVEN: see load_pack; PLAIN: it goes in one piece, nothing is pulled, it is not split,
 * nobody asks for times, and shares of an exchange are uniform; PUT_OFF: its first looks may be, see not_before. */
template <bool E, bool P, bool O = !P>
struct KindOf {
    static constexpr bool EVEN = E;
    static constexpr bool PLAIN = P;
    static constexpr bool PUT_OFF = O;
};

/* ---- The user's buffers --------------------------------------------------------------------------------- */

/* This rank's buffers in packs of BYTES; EVEN as in load_pack. Copies of the call's fields, so that a CPU's
 * compiler need not suppose that the data's stores change them. */
template <class T, uint32_t BYTES, bool EVEN>
struct Buffers {
    const T *const send;
    T *const recv;
    const uint32_t align;

    PEER_FN explicit Buffers(const peer_call &c)
        : send((const T *)c.sendbuf), recv((T *)c.recvbuf), align(c.align)
    {
    }

    /* Of the packs i, i + 1, ... i + n - 1 of `count` elements, so many are whole. */
    PEER_FN uint32_t whole(uint64_t i, uint32_t n, uint64_t count) const
    {
        const uint64_t all = EVEN || align >= ChunkOf<BYTES>::VALUE ? count / (BYTES / sizeof(T)) : 0;
        return all <= i ? 0 : all - i < n ? (uint32_t)(all - i) : n;
    }

    /* Where packs of the elements from `at` on begin. */
    PEER_FN const char *at(uint64_t at) const
    {
        return (const char *)(send + at);
    }

    /* Pack i of the `count` elements from element `at` on. */
    template <class IsWhole = Partly>
    PEER_FN Pack<T, BYTES> load(uint64_t at, uint64_t i, uint64_t count, IsWhole = {}) const
    {
        if constexpr (IsWhole::value) {
            Pack<T, BYTES> x;
            load_chunks<BYTES, ChunkOf<BYTES>::VALUE>(x.w, send + at + i * (BYTES / sizeof(T)));
            return x;
        } else {
            return load_pack<T, BYTES, EVEN>(send + at, i, count, align);
        }
    }

    template <class IsWhole = Partly>
    PEER_FN void store(uint64_t at, uint64_t i, uint64_t count, const Pack<T, BYTES> &x, IsWhole = {}) const
    {
        if constexpr (IsWhole::value)
            store_chunks<BYTES, ChunkOf<BYTES>::VALUE>(recv + at + i * (BYTES / sizeof(T)), x.w);
        else
            store_pack<T, BYTES, EVEN>(recv + at, i, count, align, x);
    }
};

} // namespace

#endif
