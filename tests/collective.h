/* collective.h: the trial of any collective: one call with everything checked. From a description that is the
 * same on all ranks it lays out the buffers, fills them from the group's inputs, makes the call, and compares
 * every byte of both buffers: results with the reference, and what the call must not touch (the send buffer,
 * gaps between blocks, what lies around the buffers) with what was there. A check that fails says which call
 * it was and ends the program.
 *
 *   collective_draw.c    calls of any shape, from a random number
 *   collective_layout.c  from a call to its blocks, for one rank
 *   collective.c         buffers, the call, the comparison */
#ifndef PEER_TESTS_COLLECTIVE_H
#define PEER_TESTS_COLLECTIVE_H

#include "inputs.h"
#include "tools/bed.h"

enum coll_kind {
    COLL_ALLREDUCE,
    COLL_REDUCE,
    COLL_REDUCE_SCATTER_BLOCK,
    COLL_REDUCE_SCATTER,
    COLL_BCAST,
    COLL_ALLGATHER,
    COLL_ALLGATHERV,
    COLL_ALLTOALL,
    COLL_ALLTOALLV,
    COLL_GATHER,
    COLL_SCATTER,
    COLL_KINDS
};

/* One that a rank may not use in a call becomes one that it may. */
enum coll_place {
    COLL_OUT_OF_PLACE,
    COLL_IN_PLACE,     /* PEER_IN_PLACE */
    COLL_SAME_POINTER, /* which means the same */
    COLL_OWN_BLOCK,    /* one buffer is this rank's own block of the other */
    COLL_PLACES
};

/* Of the blocks of Allgatherv and Alltoallv. Gaps are of a few elements. */
enum coll_order { COLL_PACKED, COLL_GAPS, COLL_REVERSED, COLL_SHUFFLED, COLL_ORDERS };

/* What a rank passes for a buffer or an array that it does not need. */
enum coll_unused { COLL_UNUSED_VALID, COLL_UNUSED_NULL, COLL_UNUSED_JUNK, COLL_UNUSED_KINDS };

struct coll_call {
    enum coll_kind kind;
    PEER_Datatype type;
    PEER_Op op;   /* of a reduction */
    int root;     /* of a rooted call */
    size_t count; /* as the call takes it */
    /* Calls with counts: counts[r][0] of rank r's block; Alltoallv: counts[r][s] from rank r to rank s. */
    size_t counts[PEER_MAX_PEERS][PEER_MAX_PEERS];
    size_t first;  /* element of the inputs that a rank's message begins with */
    uint64_t seed; /* of the displacements, which differ by rank */
    enum coll_order order;
    /* These may be the rank's own: */
    enum coll_place place;
    enum coll_unused unused;
    size_t send_shift, recv_shift; /* elements by which the buffers are off a 64-byte boundary */
};

bool coll_is_reduction(enum coll_kind kind);
bool coll_has_root(enum coll_kind kind);
bool coll_has_counts(enum coll_kind kind);
/* Whether a rank's message is a block for each rank: count is of one. */
bool coll_has_blocks(enum coll_kind kind);

/* ---- Drawing -------------------------------------------------------------------------------------------- */

/* How counts differ by rank, in calls that have them. */
enum coll_spread {
    COLL_SPREAD_EVEN,
    COLL_SPREAD_RANDOM,
    COLL_SPREAD_HOLES, /* about half of the blocks are empty */
    COLL_SPREAD_ONE_HAS_ALL,
    COLL_SPREAD_ONE_HAS_NONE,
    COLL_SPREAD_NONE,
    COLL_SPREADS
};

/* A legal operation for the datatype: `from`, or one of those after it. */
PEER_Op coll_legal_op(PEER_Datatype type, PEER_Op from);
/* Sets all of a call whose kind, type and op are set, but counts. Half of the calls are out of place on all
 * ranks. */
void coll_draw_shape(struct coll_call *call, uint64_t random, int rank, int size);
/* Sets counts: no rank's message has more than size * count elements. Alltoallv can be in place on half of the
 * calls. */
void coll_spread_counts(struct coll_call *call, enum coll_spread spread, int size);
/* The same with a spread that is drawn. */
void coll_draw_counts(struct coll_call *call, size_t count, int size);

/* ---- Layout --------------------------------------------------------------------------------------------- */

/* Elements at .. at+count-1 of a buffer, which are element `first` and so on of the input of rank `from`. */
struct coll_block {
    size_t at, count;
    int from; /* a rank, or INPUTS_COMBINED */
    size_t first;
};

struct coll_blocks {
    int n;
    struct coll_block block[PEER_MAX_PEERS];
};

enum coll_base { COLL_SEND_BUFFER, COLL_RECV_BUFFER, COLL_IN_PLACE_POINTER, COLL_UNUSED };

/* What is passed as a buffer: an element of one of the two. */
struct coll_pointer {
    enum coll_base base;
    size_t at;
};

/* A call as one rank makes it. */
struct coll_layout {
    struct coll_blocks send;              /* in the send buffer, before and after */
    struct coll_blocks before, after;     /* in the receive buffer; what `after` does not name stays */
    size_t undefined_at, undefined_count; /* in the receive buffer, after */
    size_t send_extent, recv_extent;      /* elements */
    struct coll_pointer sendbuf, recvbuf; /* the arguments */
    size_t send_counts[PEER_MAX_PEERS], send_displs[PEER_MAX_PEERS];
    size_t recv_counts[PEER_MAX_PEERS], recv_displs[PEER_MAX_PEERS];
    bool in_place; /* so that the arguments for sending are not needed */
};

/* Makes place one that this rank may use. */
void coll_settle_place(struct coll_call *call, int rank, int size);
void coll_lay_out(struct coll_layout *layout, const struct coll_call *call, int rank, int size);

/* ---- Trials --------------------------------------------------------------------------------------------- */

/* Buffers for one trial at a time. */
struct coll_trial {
    struct bed *bed;
    size_t capacity;                    /* bytes of the largest buffer of a call */
    unsigned char *send, *recv;         /* on the bed, coll_room(capacity) bytes each */
    unsigned char *sent, *wanted, *got; /* images of them in plain memory */
    unsigned char *filling;             /* what lies around data */
    struct coll_call now;
    struct coll_layout layout;
    int rank, size;
    PEER_Comm comm;
    const char *note; /* for the message of a failure, or NULL */
};

size_t coll_room(size_t capacity);
void coll_open(struct coll_trial *t, struct bed *bed, size_t capacity);
void coll_close(struct coll_trial *t);

/* Fills the buffers for a call of this rank in the inputs' group; ended on return. */
void coll_prepare(struct coll_trial *t, struct inputs *in, int rank, const struct coll_call *call);
/* The status of the call. The arrays that it took are gone when this returns. */
int coll_start(struct coll_trial *t, PEER_Comm comm, PEER_Stream stream);
/* Of a call that must succeed. */
void coll_must_start(struct coll_trial *t, PEER_Comm comm, PEER_Stream stream);
/* When the call has ended. */
void coll_check(struct coll_trial *t);
/* All of that on the bed's stream, for a call that must succeed. */
void coll_run(struct coll_trial *t, struct inputs *in, int rank, const struct coll_call *call,
              PEER_Comm comm);

/* The next random number below `below`; *random is where the row of them stands. */
uint64_t coll_draw(uint64_t *random, uint64_t below);

/* Finalises MPI and skips the test, on all ranks alike. mpirun ends all ranks with the first one, so rank 0
 * has said why before anyone may end. */
_Noreturn void coll_skip(const char *reason);

/* The main of a test of the cuda device: run() on a communicator with the settings, or a skip, for the reason
 * given if that is the host device's. run is NULL in a build without CUDA. */
int coll_main_cuda(int argc, char **argv, const char *settings, const char *no_host,
                   void (*run)(struct bed *bed, PEER_Comm comm, int rank, int size));

#endif
