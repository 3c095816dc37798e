/* test_mixed [CALLS [SETTINGS]]: long runs of all collectives one after the other, on several communicators at
 * once: two over all ranks, one over each half of them, one of each rank alone. Sizes, roots, datatypes and
 * shapes change on every call, and so do algorithm and grid; most messages are small, some take several
 * pieces. One rank or another is late. Several calls are under way before the first is looked at. Every byte
 * is checked (collective.h).
 *
 * A run is of any collectives; or of those in which data go one way only, from one root or to one root, or
 * from a root that changes: with a receiver, or a sender, that is slow all along, a fast one gets as far ahead
 * as the library lets it.
 *
 * The epochs of the communicators begin just before 2^32, or a quarter of it, where the staging is swept. SETTINGS
 * ("transport=mpi") go to every communicator. */
#include <time.h>
#include <unistd.h>

#include "collective.h"
#include "trial.h"
#include "test.h"

#define SLOTS       10         /* calls under way at once */
#define MESSAGE     (64 << 10) /* bytes of the largest */
#define INPUT_BYTES (MESSAGE + (8 << 10))
#define TINY        1000 /* bytes: of runs in which the library may let ranks get ahead by many calls */
#define SLACK       2048 /* bytes for gaps between blocks */
#define MEMBERS     4
#define QUARTER     ((uint32_t)1 << 30)

enum run_kind { RUN_ANY, RUN_ONE_COMM, RUN_ONE_WAY, RUN_ROTATING_ROOT, RUN_KINDS };

/* A communicator, and the data of its ranks. */
struct member {
    PEER_Comm comm;
    struct inputs *inputs;
    int rank, size;
};

struct mixed_test {
    int rank, size;
    uint64_t random;                 /* the same on all ranks */
    struct inputs world, half, self; /* of this rank's half */
    MPI_Comm half_mpi;
    struct member members[MEMBERS];
    struct bed bed;
    struct coll_trial slots[SLOTS];
};

/* What the calls of a run have in common. */
struct run {
    enum run_kind kind;
    enum coll_kind collective; /* of RUN_ONE_WAY */
    const struct member *member;
    int root;
    int slow;     /* a rank of all, or none */
    size_t bytes; /* of the largest message */
    size_t calls;
};

static uint64_t draw(struct mixed_test *t, uint64_t below)
{
    t->random = reference_mix(t->random);
    return t->random % below;
}

/* ---- Communicators -------------------------------------------------------------------------------------- */

static void add_member(struct member *m, MPI_Comm mpi, struct inputs *inputs, uint32_t epoch, const char *own,
                       const char *settings)
{
    char text[256];
    snprintf(text, sizeof text, "transport=ipc epoch_start=%u %s %s", epoch, own, settings);
    m->comm = trial_create(mpi, text);
    m->inputs = inputs;
    TEST_OK(PEER_Comm_rank(m->comm, &m->rank));
    TEST_OK(PEER_Comm_size(m->comm, &m->size));
}

/* Epochs begin so far before `boundary` that calls of several pieces cross it. */
static void open_members(struct mixed_test *t, uint32_t boundary, const char *other, const char *settings)
{
    add_member(&t->members[0], MPI_COMM_WORLD, &t->world, boundary - 10 - (uint32_t)draw(t, 50), "",
               settings);
    add_member(&t->members[1], MPI_COMM_WORLD, &t->world, boundary - 10 - (uint32_t)draw(t, 50), other,
               settings);
    add_member(&t->members[2], t->half_mpi, &t->half, boundary - 10 - (uint32_t)draw(t, 50),
               "staging_bytes=32K", settings);
    add_member(&t->members[3], MPI_COMM_SELF, &t->self, boundary, "", settings);
    bed_open(&t->bed, t->members[0].comm);
    for (int i = 0; i < SLOTS; i++)
        coll_open(&t->slots[i], &t->bed, MESSAGE + SLACK);
}

static void close_members(struct mixed_test *t)
{
    for (int i = 0; i < SLOTS; i++)
        coll_close(&t->slots[i]);
    bed_close(&t->bed);
    for (int i = 0; i < MEMBERS; i++) {
        int status = PEER_ERR_INTERNAL;
        TEST_OK(PEER_Comm_get_async_error(t->members[i].comm, &status));
        TEST_OK(status);
        trial_free(&t->members[i].comm);
    }
}

static void open_inputs(struct mixed_test *t)
{
    int half_size, odd = t->rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, odd, t->rank, &t->half_mpi);
    MPI_Comm_size(t->half_mpi, &half_size);
    inputs_open(&t->world, 1000, t->size, INPUT_BYTES);
    inputs_open(&t->half, 2000 + 100 * (uint64_t)odd, half_size, INPUT_BYTES);
    inputs_open(&t->self, 3000 + 100 * (uint64_t)t->rank, 1, INPUT_BYTES);
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Small sizes more often than large ones. The halves may differ in size: they draw alike. */
static struct coll_call draw_call(struct mixed_test *t, const struct run *run, const struct member *member)
{
    uint64_t one_way = draw(t, 2), any = draw(t, COLL_KINDS), shape = draw(t, UINT64_MAX);
    struct coll_call call = {.kind = (enum coll_kind)any, .type = (PEER_Datatype)draw(t, PEER_N_DATATYPES)};
    size_t most;
    call.op = coll_legal_op(call.type, (PEER_Op)draw(t, PEER_N_OPS));
    if (run->kind == RUN_ONE_WAY)
        call.kind = run->collective;
    if (run->kind == RUN_ROTATING_ROOT)
        call.kind = one_way ? COLL_BCAST : COLL_SCATTER;
    most = run->bytes / reference_element(call.type) >> draw(t, 13);
    coll_draw_shape(&call, shape, member->rank, member->size);
    if (run->kind == RUN_ONE_WAY)
        call.root = run->root % member->size;
    if (coll_has_blocks(call.kind))
        most /= (size_t)member->size;
    coll_draw_counts(&call, shape % (most + 1), member->size);
    call.first = draw(t, 500);
    return call;
}

/* By a time slice, or by less than a call. */
static void be_late(uint64_t how_long)
{
    double until = bed_now_us() + (double)how_long / 10;
    if (how_long % 8 == 0)
        usleep((useconds_t)how_long);
    while (bed_now_us() < until)
        ;
}

/* What otherwise depends on size and timing: the grid and, on the host device, plain or streaming stores. */
static void vary(struct mixed_test *t, PEER_Comm comm)
{
    comm->config.blocks = (uint32_t)draw(t, 6); /* 0: what selection likes */
    comm->last.valid = false;
    comm->pace.streamed = (uint32_t)draw(t, 2);
}

/* Starts n calls, and then looks at them all. */
static void run_batch(struct mixed_test *t, const struct run *run, size_t n)
{
    const struct member *members[SLOTS];
    for (size_t i = 0; i < n; i++) {
        uint64_t any = draw(t, MEMBERS);
        members[i] = run->kind == RUN_ANY ? &t->members[any] : run->member;
        struct coll_call call = draw_call(t, run, members[i]);
        coll_prepare(&t->slots[i], members[i]->inputs, members[i]->rank, &call);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t late = draw(t, 8 * (uint64_t)t->size), how_long = draw(t, 200);
        if (run->slow == t->rank || (run->kind == RUN_ANY && late == (uint64_t)t->rank))
            be_late(how_long);
        vary(t, members[i]->comm);
        coll_must_start(&t->slots[i], members[i]->comm, t->bed.stream);
        if (draw(t, 16) == 0 && run->kind == RUN_ANY)
            TEST_OK(PEER_Barrier(members[i]->comm, t->bed.stream));
    }
    bed_sync(&t->bed);
    for (size_t i = 0; i < n; i++)
        coll_check(&t->slots[i]);
}

/* How many calls it made. Runs of one way stay on one communicator, without any call the other way. */
static size_t run_one(struct mixed_test *t)
{
    static const enum coll_kind one_way[] = {COLL_BCAST, COLL_SCATTER, COLL_GATHER, COLL_REDUCE};
    uint64_t member = draw(t, MEMBERS), slow = draw(t, 2 * (uint64_t)t->size);
    struct run run = {.kind = (enum run_kind)draw(t, RUN_KINDS), .member = &t->members[member]};
    run.collective = one_way[draw(t, 4)];
    run.root = (int)draw(t, (uint64_t)t->size);
    run.bytes = draw(t, 2) || run.kind < RUN_ONE_WAY ? MESSAGE : TINY;
    run.slow = slow < (uint64_t)t->size ? (int)slow : -1; /* on half of the runs nobody */
    run.calls = 10 + draw(t, 90);
    if (run.slow == t->rank)
        usleep(2000); /* others are then far ahead, if they can be */
    for (size_t done = 0; done < run.calls;) {
        size_t n = 1 + draw(t, SLOTS);
        run_batch(t, &run, n);
        done += n;
    }
    return run.calls;
}

int main(int argc, char **argv)
{
    static struct mixed_test t = {.random = 77};
    static const struct {
        uint32_t boundary;
        const char *other; /* settings of the second communicator over all ranks */
    } rounds[] = {{0, "staging_bytes=16K blocks=3"},
                  {QUARTER, "staging_bytes=256K algorithm=oneshot.line"},
                  {2 * QUARTER, "staging_bytes=64K algorithm=oneshot.flag"},
                  {3 * QUARTER, "staging_bytes=32K algorithm=twoshot.ll"}};
    size_t calls, n = sizeof rounds / sizeof *rounds;
    trial_begin(&argc, &argv, &t.rank, &t.size);
    calls = argc > 1 ? (size_t)atoi(argv[1]) : 2000;
    TEST_TRUE(calls > 0);
    open_inputs(&t);
    for (size_t round = 0; round < n; round++) {
        open_members(&t, rounds[round].boundary, rounds[round].other, argc > 2 ? argv[2] : "");
        for (size_t done = 0; done < calls / n;)
            done += run_one(&t);
        close_members(&t);
    }
    inputs_close(&t.world);
    inputs_close(&t.half);
    inputs_close(&t.self);
    MPI_Comm_free(&t.half_mpi);
    MPI_Finalize();
    test_pass();
}
