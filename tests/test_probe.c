/* test_probe: the probe of the peer path, what it measures and what it finds.
 *   faults   each fault, made by the probe's own kernels between two ranks and between all: the next path serves, with
 *            right results on all ranks and one warning on rank 0, which names the pair; where the transport is
 *            named, all ranks get the same error
 *   healthy  a full probe fills the matrices, and all ranks have the same figures
 *   cache    what one communicator has measured the next one knows; a file that is broken or not ours is ignored,
 *            and a folder that can't be is no error
 *   off      a path that is not tried serves */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trial.h"
#include "test.h"

#define COUNT 3000

static int rank, size;
static char folder[] = "/tmp/test_probe-XXXXXX"; /* the same name on all ranks */
static struct reference ref;

static void use(PEER_Comm comm)
{
    struct trial_buffers buffers;
    struct trial trial = {
        .ref = &ref, .op = PEER_SUM, .count = COUNT, .place = TRIAL_OUT_OF_PLACE, .recv_shift = 1};
    struct bed bed;
    bed_open(&bed, comm);
    trial_open(&buffers, &bed, COUNT * ref.element);
    for (int i = 0; i < 3; i++)
        trial_run(&buffers, &trial, comm);
    trial_agree(&buffers, MPI_COMM_WORLD);
    trial_close(&buffers);
    bed_close(&bed);
}

static void read_file(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    TEST_TRUE(file != NULL);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

/* ---- Faults ------------------------------------------------------------------------------------------------- */

struct fault {
    const char *kind;
    const char *told; /* of reader and writer, or of writer and reader */
    bool reader_first;
    bool host_only; /* a GPU's own memory is fast even so */
};

static const struct fault pair_faults[] = {
    {"wrong", "rank %d got wrong data from rank %d", true, false},
    {"busy", "rank %d got wrong data from rank %d", true, false},
    {"unseen", "rank %d never saw a flag from rank %d", true, false},
    {"slow", "from rank %d to rank %d", false, false},
};

static const struct fault all_faults[] = {
    {"wrong", "rank 0 got wrong data from rank 1", true, false},
    {"busy", "rank 0 got wrong data from rank 1", true, false},
    {"unseen", "rank 0 never saw a flag from rank 1", true, false},
    {"slow", "no sound link is so slow", true, true},
};

static PEER_Comm create_with(const char *prefix, const char *fault, const char *more, int *status)
{
    PEER_Comm comm = PEER_COMM_NULL;
    char text[400];
    bool unseen = strncmp(fault, "unseen", 6) == 0; /* the deadline passes */
    bool quick = unseen || strncmp(fault, "wrong", 5) == 0;
    snprintf(text, sizeof text, "probe=%s probe_fault=%s%s timeout_ms=%d nccl=off %s",
             quick ? "quick" : "full", prefix, fault, unseen ? 300 : 5000, more);
    *status = trial_try_create(MPI_COMM_WORLD, text, &comm);
    return comm;
}

/* The next path, `serves`, serves, and one line of rank 0's log says so. */
static void falls_back(const char *prefix, const char *fault, const char *told, const char *serves)
{
    char path[64], more[128], log[4096], end[64];
    int status;
    snprintf(path, sizeof path, "%s/log.%d", folder, rank);
    snprintf(more, sizeof more, "log=warn log_file=%s/log.%%r", folder);
    PEER_Comm comm = create_with(prefix, fault, more, &status);
    TEST_OK(status);
    TEST_TEXT(trial_info(comm, "transport"), serves);
    use(comm);
    trial_free(&comm);
    read_file(path, log, sizeof log);
    unlink(path);
    if (rank == 0) {
        snprintf(end, sizeof end, "%s serves instead\n", serves);
        TEST_CONTAINS(log, told);
        TEST_CONTAINS(log, end);
        TEST_TRUE(strchr(log, '\n') == strrchr(log, '\n'));
    } else {
        TEST_TEXT(log, "");
    }
}

static void is_refused(const char *fault, const char *told, const char *transport)
{
    char more[64], text[512] = "", first[512];
    int status;
    snprintf(more, sizeof more, "transport=%s", transport);
    PEER_Comm comm = create_with("", fault, more, &status);
    TEST_STATUS(status, PEER_ERR_UNSUPPORTED);
    TEST_TRUE(comm == PEER_COMM_NULL);
    snprintf(text, sizeof text, "%s", PEER_Last_error());
    TEST_CONTAINS(text, told);
    TEST_CONTAINS(text, transport);
    memcpy(first, text, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    TEST_TEXT(text, first);
}

/* At length: both transports, which takes twice the time. */
static void one_fault(const char *fault, const char *told, bool at_length)
{
    falls_back("ipc.", fault, told, "shm");
    is_refused(fault, told, "ipc");
    if (!at_length)
        return;
    falls_back("", fault, told, "mpi");
    is_refused(fault, told, "shm");
}

static bool on_host(void)
{
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "");
    bool host = strcmp(trial_info(comm, "device"), "host") == 0;
    trial_free(&comm);
    return host;
}

static void faults(void)
{
    const bool host = on_host();
    char fault[64], told[128];
    for (size_t i = 0; i < sizeof pair_faults / sizeof pair_faults[0]; i++) {
        const struct fault *f = &pair_faults[i];
        int writer = i % 2 == 0 ? size - 1 : 0, reader = i % 2 == 0 ? 0 : 1;
        snprintf(fault, sizeof fault, "%s:%d-%d", f->kind, writer, reader);
        snprintf(told, sizeof told, f->told, f->reader_first ? reader : writer,
                 f->reader_first ? writer : reader);
        one_fault(fault, told, true);
    }
    for (size_t i = 0; i < sizeof all_faults / sizeof all_faults[0]; i++) {
        snprintf(fault, sizeof fault, "%s:all", all_faults[i].kind);
        if (host || !all_faults[i].host_only)
            one_fault(fault, all_faults[i].told, i == 0);
    }
    /* What is for shm alone is not ipc's. */
    int status;
    PEER_Comm comm = create_with("shm.", "wrong:all", "transport=ipc", &status);
    TEST_OK(status);
    trial_free(&comm);
}

/* ---- Figures ------------------------------------------------------------------------------------------------ */

static void check_matrix(const float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS])
{
    for (int i = 0; i < PEER_MAX_PEERS; i++)
        for (int j = 0; j < PEER_MAX_PEERS; j++)
            if (i < size && j < size && i != j)
                TEST_TRUE(matrix[i][j] > 0 && isfinite(matrix[i][j]));
            else
                TEST_TRUE(matrix[i][j] == 0);
}

/* Wide bounds: what no machine is, not what this one should be. */
static void check_figures(PEER_Comm comm)
{
    const struct peer_figures *f = &comm->figures;
    const double rates[] = {f->store_gbs,        f->load_gbs,       f->all_store_gbs,
                            f->all_load_gbs,     f->all_both_gbs,   f->ring_store_gbs,
                            f->staged_store_gbs, f->near_store_gbs, f->far_store_gbs};
    struct {
        struct peer_figures figures;
        struct peer_matrices matrices;
    } mine = {comm->figures, comm->matrices}, first = mine;
    TEST_TRUE(f->known);
    TEST_TRUE(f->islands >= 1 && f->islands <= size && f->columns >= 1 && f->columns <= size);
    if (comm->config.islands.nranks == (uint32_t)size)
        TEST_TRUE(f->islands == 2 && f->columns == (size + 1) / 2);
    TEST_TRUE(f->flag_us > 0.001 && f->flag_us < 1e6);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        TEST_TRUE(rates[i] > 0.001 && rates[i] < 1e5);
    check_matrix(comm->matrices.store_gbs);
    check_matrix(comm->matrices.load_gbs);
    check_matrix(comm->matrices.flag_us);
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    TEST_INT(memcmp(&first.figures, &mine.figures, offsetof(struct peer_figures, push_collapsed)), 0);
    TEST_INT(first.figures.push_collapsed, mine.figures.push_collapsed);
    TEST_INT(memcmp(&first.matrices, &mine.matrices, sizeof first.matrices), 0);
}

static void healthy(const char *settings)
{
    char text[128];
    snprintf(text, sizeof text, "probe=full %s", settings);
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, text);
    check_figures(comm);
    use(comm);
    trial_free(&comm);
}

/* ---- Cache -------------------------------------------------------------------------------------------------- */

/* Rank 0: the one file of the cache. */
static void cache_file(char *path, size_t bytes)
{
    char cache[64];
    int files = 0;
    snprintf(cache, sizeof cache, "%s/peercoll", folder);
    DIR *directory = opendir(cache);
    TEST_TRUE(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.') {
            snprintf(path, bytes, "%s/%s", cache, entry->d_name);
            files++;
        }
    closedir(directory);
    TEST_INT(files, 1);
}

static void write_file(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    TEST_TRUE(file != NULL);
    TEST_INT(fwrite(text, 1, length, file), length);
    TEST_INT(fclose(file), 0);
}

/* Whether a communicator that measures nothing knows figures; then they are `wanted`. */
static bool knows(const char *settings, const struct peer_figures *wanted)
{
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    bool known = comm->figures.known;
    if (known) {
        check_figures(comm);
        TEST_TRUE(fabs(comm->figures.all_store_gbs - wanted->all_store_gbs) < 1e-5);
        TEST_TRUE(fabs(comm->figures.flag_us - wanted->flag_us) < 1e-5);
    }
    use(comm);
    trial_free(&comm);
    return known;
}

static void cache(void)
{
    static char text[16384], changed[16384];
    char path[512] = "";
    struct peer_figures wanted;
    TEST_TRUE(
        !knows("probe=quick transport=ipc", NULL)); /* healthy() measured with another size of staging */
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "probe=full transport=ipc");
    wanted = comm->figures;
    trial_free(&comm);
    TEST_TRUE(knows("probe=quick transport=ipc", &wanted));
    TEST_TRUE(knows("transport=ipc", &wanted));
    TEST_TRUE(!knows("probe=quick transport=shm", NULL)); /* another transport's are not its own */
    TEST_TRUE(!knows("probe=off transport=ipc", NULL));
    if (rank == 0) {
        cache_file(path, sizeof path);
        read_file(path, text, sizeof text);
    }
    for (int i = 0; i < 5; i++) {
        if (rank == 0) {
            size_t length = strlen(text);
            char *at;
            memcpy(changed, text, sizeof text);
            if (i == 0) /* broken off */
                length -= 5;
            else if (i == 1)
                length = 0;
            else if (i == 2) /* of another machine */
                changed[strcspn(changed, ",") + 1] = '1';
            else if (i == 3) { /* no number */
                TEST_TRUE((at = strstr(changed, "load_gbs ")) != NULL);
                memset(at + strlen("load_gbs "), 'x', 1);
            } else { /* no rate */
                TEST_TRUE((at = strstr(changed, "\nstore\n 0 ")) != NULL);
                memset(at + strlen("\nstore\n 0 "), '0', strcspn(at + strlen("\nstore\n 0 "), " \n"));
            }
            write_file(path, changed, length);
        }
        TEST_TRUE(!knows("probe=quick transport=ipc", NULL));
    }
    if (rank == 0)
        write_file(path, text, strlen(text));
    TEST_TRUE(knows("probe=quick transport=ipc", &wanted));
    if (rank == 0)
        unlink(path);
    /* Nowhere to write, nowhere to look. */
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    healthy("transport=ipc");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    healthy("transport=ipc");
    TEST_TRUE(!knows("probe=quick transport=ipc", NULL));
}

/* Rank 0: what the test has left, files first. */
static void clean_up(void)
{
    char path[512], name[512];
    snprintf(path, sizeof path, "%s/peercoll", folder);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        snprintf(name, sizeof name, "%.200s/%.200s", path, entry->d_name);
        unlink(name);
    }
    if (directory != NULL)
        closedir(directory);
    rmdir(path);
    TEST_INT(rmdir(folder), 0);
}

int main(int argc, char **argv)
{
    trial_begin(&argc, &argv, &rank, &size);
    TEST_TRUE(size > 1);
    if (rank == 0)
        TEST_TRUE(mkdtemp(folder) != NULL);
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    setenv("XDG_CACHE_HOME", folder, 1);
    reference_make(&ref, PEER_FLOAT32, 5, rank, size, COUNT);
    faults();
    healthy("transport=ipc staging_bytes=16K");
    healthy("transport=shm staging_bytes=1M");
    healthy(size == 2 ? "islands=0,1" : size == 3 ? "islands=0,1,0" : "islands=0,0,1,1,1");
    if (rank == 0)
        clean_up();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        TEST_INT(mkdir(folder, 0700), 0);
    cache();
    if (rank == 0)
        clean_up();
    reference_free(&ref);
    MPI_Finalize();
    test_pass();
}
