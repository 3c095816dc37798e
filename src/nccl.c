/* The first fallback: NCCL, opened at run time. Where it can't be had, or refuses the ranks, nccl_reason says
 * why. */
#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <nccl.h>

/* It reduces bf16, and averages, from here on. */
#define OLDEST_VERSION 21000

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
    X(ncclGroupStart, ncclResult_t, (void))                                                                  \
    X(ncclGroupEnd, ncclResult_t, (void))                                                                    \
    X(ncclSend, ncclResult_t, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))         \
    X(ncclRecv, ncclResult_t, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))               \
    X(ncclBroadcast, ncclResult_t,                                                                           \
      (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                         \
    X(ncclAllGather, ncclResult_t, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)) \
    X(ncclAllReduce, ncclResult_t,                                                                           \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))                 \
    X(ncclReduceScatter, ncclResult_t,                                                                       \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))                 \
    X(ncclReduce, ncclResult_t,                                                                              \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t))

struct peer_nccl {
    void *library;
    ncclComm_t comm;
    void *word;           /* of device memory, for the barrier */
    pthread_mutex_t lock; /* of comm: an abort frees it, and may come from another thread */
    bool aborted;         /* comm is freed; under the lock */
    atomic_bool abort;    /* asked for */
    int version;
    const char *(*ncclGetLastError)(ncclComm_t); /* NULL before NCCL 2.13 */
#define MEMBER(name, result, arguments) result(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static int nccl_error(const struct peer_nccl *nccl, const char *call, ncclResult_t code)
{
    if (code == ncclSuccess || code == ncclInProgress)
        return PEER_SUCCESS;
    return peer_error(PEER_ERR_NCCL, "%s failed: %s (%.300s)", call, nccl->ncclGetErrorString(code),
                      nccl->ncclGetLastError != NULL ? nccl->ncclGetLastError(nccl->comm)
                                                     : "NCCL_DEBUG=WARN says more");
}

static int check_version(struct peer_nccl *nccl)
{
    int status = nccl_error(nccl, "ncclGetVersion", nccl->ncclGetVersion(&nccl->version));
    if (status != PEER_SUCCESS || nccl->version >= OLDEST_VERSION)
        return status;
    return peer_error(PEER_ERR_UNSUPPORTED, "the NCCL that is there knows no bf16: it is older than 2.10");
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
    *(void **)&nccl->ncclGetLastError = dlsym(nccl->library, "ncclGetLastError");
    return check_version(nccl);
}

/* NCCL before SHARED_GPU_VERSION refuses such ranks, after a second or so. */
static int check_sharing(const struct peer_comm *comm, const struct peer_nccl *nccl)
{
    char version[32];
    if (nccl->version >= SHARED_GPU_VERSION || peer_topology_sharers(comm->ids, comm->size) == 1)
        return PEER_SUCCESS;
    peer_version_text(nccl->version, version, sizeof version);
    return peer_error(PEER_ERR_UNSUPPORTED,
                      "ranks share a GPU, which NCCL %s refuses (2.30.3 and later accept it with "
                      "NCCL_MULTI_RANK_GPU_ENABLE=1)",
                      version);
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
        if (nccl != NULL)
            comm->device.ops->state_free(&comm->device, nccl->word);
        free(nccl);
        return PEER_SUCCESS;
    }
    pthread_mutex_init(&nccl->lock, NULL);
    comm->nccl = nccl;
    return PEER_SUCCESS;
}

/* Whoever asks for it does it, or whoever has the lock then, when he gives it back: so nobody waits. */
static void abort_if_asked(struct peer_nccl *nccl)
{
    if (!atomic_load(&nccl->abort) || pthread_mutex_trylock(&nccl->lock) != 0)
        return;
    if (!nccl->aborted)
        nccl->ncclCommAbort(nccl->comm);
    nccl->aborted = true;
    pthread_mutex_unlock(&nccl->lock);
}

/* On success give_comm() follows. */
static int take_comm(struct peer_nccl *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    if (!nccl->aborted)
        return PEER_SUCCESS;
    pthread_mutex_unlock(&nccl->lock);
    return peer_error(PEER_ERR_ABORTED, "this rank called PEER_Comm_abort");
}

static void give_comm(struct peer_nccl *nccl)
{
    pthread_mutex_unlock(&nccl->lock);
    abort_if_asked(nccl);
}

void peer_nccl_abort(struct peer_nccl *nccl)
{
    atomic_store(&nccl->abort, true);
    abort_if_asked(nccl);
}

void peer_nccl_destroy(struct peer_nccl *nccl, bool abort)
{
    if (nccl == NULL)
        return;
    if (abort)
        peer_nccl_abort(nccl);
    else if (!nccl->aborted)
        nccl->ncclCommDestroy(nccl->comm);
    pthread_mutex_destroy(&nccl->lock);
    peer_device_cuda.state_free(NULL, nccl->word);
    free(nccl);
}

int peer_nccl_version(const struct peer_nccl *nccl)
{
    return nccl->version;
}

/* ---- Reductions
 * ------------------------------------------------------------------------------------------------ */

/* A datatype as NCCL reduces it; complex numbers add up as twice as many floats. */
static const struct {
    PEER_Datatype ours;
    ncclDataType_t theirs;
    uint32_t times;
    bool integer;
} datatypes[] = {
    {PEER_INT8, ncclInt8, 1, true},          {PEER_UINT8, ncclUint8, 1, true},
    {PEER_INT32, ncclInt32, 1, true},        {PEER_UINT32, ncclUint32, 1, true},
    {PEER_INT64, ncclInt64, 1, true},        {PEER_UINT64, ncclUint64, 1, true},
    {PEER_FLOAT16, ncclFloat16, 1, false},   {PEER_BFLOAT16, ncclBfloat16, 1, false},
    {PEER_FLOAT32, ncclFloat32, 1, false},   {PEER_FLOAT64, ncclFloat64, 1, false},
    {PEER_COMPLEX64, ncclFloat32, 2, false}, {PEER_COMPLEX128, ncclFloat64, 2, false},
};

#define DATATYPES (sizeof datatypes / sizeof datatypes[0])

/* Row of the table, or -1. fp8 is not there: NCCL rounds each sum and does not saturate. */
static int row_of(PEER_Datatype datatype)
{
    for (size_t i = 0; i < DATATYPES; i++)
        if (datatypes[i].ours == datatype)
            return (int)i;
    return -1;
}

/* NCCL's MIN and MAX drop NaNs, its AVG of integers does not round as ours, and floats make no complex product. */
static bool translate(PEER_Datatype datatype, PEER_Op op, int *row, ncclRedOp_t *theirs)
{
    *row = row_of(datatype);
    if (*row < 0)
        return false;
    switch (op) {
    case PEER_SUM:
        *theirs = ncclSum;
        return true;
    case PEER_PROD:
        *theirs = ncclProd;
        return datatypes[*row].times == 1;
    case PEER_MIN:
        *theirs = ncclMin;
        return datatypes[*row].integer;
    case PEER_MAX:
        *theirs = ncclMax;
        return datatypes[*row].integer;
    case PEER_AVG:
        *theirs = ncclAvg;
        return !datatypes[*row].integer;
    default:
        return false;
    }
}

bool peer_nccl_serves(const struct peer_nccl *nccl, const struct peer_request *q)
{
    int row;
    ncclRedOp_t op;
    (void)nccl;
    return !peer_request_reduces(q) || translate(q->datatype, q->op, &row, &op);
}

/* NCCL's reduce-scatter has blocks of one size; others are a reduction each. */
static int reduce_scatter(struct peer_nccl *nccl, int size, const struct peer_request *q, int row,
                          ncclRedOp_t op)
{
    ncclResult_t code = nccl->ncclGroupStart();
    for (int r = 0; r < size && code == ncclSuccess; r++) {
        struct peer_block block = peer_block_to(q, 0, size, r);
        const char *from = (const char *)q->sendbuf + block.at * peer_datatype_bytes(q->datatype);
        if (block.count > 0)
            code = nccl->ncclReduce(from, q->recvbuf, block.count * datatypes[row].times,
                                    datatypes[row].theirs, op, r, nccl->comm, q->stream);
    }
    ncclResult_t end = nccl->ncclGroupEnd();
    return nccl_error(nccl, "ncclReduce", code != ncclSuccess ? code : end);
}

static int run_reduction(struct peer_nccl *nccl, int size, const struct peer_request *q)
{
    int row;
    ncclRedOp_t op;
    size_t count;
    if (!translate(q->datatype, q->op, &row, &op))
        return peer_error(PEER_ERR_INTERNAL, "NCCL does not serve %s of %s", peer_op_name(q->op),
                          peer_datatype_name(q->datatype));
    count = q->count * datatypes[row].times;
    switch (q->collective) {
    case PEER_COLL_ALLREDUCE:
        return nccl_error(nccl, "ncclAllReduce",
                          nccl->ncclAllReduce(q->sendbuf, q->recvbuf, count, datatypes[row].theirs, op,
                                              nccl->comm, q->stream));
    case PEER_COLL_REDUCE:
        return nccl_error(nccl, "ncclReduce",
                          nccl->ncclReduce(q->sendbuf, q->recvbuf, count, datatypes[row].theirs, op, q->root,
                                           nccl->comm, q->stream));
    case PEER_COLL_REDUCE_SCATTER_BLOCK:
        return nccl_error(nccl, "ncclReduceScatter",
                          nccl->ncclReduceScatter(q->sendbuf, q->recvbuf, count, datatypes[row].theirs, op,
                                                  nccl->comm, q->stream));
    default:
        return reduce_scatter(nccl, size, q, row, op);
    }
}

/* ---- Movements: bytes are bytes
 * ---------------------------------------------------------------------------------- */

/* Sends and receives of blocks, in one group. */
static int move_blocks(struct peer_nccl *nccl, int rank, int size, const struct peer_request *q)
{
    size_t element = peer_datatype_bytes(q->datatype);
    ncclResult_t code = nccl->ncclGroupStart(), end;
    for (int r = 0; r < size && code == ncclSuccess; r++) {
        struct peer_block to = peer_block_to(q, rank, size, r), from = peer_block_from(q, rank, size, r);
        const char *source = (const char *)q->sendbuf + to.at * element;
        char *target = (char *)q->recvbuf + from.at * element;
        if (r == rank && source == target)
            continue;
        if (to.count > 0)
            code = nccl->ncclSend(source, to.count * element, ncclInt8, r, nccl->comm, q->stream);
        if (from.count > 0 && code == ncclSuccess)
            code = nccl->ncclRecv(target, from.count * element, ncclInt8, r, nccl->comm, q->stream);
    }
    end = nccl->ncclGroupEnd();
    return nccl_error(nccl, "ncclSend or ncclRecv", code != ncclSuccess ? code : end);
}

/* NCCL has no barrier; a sum of one word is one. */
static int barrier(struct peer_nccl *nccl, void *stream)
{
    return nccl_error(
        nccl, "ncclAllReduce",
        nccl->ncclAllReduce(nccl->word, nccl->word, 1, ncclFloat32, ncclSum, nccl->comm, stream));
}

static int run(struct peer_nccl *nccl, int rank, int size, const struct peer_request *q)
{
    size_t bytes = q->count * peer_datatype_bytes(q->datatype);
    if (peer_request_reduces(q))
        return run_reduction(nccl, size, q);
    switch (q->collective) {
    case PEER_COLL_BARRIER:
        return barrier(nccl, q->stream);
    case PEER_COLL_BCAST:
        return nccl_error(
            nccl, "ncclBroadcast",
            nccl->ncclBroadcast(q->sendbuf, q->recvbuf, bytes, ncclInt8, q->root, nccl->comm, q->stream));
    case PEER_COLL_ALLGATHER:
        return nccl_error(
            nccl, "ncclAllGather",
            nccl->ncclAllGather(q->sendbuf, q->recvbuf, bytes, ncclInt8, nccl->comm, q->stream));
    default:
        return move_blocks(nccl, rank, size, q);
    }
}

int peer_nccl_run(struct peer_nccl *nccl, int rank, int size, const struct peer_request *q)
{
    int status = take_comm(nccl);
    if (status != PEER_SUCCESS)
        return status;
    status = run(nccl, rank, size, q);
    give_comm(nccl);
    return status;
}

int peer_nccl_async_error(struct peer_nccl *nccl)
{
    ncclResult_t async = ncclSuccess;
    int status = take_comm(nccl);
    if (status != PEER_SUCCESS)
        return status;
    status = nccl_error(nccl, "ncclCommGetAsyncError", nccl->ncclCommGetAsyncError(nccl->comm, &async));
    if (status == PEER_SUCCESS)
        status = nccl_error(nccl, "an NCCL call", async);
    give_comm(nccl);
    return status;
}
