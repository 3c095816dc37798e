/* perf_json.c: --json: the facts and the rows as one JSON document on standard output. What can't be had is null. */
#include "config.h"
#include "internal.h"
#include "perf.h"

#ifdef HAVE_JANSSON

    #include <jansson.h>
    #include <math.h>
    #include <stdio.h>

static json_t *document, *rows, *notes;

static json_t *number(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static void add_fact(void *facts, const char *key, const char *value)
{
    json_object_set_new(facts, key, json_string(value));
}

static json_t *communicator(PEER_Comm comm)
{
    json_t *facts = json_object();

    perf_each_fact(comm, add_fact, facts);
    return facts;
}

/* Of what is compared: what it is, or why it isn't there. */
static json_t *rivals(const struct perf *perf)
{
    json_t *all = json_object();
    char library[PERF_NAME_BYTES];

    if (perf->options.compare_nccl && perf->nccl != PEER_COMM_NULL)
        json_object_set_new(all, "nccl", communicator(perf->nccl));
    else if (perf->options.compare_nccl)
        json_object_set_new(all, "nccl", json_pack("{ss}", "none", perf->no_nccl));
    if (perf->options.compare_mpi) {
        perf_mpi_library(library, sizeof library);
        json_object_set_new(all, "mpi", json_pack("{ss sb}", "library", library, "copies", perf->bed.cuda));
    }
    return all;
}

static void begin(const struct perf *perf, char (*places)[PERF_PLACE_BYTES])
{
    json_t *ranks = json_array();
    char version_text[32];
    int version;

    PEER_Get_version(&version);
    peer_version_text(version, version_text, sizeof version_text);
    for (int r = 0; r < perf->size; r++)
        json_array_append_new(ranks, json_string(places[r]));
    rows = json_array();
    notes = json_array();
    document =
        json_pack("{ss ss ss so so so si so}", "program", "peer_perf", "version", version_text, "collective",
                  perf->options.collective->name, "communicator", communicator(perf->comm), "ranks", ranks,
                  "compared", rivals(perf), "runs", perf->options.runs, "calls_in_a_run",
                  perf->options.iters > 0 ? json_integer(perf->options.iters) : json_null());
    if (!document)
        perf_die("out of memory for the JSON document");
}

static void add_note(const struct perf *perf, const char *text)
{
    (void)perf;
    json_array_append_new(notes, json_string(text));
}

static json_t *place(const struct perf *perf, const struct perf_case *c, double us, long long wrong)
{
    return json_pack("{so so so so}", "us", number(us), "algbw", number(perf_algbw(c, us)), "busbw",
                     number(perf_busbw(perf, c, us)), "wrong", wrong < 0 ? json_null() : json_integer(wrong));
}

static void add_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    json_t *row = json_object();

    json_object_set_new(row, "size", json_integer((json_int_t)c->bytes));
    json_object_set_new(row, "count", json_integer((json_int_t)c->count));
    json_object_set_new(row, "type", c->bytes > 0 ? json_string(perf_type_name(c->datatype)) : json_null());
    json_object_set_new(row, "redop", c->op < PEER_N_OPS ? json_string(perf_op_name(c->op)) : json_null());
    json_object_set_new(row, "root", c->root < 0 ? json_null() : json_integer(c->root));
    json_object_set_new(row, "mode", json_string(c->graph > 0 ? "graph" : "eager"));
    json_object_set_new(row, "out_of_place",
                        place(perf, c, result->us[PERF_OUT_OF_PLACE], result->wrong[PERF_OUT_OF_PLACE]));
    json_object_set_new(row, "in_place",
                        place(perf, c, result->us[PERF_IN_PLACE], result->wrong[PERF_IN_PLACE]));
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (perf_compared(perf, (enum perf_rival)rival))
            json_object_set_new(row, perf_rival_name((enum perf_rival)rival),
                                json_pack("{so so}", "us", number(result->rival_us[rival]), "ratio",
                                          number(perf_ratio(result, (enum perf_rival)rival))));
    json_object_set_new(row, "plan", result->plan[0] ? json_string(result->plan) : json_null());
    json_array_append_new(rows, row);
}

/* Geometric means of their time / ours. */
static json_t *mean_ratios(const struct perf_totals *totals, bool graph)
{
    json_t *means = json_object();

    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        if (totals->ratios[graph][rival] > 0)
            json_object_set_new(
                means, perf_rival_name((enum perf_rival)rival),
                json_real(exp(totals->log_ratio[graph][rival] / totals->ratios[graph][rival])));
    return means;
}

static bool end(const struct perf *perf, const struct perf_totals *totals)
{
    bool good;

    (void)perf;
    json_object_set_new(document, "rows", rows);
    json_object_set_new(document, "notes", notes);
    json_object_set_new(document, "wrong", totals->checked ? json_integer(totals->wrong) : json_null());
    json_object_set_new(document, "mean_busbw",
                        number(totals->busbw_rows > 0 ? totals->busbw / totals->busbw_rows : -1));
    json_object_set_new(
        document, "mean_ratios",
        json_pack("{so so}", "graph", mean_ratios(totals, true), "eager", mean_ratios(totals, false)));
    good = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 && putchar('\n') != EOF;
    json_decref(document);
    if (!good)
        fprintf(stderr, "peer_perf: the JSON document could not be written\n");
    return good;
}

static const struct perf_sink sink = {NULL, begin, add_note, add_row, end};
const struct perf_sink *const perf_json = &sink;

#else

const struct perf_sink *const perf_json = NULL;

#endif
