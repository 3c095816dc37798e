/* A number of bytes as users write it: 8, 64K, 16M, 1G (powers of 1024). */
#ifndef PEER_TOOLS_BYTES_H
#define PEER_TOOLS_BYTES_H

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* False if the text is no such number, or more than a size_t holds. */
static inline bool parse_bytes(const char *text, size_t *bytes)
{
    static const char suffixes[] = "KMG";
    char *end;
    unsigned long long value;
    int shift = 0;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno != 0) /* strtoull takes white space and signs */
        return false;
    if (*end != '\0') {
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        if (!suffix || end[1] != '\0')
            return false;
        shift = 10 * (int)(suffix - suffixes + 1);
    }
    if (value > SIZE_MAX >> shift)
        return false;
    *bytes = (size_t)value << shift;
    return true;
}

#endif
