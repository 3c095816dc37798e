/* bed.c: buffers, a stream, graphs and a clock for programs that run on the cuda and on the host device (bed.h).
 *
 * Built without CUDA there is the host device alone: plain memory, no stream, and a graph that calls its body. */
#include "config.h"
#include "bed.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

/* A page: no buffer shares a cache line with anything else. */
#define HOST_ALIGNMENT 4096

struct bed_graph {
    void (*body)(void *arg);
    void *arg;
#ifdef HAVE_CUDA
    cudaGraphExec_t exec;
#endif
};

/* The two marks belong to the program, not to a bed: one thing is timed at a time. */
static double host_marks[2];

/* The other ranks may wait for this one in a collective, so all must end. */
static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

#ifdef HAVE_CUDA

static cudaEvent_t cuda_marks[2];

static void need(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        die("%s failed: %s", what, cudaGetErrorString(error));
}

static void cuda_open(struct bed *bed)
{
    need(cudaStreamCreateWithFlags(&bed->stream, cudaStreamNonBlocking), "creating a stream");
    for (int i = 0; i < 2; i++)
        if (!cuda_marks[i])
            need(cudaEventCreate(&cuda_marks[i]), "creating an event");
}

static void *cuda_alloc(size_t bytes)
{
    void *buffer;
    cudaError_t error = cudaMalloc(&buffer, bytes);

    if (error != cudaSuccess)
        die("no %zu bytes of GPU memory: %s; take smaller messages, or a GPU that nobody else uses", bytes,
            cudaGetErrorString(error));
    return buffer;
}

/* Thread-local mode: what other threads (of MPI, of NCCL) do meanwhile can't spoil the capture. */
static void cuda_capture(struct bed *bed, struct bed_graph *graph)
{
    cudaGraph_t captured;

    need(cudaStreamBeginCapture(bed->stream, cudaStreamCaptureModeThreadLocal), "beginning a graph");
    graph->body(graph->arg);
    need(cudaStreamEndCapture(bed->stream, &captured), "capturing calls into a graph");
    need(cudaGraphInstantiateWithFlags(&graph->exec, captured, 0), "instantiating a graph");
    need(cudaGraphDestroy(captured), "freeing a captured graph");
}

#endif

void bed_open(struct bed *bed, PEER_Comm comm)
{
    MPI_Info info;
    char device[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0;

    memset(bed, 0, sizeof *bed);
    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS)
        die("%s", PEER_Last_error());
    MPI_Info_get(info, "device", MPI_MAX_INFO_VAL, device, &found);
    MPI_Info_free(&info);
    bed->cuda = strcmp(device, "cuda") == 0;
#ifdef HAVE_CUDA
    if (bed->cuda)
        cuda_open(bed);
#else
    if (bed->cuda)
        die("the library uses CUDA and this program was built without it: build both alike");
#endif
}

void bed_close(struct bed *bed)
{
#ifdef HAVE_CUDA
    if (bed->cuda)
        need(cudaStreamDestroy(bed->stream), "destroying a stream");
#endif
    memset(bed, 0, sizeof *bed);
}

void *bed_alloc(struct bed *bed, size_t bytes)
{
    size_t whole = (bytes / HOST_ALIGNMENT + 1) * HOST_ALIGNMENT; /* never 0 */
    void *buffer;

#ifdef HAVE_CUDA
    if (bed->cuda)
        return cuda_alloc(whole);
#endif
    (void)bed;
    buffer = aligned_alloc(HOST_ALIGNMENT, whole);
    if (!buffer)
        die("no %zu bytes of memory: take smaller messages or fewer ranks", bytes);
    memset(buffer, 0, whole); /* the kernel hands out the pages now, not while somebody measures */
    return buffer;
}

void bed_free(struct bed *bed, void *buffer)
{
#ifdef HAVE_CUDA
    if (bed->cuda) {
        need(cudaFree(buffer), "freeing GPU memory");
        return;
    }
#endif
    (void)bed;
    free(buffer);
}

void bed_put(struct bed *bed, void *buffer, const void *from, size_t bytes)
{
    bed_copy(bed, buffer, from, bytes);
    bed_sync(bed);
}

void bed_get(struct bed *bed, void *to, const void *buffer, size_t bytes)
{
    bed_copy(bed, to, buffer, bytes);
    bed_sync(bed);
}

void bed_copy(struct bed *bed, void *to, const void *from, size_t bytes)
{
#ifdef HAVE_CUDA
    if (bed->cuda) {
        need(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, bed->stream), "a copy to or from the GPU");
        return;
    }
#endif
    (void)bed;
    memcpy(to, from, bytes);
}

void bed_sync(struct bed *bed)
{
#ifdef HAVE_CUDA
    if (bed->cuda)
        need(cudaStreamSynchronize(bed->stream), "waiting for the stream, or a call on it,");
#endif
    (void)bed;
}

struct bed_graph *bed_capture(struct bed *bed, void (*body)(void *arg), void *arg)
{
    struct bed_graph *graph = calloc(1, sizeof *graph);

    if (!graph)
        die("out of memory for a graph");
    graph->body = body;
    graph->arg = arg;
#ifdef HAVE_CUDA
    if (bed->cuda)
        cuda_capture(bed, graph);
#endif
    (void)bed;
    return graph;
}

void bed_launch(struct bed *bed, struct bed_graph *graph)
{
#ifdef HAVE_CUDA
    if (bed->cuda) {
        need(cudaGraphLaunch(graph->exec, bed->stream), "launching a graph");
        return;
    }
#endif
    (void)bed;
    graph->body(graph->arg);
}

void bed_graph_free(struct bed *bed, struct bed_graph *graph)
{
#ifdef HAVE_CUDA
    if (bed->cuda && graph)
        need(cudaGraphExecDestroy(graph->exec), "freeing a graph");
#endif
    (void)bed;
    free(graph);
}

void bed_mark(struct bed *bed, int which)
{
#ifdef HAVE_CUDA
    if (bed->cuda) {
        need(cudaEventRecord(cuda_marks[which], bed->stream), "recording an event");
        return;
    }
#endif
    (void)bed;
    host_marks[which] = bed_now_us();
}

double bed_elapsed_us(struct bed *bed)
{
#ifdef HAVE_CUDA
    if (bed->cuda) {
        float ms;

        need(cudaEventSynchronize(cuda_marks[1]), "waiting for an event, or a call before it,");
        need(cudaEventElapsedTime(&ms, cuda_marks[0], cuda_marks[1]), "timing with events");
        return (double)ms * 1e3;
    }
#endif
    (void)bed;
    return host_marks[1] - host_marks[0];
}

double bed_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
