/* reference_numbers.c: the datatypes and operations of the reference, see reference.h. Floats of 8 and 16 bits
 * are converted by a table of all their values and a search in it, so that nothing here resembles the bit
 * tricks of the kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_numbers.h"

/* ---- Datatypes ------------------------------------------------------------------------------------------ */

struct layout reference_layout(PEER_Datatype type)
{
    switch (type) {
    case PEER_INT8:
        return (struct layout){KIND_INTEGER, 1, true, 0, 0};
    case PEER_UINT8:
        return (struct layout){KIND_INTEGER, 1, false, 0, 0};
    case PEER_INT16:
        return (struct layout){KIND_INTEGER, 2, true, 0, 0};
    case PEER_UINT16:
        return (struct layout){KIND_INTEGER, 2, false, 0, 0};
    case PEER_INT32:
        return (struct layout){KIND_INTEGER, 4, true, 0, 0};
    case PEER_UINT32:
        return (struct layout){KIND_INTEGER, 4, false, 0, 0};
    case PEER_INT64:
        return (struct layout){KIND_INTEGER, 8, true, 0, 0};
    case PEER_UINT64:
        return (struct layout){KIND_INTEGER, 8, false, 0, 0};
    case PEER_FLOAT16:
        return (struct layout){KIND_FLOATING, 2, true, 5, 10};
    case PEER_BFLOAT16:
        return (struct layout){KIND_FLOATING, 2, true, 8, 7};
    case PEER_FLOAT32:
        return (struct layout){KIND_FLOATING, 4, true, 8, 23};
    case PEER_FLOAT64:
        return (struct layout){KIND_FLOATING, 8, true, 11, 52};
    case PEER_FLOAT8_E4M3:
        return (struct layout){KIND_FLOATING, 1, true, 4, 3};
    case PEER_FLOAT8_E5M2:
        return (struct layout){KIND_FLOATING, 1, true, 5, 2};
    case PEER_COMPLEX64:
        return (struct layout){KIND_COMPLEX, 4, true, 8, 23};
    case PEER_COMPLEX128:
        return (struct layout){KIND_COMPLEX, 8, true, 11, 52};
    case PEER_BOOL:
        return (struct layout){KIND_LOGICAL, 1, false, 0, 0};
    default:
        fprintf(stderr, "reference: not a datatype: %d\n", (int)type);
        abort();
    }
}

size_t reference_element(PEER_Datatype type)
{
    struct layout l = reference_layout(type);
    return (size_t)l.bytes * (l.kind == KIND_COMPLEX ? 2 : 1);
}

bool reference_legal(PEER_Datatype type, PEER_Op op)
{
    static const PEER_Op ordered[] = {PEER_MIN, PEER_MAX};
    static const PEER_Op logical[] = {PEER_LAND, PEER_LOR, PEER_LXOR};
    enum kind kind = reference_layout(type).kind;
    if (kind == KIND_INTEGER)
        return true;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++)
        if (op == ordered[i])
            return kind == KIND_FLOATING;
    for (size_t i = 0; i < sizeof logical / sizeof *logical; i++)
        if (op == logical[i])
            return kind == KIND_LOGICAL;
    return kind != KIND_LOGICAL && (op == PEER_SUM || op == PEER_PROD || op == PEER_AVG);
}

PEER_Op reference_op(PEER_Datatype type, uint64_t i)
{
    PEER_Op legal[PEER_N_OPS];
    size_t n = 0;
    for (int op = 0; op < PEER_N_OPS; op++)
        if (reference_legal(type, (PEER_Op)op))
            legal[n++] = (PEER_Op)op;
    return legal[i % n];
}

uint64_t reference_get(struct layout l, const void *from, size_t i)
{
    const unsigned char *at = (const unsigned char *)from + i * (size_t)l.bytes;
    uint16_t b16;
    uint32_t b32;
    uint64_t b64;
    switch (l.bytes) {
    case 1:
        return *at;
    case 2:
        memcpy(&b16, at, 2);
        return b16;
    case 4:
        memcpy(&b32, at, 4);
        return b32;
    default:
        memcpy(&b64, at, 8);
        return b64;
    }
}

void reference_put(struct layout l, void *to, size_t i, uint64_t bits)
{
    unsigned char *at = (unsigned char *)to + i * (size_t)l.bytes;
    uint16_t b16 = (uint16_t)bits;
    uint32_t b32 = (uint32_t)bits;
    switch (l.bytes) {
    case 1:
        *at = (unsigned char)bits;
        break;
    case 2:
        memcpy(at, &b16, 2);
        break;
    case 4:
        memcpy(at, &b32, 4);
        break;
    default:
        memcpy(at, &bits, 8);
    }
}

static bool is_e4m3(struct layout l)
{
    return l.exponent_bits == 4;
}

uint64_t reference_most(struct layout l)
{
    return is_e4m3(l) ? 0x7e : (((uint64_t)1 << l.exponent_bits) - 1) << l.mantissa_bits;
}

/* ---- Floats of 8 and 16 bits ---------------------------------------------------------------------------- */

/* The values of the patterns 0 .. end. The last one's entry is what would come next if there were no infinities and
 * NaNs, since that is what rounding compares with. */
struct small_float {
    int end;
    double value[0x7f80 + 1];
};

static const struct small_float *small_float(PEER_Datatype type)
{
    static struct small_float tables[PEER_N_DATATYPES];
    struct layout l = reference_layout(type);
    struct small_float *table = &tables[type];
    int bias = (1 << (l.exponent_bits - 1)) - 1;
    if (table->end != 0)
        return table;
    table->end = (int)reference_most(l) + is_e4m3(l);
    for (int bits = 0; bits <= table->end; bits++) {
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
    struct layout l = reference_layout(type);
    int sign = 1 << (8 * l.bytes - 1), magnitude = bits & (sign - 1);
    double value = magnitude < table->end                 ? table->value[magnitude]
                   : magnitude > table->end || is_e4m3(l) ? (double)NAN
                                                          : (double)INFINITY;
    return bits & sign ? -value : value;
}

uint16_t reference_narrow(PEER_Datatype type, double value)
{
    const struct small_float *table = small_float(type);
    struct layout l = reference_layout(type);
    int negative = 1 << (8 * l.bytes - 1), sign = signbit(value) ? negative : 0;
    double magnitude = fabs(value);
    int low = 0, high = table->end;
    if (isnan(value))
        return (uint16_t)(negative - 1);
    if (l.bytes == 1 && magnitude >= table->value[high - 1])
        return (uint16_t)(sign | (high - 1)); /* saturates */
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

/* ---- Values --------------------------------------------------------------------------------------------- */

/* An element as it is accumulated: an integer of 32 or 64 bits, extended to 64 by its sign if it has one; or
 * one or two floating parts, a double each, which holds a float too. */
struct value {
    uint64_t whole;
    double re, im;
};

static double part_of_bits(PEER_Datatype type, struct layout l, uint64_t bits)
{
    double d;
    float f;
    uint32_t bits32 = (uint32_t)bits;
    if (l.bytes <= 2)
        return reference_widen(type, (uint16_t)bits);
    memcpy(&f, &bits32, sizeof f);
    memcpy(&d, &bits, sizeof d);
    return l.bytes == 4 ? (double)f : d;
}

static uint64_t bits_of_part(PEER_Datatype type, struct layout l, double x)
{
    float f = (float)x;
    uint64_t bits = 0;
    if (l.bytes <= 2)
        return reference_narrow(type, x);
    if (l.bytes == 4)
        memcpy(&bits, &f, sizeof f);
    else
        memcpy(&bits, &x, sizeof x);
    return bits;
}

/* The low `bytes` bytes, extended. */
static uint64_t extended(struct layout l, int bytes, uint64_t x)
{
    int unused = 64 - 8 * bytes;
    x <<= unused;
    return l.is_signed ? (uint64_t)((int64_t)x >> unused) : x >> unused;
}

static struct value get_value(PEER_Datatype type, struct layout l, const void *from, size_t i)
{
    switch (l.kind) {
    case KIND_INTEGER:
        return (struct value){.whole = extended(l, l.bytes, reference_get(l, from, i))};
    case KIND_LOGICAL:
        return (struct value){.whole = reference_get(l, from, i) != 0};
    case KIND_FLOATING:
        return (struct value){.re = part_of_bits(type, l, reference_get(l, from, i))};
    default:
        return (struct value){.re = part_of_bits(type, l, reference_get(l, from, 2 * i)),
                              .im = part_of_bits(type, l, reference_get(l, from, 2 * i + 1))};
    }
}

static void put_value(PEER_Datatype type, struct layout l, void *to, size_t i, struct value x)
{
    if (l.kind == KIND_INTEGER || l.kind == KIND_LOGICAL) {
        reference_put(l, to, i, x.whole);
    } else if (l.kind == KIND_FLOATING) {
        reference_put(l, to, i, bits_of_part(type, l, x.re));
    } else {
        reference_put(l, to, 2 * i, bits_of_part(type, l, x.re));
        reference_put(l, to, 2 * i + 1, bits_of_part(type, l, x.im));
    }
}

/* ---- Combination ---------------------------------------------------------------------------------------- */

static bool whole_less(struct layout l, uint64_t a, uint64_t b)
{
    return l.is_signed ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t combine_wholes(struct layout l, PEER_Op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case PEER_SUM:
    case PEER_AVG:
        return extended(l, l.bytes == 8 ? 8 : 4, a + b);
    case PEER_PROD:
        return extended(l, l.bytes == 8 ? 8 : 4, a * b);
    case PEER_MIN:
        return whole_less(l, b, a) ? b : a;
    case PEER_MAX:
        return whole_less(l, a, b) ? b : a;
    case PEER_LAND:
        return a && b;
    case PEER_LOR:
        return a || b;
    case PEER_LXOR:
        return !a != !b;
    case PEER_BAND:
        return a & b;
    case PEER_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* Arithmetic in float or in double. Volatile, lest a compiler makes one rounding of a product and a sum. */
static double sum(bool in_float, double a, double b)
{
    volatile double x = in_float ? (double)((float)a + (float)b) : a + b;
    return x;
}

static double product(bool in_float, double a, double b)
{
    volatile double x = in_float ? (double)((float)a * (float)b) : a * b;
    return x;
}

static double quotient(bool in_float, double a, int b)
{
    return in_float ? (double)((float)a / (float)b) : a / b;
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

static struct value combine_parts(struct layout l, PEER_Op op, struct value a, struct value b)
{
    bool in_float = l.bytes <= 4;
    if (op == PEER_SUM || op == PEER_AVG)
        return (struct value){.re = sum(in_float, a.re, b.re), .im = sum(in_float, a.im, b.im)};
    if (op == PEER_MIN || op == PEER_MAX)
        return takes_second(op, a.re, b.re) ? b : a;
    if (l.kind == KIND_FLOATING)
        return (struct value){.re = product(in_float, a.re, b.re)};
    return (struct value){.re = sum(in_float, product(in_float, a.re, b.re), -product(in_float, a.im, b.im)),
                          .im = sum(in_float, product(in_float, a.re, b.im), product(in_float, a.im, b.re))};
}

static struct value average(struct layout l, struct value x, int n)
{
    bool in_float = l.bytes <= 4;
    if (l.kind != KIND_INTEGER)
        return (struct value){.re = quotient(in_float, x.re, n), .im = quotient(in_float, x.im, n)};
    return (struct value){.whole = l.is_signed ? (uint64_t)((int64_t)x.whole / n) : x.whole / (uint64_t)n};
}

/* *x and the part, which starts it if it is the first. */
static void combine_one(struct layout l, PEER_Op op, bool first, struct value *x, struct value part)
{
    if (first)
        *x = part;
    else if (l.kind == KIND_INTEGER || l.kind == KIND_LOGICAL)
        x->whole = combine_wholes(l, op, x->whole, part.whole);
    else
        *x = combine_parts(l, op, *x, part);
}

static struct value combine_values(const struct reference_order *order, struct layout l, PEER_Op op,
                                   const struct value *parts, int nparts)
{
    struct value all = {0};
    for (int island = 0; island == 0 || island < order->islands; island++) {
        struct value x = {0};
        bool first = true;
        for (int r = 0; r < nparts; r++)
            if (order->islands <= 1 || order->island[r] == island) {
                combine_one(l, op, first, &x, parts[r]);
                first = false;
            }
        combine_one(l, op, island == 0, &all, x);
    }
    return op == PEER_AVG ? average(l, all, nparts) : all;
}

void reference_combine_all(const struct reference_order *order, PEER_Datatype type, const void *const parts[],
                           int nparts, void *const to[PEER_N_OPS], size_t count)
{
    struct layout l = reference_layout(type);
    struct value values[PEER_MAX_PEERS];
    for (int op = 0; op < PEER_N_OPS; op++)
        if (to[op] != NULL && nparts == 1)
            memcpy(to[op], parts[0], count * reference_element(type));
    for (size_t i = 0; i < count && nparts > 1; i++) {
        for (int r = 0; r < nparts; r++)
            values[r] = get_value(type, l, parts[r], i);
        for (int op = 0; op < PEER_N_OPS; op++)
            if (to[op] != NULL)
                put_value(type, l, to[op], i, combine_values(order, l, (PEER_Op)op, values, nparts));
    }
}

void reference_combine(PEER_Datatype type, PEER_Op op, const void *const parts[], int nparts, void *to,
                       size_t count)
{
    const struct reference_order flat = {0};
    reference_combine_in(&flat, type, op, parts, nparts, to, count);
}

void reference_combine_in(const struct reference_order *order, PEER_Datatype type, PEER_Op op,
                          const void *const parts[], int nparts, void *to, size_t count)
{
    void *all[PEER_N_OPS] = {NULL};
    all[op] = to;
    reference_combine_all(order, type, parts, nparts, all, count);
}
