/* test_allreduce [SETTINGS [few]]: every datatype, operation, algorithm and protocol, at the counts where something
 * changes (packs, ranks, pieces), in and out of place, with pointers off their alignment: bits equal to the
 * reference on every rank, guard bytes and send buffers untouched. SETTINGS ("staging_bytes=16K,blocks=3") go
 * to every communicator; the staging is small, so that a few thousand elements take several pieces. "few": a
 * third of the counts, and two of the datatypes, for many ranks on few cores. */
#include <stdlib.h>
#include <string.h>

#include "trial.h"
#include "test.h"

#define MAX_COUNTS 40
#define WINDOWS    977 /* elements by which calls are shifted against each other, at most */

/* What a call looks like beside its count. */
struct shape {
    enum trial_place even, odd; /* on the ranks of even and odd number */
    size_t send_shift, recv_shift;
};

/* Half of them out of place on all ranks. */
static const struct shape shapes[] = {
    {TRIAL_OUT_OF_PLACE, TRIAL_OUT_OF_PLACE, 0, 0}, {TRIAL_OUT_OF_PLACE, TRIAL_OUT_OF_PLACE, 1, 0},
    {TRIAL_OUT_OF_PLACE, TRIAL_OUT_OF_PLACE, 0, 1}, {TRIAL_OUT_OF_PLACE, TRIAL_OUT_OF_PLACE, 1, 1},
    {TRIAL_IN_PLACE, TRIAL_IN_PLACE, 0, 0},         {TRIAL_SAME_POINTER, TRIAL_SAME_POINTER, 1, 1},
    {TRIAL_IN_PLACE, TRIAL_OUT_OF_PLACE, 0, 0},     {TRIAL_SAME_POINTER, TRIAL_IN_PLACE, 1, 1},
};

#define SHAPES (sizeof shapes / sizeof *shapes)

static bool few;

struct counts {
    size_t n;
    size_t at[MAX_COUNTS];
};

/* No count is larger: a message of 43,008 bytes, or what takes several pieces. */
static size_t most_elements(PEER_Datatype type)
{
    return reference_element(type) == 1 ? 43008 : 43008 / 2;
}

static void add_count(struct counts *counts, size_t count)
{
    for (size_t i = 0; i < counts->n; i++)
        if (counts->at[i] == count)
            return;
    TEST_TRUE(counts->n < MAX_COUNTS);
    counts->at[counts->n++] = count;
}

/* A call as the library cuts it up. */
static struct peer_call geometry(PEER_Comm comm, PEER_Datatype type, int algorithm, size_t count)
{
    struct peer_call call = {
        .nranks = (uint32_t)comm->size, .blocks = 1, .count = count, .staging = comm->peers.staging};
    trial_set_algorithm(algorithm, &call);
    peer_set_islands(&call, comm->grouping.island, comm->grouping.n);
    peer_set_geometry(&call, (uint32_t)reference_element(type), comm->device.ops->vector_bytes());
    return call;
}

/* The elements of one pack, the most of a message in one piece, and those of a piece where there are several. */
static void boundaries(PEER_Comm comm, PEER_Datatype type, int algorithm, size_t *pack, size_t *one,
                       size_t *piece)
{
    size_t low = 1, high = comm->peers.staging + 1; /* elements that fit in one piece, and that don't */
    TEST_INT(geometry(comm, type, algorithm, low).npieces, 1);
    TEST_TRUE(geometry(comm, type, algorithm, high).npieces > 1);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (geometry(comm, type, algorithm, middle).npieces == 1)
            low = middle;
        else
            high = middle;
    }
    *one = low;
    for (*pack = 1; geometry(comm, type, algorithm, *pack + 1).npacks == 1;)
        ++*pack;
    *piece = geometry(comm, type, algorithm, low + 1).piece_packs * *pack;
}

static struct counts choose_counts(PEER_Comm comm, PEER_Datatype type, int algorithm)
{
    struct counts counts = {0};
    size_t small[] = {0, 1, 2, 3, 5, 7, 8, 1023, 1025};
    size_t n = (size_t)comm->size, pack, one, piece;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        add_count(&counts, small[i]);
    add_count(&counts, 43008 / reference_element(type));
    if (n == 1)
        return counts;
    boundaries(comm, type, algorithm, &pack, &one, &piece);
    size_t edges[] = {pack, pack * n, pack * n + 1, one, 2 * piece, 5 * piece, 6 * piece};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (size_t d = 0; d < 3; d++)
            add_count(&counts, edges[i] - 1 + d);
    add_count(&counts, 3 * piece + 5);
    return counts;
}

static void run_shape(struct trial_buffers *buffers, PEER_Comm comm, struct trial trial,
                      const struct shape *shape)
{
    static unsigned calls;
    trial.first = ++calls * 31 % WINDOWS;
    trial.place = comm->rank % 2 == 0 ? shape->even : shape->odd;
    trial.send_shift = shape->send_shift;
    trial.recv_shift = shape->recv_shift;
    trial_run(buffers, &trial, comm);
}

/* SUM of the datatypes that have kernels of their own in every shape; all operations, which differ in nothing
 * but the arithmetic, in turn, out of place and in place. */
static void run_counts(struct trial_buffers *buffers, PEER_Comm comm, const struct reference *ref,
                       int algorithm)
{
    static uint64_t turn;
    bool hot = ref->type == PEER_FLOAT16 || ref->type == PEER_BFLOAT16 || ref->type == PEER_FLOAT32;
    struct counts counts = choose_counts(comm, ref->type, algorithm);
    for (size_t c = 0; c < counts.n; c += few ? 3 : 1) {
        struct trial trial = {.ref = ref, .op = PEER_SUM, .count = counts.at[c]};
        for (size_t s = 0; s < SHAPES && hot; s++)
            run_shape(buffers, comm, trial, &shapes[s]);
        for (int i = 0; i < 2; i++) {
            trial.op = reference_op(ref->type, turn++);
            run_shape(buffers, comm, trial, &shapes[(c + trial.op) % (SHAPES / 2)]);
            run_shape(buffers, comm, trial, &shapes[(c + trial.op) % (SHAPES / 2) + SHAPES / 2]);
        }
    }
}

/* The last call took the way that was asked for. */
static void check_plan(PEER_Comm comm, const char *algorithm)
{
    const char *plan = trial_info(comm, "plan");
    if (comm->size == 1)
        TEST_TEXT(plan, "self");
    else
        TEST_CONTAINS(plan, algorithm);
}

/* The references of the datatypes that are tried, in the order of an algorithm. */
static void make_references(struct reference *refs, int algorithm, int rank, int size)
{
    const struct reference_order order = trial_order(algorithm, size);
    for (int type = 0; type < PEER_N_DATATYPES; type++) {
        reference_free(&refs[type]);
        if (!few || type == PEER_BFLOAT16 || type == PEER_FLOAT32)
            reference_make_in(&order, &refs[type], (PEER_Datatype)type, 1, rank, size,
                              most_elements((PEER_Datatype)type) + WINDOWS);
    }
}

static void run_algorithm(const char *settings, int algorithm, struct reference *refs)
{
    char text[256];
    struct bed bed;
    struct trial_buffers buffers;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(text, sizeof text, "transport=ipc %s %s", trial_settings(algorithm, size), settings);
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, text);
    bed_open(&bed, comm);
    trial_open(&buffers, &bed, most_elements(PEER_COMPLEX128) * 16);
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        if (refs[type].count > 0)
            run_counts(&buffers, comm, &refs[type], algorithm);
    check_plan(comm, trial_algorithm(algorithm));
    trial_agree(&buffers, MPI_COMM_WORLD);
    trial_close(&buffers);
    bed_close(&bed);
    trial_free(&comm);
}

int main(int argc, char **argv)
{
    static struct reference refs[PEER_N_DATATYPES];
    char settings[128] = "staging_bytes=16K";
    int rank, size;
    trial_begin(&argc, &argv, &rank, &size);
    if (argc > 1)
        snprintf(settings, sizeof settings, "%s", argv[1]);
    few = argc > 2 && strcmp(argv[2], "few") == 0;
    for (char *comma = settings; (comma = strchr(comma, ',')) != NULL;)
        *comma = ' ';
    for (int algorithm = 0; algorithm < TRIAL_ALGORITHMS; algorithm++) {
        if (algorithm == 0 || algorithm >= TRIAL_ISLAND)
            make_references(refs, algorithm, rank, size);
        run_algorithm(settings, algorithm, refs);
    }
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_free(&refs[type]);
    MPI_Finalize();
    test_pass();
}
