/* reference.c: see reference.h. The data of the reference; its arithmetic is in reference_numbers.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_numbers.h"

/* splitmix64 */
uint64_t reference_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL) {
        fprintf(stderr, "reference: out of memory\n");
        abort();
    }
    return p;
}

/* ---- Inputs --------------------------------------------------------------------------------------------- */

static int64_t bias_of(struct layout l)
{
    return ((int64_t)1 << (l.exponent_bits - 1)) - 1;
}

static uint64_t float_bits(struct layout l, uint64_t sign, int64_t exponent, uint64_t mantissa)
{
    uint64_t mask = ((uint64_t)1 << l.mantissa_bits) - 1;
    return (sign & 1) << (8 * l.bytes - 1) | (uint64_t)exponent << l.mantissa_bits | (mantissa & mask);
}

/* Sums that lie half way between two values of the type: rank 0 has a value, rank 1 half a unit in its last
 * place, rank 2 now and then a little that breaks the tie, and the others nothing. */
static uint64_t tying_bits(struct layout l, uint64_t common, int rank, uint64_t own)
{
    int64_t exponent = common % 8 == 0 ? 2 * bias_of(l) : bias_of(l); /* a large binade, or 1.0's */
    uint64_t mantissa = common % 16 == 0 ? UINT64_MAX : common >> 8;
    int64_t half_unit = exponent - l.mantissa_bits - 1;
    uint64_t sign = common >> 4;
    if (rank == 0)
        return float_bits(l, sign, exponent, mantissa);
    if (rank == 1 && half_unit > 0)
        return float_bits(l, sign, half_unit, 0);
    if (rank == 2 && own % 4 == 0)
        return float_bits(l, own >> 4, 1, 0);
    return float_bits(l, own >> 4, 0, 0);
}

/* Magnitudes far apart: every sum rounds, and its order matters. */
static uint64_t spread_bits(struct layout l, uint64_t sign, uint64_t own)
{
    int64_t reach = bias_of(l) > 12 ? 12 : bias_of(l) - 1;
    return float_bits(l, sign, bias_of(l) - reach + (int64_t)(own >> 56 & 31) % (2 * reach + 1), own);
}

/* `common` is the same on all ranks, so that an element is of one kind on all of them. */
static uint64_t float_input(struct layout l, uint64_t common, int rank, uint64_t own)
{
    int64_t bias = bias_of(l);
    uint64_t sign = own >> 63;
    uint64_t ordinary = float_bits(l, sign, bias - 3 + (int64_t)(own >> 56 & 7), own);
    switch (common >> 60) {
    case 0: /* any bits */
        return own;
    case 1: /* subnormals */
        return float_bits(l, sign, 0, own);
    case 2: /* about the least normal value */
        return float_bits(l, sign, (int64_t)(own >> 56 & 1), own);
    case 3: /* the largest values: sums overflow */
        return float_bits(l, sign, 2 * bias, own);
    case 4: /* infinities, or the largest value, among others */
        return own >> 56 & 3 ? ordinary : float_bits(l, sign, 0, 0) | reference_most(l);
    case 5: /* NaNs among others */
        return own >> 56 & 3 ? ordinary : float_bits(l, sign, 0, 0) | (reference_most(l) + 1);
    case 6: /* both zeros */
        return float_bits(l, sign, 0, 0);
    case 7: /* cancellation: +x and -x in turn */
        return float_bits(l, common ^ (uint64_t)rank, bias, common);
    case 8:
    case 9:
        return tying_bits(l, common, rank, own);
    case 10:
    case 11:
    case 12:
        return spread_bits(l, sign, own);
    default:
        return ordinary;
    }
}

static uint64_t integer_input(struct layout l, uint64_t common, uint64_t own)
{
    uint64_t least = (uint64_t)1 << (8 * l.bytes - 1);
    const uint64_t extremes[] = {least, least - 1, UINT64_MAX, 0, 1};
    switch (common >> 61) {
    case 0:
    case 1:
        return extremes[own % 5];
    case 2:
    case 3:
        return own % 200 - 100;
    case 4: /* few zeros, for the logical operations */
        return own >> 40 & 7 ? own : 0;
    default:
        return own;
    }
}

/* 0, and 1 or any other byte for true: mostly the one or mostly the other. */
static uint64_t logical_input(uint64_t common, uint64_t own)
{
    bool some = (own >> 40 & 7) == 0, mostly = common >> 63;
    return some == mostly ? 0 : own % 2 == 0 ? 1 : 1 + (own >> 8) % 255;
}

static uint64_t input(struct layout l, uint64_t common, int rank, uint64_t own)
{
    if (l.kind == KIND_INTEGER)
        return integer_input(l, common, own);
    if (l.kind == KIND_LOGICAL)
        return logical_input(common, own);
    return float_input(l, common, rank, own);
}

void reference_fill(PEER_Datatype type, uint64_t seed, int rank, void *to, size_t count)
{
    struct layout l = reference_layout(type);
    uint64_t base = reference_mix(seed);
    for (size_t i = 0; i < count; i++) {
        uint64_t common = reference_mix(base + i);
        uint64_t own = reference_mix(common + (uint64_t)rank + 1);
        if (l.kind != KIND_COMPLEX) {
            reference_put(l, to, i, input(l, common, rank, own));
            continue;
        }
        reference_put(l, to, 2 * i, input(l, common, rank, own));
        reference_put(l, to, 2 * i + 1, input(l, common, rank, reference_mix(own)));
    }
}

/* ---- All of it ------------------------------------------------------------------------------------------ */

void reference_make(struct reference *ref, PEER_Datatype type, uint64_t seed, int rank, int nranks,
                    size_t count)
{
    const struct reference_order flat = {0};
    reference_make_in(&flat, ref, type, seed, rank, nranks, count);
}

void reference_make_in(const struct reference_order *order, struct reference *ref, PEER_Datatype type,
                       uint64_t seed, int rank, int nranks, size_t count)
{
    size_t bytes = count * reference_element(type);
    void **parts = must_alloc((size_t)nranks * sizeof *parts);
    void *results[PEER_N_OPS] = {NULL};
    *ref = (struct reference){.type = type, .element = reference_element(type), .count = count};
    for (int r = 0; r < nranks; r++) {
        parts[r] = must_alloc(bytes);
        reference_fill(type, seed, r, parts[r], count);
    }
    for (int op = 0; op < PEER_N_OPS; op++)
        if (reference_legal(type, (PEER_Op)op))
            results[op] = ref->result[op] = must_alloc(bytes);
    reference_combine_all(order, type, (const void *const *)parts, nranks, results, count);
    ref->input = parts[rank];
    for (int r = 0; r < nranks; r++)
        if (r != rank)
            free(parts[r]);
    free(parts);
}

void reference_free(struct reference *ref)
{
    free(ref->input);
    for (int op = 0; op < PEER_N_OPS; op++)
        free(ref->result[op]);
    *ref = (struct reference){.type = ref->type};
}

static bool is_nan(struct layout l, uint64_t bits)
{
    bool floating = l.kind == KIND_FLOATING || l.kind == KIND_COMPLEX;
    return floating && (bits & (((uint64_t)1 << (8 * l.bytes - 1)) - 1)) > reference_most(l);
}

size_t reference_differ(PEER_Datatype type, const void *a, const void *b, size_t count)
{
    struct layout l = reference_layout(type);
    size_t element = reference_element(type), parts = element / (size_t)l.bytes;
    if (memcmp(a, b, count * element) == 0)
        return count;
    for (size_t i = 0; i < count * parts; i++) {
        uint64_t x = reference_get(l, a, i), y = reference_get(l, b, i);
        if (x != y && !(is_nan(l, x) && is_nan(l, y)))
            return i / parts;
    }
    return count;
}
