/* From a call to a plan to its launch. */
#include "internal.h"

#include <string.h>

#include "peercoll.h"

/* Pieces of one call. Each takes an epoch, and sweeps (kernels/protocol.h) count on calls of far fewer than 2^30. */
#define MAX_PIECES (1u << 24)

/* A collective call's arguments, checked. */
struct request {
    enum peer_collective collective;
    const void *sendbuf; /* PEER_IN_PLACE resolved to recvbuf */
    void *recvbuf;
    size_t count;
    PEER_Datatype datatype;
    PEER_Op op;
    PEER_Stream stream;
};

/* Like the last call but for its buffers: its plan and geometry serve again. */
static bool like_last(const struct peer_comm *comm, const struct request *r)
{
    const struct peer_last_call *last = &comm->last;
    return last->valid && last->collective == r->collective && last->count == r->count &&
           last->datatype == (uint32_t)r->datatype && last->op == (uint32_t)r->op;
}

static int plan_call(struct peer_comm *comm, const struct request *r)
{
    struct peer_last_call *last = &comm->last;
    uint32_t element = peer_datatype_bytes(r->datatype);
    struct peer_query query = {
        .collective = r->collective,
        .nbytes = r->count * element,
        .nranks = (uint32_t)comm->size,
        .link = comm->link,
        .peer_ok = comm->ipc.ok,
        .line_ok = comm->ipc.line_ok,
        .nccl_ok = comm->nccl != NULL && peer_nccl_serves(comm->nccl, r->datatype, r->op),
        .max_blocks = comm->max_blocks,
        .algorithm = comm->config.algorithm,
        .protocol = comm->config.protocol,
        .blocks = comm->config.blocks,
        .threads = comm->config.threads,
    };
    last->collective = r->collective;
    last->count = r->count;
    last->datatype = r->datatype;
    last->op = r->op;
    last->plan = peer_select(&query);
    last->valid = true;
    if (last->plan.path != PEER_PATH_PEER)
        return PEER_SUCCESS;
    memset(&last->call, 0, sizeof last->call);
    peer_ipc_call(comm, &last->call);
    last->call.count = r->count;
    last->call.count_bytes = query.nbytes;
    last->call.collective = r->collective;
    last->call.datatype = r->datatype;
    last->call.op = r->op;
    last->call.algorithm = last->plan.algorithm;
    last->call.protocol = last->plan.protocol;
    last->call.blocks = last->plan.blocks;
    last->call.threads = last->plan.threads;
    peer_set_geometry(&last->call, element, comm->device.ops->vector_bytes());
    if (last->call.npacks / last->call.piece_packs > MAX_PIECES) {
        last->valid = false;
        return peer_error(PEER_ERR_COUNT,
                          "%zu elements take more than %u pieces of the staging: raise "
                          "PEER_STAGING_BYTES, or make several calls",
                          r->count, MAX_PIECES);
    }
    return PEER_SUCCESS;
}

/* The largest power of two, 64 at most, that divides both addresses. */
static uint32_t common_alignment(const void *a, const void *b)
{
    uintptr_t bits = (uintptr_t)a | (uintptr_t)b | 64;
    return (uint32_t)(bits & -bits);
}

static int launch_peer(struct peer_comm *comm, const struct request *r)
{
    struct peer_call *call = &comm->last.call;
    int status;
    call->sendbuf = r->sendbuf;
    call->recvbuf = r->recvbuf;
    call->align = common_alignment(r->sendbuf, r->recvbuf);
    status = comm->device.ops->launch(&comm->device, call, r->stream);
    if (status != PEER_SUCCESS)
        return peer_fault_break(comm, status);
    return comm->device.ops == &peer_device_host && comm->ipc.control->failed ? peer_fault_check(comm)
                                                                              : PEER_SUCCESS;
}

static int launch_nccl(struct peer_comm *comm, const struct request *r)
{
    int status = r->collective == PEER_COLL_BARRIER
                     ? peer_nccl_barrier(comm->nccl, r->stream)
                     : peer_nccl_allreduce(comm->nccl, r->sendbuf, r->recvbuf, r->count, r->datatype, r->op,
                                           r->stream);
    return status == PEER_SUCCESS ? PEER_SUCCESS : peer_fault_break(comm, status);
}

static int launch_mpi(struct peer_comm *comm, const struct request *r)
{
    bool capturing = false;
    int status = comm->device.ops->is_capturing(&comm->device, r->stream, &capturing);
    if (status == PEER_SUCCESS && capturing)
        return peer_error(
            PEER_ERR_UNSUPPORTED,
            "%s of this communicator goes through MPI (%s), which can't be captured into a graph: call it "
            "outside the capture",
            peer_collective_name(r->collective), comm->last.plan.reason);
    if (status == PEER_SUCCESS)
        status = r->collective == PEER_COLL_BARRIER
                     ? peer_staged_barrier(comm, r->stream)
                     : peer_staged_allreduce(comm, r->sendbuf, r->recvbuf, r->count, r->datatype, r->op,
                                             r->stream);
    return status == PEER_SUCCESS ? PEER_SUCCESS : peer_fault_break(comm, status);
}

static int launch_self(struct peer_comm *comm, const struct request *r)
{
    int status;
    if (r->sendbuf == r->recvbuf)
        return PEER_SUCCESS;
    status = comm->device.ops->copy_async(&comm->device, r->recvbuf, r->sendbuf,
                                          r->count * peer_datatype_bytes(r->datatype), r->stream);
    return status == PEER_SUCCESS ? PEER_SUCCESS : peer_fault_break(comm, status);
}

static int launch(struct peer_comm *comm, const struct request *r)
{
    int status = like_last(comm, r) ? PEER_SUCCESS : plan_call(comm, r);
    if (status != PEER_SUCCESS)
        return status;
    switch (comm->last.plan.path) {
    case PEER_PATH_PEER:
        return launch_peer(comm, r);
    case PEER_PATH_NCCL:
        return launch_nccl(comm, r);
    case PEER_PATH_MPI:
        return launch_mpi(comm, r);
    default:
        return launch_self(comm, r);
    }
}

static int check_reduction(PEER_Datatype datatype, PEER_Op op)
{
    if (peer_datatype_bytes(datatype) == 0)
        return peer_error(PEER_ERR_TYPE, "%d is no PEER_Datatype", (int)datatype);
    if ((unsigned)op >= PEER_N_OPS)
        return peer_error(PEER_ERR_OP, "%d is no PEER_Op", (int)op);
    return PEER_SUCCESS;
}

static int check_one_buffer(struct peer_comm *comm, const char *name, const void *buffer, size_t element)
{
    if (buffer == NULL)
        return peer_error(PEER_ERR_BUFFER, "%s is NULL, but count is not 0", name);
    if (((uintptr_t)buffer & (element - 1)) != 0) /* elements are powers of two */
        return peer_error(PEER_ERR_BUFFER, "%s (%p) is not aligned to its element of %zu bytes", name,
                          (void *)(uintptr_t)buffer, element);
    return comm->device.ops->check_buffer(&comm->device, name, buffer);
}

/* For a count that is not 0. */
static int check_buffers(struct peer_comm *comm, const struct request *r)
{
    size_t element = peer_datatype_bytes(r->datatype), bytes;
    uintptr_t send = (uintptr_t)r->sendbuf, recv = (uintptr_t)r->recvbuf;
    int status;
    if (__builtin_mul_overflow(r->count, element, &bytes) || bytes > PTRDIFF_MAX)
        return peer_error(PEER_ERR_COUNT, "%zu elements of %zu bytes are more than memory has addresses",
                          r->count, element);
    status = check_one_buffer(comm, "recvbuf", r->recvbuf, element);
    if (status != PEER_SUCCESS || send == recv)
        return status;
    status = check_one_buffer(comm, "sendbuf", r->sendbuf, element);
    if (status != PEER_SUCCESS)
        return status;
    if (send < recv ? recv - send < bytes : send - recv < bytes)
        return peer_error(PEER_ERR_BUFFER,
                          "sendbuf (%p) and recvbuf (%p) overlap: use PEER_IN_PLACE, or buffers %zu "
                          "bytes apart",
                          (void *)send, (void *)recv, bytes);
    return PEER_SUCCESS;
}

/* On the host device the last call again, with the same buffers, is right again, and such a call takes 0.1 us in all.
 * (GPU memory may have been freed since.) */
static bool repeats_last(const struct peer_comm *comm, const struct request *r)
{
    const struct peer_last_call *last = &comm->last;
    return comm->link == PEER_LINK_HOST && like_last(comm, r) && last->plan.path == PEER_PATH_PEER &&
           r->sendbuf == last->call.sendbuf && r->recvbuf == last->call.recvbuf;
}

/* Arguments of a reduction, count 0 or not. */
static int check_arguments(struct peer_comm *comm, const struct request *r)
{
    int status = check_reduction(r->datatype, r->op);
    return status == PEER_SUCCESS && r->count != 0 ? check_buffers(comm, r) : status;
}

int PEER_Allreduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                   PEER_Comm comm, PEER_Stream stream)
{
    struct request r = {
        .collective = PEER_COLL_ALLREDUCE,
        .sendbuf = sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        .datatype = datatype,
        .op = op,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
    if (status == PEER_SUCCESS && !repeats_last(comm, &r))
        status = check_arguments(comm, &r);
    if (status == PEER_SUCCESS)
        status = peer_fault_check(comm);
    if (status != PEER_SUCCESS || count == 0)
        return status;
    return launch(comm, &r);
}

int PEER_Barrier(PEER_Comm comm, PEER_Stream stream)
{
    struct request r = {.collective = PEER_COLL_BARRIER, .stream = stream};
    int status = peer_comm_check(comm);
    if (status == PEER_SUCCESS)
        status = peer_fault_check(comm);
    return status == PEER_SUCCESS ? launch(comm, &r) : status;
}
