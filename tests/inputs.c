/* inputs.c: see inputs.h. */
#include "inputs.h"
#include "test.h"

#define CHUNK 256 /* elements */

static void *must_alloc(size_t bytes)
{
    void *p = calloc(1, bytes);
    TEST_TRUE(p != NULL);
    return p;
}

void inputs_open(struct inputs *in, uint64_t seed, int size, size_t bytes)
{
    TEST_TRUE(size >= 1 && size <= PEER_MAX_PEERS);
    *in = (struct inputs){.seed = seed, .size = size, .bytes = bytes};
}

void inputs_close(struct inputs *in)
{
    for (int type = 0; type < PEER_N_DATATYPES; type++) {
        struct inputs_of_type *t = &in->types[type];
        for (int r = 0; r < in->size; r++)
            free(t->rank[r]);
        for (int op = 0; op < PEER_N_OPS; op++) {
            free(t->combined[op]);
            free(t->known[op]);
        }
    }
    *in = (struct inputs){0};
}

static const unsigned char *input_of(struct inputs *in, PEER_Datatype type, int rank)
{
    unsigned char **input = &in->types[type].rank[rank];
    if (*input == NULL) {
        *input = must_alloc(in->bytes);
        reference_fill(type, in->seed + (uint64_t)type, rank, *input, in->bytes / reference_element(type));
    }
    return *input;
}

static void combine_chunk(struct inputs *in, PEER_Datatype type, PEER_Op op, size_t chunk)
{
    const void *parts[PEER_MAX_PEERS];
    size_t element = reference_element(type), first = chunk * CHUNK;
    size_t left = in->bytes / element - first;
    for (int r = 0; r < in->size; r++)
        parts[r] = input_of(in, type, r) + first * element;
    reference_combine_in(&in->order, type, op, parts, in->size,
                         in->types[type].combined[op] + first * element, left < CHUNK ? left : CHUNK);
}

static const unsigned char *combined(struct inputs *in, PEER_Datatype type, PEER_Op op, size_t first,
                                     size_t count)
{
    struct inputs_of_type *t = &in->types[type];
    if (t->combined[op] == NULL) {
        t->combined[op] = must_alloc(in->bytes);
        t->known[op] = must_alloc(in->bytes / reference_element(type) / CHUNK + 1);
    }
    for (size_t chunk = first / CHUNK; count > 0 && chunk <= (first + count - 1) / CHUNK; chunk++)
        if (!t->known[op][chunk]) {
            combine_chunk(in, type, op, chunk);
            t->known[op][chunk] = true;
        }
    return t->combined[op];
}

void inputs_copy(struct inputs *in, PEER_Datatype type, PEER_Op op, int from, size_t first, size_t count,
                 void *to)
{
    size_t element = reference_element(type);
    TEST_TRUE(first <= in->bytes / element && count <= in->bytes / element - first);
    const unsigned char *all =
        from == INPUTS_COMBINED ? combined(in, type, op, first, count) : input_of(in, type, from);
    memcpy(to, all + first * element, count * element);
}
