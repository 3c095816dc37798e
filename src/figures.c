/* The figures of a peer path: from what the stages of the probe took to rates and latencies, and the judgement
 * whether a path with such rates may be used. Of several rounds the best counts: what disturbs a measurement only
 * makes it slower. */
#include "figures.h"

#include <stdlib.h>

/* A pair both of whose rates are less than this part of the others' is broken, whatever the reason: links of one
 * machine differ by less (PCIe 5.0 x16 within a switch to PCIe 3.0 x4: 1 to 16). */
#define PAIR_LEAST 0.05

/* Stores that get less than this part of what loads get, all ranks at once, have collapsed. Hosts that are in order
 * are at 0.8 to 1.3, those whose posted writes collapse at 0.05 to 0.35. */
#define PUSH_LEAST 0.5

/* Flows of data, from one rank to another. */
struct flow {
    int writer, reader;
};

/* ---- From stages to figures ------------------------------------------------------------------------------- */

static double stage_ns(const struct peer_probe_stage *stage)
{
    return stage->end_ns > stage->begin_ns ? (double)(stage->end_ns - stage->begin_ns) : 1;
}

void peer_figures_pairs(const struct peer_verdict *all, int size, const struct peer_probe_step *step,
                        float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS])
{
    for (uint32_t s = 0; s < step->stages; s++)
        for (int r = 0; r < size; r++) {
            const struct peer_probe_stage *stage = &all[r].result.stage[s];
            int round = (int)s / 2;
            uint32_t target = peer_probe_partner((uint32_t)r, (uint32_t)size, (uint32_t)round);
            float *entry, value;
            if (peer_probe_targets(step, (uint32_t)r, (uint32_t)size, s) == 0 || stage->amount == 0)
                continue;
            entry = &matrix[r][target];
            if (step->kind == PEER_PROBE_FLAGS)
                value = (float)(stage_ns(stage) / 1000 / (double)stage->amount);
            else
                value = (float)((double)stage->amount / stage_ns(stage));
            if (*entry == 0 || (step->kind == PEER_PROBE_FLAGS ? value < *entry : value > *entry))
                *entry = value;
        }
}

double peer_figures_together(const struct peer_verdict *all, int size, const struct peer_probe_step *step)
{
    /* Stages that make one round: staged visits a peer in each. */
    uint32_t group = step->pattern == PEER_PROBE_STAGED ? (uint32_t)size - 1 : 1;
    double best = 0;
    for (uint32_t first = 0; first + group <= step->stages; first += group) {
        double bytes = 0, ns = 0;
        for (uint32_t s = first; s < first + group; s++) {
            double slowest = 0;
            for (int r = 0; r < size; r++) {
                double took = stage_ns(&all[r].result.stage[s]);
                slowest = took > slowest ? took : slowest;
                bytes += (double)all[r].result.stage[s].amount;
            }
            ns += slowest;
        }
        if (bytes / size / ns > best)
            best = bytes / size / ns;
    }
    return best;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Of all entries off the diagonal but one. */
static double median_but(const float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS], int size, int row, int column)
{
    float values[PEER_MAX_PEERS * PEER_MAX_PEERS];
    size_t n = 0;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            if (i != j && !(i == row && j == column))
                values[n++] = matrix[i][j];
    qsort(values, n, sizeof values[0], compare);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double peer_figures_median(const float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS], int size)
{
    return median_but(matrix, size, -1, -1);
}

void peer_figures_settle(struct peer_figures *figures, const struct peer_matrices *matrices, int size,
                         enum peer_link link)
{
    figures->known = true;
    figures->flag_us = peer_figures_median(matrices->flag_us, size);
    figures->store_gbs = peer_figures_median(matrices->store_gbs, size);
    figures->load_gbs = peer_figures_median(matrices->load_gbs, size);
    /* A CPU's stores bring the lines in first: they are slower by nature. */
    figures->push_collapsed =
        link != PEER_LINK_HOST && figures->all_store_gbs < figures->all_load_gbs * PUSH_LEAST;
}

/* PCIe 5.0 x16 in one direction, as specified. */
#define FASTEST_PCIE_GBS 64

enum peer_link peer_figures_link(enum peer_link link, const struct peer_figures *figures)
{
    const bool faster =
        figures->known && figures->store_gbs > FASTEST_PCIE_GBS && figures->all_store_gbs > FASTEST_PCIE_GBS;
    return link == PEER_LINK_WIRE && faster ? PEER_LINK_NVLINK : link;
}

/* The longest flag between ranks of one island, or of different ones; `otherwise` if there are none such. */
static double longest_flag(const struct peer_matrices *m, const struct peer_grouping *g, bool within,
                           double otherwise)
{
    double longest = 0;
    for (uint32_t a = 0; a < g->nranks; a++)
        for (uint32_t b = 0; b < g->nranks; b++)
            if (a != b && (g->island[a] == g->island[b]) == within && m->flag_us[a][b] > longest)
                longest = m->flag_us[a][b];
    return longest > 0 ? longest : otherwise;
}

void peer_figures_islands(struct peer_figures *figures, const struct peer_matrices *matrices,
                          const struct peer_grouping *grouping)
{
    const double flag = peer_figures_median(matrices->flag_us, (int)grouping->nranks);
    struct peer_call call = {.nranks = grouping->nranks};
    peer_set_islands(&call, grouping->island, grouping->n);
    figures->islands = grouping->n;
    figures->columns = call.islands.columns;
    figures->near_flag_us = longest_flag(matrices, grouping, true, flag);
    figures->far_flag_us = longest_flag(matrices, grouping, false, flag);
    if (figures->near_store_gbs == 0)
        figures->near_store_gbs = figures->all_store_gbs;
    if (figures->far_store_gbs == 0)
        figures->far_store_gbs = figures->all_store_gbs;
}

const struct peer_figure_name peer_figure_names[PEER_N_FIGURES] = {
    {"flag_us", offsetof(struct peer_figures, flag_us)},
    {"store_gbs", offsetof(struct peer_figures, store_gbs)},
    {"load_gbs", offsetof(struct peer_figures, load_gbs)},
    {"all_store_gbs", offsetof(struct peer_figures, all_store_gbs)},
    {"all_load_gbs", offsetof(struct peer_figures, all_load_gbs)},
    {"all_both_gbs", offsetof(struct peer_figures, all_both_gbs)},
    {"ring_store_gbs", offsetof(struct peer_figures, ring_store_gbs)},
    {"staged_store_gbs", offsetof(struct peer_figures, staged_store_gbs)},
    {"islands", offsetof(struct peer_figures, islands)},
    {"columns", offsetof(struct peer_figures, columns)},
    {"near_flag_us", offsetof(struct peer_figures, near_flag_us)},
    {"far_flag_us", offsetof(struct peer_figures, far_flag_us)},
    {"near_store_gbs", offsetof(struct peer_figures, near_store_gbs)},
    {"far_store_gbs", offsetof(struct peer_figures, far_store_gbs)},
};

void peer_figures_text(const struct peer_figures *f, char *text, size_t text_bytes)
{
    if (!f->known)
        snprintf(text, text_bytes, "rates not measured");
    else
        snprintf(
            text, text_bytes,
            "flag %.2f us, store/load GB/s: %.3g/%.3g a pair, %.3g/%.3g all at once, %.3g/%.3g both at once; "
            "stores in a ring %.3g, staged %.3g%s",
            f->flag_us, f->store_gbs, f->load_gbs, f->all_store_gbs, f->all_load_gbs, f->all_both_gbs,
            f->all_both_gbs, f->ring_store_gbs, f->staged_store_gbs,
            f->push_collapsed ? "; stores collapse" : "");
}

/* ---- Judgement ---------------------------------------------------------------------------------------------- */

double peer_figures_floor(enum peer_link link, int sharers)
{
    static const double floors[PEER_N_LINKS] = {
        /* A hundredth of one channel of DDR4, some 10 GB/s: the least memory that a machine has. */
        [PEER_LINK_HOST] = 0.1,
        /* A tenth of the slowest memory that GPUs are made with: 64 bits of GDDR5, 80 GB/s. */
        [PEER_LINK_LOCAL] = 8,
        /* Less than one lane of PCIe 3.0 carries (0.985 GB/s, some 0.8 of it data), the slowest slot that a GPU of
         * today works in, and more than a hundredth of PCIe 5.0 x16 (57 GB/s at best). */
        [PEER_LINK_WIRE] = 0.6,
        [PEER_LINK_NVLINK] = 0.6, /* what is slower is PCIe */
        [PEER_LINK_SHM] = 0.6,    /* the same link */
    };
    return floors[link] / sharers;
}

/* The better of the two ways in which a flow's data can be moved: push by the writer, pull by the reader. */
static double rate_of(const struct peer_matrices *m, struct flow flow)
{
    double store = m->store_gbs[flow.writer][flow.reader], load = m->load_gbs[flow.reader][flow.writer];
    return store > load ? store : load;
}

static struct flow slowest(const struct peer_matrices *m, int size)
{
    struct flow least = {0, 1};
    for (struct flow f = {0, 0}; f.writer < size; f.writer++)
        for (f.reader = 0; f.reader < size; f.reader++)
            if (f.reader != f.writer && rate_of(m, f) < rate_of(m, least))
                least = f;
    return least;
}

bool peer_figures_pairs_sane(const struct peer_matrices *m, int size, double floor_gbs, char *why,
                             size_t why_bytes)
{
    struct flow f = slowest(m, size);
    double store = m->store_gbs[f.writer][f.reader], load = m->load_gbs[f.reader][f.writer];
    double stores = median_but(m->store_gbs, size, f.writer, f.reader);
    double loads = median_but(m->load_gbs, size, f.reader, f.writer);
    if (store < PAIR_LEAST * stores && load < PAIR_LEAST * loads) {
        snprintf(
            why, why_bytes,
            "the probe failed: from rank %d to rank %d go %.2g GB/s by stores and %.2g by loads, between "
            "others %.3g and %.3g",
            f.writer, f.reader, store, load, stores, loads);
        return false;
    }
    if (peer_figures_median(m->store_gbs, size) < floor_gbs &&
        peer_figures_median(m->load_gbs, size) < floor_gbs) {
        snprintf(why, why_bytes,
                 "the probe failed: from rank %d to rank %d go %.2g GB/s, and between most others less than "
                 "%.2g: no sound link is so slow",
                 f.writer, f.reader, rate_of(m, f), floor_gbs);
        return false;
    }
    return true;
}

bool peer_figures_together_sane(const struct peer_figures *figures, const struct peer_matrices *m, int size,
                                double floor_gbs, char *why, size_t why_bytes)
{
    struct flow f = slowest(m, size);
    if (figures->all_store_gbs >= floor_gbs || figures->all_load_gbs >= floor_gbs)
        return true;
    snprintf(
        why, why_bytes,
        "the probe failed: with all ranks at once each gets %.2g GB/s by stores and %.2g by loads, less "
        "than the %.2g that any sound link has (the slowest pair: from rank %d to rank %d, %.2g GB/s alone)",
        figures->all_store_gbs, figures->all_load_gbs, floor_gbs, f.writer, f.reader, rate_of(m, f));
    return false;
}
