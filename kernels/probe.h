/* Probe: does the peer path carry data and flags, and how fast, with the very instructions that the algorithms use?
 * It runs in steps, each a launch on all ranks, before the communicator's first call. Every wait is bounded as in a
 * call; a step that fails tells in which of its waits, and who was waited for.
 *
 * verify: all pairs at once, on block 0. For each round
 *   1 data     a rank writes PROBE_LINES lines to every peer, each filled with one word made of the round, the
 *              two ranks and the line, by 128-bit line stores (region `line`), and the same by plain stores (region
 *              `flag`); then it signals every peer (phase 0)
 *   2 check    while it waits for a peer's signal it reads that peer's lines over and over: four words that
 *              differ are a torn line. After the signal all lines must hold the round's word
 *   3 credit   it signals every peer (phase 1) that it has read, and waits for theirs, so that nobody writes the
 *              next round over what is still read
 *
 * stages: who is active in a stage, and with whom, peer_probe_targets tells. In each
 *   1 start    every rank writes what shall be loaded from it, signals every peer (phase 0) and waits for all:
 *              nobody reads any more what this stage writes over
 *   2 move     an active rank stores to its targets, or loads from them, block b the b-th part of the data (or stores
 *              the first half of that part, and loads the other), and takes the time from the first access until a fence
 *              says that all are done; or it sends a flag to and fro (phase 2)
 *   3 check    every rank signals (phase 1), waits for all, and checks what was stored into its slab. What is
 *              loaded is checked as it comes
 * Data lie in the staging of `flag`, both halves of it: a region for each peer that writes there, or reads. */
#ifndef PEER_KERNELS_PROBE_H
#define PEER_KERNELS_PROBE_H

#include "probe_launch.h"
#include "protocol.h"

namespace
{

constexpr uint32_t PROBE_LINES = 64;

/* Longest that a slow pair idles in a stage. */
constexpr uint64_t PROBE_SLOW_NS = 50000000;

/* A word of the data; an odd factor each, so that no two of them are likely to be equal. */
PEER_FN uint32_t probe_word(uint32_t tag, uint32_t writer, uint32_t reader, uint32_t index)
{
    return (tag + 1) * 0x9e3779b1u ^ (writer + 1) * 0x85ebca77u ^ (reader + 1) * 0xc2b2ae3du ^
           index * 0x27d4eb2fu;
}

/* The ranks whose flag is not there. */
PEER_FN uint32_t unsignalled(const Block &b, uint32_t phase, uint32_t tag)
{
    uint32_t ranks = 0;
    for (uint32_t i = 1; i < b.c.nranks; i++) {
        uint32_t r = peer_at(b.c, i);
        if ((int32_t)(flag_load(flag_at(b, b.c.rank, phase, r)) - tag) < 0)
            ranks |= 1u << r;
    }
    return ranks;
}

/* ---- Verify --------------------------------------------------------------------------------------------- */

PEER_FN char *probe_lines(const Block &b, uint32_t r, uint32_t protocol, uint32_t writer)
{
    return half_at(b.c, r, protocol, 0) + (uint64_t)writer * PROBE_LINES * 16;
}

PEER_FN void probe_write(const Block &b, const peer_probe_step &step, uint32_t r, uint32_t round)
{
    for (uint32_t j = b.at.thread; j < PROBE_LINES; j += b.at.nthreads) {
        uint32_t word = probe_word(round, b.c.rank, r, j) ^ (step.wrong >> r & 1);
        Line x = {{word, word, word, word}};
        line_store(probe_lines(b, r, PEER_PROTO_LINE, b.c.rank) + j * 16, x);
        store_chunks<16, ChunkOf<16>::VALUE>(probe_lines(b, r, PEER_PROTO_FLAG, b.c.rank) + j * 16, x.w);
    }
}

/* This thread's lines of rank r; bit r of torn, and of wrong if a line isn't the round's. */
PEER_FN void probe_read(const Block &b, uint32_t r, uint32_t round, uint32_t &torn, uint32_t &wrong)
{
    for (uint32_t j = b.at.thread; j < PROBE_LINES; j += b.at.nthreads) {
        uint32_t word = probe_word(round, r, b.c.rank, j);
        Line x = line_load(probe_lines(b, b.c.rank, PEER_PROTO_LINE, r) + j * 16);
        uint32_t y[4];
        load_chunks<16, ChunkOf<16>::VALUE>(y, probe_lines(b, b.c.rank, PEER_PROTO_FLAG, r) + j * 16);
        bool whole = x.w[0] == x.w[1] && x.w[1] == x.w[2] && x.w[2] == x.w[3];
        torn |= whole ? 0 : 1u << r;
        if (x.w[0] != word || y[0] != word || y[1] != word || y[2] != word || y[3] != word)
            wrong |= whole ? 1u << r : 0;
    }
}

/* All threads wait for r's flag, each for itself, reading lines meanwhile. */
PEER_FN bool probe_wait(Block &b, uint32_t r, uint32_t round, uint32_t &torn)
{
    bool ok = wait_flag(b, 0, r, b.state.epoch + round, [&] {
        uint32_t early = 0;
        probe_read(b, r, round, torn, early);
    });
    return block_all(ok);
}

PEER_FN void probe_signal(const Block &b, const peer_probe_step &step, uint32_t phase, uint32_t tag)
{
    block_sync();
    for (uint32_t i = b.at.thread + 1; i < b.c.nranks; i += b.at.nthreads) {
        uint32_t r = peer_at(b.c, i);
        if ((step.unseen >> r & 1) == 0)
            flag_store(flag_at(b, r, phase, b.c.rank), tag);
    }
}

template <class Merge>
PEER_FN void probe_verify(Block &b, const peer_probe_step &step, Merge merge)
{
    const peer_call &c = b.c;
    uint32_t torn = 0, wrong = 0, unseen = 0, at = 0;
    for (uint32_t round = 0; round < step.stages && unseen == 0; round++) {
        const uint32_t tag = b.state.epoch + round;
        for (uint32_t i = 1; i < c.nranks; i++)
            probe_write(b, step, peer_at(c, i), round);
        probe_signal(b, step, 0, tag);
        for (uint32_t i = 1; i < c.nranks && unseen == 0; i++) {
            uint32_t r = peer_at(c, i);
            at = 2 * round;
            if (probe_wait(b, r, round, torn))
                probe_read(b, r, round, torn, wrong);
            else
                unseen = unsignalled(b, 0, tag);
        }
        if (unseen != 0)
            break;
        at = 2 * round + 1;
        probe_signal(b, step, 1, tag);
        if (!wait_peers(b, 1, tag))
            unseen = unsignalled(b, 1, tag);
    }
    merge.faults(unseen, at, wrong, torn);
}

/* ---- Stages --------------------------------------------------------------------------------------------- */

/* The part of a region that this block moves, in vectors. */
struct Part {
    uint32_t first, end;
};

PEER_FN Part part_of(const Block &b, const peer_probe_step &step)
{
    uint32_t all = step.bytes / PEER_VECTOR, each = (all + b.at.nblocks - 1) / b.at.nblocks;
    uint32_t first = b.at.block * each;
    first = first < all ? first : all;
    return {first, all - first < each ? all : first + each};
}

/* What of its part this block stores, and what it loads. */
PEER_FN Part stored_part(const Block &b, const peer_probe_step &step)
{
    Part part = part_of(b, step);
    if (step.kind == PEER_PROBE_LOADS)
        part.end = part.first;
    else if (step.kind == PEER_PROBE_BOTH)
        part.end = part.first + (part.end - part.first) / 2;
    return part;
}

PEER_FN Part loaded_part(const Block &b, const peer_probe_step &step)
{
    return {stored_part(b, step).end, part_of(b, step).end};
}

/* Whether this rank is a target of rank r. */
PEER_FN bool is_target(const Block &b, const peer_probe_step &step, uint32_t r, uint32_t stage)
{
    return (peer_probe_targets(&step, r, b.c.nranks, stage) >> b.c.rank & 1) != 0;
}

/* In rank r's slab. */
PEER_FN char *region_of(const Block &b, const peer_probe_step &step, uint32_t r, uint32_t peer)
{
    return half_at(b.c, r, PEER_PROTO_FLAG, 0) + (uint64_t)peer * step.bytes;
}

/* A vector that begins with the word. */
PEER_FN void vector_store(char *region, uint32_t i, uint32_t word)
{
    uint32_t w[PEER_VECTOR / 4];
    PEER_UNROLL_BOTH
    for (uint32_t k = 0; k < PEER_VECTOR / 4; k++)
        w[k] = word + k;
    store_chunks<PEER_VECTOR, ChunkOf<PEER_VECTOR>::VALUE>(region + (uint64_t)i * PEER_VECTOR, w);
}

PEER_FN bool vector_is(const uint32_t (&w)[PEER_VECTOR / 4], uint32_t word)
{
    uint32_t differ = 0;
    PEER_UNROLL_BOTH
    for (uint32_t k = 0; k < PEER_VECTOR / 4; k++)
        differ |= w[k] ^ (word + k);
    return differ == 0;
}

/* A part of what `writer` wrote for `reader` into the region; false if a word is wrong. Several vectors are on their
 * way to a thread at once. */
PEER_FN bool part_is(const Block &b, Part part, const char *region, uint32_t tag, uint32_t writer,
                     uint32_t reader)
{
    bool right = true;
    for (uint32_t i = part.first + b.at.thread; i < part.end; i += b.at.nthreads * TOGETHER) {
        uint32_t w[TOGETHER][PEER_VECTOR / 4], at[TOGETHER];
        PEER_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++) {
            at[k] = i + k * b.at.nthreads < part.end ? i + k * b.at.nthreads : i;
            load_chunks<PEER_VECTOR, ChunkOf<PEER_VECTOR>::VALUE>(w[k],
                                                                  region + (uint64_t)at[k] * PEER_VECTOR);
        }
        PEER_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++)
            right &= vector_is(w[k], probe_word(tag, writer, reader, at[k]));
    }
    return right;
}

/* Once to all targets, which take turns at every vector, as in oneshot. */
PEER_FN void store_once(const Block &b, const peer_probe_step &step, uint32_t targets, uint32_t tag)
{
    const Part part = stored_part(b, step);
    for (uint32_t j = part.first + b.at.thread; j < part.end; j += b.at.nthreads)
        for (uint32_t i = 1; i < b.c.nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            if (targets >> r & 1)
                vector_store(region_of(b, step, r, b.c.rank), j,
                             probe_word(tag, b.c.rank, r, j) ^ (step.wrong >> r & 1));
        }
}

/* Once from all targets, which take turns at what is on its way at once. */
PEER_FN uint32_t load_once(const Block &b, const peer_probe_step &step, uint32_t targets, uint32_t tag)
{
    const Part part = loaded_part(b, step);
    const uint32_t at_once = b.at.nthreads * TOGETHER;
    uint32_t wrong = 0;
    for (uint32_t first = part.first; first < part.end; first += at_once) {
        const Part piece = {first, part.end - first < at_once ? part.end : first + at_once};
        for (uint32_t i = 1; i < b.c.nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            if ((targets >> r & 1) != 0 &&
                !part_is(b, piece, region_of(b, step, r, b.c.rank), tag, r, b.c.rank))
                wrong |= 1u << r;
        }
    }
    return wrong;
}

/* What peers will load from this rank in a stage. */
PEER_FN void fill_own(const Block &b, const peer_probe_step &step, uint32_t stage)
{
    const Part part = loaded_part(b, step);
    for (uint32_t r = 0; r < b.c.nranks; r++)
        if (r != b.c.rank && is_target(b, step, r, stage))
            for (uint32_t j = part.first + b.at.thread; j < part.end; j += b.at.nthreads)
                vector_store(region_of(b, step, b.c.rank, r), j,
                             probe_word(step.tag + stage, b.c.rank, r, j) ^ (step.wrong >> r & 1));
}

/* Makes the time since begin PEER_PROBE_SLOW times as long. */
PEER_FN void idle(const Block &b, uint64_t begin)
{
    uint64_t ns = (now_ns() - begin) * PEER_PROBE_SLOW;
    ns = ns < PROBE_SLOW_NS ? ns : PROBE_SLOW_NS;
    for (uint32_t spins = 1; now_ns() - begin < ns; spins++)
        (void)relax(b.c, spins);
}

/* Stores to the targets, loads from them, or both. Returns the ranks whose data were wrong. */
template <class Merge>
PEER_FN uint32_t move_data(const Block &b, const peer_probe_step &step, uint32_t stage, uint32_t targets,
                           Merge merge)
{
    const Part stored = stored_part(b, step), loaded = loaded_part(b, step);
    const uint32_t one_way =
        step.kind == PEER_PROBE_STORES ? stored.end - stored.first : loaded.end - loaded.first;
    uint64_t npeers = 0;
    uint32_t wrong = 0, done = 0;
    block_sync();
    const uint64_t begin = now_ns();
    do {
        store_once(b, step, targets, step.tag + stage);
        wrong |= load_once(b, step, targets, step.tag + stage);
        done++;
        if (b.at.thread == 0) /* an acquire, so that caches forget what was loaded */
            (void)flag_load(flag_at(b, b.c.rank, 0, peer_at(b.c, 1)));
    } while (block_all(done < step.repeats && now_ns() - begin < step.budget_ns));
    fence();
    if (targets & step.slow)
        idle(b, begin);
    block_sync();
    for (uint32_t r = 0; r < b.c.nranks; r++)
        npeers += targets >> r & 1;
    if (b.at.thread == 0)
        merge.stage(stage, begin, now_ns(), (uint64_t)one_way * PEER_VECTOR * npeers * done);
    return wrong;
}

/* Thread 0 sends tags to the partner, which sends each back as it comes. Who began may jump to the last when its
 * time is up. The first quarter of them is not counted. */
template <class Merge>
PEER_FN bool flags_to_and_fro(Block &b, const peer_probe_step &step, uint32_t stage, uint32_t partner,
                              bool begins, Merge merge)
{
    const uint32_t before = step.tag + stage * (step.repeats + 1), last = before + step.repeats;
    uint32_t *there = flag_at(b, partner, 2, b.c.rank);
    const uint32_t *here = flag_at(b, b.c.rank, 2, partner);
    uint64_t start = now_ns(), begin = start;
    uint32_t seen = before, seen_at_begin = 0, trips = 0;
    while (seen != last) {
        uint32_t tag = seen + 1;
        if (begins) {
            if (now_ns() - start > step.budget_ns)
                tag = last;
            flag_store(there, tag);
        }
        if (!wait_until(b, [&] { return (int32_t)((seen = flag_load(here)) - tag) >= 0; }))
            return false;
        if (!begins)
            flag_store(there, seen);
        else if (++trips == step.repeats / 4 && seen != last) {
            begin = now_ns();
            seen_at_begin = trips;
        }
    }
    if (begins)
        merge.stage(stage, begin, now_ns(), 2 * (trips - seen_at_begin));
    return true;
}

/* This rank's part of a stage between start and check; bits of wrong, or false for a flag that never came. */
template <class Merge>
PEER_FN bool act(Block &b, const peer_probe_step &step, uint32_t stage, uint32_t &wrong, Merge merge)
{
    const uint32_t targets = peer_probe_targets(&step, b.c.rank, b.c.nranks, stage);
    bool ok = true;
    if (step.kind == PEER_PROBE_FLAGS) {
        uint32_t partner = peer_probe_partner(b.c.rank, b.c.nranks, stage / 2);
        if (b.at.thread == 0 && partner < b.c.nranks)
            ok = flags_to_and_fro(b, step, stage, partner, targets != 0, merge);
        return block_all(ok);
    }
    if (targets != 0)
        wrong |= move_data(b, step, stage, targets, merge);
    return true;
}

/* What was stored into this rank's slab in a stage. */
PEER_FN uint32_t check_stored(const Block &b, const peer_probe_step &step, uint32_t stage)
{
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < b.c.nranks; r++)
        if (r != b.c.rank && is_target(b, step, r, stage) &&
            !part_is(b, stored_part(b, step), region_of(b, step, b.c.rank, r), step.tag + stage, r, b.c.rank))
            wrong |= 1u << r;
    return wrong;
}

template <class Merge>
PEER_FN void probe_stages(Block &b, const peer_probe_step &step, Merge merge)
{
    uint32_t unseen = 0, at = 0, wrong = 0;
    for (uint32_t stage = 0; stage < step.stages && unseen == 0; stage++) {
        const uint32_t tag = step.tag + stage;
        at = 3 * stage;
        if (step.kind != PEER_PROBE_STORES)
            fill_own(b, step, stage);
        signal_peers(b, 0, tag);
        if (!wait_peers(b, 0, tag)) {
            unseen = unsignalled(b, 0, tag);
            break;
        }
        at = 3 * stage + 1;
        if (!act(b, step, stage, wrong, merge)) {
            unseen = 1u << peer_probe_partner(b.c.rank, b.c.nranks, stage / 2);
            break;
        }
        at = 3 * stage + 2;
        signal_peers(b, 1, tag);
        if (!wait_peers(b, 1, tag))
            unseen = unsignalled(b, 1, tag);
        else if (step.kind >= PEER_PROBE_STORES)
            wrong |= check_stored(b, step, stage);
    }
    merge.faults(unseen, at, wrong, 0);
}

template <class Merge>
PEER_FN void probe(Block &b, const peer_probe_step &step, Merge merge)
{
    if (step.kind == PEER_PROBE_VERIFY)
        probe_verify(b, step, merge);
    else
        probe_stages(b, step, merge);
}

} // namespace

#endif
