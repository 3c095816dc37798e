/* What every algorithm is built from: a block's view of a call, the tags (epochs), the staging and the flags of
 * the slab, and bounded waits.
 *
 * Tags. A call of p pieces takes p epochs; piece i of a call is tagged epoch + i. Tags are compared by equality
 * in lines and by signed difference in flags, so they may wrap; a sweep, below, keeps tags of 2^32 epochs ago
 * from passing for new.
 *
 * Groups. The calls of a communicator form groups: some, perhaps no, small one-way calls, and one last call
 * that is a rendezvous, in which every rank receives something from every rank, directly or by way of the
 * owner of a part. A two-way collective is one by its data; one-way collectives (broadcast, gather, ...) that
 * are not small, or the PEER_PLACES-th of a group, are made one: block 0 of each rank announces itself (phase
 * 2) to all before it sends, and waits for all before the call ends. So a root may be up to PEER_PLACES - 1
 * small calls ahead of its receivers.
 *
 * Why staging may be overwritten. Group g uses half g % 2 of each protocol's staging: its last call the main
 * part, the small calls before it a place each. When a rank begins group g+1 it has ended the last call of g,
 * so it has received something that every rank sent in that call; so every rank has ended all calls of group
 * g-1, and nobody reads or writes half (g+1) % 2 of any slab any more. (A call starts when the kernel before it
 * on the communicator has ended with all its blocks; and all that is written in a call is waited for, and read,
 * by those it is for in the same call.) Within a call the pieces take turns in PEER_RING slots; each algorithm
 * proves its own reuse.
 *
 * Who runs when. The blocks of a grid wait for their peers' blocks, so all blocks must be resident at once:
 * the launcher's grid is no larger than that (src/device_cuda.c). CPU blocks run one after the other, which
 * is as good, since block b of a rank waits for nothing but blocks b of its peers.
 *
 * When the next kernel may begin. On a GPU a call's kernel may begin while the one before it on the stream ends
 * (programmatic dependent launch), which hides its launch; it then waits for that one's end before it touches anything, so
 * all that is said above holds. But its blocks, or those of any kernel of the program that is launched so, take room on the
 * GPU from then on, until this call has ended. So a block lets the next begin only when the call will end without any
 * other block having to find room: when it waits for nobody any more (all_received), or, in a call that is plain, when one
 * of its threads has data from its block's number at every peer. Those blocks then are resident, or have ended, and in a
 * plain call wait for none but each other. Else ranks that share a GPU, or streams, could keep each other out for good.
 * A block that says nothing (staged, or without packs, or failed) lets the next begin by ending. */
#ifndef PEER_KERNELS_PROTOCOL_H
#define PEER_KERNELS_PROTOCOL_H

#include "number.h"

namespace
{

/* One thread's view of one call. */
struct Block {
    const peer_call &c;
    Place at;
    peer_state state; /* as it was before the call; epoch: tag of the first piece */
    uint32_t stopped;
    bool last;       /* of its group */
    uint64_t turn;   /* offset of this call's place in the half */
    uint64_t began;  /* when this thread did; 0: nobody asks */
    uint64_t *marks; /* peer_call's, or NULL */
};

/* A thread's view before it has looked at anything. A plain call's kernels know that it is not split, and has no marks:
 * asking takes 0.2 us of the 2.6 that a call takes on a GPU. */
PEER_FN Block block_of(const peer_call &c, uint32_t block, bool plain)
{
    return {c, place(c, block, !plain && c.teams > 0), {}, 0, false, 0, 0, plain ? nullptr : c.marks};
}

PEER_FN uint32_t half_of(const Block &b)
{
    return b.state.group & 1;
}

/* ---- Addresses in a slab -------------------------------------------------------------------------------- */

/* Flag of `writer` in rank r's slab. Indexed by half, so that the flags of the other half can be swept. A
 * small call, which under flag has one block, takes those of the block with its place's number: they only
 * grow, and so serve others of the group as well. Teams, which signal in phase 1, don't go through the pieces in one
 * order, and have flags of their own. */
PEER_FN uint32_t *flag_at(const Block &b, uint32_t r, uint32_t phase, uint32_t writer)
{
    uint32_t block = b.c.small    ? b.state.place
                     : phase == 1 ? b.at.team * b.at.nblocks + b.at.block
                                  : b.at.block;
    uint32_t index = ((half_of(b) * PEER_PHASES + phase) * PEER_MAX_BLOCKS + block) * PEER_MAX_PEERS;
    return (uint32_t *)(b.c.slab[r] + (uint64_t)(index + writer) * PEER_FLAG_STRIDE);
}

PEER_FN char *half_at(const peer_call &c, uint32_t r, uint32_t protocol, uint32_t half)
{
    return c.slab[r] + PEER_HALF_OFFSET(c.staging, protocol, half);
}

/* Peers in rotated order, so that the ranks don't all write to the same one at once; i from 1 to nranks-1. */
PEER_FN uint32_t peer_at(const peer_call &c, uint32_t i)
{
    uint32_t r = c.rank + i;
    return r < c.nranks ? r : r - c.nranks;
}

/* ---- Begin and end of a call ---------------------------------------------------------------------------- */

/* Reads the state. Nothing here waits for what it read, so that a caller may have more loads on their way. */
PEER_FN void look(Block &b)
{
    const peer_call &c = b.c;
    b.state = c.state->copy[b.at.copy];
    b.stopped = c.state->stopped;
    b.last = !c.small || b.state.place == PEER_PLACES - 1;
    b.turn = c.turns > 1 ? (b.state.group >> 1) % c.turns * c.turn_bytes : 0;
}

/* Moves the state on to the next call. Called once by all threads, when they have sent what they can send without
 * waiting, so that it costs nothing. Block b writes the copies b, b + ncopies, ...: its own, and those of blocks that
 * only a larger grid has. */
PEER_FN void advance(const Block &b)
{
    uint32_t shift = 2 * (half_of(b) ^ 1);
    peer_state next = b.state;
    next.epoch += b.c.epochs;
    next.call++;
    next.group += b.last ? 1 : 0;
    next.place = (uint16_t)(b.last ? 0 : b.state.place + 1);
    next.swept = (uint16_t)((b.state.swept & ~(3u << shift)) | (b.state.epoch >> PEER_SWEEP_SHIFT) << shift);
    block_sync(); /* every thread has read the state */
    uint32_t step = b.at.ncopies * b.at.nthreads;
    for (uint32_t i = b.at.copy + b.at.thread * b.at.ncopies; i < b.c.copies; i += step)
        b.c.state->copy[i] = next;
}

/* Whether this block does with piece p what comes after its sending. */
PEER_FN bool works_on(const Block &b, uint32_t p)
{
    return b.at.works && (b.at.nteams == 1 || p % b.at.nteams == b.at.team);
}

/* Piece p has come to a point whose time is asked for, of the first piece alone. In a split call the sending block has
 * the first two; the end is that of the team that has the last piece. */
PEER_FN void mark(const Block &b, enum peer_mark which, uint32_t p = 0)
{
    if (b.marks != nullptr && p == 0 && b.at.block == 0 && b.at.thread == 0 &&
        (which <= PEER_MARK_SENT ? b.at.sends : works_on(b, which == PEER_MARK_END ? b.c.npieces - 1 : 0)))
        b.marks[which] = now_ns();
}

/* ---- Waits ---------------------------------------------------------------------------------------------- */

/* What peer_states' `stopped` is by this call: never 0. */
PEER_FN uint32_t stopped_here(const Block &b)
{
    return b.state.call << 1 | 1;
}

/* Ends this rank's part in the communicator. Threads may do this at the same time: they write the same. */
PEER_FN void stop(const Block &b, int32_t status)
{
    const peer_call &c = b.c;
    peer_record *record = &c.control->rank[c.rank];
    record->call = b.state.call;
    record->collective = c.collective;
    record->nbytes = c.count_bytes;
    c.state->stopped = stopped_here(b);
    fence();
    record->status = status;
    if (c.control->failed == PEER_SUCCESS)
        c.control->failed = status;
}

/* Looked at now and then in a wait: whether to give up. since: when this wait was first seen to be long, 0: not yet. */
PEER_FN bool expired(const Block &b, uint64_t &since)
{
    const peer_call &c = b.c;
    int32_t status = c.control->failed;
    if (status == PEER_SUCCESS) {
        uint64_t now = now_ns();
        if (since == 0)
            since = now;
        else if (now - since > c.timeout_ns)
            status = PEER_ERR_TIMEOUT;
    }
    if (status == PEER_SUCCESS)
        return false;
    stop(b, status);
    return true;
}

/* A thread's first look at what comes over a link to the host's memory is put off until it can have come, ns after the call
 * began. Looks cross the link as well: those that come too early keep from being fetched what others wait for, and one
 * that just fails costs a way there and back. src/call.c bounds the sum of a call (MOST_WIRE_NS). In kernels that could do
 * so the question alone took 0.06 us of 2.1, 0.17 of 1.9: so it is a matter of the kind. */
template <class Kind>
PEER_FN void begin_looks(Block &b)
{
    if constexpr (Kind::PUT_OFF) /* a plain call of this kind is put off: it need not ask before it sends */
        if (Kind::PLAIN || b.c.wire_ns > 0)
            b.began = now_ns();
}

template <class Kind>
PEER_FN void not_before(const Block &b, uint64_t ns)
{
    if constexpr (Kind::PUT_OFF)
        if (b.c.wire_ns > 0)
            while (now_ns() - b.began < ns)
                ;
}

/* Polls until attempt() finds all there. Each wait has the time limit for itself: a call may have many, and take longer. */
template <class Attempt>
PEER_FN bool wait_until(const Block &b, Attempt attempt)
{
    uint64_t since = 0;
    for (uint32_t spins = 1;; spins++) {
        if (attempt())
            return true;
        if (relax(b.c, spins) && expired(b, since))
            return false;
    }
}

/* One thread of this block of a plain call has data from its block's number at every peer. */
template <class Kind>
PEER_FN void met_all()
{
    if constexpr (Kind::PLAIN)
        let_next_begin();
}

/* Called by all threads, each when it waits for nobody any more. */
PEER_FN void all_received()
{
    block_sync();
    let_next_begin();
}

/* A step's verdict for the whole block, when more pieces follow. */
PEER_FN bool step_ended(uint32_t npieces, bool ok)
{
    return npieces == 1 ? ok : block_all(ok);
}

/* ---- Flags ---------------------------------------------------------------------------------------------- */

/* The phases after an algorithm's first two: a rank is in this call, and its sweep is behind it; or not yet; it is another
 * rank's turn to send (staged, kernels/allreduce.h), or results are there (kernels/island.h). */
enum { ARRIVED = 2, SWEEPING = 3, TURN = 4, RESULTS = 4 };

/* Tells all peers that what this block stored for them before has the tag; first 0: this rank too. Called by all
 * threads. */
PEER_FN void signal_peers(const Block &b, uint32_t phase, uint32_t tag, uint32_t first = 1)
{
    block_sync();
    for (uint32_t i = b.at.thread + first; i < b.c.nranks; i += b.at.nthreads)
        flag_store(flag_at(b, peer_at(b.c, i), phase, b.c.rank), tag);
}

/* Tells rank r alone. */
PEER_FN void signal_one(const Block &b, uint32_t r, uint32_t phase, uint32_t tag)
{
    block_sync();
    if (b.at.thread == 0)
        flag_store(flag_at(b, r, phase, b.c.rank), tag);
}

/* Arrival: block 0 of this rank tells all peers that it is in this call, and waits for all of them. It carries
 * no data and so needs no order: all that this rank has done in earlier calls had ended when the kernel began. */
PEER_FN void announce(const Block &b, uint32_t phase = ARRIVED)
{
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks; i += b.at.nthreads)
        flag_store_relaxed(flag_at(b, peer_at(b.c, i), phase, b.c.rank), b.state.epoch);
}

PEER_FN bool wait_announced(Block &b, uint32_t phase = ARRIVED)
{
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks; i += b.at.nthreads) {
        const uint32_t *flag = flag_at(b, b.c.rank, phase, peer_at(b.c, i));
        if (!wait_until(b, [&] { return (int32_t)(flag_load_relaxed(flag) - b.state.epoch) >= 0; }))
            return false;
    }
    return true;
}

/* Waits until the same block of rank r has signalled the tag, or a later one. meanwhile() at each look. */
template <class Meanwhile>
PEER_FN bool wait_flag(Block &b, uint32_t phase, uint32_t r, uint32_t tag, Meanwhile meanwhile)
{
    const uint32_t *flag = flag_at(b, b.c.rank, phase, r);
    return wait_until(b, [&] {
        meanwhile();
        return (int32_t)(flag_load(flag) - tag) >= 0;
    });
}

/* Called by all threads, and all get the same answer. */
PEER_FN bool wait_one(Block &b, uint32_t phase, uint32_t r, uint32_t tag)
{
    return block_all(b.at.thread != 0 || wait_flag(b, phase, r, tag, [] {}));
}

/* Waits until the same block of every peer has signalled the tag; meanwhile(r) at each look at r's flag. Called by all
 * threads, and all get the same answer. */
template <class Meanwhile>
PEER_FN bool wait_peers(Block &b, uint32_t phase, uint32_t tag, Meanwhile meanwhile, uint32_t first = 1)
{
    bool ok = true;
    for (uint32_t i = b.at.thread + first; i < b.c.nranks && ok; i += b.at.nthreads) {
        const uint32_t r = peer_at(b.c, i);
        ok = wait_flag(b, phase, r, tag, [&] { meanwhile(r); });
    }
    return block_all(ok);
}

PEER_FN bool wait_peers(Block &b, uint32_t phase, uint32_t tag)
{
    return wait_peers(b, phase, tag, [](uint32_t) {});
}

/* The same with the peers of a set, bit r. */
PEER_FN void signal_set(const Block &b, uint32_t set, uint32_t phase, uint32_t tag)
{
    block_sync();
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks; i += b.at.nthreads) {
        const uint32_t r = peer_at(b.c, i);
        if (set >> r & 1)
            flag_store(flag_at(b, r, phase, b.c.rank), tag);
    }
}

PEER_FN bool wait_set(Block &b, uint32_t set, uint32_t phase, uint32_t tag)
{
    bool ok = true;
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks && ok; i += b.at.nthreads) {
        const uint32_t r = peer_at(b.c, i);
        ok = !(set >> r & 1) || wait_flag(b, phase, r, tag, [] {});
    }
    return block_all(ok);
}

/* ---- Sweeps --------------------------------------------------------------------------------------------- */

/* Fills the other half, flags included, with a tag that has just passed. Nobody writes there now: a peer that
 * does is in the next group, for which it needs what block 0 of this rank sends in the last call of this one, after
 * the sweep. And once all peers are in this call, which they say in a phase of its own, nobody reads there any more
 * what this rank wrote to be pulled. */
PEER_FN void sweep(Block &b)
{
    const peer_call &c = b.c;
    uint32_t other = half_of(b) ^ 1;
    announce(b, SWEEPING);
    if (!block_all(wait_announced(b, SWEEPING)))
        return; /* the communicator has failed, and waits in this call end as well */
    uint32_t passed = b.state.epoch - 1;
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

/* To be called by all threads before anything is sent. Block 0 of a split call is one that sends. False, for all threads: the
 * rank has stopped in an earlier call, and this one must not send: a late peer would find a newer flag than it waits for,
 * and take this call's data for those of the one that failed. (Another block may stop in this call while threads of this
 * one read that, some before and some after.) */
PEER_FN bool enter(Block &b)
{
    if (b.stopped != 0 && b.stopped != stopped_here(b))
        return false;
    uint32_t shift = 2 * (half_of(b) ^ 1);
    if (b.at.copy == 0 && ((b.state.swept >> shift) & 3) != b.state.epoch >> PEER_SWEEP_SHIFT)
        sweep(b);
    return true;
}

} // namespace

#endif
