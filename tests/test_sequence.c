/* test_sequence [STEPS [SEED]]: many calls one after the other, no two alike: datatype, operation, size, place and,
 * with them, algorithm and grid change at random on every call, and so does the communicator: several over all
 * ranks, with different settings, and one over each half of the ranks, all alive at once. Barriers come in
 * between, and one rank or another is late. Several calls are under way before the first is looked at. Every
 * result is checked. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "trial.h"
#include "test.h"

#define SLOTS     6          /* calls under way at once */
#define MAX_BYTES (96 << 10) /* of a message */
#define ELEMENTS  (MAX_BYTES + 4096)
#define MAX_COMMS 8

/* Communicators, each with the data that its ranks combine. */
struct member {
    PEER_Comm comm;
    struct reference *refs; /* by datatype */
};

struct sequence {
    int rank, size;
    uint64_t random; /* the same on all ranks */
    int n;
    struct member members[MAX_COMMS];
    struct reference world[PEER_N_DATATYPES], half[PEER_N_DATATYPES];
    MPI_Comm half_mpi;
    struct bed bed;
    struct trial_buffers slots[SLOTS];
};

static uint64_t draw(struct sequence *s, uint64_t below)
{
    s->random = reference_mix(s->random);
    return s->random % below;
}

static void add_member(struct sequence *s, MPI_Comm mpi, const char *settings, struct reference *refs)
{
    TEST_TRUE(s->n < MAX_COMMS);
    s->members[s->n++] = (struct member){trial_create(mpi, settings), refs};
}

static void open_sequence(struct sequence *s)
{
    int half_rank, half_size, odd = s->rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, odd, s->rank, &s->half_mpi);
    MPI_Comm_rank(s->half_mpi, &half_rank);
    MPI_Comm_size(s->half_mpi, &half_size);
    for (int type = 0; type < PEER_N_DATATYPES; type++) {
        size_t element = reference_element((PEER_Datatype)type);
        reference_make(&s->world[type], (PEER_Datatype)type, 7, s->rank, s->size, ELEMENTS / element);
        reference_make(&s->half[type], (PEER_Datatype)type, 8 + (uint64_t)odd, half_rank, half_size,
                       ELEMENTS / element);
    }
    add_member(s, MPI_COMM_WORLD, "transport=ipc", s->world);
    add_member(s, MPI_COMM_WORLD, "transport=ipc staging_bytes=16K blocks=3", s->world);
    add_member(s, MPI_COMM_WORLD, "transport=ipc algorithm=twoshot.ll staging_bytes=32K blocks=5 threads=96",
               s->world);
    add_member(s, MPI_COMM_WORLD, "transport=ipc algorithm=oneshot.flag staging_bytes=64K blocks=2",
               s->world);
    add_member(s, s->half_mpi, "transport=ipc", s->half);
    add_member(s, s->half_mpi, "transport=ipc algorithm=twoshot.flag staging_bytes=16K blocks=4", s->half);
    bed_open(&s->bed, s->members[0].comm);
    for (int i = 0; i < SLOTS; i++)
        trial_open(&s->slots[i], &s->bed, MAX_BYTES);
}

static void close_sequence(struct sequence *s)
{
    for (int i = 0; i < SLOTS; i++)
        trial_close(&s->slots[i]);
    bed_close(&s->bed);
    while (s->n > 0)
        trial_free(&s->members[--s->n].comm);
    for (int type = 0; type < PEER_N_DATATYPES; type++) {
        reference_free(&s->world[type]);
        reference_free(&s->half[type]);
    }
    MPI_Comm_free(&s->half_mpi);
}

/* Small sizes more often than large ones, powers of two no more often than others. */
static struct trial draw_trial(struct sequence *s, const struct member *member)
{
    const struct reference *ref = &member->refs[draw(s, PEER_N_DATATYPES)];
    size_t most = MAX_BYTES / ref->element >> draw(s, 14);
    struct trial trial = {.ref = ref, .op = reference_op(ref->type, draw(s, PEER_N_OPS))};
    trial.count = draw(s, most + 1);
    trial.first = draw(s, ref->count - trial.count + 1);
    trial.place = (enum trial_place)draw(s, 3);
    trial.send_shift = draw(s, 2);
    trial.recv_shift = draw(s, 2);
    return trial;
}

/* Puts some rank, or nobody, behind the others: now and then by a time slice, mostly by less than a call. */
static void delay(struct sequence *s)
{
    uint64_t who = draw(s, 8 * (uint64_t)s->size), how_long = draw(s, 200);
    if (who != (uint64_t)s->rank)
        return;
    if (how_long % 4 == 0)
        usleep((useconds_t)how_long);
    double until = bed_now_us() + (double)how_long / 10;
    while (bed_now_us() < until)
        ;
}

/* What otherwise depends on size and timing: the grid and, on the host device, plain or streaming stores. */
static void vary(struct sequence *s, PEER_Comm comm)
{
    comm->config.blocks = (uint32_t)draw(s, 6); /* 0: what selection likes */
    comm->last.valid = false;
    comm->pace.streamed = (uint32_t)draw(s, 2);
}

/* A batch: every slot's call, and barriers, then all results. */
static void run_batch(struct sequence *s)
{
    uint64_t n = 1 + draw(s, SLOTS);
    const struct member *members[SLOTS];
    for (uint64_t i = 0; i < n; i++) {
        members[i] = &s->members[draw(s, (uint64_t)s->n)];
        struct trial trial = draw_trial(s, members[i]);
        trial_prepare(&s->slots[i], &trial);
    }
    for (uint64_t i = 0; i < n; i++) {
        delay(s);
        vary(s, members[i]->comm);
        TEST_OK(trial_start(&s->slots[i], members[i]->comm));
        if (draw(s, 16) == 0)
            TEST_OK(PEER_Barrier(members[draw(s, n)]->comm, s->bed.stream));
    }
    bed_sync(&s->bed);
    for (uint64_t i = 0; i < n; i++)
        trial_check(&s->slots[i]);
}

/* Nobody leaves a barrier before the last has come: the clock is the machine's. */
static void check_barrier(struct sequence *s, PEER_Comm comm, int late)
{
    double came, left, last_came, first_left;
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == late)
        usleep(2000);
    came = bed_now_us();
    TEST_OK(PEER_Barrier(comm, s->bed.stream));
    bed_sync(&s->bed);
    left = bed_now_us();
    MPI_Allreduce(&came, &last_came, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&left, &first_left, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    TEST_TRUE(first_left >= last_came);
}

int main(int argc, char **argv)
{
    static struct sequence s = {.random = 2024};
    trial_begin(&argc, &argv, &s.rank, &s.size);
    int steps = argc > 1 ? atoi(argv[1]) : 1000;
    if (argc > 2)
        s.random = strtoull(argv[2], NULL, 10);
    TEST_TRUE(steps > 0);
    open_sequence(&s);
    for (int i = 0; i < steps; i++)
        run_batch(&s);
    for (int late = 0; late < 4 * s.size; late++)
        check_barrier(&s, s.members[late % 4].comm, late % s.size);
    for (int i = 0; i < s.n; i++) {
        int status = PEER_ERR_INTERNAL;
        TEST_OK(PEER_Comm_get_async_error(s.members[i].comm, &status));
        TEST_OK(status);
    }
    close_sequence(&s);
    MPI_Finalize();
    test_pass();
}
