/* test_graph: captured calls replay: a graph of one call and one of many (datatypes, operations, sizes in one
 * piece and in several, two communicators, a barrier between), launched over and over, with inputs that change
 * now and then and eager calls of other sizes in between, on the same stream and communicators. Every result
 * is checked after the first launch with new inputs and after the last. The host device has no graphs: there a
 * launch makes the calls again. */
#include <stdlib.h>

#include "trial.h"
#include "test.h"

#define REPLAYS_CUDA 10000 /* at least */
#define REPLAYS_HOST 1000
#define CALLS        8
#define MAX_BYTES    43008
#define ELEMENTS     (MAX_BYTES / 2 + 5000)

struct graph_test {
    struct bed bed;
    PEER_Comm comms[2];
    struct reference refs[PEER_N_DATATYPES];
    struct trial trials[CALLS];
    struct trial_buffers buffers[CALLS], eager;
    uint64_t random;
};

/* What a body captures: calls first .. first+n-1. */
struct body {
    struct graph_test *t;
    int first, n;
};

static uint64_t draw(struct graph_test *t, uint64_t below)
{
    t->random = reference_mix(t->random);
    return t->random % below;
}

static PEER_Comm comm_of(struct graph_test *t, int call)
{
    return t->comms[call % 3 == 2];
}

static void make_calls(void *arg)
{
    struct body *body = arg;
    struct graph_test *t = body->t;
    for (int i = body->first; i < body->first + body->n; i++) {
        TEST_OK(trial_start(&t->buffers[i], comm_of(t, i)));
        if (i == 3)
            TEST_OK(PEER_Barrier(comm_of(t, i), t->bed.stream));
    }
}

static void open_test(struct graph_test *t, int rank, int size)
{
    static const struct {
        PEER_Datatype type;
        PEER_Op op;
        size_t count;
    } calls[CALLS] = {{PEER_BFLOAT16, PEER_SUM, 21504}, {PEER_BFLOAT16, PEER_SUM, 7},
                      {PEER_FLOAT32, PEER_SUM, 9000},   {PEER_FLOAT16, PEER_SUM, 1},
                      {PEER_INT64, PEER_MAX, 1025},     {PEER_FLOAT64, PEER_MIN, 5000},
                      {PEER_INT32, PEER_SUM, 33},       {PEER_FLOAT32, PEER_MAX, 1023}};
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_make(&t->refs[type], (PEER_Datatype)type, 23, rank, size, ELEMENTS);
    t->comms[0] = trial_create(MPI_COMM_WORLD, "transport=ipc");
    t->comms[1] = trial_create(MPI_COMM_WORLD, "transport=ipc staging_bytes=16K blocks=3");
    bed_open(&t->bed, t->comms[0]);
    for (int i = 0; i < CALLS; i++) {
        t->trials[i] = (struct trial){.ref = &t->refs[calls[i].type],
                                      .op = calls[i].op,
                                      .count = calls[i].count,
                                      .send_shift = i % 2,
                                      .recv_shift = i / 2 % 2};
        trial_open(&t->buffers[i], &t->bed, MAX_BYTES);
    }
    trial_open(&t->eager, &t->bed, MAX_BYTES);
}

static void close_test(struct graph_test *t)
{
    trial_close(&t->eager);
    for (int i = 0; i < CALLS; i++)
        trial_close(&t->buffers[i]);
    bed_close(&t->bed);
    trial_free(&t->comms[1]);
    trial_free(&t->comms[0]);
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reference_free(&t->refs[type]);
}

/* New inputs for the body's calls, at the same addresses. */
static void change_inputs(struct graph_test *t, const struct body *body)
{
    for (int i = body->first; i < body->first + body->n; i++) {
        t->trials[i].first = draw(t, ELEMENTS - t->trials[i].count + 1);
        trial_prepare(&t->buffers[i], &t->trials[i]);
    }
}

static void check(struct graph_test *t, const struct body *body)
{
    bed_sync(&t->bed);
    for (int i = body->first; i < body->first + body->n; i++)
        trial_check(&t->buffers[i]);
}

/* Puts a call of a size that no graph has on the stream, to be checked when the stream has ended. */
static void start_eager(struct graph_test *t)
{
    struct trial trial = {.ref = &t->refs[draw(t, PEER_N_DATATYPES)]};
    trial.op = reference_op(trial.ref->type, draw(t, PEER_N_OPS));
    trial.count = draw(t, MAX_BYTES / (trial.ref->element > 1 ? trial.ref->element : 2));
    trial.place = (enum trial_place)draw(t, 3);
    trial_prepare(&t->eager, &trial);
    TEST_OK(trial_start(&t->eager, t->comms[draw(t, 2)]));
}

static int replay(struct graph_test *t, struct bed_graph *graph, const struct body *body, int most)
{
    int more = (int)draw(t, (uint64_t)most);
    change_inputs(t, body);
    bed_launch(&t->bed, graph);
    check(t, body);
    start_eager(t);
    for (int i = 0; i < more; i++)
        bed_launch(&t->bed, graph);
    check(t, body);
    trial_check(&t->eager);
    return 1 + more;
}

int main(int argc, char **argv)
{
    static struct graph_test t = {.random = 5};
    struct body one = {&t, 0, 1}, many = {&t, 1, CALLS - 1};
    int rank, size, done = 0;
    trial_begin(&argc, &argv, &rank, &size);
    open_test(&t, rank, size);
    change_inputs(&t, &one);
    change_inputs(&t, &many);
    struct bed_graph *graph_of_one = bed_capture(&t.bed, make_calls, &one);
    struct bed_graph *graph_of_many = bed_capture(&t.bed, make_calls, &many);
    while (done < (t.bed.cuda ? REPLAYS_CUDA : REPLAYS_HOST)) {
        done += replay(&t, graph_of_one, &one, t.bed.cuda ? 200 : 20);
        done += replay(&t, graph_of_many, &many, t.bed.cuda ? 100 : 10);
    }
    for (int i = 0; i < 2; i++) {
        int status = PEER_ERR_INTERNAL;
        TEST_OK(PEER_Comm_get_async_error(t.comms[i], &status));
        TEST_OK(status);
    }
    bed_graph_free(&t.bed, graph_of_one);
    bed_graph_free(&t.bed, graph_of_many);
    close_test(&t);
    MPI_Finalize();
    test_pass();
}
