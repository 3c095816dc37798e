/* The first fallback: NCCL, opened at run time. Where it can't be had, or refuses the ranks, nccl_reason says why. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <nccl.h>

/* Ranks that share a GPU are accepted from here on, if NCCL_MULTI_RANK_GPU_ENABLE=1. */
#define SHARED_GPU_VERSION 23003

/* X(function, result, arguments) */
#define FUNCTIONS(X)                                                                                         \
    X(ncclGetVersion, ncclResult_t, (int *))                                                                 \
    X(ncclGetUniqueId, ncclResult_t, (ncclUniqueId *))                                                       \
    X(ncclCommInitRank, ncclResult_t, (ncclComm_t *, int, ncclUniqueId, int))                                \
    X(ncclCommDestroy, ncclResult_t, (ncclComm_t))                                                           \
    X(ncclCommAbort, ncclResult_t, (ncclComm_t))                                                             \
    X(ncclCommGetAsyncError, ncclResult_t, (ncclComm_t, ncclResult_t *))                                     \
    X(ncclGetErrorString, const char *, (ncclResult_t))                                                      \
    X(ncclGetLastError, const char *, (ncclComm_t))                                                          \
    X(ncclAllReduce, ncclResult_t,                                                                           \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))

struct peer_nccl {
    void *library;
    ncclComm_t comm;
    void *word; /* of device memory, for the barrier */
    int version;
#define MEMBER(name, result, arguments) result(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static int nccl_error(const struct peer_nccl *nccl, const char *call, ncclResult_t code)
{
    if (code == ncclSuccess || code == ncclInProgress)
        return PEER_SUCCESS;
    return peer_error(PEER_ERR_NCCL, "%s failed: %s (%.300s)", call, nccl->ncclGetErrorString(code),
                      nccl->ncclGetLastError(nccl->comm));
}

/* This rank's part that needs no other rank. */
static int load(struct peer_nccl *nccl, const char *path)
{
    if (strcmp(path, "off") == 0)
        return peer_error(PEER_ERR_UNSUPPORTED, "PEER_NCCL=off");
    if (strcmp(path, "auto") == 0)
        path = "libnccl.so.2";
    /* Local, so that it serves nobody else; and never unloaded, since NCCL leaves threads and hooks behind. */
    nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (nccl->library == NULL)
        return peer_error(PEER_ERR_UNSUPPORTED, "%s (PEER_NCCL names the library)", dlerror());
#define LOAD(name, result, arguments)                                                                        \
    *(void **)&nccl->name = dlsym(nccl->library, #name);                                                     \
    if (nccl->name == NULL)                                                                                  \
        return peer_error(PEER_ERR_UNSUPPORTED, "%s has no " #name, path);
    FUNCTIONS(LOAD)
#undef LOAD
    return nccl_error(nccl, "ncclGetVersion", nccl->ncclGetVersion(&nccl->version));
}

/* NCCL before SHARED_GPU_VERSION refuses such ranks, after a second or so. */
static int check_sharing(const struct peer_comm *comm, const struct peer_nccl *nccl)
{
    if (nccl->version >= SHARED_GPU_VERSION || peer_topology_sharers(comm->ids, comm->size) == 1)
        return PEER_SUCCESS;
    return peer_error(PEER_ERR_UNSUPPORTED,
                      "ranks share a GPU, which NCCL %d refuses (2.30.3 and later accept it with "
                      "NCCL_MULTI_RANK_GPU_ENABLE=1)",
                      nccl->version);
}

static int connect_ranks(struct peer_comm *comm, struct peer_nccl *nccl)
{
    ncclUniqueId mine, *all = calloc((size_t)comm->size, sizeof *all);
    int status = all != NULL ? PEER_SUCCESS : peer_error(PEER_ERR_NO_MEMORY, "no memory for NCCL's ids");
    memset(&mine, 0, sizeof mine);
    if (status == PEER_SUCCESS && comm->rank == 0)
        status = nccl_error(nccl, "ncclGetUniqueId", nccl->ncclGetUniqueId(&mine));
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    if (status == PEER_SUCCESS) {
        status = nccl_error(nccl, "ncclCommInitRank",
                            nccl->ncclCommInitRank(&nccl->comm, comm->size, all[0], comm->rank));
        status = peer_vote(comm->boot, status);
    }
    free(all);
    return status;
}

int peer_nccl_create(struct peer_comm *comm)
{
    struct peer_nccl *nccl = calloc(1, sizeof *nccl);
    int status =
        nccl != NULL ? load(nccl, comm->config.nccl) : peer_error(PEER_ERR_NO_MEMORY, "no memory for NCCL");
    if (status == PEER_SUCCESS)
        status = check_sharing(comm, nccl);
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = connect_ranks(comm, nccl);
    if (status == PEER_SUCCESS)
        status =
            peer_vote(comm->boot, comm->device.ops->state_alloc(&comm->device, sizeof(float), &nccl->word));
    if (status != PEER_SUCCESS) {
        snprintf(comm->nccl_reason, sizeof comm->nccl_reason, "%.250s", PEER_Last_error());
        if (nccl != NULL && nccl->comm != NULL)
            nccl->ncclCommAbort(nccl->comm);
        free(nccl);
        return PEER_SUCCESS;
    }
    comm->nccl = nccl;
    return PEER_SUCCESS;
}

void peer_nccl_destroy(struct peer_nccl *nccl, bool abort)
{
    if (nccl == NULL)
        return;
    if (abort)
        nccl->ncclCommAbort(nccl->comm);
    else
        nccl->ncclCommDestroy(nccl->comm);
    peer_device_cuda.state_free(NULL, nccl->word);
    free(nccl);
}

int peer_nccl_version(const struct peer_nccl *nccl)
{
    return nccl->version;
}

static const struct {
    PEER_Datatype ours;
    ncclDataType_t theirs;
} datatypes[] = {
    {PEER_INT32, ncclInt32},       {PEER_INT64, ncclInt64},     {PEER_FLOAT16, ncclFloat16},
    {PEER_BFLOAT16, ncclBfloat16}, {PEER_FLOAT32, ncclFloat32}, {PEER_FLOAT64, ncclFloat64},
};

static const struct {
    PEER_Op ours;
    ncclRedOp_t theirs;
} ops[] = {{PEER_SUM, ncclSum}, {PEER_MIN, ncclMin}, {PEER_MAX, ncclMax}};

static bool translate(uint32_t datatype, uint32_t op, ncclDataType_t *type, ncclRedOp_t *operation)
{
    bool type_found = false, op_found = false;
    for (size_t i = 0; i < sizeof datatypes / sizeof datatypes[0]; i++)
        if (datatypes[i].ours == (PEER_Datatype)datatype) {
            *type = datatypes[i].theirs;
            type_found = true;
        }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (ops[i].ours == (PEER_Op)op) {
            *operation = ops[i].theirs;
            op_found = true;
        }
    return type_found && op_found;
}

bool peer_nccl_serves(const struct peer_nccl *nccl, uint32_t datatype, uint32_t op)
{
    ncclDataType_t type;
    ncclRedOp_t operation;
    (void)nccl;
    return translate(datatype, op, &type, &operation);
}

int peer_nccl_allreduce(struct peer_nccl *nccl, const void *sendbuf, void *recvbuf, uint64_t count,
                        uint32_t datatype, uint32_t op, void *stream)
{
    ncclDataType_t type;
    ncclRedOp_t operation;
    if (!translate(datatype, op, &type, &operation))
        return peer_error(PEER_ERR_INTERNAL, "NCCL does not know the datatype or operation");
    return nccl_error(nccl, "ncclAllReduce",
                      nccl->ncclAllReduce(sendbuf, recvbuf, count, type, operation, nccl->comm, stream));
}

/* NCCL has no barrier; a sum of one word is one. */
int peer_nccl_barrier(struct peer_nccl *nccl, void *stream)
{
    return peer_nccl_allreduce(nccl, nccl->word, nccl->word, 1, PEER_FLOAT32, PEER_SUM, stream);
}

int peer_nccl_async_error(struct peer_nccl *nccl)
{
    ncclResult_t async = ncclSuccess;
    int status = nccl_error(nccl, "ncclCommGetAsyncError", nccl->ncclCommGetAsyncError(nccl->comm, &async));
    return status == PEER_SUCCESS ? nccl_error(nccl, "an NCCL call", async) : status;
}
