/* test_fallback: what serves where the peer path doesn't, and how one hears of it.
 *   defaults    PEER_Comm_get_info's keys on an ordinary communicator
 *   through_mpi transport=mpi gives the reference's bits for every datatype and operation, also in several
 *   pieces, and
 *               can't be captured into a CUDA graph
 *   nodes       ranks that claim to be on two nodes go to MPI as a whole, with the reason in the log
 *   refusals    a transport or device asked for by name that can't serve is an error with a reason, on all ranks */
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "trial.h"
#include "test.h"

#define COUNT      3000
#define PART_BYTES (1 << 20) /* of src/staged.c: what one MPI call moves for each rank */

static struct reference refs[PEER_N_DATATYPES];
static int rank, size;

static void use(PEER_Comm comm, const struct reference *ref, size_t count)
{
    static const struct {
        enum trial_place even, odd;
        size_t send_shift, recv_shift;
    } shapes[] = {{TRIAL_OUT_OF_PLACE, TRIAL_OUT_OF_PLACE, 0, 1},
                  {TRIAL_OUT_OF_PLACE, TRIAL_IN_PLACE, 1, 1},
                  {TRIAL_SAME_POINTER, TRIAL_SAME_POINTER, 0, 0}};
    static uint64_t turn;
    struct bed bed;
    struct trial_buffers buffers;
    bed_open(&bed, comm);
    trial_open(&buffers, &bed, count * ref->element);
    for (int i = 0; i < 3; i++, turn++) /* operations in turn */
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct trial trial = {.ref = ref,
                                  .op = reference_op(ref->type, turn),
                                  .first = (ref->count - count) * s / 3,
                                  .count = count,
                                  .place = rank % 2 == 0 ? shapes[s].even : shapes[s].odd,
                                  .send_shift = shapes[s].send_shift,
                                  .recv_shift = shapes[s].recv_shift};
            trial_run(&buffers, &trial, comm);
        }
    trial_agree(&buffers, MPI_COMM_WORLD);
    TEST_OK(PEER_Barrier(comm, bed.stream));
    trial_close(&buffers);
    bed_close(&bed);
}

static void defaults(void)
{
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "");
    TEST_TEXT(trial_info(comm, "nodes"), "1");
    TEST_TEXT(trial_info(comm, "transport"), size == 1 ? "self" : "ipc");
    TEST_TRUE(strlen(trial_info(comm, "nccl")) > 0);
    use(comm, &refs[PEER_FLOAT16], COUNT);
    TEST_TRUE(strlen(trial_info(comm, "plan")) > 0);
    const char *device = getenv("PEER_DEVICE");
    if (device != NULL && strcmp(device, "auto") != 0)
        TEST_TEXT(trial_info(comm, "device"), device);
    trial_free(&comm);

    comm = trial_create(MPI_COMM_WORLD, "device=host algorithm=twoshot.flag blocks=2");
    TEST_TEXT(trial_info(comm, "device"), "host");
    use(comm, &refs[PEER_FLOAT16], COUNT);
    trial_free(&comm);
}

/* ---- MPI ------------------------------------------------------------------------------------------------ */

struct captured {
    struct bed bed;
    PEER_Comm comm;
    void *buffer;
    int status;
};

static void captured_call(void *arg)
{
    struct captured *c = arg;
    c->status = PEER_Allreduce(PEER_IN_PLACE, c->buffer, 16, PEER_INT32, PEER_SUM, c->comm, c->bed.stream);
}

static void capture(PEER_Comm comm)
{
    struct captured c = {.comm = comm};
    bed_open(&c.bed, comm);
    c.buffer = bed_alloc(&c.bed, 64);
    struct bed_graph *graph = bed_capture(&c.bed, captured_call, &c);
    if (c.bed.cuda) {
        TEST_STATUS(c.status, PEER_ERR_UNSUPPORTED);
        TEST_CONTAINS(PEER_Last_error(), "graph");
    } else {
        bed_launch(&c.bed, graph);
        TEST_OK(c.status);
    }
    bed_graph_free(&c.bed, graph);
    bed_free(&c.bed, c.buffer);
    bed_close(&c.bed);
}

static void through_mpi(void)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 7, 8, 1023, COUNT};
    struct reference large;
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "transport=mpi");
    TEST_TEXT(trial_info(comm, "transport"), "mpi");
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            use(comm, &refs[type], counts[i]);
    TEST_TEXT(trial_info(comm, "plan"), "mpi");
    capture(comm);
    reference_make(&large, PEER_FLOAT64, 17, rank, size, (size_t)size * PART_BYTES / sizeof(double) + 5);
    use(comm, &large, large.count);
    reference_free(&large);
    trial_free(&comm);
}

/* ---- Several nodes ---------------------------------------------------------------------------------------- */

static int create_on_two_nodes(const char *settings, PEER_Comm *comm)
{
    char text[256];
    snprintf(text, sizeof text, "node=%s %s", rank % 2 == 0 ? "even" : "odd", settings);
    return trial_try_create(MPI_COMM_WORLD, text, comm);
}

static void read_log(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    TEST_TRUE(file != NULL);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static void nodes(void)
{
    char path[] = "/tmp/test_fallback-XXXXXX", settings[128], text[8192];
    PEER_Comm comm;
    int fd = mkstemp(path);
    TEST_TRUE(fd >= 0);
    close(fd);
    snprintf(settings, sizeof settings, "nccl=off log=info log_file=%s", path);
    TEST_OK(create_on_two_nodes(settings, &comm));
    TEST_TEXT(trial_info(comm, "nodes"), "2");
    TEST_TEXT(trial_info(comm, "transport"), "mpi");
    use(comm, &refs[PEER_BFLOAT16], COUNT);
    TEST_TEXT(trial_info(comm, "plan"), "mpi");
    trial_free(&comm);
    read_log(path, text, sizeof text);
    unlink(path);
    if (rank == 0)
        TEST_CONTAINS(text, "the ranks are on 2 nodes");

    TEST_STATUS(create_on_two_nodes("transport=ipc", &comm), PEER_ERR_UNSUPPORTED);
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_CONTAINS(PEER_Last_error(), "2 nodes");

    /* The same name on all: one node. */
    comm = trial_create(MPI_COMM_WORLD, "node=here transport=ipc");
    TEST_TEXT(trial_info(comm, "nodes"), "1");
    TEST_TEXT(trial_info(comm, "transport"), "ipc");
    use(comm, &refs[PEER_INT64], COUNT);
    trial_free(&comm);
}

/* ---- Refusals ----------------------------------------------------------------------------------------------- */

static bool has_gpu(void)
{
#ifdef HAVE_CUDA
    char why[256];
    return peer_device_cuda.available(why, sizeof why);
#else
    return false;
#endif
}

static void refusals(void)
{
    PEER_Comm comm = PEER_COMM_NULL;
    TEST_STATUS(trial_try_create(MPI_COMM_WORLD, "device=host transport=nccl", &comm), PEER_ERR_UNSUPPORTED);
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_CONTAINS(PEER_Last_error(), "NCCL");
    if (has_gpu()) {
        comm = trial_create(MPI_COMM_WORLD, "device=cuda");
        TEST_TEXT(trial_info(comm, "device"), "cuda");
        use(comm, &refs[PEER_FLOAT32], COUNT);
        trial_free(&comm);
    } else {
        TEST_STATUS(trial_try_create(MPI_COMM_WORLD, "device=cuda", &comm), PEER_ERR_UNSUPPORTED);
        TEST_TRUE(comm == PEER_COMM_NULL);
        TEST_CONTAINS(PEER_Last_error(), "PEER_DEVICE=cuda");
    }
    TEST_STATUS(
        trial_try_create(MPI_COMM_WORLD, "device=cuda transport=nccl nccl=/nowhere/libnccl.so", &comm),
        PEER_ERR_UNSUPPORTED);
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_CONTAINS(PEER_Last_error(), has_gpu() ? "nccl" : "PEER_DEVICE=cuda");
}

int main(int argc, char **argv)
{
    trial_begin(&argc, &argv, &rank, &size);
    TEST_TRUE(size > 1);
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_make(&refs[type], (PEER_Datatype)type, 13, rank, size, COUNT + 500);
    defaults();
    through_mpi();
    nodes();
    refusals();
    defaults();
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_free(&refs[type]);
    MPI_Finalize();
    test_pass();
}
