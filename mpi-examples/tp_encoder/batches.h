/* Lines to vectors, a batch at a time (batches.c). */
#ifndef TP_ENCODER_BATCHES_H
#define TP_ENCODER_BATCHES_H

#include <stdbool.h>

#include "encoder.h"
#include "text.h"
#include "tokenizer.h"

/* All lines' tokens. */
struct tokens {
    int *ids;     /* MAX_TOKENS for each line */
    int *lengths; /* how many of them a line has */
    size_t count; /* lines */
};

void tokens_make(struct tokens *tokens, struct tokenizer *tokenizer, const struct text *text);
void tokens_free(struct tokens *tokens);

/* Puts these lines' tokens, padded to one length, into the encoder as its next batch of `batch` lines. `lines` has
 * their numbers, `count` of them; if that is less, the rest of the batch is nothing but padding. */
void batch_put(struct encoder *encoder, const struct tokens *tokens, const size_t *lines, size_t count,
               int batch);

/* Encodes all lines, `batch` at a time. The vectors, HIDDEN numbers a line, are in host memory and on all ranks.
 *   progress  is shown on stderr */
void encode_all(struct encoder *encoder, const struct tokens *tokens, int batch, float *vectors,
                bool progress);

/* Whether the encoder's calls can be captured: all but what MPI serves. On the host device too, where a graph just
 * makes the calls. */
bool can_be_captured(const struct encoder *encoder);

/* The information of that name about comm, into text (MPI_MAX_INFO_VAL + 1). */
void get_info(PEER_Comm comm, const char *key, char *text);

#endif
