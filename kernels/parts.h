/* Parts: how an all-reduce's message is cut into pieces and parts, where their packs lie in the staging, and what its
 * steps need under every protocol. */
#ifndef PEER_KERNELS_PARTS_H
#define PEER_KERNELS_PARTS_H

#include "packs.h"

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

/* The slot of piece p. */
PEER_FN uint32_t slot_of(const peer_call &c, uint32_t p)
{
    return p < c.ring ? p : p % PEER_RING;
}

/* Whom a writer's packs are for. */
enum Region {
    ONE, /* one reader: twoshot's scatter */
    ALL  /* all: oneshot's send, twoshot's results */
};

/* Where the packs of piece p that `writer` has for `reader` begin. Pushed, they lie with the reader, by writer;
 * pulled, with the writer: by reader, or once for all. `staged`: a pack's bytes there. */
template <Region REGION, class Kind>
PEER_FN char *packs_at(const Block &b, uint32_t reader, uint32_t writer, uint32_t p, uint32_t staged)
{
    const peer_call &c = b.c;
    const bool pulled = !Kind::PLAIN && (REGION == ONE ? c.pull_one : c.pull_all);
    const uint32_t place = !pulled ? writer : REGION == ONE ? reader : 0;
    const uint64_t before = (uint64_t)place * c.stride + (REGION == ALL ? c.all_at : 0);
    return half_at(c, pulled ? writer : reader, c.protocol, half_of(b)) + b.turn +
           slot_of(c, p) * c.slot_bytes + before * staged;
}

/* What the steps of every protocol need. */
template <class T, class Op, class Packs, class Kind>
struct Steps {
    using MyPack = typename Packs::MyPack;

    Block &b;
    Op op;
    const Buffers<T, Packs::BYTES, Kind::EVEN> buffers;
    const uint64_t count;

    PEER_FN Steps(Block &block, Op operation)
        : b(block), op(operation), buffers(block.c), count(block.c.count)
    {
    }

    PEER_FN uint32_t tag(uint32_t p) const
    {
        return b.state.epoch + p;
    }

    PEER_FN uint32_t npieces() const
    {
        return Kind::PLAIN ? 1 : b.c.npieces;
    }

    template <class IsWhole = Partly>
    PEER_FN MyPack load_own(uint64_t i, IsWhole whole = {}) const
    {
        return buffers.load(0, i, count, whole);
    }

    template <class IsWhole = Partly>
    PEER_FN void store_own(uint64_t i, const MyPack &x, IsWhole whole = {}) const
    {
        if (b.c.keep)
            buffers.store(0, i, count, x, whole);
    }

    /* Where this rank writes for rank r, and where it reads what r wrote. */
    template <Region REGION>
    PEER_FN char *to(uint32_t r, uint32_t p) const
    {
        return packs_at<REGION, Kind>(b, r, b.c.rank, p, Packs::STAGED);
    }

    template <Region REGION>
    PEER_FN char *from(uint32_t r, uint32_t p) const
    {
        return packs_at<REGION, Kind>(b, b.c.rank, r, p, Packs::STAGED);
    }

    /* The same as a function of the writer alone. Pushed packs are evenly apart: nothing else need be computed for
     * each. */
    template <Region REGION>
    PEER_FN auto from_each(uint32_t p) const
    {
        char *const first = from<REGION>(0, p);
        const uint64_t apart = (uint64_t)b.c.stride * Packs::STAGED;
        return [=](uint32_t r) {
            if constexpr (Kind::PLAIN)
                return first + r * apart;
            else
                return from<REGION>(r, p);
        };
    }

    /* Peers to whom what all shall read is written: what they pull, to the first, as it were. */
    PEER_FN uint32_t receivers() const
    {
        return !Kind::PLAIN && b.c.pull_all ? 1 : b.c.nranks - 1;
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

    PEER_FN Run run_of(const Part &part) const
    {
        const uint32_t stop = end(part);
        return {begin(), buffers.whole(part.first, stop, count), stop, b.at.nthreads};
    }
};

} // namespace

#endif
