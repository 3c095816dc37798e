/* reference.c: see reference.h. fp16 and bf16 are converted by a table of all their values and a search in it, so
 * that nothing here resembles the bit tricks of the kernels. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

/* How a floating type is laid out: sign, exponent, mantissa. 0 bits of exponent: an integer. */
struct layout {
    int bytes, exponent_bits, mantissa_bits;
};

static struct layout layout_of(PEER_Datatype type)
{
    switch (type) {
    case PEER_INT32:
        return (struct layout){4, 0, 0};
    case PEER_INT64:
        return (struct layout){8, 0, 0};
    case PEER_FLOAT16:
        return (struct layout){2, 5, 10};
    case PEER_BFLOAT16:
        return (struct layout){2, 8, 7};
    case PEER_FLOAT32:
        return (struct layout){4, 8, 23};
    case PEER_FLOAT64:
        return (struct layout){8, 11, 52};
    default:
        fprintf(stderr, "reference: not a datatype: %d\n", (int)type);
        abort();
    }
}

size_t reference_element(PEER_Datatype type)
{
    return (size_t)layout_of(type).bytes;
}

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

/* Element i of an array, as the low bits of a word. */
static uint64_t get_bits(const void *from, size_t element, size_t i)
{
    const unsigned char *at = (const unsigned char *)from + i * element;
    uint16_t b16;
    uint32_t b32;
    uint64_t b64;
    if (element == 2) {
        memcpy(&b16, at, 2);
        return b16;
    }
    if (element == 4) {
        memcpy(&b32, at, 4);
        return b32;
    }
    memcpy(&b64, at, 8);
    return b64;
}

static void put_bits(void *to, size_t element, size_t i, uint64_t bits)
{
    unsigned char *at = (unsigned char *)to + i * element;
    uint16_t b16 = (uint16_t)bits;
    uint32_t b32 = (uint32_t)bits;
    if (element == 2)
        memcpy(at, &b16, 2);
    else if (element == 4)
        memcpy(at, &b32, 4);
    else
        memcpy(at, &bits, 8);
}

/* ---- fp16 and bf16 -------------------------------------------------------------------------------------- */

/* The values of the patterns 0 .. infinity; infinity's entry is what the next binade would begin with, since
 * that is what rounding compares with. */
struct small_float {
    int infinity;
    double value[0x7f80 + 1];
};

static const struct small_float *small_float(PEER_Datatype type)
{
    static struct small_float tables[2];
    struct layout l = layout_of(type);
    struct small_float *table = &tables[type == PEER_BFLOAT16];
    int bias = (1 << (l.exponent_bits - 1)) - 1;
    if (table->infinity != 0)
        return table;
    table->infinity = ((1 << l.exponent_bits) - 1) << l.mantissa_bits;
    for (int bits = 0; bits <= table->infinity; bits++) {
        int exponent = bits >> l.mantissa_bits;
        int mantissa = bits & ((1 << l.mantissa_bits) - 1);
        if (exponent > 0)
            mantissa += 1 << l.mantissa_bits;
        table->value[bits] = ldexp(mantissa, (exponent > 0 ? exponent : 1) - bias - l.mantissa_bits);
    }
    return table;
}

double reference_widen(PEER_Datatype type, uint16_t bits)
{
    const struct small_float *table = small_float(type);
    int magnitude = bits & 0x7fff;
    double value = magnitude > table->infinity    ? (double)NAN
                   : magnitude == table->infinity ? (double)INFINITY
                                                  : table->value[magnitude];
    return bits & 0x8000 ? -value : value;
}

uint16_t reference_narrow(PEER_Datatype type, double value)
{
    const struct small_float *table = small_float(type);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    int low = 0, high = table->infinity;
    if (isnan(value))
        return 0x7fff;
    if (magnitude >= table->value[high])
        return (uint16_t)(sign | high);
    while (high - low > 1) { /* value[low] <= magnitude < value[high] */
        int middle = (low + high) / 2;
        if (table->value[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double tie = (table->value[low] + table->value[high]) / 2;
    if (magnitude > tie || (magnitude == tie && low % 2 == 1))
        low++;
    return (uint16_t)(sign | low);
}

/* ---- Combination ---------------------------------------------------------------------------------------- */

static int64_t combine_integers(PEER_Op op, int64_t a, int64_t b)
{
    if (op == PEER_SUM)
        return (int64_t)((uint64_t)a + (uint64_t)b); /* the low 32 bits are those of a 32-bit sum */
    if (op == PEER_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

/* MIN and MAX of floats: the first of equals, and a NaN wherever it comes. */
static bool takes_second(PEER_Op op, double a, double b)
{
    if (isnan(a))
        return false;
    if (isnan(b))
        return true;
    return op == PEER_MIN ? b < a : b > a;
}

static float combine_floats(PEER_Op op, float a, float b)
{
    return op == PEER_SUM ? a + b : takes_second(op, a, b) ? b : a;
}

static double combine_doubles(PEER_Op op, double a, double b)
{
    return op == PEER_SUM ? a + b : takes_second(op, a, b) ? b : a;
}

static uint64_t combine_element(PEER_Datatype type, PEER_Op op, const void *const parts[], int nparts,
                                size_t i)
{
    size_t element = reference_element(type);
    bool small = type == PEER_FLOAT16 || type == PEER_BFLOAT16;
    int64_t whole = 0;
    float f = 0;
    double d = 0;
    uint64_t result = 0;
    for (int r = 0; r < nparts; r++) {
        uint64_t bits = get_bits(parts[r], element, i);
        if (type == PEER_INT32 || type == PEER_INT64) {
            int64_t x = type == PEER_INT32 ? (int32_t)bits : (int64_t)bits;
            whole = r == 0 ? x : combine_integers(op, whole, x);
        } else if (type == PEER_FLOAT64) {
            double x;
            memcpy(&x, &bits, sizeof x);
            d = r == 0 ? x : combine_doubles(op, d, x);
        } else {
            uint32_t bits32 = (uint32_t)bits;
            float x;
            memcpy(&x, &bits32, sizeof x);
            if (small)
                x = (float)reference_widen(type, (uint16_t)bits);
            f = r == 0 ? x : combine_floats(op, f, x);
        }
    }
    if (type == PEER_INT32 || type == PEER_INT64)
        return (uint64_t)whole;
    if (small)
        return reference_narrow(type, f);
    if (type == PEER_FLOAT32)
        memcpy(&result, &f, sizeof f); /* little endian, as all that is here */
    else
        memcpy(&result, &d, sizeof d);
    return result;
}

void reference_combine(PEER_Datatype type, PEER_Op op, const void *const parts[], int nparts, void *to,
                       size_t count)
{
    size_t element = reference_element(type);
    for (size_t i = 0; i < count; i++)
        put_bits(to, element, i, combine_element(type, op, parts, nparts, i));
}

/* ---- Inputs --------------------------------------------------------------------------------------------- */

static uint64_t float_bits(struct layout l, uint64_t sign, int64_t exponent, uint64_t mantissa)
{
    uint64_t mask = ((uint64_t)1 << l.mantissa_bits) - 1;
    return (sign & 1) << (8 * l.bytes - 1) | (uint64_t)exponent << l.mantissa_bits | (mantissa & mask);
}

/* Sums that lie half way between two values of the type: rank 0 has a value, rank 1 half a unit in its last
 * place, rank 2 now and then a little that breaks the tie, and the others nothing. */
static uint64_t tying_bits(struct layout l, uint64_t common, int rank, uint64_t own)
{
    int64_t bias = ((int64_t)1 << (l.exponent_bits - 1)) - 1;
    int64_t exponent = common % 8 == 0 ? 2 * bias : bias; /* the largest binade, or 1.0's */
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

/* `common` is the same on all ranks, so that an element is of one kind on all of them. */
static uint64_t float_input(struct layout l, uint64_t common, int rank, uint64_t own)
{
    int64_t bias = ((int64_t)1 << (l.exponent_bits - 1)) - 1;
    uint64_t sign = own >> 63;
    uint64_t ordinary = float_bits(l, sign, bias - 3 + (int64_t)(own >> 56 & 7), own);
    switch (common >> 60) {
    case 0: /* any bits */
        return own;
    case 1: /* subnormals */
        return float_bits(l, sign, 0, own);
    case 2: /* about the least normal value */
        return float_bits(l, sign, (int64_t)(own >> 56 & 1), own);
    case 3: /* the largest binade: sums overflow */
        return float_bits(l, sign, 2 * bias, own);
    case 4: /* infinities among others */
        return own >> 56 & 3 ? ordinary : float_bits(l, sign, 2 * bias + 1, 0);
    case 5: /* NaNs among others */
        return own >> 56 & 3 ? ordinary : float_bits(l, sign, 2 * bias + 1, own | 1);
    case 6: /* both zeros */
        return float_bits(l, sign, 0, 0);
    case 7: /* cancellation: +x and -x in turn */
        return float_bits(l, common ^ (uint64_t)rank, bias, common);
    case 8:
    case 9:
        return tying_bits(l, common, rank, own);
    case 10:
    case 11:
    case 12: /* magnitudes far apart: every sum rounds, and its order matters */
        return float_bits(l, sign, bias - 12 + (int64_t)(own >> 56 & 31) % 25, own);
    default:
        return ordinary;
    }
}

static uint64_t integer_input(struct layout l, uint64_t common, uint64_t own)
{
    uint64_t least = (uint64_t)1 << (8 * l.bytes - 1);
    const uint64_t extremes[] = {least, least - 1, UINT64_MAX, 0, 1};
    switch (common >> 62) {
    case 0:
        return extremes[own % 5];
    case 1:
        return own % 200 - 100;
    default:
        return own;
    }
}

void reference_fill(PEER_Datatype type, uint64_t seed, int rank, void *to, size_t count)
{
    struct layout l = layout_of(type);
    uint64_t base = reference_mix(seed);
    for (size_t i = 0; i < count; i++) {
        uint64_t common = reference_mix(base + i);
        uint64_t own = reference_mix(common + (uint64_t)rank + 1);
        uint64_t bits =
            l.exponent_bits == 0 ? integer_input(l, common, own) : float_input(l, common, rank, own);
        put_bits(to, (size_t)l.bytes, i, bits);
    }
}

/* ---- All of it ------------------------------------------------------------------------------------------ */

void reference_make(struct reference *ref, PEER_Datatype type, uint64_t seed, int rank, int nranks,
                    size_t count)
{
    size_t bytes = count * reference_element(type);
    void **parts = must_alloc((size_t)nranks * sizeof *parts);
    *ref = (struct reference){.type = type, .element = reference_element(type), .count = count};
    for (int r = 0; r < nranks; r++) {
        parts[r] = must_alloc(bytes);
        reference_fill(type, seed, r, parts[r], count);
    }
    for (int op = 0; op < PEER_N_OPS; op++) {
        ref->result[op] = must_alloc(bytes);
        reference_combine(type, (PEER_Op)op, (const void *const *)parts, nranks, ref->result[op], count);
    }
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
    uint64_t infinity = (((uint64_t)1 << l.exponent_bits) - 1) << l.mantissa_bits;
    uint64_t magnitude = bits & (((uint64_t)1 << (8 * l.bytes - 1)) - 1);
    return l.exponent_bits > 0 && magnitude > infinity;
}

size_t reference_differ(PEER_Datatype type, const void *a, const void *b, size_t count)
{
    struct layout l = layout_of(type);
    size_t element = (size_t)l.bytes;
    if (memcmp(a, b, count * element) == 0)
        return count;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = get_bits(a, element, i), y = get_bits(b, element, i);
        if (x != y && !(is_nan(l, x) && is_nan(l, y)))
            return i;
    }
    return count;
}
