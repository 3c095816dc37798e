/* Islands: groups of ranks that are near each other and far from the rest, as GPUs under one switch or one CPU are,
 * found in what the probe has measured and not in what the machine says of itself. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* The nearest two ranks of different islands are so many times as far from each other as the farthest two of one, or
 * more. A flag takes 0.63 to 0.73 us under one switch, 1.06 by way of the CPU; by way of the CPU it takes 1.04 to 1.12
 * whether or not there is another CPU between. */
#define CLEAR_GAP 1.2

/* The nearer of both directions: what disturbs a measurement only makes it longer. */
static float between(const float distance[PEER_MAX_PEERS][PEER_MAX_PEERS], int a, int b)
{
    return distance[a][b] < distance[b][a] ? distance[a][b] : distance[b][a];
}

/* Joins all ranks that steps no longer than `step` join. Returns the number of groups, which are numbered in the
 * order of their lowest ranks. */
static int join(const float distance[PEER_MAX_PEERS][PEER_MAX_PEERS], int size, float step,
                uint8_t group[PEER_MAX_PEERS])
{
    uint8_t number[PEER_MAX_PEERS], groups = 0;
    for (int r = 0; r < size; r++)
        group[r] = (uint8_t)r; /* the lowest rank of its group, in the end */
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            uint8_t low = group[a] < group[b] ? group[a] : group[b];
            uint8_t high = group[a] < group[b] ? group[b] : group[a];
            if (between(distance, a, b) > step)
                continue;
            for (int r = 0; r < size; r++)
                if (group[r] == high)
                    group[r] = low;
        }
    for (int r = 0; r < size; r++) {
        if (group[r] == r)
            number[r] = groups++;
        group[r] = number[group[r]];
    }
    return groups;
}

/* How many times as far the nearest ranks of different groups are from each other as the farthest of one; 0 where no
 * group has two. */
static double gap_of(const float distance[PEER_MAX_PEERS][PEER_MAX_PEERS], int size,
                     const uint8_t group[PEER_MAX_PEERS])
{
    double farthest_within = 0, nearest_between = INFINITY;
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            double d = between(distance, a, b);
            if (group[a] == group[b] && d > farthest_within)
                farthest_within = d;
            if (group[a] != group[b] && d < nearest_between)
                nearest_between = d;
        }
    return farthest_within > 0 ? nearest_between / farthest_within : 0;
}

int peer_islands(const float distance[PEER_MAX_PEERS][PEER_MAX_PEERS], int size,
                 uint8_t island[PEER_MAX_PEERS])
{
    uint8_t group[PEER_MAX_PEERS];
    double widest = CLEAR_GAP;
    int islands = 1;
    memset(island, 0, PEER_MAX_PEERS);
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++)
            if (!(between(distance, a, b) > 0)) /* not known */
                return 1;
    /* Every distance is tried as the longest step within an island. */
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            int groups = join(distance, size, between(distance, a, b), group);
            double gap = groups > 1 ? gap_of(distance, size, group) : 0;
            if (gap <= widest)
                continue;
            widest = gap;
            islands = groups;
            memcpy(island, group, (size_t)size);
        }
    return islands;
}

int peer_islands_measured(const struct peer_matrices *matrices, int size, uint8_t island[PEER_MAX_PEERS])
{
    float slowness[PEER_MAX_PEERS][PEER_MAX_PEERS] = {{0}};
    int islands = peer_islands(matrices->flag_us, size, island);
    if (islands > 1)
        return islands;
    for (int writer = 0; writer < size; writer++)
        for (int reader = 0; reader < size; reader++) {
            float store = matrices->store_gbs[writer][reader], load = matrices->load_gbs[reader][writer];
            float best = store > load ? store : load;
            slowness[writer][reader] = best > 0 ? 1 / best : 0;
        }
    return peer_islands(slowness, size, island);
}

void peer_islands_settle(struct peer_comm *comm)
{
    struct peer_grouping *g = &comm->grouping;
    const bool measured = comm->size > 1 && comm->size <= PEER_MAX_PEERS && comm->matrices.flag_us[0][1] > 0;
    if (comm->config.islands.nranks == (uint32_t)comm->size) {
        *g = comm->config.islands;
        return;
    }
    memset(g, 0, sizeof *g);
    g->nranks = (uint32_t)comm->size;
    g->n = measured ? (uint32_t)peer_islands_measured(&comm->matrices, comm->size, g->island) : 1;
}
