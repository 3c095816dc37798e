/* The public collectives: from arguments to a request, with the in-place forms resolved, on to checks and the
 * launch. */
#include "internal.h"

#include "peercoll.h"

static const void *displaced(const void *buffer, size_t elements, PEER_Datatype datatype)
{
    /* Not pointer arithmetic: nothing is known of the buffer yet. */
    return (const void *)((uintptr_t)buffer + elements * peer_datatype_bytes(datatype));
}

static bool in_place(const void *sendbuf, const void *recvbuf)
{
    return sendbuf == PEER_IN_PLACE || sendbuf == recvbuf;
}

static size_t rank_of(PEER_Comm comm)
{
    return (size_t)comm->rank;
}

/* Every field is set one by one: a call of 8 bytes takes 0.1 us, and clearing the whole at once a tenth of it. */
static struct peer_request request(enum peer_collective collective, const void *sendbuf, void *recvbuf,
                                   size_t count, PEER_Datatype datatype, PEER_Stream stream)
{
    return (struct peer_request){
        .collective = collective,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        .datatype = datatype,
        .op = PEER_SUM,
        .root = 0,
        .recvcounts = NULL,
        .rdispls = NULL,
        .sendcounts = NULL,
        .sdispls = NULL,
        .stream = stream,
        .step = PEER_STEP_ONLY,
    };
}

int PEER_Allreduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                   PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_ALLREDUCE, sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
                                    recvbuf, count, datatype, stream);
    q.op = op;
    return peer_request_run(comm, &q);
}

int PEER_Reduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                int root, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_REDUCE, sendbuf, recvbuf, count, datatype, stream);
    int status = peer_comm_check(comm);
    q.op = op;
    q.root = root;
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && sendbuf == PEER_IN_PLACE)
        q.sendbuf = recvbuf;
    return peer_request_run(comm, &q);
}

int PEER_Bcast(void *buffer, size_t count, PEER_Datatype datatype, int root, PEER_Comm comm,
               PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_BCAST, buffer, buffer, count, datatype, stream);
    q.root = root;
    return peer_request_run(comm, &q);
}

int PEER_Allgather(const void *sendbuf, void *recvbuf, size_t sendcount, PEER_Datatype datatype,
                   PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_ALLGATHER, sendbuf, recvbuf, sendcount, datatype, stream);
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (in_place(sendbuf, recvbuf))
        q.sendbuf = displaced(recvbuf, rank_of(comm) * sendcount, datatype);
    return peer_request_run(comm, &q);
}

int PEER_Allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t recvcounts[],
                    const size_t displs[], PEER_Datatype datatype, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_ALLGATHERV, sendbuf, recvbuf, 0, datatype, stream);
    int status = peer_comm_check(comm);
    q.recvcounts = recvcounts;
    q.rdispls = displs;
    if (status == PEER_SUCCESS)
        status = peer_check_array("recvcounts", recvcounts);
    if (status == PEER_SUCCESS)
        status = peer_check_array("displs", displs);
    if (status != PEER_SUCCESS)
        return status;
    if (in_place(sendbuf, recvbuf))
        q.sendbuf = displaced(recvbuf, displs[comm->rank], datatype);
    else if (sendcount != recvcounts[comm->rank])
        return peer_error(PEER_ERR_COUNT, "sendcount is %zu, but recvcounts[%d] of this rank is %zu",
                          sendcount, comm->rank, recvcounts[comm->rank]);
    return peer_request_run(comm, &q);
}

int PEER_Reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, PEER_Datatype datatype,
                              PEER_Op op, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q =
        request(PEER_COLL_REDUCE_SCATTER_BLOCK, sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf, recvbuf,
                recvcount, datatype, stream);
    q.op = op;
    return peer_request_run(comm, &q);
}

int PEER_Reduce_scatter(const void *sendbuf, void *recvbuf, const size_t recvcounts[], PEER_Datatype datatype,
                        PEER_Op op, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_REDUCE_SCATTER, sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
                                    recvbuf, 0, datatype, stream);
    int status = peer_comm_check(comm);
    q.recvcounts = recvcounts;
    q.op = op;
    if (status == PEER_SUCCESS)
        status = peer_check_array("recvcounts", recvcounts);
    return status == PEER_SUCCESS ? peer_request_run(comm, &q) : status;
}

int PEER_Alltoall(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Comm comm,
                  PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_ALLTOALL, sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf, recvbuf,
                                    count, datatype, stream);
    return peer_request_run(comm, &q);
}

int PEER_Alltoallv(const void *sendbuf, const size_t sendcounts[], const size_t sdispls[], void *recvbuf,
                   const size_t recvcounts[], const size_t rdispls[], PEER_Datatype datatype, PEER_Comm comm,
                   PEER_Stream stream)
{
    bool replaced = in_place(sendbuf, recvbuf);
    struct peer_request q =
        request(PEER_COLL_ALLTOALLV, replaced ? recvbuf : sendbuf, recvbuf, 0, datatype, stream);
    int status = peer_comm_check(comm);
    q.sendcounts = replaced ? recvcounts : sendcounts;
    q.sdispls = replaced ? rdispls : sdispls;
    q.recvcounts = recvcounts;
    q.rdispls = rdispls;
    if (status == PEER_SUCCESS)
        status = peer_check_array("recvcounts", recvcounts);
    if (status == PEER_SUCCESS)
        status = peer_check_array("rdispls", rdispls);
    if (status == PEER_SUCCESS)
        status = peer_check_array("sendcounts", q.sendcounts);
    if (status == PEER_SUCCESS)
        status = peer_check_array("sdispls", q.sdispls);
    return status == PEER_SUCCESS ? peer_request_run(comm, &q) : status;
}

int PEER_Gather(const void *sendbuf, void *recvbuf, size_t sendcount, PEER_Datatype datatype, int root,
                PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_GATHER, sendbuf, recvbuf, sendcount, datatype, stream);
    int status = peer_comm_check(comm);
    q.root = root;
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && in_place(sendbuf, recvbuf))
        q.sendbuf = displaced(recvbuf, rank_of(comm) * sendcount, datatype);
    return peer_request_run(comm, &q);
}

int PEER_Scatter(const void *sendbuf, void *recvbuf, size_t recvcount, PEER_Datatype datatype, int root,
                 PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_SCATTER, sendbuf, recvbuf, recvcount, datatype, stream);
    int status = peer_comm_check(comm);
    q.root = root;
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && in_place(recvbuf, sendbuf))
        q.recvbuf = (void *)(uintptr_t)displaced(sendbuf, rank_of(comm) * recvcount, datatype);
    return peer_request_run(comm, &q);
}

int PEER_Barrier(PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = request(PEER_COLL_BARRIER, NULL, NULL, 0, PEER_INT8, stream);
    return peer_request_run(comm, &q);
}
