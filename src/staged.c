/* The last fallback: a collective through host memory and MPI. All-reduce is twoshot over MPI: an all-to-all
 * gives each rank its part of every rank's data, it combines them from rank 0 to rank n-1 with the numerics of
 * the kernels, and an all-gather spreads the parts. All else is one all-to-all of blocks, which the receiver
 * puts in place or combines. So it takes every datatype and operation, MPI's own or not, gives the peer
 * kernels' bits, and needs MPI to move nothing but bytes. */
#include "internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a part: what one MPI call moves for each rank. A multiple of every element; and MPI counts all parts by an int. */
static size_t part_bytes(const struct peer_comm *comm)
{
    const size_t part = (size_t)1 << 20, most = INT_MAX / (size_t)comm->size / 16 * 16;
    return part < most ? part : most;
}

/* The staging: what is sent, and what is received, a part for each rank. */
static int get_staging(struct peer_comm *comm, char **send, char **recv)
{
    size_t bytes = (size_t)comm->size * part_bytes(comm);
    if (comm->staging == NULL)
        comm->staging = malloc(2 * bytes);
    if (comm->staging == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu bytes of staging", 2 * bytes);
    *send = comm->staging;
    *recv = comm->staging + bytes;
    return PEER_SUCCESS;
}

static int copy(struct peer_comm *comm, void *to, const void *from, size_t bytes, void *stream)
{
    int status = comm->device.ops->copy_async(&comm->device, to, from, bytes, stream);
    return status == PEER_SUCCESS ? comm->device.ops->synchronize(&comm->device, stream) : status;
}

/* One piece: count elements, no more than a part for each rank. */
static int allreduce_piece(struct peer_comm *comm, const void *sendbuf, void *recvbuf, size_t count,
                           uint32_t datatype, uint32_t op, void *stream)
{
    struct peer_bootstrap *boot = comm->boot;
    size_t element = peer_datatype_bytes(datatype);
    size_t part = (count + (size_t)comm->size - 1) / (size_t)comm->size;
    char *send = NULL, *recv = NULL;
    const void **parts = malloc((size_t)comm->size * sizeof *parts);
    int status =
        parts != NULL ? get_staging(comm, &send, &recv) : peer_error(PEER_ERR_NO_MEMORY, "no memory");
    if (status == PEER_SUCCESS)
        status = copy(comm, send, sendbuf, count * element, stream);
    if (status == PEER_SUCCESS) {
        memset(send + count * element, 0, ((size_t)comm->size * part - count) * element);
        status = boot->alltoall(boot, send, recv, part * element);
    }
    if (status == PEER_SUCCESS) {
        for (int r = 0; r < comm->size; r++)
            parts[r] = recv + (size_t)r * part * element;
        peer_host_kernels()->reduce(datatype, op, parts, (uint32_t)comm->size, recv, part);
        status = boot->allgather(boot, recv, send, part * element);
    }
    if (status == PEER_SUCCESS)
        status = copy(comm, recvbuf, send, count * element, stream);
    free(parts);
    return status;
}

static int run_allreduce(struct peer_comm *comm, const struct peer_request *q)
{
    size_t element = peer_datatype_bytes(q->datatype);
    uint64_t most = (uint64_t)comm->size * (part_bytes(comm) / element);
    int status = PEER_SUCCESS;
    for (uint64_t done = 0; done < q->count && status == PEER_SUCCESS; done += most) {
        uint64_t now = q->count - done < most ? q->count - done : most;
        status = allreduce_piece(comm, (const char *)q->sendbuf + done * element,
                                 (char *)q->recvbuf + done * element, now, q->datatype, q->op, q->stream);
    }
    return status;
}

/* ---- Blocks
 * --------------------------------------------------------------------------------------------------- */

/* One round of an exchange: of every block the elements from `first` on, as many as a part holds. */
struct round {
    struct peer_comm *comm;
    const struct peer_request *q;
    size_t first, most, element;
    char *send, *recv;
    int *sendcounts, *recvcounts; /* bytes */
    const void **parts;
};

/* The block's elements of this round. */
static struct peer_block piece_of(const struct round *now, struct peer_block block)
{
    size_t left = block.count > now->first ? block.count - now->first : 0;
    return (struct peer_block){block.at + now->first, left < now->most ? left : now->most};
}

static struct peer_block piece_to(const struct round *now, int r)
{
    return piece_of(now, peer_block_to(now->q, now->comm->rank, now->comm->size, r));
}

static struct peer_block piece_from(const struct round *now, int r)
{
    return piece_of(now, peer_block_from(now->q, now->comm->rank, now->comm->size, r));
}

static int copy_out(const struct round *now)
{
    struct peer_comm *comm = now->comm;
    int status = PEER_SUCCESS;
    for (int r = 0; r < comm->size && status == PEER_SUCCESS; r++) {
        struct peer_block piece = piece_to(now, r);
        now->sendcounts[r] = (int)(piece.count * now->element);
        now->recvcounts[r] = (int)(piece_from(now, r).count * now->element);
        if (piece.count > 0)
            status =
                comm->device.ops->copy_async(&comm->device, now->send + (size_t)r * part_bytes(now->comm),
                                             (const char *)now->q->sendbuf + piece.at * now->element,
                                             piece.count * now->element, now->q->stream);
    }
    return status == PEER_SUCCESS ? comm->device.ops->synchronize(&comm->device, now->q->stream) : status;
}

static int copy_in(const struct round *now, int r, const char *from)
{
    struct peer_comm *comm = now->comm;
    struct peer_block piece = piece_from(now, r);
    if (piece.count == 0)
        return PEER_SUCCESS;
    return comm->device.ops->copy_async(&comm->device, (char *)now->q->recvbuf + piece.at * now->element,
                                        from, piece.count * now->element, now->q->stream);
}

/* The blocks of all ranks are of one size, and take each other's place. */
static int combine(const struct round *now)
{
    for (int r = 0; r < now->comm->size; r++)
        now->parts[r] = now->recv + (size_t)r * part_bytes(now->comm);
    peer_host_kernels()->reduce(now->q->datatype, now->q->op, now->parts, (uint32_t)now->comm->size,
                                now->recv, piece_from(now, 0).count);
    return copy_in(now, 0, now->recv);
}

static int run_round(const struct round *now)
{
    struct peer_comm *comm = now->comm;
    int status = copy_out(now);
    if (status == PEER_SUCCESS)
        status = comm->boot->alltoallv(comm->boot, now->send, now->sendcounts, now->recv, now->recvcounts,
                                       part_bytes(comm));
    if (status == PEER_SUCCESS && peer_request_reduces(now->q))
        status = combine(now);
    else
        for (int r = 0; r < comm->size && status == PEER_SUCCESS; r++)
            status = copy_in(now, r, now->recv + (size_t)r * part_bytes(now->comm));
    return status == PEER_SUCCESS ? comm->device.ops->synchronize(&comm->device, now->q->stream) : status;
}

/* Elements of the largest block that any rank sends. Collective. */
static int largest_block(struct peer_comm *comm, const struct peer_request *q, size_t *largest)
{
    size_t mine = 0, *all = malloc((size_t)comm->size * sizeof *all);
    int status;
    for (int r = 0; r < comm->size; r++) {
        struct peer_block block = peer_block_to(q, comm->rank, comm->size, r);
        mine = block.count > mine ? block.count : mine;
    }
    if (all == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %d counts", comm->size);
    status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    *largest = 0;
    for (int r = 0; r < comm->size; r++)
        *largest = all[r] > *largest ? all[r] : *largest;
    free(all);
    return status;
}

static int run_exchange(struct peer_comm *comm, const struct peer_request *q)
{
    size_t n = (size_t)comm->size, element = peer_datatype_bytes(q->datatype), largest = 0;
    struct round now = {comm, q, 0, part_bytes(comm) / element, element, NULL, NULL, NULL, NULL, NULL};
    int status = get_staging(comm, &now.send, &now.recv);
    now.sendcounts = malloc(2 * n * sizeof *now.sendcounts);
    now.parts = malloc(n * sizeof *now.parts);
    if (status == PEER_SUCCESS && (now.sendcounts == NULL || now.parts == NULL))
        status = peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu counts", n);
    if (status == PEER_SUCCESS)
        status = largest_block(comm, q, &largest);
    if (status == PEER_SUCCESS)
        now.recvcounts = now.sendcounts + n;
    for (; now.first < largest && status == PEER_SUCCESS; now.first += now.most)
        status = run_round(&now);
    free(now.sendcounts);
    free(now.parts);
    return status;
}

int peer_staged_run(struct peer_comm *comm, const struct peer_request *q)
{
    int status;
    if (q->collective == PEER_COLL_ALLREDUCE)
        return run_allreduce(comm, q);
    if (q->collective != PEER_COLL_BARRIER)
        return run_exchange(comm, q);
    status = comm->device.ops->synchronize(&comm->device, q->stream);
    return status == PEER_SUCCESS ? comm->boot->barrier(comm->boot) : status;
}
