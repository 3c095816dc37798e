/* matrix.c: see matrix.h. */
#include "matrix.h"

static void print_matrix(const char *title, const float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS], int size)
{
    printf("\n%s\n      ", title);
    for (int column = 0; column < size; column++)
        printf("%8d", column);
    printf("\n");
    for (int row = 0; row < size; row++) {
        printf("  %4d", row);
        for (int column = 0; column < size; column++)
            if (row == column)
                printf("%8s", "-");
            else
                printf("%8.*f", matrix[row][column] < 100 ? 2 : 0, (double)matrix[row][column]);
        printf("\n");
    }
}

static void print_islands(const struct peer_comm *comm)
{
    const struct peer_grouping *g = &comm->grouping;
    printf("\nislands");
    if (g->n == 1)
        printf("  one: no clear gap between near and far ranks");
    for (uint32_t i = 0; g->n > 1 && i < g->n; i++) {
        printf("  {");
        for (int r = 0, first = 1; r < comm->size; r++)
            if (g->island[r] == i) {
                printf("%s%d", first ? "" : " ", r);
                first = 0;
            }
        printf("}");
    }
    printf("\n");
}

void matrix_print(const struct peer_comm *comm)
{
    const struct peer_figures *f = &comm->figures;
    if (!f->known) {
        printf("%-12s not measured%s\n", "rates", comm->peers.ok ? "" : ": there is no peer path");
        return;
    }
    print_matrix("stores, GB/s: row into column, one pair alone", comm->matrices.store_gbs, comm->size);
    print_matrix("loads, GB/s: row from column, one pair alone", comm->matrices.load_gbs, comm->size);
    print_matrix("flags, us one way: row to column and back, halved", comm->matrices.flag_us, comm->size);
    printf("\nrates of each rank, GB/s, all at once\n");
    printf("  stores to all peers     %8.2f%s\n", f->all_store_gbs,
           f->push_collapsed ? "  (collapsed: loads will serve)" : "");
    printf("  loads from all peers    %8.2f\n", f->all_load_gbs);
    printf("  both, of each           %8.2f\n", f->all_both_gbs);
    printf("  stores to the next rank %8.2f\n", f->ring_store_gbs);
    printf("  stores to all in turn   %8.2f\n", f->staged_store_gbs);
    if (f->islands > 1)
        printf("  stores within islands   %8.2f\n  stores between islands  %8.2f\n", f->near_store_gbs,
               f->far_store_gbs);
    print_islands(comm);
}
