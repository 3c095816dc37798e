/* perf_collectives.c: the collectives that peer_perf knows. A new one is a line of CALLS, with our call and
 * MPI's, and a row of the table below; what its buffers hold, in place and not, and what comes out follow from
 * the row.
 *
 * The loops call the library directly, since a small call on the host device takes less than 100 ns. */
#include "perf.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- The calls ------------------------------------------------------------------------------------------ */

/* In `ours` c is a struct perf_call, in `theirs` m is a struct perf_mpi_call. */
#define CALLS(name, ours, theirs)                                                                            \
    static int name##_run(const struct perf_call *c, int iters)                                              \
    {                                                                                                        \
        for (int i = 0; i < iters; i++) {                                                                    \
            int status = ours;                                                                               \
            if (status != PEER_SUCCESS)                                                                      \
                return status;                                                                               \
        }                                                                                                    \
        return PEER_SUCCESS;                                                                                 \
    }                                                                                                        \
    static int name##_mpi(const struct perf_mpi_call *m)                                                     \
    {                                                                                                        \
        return theirs;                                                                                       \
    }

CALLS(allreduce, PEER_Allreduce(c->sendbuf, c->recvbuf, c->count, c->datatype, c->op, c->comm, c->stream),
      MPI_Allreduce(m->in, m->out, m->count, m->datatype, m->op, m->comm))
CALLS(reduce, PEER_Reduce(c->sendbuf, c->recvbuf, c->count, c->datatype, c->op, c->root, c->comm, c->stream),
      MPI_Reduce(m->in, m->out, m->count, m->datatype, m->op, m->root, m->comm))
CALLS(bcast, PEER_Bcast(c->recvbuf, c->count, c->datatype, c->root, c->comm, c->stream),
      MPI_Bcast(m->out, m->count, m->datatype, m->root, m->comm))
CALLS(allgather, PEER_Allgather(c->sendbuf, c->recvbuf, c->count, c->datatype, c->comm, c->stream),
      MPI_Allgather(m->in, m->count, m->datatype, m->out, m->count, m->datatype, m->comm))
CALLS(allgatherv,
      PEER_Allgatherv(c->sendbuf, c->count, c->recvbuf, c->counts, c->displs, c->datatype, c->comm,
                      c->stream),
      MPI_Allgatherv(m->in, m->count, m->datatype, m->out, m->counts, m->displs, m->datatype, m->comm))
CALLS(reduce_scatter_block,
      PEER_Reduce_scatter_block(c->sendbuf, c->recvbuf, c->count, c->datatype, c->op, c->comm, c->stream),
      MPI_Reduce_scatter_block(m->in, m->out, m->count, m->datatype, m->op, m->comm))
CALLS(reduce_scatter,
      PEER_Reduce_scatter(c->sendbuf, c->recvbuf, c->counts, c->datatype, c->op, c->comm, c->stream),
      MPI_Reduce_scatter(m->in, m->out, m->counts, m->datatype, m->op, m->comm))
CALLS(alltoall, PEER_Alltoall(c->sendbuf, c->recvbuf, c->count, c->datatype, c->comm, c->stream),
      MPI_Alltoall(m->in, m->count, m->datatype, m->out, m->count, m->datatype, m->comm))
CALLS(alltoallv,
      PEER_Alltoallv(c->sendbuf, c->counts, c->displs, c->recvbuf, c->counts, c->displs, c->datatype, c->comm,
                     c->stream),
      MPI_Alltoallv(m->in, m->counts, m->displs, m->datatype, m->out, m->counts, m->displs, m->datatype,
                    m->comm))
CALLS(gather, PEER_Gather(c->sendbuf, c->recvbuf, c->count, c->datatype, c->root, c->comm, c->stream),
      MPI_Gather(m->in, m->count, m->datatype, m->out, m->count, m->datatype, m->root, m->comm))
CALLS(scatter, PEER_Scatter(c->sendbuf, c->recvbuf, c->count, c->datatype, c->root, c->comm, c->stream),
      MPI_Scatter(m->in, m->count, m->datatype, m->out, m->count, m->datatype, m->root, m->comm))
CALLS(barrier, PEER_Barrier(c->comm, c->stream), MPI_Barrier(m->comm))

/* ---- The table ------------------------------------------------------------------------------------------ */

static double once(int nranks)
{
    (void)nranks;
    return 1;
}

static double to_others(int nranks)
{
    return (nranks - 1.0) / nranks;
}

static double to_others_twice(int nranks)
{
    return 2 * to_others(nranks);
}

#define ROW(name, send, recv, flags, busbw)                                                                  \
    {                                                                                                        \
        #name, send, recv, flags, busbw, name##_run, name##_mpi                                              \
    }

static const struct perf_collective collectives[] = {
    ROW(allreduce, PERF_BLOCK, PERF_BLOCK, PERF_REDUCES, to_others_twice),
    ROW(reduce, PERF_BLOCK, PERF_BLOCK, PERF_REDUCES | PERF_TO_ROOT, once),
    ROW(bcast, PERF_BLOCK, PERF_BLOCK, PERF_FROM_ROOT | PERF_ONE_BUFFER, once),
    ROW(allgather, PERF_BLOCK, PERF_BLOCKS, 0, to_others),
    ROW(allgatherv, PERF_BLOCK, PERF_BLOCKS, 0, to_others),
    ROW(reduce_scatter_block, PERF_BLOCKS, PERF_BLOCK, PERF_REDUCES, to_others),
    ROW(reduce_scatter, PERF_BLOCKS, PERF_BLOCK, PERF_REDUCES, to_others),
    ROW(alltoall, PERF_BLOCKS, PERF_BLOCKS, 0, to_others),
    ROW(alltoallv, PERF_BLOCKS, PERF_BLOCKS, 0, to_others),
    ROW(gather, PERF_BLOCK, PERF_BLOCKS, PERF_TO_ROOT, to_others),
    ROW(scatter, PERF_BLOCKS, PERF_BLOCK, PERF_FROM_ROOT, to_others),
    ROW(barrier, PERF_NOTHING, PERF_NOTHING, 0, once),
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

/* ---- What a row comes to -------------------------------------------------------------------------------- */

bool perf_collective_is_rooted(const struct perf_collective *collective)
{
    return (collective->flags & (PERF_FROM_ROOT | PERF_TO_ROOT)) != 0;
}

size_t perf_collective_blocks(const struct perf_collective *collective, int nranks)
{
    return collective->send == PERF_BLOCKS || collective->recv == PERF_BLOCKS ? (size_t)nranks : 1;
}

static size_t elements(enum perf_amount amount, size_t count, int nranks)
{
    return amount == PERF_BLOCKS ? (size_t)nranks * count : amount == PERF_BLOCK ? count : 0;
}

/* In place is as MPI has it: where there is a root, the root alone. */
struct perf_call perf_call_of(const struct perf *perf, const struct perf_case *c, enum perf_place place)
{
    const struct perf_collective *collective = perf->options.collective;
    bool sends = !(collective->flags & PERF_FROM_ROOT) || perf->rank == c->root;
    bool receives = !(collective->flags & PERF_TO_ROOT) || perf->rank == c->root;
    bool in_place = place == PERF_IN_PLACE && sends && receives;
    struct perf_call call = {
        .sendbuf = perf->send,
        .recvbuf = perf->recv,
        .count = c->count,
        .counts = perf->counts,
        .displs = perf->displs,
        .datatype = c->datatype,
        .op = c->op,
        .root = c->root,
        .comm = perf->comm,
        .stream = perf->bed.stream,
        .collective = collective,
        .mpi = &perf->mpi,
        .input = perf->send,
        .output = perf->recv,
        .ninput = sends ? elements(collective->send, c->count, perf->size) : 0,
        .noutput = receives ? elements(collective->recv, c->count, perf->size) : 0,
    };
    size_t own = (size_t)perf->rank * (c->bytes / perf_collective_blocks(collective, perf->size));

    if (collective->flags & PERF_ONE_BUFFER) {
        call.sendbuf = call.input = perf->recv;
    } else if (in_place && (collective->flags & PERF_FROM_ROOT)) {
        call.recvbuf = (void *)PEER_IN_PLACE;
        call.output = (char *)perf->send + own;
    } else if (in_place) {
        call.sendbuf = PEER_IN_PLACE;
        call.input = perf->recv;
        if (collective->send == PERF_BLOCK && collective->recv == PERF_BLOCKS)
            call.input = (char *)perf->recv + own;
    }
    return call;
}

/* ---- MPI ------------------------------------------------------------------------------------------------ */

/* What MPI has no arithmetic for it can still move. */
static const struct {
    PEER_Datatype ours;
    MPI_Datatype theirs;
    bool reduces;
} mpi_datatypes[] = {
    {PEER_INT8, MPI_INT8_T, true},
    {PEER_UINT8, MPI_UINT8_T, true},
    {PEER_INT16, MPI_INT16_T, true},
    {PEER_UINT16, MPI_UINT16_T, true},
    {PEER_INT32, MPI_INT32_T, true},
    {PEER_UINT32, MPI_UINT32_T, true},
    {PEER_INT64, MPI_INT64_T, true},
    {PEER_UINT64, MPI_UINT64_T, true},
    {PEER_FLOAT32, MPI_FLOAT, true},
    {PEER_FLOAT64, MPI_DOUBLE, true},
    {PEER_COMPLEX64, MPI_C_FLOAT_COMPLEX, true},
    {PEER_COMPLEX128, MPI_C_DOUBLE_COMPLEX, true},
    {PEER_BOOL, MPI_C_BOOL, true},
    {PEER_FLOAT16, MPI_UINT16_T, false},
    {PEER_BFLOAT16, MPI_UINT16_T, false},
    {PEER_FLOAT8_E4M3, MPI_UINT8_T, false},
    {PEER_FLOAT8_E5M2, MPI_UINT8_T, false},
};

static const struct {
    PEER_Op ours;
    MPI_Op theirs;
} mpi_ops[] = {
    {PEER_SUM, MPI_SUM},   {PEER_PROD, MPI_PROD}, {PEER_MIN, MPI_MIN},   {PEER_MAX, MPI_MAX},
    {PEER_LAND, MPI_LAND}, {PEER_LOR, MPI_LOR},   {PEER_LXOR, MPI_LXOR}, {PEER_BAND, MPI_BAND},
    {PEER_BOR, MPI_BOR},   {PEER_BXOR, MPI_BXOR},
};

static MPI_Datatype mpi_datatype(PEER_Datatype datatype, bool reduces)
{
    for (size_t i = 0; i < sizeof mpi_datatypes / sizeof mpi_datatypes[0]; i++)
        if (mpi_datatypes[i].ours == datatype && (mpi_datatypes[i].reduces || !reduces))
            return mpi_datatypes[i].theirs;
    return MPI_DATATYPE_NULL;
}

static MPI_Op mpi_op(PEER_Op op)
{
    for (size_t i = 0; i < sizeof mpi_ops / sizeof mpi_ops[0]; i++)
        if (mpi_ops[i].ours == op)
            return mpi_ops[i].theirs;
    return MPI_OP_NULL;
}

bool perf_mpi_serves(const struct perf_call *call, int nranks)
{
    bool reduces = (call->collective->flags & PERF_REDUCES) != 0;

    return call->count <= (size_t)(INT_MAX / nranks) &&
           mpi_datatype(call->datatype, reduces) != MPI_DATATYPE_NULL &&
           (!reduces || mpi_op(call->op) != MPI_OP_NULL);
}

int perf_mpi_run(const struct perf_call *call, int iters)
{
    const struct perf_mpi *mpi = call->mpi;
    bool reduces = (call->collective->flags & PERF_REDUCES) != 0, staged = mpi->in != NULL;
    struct perf_mpi_call m = {
        .in = staged ? mpi->in : call->sendbuf,
        .out = staged ? mpi->out : call->recvbuf,
        .count = (int)call->count,
        .counts = mpi->counts,
        .displs = mpi->displs,
        .datatype = mpi_datatype(call->datatype, reduces),
        .op = mpi_op(call->op),
        .root = call->root,
        .comm = mpi->comm,
    };
    void *in = call->collective->flags & PERF_ONE_BUFFER ? mpi->out : mpi->in;
    size_t element;

    PEER_Datatype_size(call->datatype, &element);
    for (int i = 0; i < iters; i++) {
        if (!staged)
            bed_sync(mpi->bed); /* on the cuda device a barrier is reached when the stream's work is done */
        else if (call->ninput > 0)
            bed_get(mpi->bed, in, call->input, call->ninput * element);
        call->collective->mpi(&m);
        if (staged && call->noutput > 0 && call->output != call->input)
            bed_put(mpi->bed, call->output, mpi->out, call->noutput * element);
    }
    return PEER_SUCCESS;
}
