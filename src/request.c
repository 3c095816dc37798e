/* What a collective call moves: from its arguments to the blocks that each rank sends to each, in one form for all
 * paths: this rank sends block_to(r) to every rank r and receives block_from(r), which it puts in place, or
 * combines (the reductions). */
#include "internal.h"

#include <string.h>

bool peer_request_reduces(const struct peer_request *r)
{
    return r->collective == PEER_COLL_ALLREDUCE || r->collective == PEER_COLL_REDUCE ||
           r->collective == PEER_COLL_REDUCE_SCATTER_BLOCK || r->collective == PEER_COLL_REDUCE_SCATTER;
}

bool peer_collective_rooted(uint32_t collective)
{
    return collective == PEER_COLL_REDUCE || collective == PEER_COLL_BCAST ||
           collective == PEER_COLL_GATHER || collective == PEER_COLL_SCATTER;
}

static struct peer_block block(size_t at, size_t count)
{
    return (struct peer_block){at, count};
}

static const struct peer_block nothing = {0, 0};

/* Part r of a broadcast in two steps: the root scatters the parts, then each rank sends its part to all. */
static struct peer_block part_of(const struct peer_request *q, int size, int r)
{
    size_t part = q->count / (size_t)size + (q->count % (size_t)size != 0);
    size_t at = (size_t)r * part < q->count ? (size_t)r * part : q->count;
    return block(at, q->count - at < part ? q->count - at : part);
}

static struct peer_block sent_by_bcast(const struct peer_request *q, int rank, int size, int to)
{
    if (q->step == PEER_STEP_ONLY)
        return rank == q->root ? block(0, q->count) : nothing;
    if (q->step == PEER_STEP_SCATTER)
        return rank == q->root ? part_of(q, size, to) : nothing;
    return to == q->root && rank != q->root ? nothing : part_of(q, size, rank);
}

static size_t sum(const size_t *counts, int n)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += counts[i];
    return total;
}

struct peer_block peer_block_to(const struct peer_request *q, int rank, int size, int to)
{
    switch (q->collective) {
    case PEER_COLL_BCAST:
        return sent_by_bcast(q, rank, size, to);
    case PEER_COLL_REDUCE:
    case PEER_COLL_GATHER:
        return to == q->root ? block(0, q->count) : nothing;
    case PEER_COLL_ALLREDUCE:
    case PEER_COLL_ALLGATHER:
        return block(0, q->count);
    case PEER_COLL_ALLGATHERV:
        return block(0, q->recvcounts[rank]);
    case PEER_COLL_REDUCE_SCATTER_BLOCK:
    case PEER_COLL_ALLTOALL:
        return block((size_t)to * q->count, q->count);
    case PEER_COLL_REDUCE_SCATTER:
        return block(sum(q->recvcounts, to), q->recvcounts[to]);
    case PEER_COLL_ALLTOALLV:
        return block(q->sdispls[to], q->sendcounts[to]);
    case PEER_COLL_SCATTER:
        return rank == q->root ? block((size_t)to * q->count, q->count) : nothing;
    default:
        return nothing;
    }
}

struct peer_block peer_block_from(const struct peer_request *q, int rank, int size, int from)
{
    switch (q->collective) {
    case PEER_COLL_BCAST: /* lies where it lay at the sender */
        return sent_by_bcast(q, from, size, rank);
    case PEER_COLL_REDUCE:
        return rank == q->root ? block(0, q->count) : nothing;
    case PEER_COLL_GATHER:
        return rank == q->root ? block((size_t)from * q->count, q->count) : nothing;
    case PEER_COLL_ALLGATHER:
    case PEER_COLL_ALLTOALL:
        return block((size_t)from * q->count, q->count);
    case PEER_COLL_ALLGATHERV:
    case PEER_COLL_ALLTOALLV:
        return block(q->rdispls[from], q->recvcounts[from]);
    case PEER_COLL_ALLREDUCE:
    case PEER_COLL_REDUCE_SCATTER_BLOCK:
        return block(0, q->count);
    case PEER_COLL_REDUCE_SCATTER:
        return block(0, q->recvcounts[rank]);
    case PEER_COLL_SCATTER:
        return from == q->root ? block(0, q->count) : nothing;
    default:
        return nothing;
    }
}

/* The counts of v-variants that all ranks know alike, or NULL. */
static const size_t *common_counts(const struct peer_request *q)
{
    return q->collective == PEER_COLL_ALLGATHERV || q->collective == PEER_COLL_REDUCE_SCATTER ? q->recvcounts
                                                                                              : NULL;
}

bool peer_request_empty(const struct peer_request *q, int size)
{
    const size_t *counts = common_counts(q);
    if (q->collective == PEER_COLL_BARRIER || q->collective == PEER_COLL_ALLTOALLV)
        return false; /* of another rank's counts this one knows nothing */
    return counts != NULL ? sum(counts, size) == 0 : q->count == 0;
}

size_t peer_request_largest(const struct peer_request *q, int size)
{
    const size_t *counts = common_counts(q);
    size_t largest = q->collective == PEER_COLL_ALLTOALLV ? 0 : q->count;
    for (int i = 0; counts != NULL && i < size; i++)
        largest = counts[i] > largest ? counts[i] : largest;
    return largest;
}

bool peer_request_shares(const struct peer_request *q)
{
    return q->collective == PEER_COLL_ALLGATHER || q->collective == PEER_COLL_ALLGATHERV ||
           (q->collective == PEER_COLL_BCAST && q->step != PEER_STEP_SCATTER);
}

bool peer_request_meets(const struct peer_request *q, int size)
{
    const size_t *counts = common_counts(q);
    if (peer_collective_rooted(q->collective) || q->collective == PEER_COLL_ALLTOALLV)
        return false;
    for (int i = 0; counts != NULL && i < size; i++)
        if (counts[i] == 0)
            return false;
    return true;
}

int peer_request_arrays(const struct peer_request *q, const size_t *arrays[4])
{
    int n = 0;
    if (q->recvcounts != NULL)
        arrays[n++] = q->recvcounts;
    if (q->rdispls != NULL)
        arrays[n++] = q->rdispls;
    if (q->sendcounts != NULL)
        arrays[n++] = q->sendcounts;
    if (q->sdispls != NULL)
        arrays[n++] = q->sdispls;
    return n;
}
