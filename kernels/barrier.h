/* Barrier: each rank's block 0 announces itself to every peer and waits for every peer. It moves no data, takes one
 * epoch, and is a rendezvous of all ranks, so a call like any other for kernels/protocol.h. */
#ifndef PEER_KERNELS_BARRIER_H
#define PEER_KERNELS_BARRIER_H

#include "protocol.h"

namespace
{

PEER_FN void barrier(Block &b)
{
    look(b);
    if (!enter(b))
        return;
    announce(b);
    advance(b);
    wait_announced(b);
}

} // namespace

#endif
