/* perf_time.c: timed runs.
 *
 * A run is some calls in a row, timed as a whole: from an MPI barrier to the end of the last call, with nothing
 * that would bring the ranks together in between. Its time is that of the slowest rank. We and the rivals take
 * turns, run by run, on the same buffers, so that what else the machine does meets all alike; of each one's runs
 * the median counts. */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

/* Without -n a run takes about RUN_US, in calls of the speed that pilot runs show: these grow until one takes
 * PILOT_US, and of each length the best of some counts, since one hiccup would make a short run look slow. */
#define RUN_US    30e3
#define PILOT_US  3e3
#define PILOTS    3
#define MAX_ITERS 20000
#define MIN_ITERS 3

static void capture(void *arg)
{
    struct perf_runner *runner = arg;

    runner->status = runner->run(&runner->call, runner->per_graph);
}

bool perf_runner_open(struct perf_runner *runner, struct bed *bed,
                      int (*run)(const struct perf_call *call, int iters), const struct perf_call *call,
                      int per_graph)
{
    memset(runner, 0, sizeof *runner);
    runner->run = run;
    runner->call = *call;
    runner->bed = bed;
    runner->per_graph = per_graph;
    if (per_graph > 0)
        runner->graph = bed_capture(bed, capture, runner);
    if (runner->status == PEER_SUCCESS)
        return true;
    if (runner->status != PEER_ERR_UNSUPPORTED)
        perf_die("%s", PEER_Last_error());
    perf_runner_close(runner);
    return false;
}

void perf_runner_close(struct perf_runner *runner)
{
    bed_graph_free(runner->bed, runner->graph);
    runner->graph = NULL;
}

void perf_runner_go(struct perf_runner *runner, int units)
{
    if (!runner->graph)
        runner->status = runner->run(&runner->call, units);
    else
        for (int i = 0; i < units; i++)
            bed_launch(runner->bed, runner->graph);
    if (runner->status != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
}

int perf_runner_calls(const struct perf_runner *runner)
{
    return runner->graph ? runner->per_graph : 1;
}

double perf_runner_us(struct perf_runner *runner, int units)
{
    double mine, slowest;
    int status;

    MPI_Barrier(MPI_COMM_WORLD);
    bed_mark(runner->bed, 0);
    perf_runner_go(runner, units);
    bed_mark(runner->bed, 1);
    mine = bed_elapsed_us(runner->bed);
    if (PEER_Comm_get_async_error(runner->call.comm, &status) != PEER_SUCCESS || status != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / ((double)units * perf_runner_calls(runner));
}

double perf_runner_pilot(struct perf_runner *runner, double enough_us)
{
    int each = perf_runner_calls(runner);
    double best = 0;

    for (int units = 1; units * each < MAX_ITERS; units *= 4) {
        best = perf_runner_us(runner, units);
        for (int i = 1; i < PILOTS; i++) {
            double us = perf_runner_us(runner, units);
            best = us < best ? us : best;
        }
        if (best * units * each > enough_us)
            break;
    }
    return best;
}

/* Warms up, and settles how much one run is: the same on all ranks. */
static void settle(struct perf_runner *runner, const struct perf_options *options)
{
    int each = perf_runner_calls(runner);
    double us, iters = options->iters;

    if (options->warmup > 0)
        perf_runner_go(runner, (options->warmup + each - 1) / each);
    if (options->iters == 0) {
        us = perf_runner_pilot(runner, PILOT_US);
        iters = us > 0 ? RUN_US / us : MAX_ITERS;
        iters = iters > MAX_ITERS ? MAX_ITERS : iters < MIN_ITERS ? MIN_ITERS : iters;
    }
    runner->units = ((int)iters + each - 1) / each;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double perf_median(double *us, int runs)
{
    qsort(us, (size_t)runs, sizeof *us, compare_doubles);
    return runs % 2 ? us[runs / 2] : (us[runs / 2 - 1] + us[runs / 2]) / 2;
}

static void get_plan(PEER_Comm comm, char *plan, size_t bytes)
{
    MPI_Info info;
    int found;

    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    MPI_Info_get(info, "plan", (int)bytes - 1, plan, &found);
    if (!found)
        plan[0] = '\0';
    MPI_Info_free(&info);
}

/* Whether NCCL makes such a call: the library gives to MPI what NCCL lacks, some datatypes and operations. */
static bool nccl_serves(const struct perf_call *call)
{
    char plan[64];
    int status;

    if (call->comm == PEER_COMM_NULL)
        return false;
    status = call->collective->run(call, 1);
    if (status == PEER_ERR_UNSUPPORTED)
        return false;
    if (status != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    get_plan(call->comm, plan, sizeof plan);
    return strncmp(plan, "nccl", 4) == 0;
}

/* The rival's own calls; false where there are none like ours. */
static bool rival_open(struct perf_runner *runner, struct perf *perf, const struct perf_case *c,
                       enum perf_rival rival)
{
    struct perf_call call = perf_call_of(perf, c, PERF_OUT_OF_PLACE);

    if (rival == PERF_NCCL) {
        call.comm = perf->nccl;
        return nccl_serves(&call) &&
               perf_runner_open(runner, &perf->bed, call.collective->run, &call, c->graph);
    }
    /* MPI can't be captured: beside our graphs it makes its calls one by one. */
    return perf->options.compare_mpi && perf_mpi_serves(&call, perf->size) &&
           perf_runner_open(runner, &perf->bed, perf_mpi_run, &call, 0);
}

/* Runs in turns; *us[i] becomes the time of runners[i]. */
static void take_turns(struct perf_runner *runners, int n, const struct perf_options *options, double *us[])
{
    for (int i = 0; i < n; i++)
        settle(&runners[i], options);
    for (int run = 0; run < options->runs; run++)
        for (int i = 0; i < n; i++)
            runners[i].us[run] = perf_runner_us(&runners[i], runners[i].units);
    for (int i = 0; i < n; i++)
        *us[i] = perf_median(runners[i].us, options->runs);
}

/* We, and out of place the rivals. Where our calls can't be captured the times stay "none". */
static void time_place(struct perf *perf, const struct perf_case *c, enum perf_place place,
                       struct perf_runner *runners, struct perf_result *result)
{
    double *us[1 + PERF_N_RIVALS];
    struct perf_call call = perf_call_of(perf, c, place);
    int n = 0;

    if (!perf_runner_open(&runners[n], &perf->bed, perf->options.collective->run, &call, c->graph))
        return;
    us[n++] = &result->us[place];
    for (int rival = 0; rival < PERF_N_RIVALS && place == PERF_OUT_OF_PLACE; rival++) {
        if (rival_open(&runners[n], perf, c, (enum perf_rival)rival))
            us[n++] = &result->rival_us[rival];
    }
    take_turns(runners, n, &perf->options, us);
    for (int i = 0; i < n; i++)
        perf_runner_close(&runners[i]);
    if (place == PERF_OUT_OF_PLACE)
        get_plan(perf->comm, result->plan, sizeof result->plan);
}

void perf_time(struct perf *perf, const struct perf_case *c, struct perf_result *result)
{
    struct perf_runner *runners = calloc(1 + PERF_N_RIVALS, sizeof *runners);

    if (!runners)
        perf_die("out of memory");
    memset(result, 0, sizeof *result);
    for (int i = 0; i < PERF_N_PLACES; i++)
        result->us[i] = result->wrong[i] = -1;
    for (int i = 0; i < PERF_N_RIVALS; i++)
        result->rival_us[i] = -1;
    time_place(perf, c, PERF_OUT_OF_PLACE, runners, result);
    if (c->count > 0 && !(perf->options.collective->flags & PERF_ONE_BUFFER))
        time_place(perf, c, PERF_IN_PLACE, runners, result);
    free(runners);
}
