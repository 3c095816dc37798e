/* measure.c: times the forward pass of one batch with its all-reduces made by peercoll, by NCCL, by MPI, and left out.
 *
 * A run is timed on each rank, by CUDA events around it or by the clock, and counts with the slowest rank's time; of
 * all runs the median counts. What the all-reduces take is that time less the time of the same pass without
 * them: so it includes waiting for a slower rank. On a GPU passes are graphs, but MPI can't be captured:
 * there the kernels are launched one by one, and the pass without all-reduces that it is compared with too. */
#include "config.h"
#include "measure.h"
#include "batches.h"
#include "tp_encoder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct timed {
    const char *name;
    char by[MPI_MAX_INFO_VAL + 1]; /* what served */
    double median_ms, worst_ms;
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One pass, in ms on this rank; from a graph, or by calls if there is none. */
static double time_pass(struct encoder *encoder, struct bed_graph *graph)
{
    MPI_Barrier(MPI_COMM_WORLD);
    bed_mark(&encoder->bed, 0);
    if (graph != NULL)
        bed_launch(&encoder->bed, graph);
    else
        encoder_run(encoder);
    bed_mark(&encoder->bed, 1);
    return bed_elapsed_us(&encoder->bed) / 1e3;
}

/* The encoder as it is: its communicator, and what adds up. */
static struct timed time_passes(struct encoder *encoder, const char *name, bool capture, int runs)
{
    struct timed timed = {.name = name};
    double *ms = allocate((size_t)runs * sizeof *ms);
    struct bed_graph *graph = NULL;

    encoder_run(encoder);
    bed_sync(&encoder->bed);
    if (capture)
        graph = bed_capture(&encoder->bed, encoder_run, encoder);
    for (int i = -2; i < runs; i++) { /* the first two don't count */
        double one = time_pass(encoder, graph);

        if (i >= 0)
            ms[i] = one;
    }
    MPI_Allreduce(MPI_IN_PLACE, ms, runs, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(ms, (size_t)runs, sizeof *ms, compare_doubles);
    timed.median_ms = (ms[(runs - 1) / 2] + ms[runs / 2]) / 2;
    timed.worst_ms = ms[runs - 1];
    if (graph != NULL)
        bed_graph_free(&encoder->bed, graph);
    free(ms);
    return timed;
}

static void print_head(const struct encoder *encoder, int size)
{
    const struct batch *batch = &encoder->batch;
    size_t rows = (size_t)batch->batch * (size_t)batch->length;
    char device[MPI_MAX_INFO_VAL + 1];

    get_info(encoder->comm, "device", device);
    printf("%d ranks, %s device, %s; a batch is %d lines padded to %d tokens, with %d all-reduces of %zu "
           "bytes\n\n",
           size, device, encoder->ops->name, batch->batch, batch->length, 2 * LAYERS,
           rows * HIDDEN * sizeof(float));
    printf("%-14s %-34s %17s %17s\n", "", "", "ms per batch   ", "all-reduces   ");
    printf("%-14s %-34s %8s %8s %8s %8s\n", "all-reduce by", "", "median", "worst", "ms", "share");
}

static void print_row(const struct timed *timed, const struct timed *without)
{
    double ms = timed->median_ms - without->median_ms;

    printf("%-14s %-34s %8.3f %8.3f", timed->name, timed->by, timed->median_ms, timed->worst_ms);
    if (timed != without)
        printf(" %8.3f %6.1f %%", ms, 100 * ms / timed->median_ms);
    putchar('\n');
}

/* A communicator of that transport alone; PEER_COMM_NULL where it can't serve. */
static PEER_Comm open_transport(const char *transport)
{
    PEER_Comm comm;
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "transport", transport);
    PEER_Comm_create(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    return comm;
}

static struct timed time_comm(struct encoder *encoder, const char *name, int runs)
{
    struct timed timed = time_passes(encoder, name, can_be_captured(encoder), runs);

    get_info(encoder->comm, "plan", timed.by);
    return timed;
}

static void time_nccl(struct encoder *encoder, const struct timed *without, int rank, int runs)
{
    PEER_Comm comm = open_transport("nccl"), before = encoder->comm;
    struct timed timed;

    if (comm == PEER_COMM_NULL) {
        if (rank == 0)
            printf("%-14s can't run: %s\n", "NCCL", PEER_Last_error());
        return;
    }
    encoder->comm = comm;
    timed = time_comm(encoder, "NCCL", runs);
    encoder->comm = before;
    if (rank == 0)
        print_row(&timed, without);
    check_peer(PEER_Comm_free(&comm), "PEER_Comm_free");
}

static void time_mpi(struct encoder *encoder, const struct timed *without, int rank, int runs)
{
    struct timed timed, called = *without;

    if (encoder->bed.cuda) {
        encoder->sum_by = SUM_BY_NOTHING;
        called = time_passes(encoder, "nothing", false, runs);
        strcpy(called.by, "no graph");
    }
    encoder->sum_by = SUM_BY_MPI;
    timed = time_passes(encoder, "MPI", false, runs);
    strcpy(timed.by, encoder->bed.cuda ? "MPI_Allreduce, copies, no graph" : "MPI_Allreduce");
    encoder->sum_by = SUM_BY_PEERCOLL;
    if (rank == 0) {
        print_row(&timed, &called);
        if (encoder->bed.cuda)
            print_row(&called, &called);
    }
}

void measure(struct encoder *encoder, int runs)
{
    struct timed ours, without;
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ours = time_comm(encoder, "peercoll", runs);
    encoder->sum_by = SUM_BY_NOTHING;
    without = time_passes(encoder, "nothing", true, runs);
    strcpy(without.by, "(wrong results)");
    encoder->sum_by = SUM_BY_PEERCOLL;

    if (rank == 0) {
        print_head(encoder, size);
        print_row(&ours, &without);
    }
    if (size > 1)
        time_nccl(encoder, &without, rank, runs);
    time_mpi(encoder, &without, rank, runs);
    if (rank == 0) {
        print_row(&without, &without);
        printf("\nTimes are the slowest rank's, of %d runs. All-reduces: the time of the pass less that of a "
               "pass without "
               "them.\n",
               runs);
    }
}
