/* What is done with the vectors: printed, compared with each other and with others' (results.c). Rank 0 prints. */
#ifndef TP_ENCODER_RESULTS_H
#define TP_ENCODER_RESULTS_H

#include <stdbool.h>

#include "text.h"

/* `vectors` has HIDDEN numbers for each line of the text. */
void print_vectors(const float *vectors, size_t count);

/* For each line, the `best` others that are most alike by their cosine. */
void print_similar(const float *vectors, const struct text *text, int best);

/* Whether all ranks have the same bits. All ranks call it. */
bool same_on_all_ranks(const float *vectors, size_t count);

/* Compares with the vectors in a file as print_vectors writes it (and lines that begin with # besides), and prints the
 * smallest cosine and the largest difference of two numbers. Whether the first is `cosine` or more, and the second
 * `within` or less. */
bool check_vectors(const float *vectors, size_t count, const char *path, double cosine, double within);

#endif
