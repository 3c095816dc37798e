/* The life of a call: from a request to a plan, to what the kernels are told, to its launch on the path that
 * serves. */
#include "config.h"
#include "internal.h"
#include "nvtx.h"

#include <string.h>

#include "peercoll.h"

/* Pieces of one call. Each takes an epoch, and sweeps (kernels/protocol.h) count on calls of far fewer than
 * 2^30. */
#define MAX_PIECES (1u << 24)

/* Epochs of an all-to-all whose counts no rank knows all of: the most pieces that one of its shares may have. */
#define UNKNOWN_PIECES (1u << 15)

/* ---- Calls like the last one --------------------------------------------------------------------------------- */

static bool same_arrays(const struct peer_comm *comm, const struct peer_request *q)
{
    const size_t *arrays[4];
    int n = q->recvcounts != NULL ? peer_request_arrays(q, arrays) : 0;
    if (n > 0 && comm->size > PEER_MAX_PEERS)
        return false;
    for (int i = 0; i < n; i++)
        if (memcmp(comm->last.arrays[i], arrays[i], (size_t)comm->size * sizeof(size_t)) != 0)
            return false;
    return true;
}

/* Like the last call but for its buffers: its plan and geometry serve again. */
static bool like_last(const struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_request *last = &comm->last.request;
    return comm->last.valid && last->collective == q->collective && last->count == q->count &&
           last->datatype == q->datatype && last->op == q->op && last->root == q->root &&
           last->step == q->step && same_arrays(comm, q);
}

/* On the host device the last call again, with the same buffers, is right again, and such a call takes 0.1 us
 * in all. (GPU memory may have been freed since.) */
static bool repeats_last(const struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_request *last = &comm->last.request;
    return comm->link == PEER_LINK_HOST && q->sendbuf == last->sendbuf && q->recvbuf == last->recvbuf &&
           comm->last.plan.path == PEER_PATH_PEER && like_last(comm, q);
}

static void remember(struct peer_comm *comm, const struct peer_request *q)
{
    const size_t *arrays[4];
    int n = peer_request_arrays(q, arrays);
    comm->last.request = *q;
    comm->last.valid = true;
    for (int i = 0; i < n && comm->size <= PEER_MAX_PEERS; i++)
        memcpy(comm->last.arrays[i], arrays[i], (size_t)comm->size * sizeof(size_t));
}

/* ---- What the kernels are told ------------------------------------------------------------------------------- */

struct peer_query peer_query_of(const struct peer_comm *comm, const struct peer_request *q)
{
    return (struct peer_query){
        .collective = q->collective,
        .nbytes = peer_request_largest(q, comm->size) * peer_datatype_bytes(q->datatype),
        .nranks = (uint32_t)comm->size,
        .link = comm->link,
        .peer_ok = comm->peers.ok,
        .line_ok = comm->peers.line_ok,
        .islands = comm->grouping.n,
        .nccl_ok = comm->nccl != NULL && peer_nccl_serves(comm->nccl, q),
        .max_blocks = comm->max_blocks,
        .max_threads = comm->max_threads,
        .algorithm = comm->config.algorithm,
        .protocol = comm->config.protocol,
        .direction = comm->config.direction,
        .blocks = comm->config.blocks,
        .threads = comm->config.threads,
        .rows = comm->table.rows,
        .nrows = comm->table.nrows,
        .pieces = comm->config.pieces,
        .model_rows = comm->model_rows,
        .nmodel_rows = comm->nmodel_rows,
    };
}

static int too_many_pieces(const struct peer_request *q)
{
    return peer_error(PEER_ERR_COUNT,
                      "%s: a message takes more pieces of the staging than one call may have (%u): raise "
                      "PEER_STAGING_BYTES, or make several calls",
                      peer_collective_name(q->collective),
                      q->collective == PEER_COLL_ALLTOALLV ? UNKNOWN_PIECES : MAX_PIECES);
}

/* Under flag some blocks only send, and teams of as many do the rest, where the pieces allow it: then blocks are those of a
 * team. */
static void split(struct peer_call *call, struct peer_pack pack)
{
    const bool can = call->ring >= call->npieces && call->npieces > 1 && call->blocks > 1;
    if (!can || call->protocol != PEER_PROTO_FLAG || call->algorithm == PEER_ALGO_STAGED ||
        call->algorithm == PEER_ALGO_ISLAND)
        return;
    call->teams = peer_at_most(peer_at_most(call->npieces, call->blocks - 1), PEER_TEAMS);
    call->blocks /= 1 + call->teams;
    call->block_packs = (uint32_t)peer_run_of((call->stride + call->blocks - 1) / call->blocks, pack.staged);
}

/* Movements know only bytes: the packs of both units are the same. */
static struct peer_pack pack_of(const struct peer_comm *comm, const struct peer_request *q)
{
    uint32_t element = peer_request_reduces(q) ? peer_datatype_bytes(q->datatype) : 1;
    return peer_pack_of(comm->last.call.protocol, element, comm->device.ops->vector_bytes());
}

/* Looks are put off from so much on: a look's own way there and back takes as long. Measured, on 2 to 8 ranks. */
#define LEAST_WIRE_NS 1000
/* And by no more in a call: what takes so long by lines is not fast anyhow. */
#define MOST_WIRE_NS 100000

/* How long a link to the host's memory takes for so many bytes of each rank, what it sends of a piece in step 1, by the
 * probe's rates: of stores alone where nothing is fetched before all is sent (one_way). Only lines are waited for by
 * looking at them; and pieces that wait for a place to be free come when they come. */
static void set_wire(const struct peer_comm *comm, double bytes, bool one_way, struct peer_call *call)
{
    const struct peer_figures *f = &comm->figures;
    const double gbs = one_way ? f->all_store_gbs : f->all_both_gbs;
    const double ns = gbs > 0 ? bytes / gbs : 0, most = MOST_WIRE_NS / 2 / call->npieces; /* of two steps */
    if (comm->link == PEER_LINK_SHM && call->protocol != PEER_PROTO_FLAG && f->known && ns >= LEAST_WIRE_NS)
        call->wire_ns = (uint32_t)(ns < most ? ns : most);
}

/* Of more ranks than CROWD what goes in several pieces is looked for after so much of its time. 43,008 bytes on 8 ranks took
 * 27.2 us so, with 0.95 28.4, with the whole 30.1; on 4 ranks 14.6, 13.9 and 13.5. */
#define CROWD       4
#define CROWD_SHARE 0.9

/* Of oneshot one piece alone: more of them send one while they fetch another, at a pace of their own. */
static void set_wire_of_allreduce(const struct peer_comm *comm, struct peer_pack pack, struct peer_call *call)
{
    const double bytes = (double)call->npacks / call->npieces * pack.staged; /* of a piece */
    const double share = call->npieces > 1 && call->nranks > CROWD ? CROWD_SHARE : 1;
    if (call->algorithm == PEER_ALGO_ONESHOT && call->npieces == 1)
        set_wire(comm, bytes * (call->pull_all ? 1 : call->nranks - 1), true, call);
    else if (call->algorithm == PEER_ALGO_TWOSHOT && call->npieces <= call->ring)
        set_wire(comm, share * bytes / call->nranks * (call->nranks - 1), false, call);
}

/* What an even message is a multiple of, in bytes: see struct peer_call. */
static uint32_t grain_of(const struct peer_comm *comm, struct peer_pack pack)
{
    return comm->link == PEER_LINK_HOST ? pack.data : 4;
}

static int set_allreduce(struct peer_comm *comm, const struct peer_request *q, struct peer_call *call)
{
    const bool pull = comm->last.plan.direction == PEER_PULL;
    call->kernel = PEER_KERNEL_ALLREDUCE;
    /* In the host's memory, pulling spares bytes only of what all read; the rest is better near its reader. */
    call->pull_one = pull && comm->link != PEER_LINK_SHM;
    call->pull_all = pull;
    call->pieces = comm->last.plan.pieces;
    call->keep = q->collective == PEER_COLL_ALLREDUCE || comm->rank == q->root;
    if (call->algorithm == PEER_ALGO_ISLAND)
        peer_set_islands(call, comm->grouping.island, comm->grouping.n);
    peer_set_geometry(call, peer_datatype_bytes(q->datatype), comm->device.ops->vector_bytes());
    if (call->stride == 0) { /* many islands of different sizes, and little staging */
        call->algorithm = comm->last.plan.algorithm = PEER_ALGO_TWOSHOT;
        peer_set_geometry(call, peer_datatype_bytes(q->datatype), comm->device.ops->vector_bytes());
    }
    split(call, pack_of(comm, q));
    set_wire_of_allreduce(comm, pack_of(comm, q), call);
    comm->last.even = call->count_bytes % grain_of(comm, pack_of(comm, q)) == 0;
    return call->npacks / call->piece_packs > MAX_PIECES ? too_many_pieces(q) : PEER_SUCCESS;
}

/* The share that a block is. Counts it in with what all shares have in common. */
static struct peer_share share_of(struct peer_comm *comm, const struct peer_request *q,
                                  struct peer_block block)
{
    struct peer_exchange *x = &comm->last.exchange;
    struct peer_pack pack = pack_of(comm, q);
    size_t element = peer_datatype_bytes(q->datatype);
    struct peer_share share = {.at = block.at * element, .count = block.count * element};
    peer_set_share(&comm->last.call, x, pack, &share);
    comm->last.offsets |= share.count > 0 ? share.at : 0;
    comm->last.counts |= share.count;
    comm->last.even = comm->last.even && share.count % grain_of(comm, pack) == 0;
    x->npieces = share.npieces > x->npieces ? share.npieces : x->npieces;
    return share;
}

typedef struct peer_block block_of(const struct peer_request *q, int rank, int size, int r);

/* What goes to the others, or comes from them: its places, counts and largest run. Returns the peers that have some. */
static uint32_t set_side(struct peer_comm *comm, const struct peer_request *q, block_of *block, uint64_t *at,
                         uint64_t *count, uint32_t *run)
{
    struct peer_exchange *x = &comm->last.exchange;
    uint32_t peers = 0;
    for (int r = 0; r < comm->size; r++) {
        struct peer_share share = {.at = 0};
        if (r != comm->rank)
            share = share_of(comm, q, block(q, comm->rank, comm->size, r));
        at[r] = share.at;
        count[r] = share.count;
        *run = share.run > *run ? share.run : *run;
        if (share.count > 0)
            x->common = share;
        peers += share.count > 0;
    }
    return peers;
}

/* Whether the shares of all peers are like the common one, and lie so far apart from the buffer's start on. */
static bool is_even_side(const struct peer_comm *comm, const uint64_t *at, const uint64_t *count,
                         uint64_t step)
{
    for (uint64_t r = 0; r < (uint64_t)comm->size; r++)
        if (r != (uint64_t)comm->rank && (count[r] != comm->last.exchange.common.count || at[r] != r * step))
            return false;
    return true;
}

/* Collectives of blocks are, by definition; what has counts is where these are alike, as they mostly are. */
static bool is_uniform(const struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_exchange *x = &comm->last.exchange;
    if (q->step != PEER_STEP_ONLY)
        return false;
    return q->recvcounts == NULL || (is_even_side(comm, x->send_at, x->send_count, x->send_step) &&
                                     is_even_side(comm, x->recv_at, x->recv_count, x->recv_step));
}

/* Which of the shares are written: one of those that are not empty, if all readers pull the same. In the order of
 * the kernels, from the rank after this one on. */
static void set_writes(const struct peer_comm *comm, struct peer_exchange *x)
{
    x->first_write = 0;
    x->nwrite = x->nsend;
    if (!x->pull || !x->shared || x->nsend == 0)
        return;
    x->nwrite = 1;
    while (x->nsend > 1 && x->first_write < x->nsend - 1 &&
           x->send_count[((uint32_t)comm->rank + 1 + x->first_write) % (uint32_t)comm->size] == 0)
        x->first_write++;
}

static void set_shares(struct peer_comm *comm, const struct peer_request *q)
{
    struct peer_exchange *x = &comm->last.exchange;
    const int rank = comm->rank, size = comm->size;
    const size_t element = peer_datatype_bytes(q->datatype);
    struct peer_block to_self = peer_block_from(q, rank, size, rank);
    bool nowhere = peer_request_reduces(q) && to_self.count == 0; /* its result is the root's alone */
    x->root = (uint32_t)q->root;
    x->nsend = set_side(comm, q, peer_block_to, x->send_at, x->send_count, &x->send_run);
    x->nrecv = set_side(comm, q, peer_block_from, x->recv_at, x->recv_count, &x->recv_run);
    x->send_step = peer_block_to(q, rank, size, 1).at * element;
    x->recv_step = peer_block_from(q, rank, size, 1).at * element;
    x->uniform = is_uniform(comm, q);
    if (!x->uniform)
        x->nsend = x->nrecv = (uint32_t)size - 1;
    set_writes(comm, x);
    x->own = share_of(comm, q, nowhere ? to_self : peer_block_to(q, rank, size, rank));
    x->own_to = to_self.at * element;
    comm->last.offsets |= x->own_to;
}

static bool fits_a_place(const struct peer_comm *comm, const struct peer_request *q)
{
    struct peer_call small = comm->last.call;
    struct peer_pack pack = pack_of(comm, q);
    uint64_t bytes = q->count * peer_datatype_bytes(q->datatype);
    struct peer_exchange x;
    if (!peer_collective_rooted(q->collective) || q->step != PEER_STEP_ONLY ||
        (small.protocol == PEER_PROTO_FLAG && small.blocks > 1))
        return false;
    small.small = 1;
    peer_set_region(&small, pack, bytes, &x);
    return bytes <= peer_region_data(&x, pack);
}

static int set_exchange(struct peer_comm *comm, const struct peer_request *q, struct peer_call *call)
{
    struct peer_exchange *x = &comm->last.exchange;
    struct peer_pack pack = pack_of(comm, q);
    size_t element = peer_datatype_bytes(q->datatype);
    bool counts_known = q->collective != PEER_COLL_ALLTOALLV;
    struct peer_share largest = {.count = peer_request_largest(q, comm->size) * element};
    call->kernel = peer_request_reduces(q) ? PEER_KERNEL_COMBINE : PEER_KERNEL_MOVE;
    call->exchange = x;
    call->small = fits_a_place(comm, q);
    call->arrive = !call->small && !peer_request_meets(q, comm->size);
    memset(x, 0, sizeof *x);
    comm->last.counts = 0;
    x->npieces = 1;
    x->shared = peer_request_shares(q);
    x->pull = comm->last.plan.direction == PEER_PULL && (x->shared || comm->link != PEER_LINK_SHM);
    peer_set_region(call, pack, q->count * element, x);
    set_shares(comm, q);
    call->npieces = x->npieces;
    if (x->uniform && x->npieces == 1 && counts_known && !peer_collective_rooted(q->collective))
        set_wire(comm, (double)x->nwrite * x->common.npacks * pack.staged, true, call);
    peer_set_share(call, x, pack, &largest);
    call->epochs = counts_known ? largest.npieces : UNKNOWN_PIECES; /* on all ranks the same */
    return x->npieces > (counts_known ? MAX_PIECES : UNKNOWN_PIECES) ? too_many_pieces(q) : PEER_SUCCESS;
}

/* The unit that a movement with these buffers may use on this rank: 4 bytes where all is aligned to it. */
static uint32_t unit_of(const struct peer_comm *comm, const struct peer_request *q)
{
    uintptr_t bits = (uintptr_t)q->sendbuf | (uintptr_t)q->recvbuf | comm->last.offsets | comm->last.counts;
    return bits % 4 == 0 ? 4 : 1;
}

static bool is_exchange(const struct peer_request *q, const struct peer_plan *plan)
{
    return q->collective != PEER_COLL_ALLREDUCE && q->collective != PEER_COLL_BARRIER &&
           (q->collective != PEER_COLL_REDUCE || plan->algorithm == PEER_ALGO_ONESHOT);
}

static int plan_call(struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_query query = peer_query_of(comm, q);
    struct peer_last_call *last = &comm->last;
    int status = PEER_SUCCESS;
    last->plan = peer_select(&query);
    remember(comm, q);
    if (last->plan.path != PEER_PATH_PEER)
        return PEER_SUCCESS;
    memset(&last->call, 0, sizeof last->call);
    peer_transport_call(comm, &last->call);
    last->call.count = q->count;
    last->call.count_bytes = q->count * peer_datatype_bytes(q->datatype);
    last->call.collective = q->collective;
    last->call.datatype = q->datatype;
    last->call.op = q->op;
    last->call.algorithm = last->plan.algorithm;
    last->call.protocol = last->plan.protocol;
    last->call.blocks = last->plan.blocks;
    last->call.threads = last->plan.threads;
    last->offsets = 0;
    last->even = true;
    last->access = comm->link == PEER_LINK_HOST ? 1 : peer_pack_access(pack_of(comm, q).data);
    if (q->collective == PEER_COLL_BARRIER) {
        last->call.kernel = PEER_KERNEL_BARRIER;
        last->call.epochs = 1;
    } else if (is_exchange(q, &last->plan)) {
        status = set_exchange(comm, q, &last->call);
    } else {
        status = set_allreduce(comm, q, &last->call);
    }
    last->valid = status == PEER_SUCCESS;
    return status;
}

/* ---- Launches ------------------------------------------------------------------------------------------------ */

/* The largest power of two, 64 at most, that divides both addresses and the offsets. */
static uint32_t common_alignment(const void *a, const void *b, uint64_t offsets)
{
    uint64_t bits = (uintptr_t)a | (uintptr_t)b | offsets | 64;
    return (uint32_t)(bits & -bits);
}

/* The kernels' call as it is, on the host device. */
static int launch_again(struct peer_comm *comm)
{
    int status = comm->device.ops->launch(&comm->device, &comm->last.call, NULL);
    return status == PEER_SUCCESS && comm->peers.control->failed ? peer_fault_check(comm) : status;
}

static int launch_peer(struct peer_comm *comm, const struct peer_request *q)
{
    struct peer_call *call = &comm->last.call;
    int status;
    call->sendbuf = q->sendbuf;
    call->recvbuf = q->recvbuf;
    call->align = common_alignment(q->sendbuf, q->recvbuf, comm->last.offsets);
    call->even = comm->last.even && call->align >= comm->last.access;
    call->unit = unit_of(comm, q);
    call->marks = comm->marks;
    if (comm->marks != NULL)
        comm->marks += PEER_N_MARKS;
    status = comm->device.ops->launch(&comm->device, call, q->stream);
    if (status != PEER_SUCCESS)
        return peer_fault_break(comm, status);
    comm->last.request.sendbuf = q->sendbuf;
    comm->last.request.recvbuf = q->recvbuf;
    return comm->link == PEER_LINK_HOST && comm->peers.control->failed ? peer_fault_check(comm)
                                                                       : PEER_SUCCESS;
}

/* What could not be done here breaks the communicator, since the others do the call. */
static int note_fault(struct peer_comm *comm, int status)
{
    return status == PEER_SUCCESS ? PEER_SUCCESS : peer_fault_break(comm, status);
}

static int launch_nccl(struct peer_comm *comm, const struct peer_request *q)
{
    return note_fault(comm, peer_nccl_run(comm->nccl, comm->rank, comm->size, q));
}

static int launch_mpi(struct peer_comm *comm, const struct peer_request *q)
{
    bool capturing = false;
    int status = comm->device.ops->is_capturing(&comm->device, q->stream, &capturing);
    if (status == PEER_SUCCESS && capturing)
        return peer_error(
            PEER_ERR_UNSUPPORTED,
            "%s of this communicator goes through MPI (%s), which can't be captured into a graph: call it "
            "outside the capture",
            peer_collective_name(q->collective), comm->last.plan.reason);
    if (status == PEER_SUCCESS)
        status = peer_staged_run(comm, q);
    return note_fault(comm, status);
}

/* On one rank every collective is a copy of its own block, if it is not there already. */
static int launch_self(struct peer_comm *comm, const struct peer_request *q)
{
    size_t element = peer_datatype_bytes(q->datatype);
    struct peer_block from = peer_block_to(q, 0, 1, 0), to = peer_block_from(q, 0, 1, 0);
    const char *source = (const char *)q->sendbuf + from.at * element;
    char *target = (char *)q->recvbuf + to.at * element;
    int status;
    if (from.count == 0 || source == target)
        return PEER_SUCCESS;
    status = comm->device.ops->copy_async(&comm->device, target, source, from.count * element, q->stream);
    return note_fault(comm, status);
}

static int launch_path(struct peer_comm *comm, const struct peer_request *q)
{
    switch (comm->last.plan.path) {
    case PEER_PATH_PEER:
        return launch_peer(comm, q);
    case PEER_PATH_NCCL:
        return launch_nccl(comm, q);
    case PEER_PATH_MPI:
        return launch_mpi(comm, q);
    default:
        return launch_self(comm, q);
    }
}

/* A broadcast in two steps: the root's link carries the message once, not once for each rank. */
static int launch_steps(struct peer_comm *comm, const struct peer_request *q)
{
    struct peer_request step = *q;
    int status = PEER_SUCCESS;
    for (step.step = PEER_STEP_SCATTER; step.step <= PEER_STEP_SPREAD && status == PEER_SUCCESS;
         step.step++) {
        status = plan_call(comm, &step);
        if (status == PEER_SUCCESS)
            status = launch_peer(comm, &step);
    }
    return status;
}

/* Whether input that the peers have yet to get may be overwritten by results: then it is sent from a copy. On
 * the peer path a block of the kernel takes care of its own, so only results that lie elsewhere than the block
 * they replace. */
static bool needs_copy(const struct peer_comm *comm, const struct peer_request *q)
{
    enum peer_path path = comm->last.plan.path;
    if (q->sendbuf != q->recvbuf || comm->size == 1)
        return false;
    if (q->collective == PEER_COLL_REDUCE_SCATTER)
        return true;
    return path == PEER_PATH_NCCL &&
           (q->collective == PEER_COLL_REDUCE_SCATTER_BLOCK || q->collective == PEER_COLL_ALLTOALL ||
            q->collective == PEER_COLL_ALLTOALLV);
}

static size_t sent_end(const struct peer_comm *comm, const struct peer_request *q)
{
    size_t end = 0;
    for (int r = 0; r < comm->size; r++) {
        struct peer_block block = peer_block_to(q, comm->rank, comm->size, r);
        if (block.count > 0 && block.at + block.count > end)
            end = block.at + block.count;
    }
    return end;
}

static int launch_from_copy(struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_device_ops *ops = comm->device.ops;
    size_t bytes = sent_end(comm, q) * peer_datatype_bytes(q->datatype);
    struct peer_request copied = *q;
    void *copy = NULL;
    int status = bytes > 0 ? ops->temp_alloc(&comm->device, bytes, &copy, q->stream) : PEER_SUCCESS;
    if (status == PEER_SUCCESS && bytes > 0)
        status = ops->copy_async(&comm->device, copy, q->sendbuf, bytes, q->stream);
    if (status != PEER_SUCCESS)
        return peer_fault_break(comm, status);
    copied.sendbuf = copy;
    status = launch_path(comm, &copied);
    ops->temp_free(&comm->device, copy, q->stream);
    return status;
}

static int launch(struct peer_comm *comm, const struct peer_request *q)
{
    int status = like_last(comm, q) ? PEER_SUCCESS : plan_call(comm, q);
    if (status != PEER_SUCCESS)
        return status;
    if (comm->last.plan.path == PEER_PATH_PEER && q->collective == PEER_COLL_BCAST &&
        comm->last.plan.algorithm != PEER_ALGO_ONESHOT && comm->size > 2)
        return launch_steps(comm, q);
    return needs_copy(comm, q) ? launch_from_copy(comm, q) : launch_path(comm, q);
}

/* In the order of the communicator's calls, whichever streams they are on. */
static int launch_in_order(struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_device_ops *ops = comm->device.ops;
    int status = note_fault(comm, ops->follow(&comm->device, q->stream));
    if (status == PEER_SUCCESS)
        status = launch(comm, q);
    return status == PEER_SUCCESS ? note_fault(comm, ops->followed(&comm->device, q->stream)) : status;
}

static int launch_on_device(struct peer_comm *comm, const struct peer_request *q)
{
    const struct peer_device_ops *ops = comm->device.ops;
    int before = 0, status = note_fault(comm, ops->enter(&comm->device, &before));
    if (status == PEER_SUCCESS) {
        status = launch_in_order(comm, q);
        ops->leave(&comm->device, before);
    }
    return status;
}

static int run(struct peer_comm *comm, const struct peer_request *q)
{
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    if (repeats_last(comm, q) && comm->peers.control->failed == PEER_SUCCESS)
        return launch_again(comm);
    status = peer_check(comm, q);
    if (status == PEER_ERR_CUDA) /* no fault of the arguments */
        return note_fault(comm, status);
    if (status == PEER_SUCCESS)
        status = peer_fault_check(comm);
    if (status != PEER_SUCCESS || peer_request_empty(q, comm->size))
        return status;
    return launch_on_device(comm, q);
}

int peer_request_run(struct peer_comm *comm, const struct peer_request *q)
{
    int status;
    PEER_RANGE_BEGIN(peer_collective_name(q->collective));
    status = run(comm, q);
    PEER_RANGE_END();
    return status;
}
