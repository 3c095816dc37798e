/* What the files of peer_perf share.
 *
 *   peer_perf.c         main: opens everything, goes through types, operations, roots and sizes
 *   perf_options.c      the command line
 *   perf_collectives.c  the collectives: a new one is a row of the table there, and a line with its two calls
 *   perf_time.c         timed runs of us and of the rivals
 *   perf_check.c        are the results right?
 *   perf_numbers.c      data whose results are exact
 *   perf_report.c       what the rows come to, and who is told of it:
 *   perf_text.c         the table,
 *   perf_json.c         --json, and
 *   perf_plot.c         --plot
 *   perf_phases.c       --phases
 *   perf_tune.c         --tune: every way of making a call measured,
 *   perf_rows.c         and the table of the best written */
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
    void *in, *out;       /* the copies; NULL on the host device */
    int *counts, *displs; /* of all ranks, as struct perf_call's */
};

struct perf_collective;

/* One call, as the loops make it again and again. */
struct perf_call {
    const void *sendbuf; /* or PEER_IN_PLACE */
    void *recvbuf;
    size_t count;            /* the argument of the call */
    size_t *counts, *displs; /* of all ranks, for the calls that take arrays: every count is `count` */
    PEER_Datatype datatype;
    PEER_Op op;
    int root;
    PEER_Comm comm;
    PEER_Stream stream;
    const struct perf_collective *collective;
    const struct perf_mpi *mpi;
    /* What this rank gives and gets, wherever that lies in the buffers, in elements. */
    void *input, *output;
    size_t ninput, noutput;
};

/* One MPI call. */
struct perf_mpi_call {
    const void *in;
    void *out;
    int count;
    const int *counts, *displs;
    MPI_Datatype datatype;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};

/* What a buffer holds. */
enum perf_amount { PERF_NOTHING, PERF_BLOCK, PERF_BLOCKS /* one for each rank */ };

enum perf_flag {
    PERF_REDUCES = 1,
    PERF_FROM_ROOT = 2, /* the root alone sends */
    PERF_TO_ROOT = 4,   /* the root alone receives */
    PERF_ONE_BUFFER = 8 /* there is no in-place form beside it */
};

struct perf_collective {
    const char *name;
    enum perf_amount send, recv; /* PERF_NOTHING: no data, one row, nothing to check */
    unsigned flags;
    double (*busbw)(int nranks); /* bus bandwidth / algorithm bandwidth, as nccl-tests' doc/PERFORMANCE.md */
    /* Makes `iters` calls in a row and returns the first status that is not PEER_SUCCESS. */
    int (*run)(const struct perf_call *call, int iters);
    int (*mpi)(const struct perf_mpi_call *call);
};

/* NULL: there is none of that name. */
const struct perf_collective *perf_collective_find(const char *name);
/* "allreduce, reduce, ..." */
void perf_collective_names(char *text, size_t bytes);
/* Whether it has a root. */
bool perf_collective_is_rooted(const struct perf_collective *collective);
/* How many blocks a message of this collective is. */
size_t perf_collective_blocks(const struct perf_collective *collective, int nranks);
/* Whether MPI has such a call. */
bool perf_mpi_serves(const struct perf_call *call, int nranks);
/* As perf_collective's run, but of MPI's call. */
int perf_mpi_run(const struct perf_call *call, int iters);

/* ---- Options -------------------------------------------------------------------------------------------- */

#define PERF_MAX_RUNS 1000

struct perf_options {
    const struct perf_collective *collective;
    size_t min_bytes, max_bytes;
    size_t step_bytes; /* 0: step_factor is in force */
    int step_factor;
    unsigned types, ops; /* bit t: PEER_Datatype t, bit o: PEER_Op o */
    int root;            /* -1: each rank in turn */
    int iters;           /* 0: as many as fill a run */
    int warmup;
    int runs;
    int check; /* 0 or 1 */
    int graph; /* calls in a graph; 0: no graph; -1: the device's default */
    bool compare_nccl, compare_mpi;
    const char *tune, *plot; /* the file to write, or NULL */
    bool json, phases;
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
    void *send, *recv;       /* of the largest message */
    size_t *counts, *displs; /* of the row at hand */
    int position;            /* number of the next checked call: its data are its own */
};

/* One row of the table. */
struct perf_case {
    PEER_Datatype datatype;
    PEER_Op op;   /* PEER_N_OPS: this is no reduction */
    int root;     /* -1: there is none */
    size_t bytes; /* of the message */
    size_t count; /* of a block */
    int graph;    /* calls in a graph, or 0 */
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
/* Calls of a unit. */
int perf_runner_calls(const struct perf_runner *runner);
/* Times one run of so many units: microseconds per call on the slowest rank. All ranks get the same number. */
double perf_runner_us(struct perf_runner *runner, int units);
/* Microseconds per call, roughly: of ever longer runs, each made a few times, until one takes enough_us. */
double perf_runner_pilot(struct perf_runner *runner, double enough_us);
double perf_median(double *us, int runs);

/* Our call of a row, on this rank. */
struct perf_call perf_call_of(const struct perf *perf, const struct perf_case *c, enum perf_place place);
/* Times us at both places, and the rivals out of place in turns with us. */
void perf_time(struct perf *perf, const struct perf_case *c, struct perf_result *result);

/* ---- Checking ------------------------------------------------------------------------------------------- */

/* Checks a few calls with data of their own. Returns the number of wrong elements over all ranks. */
long long perf_check(struct perf *perf, const struct perf_case *c, enum perf_place place);

/* A number of any datatype: an integer, or two as a complex number. */
struct perf_number {
    int re, im;
};

/* Element i of the input of `rank` for a checked call, one of `nranks` that are combined: chosen so that the result
 * is exact, in whatever order that is done. */
struct perf_number perf_input(PEER_Datatype datatype, PEER_Op op, int rank, int nranks, size_t i,
                              int position);
/* What all ranks' element i comes to; of PEER_AVG the sum. */
struct perf_number perf_combined(PEER_Datatype datatype, PEER_Op op, int nranks, size_t i, int position);
/* Element i of array = number / divisor, rounded as the datatype does. */
void perf_encode(PEER_Datatype datatype, struct perf_number number, int divisor, size_t i, void *array);

/* ---- Tuning --------------------------------------------------------------------------------------------- */

/* Opens the file that --tune names; false after a message: all ranks alike. Prints the columns. */
bool perf_tune_open(struct perf *perf);
/* Measures all ways for a row's message, prints what came of it. */
void perf_tune(struct perf *perf, const struct perf_case *c);
/* Writes the table. */
void perf_tune_close(struct perf *perf);

/* ---- Phases --------------------------------------------------------------------------------------------- */

/* Prints the columns; false after a message: all ranks alike. */
bool perf_phases_open(const struct perf *perf);
/* Prints where the time of such a call goes. */
void perf_phases(struct perf *perf, const struct perf_case *c);

/* ---- Reporting ------------------------------------------------------------------------------------------ */

#define PERF_PLACE_BYTES 192
#define PERF_NAME_BYTES  256

/* What the rows came to so far. */
struct perf_totals {
    double busbw;
    int busbw_rows;
    long long wrong;
    bool checked;
    double log_ratio[2][PERF_N_RIVALS]; /* [1]: in a graph */
    int ratios[2][PERF_N_RIVALS];
};

/* What rank 0 does with what is measured. All but row and summary may be NULL. */
struct perf_sink {
    bool (*open)(const struct perf *perf);                                     /* false after a message */
    void (*header)(const struct perf *perf, char (*places)[PERF_PLACE_BYTES]); /* of all ranks */
    void (*note)(const struct perf *perf, const char *text);
    void (*row)(const struct perf *perf, const struct perf_case *c, const struct perf_result *result);
    bool (*summary)(const struct perf *perf, const struct perf_totals *totals); /* false after a message */
};

extern const struct perf_sink perf_text, perf_plot;
extern const struct perf_sink *const perf_json; /* NULL: not built in */

/* For sinks. < 0: there is none. */
double perf_algbw(const struct perf_case *c, double us);
double perf_busbw(const struct perf *perf, const struct perf_case *c, double us);
double perf_ratio(const struct perf_result *result, enum perf_rival rival);
const char *perf_rival_name(enum perf_rival rival);
bool perf_compared(const struct perf *perf, enum perf_rival rival);
/* body(arg, key, value) for what PEER_Comm_get_info tells, but for the plan, which is a row's. */
void perf_each_fact(PEER_Comm comm, void (*body)(void *arg, const char *key, const char *value), void *arg);
void perf_mpi_library(char *text, size_t bytes);

/* All ranks call these; rank 0 prints. open: false after a message, on all ranks alike. */
bool perf_report_open(struct perf *perf);
void perf_report_note(const struct perf *perf, const char *text);
void perf_report_header(const struct perf *perf);
void perf_report_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result);
/* Returns whether all that was checked was right, and all sinks well. */
bool perf_report_summary(const struct perf *perf);

#endif
