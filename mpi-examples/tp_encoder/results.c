/* results.c: prints vectors and what lines are alike, and compares vectors with a file's. */
#include "config.h"
#include "results.h"
#include "tp_encoder.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void print_vectors(const float *vectors, size_t count)
{
    for (size_t line = 0; line < count; line++, vectors += HIDDEN)
        for (int i = 0; i < HIDDEN; i++)
            printf("%.9g%c", vectors[i], i < HIDDEN - 1 ? ' ' : '\n');
}

static double dot(const float *a, const float *b)
{
    double sum = 0;

    for (int i = 0; i < HIDDEN; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* Of unit vectors too: ours are so only but for rounding, and a file's may be rounded more. */
static double cosine_of(const float *a, const float *b)
{
    return dot(a, b) / sqrt(dot(a, a) * dot(b, b));
}

/* The line that is most like `line` among those not told yet; false if there is none. */
static bool find_best(const float *vectors, size_t count, size_t line, bool *told, size_t *best,
                      double *cosine)
{
    *cosine = -2;
    for (size_t i = 0; i < count; i++) {
        double c = told[i] ? -3 : dot(vectors + line * HIDDEN, vectors + i * HIDDEN);

        if (c > *cosine) {
            *cosine = c;
            *best = i;
        }
    }
    if (*cosine == -2)
        return false;
    told[*best] = true;
    return true;
}

void print_similar(const float *vectors, const struct text *text, int best)
{
    bool *told = allocate(text->count * sizeof *told);

    for (size_t line = 0; line < text->count; line++) {
        size_t other;
        double cosine;

        memset(told, 0, text->count * sizeof *told);
        told[line] = true;
        printf("%s\n", text->lines[line]);
        for (int i = 0; i < best && find_best(vectors, text->count, line, told, &other, &cosine); i++)
            printf("  %6.3f  %s\n", cosine, text->lines[other]);
    }
    free(told);
}

bool same_on_all_ranks(const float *vectors, size_t count)
{
    size_t bytes = count * HIDDEN * sizeof *vectors;
    float *first = allocate(bytes);
    int rank, differs;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        memcpy(first, vectors, bytes);
    MPI_Bcast(first, (int)(count * HIDDEN), MPI_FLOAT, 0, MPI_COMM_WORLD);
    differs = memcmp(first, vectors, bytes) != 0;
    if (differs)
        fprintf(stderr, "tp_encoder: rank %d's vectors are not rank 0's\n", rank);
    MPI_Allreduce(MPI_IN_PLACE, &differs, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    free(first);
    return !differs;
}

/* The next line's numbers into vector. False at the file's end. */
static bool read_vector(FILE *file, const char *path, size_t number, float *vector)
{
    char *line = NULL, *at, *end;
    size_t room = 0;

    do {
        if (getline(&line, &room, file) < 0) {
            free(line);
            return false;
        }
    } while (line[0] == '#');
    at = line;
    for (int i = 0; i < HIDDEN; i++, at = end) {
        vector[i] = strtof(at, &end);
        if (end == at)
            fail("%s: vector %zu has %d numbers, and %d are needed", path, number + 1, i, HIDDEN);
    }
    free(line);
    return true;
}

bool check_vectors(const float *vectors, size_t count, const char *path, double cosine, double within)
{
    FILE *file = fopen(path, "r");
    float expected[HIDDEN];
    double worst = 1, largest = 0, cosine_here;
    size_t read = 0;

    if (file == NULL)
        fail("--check %s: %s", path, strerror(errno));
    for (; read_vector(file, path, read, expected); read++) {
        const float *vector = vectors + read * HIDDEN;

        if (read == count)
            fail("--check %s: it has more vectors than there are lines", path);
        cosine_here = cosine_of(vector, expected);
        worst = fmin(worst, isnan(cosine_here) ? -1 : cosine_here);
        for (int i = 0; i < HIDDEN; i++)
            largest = fmax(largest, fabs((double)vector[i] - expected[i]));
    }
    fclose(file);
    if (read < count)
        fail("--check %s: it has %zu vectors, and there are %zu lines", path, read, count);
    printf("%zu vectors against %s: least cosine %.7f, largest difference of two numbers %.1e\n", count, path,
           worst, largest);
    if (worst >= cosine && largest <= within)
        return true;
    fprintf(stderr, "tp_encoder: that is too far off: cosines of %g, differences of %g are asked for\n",
            cosine, within);
    return false;
}
