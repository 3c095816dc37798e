/* perf_rows.c: from the times of all ways at all sizes to the rows of a table. */
#include "perf_tune.h"

#include <math.h>

/* Times that are so close are equal: who is best then is chance. */
#define TIE 1.02

static double best_us(const struct tune *tune, int size)
{
    double best = -1;

    for (int way = 0; way < tune->nways; way++) {
        double us = tune->us[size][way];
        if (us >= 0 && (best < 0 || us < best))
            best = us;
    }
    return best;
}

/* Its time by the best one's; infinite where it was not measured. */
static double ratio(const struct tune *tune, int size, int way)
{
    return tune->us[size][way] < 0 ? INFINITY : tune->us[size][way] / best_us(tune, size);
}

/* How many sizes from `from` on the way serves as well as the best. *sum: of its ratios there. */
static int reach(const struct tune *tune, int from, int way, double *sum)
{
    int size = from;

    *sum = 0;
    while (size < tune->nsizes && ratio(tune, size, way) <= TIE)
        *sum += ratio(tune, size++, way);
    return size - from;
}

/* The way that reaches furthest from `from` on, of equal ones the fastest. Returns where it ends. */
static int furthest(const struct tune *tune, int from, int *best)
{
    int most = 0;
    double least = INFINITY;

    for (int way = 0; way < tune->nways; way++) {
        double sum;
        int sizes = reach(tune, from, way, &sum);
        if (sizes > most || (sizes == most && sizes > 0 && sum < least)) {
            most = sizes;
            least = sum;
            *best = way;
        }
    }
    return from + most;
}

/* Where selection doesn't know the size: the way that is best over all. */
static int best_over_all(const struct tune *tune)
{
    int best = 0;
    double least = INFINITY;

    for (int way = 0; way < tune->nways; way++) {
        double sum = 0;
        for (int size = 0; size < tune->nsizes; size++)
            sum += log(ratio(tune, size, way));
        if (sum < least) {
            least = sum;
            best = way;
        }
    }
    return best;
}

int tune_rows(const struct tune *tune, struct peer_row *rows)
{
    int last = tune->nsizes - 1, n = 0, way = 0;

    if (tune->nbytes[0] == tune->nbytes[last]) {
        rows[0] = tune->ways[best_over_all(tune)];
        rows[0].max_bytes = tune->nbytes[0] == 0 ? UINT64_MAX : tune->nbytes[0];
        return 1;
    }
    for (int from = 0, end; from <= last; from = end) {
        end = furthest(tune, from, &way);
        rows[n] = tune->ways[way];
        /* Halfway to the first size of the next row. */
        rows[n++].max_bytes =
            end > last ? tune->nbytes[last] : tune->nbytes[end - 1] / 2 + tune->nbytes[end] / 2;
    }
    return n;
}

void tune_write(FILE *to, const struct peer_row *rows, int nrows)
{
    for (int i = 0; i < nrows; i++) {
        char text[128];
        peer_row_text(&rows[i], text, sizeof text);
        fprintf(to, "%s\n", text);
    }
}
