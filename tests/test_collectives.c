/* test_collectives [SETTINGS [few]]: every collective: all legal pairs of datatype and operation, sizes about where
 * something changes (nothing, one, fewer than ranks, one piece, several pieces), every root, in place in all
 * the ways that there are, buffers off their alignment, counts that differ and are 0, blocks in any order with
 * gaps. Every byte is checked (collective.h).
 *
 * For each algorithm that can be forced, and for what selection takes. The full product of all that would take
 * hours: datatypes and operations rotate through the sizes, and the shape of each call is drawn. SETTINGS
 * ("staging_bytes=16K,blocks=3") go to every communicator; if they name a transport other than ipc, no algorithm is
 * forced. "few": a third of the calls, for many ranks on few cores. */
#include "collective.h"
#include "trial.h"
#include "test.h"

#define MESSAGE     (160 << 10) /* bytes of the largest: several pieces of the staging */
#define WINDOWS     509         /* elements by which calls are shifted against each other, at most */
#define SLACK       2048        /* bytes for gaps between blocks */
#define INPUT_BYTES (MESSAGE + WINDOWS * 16)

struct collectives_test {
    int rank, size;
    bool few;
    struct inputs inputs, in_islands; /* the second for what algorithm island sums up in its own order */
    bool islands;
    struct bed bed;
    struct coll_trial trial;
    PEER_Comm comm;
    unsigned turn; /* the number of the call, from which all else follows; the same on all ranks */
};

/* ---- One call ------------------------------------------------------------------------------------------- */

/* A call of the kind with at most so many bytes in each block. Types and operations go on by steps that have
 * no factor in common with their numbers. */
static struct coll_call next_call(struct collectives_test *t, enum coll_kind kind, size_t bytes_each)
{
    unsigned turn = ++t->turn;
    struct coll_call call = {.kind = kind, .type = (PEER_Datatype)(turn * 5 % PEER_N_DATATYPES)};
    call.op = coll_legal_op(call.type, (PEER_Op)(turn * 3 % PEER_N_OPS));
    call.first = turn * 31 % WINDOWS;
    coll_draw_shape(&call, reference_mix(turn), t->rank, t->size);
    coll_draw_counts(&call, bytes_each / reference_element(call.type), t->size);
    return call;
}

static void run(struct collectives_test *t, const struct coll_call *call)
{
    const bool by_islands = t->islands && (call->kind == COLL_ALLREDUCE || call->kind == COLL_REDUCE);
    coll_run(&t->trial, by_islands ? &t->in_islands : &t->inputs, t->rank, call, t->comm);
}

/* ---- Many calls ----------------------------------------------------------------------------------------- */

/* Counts, and then bytes of a message. Each with the shapes of several turns. */
static void run_sizes(struct collectives_test *t, enum coll_kind kind)
{
    size_t n = (size_t)t->size, parts = coll_has_blocks(kind) ? n : 1;
    size_t counts[] = {0, 1, 2, 3, n - 1, n, n + 1, 31, 257};
    size_t bytes[] = {4 << 10, (12 << 10) + 48, 40 << 10, (MESSAGE - (1 << 10)) | 16, MESSAGE};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int repeat = 0; repeat < (t->few ? 1 : 3); repeat++) {
            struct coll_call call = next_call(t, kind, 0);
            coll_draw_counts(&call, counts[i], t->size);
            run(t, &call);
        }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        for (int repeat = 0; repeat < (t->few ? 1 : 3); repeat++) {
            struct coll_call call = next_call(t, kind, bytes[i] / parts);
            run(t, &call);
        }
}

static void run_roots(struct collectives_test *t, enum coll_kind kind)
{
    static const size_t bytes[] = {16, 3000, 50000};
    static const enum coll_place places[] = {COLL_OUT_OF_PLACE, COLL_IN_PLACE, COLL_OWN_BLOCK};
    size_t parts = coll_has_blocks(kind) ? (size_t)t->size : 1;
    for (int root = 0; root < t->size; root++)
        for (size_t i = 0; i < 3; i++) {
            struct coll_call call = next_call(t, kind, bytes[i] / (i > 0 ? parts : 1));
            call.root = root;
            call.place = places[((size_t)root + i) % 3];
            run(t, &call);
        }
}

/* Counts that differ: each spread of them with each order of the blocks, small and in several pieces. */
static void run_counts(struct collectives_test *t, enum coll_kind kind)
{
    for (int spread = 0; spread < COLL_SPREADS; spread++)
        for (int order = 0; order < COLL_ORDERS; order++)
            for (int large = 0; large < 2; large++) {
                struct coll_call call = next_call(t, kind, (large ? 100000 : 500) / (size_t)t->size);
                call.order = (enum coll_order)order;
                coll_spread_counts(&call, (enum coll_spread)spread, t->size);
                run(t, &call);
            }
}

/* Every datatype, with every operation if the call has one. */
static void run_pairs(struct collectives_test *t, enum coll_kind kind)
{
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        for (int op = 0; op < (coll_is_reduction(kind) ? PEER_N_OPS : 1); op++) {
            struct coll_call call = next_call(t, kind, 0);
            call.type = (PEER_Datatype)type;
            call.op = (PEER_Op)op;
            call.send_shift = call.recv_shift = (size_t)op % 2;
            coll_draw_counts(&call, 11 + (size_t)(type + op) % 16, t->size);
            if (!coll_is_reduction(kind) || reference_legal(call.type, call.op))
                run(t, &call);
        }
}

/* A call again and again, and then with one thing changed each time, since the library keeps what it worked
 * out for the call before. */
static void run_repeated(struct collectives_test *t, enum coll_kind kind)
{
    struct coll_call call = next_call(t, kind, 0);
    call.place = COLL_OUT_OF_PLACE;
    call.type = PEER_INT16;
    call.op = PEER_SUM;
    call.send_shift = call.recv_shift = 0;
    call.count = 40;
    coll_spread_counts(&call, COLL_SPREAD_EVEN, t->size);
    for (int step = 0; step < 12; step++) {
        for (int again = 0; again < 3; again++) {
            call.first = (size_t)(3 * step + again);
            run(t, &call);
        }
        call.root = (call.root + (step == 0)) % t->size;
        call.op = step == 1 ? PEER_MAX : call.op;
        call.type = step == 2 ? PEER_FLOAT16 : call.type; /* of the same size */
        call.count += step == 3;
        call.counts[0][0] -= step == 4;
        call.counts[t->size - 1][0] += step == 5;
        call.order = step == 6 ? COLL_REVERSED : call.order;
        call.recv_shift += step == 7;
        call.send_shift += step == 8;
        call.place = step == 9 ? COLL_IN_PLACE : step == 10 ? COLL_OWN_BLOCK : call.place;
    }
}

/* The last call took the way that was asked for. */
static void check_plan(PEER_Comm comm, const char *algorithm)
{
    if (comm->size > 1)
        TEST_CONTAINS(trial_info(comm, "plan"), algorithm);
}

#define SELECTED (-1) /* in place of an algorithm: what selection takes */

static void run_algorithm(struct collectives_test *t, const char *settings, int algorithm)
{
    char text[256];
    struct coll_call call;
    snprintf(text, sizeof text, "%s %s", algorithm != SELECTED ? trial_settings(algorithm, t->size) : "",
             settings);
    t->islands = algorithm >= TRIAL_ISLAND;
    inputs_open(&t->in_islands, 1, t->size, INPUT_BYTES);
    t->in_islands.order = trial_order(algorithm, t->size);
    t->comm = trial_create(MPI_COMM_WORLD, text);
    bed_open(&t->bed, t->comm);
    coll_open(&t->trial, &t->bed, MESSAGE + SLACK);
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        run_sizes(t, (enum coll_kind)kind);
        if (coll_has_root((enum coll_kind)kind) && !t->few)
            run_roots(t, (enum coll_kind)kind);
        if (coll_has_counts((enum coll_kind)kind) && (algorithm == SELECTED || !t->few))
            run_counts(t, (enum coll_kind)kind);
        run_repeated(t, (enum coll_kind)kind);
        if (algorithm == SELECTED)
            run_pairs(t, (enum coll_kind)kind);
    }
    call = next_call(t, COLL_ALLREDUCE, 100);
    run(t, &call);
    if (algorithm != SELECTED)
        check_plan(t->comm, trial_algorithm(algorithm));
    coll_close(&t->trial);
    bed_close(&t->bed);
    trial_free(&t->comm);
    inputs_close(&t->in_islands);
}

int main(int argc, char **argv)
{
    static struct collectives_test t;
    char settings[128] = "transport=ipc staging_bytes=64K";
    trial_begin(&argc, &argv, &t.rank, &t.size);
    if (argc > 1)
        snprintf(settings, sizeof settings, "%s", argv[1]);
    t.few = argc > 2 && strcmp(argv[2], "few") == 0;
    for (char *comma = settings; (comma = strchr(comma, ',')) != NULL;)
        *comma = ' ';
    inputs_open(&t.inputs, 1, t.size, INPUT_BYTES);
    run_algorithm(&t, settings, SELECTED);
    for (int i = 0; i < TRIAL_ALGORITHMS; i++)
        if (strstr(settings, "transport=") == NULL || strstr(settings, "transport=ipc") != NULL)
            run_algorithm(&t, settings, i);
    inputs_close(&t.inputs);
    MPI_Finalize();
    test_pass();
}
