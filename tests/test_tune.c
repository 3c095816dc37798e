/* test_tune: from times to rows, as peer_perf --tune does it. Touches neither MPI nor a device. */
#include "tools/perf_tune.h"
#include "test.h"

static struct tune tune;

/* Three ways, told apart by their blocks: 1, 2, 3. */
static void begin(void)
{
    tune = (struct tune){.nways = 3};
    for (int way = 0; way < 3; way++)
        tune.ways[way] = (struct peer_row){.link = PEER_LINK_WIRE,
                                           .collective = PEER_COLL_ALLREDUCE,
                                           .min_ranks = 4,
                                           .max_ranks = 4,
                                           .max_bytes = UINT64_MAX,
                                           .blocks = (uint32_t)way + 1,
                                           .threads = 32,
                                           .pieces = 1};
}

static void size(uint64_t nbytes, double a, double b, double c)
{
    tune.nbytes[tune.nsizes] = nbytes;
    tune.us[tune.nsizes][0] = a;
    tune.us[tune.nsizes][1] = b;
    tune.us[tune.nsizes++][2] = c;
}

static void check_row(const struct peer_row *row, uint32_t blocks, uint64_t max_bytes)
{
    TEST_INT(row->blocks, blocks);
    TEST_INT(row->max_bytes, max_bytes);
}

/* Each way is best somewhere: a row each, which ends halfway to the next one's first size; the last ends where the
 * sizes do. */
static void each_its_row(void)
{
    struct peer_row rows[TUNE_MAX_SIZES];
    begin();
    size(8, 1, 2, 3);
    size(16, 1, 2, 3);
    size(32, 3, 1, 2);
    size(64, 3, 2, 1);
    TEST_INT(tune_rows(&tune, rows), 3);
    check_row(&rows[0], 1, 24);
    check_row(&rows[1], 2, 48);
    check_row(&rows[2], 3, 64);
}

/* Within 2% of the best goes on with its neighbour, whichever side that is; 3% does not. */
static void ties(void)
{
    struct peer_row rows[TUNE_MAX_SIZES];
    begin();
    size(8, 1.00, 1.01, 9);
    size(16, 1.01, 1.00, 9);
    size(32, 1.00, 1.019, 9);
    size(64, 1.03, 1.00, 9);
    TEST_INT(tune_rows(&tune, rows), 1);
    check_row(&rows[0], 2, 64);
    size(128, 1.00, 1.03, 9);
    TEST_INT(tune_rows(&tune, rows), 2);
    check_row(&rows[0], 2, 96);
    check_row(&rows[1], 1, 128);
}

/* A way that was not tried any more has no row there; of ways that reach equally far the fastest has it. */
static void untried(void)
{
    struct peer_row rows[TUNE_MAX_SIZES];
    begin();
    size(8, 1, 1.01, 3);
    size(16, -1, 2, 1.99);
    TEST_INT(tune_rows(&tune, rows), 1);
    check_row(&rows[0], 2, 16);
    begin();
    size(8, 1.01, 1.015, 1);
    TEST_INT(tune_rows(&tune, rows), 1);
    check_row(&rows[0], 3, 8);
}

/* Where selection knows no size there is one row: the best over all sizes, of those that were tried at all. */
static void unknown_sizes(void)
{
    struct peer_row rows[TUNE_MAX_SIZES];
    begin();
    size(0, 1, 1.5, 0.9);
    size(0, 100, 50, -1);
    TEST_INT(tune_rows(&tune, rows), 1);
    TEST_INT(rows[0].blocks, 2);
    TEST_TRUE(rows[0].max_bytes == UINT64_MAX);
}

/* What is written can be read. */
static void written(void)
{
    struct peer_row rows[TUNE_MAX_SIZES], again;
    char text[256], why[256] = "";
    FILE *file = tmpfile();
    int n;
    TEST_TRUE(file != NULL);
    begin();
    tune.ways[1].path = PEER_PATH_NCCL;
    size(8, 1, 2, 3);
    size(4096, 3, 1, 2);
    n = tune_rows(&tune, rows);
    TEST_INT(n, 2);
    tune_write(file, rows, n);
    rewind(file);
    for (int i = 0; i < n; i++) {
        TEST_TRUE(fgets(text, sizeof text, file) != NULL);
        TEST_TRUE(peer_row_parse(text, &again, why, sizeof why));
        TEST_INT(again.path, rows[i].path);
        TEST_INT(again.max_bytes, rows[i].max_bytes);
        TEST_INT(again.link, PEER_LINK_WIRE);
        TEST_INT(again.min_ranks, 4);
    }
    TEST_TRUE(fgets(text, sizeof text, file) == NULL);
    fclose(file);
}

int main(void)
{
    each_its_row();
    ties();
    untried();
    unknown_sizes();
    written();
    test_pass();
}
