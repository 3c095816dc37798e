/* test_chain: calls that need each other's results, with nothing between them that waits: each reads what the one before
 * it on the stream wrote, and overwrites what that one read. In graphs and without, with copies between, on two
 * communicators by turns, in one piece and in several.
 *
 * All ranks begin with the same numbers x, and after every few calls have the same again, x times a power of the number of
 * ranks. A call that began too early would read older numbers, and no later one would mend that.
 *
 *   mpirun -np N tests/test_chain */
#include "trial.h"
#include "test.h"

#define ROUNDS  2  /* of all steps in a body */
#define REPLAYS 60 /* of a body in a graph, and as many without */
#define NUMBERS 61 /* that there are at first: 1, 2, ... */

struct chain {
    struct bed bed;
    PEER_Comm comms[2];
    int size, rank;
    size_t count; /* elements of x and y, a multiple of the ranks */
    int sums;     /* over all ranks, that a body makes one after the other */
    double *x, *y;
};

static void allreduce(struct chain *c, PEER_Comm comm)
{
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, c->x, c->count, PEER_FLOAT64, PEER_SUM, comm, c->bed.stream));
    c->sums++;
}

static void reduce_scatter_allgather(struct chain *c, PEER_Comm comm)
{
    const size_t block = c->count / (size_t)c->size;
    TEST_OK(PEER_Reduce_scatter_block(c->x, c->y, block, PEER_FLOAT64, PEER_SUM, comm, c->bed.stream));
    TEST_OK(PEER_Allgather(c->y, c->x, block, PEER_FLOAT64, comm, c->bed.stream));
    c->sums++;
}

/* To each root in turn. */
static void reduce_bcast(struct chain *c, PEER_Comm comm)
{
    for (int root = 0; root < c->size; root++) {
        TEST_OK(PEER_Reduce(c->x, c->y, c->count, PEER_FLOAT64, PEER_SUM, root, comm, c->bed.stream));
        TEST_OK(PEER_Bcast(c->rank == root ? c->y : c->x, c->count, PEER_FLOAT64, root, comm, c->bed.stream));
        if (c->rank == root)
            bed_copy(&c->bed, c->x, c->y, c->count * sizeof *c->x);
        c->sums++;
    }
}

/* All have the same x, so rank r gets block r of it from everybody, and gathers from one of these. */
static void alltoall_allgather(struct chain *c, PEER_Comm comm)
{
    const size_t block = c->count / (size_t)c->size;
    TEST_OK(PEER_Alltoall(c->x, c->y, block, PEER_FLOAT64, comm, c->bed.stream));
    TEST_OK(PEER_Barrier(comm, c->bed.stream));
    TEST_OK(
        PEER_Allgather(c->y + (size_t)(c->size - 1) * block, c->x, block, PEER_FLOAT64, comm, c->bed.stream));
}

static void body(void *arg)
{
    static void (*const steps[])(struct chain *, PEER_Comm) = {allreduce, reduce_scatter_allgather,
                                                               reduce_bcast, alltoall_allgather};
    struct chain *c = arg;
    for (int i = 0; i < ROUNDS; i++)
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++)
            steps[k](c, c->comms[(i + (int)k) % 2]);
}

static double first_number(size_t i)
{
    return (double)(1 + i % NUMBERS);
}

/* After so many sums, each in the order of ranks. */
static void check(struct chain *c, int sums)
{
    double wanted[NUMBERS], *got = malloc(c->count * sizeof *got);
    TEST_TRUE(got != NULL);
    for (size_t i = 0; i < NUMBERS; i++) {
        wanted[i] = first_number(i);
        for (int k = 0; k < sums; k++) {
            const double x = wanted[i];
            for (int r = 1; r < c->size; r++)
                wanted[i] += x;
        }
    }
    bed_get(&c->bed, got, c->x, c->count * sizeof *got);
    for (size_t i = 0; i < c->count; i++)
        TEST_TRUE(got[i] == wanted[i % NUMBERS]);
    free(got);
}

static void put_numbers(struct chain *c)
{
    double *x = malloc(c->count * sizeof *x);
    TEST_TRUE(x != NULL);
    for (size_t i = 0; i < c->count; i++)
        x[i] = first_number(i);
    bed_put(&c->bed, c->x, x, c->count * sizeof *x);
    free(x);
}

static void test_count(struct chain *c, size_t block)
{
    c->count = block * (size_t)c->size;
    c->x = bed_alloc(&c->bed, c->count * sizeof *c->x);
    c->y = bed_alloc(&c->bed, c->count * sizeof *c->y);
    struct bed_graph *graph = bed_capture(&c->bed, body, c);
    for (int i = 0; i < REPLAYS; i++) {
        put_numbers(c);
        bed_launch(&c->bed, graph);
        c->sums = 0;
        body(c);
        check(c, 2 * c->sums);
    }
    bed_graph_free(&c->bed, graph);
    bed_free(&c->bed, c->y);
    bed_free(&c->bed, c->x);
}

int main(int argc, char **argv)
{
    static const size_t blocks[] = {1, 3, 257, 672, 20000};
    struct chain c = {0};
    trial_begin(&argc, &argv, &c.rank, &c.size);
    c.comms[0] = trial_create(MPI_COMM_WORLD, "transport=ipc");
    c.comms[1] = trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=16K");
    bed_open(&c.bed, c.comms[0]);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        test_count(&c, blocks[i]);
    bed_close(&c.bed);
    trial_free(&c.comms[1]);
    trial_free(&c.comms[0]);
    MPI_Finalize();
    test_pass();
}
