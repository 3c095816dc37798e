/* Probe: does the peer path carry data and flags, all pairs at once, with the very instructions that the
 * algorithms use? Runs once, on block 0, before the communicator's first call, in the slab's first half; every rank
 * sees the same rounds, so it is a rendezvous like a call.
 *
 * For each round
 *   1 data     a rank writes PROBE_LINES lines to every peer, each filled with one word made of the round, the
 *              two ranks and the line, by 128-bit line stores (region `line`), and the same by plain stores (region
 *              `flag`); then it signals every peer (phase 0)
 *   2 check    while it waits for a peer's signal it reads that peer's lines over and over: four words that
 *              differ are a torn line. After the signal all lines must hold the round's word
 *   3 credit   it signals every peer (phase 1) that it has read, and waits for theirs, so that nobody writes the
 *              next round over what is still read
 * A wait that fails ends the probe for this rank; its peers' waits then end by their own deadline. */
#ifndef PEER_KERNELS_PROBE_H
#define PEER_KERNELS_PROBE_H

#include "protocol.h"

namespace
{

constexpr uint32_t PROBE_LINES = 64;

/* The word of a line; an odd factor each, so that no two of them are likely to be equal. */
PEER_FN uint32_t probe_word(uint32_t round, uint32_t writer, uint32_t reader, uint32_t line)
{
    return (round + 1) * 0x9e3779b1u ^ (writer + 1) * 0x85ebca77u ^ (reader + 1) * 0xc2b2ae3du ^
           line * 0x27d4eb2fu;
}

PEER_FN char *probe_lines(const Block &b, uint32_t r, uint32_t protocol, uint32_t writer)
{
    return half_at(b.c, r, protocol, 0) + (uint64_t)writer * PROBE_LINES * 16;
}

PEER_FN void probe_write(const Block &b, uint32_t r, uint32_t round)
{
    for (uint32_t j = b.at.thread; j < PROBE_LINES; j += b.at.nthreads) {
        uint32_t word = probe_word(round, b.c.rank, r, j);
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
    uint32_t *flag = flag_at(b, b.c.rank, 0, r);
    bool ok = wait_until(b, [&] {
        uint32_t early = 0;
        probe_read(b, r, round, torn, early);
        return (int32_t)(flag_load(flag) - (b.state.epoch + round)) >= 0;
    });
    return block_all(ok);
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

/* Results of all threads go to *result by word-wise OR, which `merge` does. */
template <class Merge>
PEER_FN void probe(Block &b, uint32_t rounds, Merge merge)
{
    const peer_call &c = b.c;
    uint32_t torn = 0, wrong = 0, unseen = 0;
    for (uint32_t round = 0; round < rounds && unseen == 0; round++) {
        for (uint32_t i = 1; i < c.nranks; i++)
            probe_write(b, peer_at(c, i), round);
        signal_peers(b, 0, b.state.epoch + round);
        for (uint32_t i = 1; i < c.nranks; i++) {
            uint32_t r = peer_at(c, i);
            if (probe_wait(b, r, round, torn))
                probe_read(b, r, round, torn, wrong);
            else
                unseen |= 1u << r;
        }
        signal_peers(b, 1, b.state.epoch + round);
        if (unseen == 0 && !wait_peers(b, 1, b.state.epoch + round))
            unseen = unsignalled(b, 1, b.state.epoch + round);
    }
    merge(unseen, wrong, torn);
}

} // namespace

#endif
