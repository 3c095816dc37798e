/* test_errors_collectives: what every collective does with arguments that are not legal: the right status, a
 * text that names the argument, buffers as they were, and a communicator as usable as before; on all ranks,
 * and on those alone that need the argument. And what looks like an error and is none.
 *
 * Any number of ranks; the host device, whatever PEER_DEVICE says. */
#include <limits.h>

#include "test.h"

enum kind {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER_BLOCK,
    REDUCE_SCATTER,
    BCAST,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    SCATTER,
    KINDS
};

#define BIT(kind)  (1u << (kind))
#define ALL_KINDS  (BIT(KINDS) - 1)
#define REDUCTIONS (BIT(ALLREDUCE) | BIT(REDUCE) | BIT(REDUCE_SCATTER_BLOCK) | BIT(REDUCE_SCATTER))
#define ROOTED     (BIT(REDUCE) | BIT(BCAST) | BIT(GATHER) | BIT(SCATTER))
#define COUNTED    (BIT(REDUCE_SCATTER) | BIT(ALLGATHERV) | BIT(ALLTOALLV)) /* with an array of counts */
#define PLACED     (BIT(ALLGATHERV) | BIT(ALLTOALLV))                       /* with displacements */
#define BLOCKS     (ALL_KINDS & ~(BIT(ALLREDUCE) | BIT(REDUCE) | BIT(BCAST)))

#define BLOCK        4 /* int32 of one block */
#define BUFFER_BYTES (PEER_MAX_PEERS * BLOCK * 4 * 2)

static int rank, size;
static char *send_bytes, *recv_bytes; /* BUFFER_BYTES each, aligned to 64 */

/* ---- A call --------------------------------------------------------------------------------------------- */

struct arguments {
    const void *sendbuf;
    void *recvbuf; /* of PEER_Bcast: buffer */
    size_t count;
    size_t sendcounts[PEER_MAX_PEERS], sdispls[PEER_MAX_PEERS];
    size_t recvcounts[PEER_MAX_PEERS], rdispls[PEER_MAX_PEERS];
    bool no_sendcounts, no_sdispls, no_recvcounts, no_rdispls; /* NULL instead */
    int datatype, op, root;
    PEER_Comm comm;
};

/* Legal: BLOCK elements from each rank to each, rank 0 is the root. */
static struct arguments legal(PEER_Comm comm)
{
    struct arguments a = {.sendbuf = send_bytes,
                          .recvbuf = recv_bytes,
                          .count = BLOCK,
                          .datatype = PEER_INT32,
                          .op = PEER_SUM,
                          .comm = comm};
    for (int r = 0; r < size; r++) {
        a.sendcounts[r] = a.recvcounts[r] = BLOCK;
        a.sdispls[r] = a.rdispls[r] = (size_t)r * BLOCK;
    }
    return a;
}

static int call(enum kind kind, const struct arguments *a)
{
    PEER_Datatype type = (PEER_Datatype)a->datatype;
    PEER_Op op = (PEER_Op)a->op;
    const size_t *sendcounts = a->no_sendcounts ? NULL : a->sendcounts;
    const size_t *sdispls = a->no_sdispls ? NULL : a->sdispls;
    const size_t *recvcounts = a->no_recvcounts ? NULL : a->recvcounts;
    const size_t *rdispls = a->no_rdispls ? NULL : a->rdispls;
    switch (kind) {
    case ALLREDUCE:
        return PEER_Allreduce(a->sendbuf, a->recvbuf, a->count, type, op, a->comm, NULL);
    case REDUCE:
        return PEER_Reduce(a->sendbuf, a->recvbuf, a->count, type, op, a->root, a->comm, NULL);
    case REDUCE_SCATTER_BLOCK:
        return PEER_Reduce_scatter_block(a->sendbuf, a->recvbuf, a->count, type, op, a->comm, NULL);
    case REDUCE_SCATTER:
        return PEER_Reduce_scatter(a->sendbuf, a->recvbuf, recvcounts, type, op, a->comm, NULL);
    case BCAST:
        return PEER_Bcast(a->recvbuf, a->count, type, a->root, a->comm, NULL);
    case ALLGATHER:
        return PEER_Allgather(a->sendbuf, a->recvbuf, a->count, type, a->comm, NULL);
    case ALLGATHERV:
        return PEER_Allgatherv(a->sendbuf, a->count, a->recvbuf, recvcounts, rdispls, type, a->comm, NULL);
    case ALLTOALL:
        return PEER_Alltoall(a->sendbuf, a->recvbuf, a->count, type, a->comm, NULL);
    case ALLTOALLV:
        return PEER_Alltoallv(a->sendbuf, sendcounts, sdispls, a->recvbuf, recvcounts, rdispls, type, a->comm,
                              NULL);
    case GATHER:
        return PEER_Gather(a->sendbuf, a->recvbuf, a->count, type, a->root, a->comm, NULL);
    case SCATTER:
        return PEER_Scatter(a->sendbuf, a->recvbuf, a->count, type, a->root, a->comm, NULL);
    default:
        return PEER_ERR_INTERNAL;
    }
}

/* A sum over all ranks comes out right, and what the last one sends arrives. */
static void check_usable(PEER_Comm comm)
{
    int32_t mine = rank + 1, sum = 0, sent = rank == size - 1 ? 77 : 0;
    TEST_OK(PEER_Allreduce(&mine, &sum, 1, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(sum, size * (size + 1) / 2);
    TEST_OK(PEER_Bcast(&sent, 1, PEER_INT32, size - 1, comm, NULL));
    TEST_INT(sent, 77);
}

/* ---- One mistake in a legal call -------------------------------------------------------------------------- */

static void no_type(struct arguments *a)
{
    a->datatype = PEER_N_DATATYPES;
}

static void negative_type(struct arguments *a)
{
    a->datatype = -1;
}

static void no_op(struct arguments *a)
{
    a->op = PEER_N_OPS;
}

static void negative_op(struct arguments *a)
{
    a->op = -1;
}

static void illegal_op(struct arguments *a)
{
    a->datatype = PEER_FLOAT32;
    a->op = PEER_BXOR;
}

static void root_negative(struct arguments *a)
{
    a->root = -1;
}

static void root_too_large(struct arguments *a)
{
    a->root = size;
}

static void root_far_too_large(struct arguments *a)
{
    a->root = INT_MAX;
}

static void null_comm(struct arguments *a)
{
    a->comm = PEER_COMM_NULL;
}

static void garbage_comm(struct arguments *a)
{
    static uint64_t garbage[4096]; /* larger than a communicator, and not one */
    a->comm = (PEER_Comm)garbage;
}

static void null_sendcounts(struct arguments *a)
{
    a->no_sendcounts = true;
}

static void null_sdispls(struct arguments *a)
{
    a->no_sdispls = true;
}

static void null_recvcounts(struct arguments *a)
{
    a->no_recvcounts = true;
}

static void null_rdispls(struct arguments *a)
{
    a->no_rdispls = true;
}

static void null_recvcounts_in_place(struct arguments *a)
{
    a->sendbuf = PEER_IN_PLACE;
    a->no_recvcounts = true;
}

static void null_sendbuf(struct arguments *a)
{
    a->sendbuf = NULL;
}

static void null_recvbuf(struct arguments *a)
{
    a->recvbuf = NULL;
}

static void null_both(struct arguments *a)
{
    a->sendbuf = a->recvbuf = NULL;
}

static void null_recvbuf_in_place(struct arguments *a)
{
    a->sendbuf = PEER_IN_PLACE;
    a->recvbuf = NULL;
}

static void odd_sendbuf(struct arguments *a)
{
    a->sendbuf = send_bytes + 1;
}

static void half_aligned_sendbuf(struct arguments *a)
{
    a->sendbuf = send_bytes + 2;
}

static void odd_recvbuf(struct arguments *a)
{
    a->recvbuf = recv_bytes + 3;
}

static void misaligned_complex(struct arguments *a)
{
    a->datatype = PEER_COMPLEX128;
    a->recvbuf = recv_bytes + 4;
}

static void misaligned_in_place(struct arguments *a)
{
    a->sendbuf = PEER_IN_PLACE;
    a->recvbuf = recv_bytes + 1;
}

static void in_place_sendbuf(struct arguments *a)
{
    a->sendbuf = PEER_IN_PLACE;
}

static void in_place_recvbuf(struct arguments *a)
{
    a->recvbuf = (void *)PEER_IN_PLACE;
}

static void overlap_below(struct arguments *a)
{
    a->sendbuf = recv_bytes + 4;
}

static void overlap_above(struct arguments *a)
{
    a->recvbuf = send_bytes + 4;
}

/* A block, neither the first, which would be in place, nor this rank's own. 0 if there is none. */
static int wrong_block(void)
{
    return rank == size - 1 ? size - 2 : size - 1;
}

static void sendbuf_at_wrong_block(struct arguments *a)
{
    a->sendbuf = recv_bytes + wrong_block() * BLOCK * 4;
}

static void recvbuf_at_wrong_block(struct arguments *a)
{
    a->recvbuf = send_bytes + wrong_block() * BLOCK * 4;
}

static void large_count(struct arguments *a)
{
    a->count = SIZE_MAX;
    for (int r = 0; r < size; r++)
        a->recvcounts[r] = a->sendcounts[r] = SIZE_MAX;
}

/* Wraps to a little if nobody looks. */
static void wrapping_count(struct arguments *a)
{
    a->count = SIZE_MAX / 4 + 2;
    for (int r = 0; r < size; r++)
        a->recvcounts[r] = a->sendcounts[r] = a->count;
}

static void large_count_in_place(struct arguments *a)
{
    large_count(a);
    a->sendbuf = PEER_IN_PLACE;
}

/* Only all blocks together are too much. */
static void large_sum(struct arguments *a)
{
    a->count = PTRDIFF_MAX / 4 / (size_t)size + 1;
    for (int r = 0; r < size; r++) {
        a->recvcounts[r] = a->sendcounts[r] = a->count;
        a->rdispls[r] = a->sdispls[r] = (size_t)r * a->count;
    }
}

static void large_rdispl(struct arguments *a)
{
    a->rdispls[size - 1] = SIZE_MAX / 4;
}

static void wrapping_rdispl(struct arguments *a)
{
    a->rdispls[size - 1] = SIZE_MAX;
}

static void wrapping_sdispl(struct arguments *a)
{
    a->sdispls[0] = SIZE_MAX - 1;
}

static void other_sendcount(struct arguments *a)
{
    a->count = BLOCK - 1;
}

static void other_own_count(struct arguments *a)
{
    a->sendcounts[rank]--;
}

static void same_blocks(struct arguments *a)
{
    a->rdispls[1] = a->rdispls[0];
}

static void overlapping_blocks(struct arguments *a)
{
    a->rdispls[0] = a->rdispls[size - 1] + 1;
}

/* ---- Who makes it and what comes of it --------------------------------------------------------------------- */

enum who { EVERYBODY, THE_ROOT, THE_OTHERS, WITH_OTHERS /* more than one rank */, WITH_A_WRONG_BLOCK };

static const struct mistake {
    void (*make)(struct arguments *a);
    unsigned kinds;
    enum who who;
    int wanted;
    const char *part; /* of the text */
} mistakes[] = {
    {no_type, ALL_KINDS, EVERYBODY, PEER_ERR_TYPE, "PEER_Datatype"},
    {negative_type, ALL_KINDS, EVERYBODY, PEER_ERR_TYPE, "PEER_Datatype"},
    {no_op, REDUCTIONS, EVERYBODY, PEER_ERR_OP, "PEER_Op"},
    {negative_op, REDUCTIONS, EVERYBODY, PEER_ERR_OP, "PEER_Op"},
    {illegal_op, REDUCTIONS, EVERYBODY, PEER_ERR_OP, "bxor"},
    {root_negative, ROOTED, EVERYBODY, PEER_ERR_ROOT, "root is -1"},
    {root_too_large, ROOTED, EVERYBODY, PEER_ERR_ROOT, "root"},
    {root_far_too_large, ROOTED, EVERYBODY, PEER_ERR_ROOT, "root is 2147483647"},
    {null_comm, ALL_KINDS, EVERYBODY, PEER_ERR_COMM, "communicator"},
    {garbage_comm, ALL_KINDS, EVERYBODY, PEER_ERR_COMM, "communicator"},

    {null_sendcounts, BIT(ALLTOALLV), EVERYBODY, PEER_ERR_ARG, "sendcounts is NULL"},
    {null_sdispls, BIT(ALLTOALLV), EVERYBODY, PEER_ERR_ARG, "sdispls is NULL"},
    {null_recvcounts, COUNTED, EVERYBODY, PEER_ERR_ARG, "recvcounts is NULL"},
    {null_recvcounts_in_place, COUNTED, EVERYBODY, PEER_ERR_ARG, "recvcounts is NULL"},
    {null_rdispls, BIT(ALLGATHERV), EVERYBODY, PEER_ERR_ARG, "displs is NULL"},
    {null_rdispls, BIT(ALLTOALLV), EVERYBODY, PEER_ERR_ARG, "rdispls is NULL"},

    {null_sendbuf, ALL_KINDS & ~(BIT(BCAST) | BIT(SCATTER)), EVERYBODY, PEER_ERR_BUFFER, "sendbuf is NULL"},
    {null_sendbuf, BIT(SCATTER), THE_ROOT, PEER_ERR_BUFFER, "sendbuf is NULL"},
    {null_recvbuf, ALL_KINDS & ~(BIT(BCAST) | BIT(REDUCE) | BIT(GATHER)), EVERYBODY, PEER_ERR_BUFFER,
     "recvbuf is NULL"},
    {null_recvbuf, BIT(REDUCE) | BIT(GATHER), THE_ROOT, PEER_ERR_BUFFER, "recvbuf is NULL"},
    {null_recvbuf, BIT(BCAST), EVERYBODY, PEER_ERR_BUFFER, "buffer is NULL"},
    {null_both, ALL_KINDS, EVERYBODY, PEER_ERR_BUFFER, "is NULL"},
    {null_recvbuf_in_place, BLOCKS & ~(BIT(GATHER) | BIT(SCATTER)), EVERYBODY, PEER_ERR_BUFFER,
     "recvbuf is NULL"},
    {null_recvbuf_in_place, BIT(REDUCE) | BIT(GATHER), THE_ROOT, PEER_ERR_BUFFER, "recvbuf is NULL"},

    {odd_sendbuf, ALL_KINDS & ~(BIT(BCAST) | BIT(SCATTER)), EVERYBODY, PEER_ERR_BUFFER, "sendbuf"},
    {half_aligned_sendbuf, ALL_KINDS & ~(BIT(BCAST) | BIT(SCATTER)), EVERYBODY, PEER_ERR_BUFFER, "sendbuf"},
    {odd_sendbuf, BIT(SCATTER), THE_ROOT, PEER_ERR_BUFFER, "sendbuf"},
    {odd_recvbuf, ALL_KINDS & ~(BIT(BCAST) | BIT(REDUCE) | BIT(GATHER)), EVERYBODY, PEER_ERR_BUFFER,
     "recvbuf"},
    {odd_recvbuf, BIT(REDUCE) | BIT(GATHER), THE_ROOT, PEER_ERR_BUFFER, "recvbuf"},
    {odd_recvbuf, BIT(BCAST), EVERYBODY, PEER_ERR_BUFFER, "buffer"},
    {misaligned_complex, BIT(ALLREDUCE) | BIT(BCAST) | BIT(ALLTOALL), EVERYBODY, PEER_ERR_BUFFER, "buf"},
    {misaligned_in_place, (BLOCKS | BIT(ALLREDUCE)) & ~(BIT(GATHER) | BIT(SCATTER)), EVERYBODY,
     PEER_ERR_BUFFER, "recvbuf"},

    {in_place_sendbuf, BIT(REDUCE) | BIT(GATHER), THE_OTHERS, PEER_ERR_BUFFER, "sendbuf"},
    {in_place_sendbuf, BIT(SCATTER), THE_ROOT, PEER_ERR_BUFFER, "sendbuf"},
    {in_place_recvbuf, ALL_KINDS & ~(ROOTED), EVERYBODY, PEER_ERR_BUFFER, "recvbuf"},
    {in_place_recvbuf, BIT(REDUCE) | BIT(GATHER), THE_ROOT, PEER_ERR_BUFFER, "recvbuf"},
    {in_place_recvbuf, BIT(SCATTER), THE_OTHERS, PEER_ERR_BUFFER, "recvbuf"},
    {in_place_recvbuf, BIT(BCAST), EVERYBODY, PEER_ERR_BUFFER, "buffer"},

    {overlap_below, ALL_KINDS & ~(ROOTED), EVERYBODY, PEER_ERR_BUFFER, "overlap"},
    {overlap_above, ALL_KINDS & ~(ROOTED), EVERYBODY, PEER_ERR_BUFFER, "overlap"},
    {overlap_below, ROOTED & ~BIT(BCAST), THE_ROOT, PEER_ERR_BUFFER, "overlap"},
    {overlap_above, ROOTED & ~BIT(BCAST), THE_ROOT, PEER_ERR_BUFFER, "overlap"},
    {sendbuf_at_wrong_block, BIT(ALLGATHER) | BIT(ALLGATHERV) | BIT(ALLTOALL) | BIT(ALLTOALLV),
     WITH_A_WRONG_BLOCK, PEER_ERR_BUFFER, "overlap"},
    {recvbuf_at_wrong_block, BIT(REDUCE_SCATTER) | BIT(REDUCE_SCATTER_BLOCK), WITH_A_WRONG_BLOCK,
     PEER_ERR_BUFFER, "overlap"},
    {same_blocks, PLACED, WITH_OTHERS, PEER_ERR_BUFFER, "overlap"},
    {overlapping_blocks, PLACED, WITH_OTHERS, PEER_ERR_BUFFER, "overlap"},

    {large_count, ALL_KINDS, EVERYBODY, PEER_ERR_COUNT, "count"},
    {wrapping_count, ALL_KINDS, EVERYBODY, PEER_ERR_COUNT, "count"},
    {large_count_in_place, (BLOCKS | BIT(ALLREDUCE)) & ~(BIT(GATHER) | BIT(SCATTER)), EVERYBODY,
     PEER_ERR_COUNT, "count"},
    {large_sum, BLOCKS, WITH_OTHERS, PEER_ERR_COUNT, "count"},
    {large_rdispl, PLACED, EVERYBODY, PEER_ERR_COUNT, "displacement"},
    {wrapping_rdispl, PLACED, EVERYBODY, PEER_ERR_COUNT, "displacement"},
    {wrapping_sdispl, BIT(ALLTOALLV), EVERYBODY, PEER_ERR_COUNT, "displacement"},
    {other_sendcount, BIT(ALLGATHERV), EVERYBODY, PEER_ERR_COUNT, "sendcount"},
    {other_own_count, BIT(ALLTOALLV), EVERYBODY, PEER_ERR_COUNT, "recvcounts["},
};

static bool makes_it(enum who who)
{
    switch (who) {
    case THE_ROOT:
        return rank == 0;
    case THE_OTHERS:
        return rank != 0;
    case WITH_OTHERS:
        return size > 1;
    case WITH_A_WRONG_BLOCK:
        return size > 1 && wrong_block() > 0;
    default:
        return true;
    }
}

static void fail_once(PEER_Comm comm, const struct mistake *mistake, enum kind kind)
{
    struct arguments a = legal(comm);
    int status, before = peer_error(PEER_ERR_INTERNAL, "mistake %d in call %d left no text",
                                    (int)(mistake - mistakes), (int)kind);
    mistake->make(&a);
    memset(send_bytes, 0x11, BUFFER_BYTES);
    memset(recv_bytes, 0x22, BUFFER_BYTES);
    status = call(kind, &a);
    TEST_TRUE(status != before);
    TEST_STATUS(status, mistake->wanted);
    TEST_CONTAINS(PEER_Last_error(), mistake->part);
    for (int b = 0; b < BUFFER_BYTES; b++)
        TEST_TRUE(send_bytes[b] == 0x11 && recv_bytes[b] == 0x22);
}

static void test_mistakes(PEER_Comm comm)
{
    for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct arguments a = legal(comm);
            if (!(mistakes[m].kinds & BIT(kind)))
                continue;
            TEST_OK(call((enum kind)kind, &a)); /* a call that the library may take the next one for */
            if (makes_it(mistakes[m].who))
                fail_once(comm, &mistakes[m], (enum kind)kind);
            check_usable(comm);
        }
}

/* ---- Pairs of datatype and operation ------------------------------------------------------------------------ */

/* Written out, since all else that knows it could be wrong alike. A column for each operation, in this order. */
static const PEER_Op columns[] = {PEER_SUM, PEER_PROD, PEER_MIN,  PEER_MAX, PEER_AVG, PEER_LAND,
                                  PEER_LOR, PEER_LXOR, PEER_BAND, PEER_BOR, PEER_BXOR};
static const struct {
    PEER_Datatype datatype;
    const char *legal;
} pairs[] = {
    {PEER_INT8, "+++++++++++"},        {PEER_UINT8, "+++++++++++"},       {PEER_INT16, "+++++++++++"},
    {PEER_UINT16, "+++++++++++"},      {PEER_INT32, "+++++++++++"},       {PEER_UINT32, "+++++++++++"},
    {PEER_INT64, "+++++++++++"},       {PEER_UINT64, "+++++++++++"},      {PEER_FLOAT16, "+++++------"},
    {PEER_BFLOAT16, "+++++------"},    {PEER_FLOAT32, "+++++------"},     {PEER_FLOAT64, "+++++------"},
    {PEER_FLOAT8_E4M3, "+++++------"}, {PEER_FLOAT8_E5M2, "+++++------"}, {PEER_COMPLEX64, "++--+------"},
    {PEER_COMPLEX128, "++--+------"},  {PEER_BOOL, "-----+++---"},
};

static void check_pair(PEER_Comm comm, enum kind kind, PEER_Datatype datatype, PEER_Op op, bool is_legal)
{
    struct arguments a = legal(comm);
    memset(send_bytes, 0, BUFFER_BYTES);
    a.datatype = (int)datatype;
    a.op = (int)op;
    a.count = 1;
    for (int r = 0; r < size; r++)
        a.recvcounts[r] = 1;
    if (is_legal) {
        TEST_OK(call(kind, &a));
        return;
    }
    TEST_STATUS(call(kind, &a), PEER_ERR_OP);
    TEST_CONTAINS(PEER_Last_error(), peer_op_name(op));
    TEST_CONTAINS(PEER_Last_error(), peer_datatype_name(datatype));
    a.count = 0;
    memset(a.recvcounts, 0, sizeof a.recvcounts);
    a.sendbuf = a.recvbuf = NULL;
    TEST_STATUS(call(kind, &a), PEER_ERR_OP);
}

static void test_pairs(PEER_Comm comm)
{
    TEST_INT(sizeof pairs / sizeof *pairs, PEER_N_DATATYPES);
    TEST_INT(sizeof columns / sizeof *columns, PEER_N_OPS);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t p = 0; p < PEER_N_DATATYPES; p++)
            for (size_t o = 0; o < PEER_N_OPS; o++)
                if (REDUCTIONS & BIT(kind))
                    check_pair(comm, (enum kind)kind, pairs[p].datatype, columns[o],
                               pairs[p].legal[o] == '+');
    check_usable(comm);
}

/* ---- What looks like an error and is none ------------------------------------------------------------------- */

/* Nothing to move: no buffer is looked at. */
static void test_empty(PEER_Comm comm)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct arguments a = legal(comm);
        a.count = 0;
        memset(a.recvcounts, 0, sizeof a.recvcounts);
        memset(a.sendcounts, 0, sizeof a.sendcounts);
        a.sendbuf = a.recvbuf = NULL;
        TEST_OK(call((enum kind)kind, &a));
        a.sendbuf = recv_bytes + 1;
        a.recvbuf = recv_bytes + 2;
        TEST_OK(call((enum kind)kind, &a));
        a.datatype = PEER_N_DATATYPES;
        TEST_STATUS(call((enum kind)kind, &a), PEER_ERR_TYPE);
        a.datatype = PEER_INT32;
        a.root = size;
        TEST_STATUS(call((enum kind)kind, &a), ROOTED & BIT(kind) ? PEER_ERR_ROOT : PEER_SUCCESS);
        check_usable(comm);
    }
}

/* On ranks other than the root, the other buffer may be anything. */
static void test_ignored(PEER_Comm comm)
{
    void *const anything[] = {NULL, recv_bytes + 1, (void *)PEER_IN_PLACE, send_bytes, send_bytes + 4};
    for (size_t i = 0; i < sizeof anything / sizeof *anything; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct arguments a = legal(comm);
            if (kind != REDUCE && kind != GATHER && kind != SCATTER)
                continue;
            memset(send_bytes, 0, BUFFER_BYTES);
            if (rank != 0 && kind == SCATTER) {
                a.recvbuf = send_bytes; /* which `anything` overlaps */
                a.sendbuf = anything[i];
            } else if (rank != 0) {
                a.recvbuf = anything[i];
            }
            TEST_OK(call((enum kind)kind, &a));
            check_usable(comm);
        }
}

int main(int argc, char **argv)
{
    PEER_Comm comm;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_rank = rank;
    TEST_TRUE(size <= PEER_MAX_PEERS);
    TEST_INT(posix_memalign((void **)&send_bytes, 64, BUFFER_BYTES), 0);
    TEST_INT(posix_memalign((void **)&recv_bytes, 64, BUFFER_BYTES), 0);
    MPI_Info_create(&info);
    MPI_Info_set(info, "device", "host");
    TEST_OK(PEER_Comm_create(MPI_COMM_WORLD, info, &comm));
    MPI_Info_free(&info);
    test_mistakes(comm);
    test_pairs(comm);
    test_empty(comm);
    test_ignored(comm);
    TEST_OK(PEER_Comm_free(&comm));
    free(send_bytes);
    free(recv_bytes);
    MPI_Finalize();
    test_pass();
}
