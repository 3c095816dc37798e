/* Stands in for nccl.c where the library is built without NCCL's header: there is never a communicator of
 * NCCL's. */
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

void peer_nccl_abort(struct peer_nccl *nccl)
{
    (void)nccl;
}

bool peer_nccl_serves(const struct peer_nccl *nccl, const struct peer_request *q)
{
    (void)nccl, (void)q;
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

int peer_nccl_run(struct peer_nccl *nccl, int rank, int size, const struct peer_request *q)
{
    (void)nccl, (void)rank, (void)size, (void)q;
    return no_nccl();
}

int peer_nccl_async_error(struct peer_nccl *nccl)
{
    (void)nccl;
    return no_nccl();
}
