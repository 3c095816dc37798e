/* perf_collectives.c: the collectives that peer_perf knows. A new one is a row of the table at the end, and the
 * functions in it.
 *
 * The loops call the library directly, since a small call on the host device takes less than 100 ns. */
#include "perf.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

MPI_Datatype perf_mpi_datatype(PEER_Datatype datatype)
{
    switch (datatype) {
    case PEER_INT32:
        return MPI_INT32_T;
    case PEER_INT64:
        return MPI_INT64_T;
    case PEER_FLOAT32:
        return MPI_FLOAT;
    case PEER_FLOAT64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op mpi_op(PEER_Op op)
{
    return op == PEER_MIN ? MPI_MIN : op == PEER_MAX ? MPI_MAX : MPI_SUM;
}

/* ---- All-reduce ----------------------------------------------------------------------------------------- */

static struct perf_shape allreduce_shape(size_t elements, int nranks)
{
    (void)nranks;
    return (struct perf_shape){elements, elements, elements};
}

static double allreduce_busbw(int nranks)
{
    return 2.0 * (nranks - 1) / nranks;
}

static int allreduce_run(const struct perf_call *call, int iters)
{
    for (int i = 0; i < iters; i++) {
        int status = PEER_Allreduce(call->sendbuf, call->recvbuf, call->count, call->datatype, call->op,
                                    call->comm, call->stream);
        if (status != PEER_SUCCESS)
            return status;
    }
    return PEER_SUCCESS;
}

static int allreduce_mpi(const struct perf_call *call, int iters)
{
    const struct perf_mpi *mpi = call->mpi;
    MPI_Datatype datatype = perf_mpi_datatype(call->datatype);
    MPI_Op op = mpi_op(call->op);
    int count = (int)call->count;
    size_t element;

    if (!mpi->in) {
        for (int i = 0; i < iters; i++)
            MPI_Allreduce(call->sendbuf, call->recvbuf, count, datatype, op, mpi->comm);
        return PEER_SUCCESS;
    }
    PEER_Datatype_size(call->datatype, &element);
    for (int i = 0; i < iters; i++) {
        bed_get(mpi->bed, mpi->in, call->sendbuf, call->count * element);
        MPI_Allreduce(mpi->in, mpi->out, count, datatype, op, mpi->comm);
        bed_put(mpi->bed, call->recvbuf, mpi->out, call->count * element);
    }
    return PEER_SUCCESS;
}

static int allreduce_expected(PEER_Op op, int rank, int nranks, size_t i, int position)
{
    int result = perf_value(0, nranks, i, position);

    (void)rank; /* the same on all */
    for (int r = 1; r < nranks; r++) {
        int value = perf_value(r, nranks, i, position);
        if (op == PEER_SUM)
            result += value;
        else if (op == PEER_MIN ? value < result : value > result)
            result = value;
    }
    return result;
}

/* ---- Barrier -------------------------------------------------------------------------------------------- */

static double barrier_busbw(int nranks)
{
    (void)nranks;
    return 0;
}

static int barrier_run(const struct perf_call *call, int iters)
{
    for (int i = 0; i < iters; i++) {
        int status = PEER_Barrier(call->comm, call->stream);
        if (status != PEER_SUCCESS)
            return status;
    }
    return PEER_SUCCESS;
}

/* On the cuda device a barrier is reached when the stream's work is done. */
static int barrier_mpi(const struct perf_call *call, int iters)
{
    for (int i = 0; i < iters; i++) {
        bed_sync(call->mpi->bed);
        MPI_Barrier(call->mpi->comm);
    }
    return PEER_SUCCESS;
}

/* ---- The table ------------------------------------------------------------------------------------------ */

static const struct perf_collective collectives[] = {
    {"allreduce", allreduce_shape, allreduce_busbw, allreduce_run, allreduce_mpi, allreduce_expected},
    {"barrier", NULL, barrier_busbw, barrier_run, barrier_mpi, NULL},
};

#define N_COLLECTIVES (sizeof collectives / sizeof collectives[0])

const struct perf_collective *perf_collective_find(const char *name)
{
    for (size_t i = 0; i < N_COLLECTIVES; i++)
        if (strcmp(collectives[i].name, name) == 0)
            return &collectives[i];
    return NULL;
}

void perf_collective_names(char *text, size_t bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < N_COLLECTIVES; i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", collectives[i].name);
    }
}
