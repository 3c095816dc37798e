/* test_streams: streams and graphs of the cuda device.
 *   moving     each call of a chain goes to another stream of another kind and takes the result of the one before,
 *              with nothing but the library's own order between the two, while one stream or another is late
 *   destroyed  a stream ends right after its call
 *   captured   every collective alone in a graph, and all of them in one, in every mode of capture, on a
 *              communicator that has done nothing before
 *   joined     calls on a side stream that events join to the capture, and by turns on both
 *   between    eager calls on other streams before, during and after a capture
 *   two        graphs of two communicators launched at once on two streams
 *   elsewhere  the default streams, while another GPU is current, where there is one
 *   late       a rank launches its graph when the others have given up: its results are right, or not there
 *   refused    CUDA refuses a stream: the communicator is broken, and says so */
#include "config.h"
#include "collective.h"
#include "trial.h"
#include "test.h"

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>

    #define INPUT_BYTES (64 << 10)
    #define CAPACITY    (40 << 10)
    #define MESSAGE     (32 << 10)
    #define BLOCK       1000 /* elements of a block of the chain */
    #define STREAMS     5
    #define ROUNDS      20
    #define LAUNCHES    50
    #define LOAD_BYTES  ((size_t)256 << 20)

static int rank, size;
static uint64_t random_state = 9; /* the same on all ranks */

static void need(cudaError_t error)
{
    TEST_TEXT(cudaGetErrorString(error), cudaGetErrorString(cudaSuccess));
}

/* ---- Streams -------------------------------------------------------------------------------------------- */

/* Two that wait for nobody, one that waits for the legacy default, and that; and the thread's own. */
static PEER_Stream streams[STREAMS];
static void *load_buffer;

static void open_streams(void)
{
    need(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    need(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    need(cudaStreamCreate(&streams[2]));
    streams[3] = NULL;
    streams[4] = cudaStreamPerThread;
    need(cudaMalloc(&load_buffer, LOAD_BYTES));
}

static void close_streams(void)
{
    for (int i = 0; i < 3; i++)
        need(cudaStreamDestroy(streams[i]));
    need(cudaFree(load_buffer));
}

/* Makes the stream late on one rank, or on none. */
static void load(PEER_Stream stream)
{
    int late = (int)coll_draw(&random_state, 2 * (uint64_t)size);
    for (int i = 0; late == rank && i < 4; i++)
        need(cudaMemsetAsync(load_buffer, i, LOAD_BYTES, stream));
}

/* ---- Moving --------------------------------------------------------------------------------------------- */

static PEER_Stream next_stream(void)
{
    PEER_Stream stream = streams[coll_draw(&random_state, STREAMS)];
    load(stream);
    return stream;
}

/* x, summed over ranks, all to all, the blocks summed, gathered: each rank has, of each j, the sum over all
 * blocks and ranks, in each block. */
static void run_chain(PEER_Comm comm, uint32_t *const buffers[5])
{
    size_t all = (size_t)size * BLOCK;
    int last = (int)coll_draw(&random_state, (uint64_t)size);
    TEST_OK(PEER_Allreduce(buffers[0], buffers[1], all, PEER_UINT32, PEER_SUM, comm, next_stream()));
    TEST_OK(PEER_Alltoall(buffers[1], buffers[2], BLOCK, PEER_UINT32, comm, next_stream()));
    TEST_OK(
        PEER_Reduce_scatter_block(buffers[2], buffers[3], BLOCK, PEER_UINT32, PEER_SUM, comm, next_stream()));
    TEST_OK(PEER_Gather(buffers[3], buffers[4], BLOCK, PEER_UINT32, last, comm, next_stream()));
    TEST_OK(PEER_Scatter(buffers[4], buffers[3], BLOCK, PEER_UINT32, last, comm, next_stream()));
    TEST_OK(PEER_Allgather(buffers[3], buffers[4], BLOCK, PEER_UINT32, comm, next_stream()));
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, buffers[4], all, PEER_UINT32, PEER_MAX, comm, next_stream()));
    TEST_OK(PEER_Bcast(buffers[4], all, PEER_UINT32, last, comm, next_stream()));
}

static uint32_t chain_value(uint32_t round, int r, size_t i)
{
    return (uint32_t)reference_mix(((uint64_t)round << 40) + ((uint64_t)r << 32) + i);
}

static void check_chain(uint32_t round, const uint32_t *got)
{
    static uint32_t wanted[BLOCK];
    memset(wanted, 0, sizeof wanted);
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < (size_t)size * BLOCK; i++)
            wanted[i % BLOCK] += chain_value(round, r, i);
    for (size_t i = 0; i < (size_t)size * BLOCK; i++)
        TEST_INT(got[i], wanted[i % BLOCK]);
}

static void test_moving(PEER_Comm comm)
{
    size_t bytes = (size_t)size * BLOCK * sizeof(uint32_t);
    uint32_t *buffers[5], *host = malloc(bytes);
    TEST_TRUE(host != NULL);
    for (int b = 0; b < 5; b++)
        need(cudaMalloc((void **)&buffers[b], bytes));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < (size_t)size * BLOCK; i++)
            host[i] = chain_value(round, rank, i);
        need(cudaMemcpy(buffers[0], host, bytes, cudaMemcpyHostToDevice));
        for (int b = 1; b < 5; b++)
            need(cudaMemset(buffers[b], 0xee, bytes));
        need(cudaDeviceSynchronize());
        run_chain(comm, buffers);
        need(cudaDeviceSynchronize());
        need(cudaMemcpy(host, buffers[4], bytes, cudaMemcpyDeviceToHost));
        check_chain(round, host);
    }
    for (int b = 0; b < 5; b++)
        need(cudaFree(buffers[b]));
    free(host);
}

/* The sum over n ranks, k times in place: after the first, all are equal and each takes n times that. */
static void test_destroyed(PEER_Comm comm)
{
    uint32_t mine = (uint32_t)rank + 1, wanted = (uint32_t)(size * (size + 1) / 2), got, *buffer;
    need(cudaMalloc((void **)&buffer, sizeof *buffer));
    need(cudaMemcpy(buffer, &mine, sizeof mine, cudaMemcpyHostToDevice));
    for (int i = 0; i < ROUNDS; i++) {
        PEER_Stream stream;
        need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        load(stream);
        TEST_OK(PEER_Allreduce(PEER_IN_PLACE, buffer, 1, PEER_UINT32, PEER_SUM, comm, stream));
        need(cudaStreamDestroy(stream));
        wanted *= i > 0 ? (uint32_t)size : 1;
    }
    need(cudaDeviceSynchronize());
    need(cudaMemcpy(&got, buffer, sizeof got, cudaMemcpyDeviceToHost));
    TEST_INT(got, wanted);
    need(cudaFree(buffer));
}

/* ---- Graphs --------------------------------------------------------------------------------------------- */

/* A call of every collective, each with its buffers, and inputs that change. */
struct calls {
    struct inputs inputs;
    struct bed bed;
    struct coll_trial trials[COLL_KINDS];
    struct coll_call calls[COLL_KINDS];
};

static void open_calls(struct calls *c, PEER_Comm comm, uint64_t seed)
{
    inputs_open(&c->inputs, seed, size, INPUT_BYTES);
    bed_open(&c->bed, comm);
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        struct coll_call *call = &c->calls[kind];
        *call = (struct coll_call){.kind = (enum coll_kind)kind,
                                   .type = (PEER_Datatype)coll_draw(&random_state, PEER_N_DATATYPES)};
        size_t bytes = coll_draw(&random_state, 2) ? MESSAGE : 500;
        call->op = coll_legal_op(call->type, (PEER_Op)coll_draw(&random_state, PEER_N_OPS));
        coll_draw_shape(call, coll_draw(&random_state, UINT64_MAX), rank, size);
        call->place = COLL_OUT_OF_PLACE; /* so that a graph can be launched again with the same inputs */
        if (coll_has_blocks(call->kind))
            bytes /= (size_t)size;
        coll_draw_counts(call, bytes / reference_element(call->type), size);
        coll_open(&c->trials[kind], &c->bed, CAPACITY);
    }
}

static void close_calls(struct calls *c)
{
    for (int kind = 0; kind < COLL_KINDS; kind++)
        coll_close(&c->trials[kind]);
    bed_close(&c->bed);
    inputs_close(&c->inputs);
}

static void change_inputs(struct calls *c, int first, int n)
{
    for (int kind = first; kind < first + n; kind++) {
        c->calls[kind].first = coll_draw(&random_state, 500);
        coll_prepare(&c->trials[kind], &c->inputs, rank, &c->calls[kind]);
    }
}

static void start_calls(struct calls *c, PEER_Comm comm, int first, int n, PEER_Stream stream)
{
    for (int kind = first; kind < first + n; kind++)
        coll_must_start(&c->trials[kind], comm, stream);
}

static void check_calls(struct calls *c, int first, int n)
{
    need(cudaDeviceSynchronize());
    for (int kind = first; kind < first + n; kind++)
        coll_check(&c->trials[kind]);
}

static cudaGraphExec_t end_capture(PEER_Stream stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    need(cudaStreamEndCapture(stream, &graph));
    need(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    need(cudaGraphDestroy(graph));
    return exec;
}

static cudaGraphExec_t capture(struct calls *c, PEER_Comm comm, int first, int n,
                               enum cudaStreamCaptureMode mode)
{
    need(cudaStreamBeginCapture(streams[0], mode));
    start_calls(c, comm, first, n, streams[0]);
    return end_capture(streams[0]);
}

/* With other inputs each time, on another stream than it was captured on. */
static void launch(struct calls *c, cudaGraphExec_t exec, int first, int n)
{
    for (int i = 0; i < 3; i++) {
        change_inputs(c, first, n);
        load(streams[1]);
        need(cudaGraphLaunch(exec, streams[1]));
        check_calls(c, first, n);
    }
}

static void test_captured(const char *settings, enum cudaStreamCaptureMode mode)
{
    static struct calls calls;
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    cudaGraphExec_t each[COLL_KINDS], all;
    open_calls(&calls, comm, 20 + (uint64_t)mode);
    change_inputs(&calls, 0, COLL_KINDS);
    for (int kind = 0; kind < COLL_KINDS; kind++)
        each[kind] = capture(&calls, comm, kind, 1, mode);
    all = capture(&calls, comm, 0, COLL_KINDS, mode);
    for (int kind = 0; kind < COLL_KINDS; kind++)
        launch(&calls, each[kind], kind, 1);
    launch(&calls, all, 0, COLL_KINDS);
    for (int kind = COLL_KINDS - 1; kind >= 0; kind--) {
        launch(&calls, each[kind], kind, 1);
        need(cudaGraphExecDestroy(each[kind]));
    }
    need(cudaGraphExecDestroy(all));
    close_calls(&calls);
    trial_free(&comm);
}

/* `to` goes on when `from` has got so far. */
static void join(PEER_Stream from, PEER_Stream to)
{
    cudaEvent_t event;
    need(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    need(cudaEventRecord(event, from));
    need(cudaStreamWaitEvent(to, event, 0));
    need(cudaEventDestroy(event));
}

/* The side stream has all calls, or every second one. */
static void test_joined(PEER_Comm comm, bool by_turns)
{
    static struct calls calls;
    cudaGraphExec_t exec;
    open_calls(&calls, comm, 30 + (uint64_t)by_turns);
    change_inputs(&calls, 0, COLL_KINDS);
    need(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    join(streams[0], streams[1]);
    for (int kind = 0; kind < COLL_KINDS; kind++)
        start_calls(&calls, comm, kind, 1, streams[by_turns ? kind % 2 : 1]);
    join(streams[1], streams[0]);
    exec = end_capture(streams[0]);
    launch(&calls, exec, 0, COLL_KINDS);
    need(cudaGraphExecDestroy(exec));
    close_calls(&calls);
}

/* Eager calls know nothing of captured ones, nor these of them. */
static void test_between(PEER_Comm comm)
{
    static struct calls calls, eager;
    cudaGraphExec_t exec;
    open_calls(&calls, comm, 40);
    open_calls(&eager, comm, 41);
    change_inputs(&calls, 0, COLL_KINDS);
    change_inputs(&eager, 0, COLL_KINDS);
    load(streams[2]);
    start_calls(&eager, comm, 0, 3, streams[2]); /* still at work when the capture begins */
    need(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed));
    start_calls(&calls, comm, 0, 5, streams[0]);
    start_calls(&eager, comm, 3, 2, streams[2]); /* while it goes on */
    start_calls(&calls, comm, 5, COLL_KINDS - 5, streams[0]);
    exec = end_capture(streams[0]);
    start_calls(&eager, comm, 5, COLL_KINDS - 5, streams[1]);
    check_calls(&eager, 0, COLL_KINDS);
    launch(&calls, exec, 0, COLL_KINDS);
    change_inputs(&eager, 0, COLL_KINDS);
    start_calls(&eager, comm, 0, COLL_KINDS, streams[4]);
    check_calls(&eager, 0, COLL_KINDS);
    need(cudaGraphExecDestroy(exec));
    close_calls(&eager);
    close_calls(&calls);
}

/* ---- Two communicators ---------------------------------------------------------------------------------- */

static void test_two(void)
{
    static struct calls calls[2];
    PEER_Comm comms[2];
    cudaGraphExec_t execs[2];
    for (int i = 0; i < 2; i++) {
        comms[i] = trial_create(MPI_COMM_WORLD, i == 0 ? "transport=ipc blocks=4" : "transport=ipc blocks=2");
        open_calls(&calls[i], comms[i], 50 + (uint64_t)i);
        change_inputs(&calls[i], 0, COLL_KINDS);
        execs[i] = capture(&calls[i], comms[i], 0, COLL_KINDS, cudaStreamCaptureModeThreadLocal);
    }
    for (int i = 0; i < LAUNCHES; i++) {
        load(streams[i % 2]);
        need(cudaGraphLaunch(execs[0], streams[0]));
        need(cudaGraphLaunch(execs[1], streams[1]));
    }
    for (int i = 0; i < 2; i++) {
        check_calls(&calls[i], 0, COLL_KINDS);
        need(cudaGraphExecDestroy(execs[i]));
        close_calls(&calls[i]);
        trial_free(&comms[i]);
    }
}

/* ---- Late ----------------------------------------------------------------------------------------------- */

    #define LATE_CALLS 16
    #define LATE_COUNT 2048
    #define NOTHING    0xeeeeeeee

/* In call i rank r has i * 100 + r, and the result is the sum of it. Of the first call the late rank has all data: where no
 * rank waits for another's results, that one is right. */
static void check_late(const uint32_t *results, bool first_is_right)
{
    uint32_t done = 0;
    static uint32_t got[LATE_CALLS * LATE_COUNT];
    need(cudaMemcpy(got, results, sizeof got, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < LATE_CALLS * LATE_COUNT; i++) {
        const uint32_t n = (uint32_t)size, wanted = i / LATE_COUNT * 100 * n + n * (n - 1) / 2;
        if (got[i] != NOTHING)
            TEST_INT(got[i], wanted);
        done += got[i] == wanted;
    }
    TEST_TRUE(done >= (first_is_right && rank == 0 ? LATE_COUNT : 0));
}

static void test_late(const char *settings, bool first_is_right)
{
    static uint32_t inputs[LATE_CALLS * LATE_COUNT];
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, settings);
    uint32_t *send, *recv;
    int status;
    for (uint32_t i = 0; i < LATE_CALLS * LATE_COUNT; i++)
        inputs[i] = i / LATE_COUNT * 100 + (uint32_t)rank;
    need(cudaMalloc((void **)&send, sizeof inputs));
    need(cudaMalloc((void **)&recv, sizeof inputs));
    need(cudaMemcpy(send, inputs, sizeof inputs, cudaMemcpyHostToDevice));
    need(cudaMemset(recv, 0xee, sizeof inputs));
    need(cudaDeviceSynchronize());
    need(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    for (size_t i = 0; i < LATE_CALLS; i++)
        TEST_OK(PEER_Allreduce(send + i * LATE_COUNT, recv + i * LATE_COUNT, LATE_COUNT, PEER_UINT32,
                               PEER_SUM, comm, streams[0]));
    cudaGraphExec_t exec = end_capture(streams[0]);
    for (int turn = 0; turn < 2; turn++) { /* rank 0 is late */
        MPI_Barrier(MPI_COMM_WORLD);
        if ((rank == 0) == (turn == 1)) {
            need(cudaGraphLaunch(exec, streams[0]));
            need(cudaDeviceSynchronize());
        }
    }
    check_late(recv, first_is_right);
    TEST_OK(PEER_Comm_get_async_error(comm, &status));
    TEST_STATUS(status, PEER_ERR_TIMEOUT);
    need(cudaGraphExecDestroy(exec));
    trial_free(&comm);
    need(cudaFree(send));
    need(cudaFree(recv));
}

/* ---- Default streams ------------------------------------------------------------------------------------ */

static void test_elsewhere(PEER_Comm comm)
{
    static struct calls calls;
    int here, gpus, current;
    need(cudaGetDevice(&here));
    need(cudaGetDeviceCount(&gpus));
    open_calls(&calls, comm, 60);
    for (int i = 0; i < 6 && gpus > 1; i++) {
        const int other = (here + 1) % gpus;
        change_inputs(&calls, 0, COLL_KINDS);
        need(cudaSetDevice(other));
        start_calls(&calls, comm, 0, COLL_KINDS, streams[3 + i % 2]);
        need(cudaGetDevice(&current));
        TEST_INT(current, other);
        need(cudaSetDevice(here));
        check_calls(&calls, 0, COLL_KINDS);
    }
    close_calls(&calls);
}

/* The legacy default stream can't be used while a stream that waits for it is captured. The others hear of it long before
 * their time is up. */
static void test_refused(void)
{
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "transport=ipc log=off timeout_ms=60000");
    cudaGraph_t graph;
    float *buffer;
    int status;
    double began = bed_now_us();
    need(cudaMalloc((void **)&buffer, sizeof *buffer));
    if (rank != 0)
        TEST_OK(PEER_Allreduce(PEER_IN_PLACE, buffer, 1, PEER_FLOAT32, PEER_SUM, comm, streams[0]));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        need(cudaStreamBeginCapture(streams[2], cudaStreamCaptureModeThreadLocal));
        TEST_STATUS(PEER_Allreduce(PEER_IN_PLACE, buffer, 1, PEER_FLOAT32, PEER_SUM, comm, NULL),
                    PEER_ERR_CUDA);
        need(cudaStreamEndCapture(streams[2], &graph));
        need(cudaGraphDestroy(graph));
    }
    need(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
    TEST_TRUE(bed_now_us() - began < 30e6);
    TEST_OK(PEER_Comm_get_async_error(comm, &status));
    TEST_STATUS(status, PEER_ERR_CUDA);
    TEST_CONTAINS(PEER_Last_error(), rank == 0 ? "Capture" : "another rank");
    TEST_STATUS(PEER_Allreduce(PEER_IN_PLACE, buffer, 1, PEER_FLOAT32, PEER_SUM, comm, streams[0]),
                PEER_ERR_CUDA);
    trial_free(&comm);
    need(cudaFree(buffer));
}

static void run_tests(struct bed *bed, PEER_Comm comm, int my_rank, int n)
{
    static const char *const settings[] = {"transport=ipc", "transport=ipc staging_bytes=16K blocks=3",
                                           "transport=ipc algorithm=twoshot.flag staging_bytes=64K"};
    static const enum cudaStreamCaptureMode modes[] = {
        cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
    (void)bed;
    rank = my_rank;
    size = n;
    open_streams();
    test_moving(comm);
    test_destroyed(comm);
    for (int i = 0; i < 3; i++)
        test_captured(settings[i], modes[i]);
    test_joined(comm, false);
    test_joined(comm, true);
    test_between(comm);
    test_two();
    test_elsewhere(comm);
    test_late("transport=ipc algorithm=oneshot.flag timeout_ms=300 log=off", true);
    test_late("transport=ipc algorithm=twoshot.flag timeout_ms=300 log=off", false);
    test_refused();
    test_moving(comm);
    close_streams();
}

    #define RUN run_tests
#else
    #define RUN NULL
#endif

int main(int argc, char **argv)
{
    return coll_main_cuda(argc, argv, "transport=ipc", "the host device has no streams", RUN);
}
