/* Text to the numbers that the model knows: BERT's uncased WordPiece (tokenizer.c). */
#ifndef TP_ENCODER_TOKENIZER_H
#define TP_ENCODER_TOKENIZER_H

#include <stddef.h>

struct tokenizer;

/* Reads vocab.txt: a token a line, whose number is its line's, from 0. */
struct tokenizer *tokenizer_open(const char *path);
void tokenizer_close(struct tokenizer *tokenizer);

/* Writes [CLS], the text's tokens and [SEP] into ids; what doesn't fit into max is cut off. Returns how many. Bytes
 * that are no UTF-8 are left out. */
int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t size, int *ids, int max);

#endif
