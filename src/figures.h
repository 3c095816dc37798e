/* Between src/probe.c, which runs the probe's steps, and src/figures.c, which makes figures of what came out and
 * judges them. All pure: every rank computes the same from what all ranks have told. */
#ifndef PEER_FIGURES_H
#define PEER_FIGURES_H

#include "internal.h"

/* What a rank saw in a step, and can be heard of by all. */
struct peer_verdict {
    int32_t status;
    struct peer_probe_result result;
};

/* A step of pairs (`all` has a verdict of each rank), into a matrix: GB/s, or the us of a flag. */
void peer_figures_pairs(const struct peer_verdict *all, int size, const struct peer_probe_step *step,
                        float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS]);
/* A step with all ranks at once: what each rank gets, in GB/s. */
double peer_figures_together(const struct peer_verdict *all, int size, const struct peer_probe_step *step);
/* The figures that follow from the matrices, and from the other figures. */
void peer_figures_settle(struct peer_figures *figures, const struct peer_matrices *matrices, int size,
                         enum peer_link link);
/* The figures of islands, from those of all; near_store_gbs and far_store_gbs may have been measured before. */
void peer_figures_islands(struct peer_figures *figures, const struct peer_matrices *matrices,
                          const struct peer_grouping *grouping);
/* The median over all pairs. */
double peer_figures_median(const float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS], int size);

/* GB/s; a rank that gets less has no path that is worth the name. sharers: ranks that share a GPU. */
double peer_figures_floor(enum peer_link link, int sharers);
/* False with the reason in `why` if a pair is far slower than the others, or all are below the floor. */
bool peer_figures_pairs_sane(const struct peer_matrices *matrices, int size, double floor_gbs, char *why,
                             size_t why_bytes);
/* The same of all ranks at once. */
bool peer_figures_together_sane(const struct peer_figures *figures, const struct peer_matrices *matrices,
                                int size, double floor_gbs, char *why, size_t why_bytes);

#endif
