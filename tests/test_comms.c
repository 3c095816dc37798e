/* test_comms: communicators made from others, several in use at once, and ended from outside.
 *   split    order by key, then by rank; MPI_UNDEFINED; subsets whose other ranks go their way; splits of
 *            splits, freed in any order; settings that go on; colors that are not legal
 *   abort    every collective, stuck because a rank does not call, ends with PEER_ERR_ABORTED when that rank,
 *            or another thread of this one, ends the communicator; so does every later call; others of the
 *            same ranks go on
 *   late     every collective without a rank that does not call: PEER_ERR_TIMEOUT, with a text that names both
 *   threads  two communicators in two threads (host device, where MPI allows threads) */
#include <pthread.h>
#include <unistd.h>

#include "collective.h"
#include "trial.h"
#include "test.h"

#define INPUT_BYTES (24 << 10)
#define CAPACITY    (24 << 10)
#define LARGE       (20 << 10) /* bytes: several pieces of the staging of 16K */
#define ROUNDS      30

static int rank, size;
static PEER_Comm world; /* never broken */

/* ---- Use ------------------------------------------------------------------------------------------------ */

/* A communicator at work, with its own data and buffers. */
struct work {
    PEER_Comm comm;
    int rank, size;
    struct inputs inputs;
    struct bed bed;
    struct coll_trial trial;
    uint64_t random;
    int calls;
};

/* seed: the same on the ranks of the communicator, and another for other communicators */
static void open_work(struct work *w, PEER_Comm comm, uint64_t seed)
{
    *w = (struct work){.comm = comm, .random = seed};
    TEST_OK(PEER_Comm_rank(comm, &w->rank));
    TEST_OK(PEER_Comm_size(comm, &w->size));
    inputs_open(&w->inputs, seed * 1000, w->size, INPUT_BYTES);
    bed_open(&w->bed, comm);
    coll_open(&w->trial, &w->bed, CAPACITY);
}

static void close_work(struct work *w)
{
    coll_close(&w->trial);
    bed_close(&w->bed);
    inputs_close(&w->inputs);
}

static struct coll_call make_call(struct work *w, enum coll_kind kind, size_t bytes)
{
    struct coll_call call = {.kind = kind};
    w->random = reference_mix(w->random);
    call.type = (PEER_Datatype)(w->random % PEER_N_DATATYPES);
    call.op = coll_legal_op(call.type, (PEER_Op)(w->random / 32 % PEER_N_OPS));
    if (coll_has_blocks(kind))
        bytes /= (size_t)w->size;
    coll_draw_shape(&call, reference_mix(w->random), w->rank, w->size);
    coll_draw_counts(&call, bytes / reference_element(call.type), w->size);
    return call;
}

static void *run_work(void *arg)
{
    struct work *w = arg;
    for (int i = 0; i < w->calls; i++) {
        struct coll_call call = make_call(w, (enum coll_kind)(i % COLL_KINDS), i % 9 == 0 ? LARGE : 600);
        coll_run(&w->trial, &w->inputs, w->rank, &call, w->comm);
    }
    return NULL;
}

static void use(PEER_Comm comm, uint64_t seed)
{
    struct work w;
    open_work(&w, comm, seed);
    w.calls = COLL_KINDS + 1;
    run_work(&w);
    close_work(&w);
}

/* ---- Split ---------------------------------------------------------------------------------------------- */

static void expect(PEER_Comm comm, int wanted_rank, int wanted_size)
{
    int number = -1;
    TEST_TRUE(comm != PEER_COMM_NULL);
    TEST_OK(PEER_Comm_rank(comm, &number));
    TEST_INT(number, wanted_rank);
    TEST_OK(PEER_Comm_size(comm, &number));
    TEST_INT(number, wanted_size);
}

static PEER_Comm split(PEER_Comm comm, int color, int key)
{
    PEER_Comm out = (PEER_Comm)&out; /* not PEER_COMM_NULL before */
    TEST_OK(PEER_Comm_split(comm, color, key, &out));
    TEST_TRUE((out == PEER_COMM_NULL) == (color == MPI_UNDEFINED));
    return out;
}

/* What ranks pass, so that each knows how the others come out. */
struct choice {
    int color, key;
};

static struct choice choose(int how, int r)
{
    switch (how) {
    case 0: /* halves, in reverse */
        return (struct choice){r % 2, -r};
    case 1: /* all, keys that tie */
        return (struct choice){0, (int)(reference_mix((uint64_t)r) % 3)};
    case 2: /* a color of each rank's own, large */
        return (struct choice){2147483647 - r, 5};
    case 3: /* all but rank 0 */
        return (struct choice){r == 0 ? MPI_UNDEFINED : 3, r};
    case 4: /* nobody */
        return (struct choice){MPI_UNDEFINED, r};
    case 5: /* one pair and the rest apart, keys at both ends of int */
        return (struct choice){r < 2 ? 9 : MPI_UNDEFINED, r % 2 ? -2147483647 - 1 : 2147483647};
    default: /* as they are */
        return (struct choice){7, 0};
    }
}

#define CHOICES 7

static void split_one(int how)
{
    struct choice mine = choose(how, rank);
    int new_rank = 0, new_size = 0;
    PEER_Comm comm = split(world, mine.color, mine.key);
    for (int r = 0; r < size; r++) {
        struct choice other = choose(how, r);
        new_size += other.color == mine.color;
        new_rank +=
            other.color == mine.color && (other.key < mine.key || (other.key == mine.key && r < rank));
    }
    if (comm != PEER_COMM_NULL) { /* the others are on their way to the next split */
        expect(comm, new_rank, new_size);
        use(comm, 10 + (uint64_t)mine.color);
        trial_free(&comm);
    }
}

/* Parents and children at work in turns, and freed in both orders. */
static void split_nested(bool parent_first)
{
    PEER_Comm half = split(world, rank % 2, rank), pair, self;
    expect(half, rank / 2, (size + 1 - rank % 2) / 2);
    pair = split(half, rank / 4, -rank);
    self = split(pair, rank, 0);
    expect(self, 0, 1);
    use(pair, 100 + (uint64_t)(2 * (rank / 4) + rank % 2));
    use(half, 200 + (uint64_t)(rank % 2));
    use(world, 1);
    use(self, 300 + (uint64_t)rank);
    if (parent_first) {
        trial_free(&half);
        use(pair, 400 + (uint64_t)(2 * (rank / 4) + rank % 2));
        trial_free(&pair);
        use(self, 500 + (uint64_t)rank);
        trial_free(&self);
    } else {
        trial_free(&self);
        trial_free(&pair);
        use(half, 600 + (uint64_t)(rank % 2));
        trial_free(&half);
    }
    use(world, 2);
}

/* The settings are the first communicator's; so is what came of "auto". */
static void split_settings(void)
{
    struct work w;
    struct coll_call call;
    PEER_Comm first =
        trial_create(MPI_COMM_WORLD, "transport=ipc algorithm=twoshot.flag staging_bytes=64K blocks=3");
    PEER_Comm second = split(first, 0, -rank), third = split(second, 0, -rank);
    trial_free(&first);
    trial_free(&second);
    TEST_TEXT(trial_info(third, "transport"), size > 1 ? "ipc" : "self");
    TEST_INT(third->config.staging_bytes, 64 << 10);
    open_work(&w, third, 700);
    call = make_call(&w, COLL_ALLREDUCE, 1000);
    coll_run(&w.trial, &w.inputs, w.rank, &call, third);
    TEST_CONTAINS(trial_info(third, "plan"), size > 1 ? "twoshot.flag" : "self");
    close_work(&w);
    trial_free(&third);
    first = trial_create(MPI_COMM_SELF, "");
    second = split(first, 5, 0);
    expect(second, 0, 1);
    TEST_TEXT(trial_info(second, "transport"), "self");
    use(second, 710 + (uint64_t)rank);
    trial_free(&second);
    trial_free(&first);
}

static void split_illegal(void)
{
    PEER_Comm out = (PEER_Comm)&out;
    bool last = rank == size - 1;
    int status, common;
    TEST_STATUS(PEER_Comm_split(world, -1, 0, &out), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "color");
    TEST_TRUE(out == PEER_COMM_NULL);
    TEST_STATUS(PEER_Comm_split(world, 0, 0, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "out is NULL");
    out = (PEER_Comm)&out;
    TEST_STATUS(PEER_Comm_split(PEER_COMM_NULL, 0, 0, &out), PEER_ERR_COMM);
    TEST_TRUE(out == PEER_COMM_NULL);
    use(world, 3);

    /* On the last rank alone: nobody hangs, and the others hear the same. */
    out = (PEER_Comm)&out;
    status = PEER_Comm_split(world, last ? -5 : 0, 0, &out);
    TEST_TRUE((status == PEER_SUCCESS) == (out != PEER_COMM_NULL));
    common = status;
    MPI_Bcast(&common, 1, MPI_INT, 0, MPI_COMM_WORLD);
    TEST_STATUS(status, last ? PEER_ERR_ARG : common);
    if (status == PEER_SUCCESS) {
        use(out, 800);
        trial_free(&out);
    }
    use(world, 4);
}

/* One rank's communicator is broken, which the others can't see: all get its error. */
static void split_broken(void)
{
    PEER_Comm out, comm = trial_create(MPI_COMM_WORLD, "transport=mpi log=off");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        TEST_OK(PEER_Comm_abort(comm));
    TEST_STATUS(PEER_Comm_split(comm, 0, 0, &out), PEER_ERR_ABORTED);
    TEST_CONTAINS(PEER_Last_error(), "abort");
    TEST_TRUE(out == PEER_COMM_NULL);
    trial_free(&comm);
}

static void test_split(void)
{
    for (int how = 0; how < CHOICES; how++)
        split_one(how);
    split_nested(true);
    split_nested(false);
    split_settings();
    split_illegal();
    split_broken();
    for (int round = 0; round < ROUNDS; round++) { /* one is gone before the next, and there is one */
        PEER_Comm comm = split(world, (rank + round) % 3, round % 2 ? -rank : rank);
        TEST_OK(PEER_Barrier(comm, NULL));
        trial_free(&comm);
    }
}

/* ---- Abort ---------------------------------------------------------------------------------------------- */

static PEER_Comm create_to_abort(void)
{
    return trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=16K timeout_ms=100000 log=off");
}

/* After the end: nothing but PEER_Comm_free works, at once, and says why. Others are as before. */
static void check_aborted(struct work *w)
{
    struct coll_call call;
    PEER_Comm out = (PEER_Comm)&out;
    int status = PEER_SUCCESS;
    MPI_Barrier(MPI_COMM_WORLD);
    TEST_OK(PEER_Comm_get_async_error(w->comm, &status));
    TEST_STATUS(status, PEER_ERR_ABORTED);
    TEST_CONTAINS(PEER_Last_error(), "abort");
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        call = make_call(w, (enum coll_kind)kind, 100);
        coll_prepare(&w->trial, &w->inputs, w->rank, &call);
        TEST_STATUS(coll_start(&w->trial, w->comm, w->bed.stream), PEER_ERR_ABORTED);
        TEST_CONTAINS(PEER_Last_error(), "abort");
    }
    TEST_STATUS(PEER_Barrier(w->comm, w->bed.stream), PEER_ERR_ABORTED);
    TEST_STATUS(PEER_Comm_split(w->comm, 0, 0, &out), PEER_ERR_ABORTED);
    TEST_TRUE(out == PEER_COMM_NULL);
    TEST_OK(PEER_Comm_abort(w->comm));
    TEST_OK(PEER_Comm_rank(w->comm, &status));
    TEST_INT(status, rank);
    use(world, 5);
}

static void close_aborted(struct work *w)
{
    bed_sync(&w->bed);
    check_aborted(w);
    close_work(w);
    trial_free(&w->comm);
}

/* A call that can't end without rank `missing`; on all other ranks, or for a result to one root on that. */
static struct coll_call make_stuck_call(struct work *w, enum coll_kind kind, size_t bytes, int missing)
{
    struct coll_call call = make_call(w, kind, bytes);
    if (kind == COLL_BCAST || kind == COLL_SCATTER)
        call.root = missing;
    if (kind == COLL_REDUCE || kind == COLL_GATHER)
        call.root = (missing + 1) % size;
    coll_draw_counts(&call, 1 + bytes / 100, size);
    if (coll_has_counts(kind))
        coll_spread_counts(&call, COLL_SPREAD_EVEN, size);
    return call;
}

/* One piece or several, by turns, and otherwise for other numbers of ranks. */
static size_t bytes_for(int kind)
{
    return (kind + size) % 2 ? LARGE : 100;
}

/* Whether a rank can't end the call without rank `missing`. */
static bool waits(const struct coll_call *call, int missing)
{
    return rank != missing &&
           (rank == call->root || (call->kind != COLL_REDUCE && call->kind != COLL_GATHER));
}

/* The call of a rank that is not missing: it comes back, and says that it was ended if it had to wait. */
static void wait_for_abort(struct work *w, const struct coll_call *call, int missing)
{
    int status;
    coll_prepare(&w->trial, &w->inputs, w->rank, call);
    status = coll_start(&w->trial, w->comm, w->bed.stream);
    bed_sync(&w->bed);
    if (w->bed.cuda || (!waits(call, missing) && status == PEER_SUCCESS))
        return; /* check_aborted sees what became of it */
    TEST_STATUS(status, PEER_ERR_ABORTED);
    TEST_CONTAINS(PEER_Last_error(), "abort");
}

static void abort_from_rank(enum coll_kind kind, size_t bytes)
{
    int missing = (int)((unsigned)kind + bytes) % size;
    struct work w;
    struct coll_call call;
    open_work(&w, create_to_abort(), 900);
    w.calls = 3;
    run_work(&w);
    call = make_stuck_call(&w, kind, bytes, missing);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != missing) {
        wait_for_abort(&w, &call, missing);
    } else {
        usleep(20000); /* so that most others are inside by now; not a condition */
        TEST_OK(PEER_Comm_abort(w.comm));
    }
    close_aborted(&w);
}

static void *abort_soon(void *comm)
{
    usleep(30000);
    TEST_OK(PEER_Comm_abort(comm));
    return NULL;
}

/* Rank 0 never calls; another thread of the last rank, which is inside a call, ends it for all. */
static void abort_from_thread(void)
{
    pthread_t thread;
    struct work w;
    struct coll_call call;
    open_work(&w, create_to_abort(), 901);
    call = make_stuck_call(&w, COLL_ALLREDUCE, 1000, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        TEST_INT(pthread_create(&thread, NULL, abort_soon, w.comm), 0);
    if (rank != 0)
        wait_for_abort(&w, &call, 0);
    if (rank == size - 1)
        TEST_INT(pthread_join(thread, NULL), 0);
    close_aborted(&w);
}

/* While nobody is inside a call; and twice; and by all ranks at once. */
static void abort_idle(bool by_all)
{
    struct work w;
    open_work(&w, create_to_abort(), 902);
    w.calls = COLL_KINDS;
    run_work(&w);
    MPI_Barrier(MPI_COMM_WORLD);
    if (by_all || rank == size - 1) {
        TEST_OK(PEER_Comm_abort(w.comm));
        TEST_OK(PEER_Comm_abort(w.comm));
    }
    close_aborted(&w);
}

/* Parents outlive their children's end, and children their parents'. */
static void abort_family(bool parent)
{
    PEER_Comm comm = create_to_abort(), child = split(comm, 0, 0);
    struct work w;
    use(child, 910);
    use(comm, 911);
    MPI_Barrier(MPI_COMM_WORLD);
    open_work(&w, parent ? comm : child, 912);
    if (rank == 0)
        TEST_OK(PEER_Comm_abort(w.comm));
    check_aborted(&w);
    use(parent ? child : comm, 913);
    close_work(&w);
    trial_free(&comm);
    if (parent)
        use(child, 914);
    trial_free(&child);
}

/* What broke it first stays the reason. */
static void abort_broken(void)
{
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "transport=ipc timeout_ms=100 log=off");
    struct bed bed;
    int status;
    bed_open(&bed, comm);
    if (rank > 0) {
        status = PEER_Barrier(comm, bed.stream);
        bed_sync(&bed);
        if (!bed.cuda)
            TEST_STATUS(status, PEER_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    TEST_OK(PEER_Comm_abort(comm));
    TEST_STATUS(PEER_Barrier(comm, bed.stream), PEER_ERR_TIMEOUT);
    TEST_OK(PEER_Comm_get_async_error(comm, &status));
    TEST_STATUS(status, PEER_ERR_TIMEOUT);
    bed_close(&bed);
    trial_free(&comm);
}

static void abort_self(void)
{
    PEER_Comm comm = trial_create(MPI_COMM_SELF, "log=off");
    TEST_OK(PEER_Comm_abort(comm));
    TEST_STATUS(PEER_Allreduce(NULL, NULL, 0, PEER_INT32, PEER_SUM, comm, NULL), PEER_ERR_ABORTED);
    TEST_STATUS(PEER_Barrier(comm, NULL), PEER_ERR_ABORTED);
    trial_free(&comm);
    TEST_STATUS(PEER_Comm_abort(PEER_COMM_NULL), PEER_ERR_COMM);
}

static void test_abort(void)
{
    abort_self();
    abort_idle(false);
    abort_idle(true);
    abort_family(false);
    abort_family(true);
    if (size == 1)
        return;
    for (int kind = 0; kind < COLL_KINDS; kind++)
        abort_from_rank((enum coll_kind)kind, bytes_for(kind));
    abort_from_thread();
    abort_broken();
}

/* ---- Late ----------------------------------------------------------------------------------------------- */

/* Rank `missing` does not call: all hear, after the time that is set, which call it was and who was missing. */
static void time_out(enum coll_kind kind, size_t bytes)
{
    static const char *const names[] = {"allreduce",      "reduce",   "reduce_scatter_block",
                                        "reduce_scatter", "bcast",    "allgather",
                                        "allgatherv",     "alltoall", "alltoallv",
                                        "gather",         "scatter"};
    int missing = ((int)kind + 1) % size, status;
    char text[64];
    struct work w;
    struct coll_call call;
    _Static_assert(sizeof names / sizeof *names == COLL_KINDS, "a name for each");
    open_work(&w, trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=16K timeout_ms=1000 log=off"),
              920);
    call = make_stuck_call(&w, kind, bytes, missing);
    coll_prepare(&w.trial, &w.inputs, w.rank, &call);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != missing)
        coll_start(&w.trial, w.comm, w.bed.stream);
    bed_sync(&w.bed);
    MPI_Barrier(MPI_COMM_WORLD);
    TEST_STATUS(PEER_Barrier(w.comm, w.bed.stream), PEER_ERR_TIMEOUT);
    TEST_OK(PEER_Comm_get_async_error(w.comm, &status));
    TEST_STATUS(status, PEER_ERR_TIMEOUT);
    snprintf(text, sizeof text, "rank %d did not arrive", missing);
    TEST_CONTAINS(PEER_Last_error(), names[kind]);
    TEST_CONTAINS(PEER_Last_error(), "did not arrive");
    if (kind != COLL_REDUCE && kind != COLL_GATHER) /* in which others than the root may have ended */
        TEST_CONTAINS(PEER_Last_error(), text);
    close_work(&w);
    trial_free(&w.comm);
}

static void test_late(void)
{
    for (int kind = 0; kind < COLL_KINDS && size > 1; kind++)
        time_out((enum coll_kind)kind, bytes_for(kind + 1));
}

/* ---- Threads -------------------------------------------------------------------------------------------- */

static void test_threads(void)
{
    pthread_t threads[2];
    struct work works[2];
    unsigned char element[16];
    PEER_Comm reversed = split(world, 0, -rank);
    open_work(&works[0], world, 7);
    open_work(&works[1], reversed, 8);
    for (int type = 0; type < PEER_N_DATATYPES; type++) /* so that the reference has all its tables */
        inputs_copy(&works[0].inputs, (PEER_Datatype)type, coll_legal_op((PEER_Datatype)type, PEER_SUM),
                    INPUTS_COMBINED, 0, 1, element);
    if (!works[0].bed.cuda) {
        for (int i = 0; i < 2; i++) {
            works[i].calls = 200;
            TEST_INT(pthread_create(&threads[i], NULL, run_work, &works[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            TEST_INT(pthread_join(threads[i], NULL), 0);
    }
    close_work(&works[0]);
    close_work(&works[1]);
    trial_free(&reversed);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_rank = rank;
    world = trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=16K");
    test_split();
    test_abort();
    test_late();
    if (provided == MPI_THREAD_MULTIPLE)
        test_threads();
    trial_free(&world);
    MPI_Finalize();
    test_pass();
}
