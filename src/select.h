/* From a call to a plan: what selection is asked, and knows; its rows, their text, and PEER_TABLE's. */
#ifndef PEER_SELECT_H
#define PEER_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/launch.h"

enum peer_path { PEER_PATH_PEER, PEER_PATH_NCCL, PEER_PATH_MPI, PEER_PATH_SELF };

/* What joins the ranks: the CPU's caches, the memory of the one GPU that they share, PCIe, PCIe to the host's memory, or
 * links between GPUs that were measured to be faster than PCIe. */
enum peer_link {
    PEER_LINK_HOST,
    PEER_LINK_LOCAL,
    PEER_LINK_WIRE,
    PEER_LINK_SHM,
    PEER_LINK_NVLINK,
    PEER_N_LINKS
};

/* The peer path's figures, equal on all ranks. Rates are those of the kernels' own 16-byte accesses, in GB/s. */
struct peer_figures {
    bool known;
    double flag_us;                     /* a flag, one way; as the next two the median over pairs */
    double store_gbs, load_gbs;         /* one pair alone; others run that have no rank in common with it */
    double all_store_gbs, all_load_gbs; /* what each rank gets in all when all go to all peers at once */
    double all_both_gbs;                /* the same each way, when all store and load at once */
    double ring_store_gbs;              /* each rank to the next one only */
    double staged_store_gbs; /* each to one at a time, and from one: all peers in turn, waits not counted */
    double islands, columns; /* that the ranks form; ranks of the largest */
    double near_flag_us, far_flag_us;     /* the longest within an island, and to another; if there is one */
    double near_store_gbs, far_store_gbs; /* each to its own island; to its owners in others */
    bool push_collapsed;                  /* stores fall off when all store at once, loads don't: pull */
};

/* A row of a selection table: the first serves whose link and collective are the query's, whose range holds its
 * ranks, and whose max_bytes is no less than its message. */
struct peer_row {
    uint32_t link;       /* enum peer_link */
    uint32_t collective; /* enum peer_collective, or a set of them, see rows.h */
    uint32_t min_ranks, max_ranks;
    uint64_t max_bytes;
    uint32_t algorithm;
    uint32_t protocol;
    uint32_t blocks;    /* at most */
    uint32_t threads;   /* of a block; the host device has one */
    uint32_t direction; /* enum peer_direction */
    uint32_t pieces;    /* that a message is cut into at least, so that they overlap; 0 is 1 */
    uint32_t path;      /* enum peer_path: PEER_PATH_PEER or PEER_PATH_NCCL */
};

/* What selection knows. Pure: equal on all ranks for the same call. */
struct peer_query {
    enum peer_collective collective;
    uint64_t
        nbytes; /* of the message, or of the largest block that a rank sends to another; 0 where not all know */
    uint32_t nranks;
    enum peer_link link;
    bool peer_ok;     /* the peer path passed its probe */
    bool line_ok;     /* 128-bit lines don't tear */
    uint32_t islands; /* that the ranks form; 1, or 0: none are known */
    bool nccl_ok;     /* there is an NCCL communicator, and it knows the datatype and operation */
    uint32_t
        max_blocks; /* of a grid, and of all its blocks together: what is resident on every rank at once, */
    uint32_t max_threads; /* while another communicator's call is as well */
    /* forced by settings, or PEER_CHOICE_AUTO (algorithm, protocol, direction) and 0 (blocks, threads, pieces) */
    uint32_t algorithm, protocol, direction, blocks, threads, pieces;
    /* looked at before the built-in ones: PEER_TABLE's, then the model's; may be NULL */
    const struct peer_row *rows;
    size_t nrows;
    const struct peer_row *model_rows;
    size_t nmodel_rows;
};

struct peer_plan {
    enum peer_path path;
    uint32_t algorithm; /* these six for PEER_PATH_PEER alone */
    uint32_t protocol;
    uint32_t direction;
    uint32_t blocks;
    uint32_t threads;
    uint32_t pieces;
    const char *reason; /* static text: whose row, or why not the peer path */
};

/* PEER_TABLE's. */
struct peer_table {
    struct peer_row *rows; /* NULL: none */
    size_t nrows;
};

/* ---- select.c, row_text.c ------------------------------------------------------------------------------- */

static inline uint32_t peer_at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

struct peer_plan peer_select(const struct peer_query *query);
bool peer_collective_has_twoshot(uint32_t collective);
const char *peer_collective_name(uint32_t collective);
/* "ipc oneshot.line 14x256", "nccl", ... into text; transport is the peer path's name. */
void peer_plan_text(const struct peer_plan *plan, const char *transport, char *text, size_t text_bytes);
const char *peer_link_name(enum peer_link link);
/* The row that a query falls in, or "none"; PEER_TABLE's rows and every built-in one. For peer_info. */
void peer_select_print_row(FILE *to, const struct peer_query *query);
void peer_select_print(FILE *to, const struct peer_table *table);
/* A row as one line of text, of which PEER_TABLE's files are made, and back: false with the reason in `why`. */
void peer_row_text(const struct peer_row *row, char *text, size_t text_bytes);
bool peer_row_parse(const char *text, struct peer_row *row, char *why, size_t why_bytes);

/* ---- table.c: PEER_TABLE ----------------------------------------------------------------------------------- */

struct peer_bootstrap;

/* A file's rows; PEER_ERR_SETTING names what is wrong, file and line. */
int peer_table_read(const char *file, struct peer_table *table);
/* Collective: gives all ranks those of rank 0, from its file ("": none) or, if there is one, the parent's. */
int peer_table_load(struct peer_bootstrap *boot, const char *file, const struct peer_table *parent,
                    struct peer_table *table);
void peer_table_free(struct peer_table *table);

#endif
