/* Stands in for nccl.c where the library is built without NCCL's header: there is never a communicator of NCCL's. */
#include "internal.h"

int peer_nccl_create(struct peer_comm *comm)
{
    snprintf(comm->nccl_reason, sizeof comm->nccl_reason, "the library was built without NCCL's header");
    return PEER_SUCCESS;
}

void peer_nccl_destroy(struct peer_nccl *nccl, bool abort)
{
    (void)nccl, (void)abort;
}

bool peer_nccl_serves(const struct peer_nccl *nccl, uint32_t datatype, uint32_t op)
{
    (void)nccl, (void)datatype, (void)op;
    return false;
}

int peer_nccl_version(const struct peer_nccl *nccl)
{
    (void)nccl;
    return 0;
}

static int no_nccl(void)
{
    return peer_error(PEER_ERR_INTERNAL, "a call went to NCCL in a library built without it");
}

int peer_nccl_allreduce(struct peer_nccl *nccl, const void *sendbuf, void *recvbuf, uint64_t count,
                        uint32_t datatype, uint32_t op, void *stream)
{
    (void)nccl, (void)sendbuf, (void)recvbuf, (void)count, (void)datatype, (void)op, (void)stream;
    return no_nccl();
}

int peer_nccl_barrier(struct peer_nccl *nccl, void *stream)
{
    (void)nccl, (void)stream;
    return no_nccl();
}

int peer_nccl_async_error(struct peer_nccl *nccl)
{
    (void)nccl;
    return no_nccl();
}
