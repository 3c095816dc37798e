/* Barrier: each rank's block 0 signals every peer (phase 0) and waits for every peer's signal. It moves no data,
 * takes one epoch, and is a rendezvous of all ranks, so a call like any other for kernels/protocol.h. */
#ifndef PEER_KERNELS_BARRIER_H
#define PEER_KERNELS_BARRIER_H

#include "protocol.h"

namespace
{

PEER_FN void barrier(Block &b)
{
    look(b);
    enter(b);
    signal_peers(b, 0, b.epoch);
    if (advance(b))
        wait_peers(b, 0, b.epoch);
}

} // namespace

#endif
