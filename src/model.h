/* The cost model: what a call would take on a machine of given figures, and the rows of selection that follow.
 * docs/model.md has it in words, and its errors. Pure: no MPI, no device. */
#ifndef PEER_MODEL_H
#define PEER_MODEL_H

#include "internal.h"

/* What the model is told of a machine. A figure of 0 is not known. */
struct peer_machine {
    enum peer_link link;
    uint32_t nranks;
    uint32_t gpu_ranks; /* that share one GPU */
    struct peer_figures figures;
};

/* One full-rate line at a time that tells of its arrival by not being what was there before: others' kernels have
 * it, ours don't. For comparisons. */
#define PEER_MODEL_SENTINEL ((uint32_t)PEER_N_PROTOCOLS)

/* How a call may go. */
struct peer_way {
    uint32_t path; /* enum peer_path: PEER_PATH_PEER, or PEER_PATH_NCCL, which has none of the rest */
    uint32_t algorithm;
    uint32_t protocol; /* enum peer_protocol, or PEER_MODEL_SENTINEL */
    uint32_t direction;
    uint32_t pieces; /* that overlap */
};

/* Microseconds of a call of nbytes, counted as struct peer_query counts. Infinite where the collective does not go
 * that way, or a figure that it takes is not known. */
double peer_model_us(const struct peer_machine *machine, enum peer_collective collective,
                     const struct peer_way *way, uint64_t nbytes);

/* The ways that selection may take; NCCL's is the last. */
const struct peer_way *peer_model_ways(size_t *n);
/* "twoshot.flag.pull/8", "nccl", and back: false if it is none. */
#define PEER_WAY_BYTES 48
void peer_way_text(const struct peer_way *way, char text[PEER_WAY_BYTES]);
bool peer_way_parse(const char *text, struct peer_way *way);

/* Of each collective the fastest way at every power of two from 8 bytes to 64 MiB, as rows of selection: the last of
 * a collective serves any size. Writes up to max of them and returns how many there are. The same on all
 * ranks, if their figures are. */
size_t peer_model_rows(const struct peer_figures *figures, enum peer_link link, uint32_t nranks,
                       struct peer_row *rows, size_t max);
#define PEER_MODEL_LEAST_BYTES ((uint64_t)8)
#define PEER_MODEL_MOST_BYTES  ((uint64_t)64 << 20)

/* Whether those rows know better than the built-in ones, which are measured on one machine or computed for a usual
 * one. */
bool peer_model_serves(const struct peer_figures *figures, enum peer_link link, uint32_t nranks);

#endif
