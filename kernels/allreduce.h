/* All-reduce by push: oneshot and twoshot, each over lines (`line`, `ll`) and over flags (`flag`).
 *
 * oneshot, for each piece of the message
 *   1 send     a rank writes its packs of the piece to every peer, at that peer's place for it
 *   2 reduce   it reads what every peer wrote here, adds up from rank 0 to rank n-1, writes the result out
 * twoshot, part r of a piece belonging to rank r
 *   1 scatter  a rank writes its packs of part r to rank r (region 0), for every r
 *   2 reduce   it adds up its own part, writes the result out and to every peer (region 1)
 *   3 gather   it reads the other parts' results and writes them out
 * Under `line` and `ll` each 16-byte line carries its tag, and a thread handles the packs with its own number,
 * modulo the threads of the grid, in every step: so a thread meets only the threads of its own number at the
 * peers. Under `flag` a block handles one run of packs of every part, and after 1, and after 2 of twoshot, it
 * signals every peer (phase 0, and phase 1), which waits before it reads: so a block meets only the blocks of
 * its own number. Below, "party" is a thread or a block in this sense.
 *
 * Pieces overlap: step 1 of piece p+1 comes before step 2 of piece p, and in twoshot that before step 3 of p-1.
 *
 * Why a slot may be overwritten by piece p+4 of the same call (across calls: kernels/protocol.h).
 *   oneshot    Party A writes piece p+4 after its reduce of p+2, so after it saw what party B sent for p+2, which B
 *              sent after its own reduce of p. So B no longer reads p.
 *   twoshot    region 0 of B: A scatters p+4 after its gather of p+1, so after B's reduce of p+1, which came
 *              after B's reduce of p. Region 1 of A: B reduces p+4 after it saw what A scattered for p+4, and
 *              A did that after its gather of p+1, which came after its gather of p.
 * In both, a party that has packs in a piece has packs in all pieces before it, since only the last is smaller. */
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

template <class T, class Op, class Format>
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
    MyPack ahead; /* of this rank: pack first() of the message */

    PEER_FN Lines(Block &block, Op operation) : b(block), op(operation)
    {
    }

    PEER_FN void load_ahead()
    {
        ahead = load_own(first());
    }

    PEER_FN MyPack load_own(uint64_t i) const
    {
        const peer_call &c = b.c;
        return load_pack<T, BYTES>((const T *)c.sendbuf, i, c.count, c.align);
    }

    PEER_FN void store_own(uint64_t i, const MyPack &x) const
    {
        const peer_call &c = b.c;
        store_pack<T, BYTES>((T *)c.recvbuf, i, c.count, c.align, x);
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

    /* Waits for pack j of the ranks r0 .. r0+GROUP-1, as far as there are and wanted(r) says so. from(r): where
     * r's packs lie here. */
    template <class Wanted, class From>
    PEER_FN bool pull(uint32_t r0, uint32_t j, uint32_t tag, Wanted wanted, From from, MyPack (&x)[GROUP])
    {
        return wait_until(b, [&] {
            Line line[GROUP][LINES];
            uint32_t missing = 0;
            PEER_UNROLL
            for (uint32_t i = 0; i < GROUP; i++) {
                if (!wanted(r0 + i))
                    continue;
                PEER_UNROLL
                for (uint32_t k = 0; k < LINES; k++)
                    line[i][k] = Format::load(line_of(from(r0 + i), j, k));
            }
            PEER_UNROLL
            for (uint32_t i = 0; i < GROUP; i++) {
                if (!wanted(r0 + i))
                    continue;
                PEER_UNROLL
                for (uint32_t k = 0; k < LINES; k++) {
                    if (!Format::fresh(line[i][k], tag))
                        missing |= 1u << (r0 + i);
                    Format::unpack(line[i][k], x[i].w + k * Format::WORDS);
                }
            }
            return missing;
        });
    }

    /* Pack j combined over all ranks, this rank's being `own`. from(r): where r's packs lie here. */
    template <class From>
    PEER_FN bool reduce(const MyPack &own, uint32_t j, uint32_t tag, From from, MyPack &result)
    {
        const peer_call &c = b.c;
        MyAccumulator acc;
        auto wanted = [&](uint32_t r) { return r < c.nranks && r != c.rank; };
        uint32_t r0 = 0;
        do {
            MyPack x[GROUP];
            PEER_UNROLL
            for (uint32_t i = 0; i < GROUP; i++)
                x[i] = own; /* where it stays, or until the peer's is here */
            if (!pull(r0, j, tag, wanted, from, x))
                return false;
            acc.combine(x, r0, c.nranks, op);
            r0 += GROUP;
        } while (r0 < c.nranks);
        result = acc.result();
        return true;
    }

    PEER_FN uint32_t first() const
    {
        return b.at.block * b.at.nthreads + b.at.thread;
    }

    PEER_FN uint32_t step() const
    {
        return b.at.nblocks * b.at.nthreads;
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, 0);
        for (uint32_t j = first(); j < part.count; j += step()) {
            MyPack x = part.first + j == first() ? ahead : load_own(part.first + j);
            for (uint32_t i = 1; i < c.nranks; i++)
                push(packs(peer_at(c, i), p, 0, c.rank), j, x, b.epoch + p);
        }
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        auto from = [&](uint32_t r) { return packs(b.c.rank, p, 0, r); };
        for (uint32_t j = first(); j < part.count; j += step()) {
            MyPack own = part.first + j == first() ? ahead : load_own(part.first + j);
            MyPack result;
            if (!reduce(own, j, b.epoch + p, from, result))
                return false;
            store_own(part.first + j, result);
        }
        return true;
    }

    /* Loads for several peers before it stores for the first: a load between stores would wait for its turn. */
    PEER_FN void scatter(uint32_t p)
    {
        const peer_call &c = b.c;
        uint64_t here = c.npacks - p * c.piece_packs; /* packs in this piece and after */
        auto has = [&](uint32_t i, uint32_t j) {
            return i < c.nranks && (uint64_t)peer_at(c, i) * c.stride + j < here;
        };
        for (uint32_t j = first(); j < c.stride; j += step()) {
            for (uint32_t i0 = 1; i0 < c.nranks; i0 += GROUP) {
                MyPack x[GROUP] = {};
                PEER_UNROLL
                for (uint32_t i = 0; i < GROUP; i++)
                    if (has(i0 + i, j))
                        x[i] = load_own(part_of(c, p, peer_at(c, i0 + i)).first + j);
                PEER_UNROLL
                for (uint32_t i = 0; i < GROUP; i++)
                    if (has(i0 + i, j))
                        push(packs(peer_at(c, i0 + i), p, 0, c.rank), j, x[i], b.epoch + p);
            }
        }
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, c.rank);
        auto from = [&](uint32_t r) { return packs(c.rank, p, 0, r); };
        for (uint32_t j = first(); j < part.count; j += step()) {
            MyPack result;
            if (!reduce(load_own(part.first + j), j, b.epoch + p, from, result))
                return false;
            for (uint32_t i = 1; i < c.nranks; i++)
                push(packs(peer_at(c, i), p, 1, c.rank), j, result, b.epoch + p);
            store_own(part.first + j, result);
        }
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        const peer_call &c = b.c;
        uint64_t here = c.npacks - p * c.piece_packs; /* packs in this piece and after */
        auto from = [&](uint32_t r) { return packs(c.rank, p, 1, r); };
        for (uint32_t j = first(); j < c.stride; j += step()) {
            auto wanted = [&](uint32_t r) {
                return r < c.nranks && r != c.rank && (uint64_t)r * c.stride + j < here;
            };
            for (uint32_t r0 = 0; r0 < c.nranks; r0 += GROUP) {
                MyPack x[GROUP];
                if (!pull(r0, j, b.epoch + p, wanted, from, x))
                    return false;
                PEER_UNROLL
                for (uint32_t i = 0; i < GROUP; i++)
                    if (wanted(r0 + i))
                        store_own(part_of(c, p, r0 + i).first + j, x[i]);
            }
        }
        return true;
    }
};

/* ---- flag ----------------------------------------------------------------------------------------------- */

template <class T, class Op>
struct Flags {
    static constexpr uint32_t BYTES = PEER_VECTOR;
    using MyPack = Pack<T, BYTES>;
    using MyAccumulator = Accumulator<T, BYTES, Op>;

    Block &b;
    Op op;

    PEER_FN Flags(Block &block, Op operation) : b(block), op(operation)
    {
    }

    PEER_FN void load_ahead()
    {
    }

    PEER_FN MyPack load_own(uint64_t i) const
    {
        const peer_call &c = b.c;
        return load_pack<T, BYTES>((const T *)c.sendbuf, i, c.count, c.align);
    }

    PEER_FN void store_own(uint64_t i, const MyPack &x) const
    {
        const peer_call &c = b.c;
        store_pack<T, BYTES>((T *)c.recvbuf, i, c.count, c.align, x);
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

    PEER_FN static void store_staged(char *packs, uint32_t j, const MyPack &x)
    {
        store_chunks<BYTES, ChunkOf<BYTES>::VALUE>(packs + (uint64_t)j * BYTES, x.w);
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

    /* Writes this rank's own packs of a part to rank r. */
    PEER_FN void push_own(const Part &part, uint32_t r, uint32_t p) const
    {
        char *to = packs(r, p, 0, b.c.rank);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads)
            store_staged(to, j, load_own(part.first + j));
    }

    /* Pack j of the part combined over all ranks, the peers' packs being here. */
    PEER_FN MyPack reduce(const Part &part, uint32_t p, uint32_t j) const
    {
        const peer_call &c = b.c;
        MyAccumulator acc;
        uint32_t r0 = 0;
        do {
            MyPack x[TOGETHER];
            PEER_UNROLL
            for (uint32_t i = 0; i < TOGETHER; i++) {
                if (i > 0 && r0 + i >= c.nranks)
                    break;
                x[i] =
                    r0 + i == c.rank ? load_own(part.first + j) : load_staged(packs(c.rank, p, 0, r0 + i), j);
            }
            acc.combine(x, r0, c.nranks, op);
            r0 += TOGETHER;
        } while (r0 < c.nranks);
        return acc.result();
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        for (uint32_t i = 1; i < b.c.nranks; i++)
            push_own(part, peer_at(b.c, i), p);
        signal_peers(b, 0, b.epoch + p);
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        if (!wait_peers(b, 0, b.epoch + p))
            return false;
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads)
            store_own(part.first + j, reduce(part, p, j));
        return true;
    }

    PEER_FN void scatter(uint32_t p)
    {
        for (uint32_t i = 1; i < b.c.nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            push_own(part_of(b.c, p, r), r, p);
        }
        signal_peers(b, 0, b.epoch + p);
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, c.rank);
        if (!wait_peers(b, 0, b.epoch + p))
            return false;
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads) {
            MyPack result = reduce(part, p, j);
            for (uint32_t i = 1; i < c.nranks; i++)
                store_staged(packs(peer_at(c, i), p, 1, c.rank), j, result);
            store_own(part.first + j, result);
        }
        signal_peers(b, 1, b.epoch + p);
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        const peer_call &c = b.c;
        if (!wait_peers(b, 1, b.epoch + p))
            return false;
        for (uint32_t i = 1; i < c.nranks; i++) {
            uint32_t r = peer_at(c, i);
            Part part = part_of(c, p, r);
            const char *from = packs(c.rank, p, 1, r);
            for (uint32_t j = begin(); j < end(part); j += b.at.nthreads)
                store_own(part.first + j, load_staged(from, j));
        }
        return true;
    }
};

/* ---- The order of steps --------------------------------------------------------------------------------- */

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
        if (!s.oneshot_reduce(p))
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
        if (t <= b.c.npieces && !s.twoshot_reduce(t - 1))
            return;
        if (t >= 2 && !s.gather(t - 2))
            return;
    }
}

/* How data travel under a protocol. */
template <class T, class Op, uint32_t PROTOCOL>
struct StepsOf {
    using Type = Flags<T, Op>;
};

template <class T, class Op>
struct StepsOf<T, Op, PEER_PROTO_LINE> {
    using Type = Lines<T, Op, LineFormat>;
};

template <class T, class Op>
struct StepsOf<T, Op, PEER_PROTO_LL> {
    using Type = Lines<T, Op, LlFormat>;
};

/* One block's part in an all-reduce. ALGORITHM and PROTOCOL are the call's, known to the compiler. */
template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL>
PEER_FN void allreduce(Block &b, Op op)
{
    look(b);
    typename StepsOf<T, Op, PROTOCOL>::Type steps(b, op);
    if constexpr (ALGORITHM == PEER_ALGO_ONESHOT)
        oneshot(b, steps);
    else
        twoshot(b, steps);
}

} // namespace

#endif
