/* What the probe's host code (src/probe.c) and its kernels (kernels/probe.h) share: a step of the probe, who moves
 * data to whom in it, and its result. */
#ifndef PEER_KERNELS_PROBE_LAUNCH_H
#define PEER_KERNELS_PROBE_LAUNCH_H

#include "launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tag of the probe's first flag. Steps have tags of their own, so far apart. */
#define PEER_PROBE_EPOCH 1
#define PEER_PROBE_TAGS  16384

/* The most stages of a step: three times 15 rounds of pairs, both ways. */
#define PEER_PROBE_STAGES 96

enum peer_probe_kind {
    PEER_PROBE_VERIFY, /* small data and flags, all pairs at once */
    PEER_PROBE_FLAGS,  /* a flag to and fro */
    PEER_PROBE_STORES, /* data into the peer's slab */
    PEER_PROBE_LOADS,  /* data out of the peer's slab */
    PEER_PROBE_BOTH    /* data into it and out of it, in equal parts */
};

/* Who is active in a stage, and with whom. */
enum peer_probe_pattern {
    PEER_PROBE_PAIRS, /* disjoint pairs, one way in even stages and the other way in odd ones */
    PEER_PROBE_ALL,   /* everybody with all peers */
    PEER_PROBE_RING,  /* everybody with the next rank */
    PEER_PROBE_SETS,  /* everybody with the ranks of its set */
    PEER_PROBE_STAGED /* everybody with the rank that is (stage mod (nranks - 1)) + 1 further on */
};

struct peer_probe_step {
    uint32_t kind;    /* enum peer_probe_kind */
    uint32_t pattern; /* enum peer_probe_pattern */
    uint32_t tag;     /* of the first flag */
    uint32_t stages;
    uint32_t repeats;              /* of the data within a stage; of a flag to and fro */
    uint32_t bytes;                /* for each peer, a multiple of 64 */
    uint64_t budget_ns;            /* a stage repeats no more when so much time has passed */
    uint32_t sets[PEER_MAX_PEERS]; /* PEER_PROBE_SETS: bit r of a rank's, which is not in its own */
    /* Faults that tests ask for: bit r where this rank does wrong by rank r. */
    uint32_t wrong;  /* data that are not what they should be */
    uint32_t unseen; /* a flag that is not set */
    uint32_t slow;   /* data that take PEER_PROBE_SLOW times as long, sent to r or fetched from r */
};

#define PEER_PROBE_SLOW 300

/* What one rank did in a stage. Threads of the GPU add to it by atomics. */
struct peer_probe_stage {
    unsigned long long begin_ns, end_ns; /* of this device's clock; begin is UINT64_MAX before the stage */
    unsigned long long amount;           /* bytes moved, of both one way's; flags seen */
};

struct peer_probe_result {
    uint32_t unseen; /* bit r: a flag of rank r was never seen, */
    uint32_t at;     /* in so manyth wait of the step: who waited in the earliest one knows who is to blame */
    uint32_t wrong;  /* bit r: data of rank r behind its flag were wrong */
    uint32_t torn;   /* bit r: a 16-byte line of rank r was seen half written */
    struct peer_probe_stage stage[PEER_PROBE_STAGES];
};

/* ---- Who with whom: pure functions ------------------------------------------------------------------------ */

/* Rounds of disjoint pairs that bring everybody together with everybody: as many as all have partners, or one more
 * where the ranks are odd and one of them rests. */
PEER_BOTH uint32_t peer_probe_rounds(uint32_t nranks)
{
    return nranks + nranks % 2 - 1;
}

/* The rank's partner in a round, by the circle method, or nranks: none. */
PEER_BOTH uint32_t peer_probe_partner(uint32_t rank, uint32_t nranks, uint32_t round)
{
    uint32_t circle =
        peer_probe_rounds(nranks); /* places; rank `circle` stands in the middle, if there is one */
    uint32_t partner;
    round %= circle;
    if (rank == circle) {
        for (partner = 0; 2 * partner % circle != round;)
            partner++;
        return partner;
    }
    partner = (round + circle - rank) % circle;
    if (partner == rank)
        partner = circle;
    return partner < nranks ? partner : nranks;
}

/* The ranks that `rank` stores to, or loads from, in a stage: bit r. */
PEER_BOTH uint32_t peer_probe_targets(const struct peer_probe_step *step, uint32_t rank, uint32_t nranks,
                                      uint32_t stage)
{
    uint32_t all = (1u << nranks) - 1, partner;
    switch (step->pattern) {
    case PEER_PROBE_SETS:
        return step->sets[rank];
    case PEER_PROBE_ALL:
        return all & ~(1u << rank);
    case PEER_PROBE_RING:
        return 1u << (rank + 1) % nranks;
    case PEER_PROBE_STAGED:
        return 1u << (rank + 1 + stage % (nranks - 1)) % nranks;
    default:
        partner = peer_probe_partner(rank, nranks, stage / 2);
        return partner < nranks && (rank < partner) == (stage % 2 == 0) ? 1u << partner : 0;
    }
}

/* ---- Launchers -------------------------------------------------------------------------------------------- */

/* Runs a step to its end on the calling thread. */
void peer_probe_host(const struct peer_call *call, const struct peer_probe_step *step,
                     struct peer_probe_result *result);

/* CUDA device: cudaError_t as int. `result` is device memory. */
int peer_probe_cuda(const struct peer_call *call, const struct peer_probe_step *step,
                    struct peer_probe_result *result, void *stream);
/* As peer_preload_cuda, of the probe's kernel. */
int peer_probe_preload_cuda(int *resident);

#ifdef __cplusplus
}
#endif

#endif
