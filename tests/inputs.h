/* inputs.h: the inputs of all ranks of a group, and what they combine to, so that every rank knows by itself
 * what any collective must give it. Made by reference.h from (seed, rank), when they are first asked for:
 * combining is slow, so it goes by chunks, and each is kept. */
#ifndef PEER_TESTS_INPUTS_H
#define PEER_TESTS_INPUTS_H

#include "reference.h"

#define INPUTS_COMBINED (-1) /* in place of a rank */

struct inputs_of_type {
    unsigned char *rank[PEER_MAX_PEERS];
    unsigned char *combined[PEER_N_OPS];
    bool *known[PEER_N_OPS]; /* which chunks of `combined` are made */
};

struct inputs {
    uint64_t seed;
    int size;     /* of the group */
    size_t bytes; /* of each rank's input, of each datatype */
    struct reference_order order;
    struct inputs_of_type types[PEER_N_DATATYPES];
};

/* Groups of other seeds have other data. The order is rank order; it may be changed before anything is asked for. */
void inputs_open(struct inputs *in, uint64_t seed, int size, size_t bytes);
void inputs_close(struct inputs *in);

/* Copies elements first .. first+count-1 of a rank's input, or with INPUTS_COMBINED of all ranks' combination. */
void inputs_copy(struct inputs *in, PEER_Datatype type, PEER_Op op, int from, size_t first, size_t count,
                 void *to);

#endif
