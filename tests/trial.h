/* trial.h: what the tests of collectives share: a communicator from a line of settings, and the trial, one
 * all-reduce with everything checked: each bit of the result against the reference, guard bytes around both
 * buffers, and a send buffer that stays as it was. A check that fails says which call it was and ends the program.
 *
 * A trial takes a window of a reference's elements, so that calls one after the other have different data. */
#ifndef PEER_TESTS_TRIAL_H
#define PEER_TESTS_TRIAL_H

#include "internal.h"
#include "reference.h"
#include "tools/bed.h"

/* Pairs of algorithm and protocol by push, then by pull; then staged; then island, by protocol. */
#define TRIAL_PUSHED     6
#define TRIAL_STAGED     (2 * TRIAL_PUSHED)
#define TRIAL_ISLAND     (TRIAL_STAGED + 1)
#define TRIAL_ALGORITHMS (TRIAL_ISLAND + PEER_N_PROTOCOLS)

enum trial_place { TRIAL_OUT_OF_PLACE, TRIAL_IN_PLACE, TRIAL_SAME_POINTER };

struct trial {
    const struct reference *ref;
    PEER_Op op;
    size_t first, count; /* the window */
    enum trial_place place;
    size_t send_shift, recv_shift; /* elements by which the buffers are off a 64-byte boundary */
};

/* Buffers for one trial at a time. */
struct trial_buffers {
    struct bed *bed;
    size_t capacity;                    /* bytes of the largest message */
    unsigned char *send, *recv;         /* on the bed */
    unsigned char *sent, *wanted, *got; /* images of them in plain memory */
    struct trial now;
    uint64_t digest; /* of all results so far, to be compared between ranks */
};

/* MPI_Init, and this rank and the number of ranks. */
void trial_begin(int *argc, char ***argv, int *rank, int *size);

/* PEER_Comm_create with settings such as "algorithm=oneshot.ll blocks=3"; "" for none. */
int trial_try_create(MPI_Comm mpi, const char *settings, PEER_Comm *comm);
PEER_Comm trial_create(MPI_Comm mpi, const char *settings);
void trial_free(PEER_Comm *comm);
/* "oneshot.line", "oneshot.line.pull" and so on, i from 0 to TRIAL_ALGORITHMS-1 */
const char *trial_algorithm(int i);
/* Its settings for so many ranks, "algorithm=oneshot.line", in a buffer that the next call takes. With island the ranks'
 * islands are in it, which differ by protocol: two halves, one rank and the rest, every third. */
const char *trial_settings(int i, int size);
/* The order in which it combines. */
struct reference_order trial_order(int i, int size);
/* What the kernels are told of it. */
void trial_set_algorithm(int i, struct peer_call *call);
/* The value of a key of PEER_Comm_get_info, in a buffer that the next call takes. */
const char *trial_info(PEER_Comm comm, const char *key);

void trial_open(struct trial_buffers *t, struct bed *bed, size_t capacity);
void trial_close(struct trial_buffers *t);

void trial_prepare(struct trial_buffers *t, const struct trial *what);
int trial_start(struct trial_buffers *t, PEER_Comm comm); /* the status of PEER_Allreduce */
void trial_check(struct trial_buffers *t);                /* when the call has ended: bed_sync */
/* All of that, for a call that must succeed. */
void trial_run(struct trial_buffers *t, const struct trial *what, PEER_Comm comm);

/* Checks that all ranks had the same results, bit by bit. Collective. */
void trial_agree(struct trial_buffers *t, MPI_Comm mpi);

#endif
