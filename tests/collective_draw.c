/* collective_draw.c: calls of any shape from a random number that all ranks have alike (collective.h). */
#include "collective.h"

PEER_Op coll_legal_op(PEER_Datatype type, PEER_Op from)
{
    int op = (int)from;
    while (!reference_legal(type, (PEER_Op)op))
        op = (op + 1) % PEER_N_OPS;
    return (PEER_Op)op;
}

/* Ranks of even and odd number may differ. */
static enum coll_place draw_place(uint64_t random, int rank)
{
    static const enum coll_place places[][2] = {{COLL_IN_PLACE, COLL_IN_PLACE},
                                                {COLL_OWN_BLOCK, COLL_OWN_BLOCK},
                                                {COLL_SAME_POINTER, COLL_SAME_POINTER},
                                                {COLL_OUT_OF_PLACE, COLL_IN_PLACE},
                                                {COLL_OWN_BLOCK, COLL_SAME_POINTER}};
    return random % 2 ? COLL_OUT_OF_PLACE : places[random / 2 % 5][rank % 2];
}

/* Elements; mostly none. 1-byte types begin at odd addresses too. */
static size_t draw_shift(PEER_Datatype type, uint64_t random)
{
    return random % 2 ? 0 : random / 2 % (reference_element(type) > 4 ? 2 : 16);
}

void coll_draw_shape(struct coll_call *call, uint64_t random, int rank, int size)
{
    call->seed = random;
    call->root = (int)((random >> 16) % (uint64_t)size);
    call->place = draw_place(random >> 24, rank);
    call->send_shift = draw_shift(call->type, random >> 32);
    call->recv_shift = draw_shift(call->type, random >> 40);
    call->order = (enum coll_order)((random >> 48) % COLL_ORDERS);
    call->unused = (enum coll_unused)((random >> 56) % COLL_UNUSED_KINDS);
}

void coll_spread_counts(struct coll_call *call, enum coll_spread spread, int size)
{
    uint64_t random = call->seed;
    int special = (int)((call->seed >> 1) % (uint64_t)size);
    bool symmetric = call->seed % 2 == 0;
    for (int r = 0; r < size; r++)
        for (int s = 0; s < size; s++) {
            size_t *count = &call->counts[r][s];
            random = reference_mix(random);
            *count = spread == COLL_SPREAD_NONE   ? 0
                     : spread == COLL_SPREAD_EVEN ? call->count
                                                  : random % (call->count + 1);
            if (spread == COLL_SPREAD_HOLES && random >> 32 & 1)
                *count = 0;
            if (spread == COLL_SPREAD_ONE_HAS_ALL)
                *count = (r + s) % size == special ? call->count * (size_t)size : 0;
            if (spread == COLL_SPREAD_ONE_HAS_NONE && (r == special || s == special))
                *count = 0;
            if (symmetric && s < r)
                *count = call->counts[s][r];
        }
}

void coll_draw_counts(struct coll_call *call, size_t count, int size)
{
    call->count = count;
    if (coll_has_counts(call->kind))
        coll_spread_counts(call, (enum coll_spread)(reference_mix(call->seed) % COLL_SPREADS), size);
}
