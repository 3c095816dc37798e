/* collective.c: the buffers of a trial, the call itself, and the comparison of all bytes (collective.h). */
#include "collective.h"
#include "test.h"
#include "trial.h"

#define GUARD     128 /* bytes on each side of a buffer; keeps the alignment */
#define MAX_SHIFT 64  /* bytes */

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes);
    TEST_TRUE(p != NULL);
    return p;
}

size_t coll_room(size_t capacity)
{
    return GUARD + MAX_SHIFT + capacity + GUARD;
}

void coll_open(struct coll_trial *t, struct bed *bed, size_t capacity)
{
    size_t room = coll_room(capacity);
    *t = (struct coll_trial){.bed = bed, .capacity = capacity};
    t->send = bed_alloc(bed, room);
    t->recv = bed_alloc(bed, room);
    t->sent = must_alloc(room);
    t->wanted = must_alloc(room);
    t->got = must_alloc(room);
    t->filling = must_alloc(room);
    for (size_t i = 0; i < room; i++)
        t->filling[i] = (unsigned char)reference_mix(i);
}

void coll_close(struct coll_trial *t)
{
    bed_free(t->bed, t->send);
    bed_free(t->bed, t->recv);
    free(t->sent);
    free(t->wanted);
    free(t->got);
    free(t->filling);
}

/* ---- Buffers -------------------------------------------------------------------------------------------- */

static size_t element_of(const struct coll_trial *t)
{
    return reference_element(t->now.type);
}

/* Offsets in bytes of element `at` of the two buffers, and the bytes of an image that are in use. */
static size_t send_offset(const struct coll_trial *t, size_t at)
{
    return GUARD + (t->now.send_shift + at) * element_of(t);
}

static size_t recv_offset(const struct coll_trial *t, size_t at)
{
    return GUARD + (t->now.recv_shift + at) * element_of(t);
}

static size_t send_image_bytes(const struct coll_trial *t)
{
    return send_offset(t, t->layout.send_extent) + GUARD;
}

static size_t recv_image_bytes(const struct coll_trial *t)
{
    return recv_offset(t, t->layout.recv_extent) + GUARD;
}

/* Puts blocks into an image; start is where element 0 lies. */
static void draw(const struct coll_trial *t, struct inputs *in, const struct coll_blocks *blocks,
                 unsigned char *start)
{
    for (int b = 0; b < blocks->n; b++) {
        const struct coll_block *block = &blocks->block[b];
        inputs_copy(in, t->now.type, t->now.op, block->from, block->first, block->count,
                    start + block->at * element_of(t));
    }
}

void coll_prepare(struct coll_trial *t, struct inputs *in, int rank, const struct coll_call *call)
{
    size_t element;
    t->now = *call;
    t->rank = rank;
    t->size = in->size;
    coll_settle_place(&t->now, rank, in->size);
    coll_lay_out(&t->layout, &t->now, rank, in->size);
    element = element_of(t);
    TEST_TRUE(t->layout.send_extent * element <= t->capacity &&
              t->layout.recv_extent * element <= t->capacity);
    TEST_TRUE(call->send_shift * element <= MAX_SHIFT && call->recv_shift * element <= MAX_SHIFT);

    memcpy(t->sent, t->filling, send_image_bytes(t));
    draw(t, in, &t->layout.send, t->sent + send_offset(t, 0));
    bed_put(t->bed, t->send, t->sent, send_image_bytes(t));
    for (size_t i = 0; i < recv_image_bytes(t); i++) /* unlike the send buffer's */
        t->wanted[i] = (unsigned char)~t->filling[i];
    draw(t, in, &t->layout.before, t->wanted + recv_offset(t, 0));
    bed_put(t->bed, t->recv, t->wanted, recv_image_bytes(t));
    draw(t, in, &t->layout.after, t->wanted + recv_offset(t, 0));
}

/* ---- The call ------------------------------------------------------------------------------------------- */

/* The argument for one of the buffers; `valid` is what a rank passes that needs none but passes one. */
static void *pointer(const struct coll_trial *t, struct coll_pointer p, unsigned char *valid)
{
    switch (p.base) {
    case COLL_SEND_BUFFER:
        return t->send + send_offset(t, p.at);
    case COLL_RECV_BUFFER:
        return t->recv + recv_offset(t, p.at);
    case COLL_IN_PLACE_POINTER:
        return (void *)PEER_IN_PLACE;
    default:
        return t->now.unused == COLL_UNUSED_VALID  ? valid
               : t->now.unused == COLL_UNUSED_NULL ? NULL
                                                   : (void *)(uintptr_t)1;
    }
}

/* Whether no rank has any element, so that buffers may be NULL. */
static bool is_empty(const struct coll_trial *t)
{
    return t->layout.send_extent == 0 && t->layout.recv_extent == 0 && t->now.count == 0;
}

/* The arrays as the call takes them: copies, which end with it. */
struct arrays {
    size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
};

static size_t *copy_array(const struct coll_trial *t, const size_t *from)
{
    size_t *to = must_alloc((size_t)t->size * sizeof *to);
    memcpy(to, from, (size_t)t->size * sizeof *to);
    return to;
}

static void end_array(const struct coll_trial *t, size_t *array)
{
    if (array != NULL)
        memset(array, 0xee, (size_t)t->size * sizeof *array);
    free(array);
}

/* In place Alltoallv needs no arrays for sending. */
static struct arrays make_arrays(const struct coll_trial *t)
{
    const struct coll_layout *l = &t->layout;
    struct arrays a = {copy_array(t, l->send_counts), copy_array(t, l->send_displs),
                       copy_array(t, l->recv_counts), copy_array(t, l->recv_displs)};
    if (t->now.kind == COLL_ALLTOALLV && l->in_place && t->now.unused != COLL_UNUSED_VALID) {
        end_array(t, a.send_counts);
        end_array(t, a.send_displs);
        a.send_counts = a.send_displs = NULL;
    }
    return a;
}

static int call_collective(const struct coll_trial *t, const void *send, void *recv, const struct arrays *a,
                           PEER_Comm comm, PEER_Stream stream)
{
    const struct coll_call *c = &t->now;
    size_t unused_count = c->unused == COLL_UNUSED_VALID ? a->recv_counts[t->rank] : SIZE_MAX;
    switch (c->kind) {
    case COLL_ALLREDUCE:
        return PEER_Allreduce(send, recv, c->count, c->type, c->op, comm, stream);
    case COLL_REDUCE:
        return PEER_Reduce(send, recv, c->count, c->type, c->op, c->root, comm, stream);
    case COLL_REDUCE_SCATTER_BLOCK:
        return PEER_Reduce_scatter_block(send, recv, c->count, c->type, c->op, comm, stream);
    case COLL_REDUCE_SCATTER:
        return PEER_Reduce_scatter(send, recv, a->recv_counts, c->type, c->op, comm, stream);
    case COLL_BCAST:
        return PEER_Bcast(recv, c->count, c->type, c->root, comm, stream);
    case COLL_ALLGATHER:
        return PEER_Allgather(send, recv, c->count, c->type, comm, stream);
    case COLL_ALLGATHERV:
        return PEER_Allgatherv(send, c->place == COLL_IN_PLACE ? unused_count : a->recv_counts[t->rank], recv,
                               a->recv_counts, a->recv_displs, c->type, comm, stream);
    case COLL_ALLTOALL:
        return PEER_Alltoall(send, recv, c->count, c->type, comm, stream);
    case COLL_ALLTOALLV:
        return PEER_Alltoallv(send, a->send_counts, a->send_displs, recv, a->recv_counts, a->recv_displs,
                              c->type, comm, stream);
    case COLL_GATHER:
        return PEER_Gather(send, recv, c->count, c->type, c->root, comm, stream);
    case COLL_SCATTER:
        return PEER_Scatter(send, recv, c->count, c->type, c->root, comm, stream);
    default:
        return PEER_ERR_INTERNAL;
    }
}

int coll_start(struct coll_trial *t, PEER_Comm comm, PEER_Stream stream)
{
    void *send = pointer(t, t->layout.sendbuf, t->send + send_offset(t, 0));
    void *recv = pointer(t, t->layout.recvbuf, t->recv + recv_offset(t, 0));
    struct arrays a = make_arrays(t);
    int status;
    if (is_empty(t) && t->now.unused == COLL_UNUSED_NULL && !coll_has_counts(t->now.kind))
        send = recv = NULL;
    t->comm = comm;
    status = call_collective(t, send, recv, &a, comm, stream);
    end_array(t, a.send_counts);
    end_array(t, a.send_displs);
    end_array(t, a.recv_counts);
    end_array(t, a.recv_displs);
    return status;
}

/* ---- The comparison ------------------------------------------------------------------------------------- */

static void print_list(const char *name, const size_t *list, int n)
{
    fprintf(stderr, "\n    %s", name);
    for (int i = 0; i < n; i++)
        fprintf(stderr, " %zu", list[i]);
}

_Noreturn static void fail(const struct coll_trial *t, const char *what)
{
    static const char *const names[] = {"Allreduce",      "Reduce",   "Reduce_scatter_block",
                                        "Reduce_scatter", "Bcast",    "Allgather",
                                        "Allgatherv",     "Alltoall", "Alltoallv",
                                        "Gather",         "Scatter"};
    static const char *const places[] = {"out of place", "in place", "same pointer", "own block"};
    const struct coll_call *c = &t->now;
    _Static_assert(sizeof names / sizeof *names == COLL_KINDS, "a name for each");
    test_begin_failure(__FILE__, __LINE__);
    fprintf(stderr, "%s\n    in PEER_%s, rank %d of %d", what, names[c->kind], t->rank, t->size);
    if (coll_has_root(c->kind))
        fprintf(stderr, ", root %d", c->root);
    fprintf(stderr, ", count %zu of %s", c->count, peer_datatype_name(c->type));
    if (coll_is_reduction(c->kind))
        fprintf(stderr, " %s", peer_op_name(c->op));
    fprintf(stderr, ", %s, shifts %zu and %zu, plan \"%s\"", places[c->place], c->send_shift, c->recv_shift,
            trial_info(t->comm, "plan"));
    if (t->note != NULL)
        fprintf(stderr, ", %s", t->note);
    if (coll_has_counts(c->kind)) {
        print_list("send counts", t->layout.send_counts, t->size);
        print_list("send displs", t->layout.send_displs, t->size);
        print_list("recv counts", t->layout.recv_counts, t->size);
        print_list("recv displs", t->layout.recv_displs, t->size);
    }
    test_end_failure();
}

static void print_bytes(char *to, const unsigned char *from, size_t n)
{
    for (size_t i = n; i > 0; i--) /* little endian: the number as one would write it */
        to += sprintf(to, "%02x", from[i - 1]);
}

_Noreturn static void fail_block(const struct coll_trial *t, const struct coll_block *block, size_t i)
{
    size_t element = element_of(t), at = recv_offset(t, block->at + i);
    char text[256], is[40], should[40];
    print_bytes(is, t->got + at, element);
    print_bytes(should, t->wanted + at, element);
    snprintf(text, sizeof text,
             "element %zu of %zu, at %zu of the receive buffer, from rank %d, is 0x%s, should be 0x%s", i,
             block->count, block->at + i, block->from, is, should);
    fail(t, text);
}

/* A combination's bits; a NaN is equal to any NaN. What is moved only must be the same bytes, NaN or not. */
static void check_block(struct coll_trial *t, const struct coll_block *block)
{
    size_t element = element_of(t), bytes = block->count * element, i = 0;
    unsigned char *got = t->got + recv_offset(t, block->at), *wanted = t->wanted + recv_offset(t, block->at);
    if (memcmp(got, wanted, bytes) == 0)
        return;
    if (block->from == INPUTS_COMBINED && t->size > 1)
        i = reference_differ(t->now.type, got, wanted, block->count);
    else
        while (memcmp(got + i * element, wanted + i * element, element) == 0)
            i++;
    if (i < block->count)
        fail_block(t, block, i);
    memcpy(wanted, got, bytes);
}

/* What is left to compare are bytes that must not have changed. */
static void check_untouched(const struct coll_trial *t, const char *buffer, const unsigned char *wanted,
                            size_t bytes, size_t start)
{
    char text[128];
    size_t i = 0;
    if (memcmp(t->got, wanted, bytes) == 0)
        return;
    while (t->got[i] == wanted[i])
        i++;
    snprintf(text, sizeof text, "byte %zd after the begin of the %s buffer has changed from 0x%02x to 0x%02x",
             (ssize_t)(i - start), buffer, wanted[i], t->got[i]);
    fail(t, text);
}

void coll_check(struct coll_trial *t)
{
    const struct coll_layout *l = &t->layout;
    size_t undefined = recv_offset(t, l->undefined_at);
    bed_get(t->bed, t->got, t->send, send_image_bytes(t));
    check_untouched(t, "send", t->sent, send_image_bytes(t), send_offset(t, 0));
    bed_get(t->bed, t->got, t->recv, recv_image_bytes(t));
    for (int b = 0; b < l->after.n; b++)
        check_block(t, &l->after.block[b]);
    memcpy(t->wanted + undefined, t->got + undefined, l->undefined_count * element_of(t));
    check_untouched(t, "receive", t->wanted, recv_image_bytes(t), recv_offset(t, 0));
}

void coll_must_start(struct coll_trial *t, PEER_Comm comm, PEER_Stream stream)
{
    int status = coll_start(t, comm, stream);
    if (status != PEER_SUCCESS)
        fail(t, PEER_Last_error());
}

void coll_run(struct coll_trial *t, struct inputs *in, int rank, const struct coll_call *call, PEER_Comm comm)
{
    coll_prepare(t, in, rank, call);
    coll_must_start(t, comm, t->bed->stream);
    bed_sync(t->bed);
    coll_check(t);
}

void coll_skip(const char *reason)
{
    if (test_rank == 0) {
        printf("SKIP: %s\n", reason);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    exit(77);
}

int coll_main_cuda(int argc, char **argv, const char *settings, const char *no_host,
                   void (*run)(struct bed *bed, PEER_Comm comm, int rank, int size))
{
    struct bed bed;
    PEER_Comm comm;
    bool cuda;
    int rank, size;
    trial_begin(&argc, &argv, &rank, &size);
    if (run == NULL)
        coll_skip("built without CUDA");
    comm = trial_create(MPI_COMM_WORLD, settings);
    bed_open(&bed, comm);
    cuda = bed.cuda;
    if (cuda)
        run(&bed, comm, rank, size);
    bed_close(&bed);
    trial_free(&comm);
    if (!cuda)
        coll_skip(no_host);
    MPI_Finalize();
    test_pass();
}
