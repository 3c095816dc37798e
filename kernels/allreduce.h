/* All-reduce by push: oneshot and twoshot, each over lines (`line`, `ll`) and over flags (`flag`).
 *
 * oneshot, for each piece of the message
 *   1 send     a rank writes its packs of the piece to every peer, at that peer's place for it
 *   2 reduce   it reads what every peer wrote here, adds up from rank 0 to rank n-1, writes the result out
 * twoshot, part r of a piece belonging to rank r
 *   1 scatter  a rank writes its packs of part r to rank r (region 0), for every r
 *   2 reduce   it adds up its own part, writes the result out and to every peer (region 1)
 *   3 gather   it reads the other parts' results and writes them out
 * A block handles one run of packs of every part, the same in every step, and so meets only the blocks of its own
 * number at the peers. Under `line` and `ll` each 16-byte line carries its tag. Under `flag` a block signals every
 * peer after 1 (phase 0), and after 2 of twoshot (phase 1), and waits for every peer's signal before it reads.
 *
 * Pieces overlap: step 1 of piece p+1 comes before step 2 of piece p, and in twoshot that before step 3 of p-1. All
 * threads of a block have ended a step before one begins the next (where there is but one piece they need not).
 *
 * Why a slot may be overwritten by piece p+4 of the same call (across calls: kernels/protocol.h); A and B are blocks
 * of the same number on two ranks.
 *   oneshot    A writes piece p+4 after its reduce of p+2, so after it saw what B sent for p+2, which B sent after
 *              its own reduce of p. So B no longer reads p.
 *   twoshot    region 0 of B: A scatters p+4 after its gather of p+1, so after B's reduce of p+1, which came
 *              after B's reduce of p. Region 1 of A: B reduces p+4 after it saw what A scattered for p+4, and
 *              A did that after its gather of p+1, which came after its gather of p.
 * In both, a block that has packs in a piece has packs in all pieces before it, since only the last is smaller. */
#ifndef PEER_KERNELS_ALLREDUCE_H
#define PEER_KERNELS_ALLREDUCE_H

#include "protocol.h"

namespace
{

/* The packs of one part of one piece. */
struct Part {
    uint64_t first; /* in the message */
    uint32_t count;
};

/* Part r of piece p; oneshot has the one part 0. */
PEER_FN Part part_of(const peer_call &c, uint32_t p, uint32_t r)
{
    uint64_t first = p * c.piece_packs + (uint64_t)r * c.stride;
    uint64_t left = first < c.npacks ? c.npacks - first : 0;
    return {first, (uint32_t)(left < c.stride ? left : c.stride)};
}

/* ---- line and ll ---------------------------------------------------------------------------------------- */

template <class T, class Op, class Format, bool WHOLE>
struct Lines {
    static constexpr uint32_t LINES = /* of a pack: the fewest that hold whole elements */
        Format::WORDS * 4 % sizeof(T) == 0   ? 1
        : Format::WORDS * 8 % sizeof(T) == 0 ? 2
                                             : 4;
    static constexpr uint32_t BYTES = LINES * Format::WORDS * 4;
    static constexpr uint32_t GROUP = LINES < TOGETHER ? TOGETHER / LINES : 1; /* peers read together */
    using MyPack = Pack<T, BYTES>;
    using MyAccumulator = Accumulator<T, BYTES, Op>;

    Block &b;
    Op op;
    MyPack ahead = {}; /* of this rank: this thread's first pack of oneshot */

    PEER_FN Lines(Block &block, Op operation) : b(block), op(operation)
    {
    }

    PEER_FN MyPack load_own(uint64_t i) const
    {
        const peer_call &c = b.c;
        return load_pack<T, BYTES, WHOLE>((const T *)c.sendbuf, i, c.count, c.align);
    }

    PEER_FN void store_own(uint64_t i, const MyPack &x) const
    {
        const peer_call &c = b.c;
        store_pack<T, BYTES, WHOLE>((T *)c.recvbuf, i, c.count, c.align, x);
    }

    PEER_FN char *packs(uint32_t r, uint32_t p, uint32_t region, uint32_t writer) const
    {
        return packs_at(b, r, p, region, writer, LINES * 16);
    }

    /* Line k of pack j: neighbours in j are neighbours in memory, so that a warp stores one run. */
    PEER_FN char *line_of(char *packs, uint32_t j, uint32_t k) const
    {
        return packs + ((uint64_t)k * b.c.stride + j) * 16;
    }

    PEER_FN void push(char *packs, uint32_t j, const MyPack &x, uint32_t tag) const
    {
        PEER_UNROLL
        for (uint32_t k = 0; k < LINES; k++)
            Format::store(line_of(packs, j, k), x.w + k * Format::WORDS, tag);
    }

    /* Waits for pack j of the ranks r0 .. r0+G-1, as far as wanted(r) says so. from(r): where r's packs lie here. */
    template <uint32_t G, class Wanted, class From>
    PEER_FN bool pull(uint32_t r0, uint32_t j, uint32_t tag, Wanted wanted, From from, MyPack (&x)[G])
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
                    line[i][k] = Format::load(line_of(from(r0 + i), j, k));
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

    /* Pack j combined over all ranks, this rank's being `own`; the peers' lie in region 0. */
    PEER_FN bool reduce(const MyPack &own, uint32_t p, uint32_t j, MyPack &result)
    {
        const peer_call &c = b.c;
        MyAccumulator acc;
        auto wanted = [&](uint32_t r) { return r < c.nranks && r != c.rank; };
        auto from = [&](uint32_t r) { return packs(c.rank, p, 0, r); };
        uint32_t r0 = 0;
        do {
            MyPack x[GROUP];
            PEER_UNROLL
            for (uint32_t i = 0; i < GROUP; i++)
                x[i] = own; /* where it stays, or until the peer's is here */
            if (!pull(r0, j, b.epoch + p, wanted, from, x))
                return false;
            acc.combine(x, r0, c.nranks, op);
            r0 += GROUP;
        } while (r0 < c.nranks);
        result = acc.result();
        return true;
    }

    /* This thread's share of its block's run of a part: packs begin(), begin() + nthreads, ... below end(part). */
    PEER_FN uint32_t begin() const
    {
        return b.at.block * b.c.block_packs + b.at.thread;
    }

    PEER_FN uint32_t end(const Part &part) const
    {
        uint32_t end = (b.at.block + 1) * b.c.block_packs;
        return end < part.count ? end : part.count;
    }

    /* body(r, j) for this thread's share of the block's runs of all peers' parts, as one loop: so that it takes as
     * many threads as there are packs. Ends at the first body that returns false, with false. */
    template <class Body>
    PEER_FN bool over_peers(uint32_t p, Body body)
    {
        const peer_call &c = b.c;
        uint64_t here = c.npacks - p * c.piece_packs; /* packs in this piece and after */
        for (uint32_t f = b.at.thread; f < (c.nranks - 1) * c.block_packs; f += b.at.nthreads) {
            uint32_t r = peer_at(c, 1 + f / c.block_packs);
            uint32_t j = b.at.block * c.block_packs + f % c.block_packs;
            if (j < c.stride && (uint64_t)r * c.stride + j < here && !body(r, j))
                return false;
        }
        return true;
    }

    PEER_FN void load_ahead()
    {
        Part part = part_of(b.c, 0, 0);
        if (begin() < end(part))
            ahead = load_own(begin());
    }

    PEER_FN MyPack load_own_of(const Part &part, uint32_t p, uint32_t j) const
    {
        return p == 0 && j == begin() ? ahead : load_own(part.first + j);
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, 0);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads) {
            MyPack x = load_own_of(part, p, j);
            for (uint32_t i = 1; i < c.nranks; i++)
                push(packs(peer_at(c, i), p, 0, c.rank), j, x, b.epoch + p);
        }
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads) {
            MyPack result;
            if (!reduce(load_own_of(part, p, j), p, j, result))
                return false;
            store_own(part.first + j, result);
        }
        return true;
    }

    PEER_FN void scatter(uint32_t p)
    {
        over_peers(p, [&](uint32_t r, uint32_t j) {
            push(packs(r, p, 0, b.c.rank), j, load_own(part_of(b.c, p, r).first + j), b.epoch + p);
            return true;
        });
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, c.rank);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads) {
            MyPack result;
            if (!reduce(load_own(part.first + j), p, j, result))
                return false;
            for (uint32_t i = 1; i < c.nranks; i++)
                push(packs(peer_at(c, i), p, 1, c.rank), j, result, b.epoch + p);
            store_own(part.first + j, result);
        }
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        return over_peers(p, [&](uint32_t r, uint32_t j) {
            MyPack x[1];
            auto from = [&](uint32_t writer) { return packs(b.c.rank, p, 1, writer); };
            bool ok = pull(
                r, j, b.epoch + p, [](uint32_t) { return true; }, from, x);
            if (ok)
                store_own(part_of(b.c, p, r).first + j, x[0]);
            return ok;
        });
    }
};

/* ---- flag ----------------------------------------------------------------------------------------------- */

template <class T, class Op, bool WHOLE>
struct Flags {
    static constexpr uint32_t BYTES = PEER_VECTOR;
    using MyPack = Pack<T, BYTES>;
    using MyAccumulator = Accumulator<T, BYTES, Op>;

    Block &b;
    Op op;
    /* Of the call, so that a CPU's compiler need not suppose that the data's stores change it. */
    const T *const send;
    T *const recv;
    const uint64_t count;
    const uint32_t align, rank, nranks;

    PEER_FN Flags(Block &block, Op operation)
        : b(block), op(operation), send((const T *)b.c.sendbuf), recv((T *)b.c.recvbuf), count(b.c.count),
          align(b.c.align), rank(b.c.rank), nranks(b.c.nranks)
    {
    }

    PEER_FN void load_ahead()
    {
    }

    PEER_FN MyPack load_own(uint64_t i) const
    {
        return load_pack<T, BYTES, WHOLE>(send, i, count, align);
    }

    PEER_FN void store_own(uint64_t i, const MyPack &x) const
    {
        store_pack<T, BYTES, WHOLE>(recv, i, count, align, x);
    }

    PEER_FN char *packs(uint32_t r, uint32_t p, uint32_t region, uint32_t writer) const
    {
        return packs_at(b, r, p, region, writer, BYTES);
    }

    PEER_FN static MyPack load_staged(const char *packs, uint32_t j)
    {
        MyPack x;
        load_chunks<BYTES, ChunkOf<BYTES>::VALUE>(x.w, packs + (uint64_t)j * BYTES);
        return x;
    }

    /* This block's run of a part: packs begin() .. end(part)-1, shared among its threads. */
    PEER_FN uint32_t begin() const
    {
        return b.at.block * b.c.block_packs + b.at.thread;
    }

    PEER_FN uint32_t end(const Part &part) const
    {
        uint32_t end = (b.at.block + 1) * b.c.block_packs;
        return end < part.count ? end : part.count;
    }

    template <bool STREAM>
    PEER_FN void copy_run(char *to, const Part &part) const
    {
        const uint32_t stop = end(part), step = b.at.nthreads;
        for (uint32_t j = begin(); j < stop; j += step)
            Pusher::store<STREAM>(to + (uint64_t)j * BYTES, load_own(part.first + j).w);
    }

    /* Writes this rank's own packs of a part to rank r. */
    PEER_FN void push_own(const Part &part, uint32_t r, uint32_t p) const
    {
        char *to = packs(r, p, 0, rank);
        const uint64_t lines = end(part) > begin() ? end(part) - begin() : 0;
        Pusher pusher(b.c, lines);
        if (pusher.streaming)
            copy_run<true>(to, part);
        else
            copy_run<false>(to, part);
        pusher.end(lines);
    }

    /* Pack j of the part combined over all ranks. The peers' packs lie at `staged`, a writer's `apart` from the
     * next's. */
    PEER_FN MyPack reduce(const Part &part, uint32_t j, const char *staged, uint64_t apart) const
    {
        MyAccumulator acc;
        uint32_t r0 = 0;
        do {
            MyPack x[TOGETHER];
            PEER_UNROLL
            for (uint32_t i = 0; i < TOGETHER; i++) {
                if (i > 0 && r0 + i >= nranks)
                    break;
                x[i] = r0 + i == rank ? load_own(part.first + j) : load_staged(staged + (r0 + i) * apart, j);
            }
            acc.combine(x, r0, nranks, op);
            r0 += TOGETHER;
        } while (r0 < nranks);
        return acc.result();
    }

    /* body(j, pack) for each pack of this block's run of a part, combined over all ranks. */
    template <class Body>
    PEER_FN void reduce_run(const Part &part, uint32_t p, Body body) const
    {
        const char *staged = packs(rank, p, 0, 0);
        const uint64_t apart = (uint64_t)b.c.stride * BYTES;
        const uint32_t stop = end(part), step = b.at.nthreads;
        for (uint32_t j = begin(); j < stop; j += step)
            body(j, reduce(part, j, staged, apart));
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        for (uint32_t i = 1; i < nranks; i++)
            push_own(part, peer_at(b.c, i), p);
        signal_peers(b, 0, b.epoch + p);
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        if (!wait_peers(b, 0, b.epoch + p))
            return false;
        reduce_run(part, p, [&](uint32_t j, const MyPack &x) { store_own(part.first + j, x); });
        return true;
    }

    PEER_FN void scatter(uint32_t p)
    {
        for (uint32_t i = 1; i < nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            push_own(part_of(b.c, p, r), r, p);
        }
        signal_peers(b, 0, b.epoch + p);
    }

    template <bool STREAM>
    PEER_FN void reduce_and_push(const Part &part, uint32_t p) const
    {
        reduce_run(part, p, [&](uint32_t j, const MyPack &x) {
            for (uint32_t i = 1; i < nranks; i++)
                Pusher::store<STREAM>(packs(peer_at(b.c, i), p, 1, rank) + (uint64_t)j * BYTES, x.w);
            store_own(part.first + j, x);
        });
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, rank);
        if (!wait_peers(b, 0, b.epoch + p))
            return false;
        Pusher pusher(b.c, end(part) > begin() ? end(part) - begin() : 0);
        if (pusher.streaming)
            reduce_and_push<true>(part, p);
        else
            reduce_and_push<false>(part, p);
        pusher.end(0);
        signal_peers(b, 1, b.epoch + p);
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        if (!wait_peers(b, 1, b.epoch + p))
            return false;
        for (uint32_t i = 1; i < nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            Part part = part_of(b.c, p, r);
            const char *from = packs(rank, p, 1, r);
            const uint32_t stop = end(part), step = b.at.nthreads;
            for (uint32_t j = begin(); j < stop; j += step)
                store_own(part.first + j, load_staged(from, j));
        }
        return true;
    }
};

/* ---- The order of steps --------------------------------------------------------------------------------- */

/* A step's verdict for the whole block, when more steps follow. */
PEER_FN bool step_ended(const Block &b, bool ok)
{
    return b.c.npieces == 1 ? ok : block_all(ok);
}

template <class Steps>
PEER_FN void oneshot(Block &b, Steps &s)
{
    s.load_ahead();
    enter(b);
    s.oneshot_send(0);
    if (!advance(b))
        return;
    for (uint32_t p = 0; p < b.c.npieces; p++) {
        if (p + 1 < b.c.npieces)
            s.oneshot_send(p + 1);
        if (!step_ended(b, s.oneshot_reduce(p)))
            return;
    }
}

template <class Steps>
PEER_FN void twoshot(Block &b, Steps &s)
{
    enter(b);
    s.scatter(0);
    if (!advance(b))
        return;
    for (uint32_t t = 1; t <= b.c.npieces + 1; t++) {
        if (t < b.c.npieces)
            s.scatter(t);
        if (t <= b.c.npieces && !step_ended(b, s.twoshot_reduce(t - 1)))
            return;
        if (t >= 2 && !step_ended(b, s.gather(t - 2)))
            return;
    }
}

/* How data travel under a protocol. */
template <class T, class Op, uint32_t PROTOCOL, bool WHOLE>
struct StepsOf {
    using Type = Flags<T, Op, WHOLE>;
};

template <class T, class Op, bool WHOLE>
struct StepsOf<T, Op, PEER_PROTO_LINE, WHOLE> {
    using Type = Lines<T, Op, LineFormat, WHOLE>;
};

template <class T, class Op, bool WHOLE>
struct StepsOf<T, Op, PEER_PROTO_LL, WHOLE> {
    using Type = Lines<T, Op, LlFormat, WHOLE>;
};

template <uint32_t ALGORITHM, class Steps>
PEER_FN void run(Block &b, Steps steps)
{
    if constexpr (ALGORITHM == PEER_ALGO_ONESHOT)
        oneshot(b, steps);
    else
        twoshot(b, steps);
}

/* One block's part in an all-reduce. ALGORITHM and PROTOCOL are the call's, known to the compiler. Operations that
 * are worth it have code of their own for buffers of whole packs. */
template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL>
PEER_FN void allreduce(Block &b, Op op)
{
    using Whole = typename StepsOf<T, Op, PROTOCOL, true>::Type;
    using Ragged = typename StepsOf<T, Op, PROTOCOL, false>::Type;
    constexpr uint32_t N = Whole::BYTES / sizeof(T);
    look(b);
    if constexpr (Op::HOT) {
        if (b.c.align >= ChunkOf<Whole::BYTES>::VALUE && b.c.npacks * N == b.c.count) {
            run<ALGORITHM>(b, Whole(b, op));
            return;
        }
    }
    run<ALGORITHM>(b, Ragged(b, op));
}

} // namespace

#endif
