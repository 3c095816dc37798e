/* collective_layout.c: what a collective takes and gives, for one rank: which elements of whose input lie
 * where before and after it (collective.h). A rank's message is the elements first, first+1, ... of its input;
 * blocks are cut from it one after the other, wherever in the buffer they lie. */
#include "collective.h"
#include "test.h"

#define MAX_GAP 5 /* elements */

bool coll_is_reduction(enum coll_kind kind)
{
    return kind <= COLL_REDUCE_SCATTER;
}

bool coll_has_root(enum coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_BCAST || kind == COLL_GATHER || kind == COLL_SCATTER;
}

bool coll_has_counts(enum coll_kind kind)
{
    return kind == COLL_ALLGATHERV || kind == COLL_ALLTOALLV || kind == COLL_REDUCE_SCATTER;
}

bool coll_has_blocks(enum coll_kind kind)
{
    return kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BCAST;
}

/* Elements of the block that rank `from` has for rank `to`, or, where there is one list of blocks, of number
 * `from`. */
static size_t count_of(const struct coll_call *call, int from, int to)
{
    if (!coll_has_counts(call->kind))
        return call->count;
    return call->counts[from][call->kind == COLL_ALLTOALLV ? to : 0];
}

/* Where block number `block` begins in the message of rank `from`. */
static size_t message_at(const struct coll_call *call, int from, int block)
{
    size_t at = 0;
    for (int b = 0; b < block; b++)
        at += call->kind == COLL_ALLTOALLV ? count_of(call, from, b) : count_of(call, b, 0);
    return at;
}

/* ---- Places --------------------------------------------------------------------------------------------- */

static bool is_symmetric(const struct coll_call *call, int rank, int size)
{
    for (int r = 0; r < size; r++)
        if (call->counts[rank][r] != call->counts[r][rank])
            return false;
    return true;
}

static bool may_be_in_place(const struct coll_call *call, int rank, int size)
{
    if (call->kind == COLL_BCAST)
        return false;
    if (coll_has_root(call->kind))
        return rank == call->root;
    return call->kind != COLL_ALLTOALLV || is_symmetric(call, rank, size);
}

void coll_settle_place(struct coll_call *call, int rank, int size)
{
    bool has_own_block =
        coll_has_blocks(call->kind) && call->kind != COLL_ALLTOALL && call->kind != COLL_ALLTOALLV;
    if (!may_be_in_place(call, rank, size))
        call->place = COLL_OUT_OF_PLACE;
    else if (call->place == COLL_OWN_BLOCK && !has_own_block)
        call->place = COLL_SAME_POINTER;
}

/* ---- Displacements -------------------------------------------------------------------------------------- */

uint64_t coll_draw(uint64_t *random, uint64_t below)
{
    *random = reference_mix(*random);
    return *random % below;
}

static void draw_order(int *order, int n, enum coll_order how, uint64_t *random)
{
    for (int i = 0; i < n; i++)
        order[i] = how == COLL_REVERSED ? n - 1 - i : i;
    for (int i = n - 1; how == COLL_SHUFFLED && i > 0; i--) {
        int other = (int)coll_draw(random, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* Of n blocks in the call's order. Empty blocks get a place inside others. */
static void draw_displs(const struct coll_call *call, uint64_t salt, int n, const size_t *counts,
                        size_t *displs)
{
    uint64_t random = reference_mix(call->seed) + salt;
    int order[PEER_MAX_PEERS];
    size_t at = 0;
    draw_order(order, n, call->order, &random);
    for (int i = 0; i < n; i++) {
        if (call->order != COLL_PACKED)
            at += coll_draw(&random, MAX_GAP + 1);
        displs[order[i]] = counts[order[i]] > 0 ? at : at / 2;
        at += counts[order[i]];
    }
}

/* Counts and displacements of the blocks to send and to receive, as far as the call has blocks. */
static void set_blocks(struct coll_layout *l, const struct coll_call *call, int rank, int size)
{
    for (int r = 0; r < size; r++) {
        bool each = call->kind == COLL_ALLTOALLV;
        l->send_counts[r] = each ? count_of(call, rank, r) : count_of(call, r, 0);
        l->recv_counts[r] = each ? count_of(call, r, rank) : count_of(call, r, 0);
        l->send_displs[r] = l->recv_displs[r] = message_at(call, rank, r);
    }
    if (call->kind == COLL_ALLTOALLV)
        draw_displs(call, 2 * (uint64_t)rank, size, l->send_counts, l->send_displs);
    if (call->kind == COLL_ALLTOALLV || call->kind == COLL_ALLGATHERV)
        draw_displs(call, 2 * (uint64_t)rank + 1, size, l->recv_counts, l->recv_displs);
}

/* ---- From a call to its blocks, out of place ------------------------------------------------------------ */

static void add(struct coll_blocks *blocks, size_t at, size_t count, int from, size_t first)
{
    TEST_TRUE(blocks->n < PEER_MAX_PEERS);
    blocks->block[blocks->n++] = (struct coll_block){at, count, from, first};
}

/* Allreduce, Reduce, Bcast. */
static void lay_out_whole(struct coll_layout *l, const struct coll_call *call, int rank)
{
    if (call->kind == COLL_BCAST) {
        if (rank == call->root)
            add(&l->before, 0, call->count, call->root, call->first);
        add(&l->after, 0, call->count, call->root, call->first);
        return;
    }
    add(&l->send, 0, call->count, rank, call->first);
    if (call->kind == COLL_ALLREDUCE || rank == call->root)
        add(&l->after, 0, call->count, INPUTS_COMBINED, call->first);
}

/* Allgather, Allgatherv, Gather. */
static void lay_out_gather(struct coll_layout *l, const struct coll_call *call, int rank, int size)
{
    add(&l->send, 0, l->recv_counts[rank], rank, call->first);
    for (int r = 0; r < size && (call->kind != COLL_GATHER || rank == call->root); r++)
        add(&l->after, l->recv_displs[r], l->recv_counts[r], r, call->first);
}

/* Reduce_scatter_block, Reduce_scatter, Scatter. */
static void lay_out_scatter(struct coll_layout *l, const struct coll_call *call, int rank, int size)
{
    bool scatter = call->kind == COLL_SCATTER;
    if (!scatter || rank == call->root)
        add(&l->send, 0, message_at(call, rank, size), rank, call->first);
    add(&l->after, 0, l->send_counts[rank], scatter ? call->root : INPUTS_COMBINED,
        call->first + l->send_displs[rank]);
}

/* Alltoall, Alltoallv. */
static void lay_out_alltoall(struct coll_layout *l, const struct coll_call *call, int rank, int size)
{
    for (int r = 0; r < size; r++) {
        add(&l->send, l->send_displs[r], l->send_counts[r], rank, call->first + message_at(call, rank, r));
        add(&l->after, l->recv_displs[r], l->recv_counts[r], r, call->first + message_at(call, r, rank));
    }
}

/* ---- In place ------------------------------------------------------------------------------------------- */

/* The input moves into the receive buffer: to this rank's own block, or to where the call's blocks lie. */
static void move_input(struct coll_layout *l, const struct coll_call *call, int rank)
{
    l->before = l->send;
    l->send.n = 0;
    if (call->kind == COLL_ALLGATHER || call->kind == COLL_ALLGATHERV || call->kind == COLL_GATHER)
        l->before.block[0].at = l->recv_displs[rank];
    for (int b = 0; b < l->before.n && call->kind == COLL_ALLTOALLV; b++)
        l->before.block[b].at = l->recv_displs[b];
}

static void put_in_place(struct coll_layout *l, const struct coll_call *call, int rank)
{
    bool own = call->place == COLL_OWN_BLOCK;
    if (call->kind == COLL_SCATTER) { /* the root's own block stays where it is */
        l->after.n = 0;
        l->recvbuf = (struct coll_pointer){COLL_SEND_BUFFER, own ? l->send_displs[rank] : 0};
        if (call->place == COLL_IN_PLACE)
            l->recvbuf.base = COLL_IN_PLACE_POINTER;
        return;
    }
    move_input(l, call, rank);
    l->in_place = true;
    l->sendbuf =
        (struct coll_pointer){call->place == COLL_IN_PLACE ? COLL_IN_PLACE_POINTER : COLL_RECV_BUFFER,
                              own ? l->before.block[0].at : 0};
    if (call->kind == COLL_REDUCE_SCATTER_BLOCK || call->kind == COLL_REDUCE_SCATTER) {
        size_t result = l->after.block[0].count, at = own ? l->send_displs[rank] : 0;
        l->recvbuf.at = l->after.block[0].at = at;
        if (at == 0) { /* the same pointer, or as good as that: what is not the result is undefined */
            l->undefined_at = result;
            l->undefined_count = l->before.block[0].count - result;
        }
    }
}

/* ---- All of it ------------------------------------------------------------------------------------------ */

static size_t extent(const struct coll_blocks *blocks)
{
    size_t end = 0;
    for (int b = 0; b < blocks->n; b++)
        if (blocks->block[b].count > 0 && blocks->block[b].at + blocks->block[b].count > end)
            end = blocks->block[b].at + blocks->block[b].count;
    return end;
}

void coll_lay_out(struct coll_layout *l, const struct coll_call *call, int rank, int size)
{
    size_t before, after;
    *l = (struct coll_layout){.sendbuf = {COLL_SEND_BUFFER, 0}, .recvbuf = {COLL_RECV_BUFFER, 0}};
    if (coll_has_blocks(call->kind))
        set_blocks(l, call, rank, size);
    if (!coll_has_blocks(call->kind))
        lay_out_whole(l, call, rank);
    else if (call->kind == COLL_ALLTOALL || call->kind == COLL_ALLTOALLV)
        lay_out_alltoall(l, call, rank, size);
    else if (call->kind == COLL_SCATTER || coll_is_reduction(call->kind))
        lay_out_scatter(l, call, rank, size);
    else
        lay_out_gather(l, call, rank, size);

    if (coll_has_root(call->kind) && rank != call->root) {
        if (call->kind == COLL_SCATTER)
            l->sendbuf.base = COLL_UNUSED;
        else if (call->kind != COLL_BCAST)
            l->recvbuf.base = COLL_UNUSED;
    }
    if (call->place != COLL_OUT_OF_PLACE)
        put_in_place(l, call, rank);
    before = extent(&l->before);
    after = extent(&l->after);
    l->send_extent = extent(&l->send);
    l->recv_extent = before > after ? before : after;
}
