/* test_select: selection and geometry, which touch neither MPI nor a device.
 *   selection  for every query there is a legal plan, the same each time; what settings force is what comes;
 *              without a peer path NCCL serves, without that MPI; each built-in row serves some call
 *   geometry   the pieces of a message, and of a share of an exchange, cover it, and in the staging no two
 *              writers' places meet or leave the half */
#include <stdlib.h>

#include "rows.h"
#include "test.h"

static const uint32_t choices[] = {PEER_CHOICE_AUTO, 0, 1, 2, 3};

/* ---- Selection ------------------------------------------------------------------------------------------ */

static void check_peer_plan(const struct peer_query *q, const struct peer_plan *plan)
{
    char text[64], wanted[64];
    TEST_TRUE(plan->algorithm < PEER_N_ALGORITHMS);
    TEST_TRUE(plan->protocol < PEER_N_PROTOCOLS);
    TEST_TRUE(plan->blocks >= 1 && plan->blocks <= q->max_blocks && plan->blocks <= PEER_MAX_BLOCKS);
    if (q->link == PEER_LINK_HOST)
        TEST_INT(plan->threads, 1);
    else
        TEST_TRUE(plan->threads >= 32 && plan->threads <= PEER_MAX_THREADS && plan->threads % 32 == 0);
    if (q->algorithm != PEER_CHOICE_AUTO &&
        (q->collective == PEER_COLL_ALLREDUCE || q->collective == PEER_COLL_REDUCE ||
         q->collective == PEER_COLL_BCAST)) {
        bool one_level = q->islands < 2 || q->collective == PEER_COLL_BCAST;
        TEST_INT(plan->algorithm,
                 q->algorithm == PEER_ALGO_ISLAND && one_level ? PEER_ALGO_TWOSHOT : q->algorithm);
    }
    if (!q->line_ok)
        TEST_TRUE(plan->protocol != PEER_PROTO_LINE);
    if (plan->algorithm == PEER_ALGO_STAGED)
        TEST_TRUE(plan->protocol == PEER_PROTO_FLAG && plan->direction == PEER_PUSH);
    else if (q->protocol == PEER_PROTO_LINE && (q->link == PEER_LINK_WIRE || q->link == PEER_LINK_NVLINK) &&
             plan->direction == PEER_PULL)
        TEST_INT(plan->protocol, PEER_PROTO_LL);
    else if (q->protocol != PEER_CHOICE_AUTO && (q->line_ok || q->protocol != PEER_PROTO_LINE))
        TEST_INT(plan->protocol, q->protocol);
    if (q->blocks != 0)
        TEST_INT(plan->blocks, q->blocks < q->max_blocks ? q->blocks : q->max_blocks);
    if (q->threads != 0 && q->link != PEER_LINK_HOST)
        TEST_INT(plan->threads, q->threads);
    TEST_TRUE(plan->direction < PEER_N_DIRECTIONS && plan->pieces >= 1);
    if (plan->algorithm == PEER_ALGO_ISLAND)
        TEST_INT(plan->direction, PEER_PUSH);
    else if (q->direction != PEER_CHOICE_AUTO && q->algorithm != PEER_ALGO_ISLAND &&
             plan->algorithm != PEER_ALGO_STAGED)
        TEST_INT(plan->direction, q->direction);
    if (q->pieces != 0)
        TEST_INT(plan->pieces, q->pieces);
    peer_plan_text(plan, "ipc", text, sizeof text);
    snprintf(wanted, sizeof wanted, " %ux%u", plan->blocks, plan->threads);
    TEST_CONTAINS(text, "ipc ");
    TEST_CONTAINS(text, wanted);
}

static void check_plan(const struct peer_query *q)
{
    struct peer_plan plan = peer_select(q), again = peer_select(q);
    char text[64];
    TEST_TRUE(plan.path == again.path && plan.algorithm == again.algorithm &&
              plan.protocol == again.protocol);
    TEST_TRUE(plan.blocks == again.blocks && plan.threads == again.threads && plan.reason == again.reason);
    TEST_TRUE(plan.reason != NULL && plan.reason[0] != '\0');
    if (q->nranks == 1)
        TEST_INT(plan.path, PEER_PATH_SELF);
    else if (q->peer_ok)
        TEST_TRUE(plan.path == PEER_PATH_PEER ||
                  (plan.path == PEER_PATH_NCCL && q->nccl_ok && q->link == PEER_LINK_NVLINK &&
                   q->algorithm == PEER_CHOICE_AUTO && q->nbytes > (1536 << 10)));
    else
        TEST_INT(plan.path, q->nccl_ok ? PEER_PATH_NCCL : PEER_PATH_MPI);
    if (plan.path == PEER_PATH_PEER)
        check_peer_plan(q, &plan);
    peer_plan_text(&plan, "ipc", text, sizeof text);
    TEST_TRUE(strlen(text) > 2);
}

/* All that may be forced, on a query whose other fields are set. */
static void check_forced(struct peer_query q)
{
    static const uint32_t blocks[] = {0, 1, 3, PEER_MAX_BLOCKS}, threads[] = {0, 32, 96, PEER_MAX_THREADS};
    for (int a = 0; a < 1 + PEER_N_ALGORITHMS; a++)
        for (int p = 0; p < 1 + PEER_N_PROTOCOLS; p++)
            for (int i = 0; i < 16; i++) {
                q.algorithm = choices[a];
                q.protocol = choices[p];
                q.blocks = blocks[i / 4];
                q.threads = threads[i % 4];
                check_plan(&q);
            }
}

static void check_sizes(struct peer_query q)
{
    q.nbytes = 0;
    check_forced(q);
    for (uint64_t power = 1; power <= (64 << 20); power *= 2)
        for (uint64_t bytes = power - 1; bytes <= power + 1; bytes++) {
            q.nbytes = bytes;
            q.algorithm = q.protocol = PEER_CHOICE_AUTO;
            q.blocks = q.threads = 0;
            check_plan(&q);
        }
    q.nbytes = (uint64_t)1 << 40;
    check_forced(q);
}

static void selection(void)
{
    static const uint32_t max_blocks[] = {1, 5, PEER_MAX_BLOCKS};
    for (int collective = 0; collective < PEER_N_COLLECTIVES; collective++)
        for (uint32_t ranks = 1; ranks <= PEER_MAX_PEERS; ranks++)
            for (int link = PEER_LINK_HOST; link < PEER_N_LINKS; link++)
                for (int flags = 0; flags < 8; flags++) {
                    struct peer_query q = {.collective = (enum peer_collective)collective,
                                           .nranks = ranks,
                                           .link = (enum peer_link)link,
                                           .peer_ok = flags & 1,
                                           .line_ok = flags & 2,
                                           .islands = ranks % 4,
                                           .nccl_ok = flags & 4,
                                           .max_blocks = max_blocks[ranks % 3],
                                           .max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS};
                    check_sizes(q);
                }
}

/* Nothing forced, 8 ranks that share a GPU. */
static struct peer_query free_query(uint32_t collective)
{
    return (struct peer_query){.collective = collective,
                               .nranks = 8,
                               .link = PEER_LINK_LOCAL,
                               .peer_ok = true,
                               .line_ok = true,
                               .algorithm = PEER_CHOICE_AUTO,
                               .protocol = PEER_CHOICE_AUTO,
                               .direction = PEER_CHOICE_AUTO,
                               .max_blocks = PEER_MAX_BLOCKS,
                               .max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS};
}

/* A collective with counts goes as the one without, where no row of the table names it. */
static void with_counts(void)
{
    struct peer_query v = free_query(PEER_COLL_ALLGATHERV), q = free_query(PEER_COLL_ALLGATHER);
    struct peer_row table[3];
    char why[128];
    for (int i = 0; i < 2; i++) {
        for (uint64_t bytes = 8; bytes <= (64 << 20); bytes *= 2) {
            v.nbytes = q.nbytes = bytes;
            struct peer_plan with = peer_select(&v), without = peer_select(&q);
            TEST_TRUE(with.protocol == without.protocol && with.direction == without.direction);
            TEST_TRUE(with.blocks == without.blocks && with.threads == without.threads);
        }
        v.collective = PEER_COLL_REDUCE_SCATTER, q.collective = PEER_COLL_REDUCE_SCATTER_BLOCK;
    }
    TEST_TRUE(peer_row_parse("local (all) 8-8 8 oneshot.ll 3x32", &table[0], why, sizeof why));
    TEST_TRUE(
        peer_row_parse("local reduce_scatter_block 8-8 any oneshot.ll 3x64", &table[1], why, sizeof why));
    TEST_TRUE(peer_row_parse("local reduce_scatter 8-8 4096 oneshot.ll 3x96", &table[2], why, sizeof why));
    v.rows = q.rows = table, v.nrows = q.nrows = 3;
    static const struct {
        uint64_t bytes;
        uint32_t with, without;
    } cases[] = {{8, 32, 32}, {4096, 96, 64}, {4104, 64, 64}};
    for (int i = 0; i < 3; i++) {
        v.nbytes = q.nbytes = cases[i].bytes;
        TEST_INT(peer_select(&v).threads, cases[i].with);
        TEST_INT(peer_select(&q).threads, cases[i].without);
    }
}

/* Blocks of a reduce-scatter that ll can't read 8 bytes at once go by line, which can; but what is forced comes. */
static void odd_blocks(void)
{
    struct peer_query q = free_query(PEER_COLL_REDUCE_SCATTER_BLOCK);
    for (q.nbytes = 4; q.nbytes <= 64; q.nbytes += 4)
        TEST_INT(peer_select(&q).protocol, q.nbytes % 8 == 0 ? PEER_PROTO_LL : PEER_PROTO_LINE);
    q.nbytes = 4;
    q.line_ok = false;
    TEST_INT(peer_select(&q).protocol, PEER_PROTO_LL);
    q.line_ok = true;
    for (q.protocol = 0; q.protocol < PEER_N_PROTOCOLS; q.protocol++)
        TEST_INT(peer_select(&q).protocol, q.protocol);
}

/* Over a link to the host's memory blocks of twoshot by lines store some 512 bytes for each reader: the packs of a part of
 * a piece, in runs of 32 lines, give or take half of it; where blocks are forced they need not. */
static void long_runs(void)
{
    struct peer_query q = free_query(PEER_COLL_ALLREDUCE);
    q.algorithm = PEER_ALGO_TWOSHOT, q.protocol = PEER_PROTO_LINE, q.threads = 32;
    for (q.nranks = 2; q.nranks <= PEER_MAX_PEERS; q.nranks++)
        for (q.pieces = 1; q.pieces <= 4; q.pieces *= 2) {
            const uint64_t packs = 43008 / 12 / q.nranks / q.pieces;
            struct peer_plan plan;
            q.nbytes = 43008, q.link = PEER_LINK_SHM, q.blocks = 0;
            plan = peer_select(&q);
            TEST_TRUE(plan.blocks == 1 || packs / plan.blocks >= 21);
            TEST_TRUE(packs / plan.blocks <= 64 || plan.blocks >= 16); /* as many as the row has */
            q.blocks = 40;
            TEST_INT(peer_select(&q).blocks, 40);
        }
}

/* A forced protocol without a direction does not take that of a row of another protocol; a forced algorithm alone does. */
static void directions(void)
{
    struct peer_query q = free_query(PEER_COLL_ALLREDUCE);
    struct peer_row row;
    char why[128];
    TEST_TRUE(peer_row_parse("local allreduce 8-8 any twoshot.flag.pull 3x32", &row, why, sizeof why));
    q.rows = &row, q.nrows = 1, q.nbytes = 4096;
    TEST_INT(peer_select(&q).direction, PEER_PULL);
    q.algorithm = PEER_ALGO_ONESHOT;
    TEST_INT(peer_select(&q).direction, PEER_PULL);
    q.protocol = PEER_PROTO_FLAG;
    TEST_INT(peer_select(&q).direction, PEER_PULL);
    q.protocol = PEER_PROTO_LINE;
    TEST_INT(peer_select(&q).direction, PEER_PUSH);
    q.direction = PEER_PULL;
    TEST_INT(peer_select(&q).direction, PEER_PULL);
}

/* Whether a call of so many ranks, of the largest message that the row is for, falls in it. */
static bool falls_in(const struct peer_row *row, uint32_t collective, uint32_t nranks)
{
    struct peer_query q = free_query((enum peer_collective)collective);
    char want[128], *text = NULL;
    size_t bytes;
    bool same;
    FILE *to = open_memstream(&text, &bytes);
    TEST_TRUE(to != NULL);
    q.link = (enum peer_link)row->link;
    q.nranks = nranks;
    q.nbytes = row->max_bytes;
    q.nccl_ok = row->path == PEER_PATH_NCCL;
    peer_select_print_row(to, &q);
    fclose(to);
    peer_row_text(row, want, sizeof want);
    same = strcmp(text, want) == 0;
    free(text);
    return same;
}

static bool is_reached(const struct peer_row *row)
{
    for (uint32_t collective = 0; collective < PEER_N_COLLECTIVES; collective++)
        for (uint32_t n = row->min_ranks; n <= row->max_ranks; n++)
            if (falls_in(row, collective, n))
                return true;
    return false;
}

/* No built-in row lies wholly behind others: then it would say what never comes. */
static void reached(void)
{
    size_t n;
    const struct peer_row *rows = peer_builtin_rows(&n);
    TEST_TRUE(n > 0);
    for (size_t i = 0; i < n; i++) {
        char text[128];
        peer_row_text(&rows[i], text, sizeof text);
        TEST_TEXT(is_reached(&rows[i]) ? text : "behind others", text);
    }
}

/* Two plans that differ have different texts. */
static void texts(void)
{
    struct peer_plan plan = {.path = PEER_PATH_PEER, .blocks = 14, .threads = 256};
    char text[64];
    plan.algorithm = PEER_ALGO_ONESHOT, plan.protocol = PEER_PROTO_LINE;
    peer_plan_text(&plan, "ipc", text, sizeof text);
    TEST_TEXT(text, "ipc oneshot.line 14x256");
    plan.algorithm = PEER_ALGO_TWOSHOT, plan.protocol = PEER_PROTO_FLAG;
    peer_plan_text(&plan, "ipc", text, sizeof text);
    TEST_TEXT(text, "ipc twoshot.flag 14x256");
    plan.path = PEER_PATH_MPI;
    peer_plan_text(&plan, "mpi", text, sizeof text);
    TEST_TEXT(text, "mpi");
    plan.path = PEER_PATH_NCCL;
    peer_plan_text(&plan, "nccl", text, sizeof text);
    TEST_TEXT(text, "nccl");
}

/* ---- Geometry ------------------------------------------------------------------------------------------- */

static void check_geometry(const struct peer_call *c, uint32_t element, uint32_t vector_bytes)
{
    struct peer_pack pack = peer_pack_of(c->protocol, element, vector_bytes);
    bool twoshot = c->algorithm != PEER_ALGO_ONESHOT;
    uint64_t places = (twoshot ? c->nranks : 0) + (c->pull_all ? 1 : c->nranks);
    uint64_t per_pack = pack.data / element, parts = twoshot ? c->nranks : 1;
    uint64_t all_at = twoshot ? c->nranks : 0;
    if (c->algorithm == PEER_ALGO_ISLAND) {
        if (c->stride == 0) /* call.c takes another algorithm */
            return;
        parts = c->islands.columns;
        all_at = c->islands.far_at + c->islands.far_places * PEER_SUM_WIDTH(element);
        places = all_at + parts;
    }
    uint64_t slots = c->npieces == 1 ? 1 : c->npieces < c->ring ? c->npieces : c->ring;
    TEST_INT(pack.data % element, 0);
    if (element == 4) { /* movements of bytes and of words meet: one rank may take these, another those */
        struct peer_pack bytes = peer_pack_of(c->protocol, 1, vector_bytes);
        TEST_TRUE(bytes.data == pack.data && bytes.staged == pack.staged);
    }
    TEST_INT(pack.staged % 16, 0);
    TEST_TRUE(pack.staged >= pack.data);
    /* The packs hold the message, the last one in part; the pieces hold the packs, the last one no more. */
    TEST_TRUE(c->npacks * per_pack >= c->count && (c->npacks == 0 || (c->npacks - 1) * per_pack < c->count));
    TEST_TRUE(c->npieces >= 1 && c->stride >= 1);
    TEST_TRUE((uint64_t)c->npieces * c->piece_packs >= c->npacks);
    TEST_TRUE(c->npieces == 1 || (uint64_t)(c->npieces - 1) * c->piece_packs < c->npacks);
    TEST_INT(c->piece_packs, c->stride * parts);
    /* Every place in every region of every slot lies in the half, and the slots don't meet. */
    TEST_TRUE((uint64_t)c->stride * pack.staged * places <= c->slot_bytes);
    TEST_INT(c->all_at, all_at * c->stride);
    TEST_TRUE(c->ring == PEER_RING || c->ring == c->pieces);
    /* As many pieces as asked for, but for what rounding up to whole packs and to where runs begin takes. */
    TEST_TRUE(c->pieces <= 1 ||
              (uint64_t)c->stride <=
                  peer_run_of(peer_run_of((c->npacks + parts - 1) / parts, pack.staged) / c->pieces + 1,
                              pack.staged));
    TEST_TRUE(slots * c->slot_bytes <= PEER_MAIN_BYTES(c->staging, c->protocol));
    TEST_INT(c->slot_bytes % 16, 0);
    /* Calls of one piece may take turns in the half: every turn's place lies in it. */
    TEST_TRUE((uint64_t)c->stride * pack.staged * places <= c->turn_bytes);
    TEST_INT(c->turn_bytes % 64, 0);
    TEST_TRUE(c->npieces == 1 || c->turns <= 1);
    TEST_TRUE(c->turns <= 1 || c->turns * c->turn_bytes <= PEER_MAIN_BYTES(c->staging, c->protocol));
    /* flag: the blocks' runs cover a part. */
    TEST_TRUE((uint64_t)c->block_packs * c->blocks >= c->stride);
}

/* Everybody is in one island, and owns a column; everybody's columns have an owner in every island, who is told of it. */
static void check_islands(struct peer_call *c, const uint8_t *island, uint32_t n)
{
    uint32_t far[PEER_MAX_PEERS];
    for (c->rank = 0; c->rank < c->nranks; c->rank++) {
        const struct peer_islands *s = &c->islands;
        const uint32_t mine = island[c->rank];
        uint32_t near = 0, owners = 0;
        peer_set_islands(c, island, n);
        TEST_TRUE(s->member[c->rank] < s->size[mine] && s->size[mine] <= s->columns);
        TEST_INT(s->ranks[s->first[mine] + s->member[c->rank]], c->rank);
        for (uint32_t r = 0; r < c->nranks; r++)
            near |= island[r] == mine ? 1u << r : 0u;
        TEST_INT(s->near, near);
        for (uint32_t j = s->member[c->rank]; j < s->columns; j += s->size[mine])
            for (uint32_t k = 0; k < n; k++)
                owners |= k != mine ? 1u << s->ranks[s->first[k] + j % s->size[k]] : 0u;
        TEST_INT(s->far, owners);
        far[c->rank] = s->far;
        /* The last places: of the last member, of the last island. */
        const uint32_t owned = (s->columns + s->size[mine] - 1) / s->size[mine];
        TEST_TRUE(s->size[mine] * owned <= s->far_at && n * owned <= s->far_places);
    }
    for (uint32_t a = 0; a < c->nranks; a++)
        for (uint32_t b = 0; b < c->nranks; b++)
            TEST_INT(far[a] >> b & 1, far[b] >> a & 1);
    c->rank = 0;
}

/* The i-th way to split the ranks. Returns the number of islands. */
static uint32_t split(uint32_t ranks, uint32_t i, uint8_t island[PEER_MAX_PEERS])
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t all[] = {
            0, r, r % 2, r >= (ranks + 1) / 2, r > 0, r < ranks / 2 ? 0u : r + 1 - ranks / 2};
        island[r] = (uint8_t)all[i];
        n = island[r] >= n ? island[r] + 1u : n;
    }
    return n;
}

/* The halves of all protocols lie one after the other in the slab, behind the flags. */
static void layout(void)
{
    for (uint64_t staging = 16 << 10; staging <= (256 << 20); staging *= 2) {
        uint64_t begin[2 * PEER_N_PROTOCOLS], end[2 * PEER_N_PROTOCOLS];
        for (int i = 0; i < 2 * PEER_N_PROTOCOLS; i++) {
            begin[i] = PEER_HALF_OFFSET(staging, i / 2, i % 2);
            end[i] = begin[i] + PEER_HALF_BYTES(staging, i / 2);
            TEST_TRUE(begin[i] >= PEER_FLAGS_BYTES && end[i] <= PEER_SLAB_BYTES(staging));
            TEST_INT(begin[i] % 64, 0);
            TEST_INT(PEER_MAIN_BYTES(staging, i / 2) % 64, 0);
            TEST_TRUE(PEER_MAIN_BYTES(staging, i / 2) <= PEER_HALF_BYTES(staging, i / 2));
        }
        for (int i = 0; i < 2 * PEER_N_PROTOCOLS; i++)
            for (int j = 0; j < i; j++)
                TEST_TRUE(end[i] <= begin[j] || end[j] <= begin[i]);
    }
}

static void check_counts(struct peer_call call, uint32_t element, uint32_t vector_bytes)
{
    static const uint64_t more[] = {43008, 1000003, (uint64_t)3 << 30, (uint64_t)5 << 32};
    static const uint64_t rotate[] = {0, 12345, 1 << 20, (uint64_t)1 << 32};
    for (uint64_t count = 0; count < 20000; count += 1 + count / 16) {
        call.count = count;
        call.rotate = rotate[count % 4];
        peer_set_geometry(&call, element, vector_bytes);
        check_geometry(&call, element, vector_bytes);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more && call.staging >= (1 << 20); i++) {
        call.count = more[i];
        call.rotate = rotate[i];
        peer_set_geometry(&call, element, vector_bytes);
        check_geometry(&call, element, vector_bytes);
    }
}

static void check_share(const struct peer_call *c, const struct peer_exchange *x, const struct peer_share *s,
                        uint32_t unit, uint32_t vector_bytes)
{
    struct peer_pack pack = peer_pack_of(c->protocol, unit, vector_bytes);
    uint64_t piece_bytes = (uint64_t)s->piece_packs * pack.staged;
    TEST_TRUE(s->npacks * pack.data >= s->count && (s->npacks - 1) * pack.data < s->count);
    TEST_TRUE(s->npieces >= 1 && s->piece_packs >= 1 && s->turns >= 1);
    TEST_TRUE((uint64_t)s->npieces * s->piece_packs >= s->npacks);
    TEST_TRUE((uint64_t)(s->npieces - 1) * s->piece_packs < s->npacks);
    TEST_TRUE((uint64_t)s->run * c->blocks >= s->piece_packs);
    TEST_TRUE(s->npieces == 1 ? piece_bytes <= x->region_bytes : piece_bytes <= x->slot_bytes);
    TEST_TRUE(PEER_RING * x->slot_bytes <= x->region_bytes);
    TEST_INT(x->slot_bytes % 16, 0);
    TEST_TRUE(s->turns == 1 || (s->npieces == 1 && s->turn_bytes >= piece_bytes && s->turn_bytes % 64 == 0 &&
                                s->turns * s->turn_bytes <= x->region_bytes));
}

static void check_shares(struct peer_call call, uint32_t unit, uint32_t vector_bytes)
{
    static const uint64_t rotate[] = {0, 12345, 1 << 20, (uint64_t)1 << 32};
    const struct peer_pack pack = peer_pack_of(call.protocol, unit, vector_bytes);
    struct peer_exchange x;
    struct peer_share share;
    for (uint64_t count = 1; count < ((uint64_t)1 << 33); count += 1 + count / 3) {
        call.rotate = rotate[count % 4];
        call.small = 0;
        peer_set_region(&call, pack, count * unit, &x);
        TEST_TRUE(x.region_bytes * call.nranks <= PEER_MAIN_BYTES(call.staging, call.protocol));
        share = (struct peer_share){.count = count * unit};
        peer_set_share(&call, &x, pack, &share);
        check_share(&call, &x, &share, unit, vector_bytes);
        call.small = 1;
        peer_set_region(&call, pack, count * unit, &x);
        TEST_TRUE(x.places_at >= PEER_MAIN_BYTES(call.staging, call.protocol));
        TEST_TRUE(x.places_at + PEER_PLACES * x.region_bytes * call.nranks <=
                  PEER_HALF_BYTES(call.staging, call.protocol));
        if (count * unit > peer_region_data(&x, pack))
            continue;
        peer_set_share(&call, &x, pack, &share);
        TEST_INT(share.npieces, 1);
        check_share(&call, &x, &share, unit, vector_bytes);
    }
}

static void geometry(void)
{
    static const uint32_t elements[] = {1, 2, 4, 8, 16}, vectors[] = {16, 64},
                          blocks[] = {1, 3, PEER_MAX_BLOCKS};
    static const uint64_t staging[] = {16 << 10, 20 << 10, 1 << 20, 256 << 20};
    for (uint32_t ranks = 2; ranks <= PEER_MAX_PEERS; ranks++)
        for (int algorithm = 0; algorithm < PEER_N_ALGORITHMS; algorithm++)
            for (int protocol = 0; protocol < PEER_N_PROTOCOLS; protocol++)
                for (int i = 0; i < 5 * 2 * 3 * 4; i++) {
                    struct peer_call call = {.nranks = ranks,
                                             .algorithm = (uint32_t)algorithm,
                                             .protocol = (uint32_t)protocol,
                                             .pull_all = i / 3 % 2,
                                             .pieces = i % 4 * i % 3,
                                             .blocks = blocks[i / 2 / 5 % 3],
                                             .staging = staging[i / 30]};
                    uint8_t island[PEER_MAX_PEERS];
                    uint32_t islands = split(ranks, (uint32_t)i % 6, island);
                    check_islands(&call, island, islands);
                    check_counts(call, elements[i / 2 % 5], vectors[i % 2]);
                    check_shares(call, elements[i / 2 % 5], vectors[i % 2]);
                }
}

int main(void)
{
    selection();
    with_counts();
    odd_blocks();
    long_runs();
    directions();
    reached();
    texts();
    layout();
    geometry();
    test_pass();
}
