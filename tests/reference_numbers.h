/* reference_numbers.h: what reference.c and reference_numbers.c share: how elements lie in memory, and all
 * operations at once. */
#ifndef PEER_TESTS_REFERENCE_NUMBERS_H
#define PEER_TESTS_REFERENCE_NUMBERS_H

#include "reference.h"

enum kind { KIND_INTEGER, KIND_FLOATING, KIND_COMPLEX, KIND_LOGICAL };

/* An element is one part, or two for complex numbers. */
struct layout {
    enum kind kind;
    int bytes; /* of a part */
    bool is_signed;
    int exponent_bits, mantissa_bits; /* of floating parts */
};

struct layout reference_layout(PEER_Datatype type);

/* Part i of an array of parts, as the low bits of a word. */
uint64_t reference_get(struct layout l, const void *from, size_t i);
void reference_put(struct layout l, void *to, size_t i, uint64_t bits);

/* The bits of the largest value, an infinity where there are any; what is above is a NaN. Without the sign. */
uint64_t reference_most(struct layout l);

/* reference_combine for each operation whose `to` is not NULL. */
void reference_combine_all(const struct reference_order *order, PEER_Datatype type, const void *const parts[],
                           int nparts, void *const to[PEER_N_OPS], size_t count);

#endif
