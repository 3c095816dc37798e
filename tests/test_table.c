/* test_table: PEER_TABLE.
 *   rows    every built-in row as text reads back as the same row; what is no row is refused with the reason
 *   files   comments, blank lines, line numbers in errors; all ranks get the rows of rank 0's file alone
 *   calls   a table that names an algorithm decides it, in split communicators too, by size; a row that NCCL should
 *           serve is passed over where there is none; what is wrong is told alike on all ranks */
#include <stdlib.h>
#include <unistd.h>

#include "trial.h"
#include "test.h"

#define KIB 1024

static int rank, size;
static char file[64]; /* this rank's own */

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static void built_in_rows(void)
{
    char text[256], again[256], why[256] = "";
    const struct peer_table none = {NULL, 0};
    struct peer_row row;
    int rows = 0;
    FILE *to = tmpfile();
    TEST_TRUE(to != NULL);
    peer_select_print(to, &none);
    rewind(to);
    while (fgets(text, sizeof text, to) != NULL) {
        text[strcspn(text, "\n")] = '\0';
        if (text[0] == '#')
            continue;
        TEST_TRUE(peer_row_parse(text, &row, why, sizeof why));
        peer_row_text(&row, again, sizeof again);
        TEST_TEXT(again, text);
        rows++;
    }
    TEST_TRUE(rows > 20);
    fclose(to);
}

static void good_row(void)
{
    struct peer_row row;
    char why[256] = "";
    TEST_TRUE(
        peer_row_parse(" shm\tallreduce 3-8 131072  twoshot.line.pull 16x256/4", &row, why, sizeof why));
    TEST_INT(row.link, PEER_LINK_SHM);
    TEST_INT(row.collective, PEER_COLL_ALLREDUCE);
    TEST_INT(row.min_ranks, 3);
    TEST_INT(row.max_ranks, 8);
    TEST_INT(row.max_bytes, 131072);
    TEST_INT(row.algorithm, PEER_ALGO_TWOSHOT);
    TEST_INT(row.protocol, PEER_PROTO_LINE);
    TEST_INT(row.direction, PEER_PULL);
    TEST_INT(row.blocks, 16);
    TEST_INT(row.threads, 256);
    TEST_INT(row.pieces, 4);
    TEST_INT(row.path, PEER_PATH_PEER);
    TEST_TRUE(peer_row_parse("wire (all) 2-16 any nccl", &row, why, sizeof why));
    TEST_INT(row.path, PEER_PATH_NCCL);
    TEST_TRUE(row.max_bytes == UINT64_MAX);
}

static const struct {
    const char *text, *why;
} bad_rows[] = {
    {"host allreduce 2-4 any", "too few fields"},
    {"host allreduce 2-4 any oneshot.flag 1x1 /4", "too many fields"},
    {"hosts allreduce 2-4 any oneshot.flag 1x1", "LINK"},
    {"host allsort 2-4 any oneshot.flag 1x1", "COLLECTIVE"},
    {"host all 2-4 any oneshot.flag 1x1", "COLLECTIVE"},
    {"host allreduce 4 any oneshot.flag 1x1", "RANKS"},
    {"host allreduce 4-2 any oneshot.flag 1x1", "RANKS"},
    {"host allreduce 2-4x any oneshot.flag 1x1", "RANKS"},
    {"host allreduce 2-4 64K oneshot.flag 1x1", "BYTES"},
    {"host allreduce 2-4 -1 oneshot.flag 1x1", "BYTES"},
    {"host allreduce 2-4 any oneshot 1x1", "ALGORITHM"},
    {"host allreduce 2-4 any threeshot.flag 1x1", "ALGORITHM"},
    {"host allreduce 2-4 any oneshot.flags 1x1", "ALGORITHM"},
    {"host allreduce 2-4 any oneshot.flag.pulls 1x1", "ALGORITHM"},
    {"host alltoall 2-4 any twoshot.flag 1x1", "other algorithms than oneshot"},
    {"host (all) 2-4 any twoshot.flag 1x1", "other algorithms than oneshot"},
    {"host gather 2-4 any staged.flag 1x1", "other algorithms than oneshot"},
    {"host allreduce 2-4 any staged.ll 1x1", "staged is staged.flag"},
    {"host allreduce 2-4 any staged.flag.pull 1x1", "staged is staged.flag"},
    {"host allreduce 2-4 any island.flag.pull 1x1", "island has no pull"},
    {"wire allreduce 2-4 any nccl 16x256", "nccl has no GRID"},
    {"wire allreduce 2-4 any oneshot.flag", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 0x256", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 65x256", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x1", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x100", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x544", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x256/0", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x256/", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x256/65", "GRID"},
    {"wire allreduce 2-4 any oneshot.flag 16x256/4x", "GRID"},
    {"host allreduce 2-4 any oneshot.flag 1x32", "GRID"},
};

static void refused_rows(void)
{
    struct peer_row row;
    char why[256];
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        TEST_TRUE(!peer_row_parse(bad_rows[i].text, &row, why, sizeof why));
        TEST_CONTAINS(why, bad_rows[i].why);
    }
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static void write_file(const char *text)
{
    FILE *to = fopen(file, "w");
    TEST_TRUE(to != NULL);
    TEST_TRUE(fputs(text, to) >= 0);
    TEST_INT(fclose(to), 0);
}

static void read_file(void)
{
    struct peer_table table;
    char text[1024];
    write_file("# a table\n\n  \t\nhost allreduce 2-2 64 oneshot.ll 1x1  # small\r\n"
               "host allreduce 2-16 any twoshot.flag 1x1"); /* no line end */
    TEST_OK(peer_table_read(file, &table));
    TEST_INT(table.nrows, 2);
    TEST_INT(table.rows[0].max_bytes, 64);
    TEST_INT(table.rows[1].algorithm, PEER_ALGO_TWOSHOT);
    peer_table_free(&table);
    write_file("# nothing\n");
    TEST_OK(peer_table_read(file, &table));
    TEST_INT(table.nrows, 0);
    write_file("# a table\nhost allreduce 2-2 64 oneshot.ll 1x1\nhost allreduce 2-2 64 oneshot.xx 1x1\n");
    TEST_STATUS(peer_table_read(file, &table), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), file);
    TEST_CONTAINS(PEER_Last_error(), "line 3");
    TEST_CONTAINS(PEER_Last_error(), "ALGORITHM");
    TEST_TRUE(table.rows == NULL && table.nrows == 0);
    memset(text, ' ', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    write_file(text);
    TEST_STATUS(peer_table_read(file, &table), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "line 1: it is longer");
    TEST_STATUS(peer_table_read("/nowhere/table", &table), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "/nowhere/table can't be opened: No such file");
    TEST_STATUS(peer_table_read("/", &table), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "can't be read");
}

static void most_rows(void)
{
    static const char row[] = "host allreduce 2-2 64 oneshot.ll 1x1\n";
    struct peer_table table;
    FILE *to = fopen(file, "w");
    TEST_TRUE(to != NULL);
    for (int i = 0; i < 10000; i++)
        TEST_TRUE(fputs(row, to) >= 0);
    fflush(to);
    TEST_OK(peer_table_read(file, &table));
    TEST_INT(table.nrows, 10000);
    peer_table_free(&table);
    TEST_TRUE(fputs(row, to) >= 0);
    TEST_INT(fclose(to), 0);
    TEST_STATUS(peer_table_read(file, &table), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "line 10001: a table has 10000 rows");
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

static int try_with_table(PEER_Comm *comm)
{
    char settings[96];
    snprintf(settings, sizeof settings, "device=host table=%s", file);
    return trial_try_create(MPI_COMM_WORLD, settings, comm);
}

static void call(PEER_Comm comm, size_t count, const char *plan)
{
    float *x = calloc(count, sizeof *x);
    TEST_TRUE(x != NULL);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(rank + 1);
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, x, count, PEER_FLOAT32, PEER_SUM, comm, NULL));
    for (size_t i = 0; i < count; i++)
        TEST_TRUE(x[i] == (float)(size * (size + 1) / 2));
    TEST_CONTAINS(trial_info(comm, "plan"), plan);
    free(x);
}

static void all_calls(PEER_Comm comm)
{
    call(comm, 4, "oneshot.line 1x1");
    call(comm, KIB, "twoshot.ll.pull 1x1");
    call(comm, 16 * KIB, "oneshot.flag 1x1/3"); /* past the row of NCCL, which has no host device */
}

/* Only rank 0 has the table: the others' has an error. */
static void forced_plans(void)
{
    PEER_Comm comm, part;
    write_file(rank > 0 ? "not a row\n"
                        : "host allreduce 2-16 64 oneshot.line 1x1\n"
                          "host allreduce 2-16 4096 twoshot.ll.pull 1x1\n"
                          "host allreduce 2-16 any nccl\n"
                          "host allreduce 2-16 any oneshot.flag 1x1/3\n");
    TEST_OK(try_with_table(&comm));
    all_calls(comm);
    TEST_OK(PEER_Comm_split(comm, 0, rank, &part));
    trial_free(&comm); /* the part has rows of its own */
    all_calls(part);
    trial_free(&part);
}

static void same_error(const char *text)
{
    PEER_Comm comm;
    char mine[512] = "", first[512];
    TEST_STATUS(try_with_table(&comm), PEER_ERR_SETTING);
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_CONTAINS(PEER_Last_error(), text);
    snprintf(mine, sizeof mine, "%s", PEER_Last_error());
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    TEST_TEXT(mine, first);
}

static void wrong_tables(void)
{
    write_file(rank > 0 ? "" : "\nhost allreduce 2-4 any fourshot.flag 1x1\n");
    same_error("line 2: ALGORITHM");
    if (rank == 0)
        TEST_INT(unlink(file), 0);
    same_error("can't be opened");
}

int main(int argc, char **argv)
{
    trial_begin(&argc, &argv, &rank, &size);
    snprintf(file, sizeof file, "/tmp/peercoll-table-%d", (int)getpid());
    built_in_rows();
    good_row();
    refused_rows();
    read_file();
    most_rows();
    forced_plans();
    wrong_tables();
    if (rank > 0)
        unlink(file);
    MPI_Finalize();
    test_pass();
}
