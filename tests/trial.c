/* trial.c: see trial.h. */
#include <stdlib.h>
#include <string.h>

#include "trial.h"
#include "test.h"

#define GUARD     128 /* bytes on each side of a message; keeps the alignment */
#define MAX_SHIFT 64  /* bytes */

/* ---- Communicators -------------------------------------------------------------------------------------- */

void trial_begin(int *argc, char ***argv, int *rank, int *size)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    test_rank = *rank;
}

int trial_try_create(MPI_Comm mpi, const char *settings, PEER_Comm *comm)
{
    char words[512], *rest = words, *word;
    MPI_Info info;
    MPI_Info_create(&info);
    TEST_TRUE(strlen(settings) < sizeof words);
    strcpy(words, settings);
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (*word == '\0')
            continue;
        TEST_TRUE(value != NULL);
        *value++ = '\0';
        MPI_Info_set(info, word, value);
    }
    int status = PEER_Comm_create(mpi, info, comm);
    MPI_Info_free(&info);
    return status;
}

PEER_Comm trial_create(MPI_Comm mpi, const char *settings)
{
    PEER_Comm comm = PEER_COMM_NULL;
    TEST_OK(trial_try_create(mpi, settings, &comm));
    TEST_TRUE(comm != PEER_COMM_NULL);
    return comm;
}

void trial_free(PEER_Comm *comm)
{
    TEST_OK(PEER_Comm_free(comm));
    TEST_TRUE(*comm == PEER_COMM_NULL);
}

const char *trial_algorithm(int i)
{
    static const char *const names[] = {
        "oneshot.line",      "oneshot.ll",        "oneshot.flag",      "twoshot.line",
        "twoshot.ll",        "twoshot.flag",      "oneshot.line.pull", "oneshot.ll.pull",
        "oneshot.flag.pull", "twoshot.line.pull", "twoshot.ll.pull",   "twoshot.flag.pull",
        "staged.flag",       "island.line",       "island.ll",         "island.flag"};
    _Static_assert(sizeof names / sizeof *names == TRIAL_ALGORITHMS, "a name for each");
    _Static_assert(PEER_N_ALGORITHMS == 4 &&
                       2 * PEER_N_PROTOCOLS * PEER_N_DIRECTIONS + 1 + PEER_N_PROTOCOLS == TRIAL_ALGORITHMS,
                   "all that there are: staged has one form, island no pull");
    return names[i];
}

struct reference_order trial_order(int i, int size)
{
    struct reference_order order = {0};
    for (int r = 0; i >= TRIAL_ISLAND && size > 1 && r < size; r++) {
        const int islands[PEER_N_PROTOCOLS] = {r >= (size + 1) / 2, r > 0, r % 3};
        order.island[r] = (uint8_t)islands[i - TRIAL_ISLAND];
        if (order.island[r] >= order.islands)
            order.islands = order.island[r] + 1;
    }
    return order;
}

const char *trial_settings(int i, int size)
{
    static char text[128];
    const struct reference_order order = trial_order(i, size);
    int length =
        snprintf(text, sizeof text, "algorithm=%s%s", trial_algorithm(i), i < TRIAL_PUSHED ? ".push" : "");
    for (int r = 0; order.islands > 0 && r < size; r++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%d", r == 0 ? " islands=" : ",",
                           order.island[r]);
    return text;
}

void trial_set_algorithm(int i, struct peer_call *call)
{
    call->algorithm = (uint32_t)(i % TRIAL_PUSHED / PEER_N_PROTOCOLS);
    call->protocol = (uint32_t)(i % PEER_N_PROTOCOLS);
    call->pull_one = call->pull_all = i >= TRIAL_PUSHED && i < TRIAL_STAGED;
    if (i == TRIAL_STAGED) {
        call->algorithm = PEER_ALGO_STAGED;
        call->protocol = PEER_PROTO_FLAG;
    } else if (i >= TRIAL_ISLAND) {
        call->algorithm = PEER_ALGO_ISLAND;
        call->protocol = (uint32_t)(i - TRIAL_ISLAND);
    }
}

const char *trial_info(PEER_Comm comm, const char *key)
{
    static char value[MPI_MAX_INFO_VAL + 1];
    int found = 0;
    MPI_Info info;
    TEST_OK(PEER_Comm_get_info(comm, &info));
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&info);
    TEST_TRUE(found);
    return value;
}

/* ---- Trials --------------------------------------------------------------------------------------------- */

static size_t room(const struct trial_buffers *t)
{
    return GUARD + MAX_SHIFT + t->capacity + GUARD;
}

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes);
    TEST_TRUE(p != NULL);
    return p;
}

void trial_open(struct trial_buffers *t, struct bed *bed, size_t capacity)
{
    *t = (struct trial_buffers){.bed = bed, .capacity = capacity};
    t->send = bed_alloc(bed, room(t));
    t->recv = bed_alloc(bed, room(t));
    t->sent = must_alloc(room(t));
    t->wanted = must_alloc(room(t));
    t->got = must_alloc(room(t));
}

void trial_close(struct trial_buffers *t)
{
    bed_free(t->bed, t->send);
    bed_free(t->bed, t->recv);
    free(t->sent);
    free(t->wanted);
    free(t->got);
}

static size_t bytes_of(const struct trial *what)
{
    return what->count * what->ref->element;
}

static size_t send_offset(const struct trial *what)
{
    return GUARD + what->send_shift * what->ref->element;
}

static size_t recv_offset(const struct trial *what)
{
    return GUARD + what->recv_shift * what->ref->element;
}

/* Fills an image with guard bytes that depend on their place, and `bytes` of data in the middle, if any. */
static void draw(unsigned char *image, unsigned salt, size_t offset, const void *data, size_t bytes)
{
    for (size_t i = 0; i < offset + bytes + GUARD; i++)
        image[i] = (unsigned char)(i * 7 + salt);
    if (data != NULL)
        memcpy(image + offset, data, bytes);
}

void trial_prepare(struct trial_buffers *t, const struct trial *what)
{
    const struct reference *ref = what->ref;
    size_t bytes = bytes_of(what), skip = what->first * ref->element;
    size_t send_at = send_offset(what), recv_at = recv_offset(what);
    TEST_TRUE(what->first + what->count <= ref->count && bytes <= t->capacity);
    TEST_TRUE(reference_legal(ref->type, what->op));
    TEST_TRUE(what->send_shift * ref->element <= MAX_SHIFT && what->recv_shift * ref->element <= MAX_SHIFT);
    t->now = *what;
    draw(t->sent, 0x5b, send_at, ref->input + skip, bytes);
    bed_put(t->bed, t->send, t->sent, send_at + bytes + GUARD);
    draw(t->wanted, 0xa6, recv_at, what->place == TRIAL_OUT_OF_PLACE ? NULL : ref->input + skip, bytes);
    bed_put(t->bed, t->recv, t->wanted, recv_at + bytes + GUARD);
    memcpy(t->wanted + recv_at, ref->result[what->op] + skip, bytes);
}

int trial_start(struct trial_buffers *t, PEER_Comm comm)
{
    const struct trial *what = &t->now;
    const void *send = t->send + send_offset(what);
    void *recv = t->recv + recv_offset(what);
    if (what->place == TRIAL_IN_PLACE)
        send = PEER_IN_PLACE;
    if (what->place == TRIAL_SAME_POINTER)
        send = recv;
    return PEER_Allreduce(send, recv, what->count, what->ref->type, what->op, comm, t->bed->stream);
}

_Noreturn static void fail(const struct trial_buffers *t, const char *what)
{
    const struct trial *c = &t->now;
    test_begin_failure(__FILE__, __LINE__);
    fprintf(stderr, "%s, in an all-reduce of %zu %s, %s, place %d, shifts %zu and %zu", what, c->count,
            peer_datatype_name(c->ref->type), peer_op_name(c->op), (int)c->place, c->send_shift,
            c->recv_shift);
    test_end_failure();
}

static void print_bytes(char *to, const unsigned char *from, size_t n)
{
    for (size_t i = n; i > 0; i--) /* little endian: the number as one would write it */
        to += sprintf(to, "%02x", from[i - 1]);
}

static void check_result(const struct trial_buffers *t)
{
    const struct trial *c = &t->now;
    const unsigned char *got = t->got + recv_offset(c), *wanted = t->wanted + recv_offset(c);
    size_t i = reference_differ(c->ref->type, got, wanted, c->count);
    char text[160], is[40], should[40];
    if (i == c->count)
        return;
    print_bytes(is, got + i * c->ref->element, c->ref->element);
    print_bytes(should, wanted + i * c->ref->element, c->ref->element);
    snprintf(text, sizeof text, "element %zu is 0x%s, should be 0x%s", i, is, should);
    fail(t, text);
}

void trial_check(struct trial_buffers *t)
{
    const struct trial *c = &t->now;
    size_t bytes = bytes_of(c), send_at = send_offset(c), recv_at = recv_offset(c);
    bed_get(t->bed, t->got, t->send, send_at + bytes + GUARD);
    if (memcmp(t->got, t->sent, send_at + bytes + GUARD) != 0)
        fail(t, "the send buffer or what is around it has changed");
    bed_get(t->bed, t->got, t->recv, recv_at + bytes + GUARD);
    if (memcmp(t->got, t->wanted, recv_at) != 0)
        fail(t, "bytes before the receive buffer have changed");
    if (memcmp(t->got + recv_at + bytes, t->wanted + recv_at + bytes, GUARD) != 0)
        fail(t, "bytes after the receive buffer have changed");
    check_result(t);
    for (size_t i = 0; i < bytes; i++)
        t->digest = t->digest * 1099511628211u + t->got[recv_at + i];
}

void trial_run(struct trial_buffers *t, const struct trial *what, PEER_Comm comm)
{
    trial_prepare(t, what);
    TEST_OK(trial_start(t, comm));
    bed_sync(t->bed);
    trial_check(t);
}

void trial_agree(struct trial_buffers *t, MPI_Comm mpi)
{
    unsigned long long mine = t->digest, least, most;
    MPI_Allreduce(&mine, &least, 1, MPI_UNSIGNED_LONG_LONG, MPI_MIN, mpi);
    MPI_Allreduce(&mine, &most, 1, MPI_UNSIGNED_LONG_LONG, MPI_MAX, mpi);
    TEST_TRUE(least == most);
}
