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

#define DEFAULT_GRAPH     50 /* calls, on the cuda device */
#define MAX_ELEMENT_BYTES 16

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

static void *counts_alloc(const struct perf *perf, size_t bytes_each)
{
    void *counts = calloc((size_t)perf->size, bytes_each);

    if (!counts)
        perf_die("out of memory");
    return counts;
}

/* Bytes of the largest message: every block of it has an element at least. */
static size_t room_for(const struct perf *perf)
{
    size_t least = (size_t)perf->size * MAX_ELEMENT_BYTES;

    if (perf->options.collective->send == PERF_NOTHING)
        return 0;
    return perf->options.max_bytes > least ? perf->options.max_bytes : least;
}

/* False after a message: all ranks alike. */
static bool open_all(struct perf *perf)
{
    size_t room = room_for(perf);

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
    perf->counts = counts_alloc(perf, sizeof *perf->counts);
    perf->displs = counts_alloc(perf, sizeof *perf->displs);
    perf->mpi.counts = counts_alloc(perf, sizeof *perf->mpi.counts);
    perf->mpi.displs = counts_alloc(perf, sizeof *perf->mpi.displs);
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
    free(perf->counts);
    free(perf->displs);
    free(perf->mpi.counts);
    free(perf->mpi.displs);
    bed_free(&perf->bed, perf->send);
    bed_free(&perf->bed, perf->recv);
    bed_close(&perf->bed);
    if (PEER_Comm_free(&perf->nccl) != PEER_SUCCESS || PEER_Comm_free(&perf->comm) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
}

/* NCCL divides an average where and as it likes: that has no one right answer. */
static bool is_checkable(const struct perf_case *c, const struct perf_result *result)
{
    return c->count > 0 && !(c->op == PEER_AVG && strncmp(result->plan, "nccl", 4) == 0);
}

/* One row. Where our call can't be captured there is none; the reason is told once. */
static void measure(struct perf *perf, const struct perf_case *c)
{
    static bool told;
    struct perf_result result;

    perf_time(perf, c, &result);
    if (result.us[PERF_OUT_OF_PLACE] < 0) {
        if (!told) {
            char note[512];

            snprintf(note, sizeof note, "no rows in a graph: %s", PEER_Last_error());
            perf_report_note(perf, note);
        }
        told = true;
        return;
    }
    for (int place = 0; place < PERF_N_PLACES && perf->options.check && is_checkable(c, &result); place++)
        if (result.us[place] >= 0)
            result.wrong[place] = perf_check(perf, c, (enum perf_place)place);
    perf_report_row(perf, c, &result);
}

/* One row, or with --phases one for each rank. */
static void measure_mode(struct perf *perf, const struct perf_case *c)
{
    if (perf->options.phases)
        perf_phases(perf, c);
    else
        measure(perf, c);
}

/* In a graph, and without. */
static void measure_modes(struct perf *perf, struct perf_case *c)
{
    if (perf->options.graph > 0) {
        c->graph = perf->options.graph;
        measure_mode(perf, c);
    }
    if (perf->options.graph == 0 || perf->bed.cuda) {
        c->graph = 0;
        measure_mode(perf, c);
    }
}

static void measure_case(struct perf *perf, struct perf_case *c)
{
    if (perf->options.tune) {
        c->graph = perf->options.graph;
        perf_tune(perf, c);
    } else {
        measure_modes(perf, c);
    }
}

/* The message of so many bytes, or what is nearest: whole elements, as many in each block. Of the arrays of counts
 * and displacements every block is the same size, as in nccl-tests. */
static void set_size(struct perf *perf, struct perf_case *c, size_t bytes)
{
    size_t element, blocks = perf_collective_blocks(perf->options.collective, perf->size);

    PEER_Datatype_size(c->datatype, &element);
    c->count = bytes / element / blocks;
    if (c->count == 0 && blocks > 1)
        c->count = 1;
    c->bytes = c->count * blocks * element;
    for (int r = 0; r < perf->size; r++) {
        perf->counts[r] = c->count;
        perf->displs[r] = (size_t)r * c->count;
        perf->mpi.counts[r] = (int)perf->counts[r]; /* where they don't fit MPI doesn't serve */
        perf->mpi.displs[r] = (int)perf->displs[r];
    }
}

static void measure_sizes(struct perf *perf, struct perf_case *c)
{
    const struct perf_options *options = &perf->options;
    size_t next, last = 0, factor = (size_t)options->step_factor;

    for (size_t bytes = options->min_bytes; bytes <= options->max_bytes; bytes = next) {
        set_size(perf, c, bytes);
        if (c->bytes != last) /* steps may be smaller than an element of each block */
            measure_case(perf, c);
        last = c->bytes;
        next = options->step_bytes > 0 ? bytes + options->step_bytes : bytes * factor;
        if (next <= bytes || (options->step_bytes == 0 && next / factor != bytes))
            break; /* past what a size_t holds */
    }
}

static void measure_roots(struct perf *perf, struct perf_case *c)
{
    int first = perf->options.root < 0 ? 0 : perf->options.root;
    int last = perf->options.root < 0 ? perf->size - 1 : perf->options.root;

    if (!perf_collective_is_rooted(perf->options.collective))
        first = last = -1;
    for (c->root = first; c->root <= last; c->root++)
        measure_sizes(perf, c);
}

/* Whether the library combines such elements so. */
static bool is_pair(struct perf *perf, PEER_Datatype datatype, PEER_Op op)
{
    int status = PEER_Allreduce(NULL, NULL, 0, datatype, op, perf->comm, perf->bed.stream);

    if (status != PEER_SUCCESS && status != PEER_ERR_OP)
        perf_die("%s", PEER_Last_error());
    return status == PEER_SUCCESS;
}

/* False if there is no such pair. */
static bool measure_ops(struct perf *perf, struct perf_case *c)
{
    bool any = false;

    c->op = PEER_N_OPS;
    if (!(perf->options.collective->flags & PERF_REDUCES)) {
        measure_roots(perf, c);
        return true;
    }
    for (unsigned op = 0; op < PEER_N_OPS; op++) {
        c->op = (PEER_Op)op;
        if ((perf->options.ops >> op & 1) && is_pair(perf, c->datatype, c->op)) {
            measure_roots(perf, c);
            any = true;
        }
    }
    return any;
}

/* False after a message if there was nothing to measure: all ranks alike. */
static bool measure_all(struct perf *perf)
{
    struct perf_case c = {.op = PEER_N_OPS, .root = -1};
    bool any = false;

    if (perf->options.collective->send == PERF_NOTHING) {
        measure_case(perf, &c);
        return true;
    }
    for (unsigned type = 0; type < PEER_N_DATATYPES; type++) {
        c.datatype = (PEER_Datatype)type;
        if (perf->options.types >> type & 1)
            any = measure_ops(perf, &c) || any;
    }
    if (!any && perf->rank == 0)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, PEER_Last_error());
    return any;
}

static bool tune_all(struct perf *perf)
{
    if (!perf_tune_open(perf) || !measure_all(perf))
        return false;
    perf_tune_close(perf);
    return true;
}

static bool run(struct perf *perf)
{
    bool good;

    perf_report_header(perf);
    if (perf->options.phases && !perf_phases_open(perf))
        return false;
    good = perf->options.tune ? tune_all(perf) : measure_all(perf);
    return perf_report_summary(perf) && good;
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
            good = perf_report_open(&perf) && run(&perf);
            close_all(&perf);
        }
    }
    MPI_Finalize();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
