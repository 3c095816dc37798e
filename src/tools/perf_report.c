/* perf_report.c: what the rows come to, and who is told of it: the sinks that options chose. */
#include "config.h"
#include "perf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

/* Rank 0's. */
static struct perf_totals totals;
static const struct perf_sink *sinks[2];
static int nsinks;

const char *perf_rival_name(enum perf_rival rival)
{
    static const char *const names[PERF_N_RIVALS] = {"nccl", "mpi"};

    return names[rival];
}

bool perf_compared(const struct perf *perf, enum perf_rival rival)
{
    return rival == PERF_NCCL ? perf->options.compare_nccl : perf->options.compare_mpi;
}

void perf_each_fact(PEER_Comm comm, void (*body)(void *arg, const char *key, const char *value), void *arg)
{
    MPI_Info info;
    int nkeys, found;
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];

    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    MPI_Info_get_nkeys(info, &nkeys);
    for (int i = 0; i < nkeys; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
        if (strcmp(key, "plan") != 0)
            body(arg, key, value);
    }
    MPI_Info_free(&info);
}

void perf_mpi_library(char *text, size_t bytes)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n\t")] = '\0';
    snprintf(text, bytes, "%s", library);
}

bool perf_report_open(struct perf *perf)
{
    int good = 1;

    sinks[nsinks++] = perf->options.json ? perf_json : &perf_text;
    if (perf->options.plot)
        sinks[nsinks++] = &perf_plot;
    if (perf->rank == 0)
        for (int i = 0; i < nsinks && good; i++)
            good = sinks[i]->open == NULL || sinks[i]->open(perf);
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return good;
}

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

void perf_report_header(const struct perf *perf)
{
    char mine[PERF_PLACE_BYTES] = "", (*all)[PERF_PLACE_BYTES] = NULL;

    describe_place(perf, mine, sizeof mine);
    if (perf->rank == 0) {
        all = malloc((size_t)perf->size * sizeof *all);
        if (!all)
            perf_die("out of memory");
    }
    MPI_Gather(mine, PERF_PLACE_BYTES, MPI_CHAR, all, PERF_PLACE_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; i < nsinks && perf->rank == 0; i++)
        if (sinks[i]->header)
            sinks[i]->header(perf, all);
    free(all);
}

void perf_report_note(const struct perf *perf, const char *text)
{
    for (int i = 0; i < nsinks && perf->rank == 0; i++)
        if (sinks[i]->note)
            sinks[i]->note(perf, text);
}

double perf_algbw(const struct perf_case *c, double us)
{
    return us > 0 && c->bytes > 0 ? (double)c->bytes / us / 1e3 : -1;
}

double perf_busbw(const struct perf *perf, const struct perf_case *c, double us)
{
    double algbw = perf_algbw(c, us);

    return algbw < 0 ? -1 : algbw * perf->options.collective->busbw(perf->size);
}

double perf_ratio(const struct perf_result *result, enum perf_rival rival)
{
    double ours = result->us[PERF_OUT_OF_PLACE], theirs = result->rival_us[rival];

    return theirs > 0 && ours > 0 ? theirs / ours : -1;
}

static void count(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    for (int place = 0; place < PERF_N_PLACES; place++) {
        double busbw = perf_busbw(perf, c, result->us[place]);
        if (busbw >= 0) {
            totals.busbw += busbw;
            totals.busbw_rows++;
        }
        if (result->wrong[place] >= 0) {
            totals.checked = true;
            totals.wrong += result->wrong[place];
        }
    }
    for (int rival = 0; rival < PERF_N_RIVALS; rival++) {
        double ratio = perf_ratio(result, (enum perf_rival)rival);
        if (ratio > 0) {
            totals.log_ratio[c->graph > 0][rival] += log(ratio);
            totals.ratios[c->graph > 0][rival]++;
        }
    }
}

void perf_report_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    if (perf->rank != 0)
        return;
    count(perf, c, result);
    for (int i = 0; i < nsinks; i++)
        sinks[i]->row(perf, c, result);
}

bool perf_report_summary(const struct perf *perf)
{
    int good = totals.wrong == 0;

    for (int i = 0; i < nsinks && perf->rank == 0; i++)
        good = sinks[i]->summary(perf, &totals) && good;
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return good;
}
