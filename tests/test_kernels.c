/* test_kernels: whole calls through the host kernels of each instruction set that this CPU has; a communicator
 * uses the best one only. The ranks are threads of this program, their slabs plain memory, so that nothing but
 * the kernels runs: every datatype, operation, algorithm and protocol, in one piece and in several, with plain
 * and with streaming stores, and the barrier. Kernels in the shape of a GPU's run first: they
 * move several packs at once where these are whole. */
#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "trial.h"
#include "test.h"

#define RANKS      3
#define MAX_TEAMS  3
#define MAX_BLOCKS 3
#define MAX_COUNT  3000
#define EVEN_COUNT 1536 /* whole packs of every datatype and protocol */
#define GUARD      64   /* bytes before and behind what kernels write to, which stay as they are */
#define UNTOUCHED  0x5b

struct group {
    const struct peer_host_kernels *kernels;
    uint64_t staging;
    struct peer_control control;
    char *slab[RANKS];
    struct peer_states *state[RANKS];
    uint32_t grouping; /* of `groupings` */
    struct reference refs[4][RANKS]
                         [PEER_N_DATATYPES]; /* for each of them; of FLAT are the flat order's too */
};

/* Two ranks are a grouping of their own. */
#define FLAT 2
#define PAIR 3

static const struct reference_order groupings[] = {
    {2, {0, 0, 1}}, {2, {0, 1, 0}}, {3, {0, 1, 2}}, {2, {0, 1}}};

extern const struct peer_host_kernels peer_host_kernels_likegpu;

static int ranks_of(uint32_t grouping)
{
    return grouping == PAIR ? 2 : RANKS;
}

struct rank {
    struct group *group;
    uint32_t pull; /* bit 0: what one shall read, bit 1: what all shall */
    uint32_t number;
    uint32_t algorithm, protocol;
    struct peer_pace pace;
    unsigned calls;
    unsigned
        wrong; /* calls with another result than the reference's, or that did not wait as long as they must */
};

static void set_guards(unsigned char *p, size_t bytes)
{
    memset(p - GUARD, UNTOUCHED, GUARD);
    memset(p + bytes, UNTOUCHED, GUARD);
}

/* Bytes of the guards that are not as they were. */
static unsigned hurt_guards(const unsigned char *p, size_t bytes)
{
    unsigned hurt = 0;
    for (size_t i = 0; i < GUARD; i++)
        hurt += (p[-1 - (ptrdiff_t)i] != UNTOUCHED) + (p[bytes + i] != UNTOUCHED);
    return hurt;
}

static void *must_alloc(size_t bytes)
{
    unsigned char *p = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    TEST_TRUE(p != NULL);
    p += GUARD;
    memset(p, 0, bytes);
    set_guards(p, bytes);
    return p;
}

static void check_and_free(void *p, size_t bytes)
{
    TEST_INT(hurt_guards(p, bytes), 0);
    free((unsigned char *)p - GUARD);
}

/* Epochs begin at 1, so that the zeros in the slab are a tag that has passed. */
static void open_group(struct group *g)
{
    for (int r = 0; r < RANKS; r++) {
        g->slab[r] = must_alloc(PEER_SLAB_BYTES(g->staging));
        g->state[r] = must_alloc(sizeof *g->state[r]);
        for (int i = 0; i < PEER_MAX_BLOCKS; i++)
            g->state[r]->copy[i] = (struct peer_state){.epoch = 1};
    }
}

static void close_group(struct group *g)
{
    for (int r = 0; r < RANKS; r++) {
        check_and_free(g->slab[r], PEER_SLAB_BYTES(g->staging));
        check_and_free(g->state[r], sizeof *g->state[r]);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* When a call may end at the earliest, since its last look is put off so long. */
static uint64_t least_ns(const struct peer_call *call)
{
    const bool lines = call->kernel == PEER_KERNEL_ALLREDUCE && call->protocol != PEER_PROTO_FLAG;
    const uint64_t ns = (uint64_t)call->npieces * call->wire_ns;
    if (lines && call->algorithm == PEER_ALGO_ONESHOT)
        return ns;
    if (lines && call->algorithm == PEER_ALGO_TWOSHOT)
        return ns + (call->pull_all ? call->npieces * (uint64_t)(call->wire_ns / (call->nranks - 1)) : ns);
    return 0;
}

static void launch(struct rank *me, struct peer_call *call)
{
    struct group *g = me->group;
    const uint32_t element = (uint32_t)reference_element((PEER_Datatype)call->datatype);
    call->rank = me->number;
    call->nranks = (uint32_t)ranks_of(g->grouping);
    call->algorithm = me->algorithm;
    call->protocol = me->protocol;
    call->pull_one = me->pull & 1;
    call->pull_all = me->pull >> 1;
    call->pieces = me->calls % 3 == 0 ? 5 : 1;
    call->blocks = 1 + me->calls / 5 % MAX_BLOCKS;
    call->threads = 1;
    call->spin = 10;
    call->copies = (1 + MAX_TEAMS) * MAX_BLOCKS;
    call->rotate = me->calls % 2 * g->staging;
    call->pace = &me->pace;
    call->staging = g->staging;
    call->timeout_ns = 30000000000u;
    call->state = g->state[me->number];
    call->control = &g->control;
    for (int r = 0; r < RANKS; r++)
        call->slab[r] = g->slab[r];
    peer_set_islands(call, groupings[g->grouping].island, (uint32_t)groupings[g->grouping].islands);
    peer_set_geometry(call, element, g->kernels->vector_bytes);
    call->even =
        call->count_bytes % peer_pack_of(call->protocol, element, g->kernels->vector_bytes).data == 0;
    if (call->algorithm <= PEER_ALGO_TWOSHOT && call->protocol == PEER_PROTO_FLAG && me->calls % 2 &&
        call->npieces > 1 && call->ring >= call->npieces)
        call->teams = 1 + me->calls / 2 % MAX_TEAMS;
    call->wire_ns = me->calls % 7 == 5 ? 20000 : 0;
    const uint64_t begin = now_ns();
    g->kernels->launch(call);
    me->wrong += now_ns() - begin < least_ns(call);
    me->calls++;
}

static void reduce(struct rank *me, PEER_Datatype type, PEER_Op op, size_t count)
{
    static _Thread_local alignas(64) unsigned char room[GUARD + MAX_COUNT * 16 + GUARD];
    unsigned char *const result = room + GUARD;
    const struct reference *ref = &me->group->refs[me->group->grouping][me->number][type];
    size_t skip = me->calls / 3 % 2 * (me->calls * 7 % (MAX_COUNT - count + 1)) * ref->element;
    uintptr_t address = (uintptr_t)(ref->input + skip) | (uintptr_t)result | 64;
    struct peer_call call = {.collective = PEER_COLL_ALLREDUCE,
                             .kernel = PEER_KERNEL_ALLREDUCE,
                             .keep = 1,
                             .datatype = type,
                             .op = op,
                             .sendbuf = ref->input + skip,
                             .recvbuf = result,
                             .count = count,
                             .count_bytes = count * ref->element,
                             .align = (uint32_t)(address & -address)};
    const size_t bytes = count * ref->element;
    memset(result, UNTOUCHED, bytes);
    set_guards(result, bytes);
    launch(me, &call);
    me->wrong += reference_differ(type, result, ref->result[op] + skip, count) < count;
    me->wrong += hurt_guards(result, bytes);
}

/* Two operations for each count, in turn; and SUM, where there is one, of whole packs. */
static void *run_rank(void *arg)
{
    static const size_t counts[] = {1, 2, 3, 7, 8, 33, 600, MAX_COUNT};
    struct rank *me = arg;
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        for (size_t i = 0; i < 2 * (sizeof counts / sizeof *counts); i++)
            reduce(me, (PEER_Datatype)type, reference_op((PEER_Datatype)type, me->calls), counts[i / 2]);
    for (int type = 0; type < PEER_N_DATATYPES; type++)
        reduce(me, (PEER_Datatype)type, reference_op((PEER_Datatype)type, 0), EVEN_COUNT);
    struct peer_call barrier = {.collective = PEER_COLL_BARRIER, .kernel = PEER_KERNEL_BARRIER};
    launch(me, &barrier);
    return NULL;
}

static void run(struct group *g, const char *name, uint32_t algorithm, uint32_t protocol, uint32_t pull,
                uint32_t streamed)
{
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    const int n = ranks_of(g->grouping);
    open_group(g);
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.group = g,
                                 .number = (uint32_t)r,
                                 .algorithm = algorithm,
                                 .protocol = protocol,
                                 .pull = pull,
                                 .pace.streamed = r == 0 ? 0 : streamed};
        TEST_INT(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++)
        TEST_INT(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < n; r++)
        if (ranks[r].wrong > 0) {
            test_begin_failure(__FILE__, __LINE__);
            fprintf(stderr, "%s, algorithm %u, protocol %u, pull %u: %u calls are wrong on thread %d", name,
                    algorithm, protocol, pull, ranks[r].wrong, r);
            test_end_failure();
        }
    TEST_INT(g->control.failed, PEER_SUCCESS);
    close_group(g);
}

/* Staging that takes a few pieces for the larger counts, and staging in which calls take turns. */
static void run_variant(struct group *g, const char *name, const struct peer_host_kernels *kernels)
{
    static const uint64_t staging[] = {16 << 10, 256 << 10};
    g->kernels = kernels;
    g->grouping = FLAT;
    for (uint32_t i = 0; i < 4 * TRIAL_PUSHED; i++) {
        uint32_t algorithm = i / 4;
        g->staging = staging[i % 2];
        for (uint32_t pull = 0; pull < 4; pull++)
            run(g, name, algorithm / PEER_N_PROTOCOLS, algorithm % PEER_N_PROTOCOLS, pull,
                i / 2 % 2 * 1000000);
        run(g, name, PEER_ALGO_STAGED, PEER_PROTO_FLAG, 0, i / 2 % 2 * 1000000);
        for (g->grouping = 0; g->grouping < FLAT; g->grouping++)
            run(g, name, PEER_ALGO_ISLAND, i / 2 % PEER_N_PROTOCOLS, 0, 0);
        run(g, name, PEER_ALGO_ISLAND, i / 2 % PEER_N_PROTOCOLS, 0, 0);
        g->grouping = PAIR;
        run(g, name, algorithm / PEER_N_PROTOCOLS, algorithm % PEER_N_PROTOCOLS, i % 4, 0);
        g->grouping = FLAT;
    }
}

int main(void)
{
    static struct group g;
    for (uint32_t k = 0; k <= PAIR; k++)
        for (int r = 0; r < ranks_of(k); r++)
            for (int type = 0; type < PEER_N_DATATYPES; type++)
                reference_make_in(&groupings[k], &g.refs[k][r][type], (PEER_Datatype)type, 51, r, ranks_of(k),
                                  MAX_COUNT);
    run_variant(&g, "as on a GPU", &peer_host_kernels_likegpu);
    run_variant(&g, "base", &peer_host_kernels_base);
#ifdef PEER_HAVE_ISA_VARIANTS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        run_variant(&g, "avx2", &peer_host_kernels_avx2);
    if (peer_host_kernels() == &peer_host_kernels_avx512)
        run_variant(&g, "avx512", &peer_host_kernels_avx512);
#endif
    for (uint32_t k = 0; k <= PAIR; k++)
        for (int r = 0; r < ranks_of(k); r++)
            for (int type = 0; type < PEER_N_DATATYPES; type++)
                reference_free(&g.refs[k][r][type]);
    test_pass();
}
