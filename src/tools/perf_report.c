/* perf_report.c: what peer_perf prints: facts, a table in nccl-tests' columns and our own behind them, a summary.
 *
 * Everything but the rows begins with `#`. The plan is the last column, since it has blanks in it. */
#include "config.h"
#include "perf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

#define PLACE_BYTES 192

static const char *const rival_names[PERF_N_RIVALS] = {"nccl", "mpi"};

/* What the rows came to so far; rank 0's. */
static struct {
    double busbw;
    int busbw_rows;
    long long wrong;
    bool checked;
    double log_ratio[2][PERF_N_RIVALS]; /* [1]: in a graph */
    int ratios[2][PERF_N_RIVALS];
} totals;

static bool compared(const struct perf *perf, enum perf_rival rival)
{
    return rival == PERF_NCCL ? perf->options.compare_nccl : perf->options.compare_mpi;
}

/* ---- Header --------------------------------------------------------------------------------------------- */

/* Host and processor of this rank. */
static void describe_place(const struct perf *perf, char *text, size_t bytes)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int length;

    MPI_Get_processor_name(host, &length);
#ifdef HAVE_CUDA
    if (perf->bed.cuda) {
        struct cudaDeviceProp properties = {0};
        char pci[32] = "";
        int device = 0;

        cudaGetDevice(&device);
        cudaGetDeviceProperties(&properties, device);
        cudaDeviceGetPCIBusId(pci, sizeof pci, device);
        snprintf(text, bytes, "%.60s, GPU %d, %.60s, %s", host, device, properties.name, pci);
        return;
    }
#endif
    (void)perf;
    snprintf(text, bytes, "%.60s, CPU", host);
}

static void print_communicator(PEER_Comm comm)
{
    MPI_Info info;
    int nkeys;
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    const char *separator = "";

    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    MPI_Info_get_nkeys(info, &nkeys);
    printf("# ");
    for (int i = 0; i < nkeys; i++) {
        int found;

        MPI_Info_get_nthkey(info, i, key);
        if (strcmp(key, "plan") == 0) /* that is for the rows */
            continue;
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
        printf("%s%s: %s", separator, key, value);
        separator = "; ";
    }
    printf("\n");
    MPI_Info_free(&info);
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
        char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
        int length;

        MPI_Get_library_version(library, &length);
        library[strcspn(library, ",\n\t")] = '\0';
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
        if (compared(perf, (enum perf_rival)rival))
            printf(" %9s %6s", rival_names[rival], "ratio");
    printf("  plan\n");
    printf("# %12s %12s %10s %6s %5s", "(B)", "(elements)", "", "", "");
    for (int place = 0; place < PERF_N_PLACES; place++)
        printf(" %9s %8s %8s %7s", "(us)", "(GB/s)", "(GB/s)", "");
    printf(" %6s", "");
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (compared(perf, (enum perf_rival)rival))
            printf(" %9s %6s", rival == PERF_MPI && perf->bed.cuda ? "+copies" : "(us)", "");
    printf("\n");
}

void perf_report_header(const struct perf *perf)
{
    char mine[PLACE_BYTES] = "", *all = NULL;
    int version;

    describe_place(perf, mine, sizeof mine);
    if (perf->rank == 0) {
        all = malloc((size_t)perf->size * PLACE_BYTES);
        if (!all)
            perf_die("out of memory");
    }
    MPI_Gather(mine, PLACE_BYTES, MPI_CHAR, all, PLACE_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (perf->rank != 0)
        return;
    PEER_Get_version(&version);
    printf("# peer_perf %d.%d.%d: %s on %d rank%s\n", version / 10000, version / 100 % 100, version % 100,
           perf->options.collective->name, perf->size, perf->size == 1 ? "" : "s");
    print_communicator(perf->comm);
    for (int r = 0; r < perf->size; r++)
        printf("# rank %d: %s\n", r, all + (size_t)r * PLACE_BYTES);
    free(all);
    if (!perf->options.tune) { /* which has columns of its own */
        print_measure(perf);
        print_columns(perf);
    }
    fflush(stdout);
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
    bool bandwidth = us > 0 && c->bytes > 0;
    double algbw = bandwidth ? (double)c->bytes / us / 1e3 : -1;
    double busbw = bandwidth ? algbw * perf->options.collective->busbw(perf->size) : -1;

    print_number(9, us);
    print_number(8, algbw);
    print_number(8, busbw);
    if (wrong < 0)
        printf(" %7s", "N/A");
    else
        printf(" %7lld", wrong);
    if (bandwidth) {
        totals.busbw += busbw;
        totals.busbw_rows++;
    }
    if (wrong >= 0) {
        totals.checked = true;
        totals.wrong += wrong;
    }
}

static void print_rival(const struct perf_case *c, enum perf_rival rival, double theirs, double ours)
{
    double ratio = theirs > 0 && ours > 0 ? theirs / ours : -1;

    print_number(9, theirs);
    if (ratio < 0) {
        printf(" %6s", "-");
        return;
    }
    printf(" %6.2f", ratio);
    totals.log_ratio[c->graph > 0][rival] += log(ratio);
    totals.ratios[c->graph > 0][rival]++;
}

void perf_report_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    if (perf->rank != 0)
        return;
    printf("  %12zu %12zu %10s %6s %5d", c->bytes, c->count,
           c->bytes > 0 ? perf_type_name(c->datatype) : "none",
           c->op < PEER_N_OPS ? perf_op_name(c->op) : "none", c->root);
    for (int place = 0; place < PERF_N_PLACES; place++)
        print_place(perf, c, result->us[place], result->wrong[place]);
    printf(" %6s", c->graph > 0 ? "graph" : "eager");
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (compared(perf, (enum perf_rival)rival))
            print_rival(c, (enum perf_rival)rival, result->rival_us[rival], result->us[PERF_OUT_OF_PLACE]);
    printf("  %s\n", result->plan[0] ? result->plan : "-");
    fflush(stdout);
}

/* ---- Summary -------------------------------------------------------------------------------------------- */

static void print_ratios(const struct perf *perf)
{
    static const char *const modes[] = {"eager", "graph"};

    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        for (int graph = 1; graph >= 0; graph--)
            if (compared(perf, (enum perf_rival)rival) && totals.ratios[graph][rival] > 0)
                printf("# Geometric mean of %s / ours, %s: %.2f (rows: %d)\n", rival_names[rival],
                       modes[graph], exp(totals.log_ratio[graph][rival] / totals.ratios[graph][rival]),
                       totals.ratios[graph][rival]);
}

bool perf_report_summary(const struct perf *perf)
{
    long long wrong;

    if (perf->rank == 0) {
        if (totals.checked)
            printf("# Wrong elements       : %lld %s\n", totals.wrong, totals.wrong ? "FAILED" : "OK");
        if (totals.busbw_rows > 0)
            printf("# Avg bus bandwidth    : %g\n", totals.busbw / totals.busbw_rows);
        print_ratios(perf);
    }
    wrong = totals.wrong;
    MPI_Bcast(&wrong, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    return wrong == 0;
}
