/* perf_check.c: are the results right? Inputs are perf_numbers.c's, and results are compared with the one
 * right answer bit by bit. Several calls in a row are checked, so that what an earlier call left behind would
 * show. */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

/* Calls checked for each row and place. */
#define CHECKS 3

/* Elements that pass through host memory at a time. */
#define CHUNK ((size_t)65536)

#define MAX_ELEMENT_BYTES 16

/* What a check works with. */
struct work {
    struct perf *perf;
    struct perf_call call;
    size_t element;
    char *got, *expected; /* CHUNK elements each */
};

static size_t chunk_at(size_t done, size_t all)
{
    return all - done < CHUNK ? all - done : CHUNK;
}

/* This rank's element i of the output is what all ranks' elements come to, or is one rank's element. */
static void expect_one(const struct work *work, size_t i, size_t at)
{
    const struct perf *perf = work->perf;
    const struct perf_call *call = &work->call;
    const struct perf_collective *collective = call->collective;
    size_t index = collective->recv == PERF_BLOCKS ? i % call->count : i;
    int divisor = 1, source = call->root;
    struct perf_number number;

    if (collective->send == PERF_BLOCKS)
        index += (size_t)perf->rank * call->count;
    if (collective->flags & PERF_REDUCES) {
        number = perf_combined(call->datatype, call->op, perf->size, index, perf->position);
        divisor = call->op == PEER_AVG ? perf->size : 1;
    } else {
        if (!(collective->flags & PERF_FROM_ROOT))
            source = (int)(i / call->count);
        number = perf_input(call->datatype, call->op, source, 1, index, perf->position);
    }
    perf_encode(call->datatype, number, divisor, at, work->expected);
}

static void expect(const struct work *work, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect_one(work, from + i, i);
}

/* With the opposite of what is to come: nothing that is left there can pass for a result. */
static void spoil_output(const struct work *work)
{
    size_t n;

    for (size_t done = 0; done < work->call.noutput; done += n) {
        n = chunk_at(done, work->call.noutput);
        expect(work, done, n);
        for (size_t i = 0; i < n * work->element; i++)
            work->got[i] = (char)~work->expected[i];
        bed_put(&work->perf->bed, (char *)work->call.output + done * work->element, work->got,
                n * work->element);
    }
}

static void fill_input(const struct work *work)
{
    const struct perf *perf = work->perf;
    const struct perf_call *call = &work->call;
    int terms = call->collective->flags & PERF_REDUCES ? perf->size : 1;
    size_t n;

    for (size_t done = 0; done < call->ninput; done += n) {
        n = chunk_at(done, call->ninput);
        for (size_t i = 0; i < n; i++)
            perf_encode(call->datatype,
                        perf_input(call->datatype, call->op, perf->rank, terms, done + i, perf->position), 1,
                        i, work->got);
        bed_put(&work->perf->bed, (char *)call->input + done * work->element, work->got, n * work->element);
    }
}

static long long count_wrong(const struct work *work)
{
    size_t element = work->element, n;
    long long wrong = 0;

    for (size_t done = 0; done < work->call.noutput; done += n) {
        n = chunk_at(done, work->call.noutput);
        expect(work, done, n);
        bed_get(&work->perf->bed, work->got, (char *)work->call.output + done * element, n * element);
        if (memcmp(work->got, work->expected, n * element) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += memcmp(work->got + i * element, work->expected + i * element, element) != 0;
    }
    return wrong;
}

long long perf_check(struct perf *perf, const struct perf_case *c, enum perf_place place)
{
    struct work work = {.perf = perf, .call = perf_call_of(perf, c, place)};
    struct perf_runner *runner = malloc(sizeof *runner);
    long long wrong = 0, all = 0;

    work.got = malloc(CHUNK * MAX_ELEMENT_BYTES);
    work.expected = malloc(CHUNK * MAX_ELEMENT_BYTES);
    if (!runner || !work.got || !work.expected)
        perf_die("out of memory");
    PEER_Datatype_size(c->datatype, &work.element);
    if (!perf_runner_open(runner, &perf->bed, work.call.collective->run, &work.call, c->graph > 0 ? 1 : 0))
        perf_die("%s", PEER_Last_error());
    for (int i = 0; i < CHECKS; i++, perf->position++) {
        spoil_output(&work); /* first: the input may lie in it */
        fill_input(&work);
        perf_runner_go(runner, 1);
        bed_sync(&perf->bed);
        wrong += count_wrong(&work);
    }
    perf_runner_close(runner);
    free(work.got);
    free(work.expected);
    free(runner);
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}
