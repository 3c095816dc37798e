/* ops_host.c: the maths of a layer on the CPU: matrix products by CBLAS, the rest in loops (ops.h). */
#include "config.h"
#include "ops.h"
#include "tp_encoder.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NORM_EPSILON 1e-12f /* the model's */

/* One row; sums in double, which costs nothing here. */
static void normalise(float *x, struct norm norm)
{
    double sum = 0, squares = 0;
    float mean, scale;

    for (int i = 0; i < HIDDEN; i++)
        sum += x[i];
    mean = (float)(sum / HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        squares += (double)(x[i] - mean) * (x[i] - mean);
    scale = 1 / sqrtf((float)(squares / HIDDEN) + NORM_EPSILON);
    for (int i = 0; i < HIDDEN; i++)
        x[i] = (x[i] - mean) * scale * norm.gamma[i] + norm.beta[i];
}

static void host_embed(struct ops *ops, float *x, const struct batch *batch, const float *word,
                       const float *position, const float *type, struct norm norm)
{
    (void)ops;
    for (int row = 0; row < batch->batch * batch->length; row++, x += HIDDEN) {
        const float *token = word + (size_t)batch->ids[row] * HIDDEN;
        const float *place = position + (size_t)(row % batch->length) * HIDDEN;

        for (int i = 0; i < HIDDEN; i++)
            x[i] = token[i] + type[i] + place[i];
        normalise(x, norm);
    }
}

static void host_linear(struct ops *ops, float *y, const float *x, const float *weight, int rows, int in,
                        int out)
{
    (void)ops;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, 1, x, in, weight, in, 0, y, out);
}

static void host_add_bias(struct ops *ops, float *x, const float *bias, int rows, int columns)
{
    (void)ops;
    for (int row = 0; row < rows; row++, x += columns)
        for (int i = 0; i < columns; i++)
            x[i] += bias[i];
}

static void host_add_bias_gelu(struct ops *ops, float *x, const float *bias, int rows, int columns)
{
    (void)ops;
    for (int row = 0; row < rows; row++, x += columns) {
        for (int i = 0; i < columns; i++) {
            float t = x[i] + bias[i];

            x[i] = t * 0.5f * (1 + erff(t * (float)M_SQRT1_2));
        }
    }
}

/* Over the first `valid` of a row; the others are padding and get no weight. */
static void softmax(float *row, int valid, int length)
{
    float max = row[0], sum = 0;

    for (int j = 1; j < valid; j++)
        max = fmaxf(max, row[j]);
    for (int j = 0; j < valid; j++)
        sum += row[j] = expf(row[j] - max);
    for (int j = 0; j < valid; j++)
        row[j] /= sum;
    memset(row + valid, 0, (size_t)(length - valid) * sizeof *row);
}

static void host_attention(struct ops *ops, float *context, const float *qkv, float *scores,
                           const struct batch *batch, int heads)
{
    int length = batch->length, width = heads * HEAD_WIDTH;

    (void)ops;
    for (int line = 0; line < batch->batch; line++) {
        for (int head = 0; head < heads; head++) {
            const float *q = qkv + (size_t)line * length * 3 * width + head * HEAD_WIDTH;
            const float *k = q + width, *v = k + width;
            float *to = context + (size_t)line * length * width + head * HEAD_WIDTH;

            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, length, length, HEAD_WIDTH,
                        1 / sqrtf(HEAD_WIDTH), q, 3 * width, k, 3 * width, 0, scores, length);
            for (int i = 0; i < length; i++)
                softmax(scores + (size_t)i * length, batch->lengths[line], length);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, length, HEAD_WIDTH, length, 1, scores,
                        length, v, 3 * width, 0, to, width);
        }
    }
}

static void host_add_norm(struct ops *ops, float *x, const float *sum, const float *bias, struct norm norm,
                          int rows)
{
    (void)ops;
    for (int row = 0; row < rows; row++, x += HIDDEN, sum += HIDDEN) {
        for (int i = 0; i < HIDDEN; i++)
            x[i] += sum[i] + bias[i];
        normalise(x, norm);
    }
}

static void host_pool(struct ops *ops, float *vectors, const float *x, const struct batch *batch)
{
    (void)ops;
    for (int line = 0; line < batch->batch; line++, vectors += HIDDEN, x += (size_t)batch->length * HIDDEN) {
        int valid = batch->lengths[line];
        double squares = 0;

        for (int i = 0; i < HIDDEN; i++) {
            double sum = 0;

            for (int token = 0; token < valid; token++)
                sum += x[(size_t)token * HIDDEN + i];
            vectors[i] = (float)(sum / valid);
            squares += (double)vectors[i] * vectors[i];
        }
        for (int i = 0; i < HIDDEN; i++)
            vectors[i] /= (float)sqrt(squares);
    }
}

static void host_clear(struct ops *ops, float *x, size_t count)
{
    (void)ops;
    memset(x, 0, count * sizeof *x);
}

static void host_close(struct ops *ops)
{
    free(ops);
}

struct ops *ops_host_open(void)
{
    struct ops *ops = allocate(sizeof *ops);

    /* A rank is our unit of parallel work. Were each rank to start a thread for every core, they would fight. */
    openblas_set_num_threads(1);
    *ops = (struct ops){.name = "OpenBLAS",
                        .close = host_close,
                        .host_alloc = allocate,
                        .host_free = free,
                        .embed = host_embed,
                        .linear = host_linear,
                        .add_bias = host_add_bias,
                        .add_bias_gelu = host_add_bias_gelu,
                        .attention = host_attention,
                        .add_norm = host_add_norm,
                        .pool = host_pool,
                        .clear = host_clear};
    return ops;
}
