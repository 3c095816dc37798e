/* batches.c: takes lines of about the same length together, pads them to one length, and runs the encoder on them. On
 * a GPU the forward pass of each length is one CUDA graph, captured when that length comes for the first time. */
#include "config.h"
#include "batches.h"
#include "tp_encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Batches are padded to a multiple of this many tokens: so few lengths, and graphs, are there. */
enum { STEP = 16, GRAPHS = MAX_TOKENS / STEP };

void tokens_make(struct tokens *tokens, struct tokenizer *tokenizer, const struct text *text)
{
    tokens->count = text->count;
    tokens->ids = allocate(text->count * MAX_TOKENS * sizeof *tokens->ids);
    tokens->lengths = allocate(text->count * sizeof *tokens->lengths);
    for (size_t i = 0; i < text->count; i++)
        tokens->lengths[i] = tokenizer_encode(tokenizer, text->lines[i], text->sizes[i],
                                              tokens->ids + i * MAX_TOKENS, MAX_TOKENS);
}

void tokens_free(struct tokens *tokens)
{
    free(tokens->ids);
    free(tokens->lengths);
}

void get_info(PEER_Comm comm, const char *key, char *text)
{
    MPI_Info info;
    int found;

    check_peer(PEER_Comm_get_info(comm, &info), "PEER_Comm_get_info");
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &found);
    if (!found)
        fail("PEER_Comm_get_info does not know \"%s\": is this another version's library?", key);
    MPI_Info_free(&info);
}

bool can_be_captured(const struct encoder *encoder)
{
    char transport[MPI_MAX_INFO_VAL + 1];

    if (encoder->sum_by == SUM_BY_MPI)
        return false;
    get_info(encoder->comm, "transport", transport);
    return strcmp(transport, "mpi") != 0;
}

void batch_put(struct encoder *encoder, const struct tokens *tokens, const size_t *lines, size_t count,
               int batch)
{
    int length = 1, *ids, *lengths = allocate((size_t)batch * sizeof *lengths);

    for (size_t i = 0; i < count; i++)
        length = tokens->lengths[lines[i]] > length ? tokens->lengths[lines[i]] : length;
    length = (length + STEP - 1) / STEP * STEP;
    ids = allocate((size_t)batch * (size_t)length * sizeof *ids); /* 0 is [PAD] */
    for (size_t i = 0; i < (size_t)batch; i++) {
        lengths[i] = i < count ? tokens->lengths[lines[i]] : 1;
        if (i < count)
            memcpy(ids + i * (size_t)length, tokens->ids + lines[i] * MAX_TOKENS,
                   (size_t)lengths[i] * sizeof *ids);
    }
    encoder_set_shape(encoder, batch, length);
    encoder_put(encoder, ids, lengths);
    free(ids);
    free(lengths);
}

/* A call that fails on a GPU is not known when it returns; this is where a program learns of it. */
static void check_comm(PEER_Comm comm)
{
    int status;

    check_peer(PEER_Comm_get_async_error(comm, &status), "PEER_Comm_get_async_error");
    check_peer(status, "an all-reduce");
}

/* Runs the batch that is there. graphs holds one for each length, or NULL until that length comes. */
static void run_batch(struct encoder *encoder, struct bed_graph **graphs)
{
    struct bed_graph **graph = &graphs[encoder->batch.length / STEP - 1];

    if (!can_be_captured(encoder)) {
        encoder_run(encoder);
        return;
    }
    if (*graph == NULL) {
        encoder_run(encoder); /* cuBLAS and CUDA load what they need at the first call, not while capturing */
        *graph = bed_capture(&encoder->bed, encoder_run, encoder);
    }
    bed_launch(&encoder->bed, *graph);
}

static const struct tokens *sorted; /* qsort's comparison gets no argument of its own */

static int by_length(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    if (sorted->lengths[x] != sorted->lengths[y])
        return sorted->lengths[x] < sorted->lengths[y] ? -1 : 1;
    return x < y ? -1 : 1; /* the same order on all ranks */
}

static size_t *sort_lines(const struct tokens *tokens)
{
    size_t *order = allocate(tokens->count * sizeof *order);

    for (size_t i = 0; i < tokens->count; i++)
        order[i] = i;
    sorted = tokens;
    qsort(order, tokens->count, sizeof *order, by_length);
    return order;
}

void encode_all(struct encoder *encoder, const struct tokens *tokens, int batch, float *vectors,
                bool progress)
{
    struct bed_graph *graphs[GRAPHS] = {NULL};
    size_t *order = sort_lines(tokens);
    float *results = allocate((size_t)batch * HIDDEN * sizeof *results);

    for (size_t at = 0; at < tokens->count; at += (size_t)batch) {
        size_t count = tokens->count - at < (size_t)batch ? tokens->count - at : (size_t)batch;

        if (progress)
            fprintf(stderr, "\rencoding: %zu of %zu lines\033[K", at, tokens->count);
        batch_put(encoder, tokens, order + at, count, batch);
        run_batch(encoder, graphs);
        bed_get(&encoder->bed, results, encoder->vectors, (size_t)batch * HIDDEN * sizeof *results);
        check_comm(encoder->comm);
        for (size_t i = 0; i < count; i++)
            memcpy(vectors + order[at + i] * HIDDEN, results + i * HIDDEN, HIDDEN * sizeof *vectors);
    }
    if (progress)
        fputs("\r\033[K", stderr);
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i] != NULL)
            bed_graph_free(&encoder->bed, graphs[i]);
    free(results);
    free(order);
}
