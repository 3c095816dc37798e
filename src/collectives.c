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

int PEER_Allreduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                   PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_ALLREDUCE,
        .sendbuf = sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        .datatype = datatype,
        .op = op,
        .stream = stream,
    };
    return peer_request_run(comm, &q);
}

int PEER_Reduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                int root, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_REDUCE,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        .datatype = datatype,
        .op = op,
        .root = root,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && sendbuf == PEER_IN_PLACE)
        q.sendbuf = recvbuf;
    return peer_request_run(comm, &q);
}

int PEER_Bcast(void *buffer, size_t count, PEER_Datatype datatype, int root, PEER_Comm comm,
               PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_BCAST,
        .sendbuf = buffer,
        .recvbuf = buffer,
        .count = count,
        .datatype = datatype,
        .root = root,
        .stream = stream,
    };
    return peer_request_run(comm, &q);
}

int PEER_Allgather(const void *sendbuf, void *recvbuf, size_t sendcount, PEER_Datatype datatype,
                   PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_ALLGATHER,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = sendcount,
        .datatype = datatype,
        .stream = stream,
    };
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
    struct peer_request q = {
        .collective = PEER_COLL_ALLGATHERV,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .recvcounts = recvcounts,
        .rdispls = displs,
        .datatype = datatype,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
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
    struct peer_request q = {
        .collective = PEER_COLL_REDUCE_SCATTER_BLOCK,
        .sendbuf = sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .count = recvcount,
        .datatype = datatype,
        .op = op,
        .stream = stream,
    };
    return peer_request_run(comm, &q);
}

int PEER_Reduce_scatter(const void *sendbuf, void *recvbuf, const size_t recvcounts[], PEER_Datatype datatype,
                        PEER_Op op, PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_REDUCE_SCATTER,
        .sendbuf = sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .recvcounts = recvcounts,
        .datatype = datatype,
        .op = op,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
    if (status == PEER_SUCCESS)
        status = peer_check_array("recvcounts", recvcounts);
    return status == PEER_SUCCESS ? peer_request_run(comm, &q) : status;
}

int PEER_Alltoall(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Comm comm,
                  PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_ALLTOALL,
        .sendbuf = sendbuf == PEER_IN_PLACE ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .count = count,
        .datatype = datatype,
        .stream = stream,
    };
    return peer_request_run(comm, &q);
}

int PEER_Alltoallv(const void *sendbuf, const size_t sendcounts[], const size_t sdispls[], void *recvbuf,
                   const size_t recvcounts[], const size_t rdispls[], PEER_Datatype datatype, PEER_Comm comm,
                   PEER_Stream stream)
{
    bool replaced = in_place(sendbuf, recvbuf);
    struct peer_request q = {
        .collective = PEER_COLL_ALLTOALLV,
        .sendbuf = replaced ? recvbuf : sendbuf,
        .recvbuf = recvbuf,
        .sendcounts = replaced ? recvcounts : sendcounts,
        .sdispls = replaced ? rdispls : sdispls,
        .recvcounts = recvcounts,
        .rdispls = rdispls,
        .datatype = datatype,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
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
    struct peer_request q = {
        .collective = PEER_COLL_GATHER,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = sendcount,
        .datatype = datatype,
        .root = root,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && in_place(sendbuf, recvbuf))
        q.sendbuf = displaced(recvbuf, rank_of(comm) * sendcount, datatype);
    return peer_request_run(comm, &q);
}

int PEER_Scatter(const void *sendbuf, void *recvbuf, size_t recvcount, PEER_Datatype datatype, int root,
                 PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {
        .collective = PEER_COLL_SCATTER,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = recvcount,
        .datatype = datatype,
        .root = root,
        .stream = stream,
    };
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (comm->rank == root && in_place(recvbuf, sendbuf))
        q.recvbuf = (void *)(uintptr_t)displaced(sendbuf, rank_of(comm) * recvcount, datatype);
    return peer_request_run(comm, &q);
}

int PEER_Barrier(PEER_Comm comm, PEER_Stream stream)
{
    struct peer_request q = {.collective = PEER_COLL_BARRIER, .stream = stream};
    return peer_request_run(comm, &q);
}
