/* perf_check.c: are the results right?
 *
 * Inputs are small integers that differ from rank to rank, element to element and call to call, chosen so that
 * each partial result is exact in every datatype: bf16 holds the integers up to 256, so |value| x ranks stays
 * within that. There is one right answer then, in whatever order the ranks are combined, and it is compared bit
 * by bit. Several calls in a row are checked, so that what an earlier call left behind would show. */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

/* Calls checked for each row and place. */
#define CHECKS 3

/* Elements that pass through host memory at a time. */
#define CHUNK ((size_t)65536)

#define MAX_ELEMENT_BYTES 8

int perf_value(int rank, int nranks, size_t i, int position)
{
    int most = 256 / nranks;
    uint32_t x = (uint32_t)(i ^ (uint64_t)i >> 32);

    if (most > 100)
        most = 100;
    if (most < 1)
        most = 1;
    x = x * 2654435761u + (uint32_t)rank * 2246822519u + (uint32_t)position * 3266489917u;
    x = (x ^ x >> 15) * 2246822519u;
    x ^= x >> 13;
    return (int)((uint64_t)x * (2u * (uint32_t)most + 1) >> 32) - most;
}

/* Of an integer up to 2048: exact, and never a subnormal. */
static uint16_t half_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (value == 0)
        return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 127 + 15) << 10) |
                      (bits >> 13 & 0x3ff));
}

/* Of an integer up to 256: the low half of the bits is 0. */
static uint16_t bfloat_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void encode(PEER_Datatype datatype, int value, size_t i, void *array)
{
    switch (datatype) {
    case PEER_INT32:
        ((int32_t *)array)[i] = value;
        break;
    case PEER_INT64:
        ((int64_t *)array)[i] = value;
        break;
    case PEER_FLOAT16:
        ((uint16_t *)array)[i] = half_of((float)value);
        break;
    case PEER_BFLOAT16:
        ((uint16_t *)array)[i] = bfloat_of((float)value);
        break;
    case PEER_FLOAT32:
        ((float *)array)[i] = (float)value;
        break;
    case PEER_FLOAT64:
        ((double *)array)[i] = value;
        break;
    case PEER_N_DATATYPES:
        break;
    }
}

static size_t element_bytes(PEER_Datatype datatype)
{
    size_t bytes = 0;

    PEER_Datatype_size(datatype, &bytes);
    return bytes;
}

static size_t chunk_at(size_t done, size_t all)
{
    return all - done < CHUNK ? all - done : CHUNK;
}

static void fill(struct perf *perf, PEER_Datatype datatype, void *buffer, size_t count, char *scratch)
{
    size_t element = element_bytes(datatype), n;

    for (size_t done = 0; done < count; done += n) {
        n = chunk_at(done, count);
        for (size_t i = 0; i < n; i++)
            encode(datatype, perf_value(perf->rank, perf->size, done + i, perf->position), i, scratch);
        bed_put(&perf->bed, (char *)buffer + done * element, scratch, n * element);
    }
}

/* With what is no result in any datatype: all bits set. */
static void poison(struct perf *perf, void *buffer, size_t bytes, char *scratch)
{
    size_t n;

    memset(scratch, 0xff, CHUNK);
    for (size_t done = 0; done < bytes; done += n) {
        n = chunk_at(done, bytes);
        bed_put(&perf->bed, (char *)buffer + done, scratch, n);
    }
}

static long long count_wrong(struct perf *perf, const struct perf_case *c, char *scratch)
{
    char *expected = scratch + CHUNK * MAX_ELEMENT_BYTES;
    size_t element = element_bytes(c->datatype), n;
    long long wrong = 0;

    for (size_t done = 0; done < c->shape.recv; done += n) {
        n = chunk_at(done, c->shape.recv);
        for (size_t i = 0; i < n; i++)
            encode(
                c->datatype,
                perf->options.collective->expected(c->op, perf->rank, perf->size, done + i, perf->position),
                i, expected);
        bed_get(&perf->bed, scratch, (char *)perf->recv + done * element, n * element);
        if (memcmp(scratch, expected, n * element) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += memcmp(scratch + i * element, expected + i * element, element) != 0;
    }
    return wrong;
}

long long perf_check(struct perf *perf, const struct perf_case *c, enum perf_place place)
{
    struct perf_call call = perf_call_of(perf, c, place);
    struct perf_runner *runner = malloc(sizeof *runner);
    char *scratch = malloc(2 * CHUNK * MAX_ELEMENT_BYTES);
    long long wrong = 0, all = 0;

    if (!runner || !scratch)
        perf_die("out of memory");
    if (!perf_runner_open(runner, &perf->bed, perf->options.collective->run, &call, c->graph > 0 ? 1 : 0))
        perf_die("%s", PEER_Last_error());
    for (int i = 0; i < CHECKS; i++, perf->position++) {
        if (place == PERF_IN_PLACE) {
            fill(perf, c->datatype, perf->recv, c->shape.send, scratch);
        } else {
            fill(perf, c->datatype, perf->send, c->shape.send, scratch);
            poison(perf, perf->recv, c->shape.recv * element_bytes(c->datatype), scratch);
        }
        perf_runner_go(runner, 1);
        bed_sync(&perf->bed);
        wrong += count_wrong(perf, c, scratch);
    }
    perf_runner_close(runner);
    free(scratch);
    free(runner);
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}
