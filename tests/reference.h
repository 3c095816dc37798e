/* reference.h: what every collective must give, worked out by plain code that shares nothing with the kernels:
 * inputs that differ by rank, element and seed, and their combination from rank 0 to rank n-1 in the numerics
 * of peercoll.h. Every rank can make every rank's input, so each knows the expected bits by itself. */
#ifndef PEER_TESTS_REFERENCE_H
#define PEER_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "internal.h"
#include "peercoll.h"

/* The data of one datatype for a group of ranks. */
struct reference {
    PEER_Datatype type;
    size_t element; /* bytes */
    size_t count;
    unsigned char *input;              /* this rank's */
    unsigned char *result[PEER_N_OPS]; /* over all ranks; NULL: not an operation of the datatype */
};

/* In what order the ranks are combined: from the lowest on in each island, then the islands from the first on. */
struct reference_order {
    int islands; /* up to 1: all ranks in one */
    uint8_t island[PEER_MAX_PEERS];
};

void reference_make(struct reference *ref, PEER_Datatype type, uint64_t seed, int rank, int nranks,
                    size_t count);
void reference_make_in(const struct reference_order *order, struct reference *ref, PEER_Datatype type,
                       uint64_t seed, int rank, int nranks, size_t count);
void reference_free(struct reference *ref);

size_t reference_element(PEER_Datatype type);
bool reference_legal(PEER_Datatype type, PEER_Op op);
/* The legal operations in turn, for i = 0, 1, 2, ... */
PEER_Op reference_op(PEER_Datatype type, uint64_t i);
uint64_t reference_mix(uint64_t x); /* a hash, good enough as a random number */

/* A rank's input. For floating and complex types: ordinary values, sums that round and that tie, cancellation,
 * subnormals, the largest values, infinities, NaNs, both zeros, any bits. For integers: any bits, small ones, the
 * extremes. For BOOL: 0, 1 and other bytes. */
void reference_fill(PEER_Datatype type, uint64_t seed, int rank, void *to, size_t count);

/* to[i] = the combination of parts[0][i] .. parts[nparts-1][i]; of one part a copy. */
void reference_combine(PEER_Datatype type, PEER_Op op, const void *const parts[], int nparts, void *to,
                       size_t count);
void reference_combine_in(const struct reference_order *order, PEER_Datatype type, PEER_Op op,
                          const void *const parts[], int nparts, void *to, size_t count);

/* Index of the first element whose bits differ, a NaN being equal to any NaN (of complex numbers: in the same
 * part); count if there is none. */
size_t reference_differ(PEER_Datatype type, const void *a, const void *b, size_t count);

/* Floats of 8 and 16 bits: the value of a bit pattern, and the pattern nearest to a value (ties to even). */
double reference_widen(PEER_Datatype type, uint16_t bits);
uint16_t reference_narrow(PEER_Datatype type, double value);

#endif
