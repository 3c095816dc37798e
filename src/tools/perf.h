/* What the files of peer_perf share.
 *
 *   peer_perf.c         main: opens everything, goes through types, operations and sizes
 *   perf_options.c      the command line
 *   perf_collectives.c  the collectives: a new one is a row of the table there
 *   perf_time.c         timed runs of us and of the rivals
 *   perf_check.c        data whose results are exact, and the comparison
 *   perf_report.c       what is printed */
#ifndef PEER_TOOLS_PERF_H
#define PEER_TOOLS_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bed.h"
#include "peercoll.h"

/* ---- Collectives ---------------------------------------------------------------------------------------- */

/* MPI as a rival. On the cuda device it works on copies in host memory. */
struct perf_mpi {
    MPI_Comm comm;
    struct bed *bed;
    void *in, *out; /* the copies; NULL on the host device */
};

/* One call, as the loops make it again and again. */
struct perf_call {
    const void *sendbuf; /* or PEER_IN_PLACE */
    void *recvbuf;
    size_t count; /* the argument of the call */
    PEER_Datatype datatype;
    PEER_Op op;
    PEER_Comm comm;
    PEER_Stream stream;
    const struct perf_mpi *mpi;
};

/* Elements: the argument of the call, and of the two buffers. */
struct perf_shape {
    size_t count, send, recv;
};

struct perf_collective {
    const char *name;
    /* What a message of so many elements is. NULL: no data, one row, nothing to check. */
    struct perf_shape (*shape)(size_t elements, int nranks);
    double (*busbw)(int nranks); /* bus bandwidth / algorithm bandwidth, as nccl-tests' doc/PERFORMANCE.md */
    /* Make `iters` calls in a row and return the first status that is not PEER_SUCCESS. */
    int (*run)(const struct perf_call *call, int iters);
    int (*mpi)(const struct perf_call *call, int iters);
    /* Element i of the result on `rank`, where perf_value gives the input. */
    int (*expected)(PEER_Op op, int rank, int nranks, size_t i, int position);
};

/* NULL: there is none of that name. */
const struct perf_collective *perf_collective_find(const char *name);
/* "allreduce, barrier" */
void perf_collective_names(char *text, size_t bytes);
/* MPI_DATATYPE_NULL for what MPI lacks. */
MPI_Datatype perf_mpi_datatype(PEER_Datatype datatype);

/* ---- Options -------------------------------------------------------------------------------------------- */

#define PERF_MAX_RUNS 1000

struct perf_options {
    const struct perf_collective *collective;
    size_t min_bytes, max_bytes;
    size_t step_bytes; /* 0: step_factor is in force */
    int step_factor;
    unsigned types, ops; /* bit t: PEER_Datatype t, bit o: PEER_Op o */
    int iters;           /* 0: as many as fill a run */
    int warmup;
    int runs;
    int check; /* 0 or 1 */
    int graph; /* calls in a graph; 0: no graph; -1: the device's default */
    bool compare_nccl, compare_mpi;
    bool help, usage, version;
};

/* False after a message on rank 0. All ranks come to the same. */
bool perf_options_parse(struct perf_options *options, int argc, char **argv, int rank);
/* Prints what help, usage or version asked for; false if nothing was. */
bool perf_options_answer(const struct perf_options *options, int rank);
const char *perf_type_name(PEER_Datatype datatype);
const char *perf_op_name(PEER_Op op);

/* ---- A run of the program ------------------------------------------------------------------------------- */

enum perf_rival { PERF_NCCL, PERF_MPI, PERF_N_RIVALS };

struct perf {
    struct perf_options options;
    int rank, size;
    struct bed bed;
    PEER_Comm comm;
    PEER_Comm nccl;    /* a communicator that was told transport=nccl, or PEER_COMM_NULL */
    char no_nccl[256]; /* why not, if it was asked for */
    struct perf_mpi mpi;
    void *send, *recv; /* of the largest message */
    int position;      /* number of the next checked call: its data are its own */
};

/* One row of the table. */
struct perf_case {
    PEER_Datatype datatype;
    PEER_Op op;
    size_t bytes;
    struct perf_shape shape;
    int graph; /* calls in a graph, or 0 */
};

enum perf_place { PERF_OUT_OF_PLACE, PERF_IN_PLACE, PERF_N_PLACES };

/* A time is that of the slowest rank, in microseconds per call, the median of the runs; < 0: there is none. */
struct perf_result {
    double us[PERF_N_PLACES];
    long long wrong[PERF_N_PLACES]; /* elements, over all ranks; < 0: not checked */
    double rival_us[PERF_N_RIVALS]; /* out of place */
    char plan[64];                  /* what served the call */
};

/* Ends all ranks, since others may wait for this one. */
void perf_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- Timing --------------------------------------------------------------------------------------------- */

/* Somebody's calls, in a graph or one by one. */
struct perf_runner {
    int (*run)(const struct perf_call *call, int iters);
    struct perf_call call;
    struct bed *bed;
    struct bed_graph *graph; /* NULL: one by one */
    int per_graph;           /* calls in the graph */
    int status;              /* of the capture */
    int units;               /* of one run: graph launches, or calls */
    double us[PERF_MAX_RUNS];
};

/* False, with the reason in PEER_Last_error(), where the calls can't be captured: on all ranks alike. */
bool perf_runner_open(struct perf_runner *runner, struct bed *bed,
                      int (*run)(const struct perf_call *call, int iters), const struct perf_call *call,
                      int per_graph);
void perf_runner_close(struct perf_runner *runner);
/* Launches the graph, or makes the call, so many times. */
void perf_runner_go(struct perf_runner *runner, int units);

/* Our call of a row. */
struct perf_call perf_call_of(const struct perf *perf, const struct perf_case *c, enum perf_place place);
/* Times us at both places, and the rivals out of place in turns with us. */
void perf_time(struct perf *perf, const struct perf_case *c, struct perf_result *result);

/* ---- Checking ------------------------------------------------------------------------------------------- */

/* Element i of the input of `rank` for a checked call: a small integer. */
int perf_value(int rank, int nranks, size_t i, int position);
/* Checks a few calls with data of their own. Returns the number of wrong elements over all ranks. */
long long perf_check(struct perf *perf, const struct perf_case *c, enum perf_place place);

/* ---- Reporting ------------------------------------------------------------------------------------------ */

/* All ranks call these; rank 0 prints. */
void perf_report_header(const struct perf *perf);
void perf_report_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result);
/* Returns whether all that was checked was right. */
bool perf_report_summary(const struct perf *perf);

#endif
