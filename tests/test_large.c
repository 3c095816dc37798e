/* test_large: messages of more than 2^31 elements, where an int would not do: all-reduce, broadcast, and blocks so
 * large, or so far from the begin of the buffer, in Allgatherv and Alltoallv. Each rank needs 2 GB of memory;
 * without that the test is skipped. */
#include "config.h"
#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

#include "collective.h"
#include "tools/bed.h"
#include "trial.h"
#include "test.h"

#define COUNT ((size_t)2147483648u + 4099) /* of int8: bytes */
#define SMALL ((size_t)5)                  /* of what goes beside the large block */
#define SPARE ((size_t)1 << 30)            /* bytes that shall stay free */
#define CHUNK ((size_t)4194301) /* a prime, after which the data begin again: a place plus 2^31 differs */

static int rank, size;
static struct bed bed;
static PEER_Comm comm;
static int8_t *large, *small;  /* on the bed: COUNT and SMALL elements */
static int8_t *chunk, *wanted; /* in plain memory, CHUNK elements */

/* ---- Data ----------------------------------------------------------------------------------------------- */

/* What rank r has at i, and at i plus multiples of CHUNK. */
static int8_t value(int r, size_t i)
{
    return (int8_t)((i * 0x9e3779b97f4a7c15u >> 56) + 37 * (unsigned)r);
}

static int8_t sum(int r, size_t i)
{
    int total = 0;
    (void)r;
    for (int from = 0; from < size; from++)
        total += value(from, i);
    return (int8_t)total;
}

static void compute(int8_t *to, int8_t (*of)(int r, size_t i), int r)
{
    for (size_t i = 0; i < CHUNK; i++)
        to[i] = of(r, i);
}

static size_t piece(size_t at, size_t count)
{
    return count - at < CHUNK ? count - at : CHUNK;
}

static void fill(int8_t *buffer, int r, size_t count)
{
    compute(chunk, value, r);
    for (size_t at = 0; at < count; at += CHUNK)
        bed_put(&bed, buffer + at, chunk, piece(at, count));
}

static void check(const int8_t *buffer, int8_t (*of)(int r, size_t i), int r, size_t count)
{
    compute(wanted, of, r);
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t n = piece(at, count), i = 0;
        bed_get(&bed, chunk, buffer + at, n);
        if (memcmp(chunk, wanted, n) == 0)
            continue;
        while (chunk[i] == wanted[i])
            i++;
        test_begin_failure(__FILE__, __LINE__);
        fprintf(stderr, "element %zu is %d, should be %d", at + i, chunk[i], wanted[i]);
        test_end_failure();
    }
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

static void allreduce(void)
{
    fill(large, rank, COUNT);
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, large, COUNT, PEER_INT8, PEER_SUM, comm, bed.stream));
    bed_sync(&bed);
    check(large, sum, 0, COUNT);
}

static void bcast(void)
{
    int root = size - 1;
    fill(large, rank, COUNT);
    TEST_OK(PEER_Bcast(large, COUNT, PEER_INT8, root, comm, bed.stream));
    bed_sync(&bed);
    check(large, value, root, COUNT);
}

/* Rank 0 has all but a little, and the others' lie behind it. */
static void allgatherv(void)
{
    size_t counts[PEER_MAX_PEERS], displs[PEER_MAX_PEERS], end = COUNT;
    for (int r = 1; r < size; r++) {
        counts[r] = SMALL;
        displs[r] = end -= SMALL + 1;
    }
    counts[0] = end - 1;
    displs[0] = 0;
    fill(large, rank, COUNT);
    fill(small, rank, SMALL);
    TEST_OK(PEER_Allgatherv(rank == 0 ? PEER_IN_PLACE : small, counts[rank], large, counts, displs, PEER_INT8,
                            comm, bed.stream));
    bed_sync(&bed);
    for (int r = 0; r < size; r++)
        check(large + displs[r], value, r, counts[r]);
}

/* From rank 0 to rank 1 almost all, in a ring on to the next a little. */
static void alltoallv(void)
{
    size_t send_counts[PEER_MAX_PEERS] = {0}, recv_counts[PEER_MAX_PEERS] = {0}, displs[PEER_MAX_PEERS] = {0};
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    send_counts[to] = rank == 0 ? COUNT : SMALL;
    recv_counts[from] = from == 0 ? COUNT : SMALL;
    fill(large, rank, COUNT);
    fill(small, rank, SMALL);
    TEST_OK(PEER_Alltoallv(rank == 0 ? large : small, send_counts, displs, rank == 0 ? small : large,
                           recv_counts, displs, PEER_INT8, comm, bed.stream));
    bed_sync(&bed);
    check(rank == 0 ? small : large, value, from, recv_counts[from]);
}

/* ---- Memory --------------------------------------------------------------------------------------------- */

static size_t free_host_memory(void)
{
    char line[128];
    size_t kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %zu", &kilobytes) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kilobytes << 10;
}

/* On all ranks alike. Ranks may share the memory that each sees. */
static bool enough_memory(void)
{
    size_t available = free_host_memory(), total = 0;
    int mine, all;
#ifdef HAVE_CUDA
    if (bed.cuda)
        TEST_INT(cudaMemGetInfo(&available, &total), cudaSuccess);
#endif
    (void)total;
    mine = available > (size_t)size * COUNT + SPARE;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static void run_tests(void)
{
    large = bed_alloc(&bed, COUNT);
    small = bed_alloc(&bed, SMALL);
    chunk = malloc(CHUNK);
    wanted = malloc(CHUNK);
    TEST_TRUE(chunk != NULL && wanted != NULL);
    allreduce();
    bcast();
    allgatherv();
    alltoallv();
    free(wanted);
    free(chunk);
    bed_free(&bed, small);
    bed_free(&bed, large);
}

int main(int argc, char **argv)
{
    bool enough;
    trial_begin(&argc, &argv, &rank, &size);
    TEST_TRUE(size > 1);
    comm = trial_create(MPI_COMM_WORLD, "transport=ipc");
    bed_open(&bed, comm);
    enough = enough_memory();
    if (enough)
        run_tests();
    bed_close(&bed);
    trial_free(&comm);
    if (!enough)
        coll_skip("it takes 2 GB of memory for each rank, and 1 GB to spare");
    MPI_Finalize();
    test_pass();
}
