/* Selection: from a collective, its size and what the communicator can do to a plan. Reading rows is pure, so all ranks
 * choose alike. */
#include "internal.h"

#include "rows.h"

/* A collective with counts that all ranks know goes as the one that it is where they are alike. */
static uint32_t without_counts(uint32_t collective)
{
    return collective == PEER_COLL_ALLGATHERV       ? PEER_COLL_ALLGATHER
           : collective == PEER_COLL_REDUCE_SCATTER ? PEER_COLL_REDUCE_SCATTER_BLOCK
                                                    : collective;
}

static bool in_set(uint32_t set, uint32_t collective)
{
    bool whole = collective == PEER_COLL_REDUCE || collective == PEER_COLL_BCAST;
    return set == EVERY || set == collective || set == without_counts(collective) ||
           (set == ROOTED && peer_collective_rooted(collective)) || (set == WHOLE && whole);
}

static bool fits(const struct peer_row *row, const struct peer_query *query)
{
    return row->link == query->link && in_set(row->collective, query->collective) &&
           row->min_ranks <= query->nranks && query->nranks <= row->max_ranks &&
           query->nbytes <= row->max_bytes &&
           (row->path != PEER_PATH_NCCL || (query->nccl_ok && query->algorithm == PEER_CHOICE_AUTO));
}

/* The first row that fits. What is meant for the collective without counts stands back behind a row that names the one
 * with them. */
static const struct peer_row *row_among(const struct peer_row *among, size_t n,
                                        const struct peer_query *query)
{
    const struct peer_row *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!fits(&among[i], query))
            continue;
        if (among[i].collective == query->collective)
            return &among[i];
        if (first == NULL)
            first = &among[i];
        if (first->collective != without_counts(query->collective))
            return first;
    }
    return first;
}

/* PEER_TABLE's, the model's, or a built-in one; *reason: which. */
static const struct peer_row *row_of(const struct peer_query *query, const char **reason)
{
    const struct peer_row *row = row_among(query->rows, query->nrows, query);
    *reason = "PEER_TABLE";
    if (row == NULL) {
        row = row_among(query->model_rows, query->nmodel_rows, query);
        *reason = row != NULL ? "the model" : "the table";
    }
    if (row != NULL)
        return row;
    size_t n;
    const struct peer_row *rows = peer_builtin_rows(&n);
    return row_among(rows, n, query);
}

/* Lines that a block stores for each reader of a part over a link to the host's memory, about: a warp's, 512 bytes at once.
 * 43,008 bytes in runs of half of that took 17.3 us and not 13.8 on 4 ranks, 36 and not 29 on 8. */
#define LINES_OF_PART 32

static bool in_long_runs(const struct peer_query *query, const struct peer_plan *plan)
{
    return query->link == PEER_LINK_SHM && plan->algorithm == PEER_ALGO_TWOSHOT &&
           plan->protocol != PEER_PROTO_FLAG &&
           (query->collective == PEER_COLL_ALLREDUCE || query->collective == PEER_COLL_REDUCE);
}

/* Blocks that have something to do: every thread at least one pack, and over that link about as many lines of each part. All,
 * where the size is not known. */
static uint32_t busy_blocks(const struct peer_query *query, const struct peer_plan *plan, uint32_t most)
{
    const bool runs = in_long_runs(query, plan);
    const uint64_t shares = query->collective == PEER_COLL_ALLREDUCE || runs ? 1 : query->nranks;
    const uint64_t pack = peer_pack_of(plan->protocol, 1, 16).data, bytes = query->nbytes * shares;
    const uint64_t run = LINES_OF_PART * pack * query->nranks * (plan->pieces > 1 ? plan->pieces : 1);
    uint64_t blocks = (bytes + pack * plan->threads - 1) / (pack * plan->threads);
    if (query->collective == PEER_COLL_ALLTOALLV)
        return most;
    if (runs && blocks > (bytes + run / 2) / run)
        blocks = (bytes + run / 2) / run;
    return blocks < 1 ? 1 : blocks < most ? (uint32_t)blocks : most;
}

bool peer_collective_has_twoshot(uint32_t collective)
{
    return collective == PEER_COLL_ALLREDUCE || in_set(WHOLE, collective);
}

/* What the settings force, or the row's. */
static uint32_t choose(uint32_t forced, uint32_t row)
{
    return forced != PEER_CHOICE_AUTO ? forced : row;
}

/* The probe sees whether lines tear that are pushed; what is loaded from another GPU it does not see. */
static bool line_serves(const struct peer_query *query, uint32_t direction)
{
    const bool other_gpus = query->link == PEER_LINK_WIRE || query->link == PEER_LINK_NVLINK;
    return query->line_ok && (!other_gpus || direction == PEER_PUSH);
}

/* A row's protocol. ll is slow with blocks of a reduce-scatter that are no multiple of the 8 bytes that it reads at once; line,
 * which is as fast otherwise, reads words of 4. */
static uint32_t protocol_of(const struct peer_query *query, const struct peer_row *row)
{
    const bool odd_blocks = query->link != PEER_LINK_HOST && query->nbytes % 8 != 0 &&
                            without_counts(query->collective) == PEER_COLL_REDUCE_SCATTER_BLOCK;
    return odd_blocks && row->protocol == PEER_PROTO_LL ? PEER_PROTO_LINE : row->protocol;
}

static struct peer_plan peer_plan_of(const struct peer_query *query, const struct peer_row *row,
                                     const char *reason)
{
    struct peer_plan plan = {.path = PEER_PATH_PEER, .reason = reason};
    plan.algorithm = row->algorithm;
    if (peer_collective_has_twoshot(query->collective))
        plan.algorithm = choose(query->algorithm, row->algorithm);
    plan.protocol = choose(query->protocol, protocol_of(query, row));
    /* A row's direction goes with its protocol: what is pulled under flag, say, would be polled under line. */
    plan.direction = choose(query->direction, plan.protocol == row->protocol ? row->direction : PEER_PUSH);
    if (plan.protocol == PEER_PROTO_LINE && !line_serves(query, plan.direction))
        plan.protocol = PEER_PROTO_LL;
    if (plan.algorithm == PEER_ALGO_ISLAND) {
        plan.direction = PEER_PUSH;
        if (query->islands < 2 || query->collective == PEER_COLL_BCAST)
            plan.algorithm = PEER_ALGO_TWOSHOT;
    }
    if (plan.algorithm == PEER_ALGO_STAGED) { /* it has one form */
        plan.protocol = PEER_PROTO_FLAG;
        plan.direction = PEER_PUSH;
    }
    plan.pieces = query->pieces != 0 ? query->pieces : row->pieces;
    plan.threads = query->threads != 0 && query->link != PEER_LINK_HOST ? query->threads : row->threads;
    plan.blocks = query->blocks != 0 ? query->blocks : busy_blocks(query, &plan, row->blocks);
    plan.threads = peer_at_most(plan.threads, query->max_threads);
    plan.blocks =
        peer_at_most(peer_at_most(plan.blocks, query->max_blocks), query->max_threads / plan.threads);
    return plan;
}

struct peer_plan peer_select(const struct peer_query *query)
{
    const char *reason;
    const struct peer_row *row = row_of(query, &reason);
    struct peer_plan plan = {.path = query->nccl_ok ? PEER_PATH_NCCL : PEER_PATH_MPI};
    if (query->nranks == 1)
        return (struct peer_plan){.path = PEER_PATH_SELF, .reason = "one rank"};
    if (query->peer_ok && row != NULL && row->path == PEER_PATH_PEER)
        return peer_plan_of(query, row, reason);
    plan.reason = query->nranks > PEER_MAX_PEERS ? "more ranks than the peer kernels serve"
                  : query->peer_ok               ? reason
                  : query->nccl_ok               ? "no peer path"
                                                 : "neither a peer path nor an NCCL that serves the call";
    return plan;
}

void peer_select_print_row(FILE *to, const struct peer_query *query)
{
    const char *reason;
    const struct peer_row *row = row_of(query, &reason);
    char text[128] = "none";
    if (row != NULL)
        peer_row_text(row, text, sizeof text);
    fprintf(to, "%s", text);
}
