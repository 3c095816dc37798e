/* What every algorithm is built from: a block's view of a call, the tags (epochs), the staging and the flags of
 * the slab, bounded waits, and the line formats.
 *
 * Tags. A call of p pieces takes p epochs; piece i of a call is tagged epoch + i. Tags are compared by equality
 * in lines and by signed difference in flags, so they may wrap; a sweep, below, keeps tags of 2^32 epochs ago
 * from passing for new.
 *
 * Why staging may be overwritten. Call k uses half k % 2 of each protocol's staging. When a rank's call k
 * starts, its call k-1 has ended, so it has received, directly or by way of the owner of a part, something that
 * every rank sent in its call k-1; so every rank has ended its call k-2, and nobody reads half k % 2 any more.
 * (A call starts when the kernel before it on the stream has ended with all its blocks.) Within a call the
 * pieces take turns in PEER_RING slots of the half; each algorithm proves its own reuse.
 *
 * Who runs when. The blocks of a grid wait for their peers' blocks, so all blocks must be resident at once:
 * the launcher's grid is no larger than that (src/device_cuda.c). CPU blocks run one after the other, which
 * is as good, since block b of a rank waits for nothing but blocks b of its peers. */
#ifndef PEER_KERNELS_PROTOCOL_H
#define PEER_KERNELS_PROTOCOL_H

#include "number.h"

namespace
{

/* One thread's view of one call. */
struct Block {
    const peer_call &c;
    Place at;
    uint32_t epoch; /* tag of the first piece */
    uint32_t call;
    uint32_t swept;
    uint32_t stopped;
    uint64_t turn;  /* offset of this call's place in the half */
    uint64_t since; /* when a long wait was first noticed, 0: not yet */
};

PEER_FN uint32_t half_of(const Block &b)
{
    return b.call & 1;
}

/* ---- Addresses in a slab -------------------------------------------------------------------------------- */

/* Flag of `writer` in rank r's slab. Indexed by half, so that the flags of the other half can be swept. */
PEER_FN uint32_t *flag_at(const Block &b, uint32_t r, uint32_t phase, uint32_t writer)
{
    uint32_t index = ((half_of(b) * PEER_PHASES + phase) * PEER_MAX_BLOCKS + b.at.block) * PEER_MAX_PEERS;
    return (uint32_t *)(b.c.slab[r] + (uint64_t)(index + writer) * PEER_FLAG_STRIDE);
}

PEER_FN char *half_at(const peer_call &c, uint32_t r, uint32_t protocol, uint32_t half)
{
    return c.slab[r] + PEER_HALF_OFFSET(c.staging, protocol, half);
}

/* In rank r's slab: pack 0 of `writer` in a region of piece p. `staged`: a pack's bytes there. */
PEER_FN char *packs_at(const Block &b, uint32_t r, uint32_t p, uint32_t region, uint32_t writer,
                       uint32_t staged)
{
    uint64_t before = (uint64_t)(region * b.c.nranks + writer) * b.c.stride;
    return half_at(b.c, r, b.c.protocol, half_of(b)) + b.turn + p % PEER_RING * b.c.slot_bytes +
           before * staged;
}

/* Peers in rotated order, so that the ranks don't all write to the same one at once; i from 1 to nranks-1. */
PEER_FN uint32_t peer_at(const peer_call &c, uint32_t i)
{
    uint32_t r = c.rank + i;
    return r < c.nranks ? r : r - c.nranks;
}

/* ---- Begin and end of a call ---------------------------------------------------------------------------- */

/* Fills the other half, flags included, with a tag that has just passed. Nobody writes there now: a peer that
 * does is in the next call, for which it needs what block 0 of this rank sends in this one, after the sweep. */
PEER_FN void sweep(const Block &b)
{
    const peer_call &c = b.c;
    uint32_t other = half_of(b) ^ 1;
    uint32_t passed = b.epoch - 1;
    constexpr uint32_t WORDS = PEER_PHASES * PEER_MAX_BLOCKS * PEER_MAX_PEERS * PEER_FLAG_STRIDE / 4;
    uint32_t *flags = (uint32_t *)c.slab[c.rank] + other * WORDS;
    for (uint32_t i = b.at.thread; i < WORDS; i += b.at.nthreads)
        flags[i] = passed;
    for (uint32_t protocol = 0; protocol < PEER_N_PROTOCOLS; protocol++) {
        uint32_t *words = (uint32_t *)half_at(c, c.rank, protocol, other);
        for (uint64_t i = b.at.thread; i < PEER_HALF_BYTES(c.staging, protocol) / 4; i += b.at.nthreads)
            words[i] = passed;
    }
    fence();
    block_sync();
}

/* Reads the state. Nothing here waits for what it read, so that a caller may have more loads on their way. */
PEER_FN void look(Block &b)
{
    const peer_state s = b.c.state[b.at.block];
    b.epoch = s.epoch;
    b.call = s.call;
    b.swept = s.swept;
    b.stopped = b.c.state[PEER_MAX_BLOCKS].stopped;
    b.turn = b.c.turns > 1 ? (b.call >> 1) % b.c.turns * b.c.turn_bytes : 0;
}

/* To be called by all threads before anything is sent. */
PEER_FN void enter(const Block &b)
{
    uint32_t other = half_of(b) ^ 1;
    if (b.at.block == 0 && ((b.swept >> (16 * other)) & 0xffff) != b.epoch >> PEER_SWEEP_SHIFT)
        sweep(b);
}

/* Moves the state on to the next call. Called once by all threads, when they have sent what they can send without
 * waiting, so that it costs nothing. False: the communicator has stopped, don't wait for anybody. Block b writes the copies b, b + nblocks, ...: its own, and
 * those of blocks that only a larger grid has. */
PEER_FN bool advance(const Block &b)
{
    uint32_t shift = 16 * (half_of(b) ^ 1);
    uint32_t swept = (b.swept & ~(0xffffu << shift)) | (b.epoch >> PEER_SWEEP_SHIFT) << shift;
    block_sync(); /* every thread has read the state */
    uint32_t step = b.at.nblocks * b.at.nthreads;
    for (uint32_t i = b.at.block + b.at.thread * b.at.nblocks; i < b.c.copies; i += step)
        b.c.state[i] = {b.epoch + b.c.npieces, b.call + 1, swept, 0};
    return !b.stopped;
}

/* ---- Waits ---------------------------------------------------------------------------------------------- */

/* Ends this rank's part in the communicator. Threads may do this at the same time: they write the same. */
PEER_FN void stop(const Block &b, int32_t status)
{
    const peer_call &c = b.c;
    peer_record *record = &c.control->rank[c.rank];
    record->call = b.call;
    record->collective = c.collective;
    record->nbytes = c.count_bytes;
    c.state[PEER_MAX_BLOCKS].stopped = 1;
    fence();
    record->status = status;
    if (c.control->failed == PEER_SUCCESS)
        c.control->failed = status;
}

/* Looked at now and then in a wait: whether to give up. */
PEER_FN bool expired(Block &b)
{
    const peer_call &c = b.c;
    int32_t status = c.control->failed;
    if (status == PEER_SUCCESS && c.control->rank[c.rank].abort)
        status = PEER_ERR_ABORTED;
    if (status == PEER_SUCCESS) {
        uint64_t now = now_ns();
        if (b.since == 0)
            b.since = now;
        else if (now - b.since > c.timeout_ns)
            status = PEER_ERR_TIMEOUT;
    }
    if (status == PEER_SUCCESS)
        return false;
    stop(b, status);
    return true;
}

/* Polls until attempt() finds all there. */
template <class Attempt>
PEER_FN bool wait_until(Block &b, Attempt attempt)
{
    for (uint32_t spins = 1;; spins++) {
        if (attempt())
            return true;
        if (relax(b.c, spins) && expired(b))
            return false;
    }
}

/* ---- Flags ---------------------------------------------------------------------------------------------- */

/* Tells all peers that what this block stored for them before has the tag. Called by all threads. */
PEER_FN void signal_peers(const Block &b, uint32_t phase, uint32_t tag)
{
    block_sync();
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks; i += b.at.nthreads)
        flag_store(flag_at(b, peer_at(b.c, i), phase, b.c.rank), tag);
}

/* Waits until the same block of every peer has signalled the tag, or a later one. Called by all threads, and all
 * get the same answer. */
PEER_FN bool wait_peers(Block &b, uint32_t phase, uint32_t tag)
{
    bool ok = true;
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks && ok; i += b.at.nthreads) {
        const uint32_t *flag = flag_at(b, b.c.rank, phase, peer_at(b.c, i));
        ok = wait_until(b, [&] { return (int32_t)(flag_load(flag) - tag) >= 0; });
    }
    return block_all(ok);
}

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

} // namespace

#endif
