/* perf_text.c: what peer_perf prints: facts, a table in nccl-tests' columns and our own behind them, a summary.
 *
 * Everything but the rows begins with `#`. The plan is the last column, since it has blanks in it. */
#include "perf.h"

#include <math.h>
#include <stdio.h>

/* ---- Header --------------------------------------------------------------------------------------------- */

static void print_fact(void *separator, const char *key, const char *value)
{
    printf("%s%s: %s", *(const char **)separator, key, value);
    *(const char **)separator = "; ";
}

static void print_communicator(PEER_Comm comm)
{
    const char *separator = "# ";

    perf_each_fact(comm, print_fact, &separator);
    printf("\n");
}

static void print_measure(const struct perf *perf)
{
    const struct perf_options *options = &perf->options;
    char iters[64] = "as many calls as take some 30 ms";

    if (options->iters > 0)
        snprintf(iters, sizeof iters, "%d calls", options->iters);
    printf("# time: us per call on the slowest rank, median of %d runs of %s\n", options->runs, iters);
    if (options->compare_nccl || options->compare_mpi)
        printf("# ratio: their time with two buffers / ours, measured in turns on the same buffers\n");
    if (options->compare_nccl && perf->nccl != PEER_COMM_NULL)
        printf("# nccl: through a communicator with transport=nccl\n");
    else if (options->compare_nccl)
        printf("# nccl: not compared: %s\n", perf->no_nccl);
    if (options->compare_mpi) {
        char library[PERF_NAME_BYTES];

        perf_mpi_library(library, sizeof library);
        printf("# mpi: %s%s\n", library,
               perf->bed.cuda ? ", with a copy to pinned host memory before and one back after, no graph"
                              : "");
    }
}

static void print_columns(const struct perf *perf)
{
    printf("#\n# %12s %12s %10s %6s %5s %35s %35s\n", "", "", "", "", "", "out-of-place          ",
           "in-place            ");
    printf("# %12s %12s %10s %6s %5s", "size", "count", "type", "redop", "root");
    for (int place = 0; place < PERF_N_PLACES; place++)
        printf(" %9s %8s %8s %7s", "time", "algbw", "busbw", "#wrong");
    printf(" %6s", "mode");
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (perf_compared(perf, (enum perf_rival)rival))
            printf(" %9s %6s", perf_rival_name((enum perf_rival)rival), "ratio");
    printf("  plan\n");
    printf("# %12s %12s %10s %6s %5s", "(B)", "(elements)", "", "", "");
    for (int place = 0; place < PERF_N_PLACES; place++)
        printf(" %9s %8s %8s %7s", "(us)", "(GB/s)", "(GB/s)", "");
    printf(" %6s", "");
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (perf_compared(perf, (enum perf_rival)rival))
            printf(" %9s %6s", rival == PERF_MPI && perf->bed.cuda ? "+copies" : "(us)", "");
    printf("\n");
}

static void print_header(const struct perf *perf, char (*places)[PERF_PLACE_BYTES])
{
    int version;

    PEER_Get_version(&version);
    printf("# peer_perf %d.%d.%d: %s on %d rank%s\n", version / 10000, version / 100 % 100, version % 100,
           perf->options.collective->name, perf->size, perf->size == 1 ? "" : "s");
    print_communicator(perf->comm);
    for (int r = 0; r < perf->size; r++)
        printf("# rank %d: %s\n", r, places[r]);
    if (!perf->options.tune && !perf->options.phases) { /* which have columns of their own */
        print_measure(perf);
        print_columns(perf);
    }
    fflush(stdout);
}

static void print_note(const struct perf *perf, const char *text)
{
    (void)perf;
    printf("# %s\n", text);
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* Four digits of what is 0.07 as of what is 7000. */
static void print_number(int width, double value)
{
    if (value < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, value);
}

static void print_place(const struct perf *perf, const struct perf_case *c, double us, long long wrong)
{
    print_number(9, us);
    print_number(8, perf_algbw(c, us));
    print_number(8, perf_busbw(perf, c, us));
    if (wrong < 0)
        printf(" %7s", "N/A");
    else
        printf(" %7lld", wrong);
}

static void print_rival(const struct perf_result *result, enum perf_rival rival)
{
    double ratio = perf_ratio(result, rival);

    print_number(9, result->rival_us[rival]);
    if (ratio < 0)
        printf(" %6s", "-");
    else
        printf(" %6.2f", ratio);
}

static void print_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    printf("  %12zu %12zu %10s %6s %5d", c->bytes, c->count,
           c->bytes > 0 ? perf_type_name(c->datatype) : "none",
           c->op < PEER_N_OPS ? perf_op_name(c->op) : "none", c->root);
    for (int place = 0; place < PERF_N_PLACES; place++)
        print_place(perf, c, result->us[place], result->wrong[place]);
    printf(" %6s", c->graph > 0 ? "graph" : "eager");
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (perf_compared(perf, (enum perf_rival)rival))
            print_rival(result, (enum perf_rival)rival);
    printf("  %s\n", result->plan[0] ? result->plan : "-");
    fflush(stdout);
}

/* ---- Summary -------------------------------------------------------------------------------------------- */

static void print_ratios(const struct perf *perf, const struct perf_totals *totals)
{
    static const char *const modes[] = {"eager", "graph"};

    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        for (int graph = 1; graph >= 0; graph--)
            if (perf_compared(perf, (enum perf_rival)rival) && totals->ratios[graph][rival] > 0)
                printf("# Geometric mean of %s / ours, %s: %.2f (rows: %d)\n",
                       perf_rival_name((enum perf_rival)rival), modes[graph],
                       exp(totals->log_ratio[graph][rival] / totals->ratios[graph][rival]),
                       totals->ratios[graph][rival]);
}

static bool print_summary(const struct perf *perf, const struct perf_totals *totals)
{
    if (totals->checked)
        printf("# Wrong elements       : %lld %s\n", totals->wrong, totals->wrong ? "FAILED" : "OK");
    if (totals->busbw_rows > 0)
        printf("# Avg bus bandwidth    : %g\n", totals->busbw / totals->busbw_rows);
    print_ratios(perf, totals);
    return true;
}

const struct perf_sink perf_text = {NULL, print_header, print_note, print_row, print_summary};
