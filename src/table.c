/* PEER_TABLE: rows of selection from a file, one a line as `peer_info --table' prints them; `#' begins a comment.
 * Rank 0's file serves all ranks of a communicator, so that they choose alike. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "peercoll.h"

#define LINE_BYTES 512
#define MAX_ROWS   10000

static int bad_line(const char *file, int number, const char *why)
{
    return peer_error(PEER_ERR_SETTING, "PEER_TABLE %s, line %d: %s", file, number, why);
}

static int append(struct peer_table *table, const struct peer_row *row)
{
    struct peer_row *rows = realloc(table->rows, (table->nrows + 1) * sizeof *rows);
    if (rows == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu rows of PEER_TABLE", table->nrows + 1);
    table->rows = rows;
    table->rows[table->nrows++] = *row;
    return PEER_SUCCESS;
}

/* The text without its comment and line end; false if there is nothing else. */
static bool strip(char *text)
{
    text[strcspn(text, "#\r\n")] = '\0';
    return text[strspn(text, " \t")] != '\0';
}

static int read_line(FILE *from, const char *file, int number, char *text, struct peer_table *table)
{
    struct peer_row row;
    char why[256];
    if (strchr(text, '\n') == NULL && !feof(from))
        return bad_line(file, number, "it is longer than a row can be");
    if (!strip(text))
        return PEER_SUCCESS;
    if (!peer_row_parse(text, &row, why, sizeof why))
        return bad_line(file, number, why);
    if (table->nrows == MAX_ROWS)
        return bad_line(file, number, "a table has 10000 rows at most");
    return append(table, &row);
}

int peer_table_read(const char *file, struct peer_table *table)
{
    FILE *from = fopen(file, "r");
    char text[LINE_BYTES];
    int status = PEER_SUCCESS;
    *table = (struct peer_table){NULL, 0};
    if (from == NULL)
        return peer_error(PEER_ERR_SETTING, "PEER_TABLE %s can't be opened: %s", file, strerror(errno));
    for (int number = 1; status == PEER_SUCCESS && fgets(text, sizeof text, from) != NULL; number++)
        status = read_line(from, file, number, text, table);
    if (status == PEER_SUCCESS && ferror(from))
        status = peer_error(PEER_ERR_SETTING, "PEER_TABLE %s can't be read: %s", file, strerror(errno));
    fclose(from);
    if (status != PEER_SUCCESS)
        peer_table_free(table);
    return status;
}

/* Room for `nrows` rows. */
static int allocate(struct peer_table *table, size_t nrows)
{
    *table = (struct peer_table){calloc(nrows, sizeof *table->rows), nrows};
    return table->rows != NULL
               ? PEER_SUCCESS
               : peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu rows of PEER_TABLE", nrows);
}

static int copy(const struct peer_table *from, struct peer_table *table)
{
    int status = from->nrows > 0 ? allocate(table, from->nrows) : PEER_SUCCESS;
    if (status == PEER_SUCCESS && from->nrows > 0)
        memcpy(table->rows, from->rows, from->nrows * sizeof *table->rows);
    return status;
}

int peer_table_load(struct peer_bootstrap *boot, const char *file, const struct peer_table *parent,
                    struct peer_table *table)
{
    int status = PEER_SUCCESS;
    size_t nrows;
    if (boot->rank == 0 && parent != NULL)
        status = copy(parent, table);
    else if (boot->rank == 0 && file[0] != '\0')
        status = peer_table_read(file, table);
    status = peer_vote(boot, status);
    nrows = table->nrows;
    if (status == PEER_SUCCESS)
        status = boot->bcast(boot, &nrows, sizeof nrows);
    if (status != PEER_SUCCESS || nrows == 0)
        return status;
    if (boot->rank != 0)
        status = allocate(table, nrows);
    status = peer_vote(boot, status);
    if (status == PEER_SUCCESS)
        status = boot->bcast(boot, table->rows, nrows * sizeof *table->rows);
    return status;
}

void peer_table_free(struct peer_table *table)
{
    free(table->rows);
    *table = (struct peer_table){NULL, 0};
}
