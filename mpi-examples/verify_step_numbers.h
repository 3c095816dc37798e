/* verify_step's numbers: the element types, their conversions, and the additions that MPI lacks. They are the
 * example's own, so that the library isn't checked against itself. */
#ifndef VERIFY_STEP_NUMBERS_H
#define VERIFY_STEP_NUMBERS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "peercoll.h"

struct type {
    const char *name;
    PEER_Datatype datatype;
    size_t bytes;
    double rounding; /* largest relative error of one rounding */
};

static const struct type types[] = {{"bf16", PEER_BFLOAT16, 2, 0x1p-8},
                                    {"fp16", PEER_FLOAT16, 2, 0x1p-11},
                                    {"fp32", PEER_FLOAT32, 4, 0x1p-24},
                                    {"fp64", PEER_FLOAT64, 8, 0x1p-53}};

static inline uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The next four are for finite numbers, which is all that there is; they round to nearest, ties to even. */
static inline float bf16_float(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

static inline uint16_t float_bf16(float x)
{
    uint32_t bits = float_bits(x);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* An fp16's exponent and mantissa in the place of a float's are 2^112 too small. */
static inline float fp16_float(uint16_t h)
{
    float magnitude = bits_float((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;

    return h & 0x8000 ? -magnitude : magnitude;
}

static inline uint16_t float_fp16(float x)
{
    uint32_t bits = float_bits(fabsf(x));
    uint32_t sign = signbit(x) ? 0x8000 : 0;

    if (fabsf(x) < 0x1p-14f) /* subnormal: units of 2^-24, to which adding 0.5 rounds */
        return (uint16_t)(sign | (float_bits(fabsf(x) + 0.5f) - float_bits(0.5f)));
    return (uint16_t)(sign | (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* The bits of element i. */
static inline uint64_t load(const struct type *type, const void *buffer, size_t i)
{
    switch (type->bytes) {
    case 2:
        return ((const uint16_t *)buffer)[i];
    case 4:
        return ((const uint32_t *)buffer)[i];
    default:
        return ((const uint64_t *)buffer)[i];
    }
}

/* The number that they stand for. */
static inline double decode(const struct type *type, uint64_t bits)
{
    double x;

    switch (type->datatype) {
    case PEER_BFLOAT16:
        return bf16_float((uint16_t)bits);
    case PEER_FLOAT16:
        return fp16_float((uint16_t)bits);
    case PEER_FLOAT32:
        return bits_float((uint32_t)bits);
    default:
        memcpy(&x, &bits, sizeof x);
        return x;
    }
}

/* Rounds x into element i. */
static inline void store(const struct type *type, void *buffer, size_t i, double x)
{
    switch (type->datatype) {
    case PEER_BFLOAT16:
        ((uint16_t *)buffer)[i] = float_bf16((float)x);
        break;
    case PEER_FLOAT16:
        ((uint16_t *)buffer)[i] = float_fp16((float)x);
        break;
    case PEER_FLOAT32:
        ((float *)buffer)[i] = (float)x;
        break;
    default:
        ((double *)buffer)[i] = x;
        break;
    }
}

/* MPI has no 2-byte floats: its user brings the addition. */
static inline void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;

    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = float_bf16(bf16_float(a[i]) + bf16_float(b[i]));
}

static inline void add_fp16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;

    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = float_fp16(fp16_float(a[i]) + fp16_float(b[i]));
}

#endif
