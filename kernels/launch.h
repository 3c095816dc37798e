/* What host code (C11) and the kernels share: one call as the kernels see it, the words in memory that outlive
 * a call, the layout of the slab, and the launchers. Host code never sees more of the kernels than this. */
#ifndef PEER_KERNELS_LAUNCH_H
#define PEER_KERNELS_LAUNCH_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "peercoll_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that the GPU calls as well. */
#ifdef __CUDACC__
    #define PEER_BOTH static inline __host__ __device__
#else
    #define PEER_BOTH static inline
#endif

/* Functions that constants are made with. */
#ifdef __cplusplus
    #define PEER_CONSTEXPR static constexpr inline
#else
    #define PEER_CONSTEXPR static inline
#endif

/* X(name, text) */
#define PEER_COLLECTIVES(X)                                                                                  \
    X(PEER_COLL_ALLREDUCE, "allreduce")                                                                      \
    X(PEER_COLL_REDUCE, "reduce")                                                                            \
    X(PEER_COLL_BCAST, "bcast")                                                                              \
    X(PEER_COLL_ALLGATHER, "allgather")                                                                      \
    X(PEER_COLL_ALLGATHERV, "allgatherv")                                                                    \
    X(PEER_COLL_REDUCE_SCATTER_BLOCK, "reduce_scatter_block")                                                \
    X(PEER_COLL_REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(PEER_COLL_ALLTOALL, "alltoall")                                                                        \
    X(PEER_COLL_ALLTOALLV, "alltoallv")                                                                      \
    X(PEER_COLL_GATHER, "gather")                                                                            \
    X(PEER_COLL_SCATTER, "scatter")                                                                          \
    X(PEER_COLL_BARRIER, "barrier")

#define PEER_ALGORITHMS(X)                                                                                   \
    X(PEER_ALGO_ONESHOT, "oneshot")                                                                          \
    X(PEER_ALGO_TWOSHOT, "twoshot")                                                                          \
    X(PEER_ALGO_STAGED, "staged")                                                                            \
    X(PEER_ALGO_ISLAND, "island")

#define PEER_PROTOCOLS(X)                                                                                    \
    X(PEER_PROTO_LINE, "line")                                                                               \
    X(PEER_PROTO_LL, "ll")                                                                                   \
    X(PEER_PROTO_FLAG, "flag")

/* push: a rank writes into the memory of who shall read; pull: into its own, and they read it there. */
#define PEER_DIRECTIONS(X)                                                                                   \
    X(PEER_PUSH, "push")                                                                                     \
    X(PEER_PULL, "pull")

#define PEER_NAME_ENUM(name, text) name,
enum peer_collective { PEER_COLLECTIVES(PEER_NAME_ENUM) PEER_N_COLLECTIVES };
enum peer_algorithm { PEER_ALGORITHMS(PEER_NAME_ENUM) PEER_N_ALGORITHMS };
enum peer_protocol { PEER_PROTOCOLS(PEER_NAME_ENUM) PEER_N_PROTOCOLS };
enum peer_direction { PEER_DIRECTIONS(PEER_NAME_ENUM) PEER_N_DIRECTIONS };
#undef PEER_NAME_ENUM

/* The most blocks of a grid: one word of state and one set of flags each. */
#define PEER_MAX_BLOCKS 64

/* The most threads of a block; a multiple of 32. */
#define PEER_MAX_THREADS 512

/* Pieces of a message that may be on their way at once, see kernels/allreduce.h and kernels/exchange.h. */
#define PEER_RING 4

/* Teams that take the pieces of an all-reduce in turn, at most: while one waits for a flag or for its first data, the others
 * keep the link busy. At 1 MiB through host memory three are 5%, 7% and 6% faster on 2, 4 and 8 ranks than one, and four
 * no better than three. */
#define PEER_TEAMS 3

/* Small one-way calls that share a half of the staging, each in a place of its own; see kernels/protocol.h. */
#define PEER_PLACES 16

/* ---- Words that outlive a call -------------------------------------------------------------------------- */

/* A rank's own state, in device memory that no peer maps: one copy for each block, so that blocks of one grid
 * read and move it on without meeting. All copies are equal between calls. */
struct peer_state {
    alignas(16)
        uint32_t epoch; /* tag of the next call's first piece; a call of p pieces takes p epochs or more */
    uint32_t call;      /* number of the next call */
    uint32_t group;     /* number of its group; its parity is the half of the staging that the group uses */
    uint16_t place;     /* of the next call in its group */
    uint16_t swept;     /* for half h, bits 2h and 2h+1: the sweep (epoch >> PEER_SWEEP_SHIFT) it last had */
};

struct peer_states {
    struct peer_state copy[PEER_MAX_BLOCKS];
    uint32_t stopped; /* not 0: a wait failed in a call (stopped_here), later ones return at once */
};

/* A tag left in staging 2^32 epochs ago would pass for new; so each half is swept (filled with a tag that has
 * just passed) once in 2^30 epochs. */
#define PEER_SWEEP_SHIFT 30

/* How a rank's wait ended, in host memory shared by the ranks of a node. One writer each. */
struct peer_record {
    volatile int32_t status;      /* PEER_SUCCESS, or why the wait ended; written last */
    volatile uint32_t call;       /* number of the call that waited */
    volatile uint32_t collective; /* enum peer_collective */
    volatile uint32_t leaving;    /* written by this rank's host: it frees, and calls no more */
    volatile uint32_t closed;     /* written by this rank's host: it maps no peer's slab any more */
    volatile uint64_t nbytes;     /* of that call's message */
    uint32_t pad_end[24];
};

struct peer_control {
    volatile int32_t failed; /* the first status that any rank's wait ended with; ends all waits */
    uint32_t pad[31];
    struct peer_record rank[PEER_MAX_PEERS];
};

/* ---- The slab ------------------------------------------------------------------------------------------- */

/* The slab is what peers map: flags, then two halves of staging for each protocol. A half's offset does not depend
 * on any call. One writer for each flag; flags are PEER_FLAG_STRIDE apart. Lines are for small messages and
 * have a quarter of the room. The end of a half, a quarter of it or, for flag, a seventeenth, are the places
 * of small one-way calls. */
#define PEER_FLAG_STRIDE 128
#define PEER_PHASES      5
#define PEER_FLAGS_BYTES ((uint64_t)2 * PEER_PHASES * PEER_MAX_BLOCKS * PEER_MAX_PEERS * PEER_FLAG_STRIDE)

/* staging: PEER_STAGING_BYTES, a multiple of 4096. A half of lines: room for PEER_RING packs of the widest
 * datatype in both regions of every writer at least. Of any half: all; what is there for calls that are a
 * rendezvous. */
#define PEER_LEAST_LINES ((uint64_t)16384)
#define PEER_LINES_BYTES(staging)                                                                            \
    ((uint64_t)(staging) / 4 > PEER_LEAST_LINES ? (uint64_t)(staging) / 4 : PEER_LEAST_LINES)
#define PEER_HALF_BYTES(staging, protocol)                                                                   \
    ((protocol) == PEER_PROTO_FLAG ? (uint64_t)(staging) / 16 * 17 : PEER_LINES_BYTES(staging))
#define PEER_MAIN_BYTES(staging, protocol)                                                                   \
    ((protocol) == PEER_PROTO_FLAG ? (uint64_t)(staging) : PEER_LINES_BYTES(staging) / 4 * 3)
#define PEER_SLAB_BYTES(staging)                                                                             \
    (PEER_FLAGS_BYTES + 2 * PEER_HALF_BYTES(staging, PEER_PROTO_FLAG) + 4 * PEER_LINES_BYTES(staging))

/* Offset of a protocol's half in the slab. Flag's come first, as the largest. */
#define PEER_HALF_OFFSET(staging, protocol, half)                                                            \
    (PEER_FLAGS_BYTES + (half)*PEER_HALF_BYTES(staging, protocol) +                                          \
     ((protocol) == PEER_PROTO_FLAG ? 0 : 2 * PEER_HALF_BYTES(staging, PEER_PROTO_FLAG)) +                   \
     ((protocol) == PEER_PROTO_LL ? 2 * PEER_LINES_BYTES(staging) : 0))

/* Small shares, whose staged bytes are no more than one of 16, 32, 64 and 128, have places of that size, side
 * by side: several of a root's calls come to a CPU in one cache line. */
#define PEER_LEAST_PLACE 16
#define PEER_SMALL_PLACE 128

/* Host device: what this rank has learnt of the way to its peers' caches, see Pusher in kernels/device.h. */
struct peer_pace {
    uint32_t streamed; /* pushes that are still to stream */
    uint32_t far;      /* pushes in a row that found the lines far away */
    uint32_t plain;    /* pushes that did not stream */
};

/* ---- One call ------------------------------------------------------------------------------------------- */

/* The kernels that serve the collectives. */
enum peer_kernel {
    PEER_KERNEL_BARRIER,
    PEER_KERNEL_ALLREDUCE, /* kernels/allreduce.h */
    PEER_KERNEL_MOVE,      /* kernels/exchange.h: every rank sends a share to every rank, */
    PEER_KERNEL_COMBINE    /* and the receiver combines what it gets */
};

/* What this rank sends to one peer, or receives from it. Both sides know it alike. */
struct peer_share {
    uint64_t at;    /* where it begins in sendbuf, or recvbuf, in bytes */
    uint64_t count; /* bytes; 0: there is nothing to send */
    /* The rest follows from the count, see peer_set_share. */
    uint64_t npacks;      /* of all pieces */
    uint32_t piece_packs; /* of every piece but the last */
    uint32_t npieces;     /* 0 for a count of 0 */
    uint32_t run;         /* packs of a piece that one block moves */
    uint32_t turns;       /* shares of one piece take turns in so many places of the peer's region, */
    uint64_t turn_bytes;  /* so far apart */
};

/* An exchange: the shares of this rank and their place in the staging. Kernels read this from constant memory,
 * of which the first touch of a line is dear: where all shares are alike, they need the first lines alone. */
struct peer_exchange {
    uint32_t uniform;      /* all shares are like `common`, that of rank r lying at r * step */
    uint32_t nsend, nrecv; /* peers: all others, or 1, the root, or 0 */
    uint32_t root;
    uint32_t send_run, recv_run; /* the largest */
    uint32_t npieces;            /* the most of any share here, at least 1 */
    uint32_t pull;               /* shares lie with their writer, */
    uint32_t shared;             /* once, since all readers get the same */
    uint32_t first_write,
        nwrite;            /* of the shares that are sent, those that are written: all, or one for all */
    uint64_t places_at;    /* in the half: a small call's first place */
    uint64_t region_bytes; /* staging of one writer */
    uint64_t slot_bytes;   /* piece p lies in slot p % PEER_RING of the region */
    uint64_t send_step, recv_step;
    struct peer_share common;
    struct peer_share own; /* what this rank sends to itself, or adds to what it gets: at is in sendbuf, */
    uint64_t own_to;       /* this in recvbuf */
    /* Not uniform: of rank r. */
    uint64_t send_at[PEER_MAX_PEERS], send_count[PEER_MAX_PEERS];
    uint64_t recv_at[PEER_MAX_PEERS], recv_count[PEER_MAX_PEERS];
};

/* The times of a call that block 0 marks, if it is asked to: when it began; when this rank's data of the first piece
 * were sent; under flag, when the peers' had arrived; in twoshot, when the own part was reduced and sent; the end. */
enum peer_mark {
    PEER_MARK_BEGIN,
    PEER_MARK_SENT,
    PEER_MARK_ARRIVED,
    PEER_MARK_REDUCED,
    PEER_MARK_END,
    PEER_N_MARKS
};

/* The islands of a call, see kernels/island.h. */
struct peer_islands {
    uint32_t n;
    uint32_t columns;    /* ranks of the largest */
    uint32_t near, far;  /* bit r: rank r is in this rank's island; owns a column with it in another one */
    uint32_t far_at;     /* of a slot's places those of step 1 come first, */
    uint32_t far_places; /* then those of step 2 */
    uint8_t island[PEER_MAX_PEERS]; /* of rank r, */
    uint8_t member[PEER_MAX_PEERS]; /* and its number there */
    uint8_t size[PEER_MAX_PEERS];   /* of island k, */
    uint8_t first[PEER_MAX_PEERS];  /* whose members are ranks[first[k]] and those that follow */
    uint8_t ranks[PEER_MAX_PEERS];
};

/* Packs that hold the sum of one pack, for elements of so many bytes: small ones are added up in 32 bits. */
#define PEER_SUM_WIDTH(element_bytes) ((element_bytes) < 4 ? 4 / (uint32_t)(element_bytes) : 1u)

/* A GPU reads its kernels' parameters from constant memory, where the first touch of a line of 64 bytes costs up to
 * 0.5 us. So what every call needs comes first and close together, the slabs behind it, and the rest last. */
struct peer_call {
    /* what */
    const void *sendbuf;
    void *recvbuf;
    uint64_t count; /* elements */
    uint32_t
        align; /* largest power of two, 64 at most, that divides all that is read or written of the buffers */
    uint32_t keep; /* PEER_KERNEL_ALLREDUCE: the result is wanted on this rank */
    /* who */
    uint32_t rank;
    uint32_t nranks;
    /* how */
    uint32_t protocol;
    uint32_t blocks;
    uint32_t small; /* one-way, in a place of the half: a rendezvous only where the group ends */
    uint32_t
        arrive; /* the data alone are no rendezvous: block 0 signals that it is there, and waits for the others */
    uint32_t epochs; /* that the call takes */
    /* What is read and written of the buffers is aligned to a pack's widest access, and consists of whole packs, or, on a
     * GPU, of whole words of 4 bytes. */
    uint32_t even;
    /* Geometry of PEER_KERNEL_ALLREDUCE, from peer_set_geometry. A pack is what one thread moves at a time, a piece
     * what the staging holds at a time; packs of a piece are split among the ranks by `stride` in twoshot. */
    uint32_t npieces;     /* at least 1 */
    uint32_t stride;      /* packs that one writer has room for in a slot */
    uint64_t npacks;      /* of the whole message, the last one perhaps in part */
    uint64_t piece_packs; /* of every piece but the last */
    uint64_t
        slot_bytes; /* piece p lies in slot p of the half, or, where there are more than `ring`, p % PEER_RING */
    uint32_t ring;        /* PEER_RING, or so many as there are pieces */
    uint32_t all_at;      /* packs before those that all ranks read */
    uint32_t turns;       /* calls of one piece take turns in so many places of the half, */
    uint32_t block_packs; /* flag: packs of `stride` that one block moves */
    uint64_t turn_bytes;  /* so far apart */
    /* where */
    struct peer_states *state;
    uint64_t staging; /* PEER_STAGING_BYTES */
    uint64_t *marks;  /* PEER_N_MARKS times in ns, or NULL: nobody asks */
    uint32_t copies;  /* of the state that the communicator's grids use: its largest grid */
    uint32_t unit;    /* PEER_KERNEL_MOVE: bytes that this rank's buffers are read and written in, 4 or 1 */
    char *slab[PEER_MAX_PEERS]; /* rank r's slab as mapped here */
    /* For few, for waits that get long, and for the host. */
    uint32_t kernel;   /* enum peer_kernel */
    uint32_t datatype; /* PEER_Datatype */
    uint32_t op;       /* PEER_Op */
    uint32_t algorithm;
    uint32_t threads;
    uint32_t
        teams; /* not 0: a split call, whose pieces have a place each: blocks of their own send them, and so many
                     * teams of as many do the rest, see kernels/allreduce.h */
    uint32_t pull_one; /* PEER_KERNEL_ALLREDUCE: what one rank shall read lies with its writer; */
    uint32_t pull_all; /* what all shall read does, once */
    uint32_t pieces;   /* that a message is cut into at least; 0 and 1: it need not be */
    uint32_t spin;     /* polls before a wait yields the CPU (host device) */
    uint32_t collective;
    /* ns in which a link to the host's memory carries what a rank sends of a piece in step 1. 0: there is no such link, its
     * rates are not known, or nobody would gain by knowing */
    uint32_t wire_ns;
    uint64_t count_bytes;
    uint64_t rotate; /* bytes of a half that calls of one piece take turns in, or 0 */
    uint64_t timeout_ns;
    struct peer_pace *pace;               /* host device */
    struct peer_control *control;         /* as the kernels reach it */
    const struct peer_exchange *exchange; /* of PEER_KERNEL_MOVE and _COMBINE, in host memory */
    struct peer_islands islands;          /* PEER_ALGO_ISLAND */
};

/* Smaller messages, in bytes, stay in one place: what they touch is in the nearest cache, and on the way
 * there. Measured on two cores, as are the shares of an exchange. */
#define PEER_ROTATE_ABOVE       1024
#define PEER_ROTATE_SHARE_ABOVE 2048

/* Blocks of a call's grid. */
PEER_BOTH uint32_t peer_grid(const struct peer_call *c)
{
    return (1 + c->teams) * c->blocks;
}

/* A pack, and the staging it takes with its tags, in bytes. */
struct peer_pack {
    uint32_t data;
    uint32_t staged;
};

/* vector_bytes: what the device moves at once under flag, its PEER_VECTOR */
static inline struct peer_pack peer_pack_of(uint32_t protocol, uint32_t element_bytes, uint32_t vector_bytes)
{
    uint32_t payload = protocol == PEER_PROTO_LINE ? 12 : 8; /* of a 16-byte line */
    uint32_t lines = 1;
    struct peer_pack pack = {vector_bytes, vector_bytes};
    if (protocol == PEER_PROTO_FLAG)
        return pack;
    while (lines * payload % element_bytes != 0)
        lines *= 2;
    pack.data = lines * payload;
    pack.staged = lines * 16;
    return pack;
}

/* The widest access of a GPU that moves a pack of so many bytes whole: the largest power of two that divides it, 16 at
 * most. */
PEER_CONSTEXPR uint32_t peer_pack_access(uint32_t pack_bytes)
{
    uint32_t access = pack_bytes & -pack_bytes;
    return access < 16 ? access : 16;
}

/* The most columns that a rank owns in an island of so many ranks. */
PEER_BOTH uint32_t peer_most_owned(uint32_t columns, uint32_t ranks)
{
    return (columns + ranks - 1) / ranks;
}

/* Sets the islands of a call whose ranks are set: island[r] is r's number, of n, and every number has a rank. */
static inline void peer_set_islands(struct peer_call *c, const uint8_t island[PEER_MAX_PEERS], uint32_t n)
{
    struct peer_islands *s = &c->islands;
    uint32_t ranks = 0, mine = island[c->rank];
    s->n = n;
    s->columns = s->near = s->far = 0;
    for (uint32_t k = 0; k < n; k++) {
        s->first[k] = (uint8_t)ranks;
        for (uint32_t r = 0; r < c->nranks; r++)
            if (island[r] == k) {
                s->island[r] = (uint8_t)k;
                s->member[r] = (uint8_t)(ranks - s->first[k]);
                s->ranks[ranks++] = (uint8_t)r;
            }
        s->size[k] = (uint8_t)(ranks - s->first[k]);
        s->columns = s->size[k] > s->columns ? s->size[k] : s->columns;
    }
    for (uint32_t r = 0; r < c->nranks; r++)
        if (island[r] == mine)
            s->near |= 1u << r;
        else
            for (uint32_t j = s->member[r]; j < s->columns; j += s->size[island[r]])
                if (j % s->size[mine] == s->member[c->rank])
                    s->far |= 1u << r;
    s->far_at = s->far_places = 0;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t owned = peer_most_owned(s->columns, s->size[k]);
        s->far_at = s->size[k] * owned > s->far_at ? s->size[k] * owned : s->far_at;
        s->far_places = n * owned > s->far_places ? n * owned : s->far_places;
    }
}

/* Where runs of packs begin matters on PCIe, which carries whole 128 bytes best: long ones begin there. Short ones begin
 * at a line of the host's caches, as what several ranks write into one comes late: 8 bytes between 8 ranks through the
 * host's memory took 14 us where a line had four writers. In packs of so many bytes, a power of two. */
PEER_BOTH uint64_t peer_run_step(uint64_t packs, uint32_t staged)
{
    const uint32_t bytes = packs * staged < 1024 ? 64 : 128;
    return bytes > staged ? bytes / staged : 1;
}

/* The packs, or a few more. */
PEER_BOTH uint64_t peer_run_of(uint64_t packs, uint32_t staged)
{
    const uint64_t step = peer_run_step(packs, staged);
    return (packs + step - 1) / step * step;
}

/* Sets the geometry of an all-reduce whose what, who and how are set. The message goes in one piece, or as many as
 * are asked for, if the half holds it, else in pieces of a quarter of the half (PEER_RING slots). The stride is 0 where the
 * half is too small for these islands. */
static inline void peer_set_geometry(struct peer_call *c, uint32_t element_bytes, uint32_t vector_bytes)
{
    struct peer_pack pack = peer_pack_of(c->protocol, element_bytes, vector_bytes);
    uint32_t per_pack = pack.data / element_bytes;
    /* A slot has `stride` packs for each pair of a rank's parts (twoshot), then for each result, or own data in
     * oneshot; of what is pulled by all, for the rank's own. */
    uint64_t parts = c->algorithm == PEER_ALGO_ONESHOT ? 1 : c->nranks;
    uint64_t one = c->algorithm == PEER_ALGO_ONESHOT ? 0 : c->nranks;
    uint64_t all = c->pull_all ? 1 : c->nranks;
    uint32_t pieces = c->pieces > 1 ? c->pieces : 1;
    uint64_t half_bytes = PEER_MAIN_BYTES(c->staging, c->protocol);
    uint64_t writers, room, need, cut, step;

    if (c->algorithm == PEER_ALGO_ISLAND) {
        parts = all = c->islands.columns;
        one = c->islands.far_at + c->islands.far_places * PEER_SUM_WIDTH(element_bytes);
    }
    writers = one + all;
    room = half_bytes / (writers * pack.staged);
    c->npacks = (c->count + per_pack - 1) / per_pack;
    need = c->npacks > 0 ? peer_run_of((c->npacks + parts - 1) / parts, pack.staged) : 1;
    c->slot_bytes = half_bytes;
    c->ring = PEER_RING;
    cut = peer_run_of((need + pieces - 1) / pieces, pack.staged);
    if (need <= room && pieces == 1) {
        cut = need;
    } else if (cut * pieces <= room) {
        c->ring = pieces;
        c->slot_bytes = writers * cut * pack.staged;
    } else {
        room /= PEER_RING;
        c->slot_bytes /= PEER_RING;
        step = peer_run_step(room, pack.staged);
        room = room < step ? room : room / step * step;
        cut = cut < room ? cut : room;
    }
    c->stride = (uint32_t)cut;
    if (cut == 0)
        return;
    c->all_at = (uint32_t)one * c->stride;
    c->piece_packs = c->stride * parts;
    c->npieces = (uint32_t)(c->npacks > 0 ? (c->npacks + c->piece_packs - 1) / c->piece_packs : 1);
    c->block_packs = (uint32_t)peer_run_of((c->stride + c->blocks - 1) / c->blocks, pack.staged);
    c->turn_bytes = (writers * c->stride * pack.staged + 63) / 64 * 64;
    c->turns = 1;
    if (c->npieces == 1 && c->count * element_bytes > PEER_ROTATE_ABOVE)
        c->turns = (uint32_t)((c->rotate < half_bytes ? c->rotate : half_bytes) / c->turn_bytes);
    c->epochs = c->algorithm == PEER_ALGO_STAGED ? 2 * c->npieces + 2 : c->npieces;
}

/* The geometry of an exchange whose largest share is of so many bytes: where each writer's share lies. c has
 * its who and how. */
static inline void peer_set_region(const struct peer_call *c, struct peer_pack pack, uint64_t bytes,
                                   struct peer_exchange *x)
{
    uint64_t main_bytes = PEER_MAIN_BYTES(c->staging, c->protocol);
    uint64_t places = PEER_HALF_BYTES(c->staging, c->protocol) - main_bytes;
    uint64_t all = (uint64_t)c->nranks * PEER_PLACES;
    uint64_t small = all * (2 * PEER_SMALL_PLACE - PEER_LEAST_PLACE); /* of all the sizes */
    uint64_t staged = (bytes + pack.data - 1) / pack.data * pack.staged, size = PEER_LEAST_PLACE;
    if (small > places / 2)
        small = 0;
    while (size < staged && size < PEER_SMALL_PLACE)
        size *= 2;
    if (!c->small) {
        x->region_bytes = main_bytes / c->nranks / 64 * 64;
    } else if (small > 0 && staged <= size) {
        x->places_at = main_bytes + all * (size - PEER_LEAST_PLACE);
        x->region_bytes = size;
    } else {
        x->places_at = main_bytes + small;
        x->region_bytes = (places - small) / all / 64 * 64;
    }
    x->slot_bytes = x->region_bytes / PEER_RING / pack.staged * pack.staged;
}

/* Bytes of a share that a region holds in one piece. */
static inline uint64_t peer_region_data(const struct peer_exchange *x, struct peer_pack pack)
{
    return x->region_bytes / pack.staged * pack.data;
}

/* The geometry of a share whose count is set. */
PEER_BOTH void peer_set_share(const struct peer_call *c, const struct peer_exchange *x, struct peer_pack pack,
                              struct peer_share *share)
{
    uint64_t room = x->region_bytes / pack.staged, rotate = c->rotate / c->nranks;
    share->npacks = (share->count + pack.data - 1) / pack.data;
    share->turns = 1;
    share->npieces = share->count > 0;
    share->piece_packs = (uint32_t)share->npacks;
    if (share->npacks > room) {
        share->piece_packs = (uint32_t)(x->slot_bytes / pack.staged);
        share->npieces = (uint32_t)((share->npacks + share->piece_packs - 1) / share->piece_packs);
    }
    share->run = (uint32_t)peer_run_of((share->piece_packs + c->blocks - 1) / c->blocks, pack.staged);
    share->turn_bytes = ((uint64_t)share->piece_packs * pack.staged + 63) / 64 * 64;
    if (share->npieces == 1 && !c->small && share->count > PEER_ROTATE_SHARE_ABOVE &&
        rotate > share->turn_bytes)
        share->turns = (uint32_t)((rotate < x->region_bytes ? rotate : x->region_bytes) / share->turn_bytes);
}

/* ---- Launchers ------------------------------------------------------------------------------------------ */

/* The host kernels of one instruction set; device_host.c takes the best that the CPU has. */
struct peer_host_kernels {
    /* Runs the call to its end on the calling thread. */
    void (*launch)(const struct peer_call *call);
    /* recv[i] = the combination of parts[0][i] .. parts[nparts-1][i], with the numerics of the kernels; recv may
     * be one of the parts. For the MPI fallback. */
    void (*reduce)(uint32_t datatype, uint32_t op, const void *const parts[], uint32_t nparts, void *recv,
                   size_t count);
    uint32_t vector_bytes; /* PEER_VECTOR of kernels/device.h */
};

extern const struct peer_host_kernels peer_host_kernels_base;
extern const struct peer_host_kernels peer_host_kernels_avx2;
extern const struct peer_host_kernels peer_host_kernels_avx512;

/* CUDA device: cudaError_t as int. early: by programmatic dependent launch. */
int peer_can_launch_early(bool *can);
int peer_launch_cuda(const struct peer_call *call, bool early, void *stream);
int peer_fill_cuda(void *to, uint32_t word, size_t nwords, void *stream);
uint32_t peer_vector_cuda(void);
/* Loads every kernel of a call now, since loading one waits for the device, where peers may spin already. *resident: the
 * blocks of PEER_MAX_THREADS threads that fit on a multiprocessor at once, the least over all kernels. */
int peer_preload_cuda(int *resident);

#ifdef __cplusplus
}
#endif

#endif
