/* measure.c: times the forward pass of one batch with its all-reduces made by peercoll, by NCCL, by MPI, and left out.
 *
 * A pass is timed on each rank, by CUDA events around it or by the clock, and counts with the slowest rank's time. The
 * paths take turns, and of a path's passes the median counts. What its all-reduces take is that time less the time
 * of a pass that lacks them but is otherwise the same: so it includes waiting for a slower rank. On a GPU a pass
 * is a graph; only MPI can't be captured, so there the kernels are launched one by one, and so they are in the pass that
 * MPI's is compared with. */
#include "config.h"
#include "measure.h"
#include "batches.h"
#include "tp_encoder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERCOLL, NCCL, MPI, NOTHING, NOTHING_CALLED, PATHS };

/* A way to make the pass. */
struct path {
    const char *name;
    enum sum_by sum_by;
    PEER_Comm comm;
    bool capture;
    int without; /* the path that it is compared with; itself if there is nothing to compare */

    bool runs;                     /* else `by` says why not */
    char by[MPI_MAX_INFO_VAL + 1]; /* what served */
    struct bed_graph *graph;       /* NULL: the pass is called */
    double *ms;                    /* of the passes that count */
    double median_ms;
};

/* Without all-reduces ranks would drift apart, so each pass begins at a barrier. */
static double time_pass(struct encoder *encoder, const struct path *path)
{
    encoder->sum_by = path->sum_by;
    encoder->comm = path->comm;
    MPI_Barrier(MPI_COMM_WORLD);
    bed_mark(&encoder->bed, 0);
    if (path->graph != NULL)
        bed_launch(&encoder->bed, path->graph);
    else
        encoder_run(encoder);
    bed_mark(&encoder->bed, 1);
    return bed_elapsed_us(&encoder->bed) / 1e3;
}

/* A communicator that NCCL serves; PEER_COMM_NULL, and why, where it can't. */
static PEER_Comm open_nccl(char *why, size_t size)
{
    PEER_Comm comm;
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "transport", "nccl");
    if (PEER_Comm_create(MPI_COMM_WORLD, info, &comm) != PEER_SUCCESS)
        snprintf(why, size, "can't run: %s", PEER_Last_error());
    MPI_Info_free(&info);
    return comm;
}

static void open_paths(struct encoder *encoder, struct path *paths, int size)
{
    bool cuda = encoder->bed.cuda, capture = can_be_captured(encoder);
    int called = cuda ? NOTHING_CALLED : NOTHING; /* on the host device a graph makes the same calls */
    PEER_Comm comm = encoder->comm;

    memset(paths, 0, PATHS * sizeof *paths);
    paths[PEERCOLL] =
        (struct path){.name = "peercoll", .sum_by = SUM_BY_PEERCOLL, .comm = comm, .runs = true};
    paths[PEERCOLL].capture = capture;
    paths[PEERCOLL].without = capture ? NOTHING : called;
    paths[NCCL] =
        (struct path){.name = "NCCL", .sum_by = SUM_BY_PEERCOLL, .capture = true, .without = NOTHING};
    if (size > 1)
        paths[NCCL].comm = open_nccl(paths[NCCL].by, sizeof paths[NCCL].by);
    else /* the library serves one rank with a copy */
        strcpy(paths[NCCL].by, "can't run: it is not needed for one rank");
    paths[NCCL].runs = paths[NCCL].comm != PEER_COMM_NULL;
    paths[MPI] =
        (struct path){.name = "MPI", .sum_by = SUM_BY_MPI, .comm = comm, .runs = true, .without = called};
    strcpy(paths[MPI].by, cuda ? "MPI_Allreduce, copies, no graph" : "MPI_Allreduce");
    paths[NOTHING] = (struct path){.name = "nothing", .sum_by = SUM_BY_NOTHING, .comm = comm, .runs = true};
    paths[NOTHING].capture = true;
    paths[NOTHING].without = NOTHING;
    strcpy(paths[NOTHING].by, "wrong results");
    paths[NOTHING_CALLED] = paths[NOTHING];
    paths[NOTHING_CALLED].capture = false;
    paths[NOTHING_CALLED].without = NOTHING_CALLED;
    paths[NOTHING_CALLED].runs = cuda;
    strcpy(paths[NOTHING_CALLED].by, "wrong results, no graph");
}

/* The first pass, which is not timed, and the graph. */
static void begin_path(struct encoder *encoder, struct path *path, int runs)
{
    time_pass(encoder, path);
    if (path->sum_by == SUM_BY_PEERCOLL)
        get_info(path->comm, "plan", path->by);
    if (path->capture)
        path->graph = bed_capture(&encoder->bed, encoder_run, encoder);
    path->ms = allocate((size_t)runs * sizeof *path->ms);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void end_path(struct encoder *encoder, struct path *path, int runs)
{
    MPI_Allreduce(MPI_IN_PLACE, path->ms, runs, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(path->ms, (size_t)runs, sizeof *path->ms, compare_doubles);
    path->median_ms = (path->ms[(runs - 1) / 2] + path->ms[runs / 2]) / 2;
    free(path->ms);
    if (path->graph != NULL)
        bed_graph_free(&encoder->bed, path->graph);
}

static void print_table(const struct encoder *encoder, const struct path *paths, int size, int runs)
{
    const struct batch *batch = &encoder->batch;
    size_t bytes = (size_t)batch->batch * (size_t)batch->length * HIDDEN * sizeof(float);
    char device[MPI_MAX_INFO_VAL + 1];

    get_info(encoder->comm, "device", device);
    printf("%d ranks, %s device, %s; a batch is %d x %d tokens, with %d all-reduces of %zu bytes\n\n", size,
           device, encoder->ops->name, batch->batch, batch->length, 2 * LAYERS, bytes);
    printf("%-46s %9s %20s\n", "", "ms per", "in all-reduces ");
    printf("%-46s %9s %10s %9s\n", "all-reduces by", "batch", "ms", "share");
    for (const struct path *path = paths; path < paths + PATHS; path++) {
        double in_sum = path->median_ms - paths[path->without].median_ms;

        if (path->runs && path->without != (int)(path - paths))
            printf("%-10s %-35s %9.3f %10.3f %7.1f %%\n", path->name, path->by, path->median_ms, in_sum,
                   100 * in_sum / path->median_ms);
        else if (path->runs)
            printf("%-10s %-35s %9.3f\n", path->name, path->by, path->median_ms);
        else if (path == &paths[NCCL])
            printf("%-10s %s\n", path->name, path->by);
    }
    printf("\nA time is the slowest rank's, and the median of %d; in all-reduces: less that of nothing.\n",
           runs);
}

void measure(struct encoder *encoder, int runs)
{
    struct path paths[PATHS];
    PEER_Comm comm = encoder->comm;
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    open_paths(encoder, paths, size);
    for (int i = 0; i < PATHS; i++)
        if (paths[i].runs)
            begin_path(encoder, &paths[i], runs);
    for (int run = -2; run < runs; run++) { /* two turns to warm up */
        for (int i = 0; i < PATHS; i++) {
            double ms = paths[i].runs ? time_pass(encoder, &paths[i]) : 0;

            if (paths[i].runs && run >= 0)
                paths[i].ms[run] = ms;
        }
    }
    for (int i = 0; i < PATHS; i++)
        if (paths[i].runs)
            end_path(encoder, &paths[i], runs);
    encoder->comm = comm;
    encoder->sum_by = SUM_BY_PEERCOLL;
    if (rank == 0)
        print_table(encoder, paths, size, runs);
    check_peer(PEER_Comm_free(&paths[NCCL].comm), "PEER_Comm_free");
}
