/* encoder.c: a transformer layer split over ranks, as Megatron-LM does it. This is the file to copy from.
 *
 * A layer multiplies its input x by a first matrix, does something to each column of the result by itself, and
 * multiplies by a second matrix; twice:
 *
 *   attention      x -> query, key, value -> each head attends by itself -> out
 *   feed-forward   x -> up                -> GELU                        -> down
 *
 * So the first matrix is split by columns: each rank has some heads, or some of the feed-forward's 1536 columns, and
 * computes those from all of x, which each rank has. The second matrix is split by rows, the rows that belong to those
 * columns. What a rank gets from its rows has the full width, but is only its share of a sum:
 *
 *                  rank 0   [ x ] x [ W1 | . ]  ->  f( h0 )  x  [ W2 ]  ->  share 0
 *                                                               [ .. ]               \
 *                                                                                     + = y, on all ranks
 *                                                               [ .. ]               /
 *                  rank 1   [ x ] x [ . | W1 ]  ->  f( h1 )  x  [ W2 ]  ->  share 1
 *
 * One all-reduce adds up the shares; two of them a layer are all the communication there is. The rest - biases of the
 * second matrices, residuals, layer norms - each rank does for itself on the sum, and since peercoll's sum has the
 * same bits everywhere, x stays the same on all ranks, bit by bit, through all layers.
 *
 * (Weights are stored transposed, a row for each output: there "by columns" takes rows, which lie together, and
 * "by rows" takes columns.) */
#include "config.h"
#include "encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Splitting ---------------------------------------------------------------------------------------------- */

struct range {
    int first, count;
};

/* This rank's part of n things. Any number of ranks will do: of 12 heads, 5 ranks get 2, 2, 3, 2 and 3, and of 16
 * ranks some get none, who then only add zeros. */
static struct range part_of(int n, int rank, int size)
{
    int first = rank * n / size;

    return (struct range){first, (rank + 1) * n / size - first};
}

/* Rows are in one piece, so that a "column-parallel" part is copied as it is. Goes to `to` on the device. */
static void put_rows(struct encoder *encoder, float *to, const float *from, struct range rows, int width)
{
    bed_put(&encoder->bed, to, from + (size_t)rows.first * width, (size_t)rows.count * width * sizeof *to);
}

static float *copy_rows(struct encoder *encoder, const float *from, struct range rows, int width)
{
    float *to = bed_alloc(&encoder->bed, (size_t)rows.count * width * sizeof *to);

    put_rows(encoder, to, from, rows, width);
    return to;
}

/* Some columns of a matrix of `height` rows and `width` columns: the "row-parallel" part. */
static float *copy_columns(struct encoder *encoder, const float *from, struct range columns, int height,
                           int width)
{
    size_t bytes = (size_t)height * columns.count * sizeof *from;
    float *to = bed_alloc(&encoder->bed, bytes), *packed = allocate(bytes);

    for (int row = 0; row < height; row++)
        memcpy(packed + (size_t)row * columns.count, from + (size_t)row * width + columns.first,
               (size_t)columns.count * sizeof *from);
    bed_put(&encoder->bed, to, packed, bytes);
    free(packed);
    return to;
}

static float *copy_vector(struct encoder *encoder, const float *from, int width)
{
    return copy_rows(encoder, from, (struct range){0, 1}, width);
}

/* ---- Reading this rank's part ------------------------------------------------------------------------------- */

/* A tensor "encoder.layer.LAYER.NAME", as it lies in the file. */
static const float *get(const struct weights *weights, int layer, const char *name, int rows, int columns)
{
    char full[128];

    snprintf(full, sizeof full, "encoder.layer.%d.%s", layer, name);
    return weights_get(weights, full, (size_t)rows, (size_t)columns);
}

static struct norm read_norm(struct encoder *encoder, const float *gamma, const float *beta)
{
    return (struct norm){copy_vector(encoder, gamma, HIDDEN), copy_vector(encoder, beta, HIDDEN)};
}

/* Query, key and value go into one matrix, so that one multiplication makes all three. */
static void read_qkv(struct encoder *encoder, struct layer *layer, const struct weights *weights, int number,
                     struct range mine)
{
    static const char *const names[][2] = {{"attention.self.query.weight", "attention.self.query.bias"},
                                           {"attention.self.key.weight", "attention.self.key.bias"},
                                           {"attention.self.value.weight", "attention.self.value.bias"}};

    layer->qkv_weight = bed_alloc(&encoder->bed, (size_t)3 * mine.count * HIDDEN * sizeof(float));
    layer->qkv_bias = bed_alloc(&encoder->bed, (size_t)3 * mine.count * sizeof(float));
    for (int i = 0; i < 3; i++) {
        put_rows(encoder, layer->qkv_weight + (size_t)i * mine.count * HIDDEN,
                 get(weights, number, names[i][0], HIDDEN, HIDDEN), mine, HIDDEN);
        put_rows(encoder, layer->qkv_bias + (size_t)i * mine.count,
                 get(weights, number, names[i][1], 1, HIDDEN), mine, 1);
    }
}

static void read_layer(struct encoder *encoder, const struct weights *weights, int number, struct range heads,
                       struct range columns)
{
    struct layer *layer = &encoder->layers[number];
    struct range mine = {heads.first * HEAD_WIDTH, heads.count * HEAD_WIDTH};

    read_qkv(encoder, layer, weights, number, mine);
    layer->out_weight = copy_columns(
        encoder, get(weights, number, "attention.output.dense.weight", HIDDEN, HIDDEN), mine, HIDDEN, HIDDEN);
    layer->out_bias =
        copy_vector(encoder, get(weights, number, "attention.output.dense.bias", 1, HIDDEN), HIDDEN);
    layer->attention_norm =
        read_norm(encoder, get(weights, number, "attention.output.LayerNorm.weight", 1, HIDDEN),
                  get(weights, number, "attention.output.LayerNorm.bias", 1, HIDDEN));

    layer->up_weight = copy_rows(
        encoder, get(weights, number, "intermediate.dense.weight", FEED_FORWARD, HIDDEN), columns, HIDDEN);
    layer->up_bias =
        copy_rows(encoder, get(weights, number, "intermediate.dense.bias", 1, FEED_FORWARD), columns, 1);
    layer->down_weight =
        copy_columns(encoder, get(weights, number, "output.dense.weight", HIDDEN, FEED_FORWARD), columns,
                     HIDDEN, FEED_FORWARD);
    layer->down_bias = copy_vector(encoder, get(weights, number, "output.dense.bias", 1, HIDDEN), HIDDEN);
    layer->output_norm = read_norm(encoder, get(weights, number, "output.LayerNorm.weight", 1, HIDDEN),
                                   get(weights, number, "output.LayerNorm.bias", 1, HIDDEN));
}

/* The embeddings are not split: looking up a row costs nothing. (Where a vocabulary is large, each rank has some of its
 * rows, puts zeros for the others' tokens, and one more all-reduce adds up.) */
static void read_embeddings(struct encoder *encoder, const struct weights *weights)
{
    encoder->word =
        copy_rows(encoder, weights_get(weights, "embeddings.word_embeddings.weight", VOCABULARY, HIDDEN),
                  (struct range){0, VOCABULARY}, HIDDEN);
    encoder->position =
        copy_rows(encoder, weights_get(weights, "embeddings.position_embeddings.weight", POSITIONS, HIDDEN),
                  (struct range){0, MAX_TOKENS}, HIDDEN);
    encoder->type =
        copy_vector(encoder, weights_get(weights, "embeddings.token_type_embeddings.weight", 2, HIDDEN),
                    HIDDEN); /* the first: a text has no second part here */
    encoder->embedding_norm =
        read_norm(encoder, weights_get(weights, "embeddings.LayerNorm.weight", 1, HIDDEN),
                  weights_get(weights, "embeddings.LayerNorm.bias", 1, HIDDEN));
}

/* ---- The forward pass: the same calls on all ranks ------------------------------------------------------------ */

/* Adds up the ranks' shares in encoder->partial, in place. On a GPU this is put on the stream like the kernels around
 * it; the program waits for nothing, and a graph may hold it. */
static void all_reduce(struct encoder *encoder)
{
    size_t count = (size_t)encoder->batch.batch * encoder->batch.length * HIDDEN,
           bytes = count * sizeof(float);

    switch (encoder->sum_by) {
    case SUM_BY_PEERCOLL:
        check_peer(PEER_Allreduce(PEER_IN_PLACE, encoder->partial, count, PEER_FLOAT32, PEER_SUM,
                                  encoder->comm, encoder->bed.stream),
                   "PEER_Allreduce");
        break;
    case SUM_BY_MPI: /* which can't be put on a stream: the copies wait for it */
        if (encoder->bed.cuda) {
            bed_get(&encoder->bed, encoder->staging, encoder->partial, bytes);
            MPI_Allreduce(MPI_IN_PLACE, encoder->staging, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            bed_put(&encoder->bed, encoder->partial, encoder->staging, bytes);
        } else {
            MPI_Allreduce(MPI_IN_PLACE, encoder->partial, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        break;
    case SUM_BY_NOTHING:
        break;
    }
}

/* This rank's share of a second matrix's product. A rank without any part of it still takes part in the sum. */
static void multiply_share(struct encoder *encoder, const float *mine, const float *weight, int rows,
                           int columns)
{
    if (columns > 0)
        encoder->ops->linear(encoder->ops, encoder->partial, mine, weight, rows, columns, HIDDEN);
    else
        encoder->ops->clear(encoder->ops, encoder->partial, (size_t)rows * HIDDEN);
}

static void attend(struct encoder *encoder, const struct layer *layer, int rows)
{
    struct ops *ops = encoder->ops;
    int mine = encoder->heads * HEAD_WIDTH;

    if (mine > 0) {
        ops->linear(ops, encoder->qkv, encoder->x, layer->qkv_weight, rows, HIDDEN, 3 * mine);
        ops->add_bias(ops, encoder->qkv, layer->qkv_bias, rows, 3 * mine);
        ops->attention(ops, encoder->context, encoder->qkv, encoder->scores, &encoder->batch, encoder->heads);
    }
    multiply_share(encoder, encoder->context, layer->out_weight, rows, mine);
    all_reduce(encoder);
    ops->add_norm(ops, encoder->x, encoder->partial, layer->out_bias, layer->attention_norm, rows);
}

static void feed_forward(struct encoder *encoder, const struct layer *layer, int rows)
{
    struct ops *ops = encoder->ops;
    int mine = encoder->columns;

    if (mine > 0) {
        ops->linear(ops, encoder->inner, encoder->x, layer->up_weight, rows, HIDDEN, mine);
        ops->add_bias_gelu(ops, encoder->inner, layer->up_bias, rows, mine);
    }
    multiply_share(encoder, encoder->inner, layer->down_weight, rows, mine);
    all_reduce(encoder);
    ops->add_norm(ops, encoder->x, encoder->partial, layer->down_bias, layer->output_norm, rows);
}

void encoder_run(void *arg)
{
    struct encoder *encoder = arg;
    int rows = encoder->batch.batch * encoder->batch.length;

    encoder->ops->embed(encoder->ops, encoder->x, &encoder->batch, encoder->word, encoder->position,
                        encoder->type, encoder->embedding_norm);
    for (int i = 0; i < LAYERS; i++) {
        attend(encoder, &encoder->layers[i], rows);
        feed_forward(encoder, &encoder->layers[i], rows);
    }
    encoder->ops->pool(encoder->ops, encoder->vectors, encoder->x, &encoder->batch);
}

/* ---- Beginning and end ------------------------------------------------------------------------------------------- */

static void *alloc_floats(struct encoder *encoder, size_t rows, int columns)
{
    return bed_alloc(&encoder->bed, rows * (size_t)columns * sizeof(float));
}

/* Room for the largest batch. A graph has the addresses in it, so they stay. */
static void alloc_activations(struct encoder *encoder, int max_batch)
{
    size_t rows = (size_t)max_batch * MAX_TOKENS;

    encoder->ids = bed_alloc(&encoder->bed, rows * sizeof *encoder->ids);
    encoder->lengths = bed_alloc(&encoder->bed, (size_t)max_batch * sizeof *encoder->lengths);
    encoder->x = alloc_floats(encoder, rows, HIDDEN);
    encoder->partial = alloc_floats(encoder, rows, HIDDEN);
    encoder->qkv = alloc_floats(encoder, rows, 3 * encoder->heads * HEAD_WIDTH);
    encoder->context = alloc_floats(encoder, rows, encoder->heads * HEAD_WIDTH);
    encoder->scores = alloc_floats(encoder, rows, encoder->heads * MAX_TOKENS);
    encoder->inner = alloc_floats(encoder, rows, encoder->columns);
    encoder->vectors = alloc_floats(encoder, (size_t)max_batch, HIDDEN);
    encoder->staging = encoder->ops->host_alloc(rows * HIDDEN * sizeof(float));
}

void encoder_open(struct encoder *encoder, PEER_Comm comm, const struct weights *weights, int max_batch)
{
    int rank, size;
    struct range heads, columns;

    memset(encoder, 0, sizeof *encoder);
    encoder->comm = comm;
    check_peer(PEER_Comm_rank(comm, &rank), "PEER_Comm_rank");
    check_peer(PEER_Comm_size(comm, &size), "PEER_Comm_size");
    bed_open(&encoder->bed, comm);
    encoder->ops = encoder->bed.cuda ? ops_cuda_open(encoder->bed.stream) : ops_host_open();

    heads = part_of(HEADS, rank, size);
    columns = part_of(FEED_FORWARD, rank, size);
    encoder->heads = heads.count;
    encoder->columns = columns.count;
    read_embeddings(encoder, weights);
    for (int i = 0; i < LAYERS; i++)
        read_layer(encoder, weights, i, heads, columns);
    alloc_activations(encoder, max_batch);
    encoder->batch = (struct batch){.ids = encoder->ids, .lengths = encoder->lengths};
}

static void free_norm(struct encoder *encoder, struct norm norm)
{
    bed_free(&encoder->bed, (void *)norm.gamma);
    bed_free(&encoder->bed, (void *)norm.beta);
}

static void free_layer(struct encoder *encoder, struct layer *layer)
{
    float *buffers[] = {layer->qkv_weight, layer->qkv_bias, layer->out_weight,  layer->out_bias,
                        layer->up_weight,  layer->up_bias,  layer->down_weight, layer->down_bias};

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        bed_free(&encoder->bed, buffers[i]);
    free_norm(encoder, layer->attention_norm);
    free_norm(encoder, layer->output_norm);
}

void encoder_close(struct encoder *encoder)
{
    void *buffers[] = {encoder->word,    encoder->position, encoder->type,    encoder->ids,
                       encoder->lengths, encoder->x,        encoder->partial, encoder->qkv,
                       encoder->context, encoder->scores,   encoder->inner,   encoder->vectors};

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        bed_free(&encoder->bed, buffers[i]);
    for (int i = 0; i < LAYERS; i++)
        free_layer(encoder, &encoder->layers[i]);
    free_norm(encoder, encoder->embedding_norm);
    encoder->ops->host_free(encoder->staging);
    encoder->ops->close(encoder->ops);
    bed_close(&encoder->bed);
}

void encoder_set_shape(struct encoder *encoder, int batch, int length)
{
    encoder->batch.batch = batch;
    encoder->batch.length = length;
}

void encoder_put(struct encoder *encoder, const int *ids, const int *lengths)
{
    size_t batch = (size_t)encoder->batch.batch, length = (size_t)encoder->batch.length;

    bed_put(&encoder->bed, encoder->ids, ids, batch * length * sizeof *ids);
    bed_put(&encoder->bed, encoder->lengths, lengths, batch * sizeof *lengths);
}
