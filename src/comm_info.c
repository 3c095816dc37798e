/* What a communicator tells of itself: rank, size, how it works, and whether something has gone wrong. */
#include "bootstrap.h"

#include "peercoll.h"

int PEER_Comm_rank(PEER_Comm comm, int *rank)
{
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (rank == NULL)
        return peer_error(PEER_ERR_ARG, "rank is NULL");
    *rank = comm->rank;
    return PEER_SUCCESS;
}

int PEER_Comm_size(PEER_Comm comm, int *size)
{
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (size == NULL)
        return peer_error(PEER_ERR_ARG, "size is NULL");
    *size = comm->size;
    return PEER_SUCCESS;
}

int PEER_Comm_get_async_error(PEER_Comm comm, int *async)
{
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (async == NULL)
        return peer_error(PEER_ERR_ARG, "status is NULL");
    *async = peer_fault_check(comm);
    if (*async == PEER_SUCCESS && comm->nccl != NULL) {
        *async = peer_nccl_async_error(comm->nccl);
        if (*async != PEER_SUCCESS)
            peer_fault_break(comm, *async);
    }
    return PEER_SUCCESS;
}

int PEER_Comm_get_info(PEER_Comm comm, MPI_Info *info_used)
{
    char nodes[16], memory[32], create[32], plan[64] = "", nccl[256];
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (info_used == NULL)
        return peer_error(PEER_ERR_ARG, "info_used is NULL");
    snprintf(nodes, sizeof nodes, "%d", comm->nnodes);
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)peer_transport_memory(comm));
    snprintf(create, sizeof create, "%llu", (unsigned long long)comm->create_ms);
    if (comm->nccl != NULL)
        peer_version_text(peer_nccl_version(comm->nccl), nccl, sizeof nccl);
    else
        snprintf(nccl, sizeof nccl, "none: %.240s", comm->nccl_reason);
    if (comm->last.valid)
        peer_plan_text(&comm->last.plan, peer_comm_transport(comm), plan, sizeof plan);
    return peer_bootstrap_info_create((const char *const[][2]){{"device", comm->device.ops->name},
                                                               {"transport", peer_comm_transport(comm)},
                                                               {"nodes", nodes},
                                                               {"nccl", nccl},
                                                               {"memory_bytes", memory},
                                                               {"create_ms", create},
                                                               {"plan", plan[0] != '\0' ? plan : "none yet"},
                                                               {NULL, NULL}},
                                      info_used);
}
