/* text.c: reads lines on rank 0 and gives them to all ranks. mpirun gives standard input to rank 0 alone, and a file
 * may lie on rank 0's machine only. */
#include "config.h"
#include "text.h"
#include "tp_encoder.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of a stream; *size gets its bytes. Room for one more is left. */
static char *read_all(FILE *file, const char *name, size_t *size)
{
    size_t room = 1 << 16, got = 0;
    char *bytes = allocate(room);

    while (!feof(file)) {
        got += fread(bytes + got, 1, room - 1 - got, file);
        if (ferror(file))
            fail("reading %s: %s", name, strerror(errno));
        if (got == room - 1) {
            room *= 2;
            bytes = realloc(bytes, room);
            if (bytes == NULL || room > INT_MAX)
                fail("%s is too large: give it in parts of less than 1 GB", name);
        }
    }
    *size = got;
    return bytes;
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = path == NULL ? stdin : fopen(path, "r");
    const char *name = path == NULL ? "standard input" : path;
    char *bytes;

    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    bytes = read_all(file, name, size);
    if (file != stdin)
        fclose(file);
    return bytes;
}

/* The last line may lack its end. */
static void split(struct text *text, size_t size)
{
    char *at = text->bytes, *end = at + size;

    for (size_t i = 0; i < size; i++)
        text->count += at[i] == '\n';
    text->count += size > 0 && end[-1] != '\n';
    text->lines = allocate(text->count * sizeof *text->lines);
    text->sizes = allocate(text->count * sizeof *text->sizes);
    for (size_t i = 0; i < text->count; i++) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *line_end = newline != NULL ? newline : end;

        *line_end = '\0';
        if (line_end > at && line_end[-1] == '\r')
            *--line_end = '\0';
        text->lines[i] = at;
        text->sizes[i] = (size_t)(line_end - at);
        at = newline != NULL ? newline + 1 : end;
    }
}

void text_read(struct text *text, const char *path)
{
    unsigned long long size = 0;
    size_t got = 0;
    int rank;

    memset(text, 0, sizeof *text);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        text->bytes = read_file(path, &got);
    size = got;
    MPI_Bcast(&size, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    if (rank != 0)
        text->bytes = allocate(size + 1);
    MPI_Bcast(text->bytes, (int)size, MPI_CHAR, 0, MPI_COMM_WORLD);
    split(text, size);
}

void text_free(struct text *text)
{
    free(text->lines);
    free(text->sizes);
    free(text->bytes);
}
