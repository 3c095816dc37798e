/* The tensors of a safetensors file, by name (weights.c). */
#ifndef TP_ENCODER_WEIGHTS_H
#define TP_ENCODER_WEIGHTS_H

#include <stddef.h>

struct weights;

/* Maps the file: what a rank doesn't read of it takes no memory, and ranks of a machine share what they read. */
struct weights *weights_open(const char *path);
void weights_close(struct weights *weights);

/* The fp32 tensor of that name, rows by columns, one row after the other; a vector has 1 row. It lies in the file,
 * at any address that is a multiple of 4. */
const float *weights_get(const struct weights *weights, const char *name, size_t rows, size_t columns);

#endif
