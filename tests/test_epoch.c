/* test_epoch: results stay right while epochs pass 2^32 and each quarter of it (where staging is swept), for every
 * algorithm and protocol; and nothing that lies in the staging from earlier calls passes for new:
 *   crossing  a few hundred calls of changing size, in one piece and in several, across each boundary
 *   relics    the staging is filled, before the boundary, with a tag that comes after it, as calls of 2^32 epochs
 *             ago would have left it; without the sweep a later call takes that for its peers' data
 *   old_flags the same for flags of blocks that the grid did not have for longer than 2^31 epochs
 *   stale     a large call, many small ones, a large one again */
#include <stdlib.h>
#include <unistd.h>

#include "trial.h"
#include "test.h"

#define QUARTER   ((uint32_t)1 << 30)
#define MAX_COUNT 4000
#define ELEMENTS  (MAX_COUNT + 1024)

static const uint32_t boundaries[] = {0, QUARTER, 2 * QUARTER, 3 * QUARTER};

struct epoch_test {
    int rank, size;
    struct reference refs[PEER_N_DATATYPES];
    struct bed bed;
    struct trial_buffers buffers;
    PEER_Comm comm;
    uint64_t random;
};

static void open_comm(struct epoch_test *t, int algorithm, uint32_t start, const char *more)
{
    char settings[256];
    snprintf(settings, sizeof settings, "transport=ipc %s epoch_start=%u staging_bytes=16K %s",
             trial_settings(algorithm, t->size), start, more);
    t->comm = trial_create(MPI_COMM_WORLD, settings);
    bed_open(&t->bed, t->comm);
    trial_open(&t->buffers, &t->bed, MAX_COUNT * 16);
    t->random = start;
}

static void close_comm(struct epoch_test *t)
{
    trial_close(&t->buffers);
    bed_close(&t->bed);
    trial_free(&t->comm);
}

static void call(struct epoch_test *t, PEER_Datatype type, size_t count)
{
    t->random = reference_mix(t->random);
    struct trial trial = {.ref = &t->refs[type],
                          .op = reference_op(type, 0),
                          .first = t->random % (ELEMENTS - count),
                          .count = count};
    trial_run(&t->buffers, &trial, t->comm);
}

/* A call for which one rank comes late, so that the others surely look at what lies there before its data. */
static void call_with_late_rank(struct epoch_test *t, PEER_Datatype type, size_t count)
{
    static int late;
    late = (late + 1) % t->size;
    MPI_Barrier(MPI_COMM_WORLD);
    if (t->rank == late)
        usleep(1000);
    call(t, type, count);
}

/* The epoch of the next call, from the communicator's state. */
static uint32_t epoch_of(struct epoch_test *t)
{
    struct peer_state state;
    struct peer_device *device = &t->comm->device;
    TEST_OK(device->ops->copy(device, &state, t->comm->peers.state, sizeof state));
    return state.epoch;
}

static bool passed(uint32_t epoch, uint32_t boundary)
{
    return (int32_t)(epoch - boundary) >= 0;
}

static void crossing(struct epoch_test *t, int algorithm, uint32_t boundary, uint32_t before)
{
    static const size_t counts[] = {1, 700, 2, MAX_COUNT, 33, 64, 3000, 5, 1};
    open_comm(t, algorithm, boundary - before, "");
    for (size_t i = 0; i < 100; i++) {
        uint64_t which = reference_mix(i + before);
        call(t, (PEER_Datatype)(which % PEER_N_DATATYPES), counts[i % (sizeof counts / sizeof *counts)]);
        if (i % 16 == 0)
            TEST_OK(PEER_Barrier(t->comm, t->bed.stream));
    }
    TEST_TRUE(passed(epoch_of(t), boundary + 20));
    close_comm(t);
}

/* Fills this rank's staging, but not its flags, with a tag. */
static void fill_staging(struct epoch_test *t, uint32_t tag)
{
    struct peer_device *device = &t->comm->device;
    char *slab = t->comm->peers.slab[t->rank].base;
    size_t bytes = PEER_SLAB_BYTES(t->comm->config.staging_bytes) - PEER_FLAGS_BYTES;
    bed_sync(&t->bed);
    MPI_Barrier(MPI_COMM_WORLD);
    TEST_OK(device->ops->fill(device, slab + PEER_FLAGS_BYTES, tag, bytes / 4));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Calls of one element each up to the tag's, which has as many as fit in one piece. */
static void relics(struct epoch_test *t, int algorithm, uint32_t boundary, uint32_t after)
{
    size_t count = PEER_MAIN_BYTES(16 << 10, PEER_PROTO_LL) / (2 * (size_t)t->size) / 2 /
                   sizeof(int32_t); /* half of it is data */
    uint32_t tag = boundary + after;
    open_comm(t, algorithm, boundary - 5, "");
    fill_staging(t, tag);
    while (epoch_of(t) != tag)
        call(t, PEER_INT32, 1);
    call_with_late_rank(t, PEER_INT32, count);
    TEST_INT(epoch_of(t), tag + 1);
    close_comm(t);
}

/* Sets the flags of block 1 and above, of both halves and phases, to what looks like the future. */
static void age_flags(struct epoch_test *t, uint32_t tag)
{
    struct peer_device *device = &t->comm->device;
    char *slab = t->comm->peers.slab[t->rank].base;
    size_t block_bytes = PEER_MAX_PEERS * PEER_FLAG_STRIDE, set_bytes = PEER_MAX_BLOCKS * block_bytes;
    bed_sync(&t->bed);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t set = 0; set < 2 * PEER_PHASES; set++)
        TEST_OK(device->ops->fill(device, slab + set * set_bytes + block_bytes, tag,
                                  (set_bytes - block_bytes) / 4));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void old_flags(struct epoch_test *t, int algorithm, uint32_t boundary)
{
    open_comm(t, algorithm, boundary - 5, "blocks=1");
    age_flags(t, boundary + QUARTER);
    for (int i = 0; i < 10; i++)
        call(t, PEER_INT32, 1);
    t->comm->config.blocks = 7; /* what a larger message would get by itself */
    t->comm->last.valid = false;
    for (int i = 0; i < 10; i++)
        call_with_late_rank(t, PEER_INT32, MAX_COUNT / 2 - (size_t)i);
    close_comm(t);
}

static void stale(struct epoch_test *t, int algorithm)
{
    open_comm(t, algorithm, 1, "");
    for (size_t round = 0; round < 4; round++) {
        call_with_late_rank(t, PEER_FLOAT32, MAX_COUNT - round);
        for (size_t i = 0; i < 20 + round; i++)
            call(t, (PEER_Datatype)(i % PEER_N_DATATYPES), 1 + i);
        call_with_late_rank(t, PEER_FLOAT32, MAX_COUNT - round);
    }
    close_comm(t);
}

int main(int argc, char **argv)
{
    struct epoch_test t = {0};
    trial_begin(&argc, &argv, &t.rank, &t.size);
    for (int algorithm = 0; algorithm < TRIAL_ALGORITHMS; algorithm++) {
        const struct reference_order order = trial_order(algorithm, t.size);
        for (int type = 0; type < PEER_N_DATATYPES && (algorithm == 0 || algorithm >= TRIAL_ISLAND); type++) {
            reference_free(&t.refs[type]);
            reference_make_in(&order, &t.refs[type], (PEER_Datatype)type, 3, t.rank, t.size, ELEMENTS);
        }
        for (size_t b = 0; b < sizeof boundaries / sizeof *boundaries; b++) {
            crossing(&t, algorithm, boundaries[b], 1);
            crossing(&t, algorithm, boundaries[b], 6); /* the boundary falls inside a call of many pieces */
            crossing(&t, algorithm, boundaries[b], 60);
            if (algorithm != TRIAL_STAGED) { /* it has no tags in its data */
                relics(&t, algorithm, boundaries[b], 8);
                relics(&t, algorithm, boundaries[b], 9);
            }
            old_flags(&t, algorithm, boundaries[b]);
        }
        stale(&t, algorithm);
    }
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_free(&t.refs[type]);
    MPI_Finalize();
    test_pass();
}
