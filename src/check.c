/* What can be wrong with a collective call's arguments, found before anything is enqueued. */
#include "internal.h"

#include "peercoll.h"

/* The elements of a buffer that a call touches: from `begin` to before `end`. */
struct extent {
    size_t begin, end;
};

int peer_check_array(const char *name, const size_t *array)
{
    return array != NULL ? PEER_SUCCESS
                         : peer_error(PEER_ERR_ARG, "%s is NULL: it has an entry for each rank", name);
}

static int check_kind(const struct peer_comm *comm, const struct peer_request *q)
{
    if (peer_datatype_bytes(q->datatype) == 0)
        return peer_error(PEER_ERR_TYPE, "%d is no PEER_Datatype", (int)q->datatype);
    if (peer_collective_rooted(q->collective) && (q->root < 0 || q->root >= comm->size))
        return peer_error(PEER_ERR_ROOT, "root is %d, the ranks are 0 to %d", q->root, comm->size - 1);
    if (!peer_request_reduces(q))
        return PEER_SUCCESS;
    if ((unsigned)q->op >= PEER_N_OPS)
        return peer_error(PEER_ERR_OP, "%d is no PEER_Op", (int)q->op);
    if (!peer_op_serves(q->datatype, q->op))
        return peer_error(PEER_ERR_OP, "%s is not defined for %s (peercoll.h has the legal pairs)",
                          peer_op_name(q->op), peer_datatype_name(q->datatype));
    return PEER_SUCCESS;
}

static int too_large(const struct peer_request *q, const char *what)
{
    return peer_error(PEER_ERR_COUNT, "%s: elements of %u bytes are more than memory has addresses", what,
                      (unsigned)peer_datatype_bytes(q->datatype));
}

/* Whether (at + count) elements are bytes that an address can reach. */
static bool reachable(const struct peer_request *q, size_t at, size_t count)
{
    size_t end, bytes;
    return !__builtin_add_overflow(at, count, &end) &&
           !__builtin_mul_overflow(end, (size_t)peer_datatype_bytes(q->datatype), &bytes) &&
           bytes <= PTRDIFF_MAX;
}

static int check_counts(const struct peer_comm *comm, const struct peer_request *q)
{
    size_t all = 0;
    for (int r = 0; r < comm->size; r++) {
        size_t received = q->recvcounts != NULL ? q->recvcounts[r] : q->count;
        if (__builtin_add_overflow(all, received, &all) || !reachable(q, 0, all))
            return too_large(q, "the counts of all ranks together");
        if (q->rdispls != NULL && !reachable(q, q->rdispls[r], received))
            return too_large(q, "a displacement and count of recvbuf");
        if (q->sendcounts != NULL && !reachable(q, q->sdispls[r], q->sendcounts[r]))
            return too_large(q, "a displacement and count of sendbuf");
    }
    if (q->sendcounts != NULL && q->recvcounts != NULL &&
        q->sendcounts[comm->rank] != q->recvcounts[comm->rank])
        return peer_error(
            PEER_ERR_COUNT,
            "sendcounts[%d] is %zu, recvcounts[%d] %zu: what this rank sends itself it also receives",
            comm->rank, q->sendcounts[comm->rank], comm->rank, q->recvcounts[comm->rank]);
    return PEER_SUCCESS;
}

static void extend(struct extent *e, struct peer_block block)
{
    if (block.count == 0)
        return;
    if (e->end == 0 || block.at < e->begin)
        e->begin = block.at;
    if (block.at + block.count > e->end)
        e->end = block.at + block.count;
}

static int check_one_buffer(struct peer_comm *comm, const struct peer_request *q, const char *name,
                            const void *buffer)
{
    uint32_t alignment = peer_datatype_alignment(q->datatype);
    if (buffer == NULL)
        return peer_error(PEER_ERR_BUFFER, "%s is NULL, but its count is not 0", name);
    if (buffer == PEER_IN_PLACE)
        return peer_error(PEER_ERR_BUFFER, "%s is PEER_IN_PLACE, which %s does not take there", name,
                          peer_collective_name(q->collective));
    if (((uintptr_t)buffer & (alignment - 1)) != 0)
        return peer_error(PEER_ERR_BUFFER, "%s (%p) is not aligned to the %u bytes of its elements", name,
                          (void *)(uintptr_t)buffer, alignment);
    return comm->device.ops->check_buffer(&comm->device, name, buffer);
}

static bool apart(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a + a_bytes <= b || b + b_bytes <= a;
}

/* Whether block a, which is sent, may lie exactly where what comes from `from` goes: it is the own block on
 * its way to itself (which others may get as well), or that of a reduction, whose result takes the place of
 * the own input. */
static bool may_coincide(const struct peer_comm *comm, const struct peer_request *q, struct peer_block a,
                         int from)
{
    struct peer_block own = peer_block_to(q, comm->rank, comm->size, comm->rank);
    return a.at == own.at && a.count == own.count && (from == comm->rank || peer_request_reduces(q));
}

/* Out of place: no block that is sent overlaps one that is received, but for the own. */
static int check_overlap(const struct peer_comm *comm, const struct peer_request *q, struct extent sent,
                         struct extent received)
{
    size_t element = peer_datatype_bytes(q->datatype);
    uintptr_t send = (uintptr_t)q->sendbuf, recv = (uintptr_t)q->recvbuf;
    if (apart(send + sent.begin * element, (sent.end - sent.begin) * element, recv + received.begin * element,
              (received.end - received.begin) * element))
        return PEER_SUCCESS;
    for (int to = 0; to < comm->size; to++)
        for (int from = 0; from < comm->size; from++) {
            struct peer_block a = peer_block_to(q, comm->rank, comm->size, to);
            struct peer_block b = peer_block_from(q, comm->rank, comm->size, from);
            uintptr_t at = send + a.at * element, there = recv + b.at * element;
            if (a.count == 0 || b.count == 0 || apart(at, a.count * element, there, b.count * element) ||
                (at == there && may_coincide(comm, q, a, from)))
                continue;
            return peer_error(PEER_ERR_BUFFER,
                              "sendbuf (%p) and recvbuf (%p) overlap: use PEER_IN_PLACE, or buffers apart",
                              (void *)send, (void *)recv);
        }
    return PEER_SUCCESS;
}

/* Blocks of recvbuf, whose displacements the caller chose. */
static int check_receive_blocks(const struct peer_comm *comm, const struct peer_request *q)
{
    for (int r = 1; q->rdispls != NULL && r < comm->size; r++)
        for (int s = 0; s < r; s++)
            if (q->recvcounts[r] != 0 && q->recvcounts[s] != 0 &&
                !apart(q->rdispls[r], q->recvcounts[r], q->rdispls[s], q->recvcounts[s]))
                return peer_error(PEER_ERR_BUFFER,
                                  "the blocks of recvbuf for ranks %d and %d overlap: see the displacements",
                                  s, r);
    return PEER_SUCCESS;
}

static int check_buffers(struct peer_comm *comm, const struct peer_request *q)
{
    bool bcast = q->collective == PEER_COLL_BCAST;
    struct extent sent = {0, 0}, received = {0, 0};
    int status = check_receive_blocks(comm, q);
    for (int r = 0; r < comm->size; r++) {
        extend(&sent, peer_block_to(q, comm->rank, comm->size, r));
        extend(&received, peer_block_from(q, comm->rank, comm->size, r));
    }
    if (status == PEER_SUCCESS && received.end > 0)
        status = check_one_buffer(comm, q, bcast ? "buffer" : "recvbuf", q->recvbuf);
    if (status == PEER_SUCCESS && sent.end > 0 && (q->sendbuf != q->recvbuf || received.end == 0))
        status = check_one_buffer(comm, q, bcast ? "buffer" : "sendbuf", q->sendbuf);
    return status == PEER_SUCCESS && q->sendbuf != q->recvbuf ? check_overlap(comm, q, sent, received)
                                                              : status;
}

int peer_check(struct peer_comm *comm, const struct peer_request *q)
{
    int status;
    if (q->collective == PEER_COLL_BARRIER)
        return PEER_SUCCESS;
    status = check_kind(comm, q);
    if (status == PEER_SUCCESS)
        status = check_counts(comm, q);
    return status == PEER_SUCCESS ? check_buffers(comm, q) : status;
}
