/* test_timeout: a rank that doesn't call. For every algorithm and protocol, in one piece and in several, and
 * for the barrier: the others get PEER_ERR_TIMEOUT within bounds, with a text that names the call, its bytes
 * and the rank; so does every later call, at once, and the late rank's own; PEER_Comm_free returns; and
 * another communicator of the same ranks stays right. (On the cuda device the status comes after the stream
 * has ended.)
 * And a rank that is late again and again in one call, each time by less than the limit: the call ends right, though it
 * takes longer than that. */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#include "trial.h"
#include "test.h"

#define TIMEOUT_MS 300
#define COUNT      20000
#define BARRIER    (-1) /* in place of an algorithm */

struct timeout_test {
    int rank, size;
    struct reference ref;
    struct bed bed;
    struct trial_buffers buffers;
    PEER_Comm other; /* never late */
    unsigned calls;
};

static void run_right(struct timeout_test *t, PEER_Comm comm, const struct reference *ref, size_t count)
{
    struct trial trial = {
        .ref = ref, .op = PEER_SUM, .count = count, .first = ++t->calls * 17 % (ref->count - count + 1)};
    trial_run(&t->buffers, &trial, comm);
}

/* Starts the call that not all ranks make. Its result is nobody's. */
static int start(struct timeout_test *t, PEER_Comm comm, int algorithm, size_t count)
{
    struct trial trial = {.ref = &t->ref, .op = PEER_SUM, .count = count};
    if (algorithm == BARRIER)
        return PEER_Barrier(comm, t->bed.stream);
    trial_prepare(&t->buffers, &trial);
    return trial_start(&t->buffers, comm);
}

/* "rank 1 did not arrive", "ranks 1, 3 did not arrive" */
static void name_missing(const bool *missing, int size, char *text)
{
    int n = 0;
    char ranks[128] = "";
    for (int r = 0; r < size; r++)
        if (missing[r])
            sprintf(ranks + strlen(ranks), "%s%d", n++ > 0 ? ", " : "", r);
    sprintf(text, "rank%s %s did not arrive", n > 1 ? "s" : "", ranks);
}

static void check_text(struct timeout_test *t, int algorithm, size_t count, const bool *missing)
{
    char bytes[32], ranks[160];
    snprintf(bytes, sizeof bytes, " %zu bytes", algorithm == BARRIER ? 0 : count * t->ref.element);
    name_missing(missing, t->size, ranks);
    TEST_CONTAINS(PEER_Last_error(), algorithm == BARRIER ? "barrier" : "allreduce");
    if (algorithm != BARRIER)
        TEST_CONTAINS(PEER_Last_error(), bytes);
    TEST_CONTAINS(PEER_Last_error(), ranks);
}

/* A rank that called: it hears of it in time. */
static void wait_in_vain(struct timeout_test *t, PEER_Comm comm, int algorithm, size_t count,
                         const bool *missing)
{
    int async = PEER_SUCCESS;
    double began = bed_now_us(), took_ms;
    int status = start(t, comm, algorithm, count);
    bed_sync(&t->bed);
    took_ms = (bed_now_us() - began) / 1000;
    if (!t->bed.cuda)
        TEST_STATUS(status, PEER_ERR_TIMEOUT);
    TEST_TRUE(took_ms > TIMEOUT_MS / 2 && took_ms < TIMEOUT_MS + 60000);
    TEST_OK(PEER_Comm_get_async_error(comm, &async));
    TEST_STATUS(async, PEER_ERR_TIMEOUT);
    check_text(t, algorithm, count, missing);
}

static void check_broken(struct timeout_test *t, PEER_Comm comm)
{
    double began = bed_now_us();
    for (int i = 0; i < 50; i++) {
        TEST_STATUS(start(t, comm, 0, 10), PEER_ERR_TIMEOUT);
        TEST_STATUS(start(t, comm, BARRIER, 0), PEER_ERR_TIMEOUT);
    }
    bed_sync(&t->bed);
    TEST_TRUE(bed_now_us() - began < 50 * TIMEOUT_MS * 1000.0); /* so none waited */
    TEST_TRUE(strlen(PEER_Last_error()) > 0);
}

static void run_case(struct timeout_test *t, int algorithm, size_t count, const bool *missing)
{
    char settings[256];
    snprintf(settings, sizeof settings, "transport=ipc staging_bytes=16K log=off timeout_ms=%d %s",
             TIMEOUT_MS, algorithm == BARRIER ? "" : trial_settings(algorithm, t->size));
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    const struct reference_order order = trial_order(algorithm, t->size);
    struct reference ref;
    reference_make_in(&order, &ref, PEER_FLOAT32, 32, t->rank, t->size, 500);
    run_right(t, comm, &ref, 100); /* small, so that a busy machine makes it in time */
    MPI_Barrier(MPI_COMM_WORLD);
    if (!missing[t->rank])
        wait_in_vain(t, comm, algorithm, count, missing);
    MPI_Barrier(MPI_COMM_WORLD);
    run_right(t, t->other, &t->ref, count);
    check_broken(t, comm);
    run_right(t, t->other, &t->ref, count);
    reference_free(&ref);
    trial_free(&comm);
}

/* The late rank never calls, but frees at once, and waits for nobody who has given up. */
static void free_early(struct timeout_test *t, int late)
{
    char settings[96];
    bool missing[PEER_MAX_PEERS] = {false};
    snprintf(settings, sizeof settings, "transport=ipc staging_bytes=16K log=off timeout_ms=%d", TIMEOUT_MS);
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    run_right(t, comm, &t->ref, 100);
    MPI_Barrier(MPI_COMM_WORLD);
    missing[late] = true;
    if (t->rank != late)
        wait_in_vain(t, comm, BARRIER, 0, missing);
    trial_free(&comm);
    run_right(t, t->other, &t->ref, 100);
}

/* ---- Late within a call ----------------------------------------------------------------------------------- */

#define STALLS        5
#define STALL_MS      400
#define LONG_LIMIT_MS 1500
#define LONG_COUNT    ((size_t)8 << 20)

static volatile sig_atomic_t stalls;

/* The next stall comes after a millisecond of work. */
static void stall_soon(void)
{
    const struct itimerval soon = {.it_value = {0, 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void stall(int number)
{
    const struct timespec pause = {0, STALL_MS * 1000000L};
    (void)number;
    nanosleep(&pause, NULL);
    if (++stalls < STALLS)
        stall_soon();
}

static void late_again_and_again(struct timeout_test *t)
{
    const struct sigaction action = {.sa_handler = stall};
    float *data = malloc(LONG_COUNT * sizeof *data);
    char settings[96];
    snprintf(settings, sizeof settings, "transport=ipc staging_bytes=16K timeout_ms=%d", LONG_LIMIT_MS);
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    TEST_TRUE(data != NULL);
    for (size_t i = 0; i < LONG_COUNT; i++)
        data[i] = (float)(i % 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (t->rank == 1) {
        TEST_INT(sigaction(SIGALRM, &action, NULL), 0);
        stall_soon();
    }
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, data, LONG_COUNT, PEER_FLOAT32, PEER_SUM, comm, NULL));
    if (t->rank == 1)
        TEST_INT(stalls, STALLS); /* so the others waited for longer than the limit in all */
    for (size_t i = 0; i < LONG_COUNT; i++)
        TEST_TRUE(data[i] == (float)(i % 1000) * (float)t->size);
    free(data);
    trial_free(&comm);
}

int main(int argc, char **argv)
{
    static struct timeout_test t;
    bool missing[PEER_MAX_PEERS] = {false};
    int late = 0;
    trial_begin(&argc, &argv, &t.rank, &t.size);
    TEST_TRUE(t.size > 1 && t.size <= PEER_MAX_PEERS);
    reference_make(&t.ref, PEER_FLOAT32, 31, t.rank, t.size, COUNT + 500);
    t.other = trial_create(MPI_COMM_WORLD, "transport=ipc");
    bed_open(&t.bed, t.other);
    trial_open(&t.buffers, &t.bed, COUNT * t.ref.element);
    for (int algorithm = BARRIER; algorithm < TRIAL_ALGORITHMS; algorithm++)
        for (int large = 0; large < 2; large++) {
            late = (late + 1) % t.size;
            missing[late] = true;
            run_case(&t, algorithm, large ? COUNT : 3, missing);
            if (t.size > 3 && large) { /* two at once */
                missing[(late + 2) % t.size] = true;
                run_case(&t, algorithm, 500, missing);
                missing[(late + 2) % t.size] = false;
            }
            missing[late] = false;
        }
    for (int rank = 0; rank < t.size; rank++)
        free_early(&t, rank);
    if (!t.bed.cuda) /* a signal does not stop a GPU */
        late_again_and_again(&t);
    trial_close(&t.buffers);
    bed_close(&t.bed);
    trial_free(&t.other);
    reference_free(&t.ref);
    MPI_Finalize();
    test_pass();
}
