/* The lines that the program is given, on all ranks (text.c). */
#ifndef TP_ENCODER_TEXT_H
#define TP_ENCODER_TEXT_H

#include <stddef.h>

struct text {
    char *bytes; /* all, with a 0 behind each line */
    char **lines;
    size_t *sizes; /* of the lines, in bytes: a line may hold a 0 of its own */
    size_t count;
};

/* Rank 0 reads the file, or standard input if path is NULL, and sends it to all. */
void text_read(struct text *text, const char *path);
void text_free(struct text *text);

#endif
