/* What all files of the encoder know: the model's numbers, and how the program ends with a message. */
#ifndef TP_ENCODER_H
#define TP_ENCODER_H

#include <stddef.h>

/* all-MiniLM-L6-v2, a BERT. The weights' file must have these shapes: weights.c checks each. */
enum {
    LAYERS = 6,
    HEADS = 12,
    HEAD_WIDTH = 32,
    HIDDEN = HEADS * HEAD_WIDTH,
    FEED_FORWARD = 1536,
    VOCABULARY = 30522,
    POSITIONS = 512,
    MAX_TOKENS = 256, /* of a line; the model was trained for no more, and what is behind is cut off */
};

/* Says what is wrong and ends all ranks: the others may wait for this one in a collective. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Memory set to 0, of which there is always some. */
void *allocate(size_t bytes);

/* Fails with the library's own text if a call of peercoll has not succeeded. */
void check_peer(int status, const char *call);

#endif
