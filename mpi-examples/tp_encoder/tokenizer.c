/* tokenizer.c: BERT's uncased tokenizer. Text is cleaned, stripped of accents and lower-cased, split at spaces and
 * punctuation, and each word cut into the longest pieces that the vocabulary has: "embeddings" becomes "em",
 * "##bed", "##ding", "##s".
 *
 * It gives what Hugging Face's BertTokenizerFast does, but for two things. "[SEP]" and the like in a text are plain text
 * here: nobody shall be able to write the model's control tokens. And ideographs are those of BERT's own tokenizer, which
 * are a few more. What Unicode says about characters, utf8proc knows. */
#include "config.h"
#include "tokenizer.h"
#include "tp_encoder.h"

#include <errno.h>
#include <search.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_WORD = 100,                    /* characters; a longer word is unknown as a whole */
    MAX_WORD_BYTES = 4 * MAX_WORD + 3, /* in UTF-8, with "##" and a 0 */
    MAX_PARTS = 18,                    /* of one character, decomposed: Unicode has none of more */
};

struct tokenizer {
    struct hsearch_data numbers; /* of the tokens */
    char **tokens;
    size_t count;
    int cls, sep, unknown;
};

/* A word on its way through one text, and where its tokens go. */
struct writer {
    struct tokenizer *tokenizer;
    char word[MAX_WORD_BYTES]; /* behind the two bytes that "##" may need */
    int ends[MAX_WORD + 1];    /* ends[i]: where its first i characters end */
    int length;                /* in characters */
    bool too_long;             /* there are more */
    int *ids, count, max;
};

/* ---- The vocabulary ----------------------------------------------------------------------------------------- */

/* The token's number, or -1. */
static int find(struct tokenizer *tokenizer, char *token)
{
    ENTRY *found;

    if (!hsearch_r((ENTRY){.key = token}, FIND, &found, &tokenizer->numbers))
        return -1;
    return (int)(intptr_t)found->data;
}

static int find_special(struct tokenizer *tokenizer, char *token, const char *path)
{
    int id = find(tokenizer, token);

    if (id < 0)
        fail("%s has no %s: it is not the vocabulary of a BERT model", path, token);
    return id;
}

static void read_tokens(struct tokenizer *tokenizer, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;

    tokenizer->tokens = allocate(VOCABULARY * sizeof *tokenizer->tokens);
    while (tokenizer->count < VOCABULARY && (length = getline(&line, &room, file)) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        tokenizer->tokens[tokenizer->count] = strdup(line);
        if (tokenizer->tokens[tokenizer->count++] == NULL)
            fail("out of memory for the vocabulary");
    }
    free(line);
}

struct tokenizer *tokenizer_open(const char *path)
{
    struct tokenizer *tokenizer = allocate(sizeof *tokenizer);
    FILE *file = fopen(path, "r");
    ENTRY *entered;

    if (file == NULL)
        fail("%s: %s; --model takes a folder with vocab.txt and model.safetensors, as get-model makes it",
             path, strerror(errno));
    read_tokens(tokenizer, file);
    fclose(file);
    if (tokenizer->count != VOCABULARY)
        fail("%s has %zu tokens, and the model %d: take both files from one model", path, tokenizer->count,
             VOCABULARY);
    if (!hcreate_r(2 * VOCABULARY, &tokenizer->numbers))
        fail("out of memory for the vocabulary");
    for (size_t i = 0; i < tokenizer->count; i++)
        if (!hsearch_r((ENTRY){.key = tokenizer->tokens[i], .data = (void *)(intptr_t)i}, ENTER, &entered,
                       &tokenizer->numbers))
            fail("out of memory for the vocabulary");
    tokenizer->cls = find_special(tokenizer, "[CLS]", path);
    tokenizer->sep = find_special(tokenizer, "[SEP]", path);
    tokenizer->unknown = find_special(tokenizer, "[UNK]", path);
    return tokenizer;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    hdestroy_r(&tokenizer->numbers);
    for (size_t i = 0; i < tokenizer->count; i++)
        free(tokenizer->tokens[i]);
    free(tokenizer->tokens);
    free(tokenizer);
}

/* ---- Words to pieces ------------------------------------------------------------------------------------------ */

static void put_id(struct writer *writer, int id)
{
    if (writer->count < writer->max)
        writer->ids[writer->count++] = id;
}

/* The number of the longest token that the word has at its character `from`, whose end goes to *to; or -1. A piece
 * that doesn't begin the word has "##" in front, which is laid over the two bytes before it. */
static int longest_piece(struct writer *writer, int from, int *to)
{
    char *piece = writer->word + 2 + writer->ends[from], kept[2];
    char *key = from > 0 ? piece - 2 : piece;
    int id = -1;

    memcpy(kept, piece - 2, 2);
    if (from > 0)
        memcpy(piece - 2, "##", 2);
    for (*to = writer->length; *to > from; --*to) {
        char *end = writer->word + 2 + writer->ends[*to], at_end = *end;

        *end = '\0';
        id = find(writer->tokenizer, key);
        *end = at_end;
        if (id >= 0)
            break;
    }
    memcpy(piece - 2, kept, 2);
    return id;
}

/* The word so far is complete: writes its pieces, or [UNK] for all of it if some of it can't be written. */
static void end_word(struct writer *writer)
{
    int begin = writer->count, from = 0, to;

    if (writer->too_long) {
        put_id(writer, writer->tokenizer->unknown);
    } else {
        while (from < writer->length) {
            int id = longest_piece(writer, from, &to);

            if (id < 0) {
                writer->count = begin;
                put_id(writer, writer->tokenizer->unknown);
                break;
            }
            put_id(writer, id);
            from = to;
        }
    }
    writer->length = 0;
    writer->too_long = false;
}

static void put_character(struct writer *writer, utf8proc_int32_t c)
{
    int at = writer->ends[writer->length];

    if (writer->length < MAX_WORD) {
        utf8proc_uint8_t *end = (utf8proc_uint8_t *)writer->word + 2 + at;

        writer->ends[++writer->length] = at + (int)utf8proc_encode_char(c, end);
    } else {
        writer->too_long = true;
    }
}

/* ---- Characters ------------------------------------------------------------------------------------------------- */

static bool is_space(utf8proc_int32_t c, utf8proc_category_t category)
{
    return c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/* Control characters, formats, private use; and what stands for bytes that were no character. */
static bool is_left_out(utf8proc_int32_t c, utf8proc_category_t category)
{
    return c == 0xfffd || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CS;
}

/* For BERT, all of ASCII that is no letter, digit or space. */
static bool is_punctuation(utf8proc_int32_t c, utf8proc_category_t category)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126) ||
           (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

/* The ideographs, which are written without spaces: each is a word. (Not kana and hangul.) */
static bool is_ideograph(utf8proc_int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* One character of the text: with accents taken off, in lower case, to the word or as a word of its own. */
static void take_character(struct writer *writer, utf8proc_int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    utf8proc_int32_t parts[MAX_PARTS];
    int boundclass = 0;
    utf8proc_ssize_t nparts;

    if (is_space(c, category)) {
        end_word(writer);
        return;
    }
    if (is_left_out(c, category))
        return;
    if (is_ideograph(c))
        end_word(writer);
    nparts = utf8proc_decompose_char(c, parts, MAX_PARTS, UTF8PROC_DECOMPOSE, &boundclass);
    for (utf8proc_ssize_t i = 0; i < nparts && i < MAX_PARTS; i++) {
        utf8proc_category_t part = utf8proc_category(parts[i]);

        if (part == UTF8PROC_CATEGORY_MN)
            continue;
        if (is_punctuation(parts[i], part))
            end_word(writer);
        put_character(writer, utf8proc_tolower(parts[i]));
        if (is_punctuation(parts[i], part))
            end_word(writer);
    }
    if (is_ideograph(c))
        end_word(writer);
}

int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t size, int *ids, int max)
{
    struct writer writer = {.tokenizer = tokenizer, .ids = ids, .max = max - 1};
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text, *end = at + size;

    put_id(&writer, tokenizer->cls);
    while (at < end && writer.count < writer.max) {
        utf8proc_int32_t c;
        utf8proc_ssize_t bytes = utf8proc_iterate(at, end - at, &c);

        if (bytes > 0)
            take_character(&writer, c);
        at += bytes > 0 ? bytes : 1;
    }
    end_word(&writer);
    writer.max = max;
    put_id(&writer, tokenizer->sep);
    return writer.count;
}
