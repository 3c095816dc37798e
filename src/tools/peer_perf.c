/* peer_perf: measures a collective of peercoll over the ranks that mpirun started, as nccl-tests does, and in the
 * same run NCCL and MPI beside it. `peer_perf -h` tells the options; perf.h which file does what.
 *
 * An error that all ranks see alike (the command line, a communicator that can't be made) ends them in order after
 * one message; any other ends all ranks by MPI_Abort, since some may wait for the one that failed. */
#include "config.h"
#include "perf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

#define DEFAULT_GRAPH 50 /* calls, on the cuda device */

void perf_die(const char *format, ...)
{
    va_list args;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: ", program_invocation_short_name, rank);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* The communicator of the NCCL column; without one the column is empty. */
static void open_nccl(struct perf *perf)
{
    MPI_Info info;
    int status;

    MPI_Info_create(&info);
    MPI_Info_set(info, "transport", "nccl");
    status = PEER_Comm_create(MPI_COMM_WORLD, info, &perf->nccl);
    MPI_Info_free(&info);
    if (status != PEER_SUCCESS)
        snprintf(perf->no_nccl, sizeof perf->no_nccl, "%s", PEER_Last_error());
}

/* MPI's copies of GPU buffers lie in pinned memory: the fastest that a program without peercoll could do. */
static void *pinned_alloc(size_t bytes)
{
    void *buffer = NULL;

#ifdef HAVE_CUDA
    if (cudaMallocHost(&buffer, bytes) == cudaSuccess)
        return buffer;
#endif
    perf_die(
        "no %zu bytes of pinned memory for MPI's copies: take smaller messages, or leave out --compare mpi",
        bytes);
    return buffer;
}

static void pinned_free(void *buffer)
{
#ifdef HAVE_CUDA
    if (buffer)
        cudaFreeHost(buffer);
#endif
    (void)buffer;
}

/* Bytes of the larger of a rank's two buffers, for a message of so many bytes. */
static size_t room_for(const struct perf *perf, size_t bytes)
{
    struct perf_shape shape;

    if (!perf->options.collective->shape)
        return 0;
    shape = perf->options.collective->shape(bytes, perf->size); /* elements of one byte */
    return shape.send > shape.recv ? shape.send : shape.recv;
}

/* False after a message: all ranks alike. */
static bool open_all(struct perf *perf)
{
    size_t room = room_for(perf, perf->options.max_bytes);

    if (PEER_Select_device(MPI_COMM_WORLD, NULL) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error()); /* one rank's GPU may fail alone */
    if (PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &perf->comm) != PEER_SUCCESS) {
        if (perf->rank == 0)
            fprintf(stderr, "%s: %s\n", program_invocation_short_name, PEER_Last_error());
        return false;
    }
    bed_open(&perf->bed, perf->comm);
    if (perf->options.graph < 0)
        perf->options.graph = perf->bed.cuda ? DEFAULT_GRAPH : 0;
    perf->send = bed_alloc(&perf->bed, room);
    perf->recv = bed_alloc(&perf->bed, room);
    perf->mpi.comm = MPI_COMM_WORLD;
    perf->mpi.bed = &perf->bed;
    if (perf->options.compare_mpi && perf->bed.cuda && room > 0) {
        perf->mpi.in = pinned_alloc(room);
        perf->mpi.out = pinned_alloc(room);
    }
    if (perf->options.compare_nccl)
        open_nccl(perf);
    return true;
}

static void close_all(struct perf *perf)
{
    pinned_free(perf->mpi.in);
    pinned_free(perf->mpi.out);
    bed_free(&perf->bed, perf->send);
    bed_free(&perf->bed, perf->recv);
    bed_close(&perf->bed);
    if (PEER_Comm_free(&perf->nccl) != PEER_SUCCESS || PEER_Comm_free(&perf->comm) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
}

/* One row. Where our call can't be captured there is none; the reason is told once. */
static void measure(struct perf *perf, const struct perf_case *c)
{
    static bool told;
    struct perf_result result;

    perf_time(perf, c, &result);
    if (result.us[PERF_OUT_OF_PLACE] < 0) {
        if (perf->rank == 0 && !told)
            printf("# no rows in a graph: %s\n", PEER_Last_error());
        told = true;
        return;
    }
    for (int place = 0; place < PERF_N_PLACES && perf->options.check && c->shape.recv > 0; place++)
        result.wrong[place] = perf_check(perf, c, (enum perf_place)place);
    perf_report_row(perf, c, &result);
}

/* In a graph, and without. */
static void measure_modes(struct perf *perf, struct perf_case *c)
{
    if (perf->options.graph > 0) {
        c->graph = perf->options.graph;
        measure(perf, c);
    }
    if (perf->options.graph == 0 || perf->bed.cuda) {
        c->graph = 0;
        measure(perf, c);
    }
}

static void measure_sizes(struct perf *perf, struct perf_case *c)
{
    const struct perf_options *options = &perf->options;
    size_t element, next, factor = (size_t)options->step_factor;

    PEER_Datatype_size(c->datatype, &element);
    for (size_t bytes = options->min_bytes; bytes <= options->max_bytes; bytes = next) {
        c->shape = options->collective->shape(bytes / element, perf->size);
        c->bytes = bytes / element * element;
        if (c->bytes > 0)
            measure_modes(perf, c);
        next = options->step_bytes > 0 ? bytes + options->step_bytes : bytes * factor;
        if (next <= bytes || (options->step_bytes == 0 && next / factor != bytes))
            break; /* past what a size_t holds */
    }
}

static void measure_all(struct perf *perf)
{
    struct perf_case c = {0};

    if (!perf->options.collective->shape) {
        measure_modes(perf, &c);
        return;
    }
    for (unsigned type = 0; type < PEER_N_DATATYPES; type++)
        for (unsigned op = 0; op < PEER_N_OPS; op++)
            if ((perf->options.types >> type & 1) && (perf->options.ops >> op & 1)) {
                c.datatype = (PEER_Datatype)type;
                c.op = (PEER_Op)op;
                measure_sizes(perf, &c);
            }
}

int main(int argc, char **argv)
{
    static struct perf perf;
    bool good;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &perf.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &perf.size);
    good = perf_options_parse(&perf.options, argc, argv, perf.rank);
    if (good && !perf_options_answer(&perf.options, perf.rank)) {
        good = open_all(&perf);
        if (good) {
            perf_report_header(&perf);
            measure_all(&perf);
            good = perf_report_summary(&perf);
            close_all(&perf);
        }
    }
    MPI_Finalize();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
