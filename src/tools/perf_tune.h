/* What --tune's files share: the ways of making a call, and their times. */
#ifndef PEER_TOOLS_PERF_TUNE_H
#define PEER_TOOLS_PERF_TUNE_H

#include <stdio.h>

#include "internal.h"

#define TUNE_MAX_SIZES 64 /* with a step factor of 2 and more, a size_t has no more */
#define TUNE_GRIDS     36 /* blocks x threads x pieces */
/* All, NCCL, and a pick for each size. */
#define TUNE_MAX_WAYS                                                                                        \
    (PEER_N_ALGORITHMS * PEER_N_PROTOCOLS * PEER_N_DIRECTIONS * TUNE_GRIDS + 1 + TUNE_MAX_SIZES)

/* A way is a row of a selection table, for messages of any size. */
struct tune {
    struct peer_row ways[TUNE_MAX_WAYS];
    int nways;
    uint64_t nbytes[TUNE_MAX_SIZES]; /* as selection counts a message; equal where it doesn't know the size */
    int nsizes;
    double us[TUNE_MAX_SIZES][TUNE_MAX_WAYS]; /* < 0: not measured */
};

/* The rows that serve every size best, with the fewest changes from one way to another: for each stretch of sizes
 * the way that is longest within 2% of the best. Returns how many; `rows` has room for TUNE_MAX_SIZES. */
int tune_rows(const struct tune *tune, struct peer_row *rows);
/* Writes them as PEER_TABLE wants them. */
void tune_write(FILE *to, const struct peer_row *rows, int nrows);

#endif
