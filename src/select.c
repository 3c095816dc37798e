/* Selection: from a collective, its size and what the communicator can do to a plan. The rows are data;
 * reading them is pure, so all ranks choose alike. */
#include "internal.h"

#include "peercoll.h"

/* The first row serves whose link and collective are the query's, whose rank range holds its ranks and whose
 * max_bytes is no less than its message. */
struct row {
    enum peer_link link;
    uint32_t collective; /* enum peer_collective, or a set of them */
    uint32_t min_ranks, max_ranks;
    uint64_t max_bytes;
    enum peer_algorithm algorithm;
    enum peer_protocol protocol;
    uint32_t blocks;  /* at most */
    uint32_t threads; /* of a block; the host device has one */
};

#define ANY_BYTES UINT64_MAX
#define KIB       UINT64_C(1024)

/* Sets: all; those of a root; of these the ones that send it, or make it send, the whole message. */
#define EVERY  PEER_N_COLLECTIVES
#define ROOTED (PEER_N_COLLECTIVES + 1)
#define WHOLE  (PEER_N_COLLECTIVES + 2)

#define HOST  PEER_LINK_HOST
#define LOCAL PEER_LINK_LOCAL
#define WIRE  PEER_LINK_WIRE

static const struct row rows[] = {
    /* Two and more ranks on two cores, see docs/results. */
    {HOST, PEER_COLL_ALLREDUCE, 2, 2, 16, PEER_ALGO_ONESHOT, PEER_PROTO_LL, 1, 1},
    {HOST, PEER_COLL_ALLREDUCE, 2, 2, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 1},
    {HOST, PEER_COLL_ALLREDUCE, 3, 16, 16 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 1},
    {HOST, PEER_COLL_ALLREDUCE, 3, 16, ANY_BYTES, PEER_ALGO_TWOSHOT, PEER_PROTO_FLAG, 1, 1},
    {HOST, ROOTED, 2, 16, 16, PEER_ALGO_ONESHOT, PEER_PROTO_LL, 1, 1},
    {HOST, WHOLE, 3, 16, 64 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 1},
    {HOST, WHOLE, 3, 16, ANY_BYTES, PEER_ALGO_TWOSHOT, PEER_PROTO_FLAG, 1, 1},
    {HOST, EVERY, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 1},
    /* Ranks that share one GPU: its memory is the wire. Measured on an H200, see docs/results. */
    {LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 48 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 32, 128},
    {LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 192 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 64, 256},
    {LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 1024 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 64, 512},
    {LOCAL, PEER_COLL_ALLREDUCE, 3, 4, 96 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 32, 256},
    {LOCAL, PEER_COLL_ALLREDUCE, 3, 4, 640 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 32, 512},
    {LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 48 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 16, 256},
    {LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 384 * KIB, PEER_ALGO_TWOSHOT, PEER_PROTO_LINE, 16, 512},
    {LOCAL, PEER_COLL_ALLREDUCE, 2, 16, ANY_BYTES, PEER_ALGO_TWOSHOT, PEER_PROTO_FLAG, 64, 512},
    {LOCAL, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 32},
    {LOCAL, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 16, 512},
    {LOCAL, EVERY, 2, 16, 64 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 16, 256},
    {LOCAL, EVERY, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 64, 512},
    /* A GPU for each rank, joined by PCIe. Computed, not measured: a line moves 4/3 of the bytes, a flag costs a
     * fence of some 2 us, oneshot moves n/2 times the bytes of twoshot, which costs one more latency of 1 us;
     * 50 GB/s for two ranks, half of that for more, which then share links. */
    {WIRE, PEER_COLL_ALLREDUCE, 2, 2, 256 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 64, 256},
    {WIRE, PEER_COLL_ALLREDUCE, 3, 4, 32 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 32, 256},
    {WIRE, PEER_COLL_ALLREDUCE, 5, 16, 8 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 16, 256},
    {WIRE, PEER_COLL_ALLREDUCE, 3, 16, 256 * KIB, PEER_ALGO_TWOSHOT, PEER_PROTO_LINE, 32, 256},
    {WIRE, PEER_COLL_ALLREDUCE, 2, 16, ANY_BYTES, PEER_ALGO_TWOSHOT, PEER_PROTO_FLAG, 32, 512},
    {WIRE, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 1, 32},
    {WIRE, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 32, 512},
    {WIRE, EVERY, 2, 16, 64 * KIB, PEER_ALGO_ONESHOT, PEER_PROTO_LINE, 32, 256},
    {WIRE, WHOLE, 2, 2, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 32, 512},
    {WIRE, WHOLE, 3, 16, ANY_BYTES, PEER_ALGO_TWOSHOT, PEER_PROTO_FLAG, 32, 512},
    {WIRE, EVERY, 2, 16, ANY_BYTES, PEER_ALGO_ONESHOT, PEER_PROTO_FLAG, 32, 512},
};

#define ROWS (sizeof rows / sizeof rows[0])

#define NAME(name, text) text,
static const char *const link_names[] = {"host", "local", "wire"};
static const char *const algorithm_names[] = {PEER_ALGORITHMS(NAME)};
static const char *const protocol_names[] = {PEER_PROTOCOLS(NAME)};
static const char *const collective_names[] = {PEER_COLLECTIVES(NAME)};
#undef NAME

static bool in_set(uint32_t set, uint32_t collective)
{
    bool whole = collective == PEER_COLL_REDUCE || collective == PEER_COLL_BCAST;
    return set == EVERY || set == collective || (set == ROOTED && peer_collective_rooted(collective)) ||
           (set == WHOLE && whole);
}

static const struct row *row_of(const struct peer_query *query)
{
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        if (row->link == query->link && in_set(row->collective, query->collective) &&
            row->min_ranks <= query->nranks && query->nranks <= row->max_ranks &&
            query->nbytes <= row->max_bytes)
            return row;
    }
    return NULL;
}

/* Blocks that have something to do: every thread at least one pack of 12 bytes. All, where the size is not
 * known. */
static uint32_t busy_blocks(const struct peer_query *query, const struct peer_plan *plan, uint32_t most)
{
    if (query->collective == PEER_COLL_ALLTOALLV)
        return most;
    uint64_t shares = query->collective == PEER_COLL_ALLREDUCE ? 1 : query->nranks;
    uint64_t blocks = query->nbytes * shares / (12 * plan->threads) + 1;
    return blocks < most ? (uint32_t)blocks : most;
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

static bool has_twoshot(uint32_t collective)
{
    return collective == PEER_COLL_ALLREDUCE || in_set(WHOLE, collective);
}

struct peer_plan peer_select(const struct peer_query *query)
{
    const struct row *row = row_of(query);
    struct peer_plan plan = {.path = PEER_PATH_PEER, .reason = "the table"};
    if (query->nranks == 1)
        return (struct peer_plan){.path = PEER_PATH_SELF, .reason = "one rank"};
    if (!query->peer_ok || row == NULL) {
        plan.path = query->nccl_ok ? PEER_PATH_NCCL : PEER_PATH_MPI;
        plan.reason = query->nranks > PEER_MAX_PEERS ? "more ranks than the peer kernels serve"
                      : query->nccl_ok               ? "no peer path"
                                                     : "neither a peer path nor an NCCL that serves the call";
        return plan;
    }
    plan.algorithm = row->algorithm;
    if (query->algorithm != PEER_CHOICE_AUTO && has_twoshot(query->collective))
        plan.algorithm = query->algorithm;
    plan.protocol = query->protocol != PEER_CHOICE_AUTO ? query->protocol : row->protocol;
    if (plan.protocol == PEER_PROTO_LINE && !query->line_ok)
        plan.protocol = PEER_PROTO_LL;
    plan.threads = query->threads != 0 && query->link != PEER_LINK_HOST ? query->threads : row->threads;
    plan.blocks = query->blocks != 0 ? query->blocks : busy_blocks(query, &plan, row->blocks);
    plan.threads = at_most(plan.threads, query->max_threads);
    plan.blocks = at_most(at_most(plan.blocks, query->max_blocks), query->max_threads / plan.threads);
    return plan;
}

const char *peer_collective_name(uint32_t collective)
{
    return collective < PEER_N_COLLECTIVES ? collective_names[collective] : "?";
}

void peer_plan_text(const struct peer_plan *plan, const char *transport, char *text, size_t text_bytes)
{
    static const char *const paths[] = {"self", "peer", "nccl", "mpi"};
    if (plan->path != PEER_PATH_PEER)
        snprintf(text, text_bytes, "%s", paths[plan->path]);
    else
        snprintf(text, text_bytes, "%s %s.%s %ux%u", transport, algorithm_names[plan->algorithm],
                 protocol_names[plan->protocol], plan->blocks, plan->threads);
}

const char *peer_link_name(enum peer_link link)
{
    return link_names[link];
}

static const char *set_name(uint32_t set)
{
    return set == EVERY    ? "(all)"
           : set == ROOTED ? "(rooted)"
           : set == WHOLE  ? "(bcast, reduce)"
                           : collective_names[set];
}

static void row_text(const struct row *row, char *text, size_t text_bytes)
{
    char ranks[16], bytes[24], algorithm[32];
    snprintf(ranks, sizeof ranks, "%u-%u", row->min_ranks, row->max_ranks);
    snprintf(bytes, sizeof bytes, row->max_bytes == ANY_BYTES ? "any" : "%llu",
             (unsigned long long)row->max_bytes);
    snprintf(algorithm, sizeof algorithm, "%s.%s", algorithm_names[row->algorithm],
             protocol_names[row->protocol]);
    snprintf(text, text_bytes, "%-5s %-20s %-5s %-8s %-13s %ux%u", link_names[row->link],
             set_name(row->collective), ranks, bytes, algorithm, row->blocks, row->threads);
}

void peer_select_print_row(FILE *to, const struct peer_query *query)
{
    const struct row *row = row_of(query);
    char text[128] = "none";
    if (row != NULL)
        row_text(row, text, sizeof text);
    fprintf(to, "%s", text);
}

void peer_select_print(FILE *to)
{
    fprintf(to, "%-5s %-20s %-5s %-8s %-13s %s\n", "link", "collective", "ranks", "up to", "algorithm",
            "blocks x threads, at most");
    for (size_t i = 0; i < ROWS; i++) {
        char text[128];
        row_text(&rows[i], text, sizeof text);
        fprintf(to, "%s\n", text);
    }
}
