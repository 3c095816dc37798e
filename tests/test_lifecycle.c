/* test_lifecycle [alive]: communicators come and go.
 *   growth   two hundred are made, used and freed: no descriptors, maps, memory or GPU memory are left, and nothing
 *            in /dev/shm, neither while they live nor after
 *   self     over MPI_COMM_SELF a call is a copy
 *   freed    the MPI communicator that one was made from may be freed at once
 *   refused  a setting that is wrong, or different, on one rank: the same error on all, no hang, nothing left,
 *            and the next communicator works
 *   handles  PEER_COMM_NULL, twice freed and NULL pointers
 *   signals  a timer's, as profilers have them, come all the time
 * With "alive", instead: a communicator that nobody frees ends in MPI_Finalize, with a warning in the log. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "config.h"
#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

#include "trial.h"
#include "test.h"

#define ROUNDS      200
#define WARM_UP     40
#define COUNT       3000
#define SLACK       (ROUNDS / 4) /* a leak on each round is four times that */
#define SLACK_BYTES (2 << 20)

static struct reference ref;
static int size;

/* Runs one checked call, so that the communicator has been used. */
static void use(PEER_Comm comm, const struct reference *data)
{
    struct bed bed;
    struct trial_buffers buffers;
    struct trial trial = {.ref = data, .op = PEER_SUM, .count = COUNT};
    bed_open(&bed, comm);
    trial_open(&buffers, &bed, COUNT * data->element);
    trial_run(&buffers, &trial, comm);
    trial_close(&buffers);
    bed_close(&bed);
}

/* ---- Growth --------------------------------------------------------------------------------------------- */

struct resources {
    long descriptors, maps, resident_bytes, gpu_bytes;
};

static long count_entries(const char *folder)
{
    long n = 0;
    DIR *dir = opendir(folder);
    TEST_TRUE(dir != NULL);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static long count_lines(const char *path)
{
    long n = 0;
    FILE *file = fopen(path, "r");
    TEST_TRUE(file != NULL);
    for (int c; (c = fgetc(file)) != EOF;)
        n += c == '\n';
    fclose(file);
    return n;
}

static long resident(void)
{
    long pages = 0, resident_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    TEST_TRUE(file != NULL && fscanf(file, "%ld %ld", &pages, &resident_pages) == 2);
    fclose(file);
    return resident_pages * sysconf(_SC_PAGESIZE);
}

/* What all processes have on this rank's GPU: the ranks stand still while it is asked. */
static long gpu_in_use(bool cuda)
{
    long used = 0;
#ifdef HAVE_CUDA
    size_t available, total;
    if (cuda) {
        TEST_INT(cudaMemGetInfo(&available, &total), cudaSuccess);
        used = (long)(total - available);
    }
#endif
    (void)cuda;
    return used;
}

static struct resources measure(bool cuda)
{
    struct resources r;
    MPI_Barrier(MPI_COMM_WORLD);
    r = (struct resources){count_entries("/proc/self/fd"), count_lines("/proc/self/maps"), resident(),
                           gpu_in_use(cuda)};
    MPI_Barrier(MPI_COMM_WORLD);
    return r;
}

/* Files of ours in /dev/shm; others' tests may have theirs there for a moment. */
static int segments(void)
{
    int n = 0;
    struct dirent *entry;
    DIR *dir = opendir("/dev/shm");
    if (dir == NULL)
        return 0;
    while ((entry = readdir(dir)) != NULL)
        n += strstr(entry->d_name, "peercoll") != NULL;
    closedir(dir);
    return n;
}

static void check_no_segments(int before)
{
    int now = segments();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int tries = 0; now > before && tries < 50; tries++) {
        usleep(100000);
        now = segments();
    }
    TEST_TRUE(now <= before);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void growth(void)
{
    struct resources before = {0}, after;
    int segments_before = segments();
    bool cuda = false;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < WARM_UP + ROUNDS; round++) {
        PEER_Comm comm =
            trial_create(MPI_COMM_WORLD, round % 2 == 0 ? "nccl=off staging_bytes=64K" : "nccl=off");
        cuda = strcmp(trial_info(comm, "device"), "cuda") == 0;
        if (round % 50 == 0)
            check_no_segments(segments_before);
        use(comm, &ref);
        trial_free(&comm);
        if (round + 1 == WARM_UP)
            before = measure(cuda);
    }
    after = measure(cuda);
    check_no_segments(segments_before);
    TEST_TRUE(after.descriptors < before.descriptors + SLACK); /* of MPI or a driver, now and then */
    TEST_TRUE(after.maps < before.maps + SLACK);
    TEST_TRUE(after.gpu_bytes <= before.gpu_bytes + SLACK_BYTES);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory back */
    TEST_TRUE(after.resident_bytes <= before.resident_bytes + SLACK_BYTES);
#endif
}

/* ---- Kinds of birth and end ------------------------------------------------------------------------------- */

static void self(void)
{
    struct reference mine;
    int n = 0, rank = -1;
    PEER_Comm comm = trial_create(MPI_COMM_SELF, "");
    reference_make(&mine, PEER_BFLOAT16, 5, 0, 1, COUNT);
    TEST_OK(PEER_Comm_size(comm, &n));
    TEST_OK(PEER_Comm_rank(comm, &rank));
    TEST_INT(n, 1);
    TEST_INT(rank, 0);
    TEST_TEXT(trial_info(comm, "transport"), "self");
    use(comm, &mine);
    TEST_OK(PEER_Barrier(comm, NULL));
    reference_free(&mine);
    trial_free(&comm);
}

static void freed(void)
{
    MPI_Comm mpi;
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
    PEER_Comm comm = trial_create(mpi, "");
    MPI_Comm_free(&mpi);
    use(comm, &ref);
    trial_free(&comm);
}

static void refuse(const char *settings_of_last, int wanted, const char *text)
{
    int rank = test_rank;
    PEER_Comm comm = (PEER_Comm)&rank; /* must become PEER_COMM_NULL */
    TEST_STATUS(trial_try_create(MPI_COMM_WORLD, rank == size - 1 ? settings_of_last : "", &comm), wanted);
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_CONTAINS(PEER_Last_error(), text);
    comm = trial_create(MPI_COMM_WORLD, "");
    use(comm, &ref);
    trial_free(&comm);
}

static void refused(void)
{
    struct resources before;
    refuse("blocks=many", PEER_ERR_SETTING, "blocks");
    before = measure(false);
    refuse("blocks=many", PEER_ERR_SETTING, "many");
    refuse("staging_bytes=1000", PEER_ERR_SETTING, "staging_bytes");
    refuse("algorithm=threeshot", PEER_ERR_SETTING, "threeshot");
    if (size > 1) {
        refuse("blocks=3", PEER_ERR_MISMATCH, "rank");
        refuse("epoch_start=77", PEER_ERR_MISMATCH, "rank");
    }
    TEST_INT(measure(false).descriptors, before.descriptors);
}

/* A rank that passes NULL takes part, so that the others don't wait for it, and all get the same. What happens to errors of
 * the user's communicator stays the user's affair. */
static void refused_by_one(void)
{
    PEER_Comm comm = PEER_COMM_NULL;
    MPI_Errhandler before, after;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    TEST_STATUS(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, test_rank == 0 ? NULL : &comm), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "comm is NULL");
    TEST_TRUE(comm == PEER_COMM_NULL);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    TEST_TRUE(before == after);
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&after);
}

static void handles(void)
{
    PEER_Comm null = PEER_COMM_NULL;
    int status;
    TEST_OK(PEER_Comm_free(&null));
    TEST_STATUS(PEER_Comm_free(NULL), PEER_ERR_ARG);
    TEST_STATUS(PEER_Comm_create(MPI_COMM_NULL, MPI_INFO_NULL, &null), PEER_ERR_ARG);
    refused_by_one();
    TEST_STATUS(PEER_Barrier(PEER_COMM_NULL, NULL), PEER_ERR_COMM);
    TEST_STATUS(PEER_Comm_get_async_error(PEER_COMM_NULL, &status), PEER_ERR_COMM);
    TEST_STATUS(PEER_Allreduce(NULL, NULL, 0, PEER_INT32, PEER_SUM, PEER_COMM_NULL, NULL), PEER_ERR_COMM);
}

/* ---- Alive at MPI_Finalize ---------------------------------------------------------------------------------- */

static void read_log(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    TEST_TRUE(file != NULL);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static void alive(void)
{
    char path[] = "/tmp/test_lifecycle-XXXXXX", settings[128], text[4096];
    int segments_before = segments(), fd = mkstemp(path);
    TEST_TRUE(fd >= 0);
    close(fd);
    snprintf(settings, sizeof settings, "log=warn log_file=%s", path);
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    use(comm, &ref);
    check_no_segments(segments_before);
    read_log(path, text, sizeof text);
    TEST_TRUE(strstr(text, "MPI_Finalize") == NULL);
    reference_free(&ref);
    MPI_Finalize();
    read_log(path, text, sizeof text);
    unlink(path);
    TEST_CONTAINS(text, "warn");
    TEST_CONTAINS(text, "MPI_Finalize");
    test_pass();
}

static void on_alarm(int number)
{
    (void)number;
}

static void signals(void)
{
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    TEST_INT(sigaction(SIGALRM, &action, NULL), 0);
    TEST_INT(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int i = 0; i < 3; i++) {
        PEER_Comm comm = trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=4M");
        use(comm, &ref);
        trial_free(&comm);
    }
    TEST_INT(setitimer(ITIMER_REAL, &never, NULL), 0);
}

int main(int argc, char **argv)
{
    int rank;
    trial_begin(&argc, &argv, &rank, &size);
    reference_make(&ref, PEER_FLOAT32, 11, rank, size, COUNT);
    if (argc > 1 && strcmp(argv[1], "alive") == 0)
        alive();
    self();
    freed();
    handles();
    signals();
    growth();
    refused();
    reference_free(&ref);
    MPI_Finalize();
    test_pass();
}
