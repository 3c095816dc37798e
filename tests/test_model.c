/* test_model: the cost model and the rows of selection that follow from it.
 *   limits     more bytes take longer; a huge message takes bytes / rate, a tiny one the ways of its flags
 *   crossings  oneshot gives way to twoshot where the published arithmetic has it
 *   rows       they serve every collective and size without a hole, with the fastest way, pulls where pushes collapse;
 *              the same rows each time; selection looks at them after PEER_TABLE's and before its own */
#include <math.h>

#include "model.h"
#include "test.h"

#define MOST_ROWS 256

static const struct peer_machine usual = {
    .link = PEER_LINK_WIRE,
    .nranks = 8,
    .gpu_ranks = 1,
    .figures = {.known = true,
                .flag_us = 0.65,
                .store_gbs = 52,
                .load_gbs = 50,
                .all_store_gbs = 25,
                .all_load_gbs = 20},
};

static double us_of(const struct peer_machine *machine, enum peer_collective collective, const char *text,
                    uint64_t bytes)
{
    struct peer_way way;
    char again[PEER_WAY_BYTES];
    TEST_TRUE(peer_way_parse(text, &way));
    peer_way_text(&way, again);
    TEST_TEXT(again, text);
    return peer_model_us(machine, collective, &way, bytes);
}

static bool close_to(double got, double wanted, double tolerance)
{
    return fabs(got - wanted) <= tolerance * wanted;
}

/* ---- Limits --------------------------------------------------------------------------------------------- */

static void grows_with_bytes(void)
{
    size_t nways;
    const struct peer_way *ways = peer_model_ways(&nways);
    struct peer_machine m = usual;
    m.figures.ring_store_gbs = 40;
    for (int link = 0; link < PEER_N_LINKS; link++)
        for (m.nranks = 2; m.nranks <= PEER_MAX_PEERS; m.nranks++)
            for (int c = 0; c < PEER_N_COLLECTIVES; c++)
                for (size_t w = 0; w < nways; w++) {
                    double before = 0;
                    m.link = (enum peer_link)link;
                    for (uint64_t bytes = 1; bytes <= (uint64_t)1 << 40; bytes *= 2) {
                        double us = peer_model_us(&m, (enum peer_collective)c, &ways[w], bytes);
                        TEST_TRUE(us >= before && us > 0);
                        before = us;
                    }
                }
}

/* Of 64 GiB, microseconds of one byte a rank at 1 GB/s. */
#define HUGE_BYTES ((uint64_t)64 << 30)
#define HUGE_US    ((double)HUGE_BYTES / 1000)

static void huge_takes_its_bytes(void)
{
    static const struct {
        enum peer_collective collective;
        const char *way;
        enum peer_link link;
        double writes, reads; /* messages at 1 GB/s */
    } cases[] = {
        {PEER_COLL_ALLREDUCE, "oneshot.flag", PEER_LINK_WIRE, 7.0 / 25, 0},
        {PEER_COLL_ALLREDUCE, "oneshot.line", PEER_LINK_WIRE, 7.0 / 25 * 4 / 3, 0},
        {PEER_COLL_ALLREDUCE, "oneshot.ll", PEER_LINK_WIRE, 7.0 / 25 * 2, 0},
        {PEER_COLL_ALLREDUCE, "twoshot.flag", PEER_LINK_WIRE, 2 * 7.0 / 8 / 25, 0},
        {PEER_COLL_ALLREDUCE, "twoshot.flag.pull", PEER_LINK_WIRE, 0, 2 * 7.0 / 8 / 20},
        {PEER_COLL_BCAST, "oneshot.flag", PEER_LINK_WIRE, 7.0 / 52, 0},
        {PEER_COLL_BCAST, "twoshot.flag", PEER_LINK_WIRE, 7.0 / 8 / 52 + 7.0 / 8 / 25, 0},
        {PEER_COLL_GATHER, "oneshot.flag.pull", PEER_LINK_WIRE, 0, 7.0 / 50},
        {PEER_COLL_ALLTOALL, "oneshot.flag", PEER_LINK_WIRE, 7.0 / 25, 0},
        /* The host's memory: written by one, once if all pull it, then read by each. */
        {PEER_COLL_ALLREDUCE, "oneshot.flag", PEER_LINK_SHM, 7.0 / 25, 7.0 / 20},
        {PEER_COLL_ALLREDUCE, "oneshot.flag.pull", PEER_LINK_SHM, 1.0 / 25, 7.0 / 20},
        {PEER_COLL_ALLREDUCE, "twoshot.flag.pull", PEER_LINK_SHM, 1.0 / 25, 2 * 7.0 / 8 / 20},
        {PEER_COLL_ALLTOALL, "oneshot.flag.pull", PEER_LINK_SHM, 7.0 / 25, 7.0 / 20},
        {PEER_COLL_BCAST, "oneshot.flag.pull", PEER_LINK_SHM, 1.0 / 52, 1.0 / 20},
        {PEER_COLL_GATHER, "oneshot.flag", PEER_LINK_SHM, 1.0 / 25, 7.0 / 50},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct peer_machine m = usual;
        m.link = cases[i].link;
        TEST_TRUE(close_to(us_of(&m, cases[i].collective, cases[i].way, HUGE_BYTES),
                           (cases[i].writes + cases[i].reads) * HUGE_US, 1e-5));
    }
    /* In 8 pieces all of the longer time and an eighth of the shorter one. */
    struct peer_machine shm = usual;
    shm.link = PEER_LINK_SHM;
    TEST_TRUE(close_to(us_of(&shm, PEER_COLL_ALLREDUCE, "oneshot.flag.pull/8", HUGE_BYTES),
                       (7.0 / 20 + 1.0 / 25 / 8) * HUGE_US, 1e-5));
}

/* What a longer way of a flag adds to a tiny message is its number of ways. */
static void tiny_takes_its_flags(void)
{
    static const struct {
        const char *way;
        enum peer_link link;
        double flags;
    } cases[] = {
        {"oneshot.line", PEER_LINK_WIRE, 1},      {"twoshot.line", PEER_LINK_WIRE, 2},
        {"oneshot.flag", PEER_LINK_WIRE, 1},      {"oneshot.flag.pull", PEER_LINK_WIRE, 3},
        {"oneshot.line.pull", PEER_LINK_WIRE, 3}, {"twoshot.flag.pull", PEER_LINK_WIRE, 6},
        {"oneshot.line", PEER_LINK_SHM, 1},       {"oneshot.flag", PEER_LINK_SHM, 1.6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct peer_machine near = usual, far;
        near.link = cases[i].link;
        far = near;
        far.figures.flag_us += 1000;
        TEST_TRUE(close_to(us_of(&far, PEER_COLL_ALLREDUCE, cases[i].way, 8) -
                               us_of(&near, PEER_COLL_ALLREDUCE, cases[i].way, 8),
                           1000 * cases[i].flags, 1e-6));
    }
    /* Less than 4 us, of which the captured collectives on record take no less, is not promised of more ranks. */
    TEST_TRUE(us_of(&usual, PEER_COLL_ALLREDUCE, "oneshot.line", 8) > 2);
    TEST_TRUE(us_of(&usual, PEER_COLL_ALLREDUCE, "oneshot.line", 8) < 4);
    TEST_TRUE(us_of(&usual, PEER_COLL_BARRIER, "oneshot.flag", 0) <
              us_of(&usual, PEER_COLL_ALLREDUCE, "oneshot.flag", 8));
}

/* Two islands of four: scatter and gather in one, between them the partial sums of a quarter, twice as wide. The way that
 * serves a machine whose islands are badly joined, but not one that has none. */
static void islands(void)
{
    struct peer_machine m = usual;
    struct peer_row rows[MOST_ROWS];
    bool taken = false;
    TEST_TRUE(isinf(us_of(&m, PEER_COLL_ALLREDUCE, "island.flag", 8)));
    m.figures.islands = 2;
    m.figures.columns = 4;
    m.figures.near_flag_us = 0.65;
    m.figures.far_flag_us = 1.1;
    m.figures.near_store_gbs = 40;
    m.figures.far_store_gbs = 5;
    TEST_TRUE(close_to(us_of(&m, PEER_COLL_ALLREDUCE, "island.flag", HUGE_BYTES),
                       (2 * 3.0 / 4 / 40 + 2.0 / 4 / 5) * HUGE_US, 1e-5));
    TEST_TRUE(isinf(us_of(&m, PEER_COLL_ALLGATHER, "island.flag", 8)));
    struct peer_machine far = m;
    far.figures.far_flag_us += 1000;
    TEST_TRUE(close_to(us_of(&far, PEER_COLL_ALLREDUCE, "island.line", 8) -
                           us_of(&m, PEER_COLL_ALLREDUCE, "island.line", 8),
                       1000, 1e-6));
    m.figures.all_store_gbs = m.figures.all_load_gbs = 6; /* what the islands' link leaves to all */
    size_t n = peer_model_rows(&m.figures, m.link, m.nranks, rows, MOST_ROWS);
    for (size_t i = 0; i < n && i < MOST_ROWS; i++)
        taken = taken || (rows[i].algorithm == PEER_ALGO_ISLAND && rows[i].collective == PEER_COLL_ALLREDUCE);
    TEST_TRUE(taken);
    m.figures.islands = 1;
    n = peer_model_rows(&m.figures, m.link, m.nranks, rows, MOST_ROWS);
    for (size_t i = 0; i < n && i < MOST_ROWS; i++)
        TEST_TRUE(rows[i].algorithm != PEER_ALGO_ISLAND);
}

static void impossible(void)
{
    struct peer_machine m = usual;
    TEST_TRUE(isinf(us_of(&m, PEER_COLL_ALLGATHER, "twoshot.flag", 8)));
    TEST_TRUE(isinf(us_of(&m, PEER_COLL_ALLREDUCE, "nccl", 8))); /* no figure of a ring */
    m.figures.all_load_gbs = 0;
    TEST_TRUE(isinf(us_of(&m, PEER_COLL_ALLREDUCE, "oneshot.flag.pull", 8)));
    struct peer_way way;
    TEST_TRUE(!peer_way_parse("oneshot", &way));
    TEST_TRUE(!peer_way_parse("", &way));
}

/* ---- Crossings ------------------------------------------------------------------------------------------ */

/* Bytes from which on `second` is no slower than `first`. */
static double crossing(const struct peer_machine *m, const char *first, const char *second)
{
    uint64_t low = 1, high = (uint64_t)1 << 30;
    while (low < high) {
        const uint64_t mid = low + (high - low) / 2;
        if (us_of(m, PEER_COLL_ALLREDUCE, second, mid) <= us_of(m, PEER_COLL_ALLREDUCE, first, mid))
            high = mid;
        else
            low = mid + 1;
    }
    return (double)low;
}

/* On 8 ranks oneshot moves 5.25 messages more than twoshot, so twoshot is faster from L * B / 5.25 on, L being what
 * its second round takes: on record as 8 to 31 KB for 22 to 55 GB/s and 2 to 3 us. */
static void crossings(void)
{
    struct peer_machine m = usual;
    m.figures.all_store_gbs = 55;
    m.figures.flag_us = 0.65;
    TEST_TRUE(crossing(&m, "oneshot.line", "twoshot.line") > 8 * 1024);
    TEST_TRUE(crossing(&m, "oneshot.line", "twoshot.line") < 31 * 1024);
    m.figures.all_store_gbs = 24.5;
    m.figures.flag_us = 1.08;
    TEST_TRUE(crossing(&m, "oneshot.sentinel", "twoshot.sentinel") > 8 * 1024);
    TEST_TRUE(crossing(&m, "oneshot.sentinel", "twoshot.sentinel") < 14 * 1024);
    TEST_TRUE(crossing(&m, "oneshot.flag", "twoshot.flag") > 8 * 1024);
    TEST_TRUE(crossing(&m, "oneshot.flag", "twoshot.flag") < 31 * 1024);
    /* A quarter of the ranks, and all is further out. */
    m.nranks = 4;
    TEST_TRUE(crossing(&m, "oneshot.line", "twoshot.line") > 8 * 1024);
    /* A third of the bytes more against a fence of 2 us. */
    TEST_TRUE(crossing(&m, "twoshot.line", "twoshot.flag") > 128 * 1024);
    TEST_TRUE(crossing(&m, "twoshot.line", "twoshot.flag") < 512 * 1024);
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static struct peer_query query_of(const struct peer_machine *m, int collective, uint64_t bytes,
                                  const struct peer_row *rows, size_t nrows)
{
    return (struct peer_query){.collective = (enum peer_collective)collective,
                               .nbytes = bytes,
                               .nranks = m->nranks,
                               .link = m->link,
                               .peer_ok = true,
                               .line_ok = true,
                               .max_blocks = PEER_MAX_BLOCKS,
                               .max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS,
                               .algorithm = PEER_CHOICE_AUTO,
                               .protocol = PEER_CHOICE_AUTO,
                               .direction = PEER_CHOICE_AUTO,
                               .model_rows = rows,
                               .nmodel_rows = nrows};
}

/* The plan is the model's, and of the ways that there are none is faster. */
static void check_pick(const struct peer_machine *m, int collective, uint64_t bytes,
                       const struct peer_plan *plan)
{
    size_t nways;
    const struct peer_way *ways = peer_model_ways(&nways);
    struct peer_way mine = {plan->path, plan->algorithm, plan->protocol, plan->direction, plan->pieces};
    TEST_TEXT(plan->reason, "the model");
    if (m->link == PEER_LINK_SHM && bytes >= 256 << 10 && collective != PEER_COLL_BARRIER)
        TEST_INT(plan->protocol, PEER_PROTO_FLAG);
    if (m->figures.push_collapsed && collective != PEER_COLL_BARRIER)
        TEST_INT(plan->direction, PEER_PULL);
    if (bytes == 0 || collective == PEER_COLL_ALLTOALLV || collective == PEER_COLL_BARRIER)
        return;
    for (size_t w = 0; w < nways; w++) {
        const bool whole = ways[w].pieces == 1 || collective == PEER_COLL_ALLREDUCE ||
                           (collective == PEER_COLL_REDUCE && ways[w].algorithm == PEER_ALGO_TWOSHOT);
        const bool proved = m->link != PEER_LINK_WIRE || ways[w].direction == PEER_PUSH ||
                            ways[w].protocol != PEER_PROTO_LINE;
        const bool polled = m->link == PEER_LINK_SHM && ways[w].protocol == PEER_PROTO_LINE;
        /* 12 bytes for each thread of 32, or, on more than 2 ranks, 16 blocks of 256; no way gets more than all others'
         * messages */
        const bool threads =
            !polled || bytes * (m->nranks - 1) <= (uint64_t)12 * 256 * (m->nranks > 2 ? 16 : 32);
        const bool allowed =
            whole && proved && threads && (ways[w].direction == PEER_PULL || !m->figures.push_collapsed);
        if (ways[w].path == PEER_PATH_PEER && allowed)
            TEST_TRUE(peer_model_us(m, (enum peer_collective)collective, &mine, bytes) <=
                      peer_model_us(m, (enum peer_collective)collective, &ways[w], bytes));
    }
}

static void check_rows(const struct peer_machine *m)
{
    struct peer_row rows[MOST_ROWS], again[MOST_ROWS];
    const size_t n = peer_model_rows(&m->figures, m->link, m->nranks, rows, MOST_ROWS);
    TEST_TRUE(n >= PEER_N_COLLECTIVES && n <= MOST_ROWS);
    TEST_INT(peer_model_rows(&m->figures, m->link, m->nranks, NULL, 0), n);
    memset(again, 0, sizeof again);
    TEST_INT(peer_model_rows(&m->figures, m->link, m->nranks, again, n / 2), n);
    for (size_t i = 0; i < n; i++) {
        char text[128], why[128], back_text[128];
        struct peer_row back;
        peer_row_text(&rows[i], text, sizeof text);
        TEST_TRUE(peer_row_parse(text, &back, why, sizeof why));
        peer_row_text(&back, back_text, sizeof back_text);
        TEST_TEXT(back_text, text);
        peer_row_text(&again[i], back_text, sizeof back_text);
        if (i < n / 2)
            TEST_TEXT(back_text, text);
        else
            TEST_INT(again[i].max_bytes, 0);
        if (i > 0 && rows[i].collective == rows[i - 1].collective &&
            rows[i - 1].path != PEER_PATH_NCCL) /* behind those of NCCL are the ones that serve without it */
            TEST_TRUE(rows[i].max_bytes > rows[i - 1].max_bytes);
    }
    for (int c = 0; c < PEER_N_COLLECTIVES; c++)
        for (uint64_t bytes = 1; bytes <= (uint64_t)1 << 50; bytes *= 2)
            for (uint64_t b = bytes - 1; b <= bytes + 1; b++) {
                struct peer_query q = query_of(m, c, b, rows, n);
                struct peer_plan plan = peer_select(&q);
                const bool exact = b == bytes && b >= PEER_MODEL_LEAST_BYTES && b <= PEER_MODEL_MOST_BYTES;
                TEST_INT(plan.path, PEER_PATH_PEER);
                check_pick(m, c, exact ? b : 0, &plan);
                q.nccl_ok = true;
                plan = peer_select(&q);
                TEST_TEXT(plan.reason, "the model");
            }
}

static void rows_serve_all(void)
{
    struct peer_machine m = usual;
    for (int i = 0; i < 2 * 2 * 2 * 4; i++) {
        static const uint32_t nranks[] = {2, 3, 8, 16};
        m.nranks = nranks[i % 4];
        m.link = i / 4 % 2 ? PEER_LINK_SHM : PEER_LINK_WIRE;
        m.figures.push_collapsed = i / 8 % 2;
        m.figures.ring_store_gbs = i / 16 % 2 ? 45 : 0;
        check_rows(&m);
    }
}

/* A ring at twice the rate wins where bytes are all that counts, and nowhere else. */
static void nccl_where_faster(void)
{
    struct peer_machine m = usual;
    struct peer_row rows[MOST_ROWS];
    size_t n;
    struct peer_query q;
    m.figures.ring_store_gbs = 45;
    n = peer_model_rows(&m.figures, m.link, m.nranks, rows, MOST_ROWS);
    q = query_of(&m, PEER_COLL_ALLREDUCE, (uint64_t)64 << 20, rows, n);
    q.nccl_ok = true;
    TEST_INT(peer_select(&q).path, PEER_PATH_NCCL);
    q.nbytes = 43008;
    TEST_INT(peer_select(&q).path, PEER_PATH_PEER);
}

static void order_of_tables(void)
{
    struct peer_row rows[MOST_ROWS], mine;
    char why[128];
    size_t n = peer_model_rows(&usual.figures, usual.link, usual.nranks, rows, MOST_ROWS);
    struct peer_query q = query_of(&usual, PEER_COLL_ALLREDUCE, 43008, rows, n);
    TEST_TRUE(peer_row_parse("wire allreduce 8-8 any oneshot.ll 7x96", &mine, why, sizeof why));
    TEST_TEXT(peer_select(&q).reason, "the model");
    q.rows = &mine;
    q.nrows = 1;
    TEST_TEXT(peer_select(&q).reason, "PEER_TABLE");
    TEST_INT(peer_select(&q).blocks, 7);
    q.nranks = 4; /* rows of 8 ranks are nothing to 4 */
    TEST_TEXT(peer_select(&q).reason, "the table");
    TEST_TRUE(peer_select(&q).blocks != 7);
}

static void where_it_serves(void)
{
    struct peer_figures f = usual.figures;
    TEST_TRUE(peer_model_serves(&f, PEER_LINK_WIRE, 8));
    TEST_TRUE(!peer_model_serves(&f, PEER_LINK_LOCAL, 8));
    TEST_TRUE(!peer_model_serves(&f, PEER_LINK_HOST, 8));
    TEST_TRUE(peer_model_serves(&f, PEER_LINK_SHM, 8)); /* a link for each rank */
    f.all_load_gbs = 50.0 / 8;
    TEST_TRUE(!peer_model_serves(&f, PEER_LINK_SHM, 8)); /* one for all, on which the rows were measured */
    f.all_load_gbs = 25.0 / 8;
    TEST_TRUE(peer_model_serves(&f, PEER_LINK_SHM, 8)); /* half as fast */
    TEST_TRUE(!peer_model_serves(&f, PEER_LINK_NVLINK, 8));
    f.known = false;
    TEST_TRUE(!peer_model_serves(&f, PEER_LINK_WIRE, 8));
}

int main(void)
{
    grows_with_bytes();
    huge_takes_its_bytes();
    tiny_takes_its_flags();
    islands();
    impossible();
    crossings();
    rows_serve_all();
    nccl_where_faster();
    order_of_tables();
    where_it_serves();
    test_pass();
}
