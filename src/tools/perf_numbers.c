/* perf_numbers.c: numbers for checked calls, and how each datatype writes them.
 *
 * Inputs are small integers that differ from rank to rank, element to element and call to call, chosen so that each
 * partial result is exact in every datatype, in whatever order the ranks are combined. So there is one right
 * answer, to be compared bit by bit. Only an average is rounded. */
#include "perf.h"

#include <math.h>
#include <string.h>

/* Products have that many factors other than 1 and -1. */
#define FACTORS 3

/* Bits that bitwise operations work on: positive numbers, whatever the width. */
#define BITS 7

/* ---- Inputs --------------------------------------------------------------------------------------------- */

static uint32_t scramble(uint32_t x)
{
    x = (x ^ x >> 15) * 2246822519u;
    return x ^ x >> 13;
}

static uint32_t random_bits(int rank, size_t i, int position)
{
    uint32_t x = (uint32_t)(i ^ (uint64_t)i >> 32);

    return scramble(x * 2654435761u + (uint32_t)rank * 2246822519u + (uint32_t)position * 3266489917u);
}

/* 0 to n-1. */
static int below(uint32_t random, int n)
{
    return (int)((uint64_t)random * (uint32_t)n >> 32);
}

static bool is_complex(PEER_Datatype datatype)
{
    return datatype == PEER_COMPLEX64 || datatype == PEER_COMPLEX128;
}

static bool has_sign(PEER_Datatype datatype)
{
    return datatype != PEER_UINT8 && datatype != PEER_UINT16 && datatype != PEER_UINT32 &&
           datatype != PEER_UINT64 && datatype != PEER_BOOL;
}

/* The largest integer up to which it holds all. */
static int exact_up_to(PEER_Datatype datatype)
{
    switch (datatype) {
    case PEER_FLOAT8_E5M2:
        return 8;
    case PEER_FLOAT8_E4M3:
        return 16;
    case PEER_INT8:
        return 127;
    case PEER_UINT8:
    case PEER_BOOL:
        return 255;
    default:
        return 256; /* of PEER_BFLOAT16; the others hold more */
    }
}

/* For sums. With more ranks than the datatype can count, the others in a row of `nranks` seats give 0. */
static int summand(PEER_Datatype datatype, uint32_t random, int seat, int nranks)
{
    int most = exact_up_to(datatype) / nranks;

    if (most == 0 && seat >= exact_up_to(datatype))
        return 0;
    most = most > 100 ? 100 : most < 1 ? 1 : most;
    return has_sign(datatype) ? below(random, 2 * most + 1) - most : below(random, most + 1);
}

/* For products: those in the first seats give 1 or 2 or their negatives, of a complex number one with a sign
 * in each part: its products have no part that is -0. */
static struct perf_number factor(PEER_Datatype datatype, uint32_t random, int seat)
{
    int sign = random & 1 ? 1 : -1;

    if (is_complex(datatype))
        return seat < FACTORS ? (struct perf_number){sign, random & 2 ? 1 : -1} : (struct perf_number){1, 0};
    if (!has_sign(datatype))
        sign = 1;
    return (struct perf_number){sign * (seat < FACTORS && (random & 2) ? 2 : 1), 0};
}

/* One of these bits, or (for more ranks more often) none, so that the ranks leave some bits unset. */
static int few_bits(uint32_t random, int nranks)
{
    int bit = below(random, BITS + nranks);

    return bit < BITS ? 1 << bit : 0;
}

struct perf_number perf_input(PEER_Datatype datatype, PEER_Op op, int rank, int nranks, size_t i,
                              int position)
{
    uint32_t random = random_bits(rank, i, position);
    int seat = (int)((i + (size_t)rank) % (size_t)nranks);
    int nonzero = 1 + below(scramble(random), 100);
    bool rarely = below(random, 2 * nranks) == 0; /* on all ranks in some 6 elements of 10: no */

    switch (op) {
    case PEER_PROD:
        return factor(datatype, random, seat);
    case PEER_LAND:
        return (struct perf_number){rarely ? 0 : nonzero, 0};
    case PEER_LOR:
        return (struct perf_number){rarely ? nonzero : 0, 0};
    case PEER_LXOR:
        return (struct perf_number){random & 1 ? nonzero : 0, 0};
    case PEER_BAND:
        return (struct perf_number){((1 << BITS) - 1) ^ few_bits(random, nranks), 0};
    case PEER_BOR:
        return (struct perf_number){few_bits(random, nranks), 0};
    case PEER_BXOR:
        return (struct perf_number){below(random, 1 << BITS), 0};
    default:
        return (struct perf_number){
            summand(datatype, random, seat, nranks),
            is_complex(datatype) ? summand(datatype, scramble(random), seat, nranks) : 0,
        };
    }
}

/* ---- Results -------------------------------------------------------------------------------------------- */

static struct perf_number combine(PEER_Op op, struct perf_number a, struct perf_number b)
{
    switch (op) {
    case PEER_PROD:
        return (struct perf_number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    case PEER_MIN:
        return a.re < b.re ? a : b;
    case PEER_MAX:
        return a.re > b.re ? a : b;
    case PEER_LAND:
        return (struct perf_number){a.re && b.re, 0};
    case PEER_LOR:
        return (struct perf_number){a.re || b.re, 0};
    case PEER_LXOR:
        return (struct perf_number){!a.re != !b.re, 0};
    case PEER_BAND:
        return (struct perf_number){a.re & b.re, 0};
    case PEER_BOR:
        return (struct perf_number){a.re | b.re, 0};
    case PEER_BXOR:
        return (struct perf_number){a.re ^ b.re, 0};
    default: /* PEER_SUM, PEER_AVG */
        return (struct perf_number){a.re + b.re, a.im + b.im};
    }
}

struct perf_number perf_combined(PEER_Datatype datatype, PEER_Op op, int nranks, size_t i, int position)
{
    struct perf_number result = perf_input(datatype, op, 0, nranks, i, position);

    for (int r = 1; r < nranks; r++)
        result = combine(op, result, perf_input(datatype, op, r, nranks, i, position));
    return result;
}

/* ---- Bits ----------------------------------------------------------------------------------------------- */

/* The bits of a finite value in a narrow floating type that has room for it, rounded to nearest, ties to even. */
static unsigned narrow(float value, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, exponent;
    unsigned sign = value < 0 ? 1u << (exponent_bits + mantissa_bits) : 0;
    float units; /* of the last place */

    if (value == 0)
        return 0;
    frexpf(value, &exponent); /* |value| is 2^(exponent-1) or more, and less than 2^exponent */
    exponent--;
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal */
    units = rintf(ldexpf(fabsf(value), mantissa_bits - exponent));
    /* The leading bit of units counts as one in the exponent, or none if subnormal. */
    return sign | ((unsigned)units + ((unsigned)(exponent + bias - 1) << mantissa_bits));
}

void perf_encode(PEER_Datatype datatype, struct perf_number number, int divisor, size_t i, void *array)
{
    int whole = number.re / divisor;
    float re = (float)number.re / (float)divisor, im = (float)number.im / (float)divisor;

    switch (datatype) {
    case PEER_INT8:
    case PEER_UINT8:
    case PEER_BOOL:
        ((uint8_t *)array)[i] = (uint8_t)whole;
        break;
    case PEER_INT16:
    case PEER_UINT16:
        ((uint16_t *)array)[i] = (uint16_t)whole;
        break;
    case PEER_INT32:
    case PEER_UINT32:
        ((uint32_t *)array)[i] = (uint32_t)whole;
        break;
    case PEER_INT64:
    case PEER_UINT64:
        ((uint64_t *)array)[i] = (uint64_t)(int64_t)whole;
        break;
    case PEER_FLOAT16:
        ((uint16_t *)array)[i] = (uint16_t)narrow(re, 5, 10);
        break;
    case PEER_BFLOAT16:
        ((uint16_t *)array)[i] = (uint16_t)narrow(re, 8, 7);
        break;
    case PEER_FLOAT32:
        ((float *)array)[i] = re;
        break;
    case PEER_FLOAT64:
        ((double *)array)[i] = (double)number.re / divisor;
        break;
    case PEER_FLOAT8_E4M3:
        ((uint8_t *)array)[i] = (uint8_t)narrow(re, 4, 3);
        break;
    case PEER_FLOAT8_E5M2:
        ((uint8_t *)array)[i] = (uint8_t)narrow(re, 5, 2);
        break;
    case PEER_COMPLEX64:
        ((float *)array)[2 * i] = re;
        ((float *)array)[2 * i + 1] = im;
        break;
    case PEER_COMPLEX128:
        ((double *)array)[2 * i] = (double)number.re / divisor;
        ((double *)array)[2 * i + 1] = (double)number.im / divisor;
        break;
    case PEER_N_DATATYPES:
        break;
    }
}
