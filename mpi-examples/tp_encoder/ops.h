/* The maths of a layer on one device, of which this program has two: CBLAS on the CPU (ops_host.c), and on a GPU cuBLAS
 * and a few kernels (ops_cuda.c, ops_kernels.cu). No communication is in here.
 *
 * Matrices are fp32, one row after the other, and rows are tokens: of `batch` lines with `length` tokens each, padding
 * included, so `rows` is batch * length. Work goes to the stream and may be captured into a graph. */
#ifndef TP_ENCODER_OPS_H
#define TP_ENCODER_OPS_H

#include <stddef.h>

#include "peercoll.h"

/* A batch; ids and lengths are in the device's memory, and may change between two runs of a captured graph. */
struct batch {
    int batch, length;  /* lines, and tokens that each is padded to */
    const int *ids;     /* of the tokens, batch x length */
    const int *lengths; /* of the lines, without the padding; at least 1 */
};

/* Layer norm's two vectors. */
struct norm {
    const float *gamma, *beta;
};

struct ops {
    const char *name; /* of the library that multiplies matrices */
    void (*close)(struct ops *ops);

    /* Host memory that is copied to and from the device at full speed. */
    void *(*host_alloc)(size_t bytes);
    void (*host_free)(void *memory);

    /* x = layer norm of (word[id] + position[place in the line] + type) */
    void (*embed)(struct ops *ops, float *x, const struct batch *batch, const float *word,
                  const float *position, const float *type, struct norm norm);

    /* y (rows x out) = x (rows x in) times the transpose of weight (out x in), as weights are stored */
    void (*linear)(struct ops *ops, float *y, const float *x, const float *weight, int rows, int in, int out);
    void (*add_bias)(struct ops *ops, float *x, const float *bias, int rows, int columns);
    void (*add_bias_gelu)(struct ops *ops, float *x, const float *bias, int rows, int columns);

    /* For each of the heads: context = softmax(Q K' / sqrt(HEAD_WIDTH)) V, where a line's tokens see those of the
     * line, and no padding. A row of qkv is Q of all heads, then K, then V; scores is scratch of
     * batch * heads * length * length. */
    void (*attention)(struct ops *ops, float *context, const float *qkv, float *scores,
                      const struct batch *batch, int heads);

    /* x = layer norm of (x + (sum + bias)), each HIDDEN wide */
    void (*add_norm)(struct ops *ops, float *x, const float *sum, const float *bias, struct norm norm,
                     int rows);

    /* A line's vector: the mean of its tokens, scaled to length 1; vectors is batch x HIDDEN */
    void (*pool)(struct ops *ops, float *vectors, const float *x, const struct batch *batch);

    void (*clear)(struct ops *ops, float *x, size_t count);
};

struct ops *ops_host_open(void);
struct ops *ops_cuda_open(PEER_Stream stream); /* a build without cuBLAS fails there, with what to do */

#endif
