/* The last fallback: a collective through host memory and MPI. Twoshot over MPI: an all-to-all gives each rank its
 * part of every rank's data, it combines them from rank 0 to rank n-1 with the numerics of the kernels, and an
 * all-gather spreads the parts. So it takes every datatype and operation, MPI's own or not, gives the peer kernels'
 * bits, and needs MPI to move nothing but bytes. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a part, at most: what one MPI call moves for each rank. A multiple of every element. */
#define PART_BYTES ((size_t)1 << 20)

/* The staging: what is sent, and what is received, a part for each rank. */
static int get_staging(struct peer_comm *comm, char **send, char **recv)
{
    size_t bytes = (size_t)comm->size * PART_BYTES;
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

int peer_staged_allreduce(struct peer_comm *comm, const void *sendbuf, void *recvbuf, uint64_t count,
                          uint32_t datatype, uint32_t op, void *stream)
{
    size_t element = peer_datatype_bytes(datatype);
    uint64_t most = (uint64_t)comm->size * (PART_BYTES / element);
    int status = PEER_SUCCESS;
    for (uint64_t done = 0; done < count && status == PEER_SUCCESS; done += most) {
        uint64_t now = count - done < most ? count - done : most;
        status = allreduce_piece(comm, (const char *)sendbuf + done * element,
                                 (char *)recvbuf + done * element, now, datatype, op, stream);
    }
    return status;
}

int peer_staged_barrier(struct peer_comm *comm, void *stream)
{
    int status = comm->device.ops->synchronize(&comm->device, stream);
    return status == PEER_SUCCESS ? comm->boot->barrier(comm->boot) : status;
}
