/* Selection: from a collective, its size and what the communicator can do to a plan. The rows are data;
 * reading them is pure, so all ranks choose alike. */
#include "internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peercoll.h"

#define ANY_BYTES UINT64_MAX
#define KIB       UINT64_C(1024)
#define MIB       (1024 * KIB)

/* Sets: all; those of a root; of these the ones that send it, or make it send, the whole message. */
#define EVERY  PEER_N_COLLECTIVES
#define ROOTED (PEER_N_COLLECTIVES + 1)
#define WHOLE  (PEER_N_COLLECTIVES + 2)

#define HOST  PEER_LINK_HOST
#define LOCAL PEER_LINK_LOCAL
#define WIRE  PEER_LINK_WIRE
#define SHM   PEER_LINK_SHM
#define NVL   PEER_LINK_NVLINK

/* A row of the peer kernels. */
#define ROW(link, set, min, max, bytes, algorithm, protocol, blocks, threads, direction, pieces)             \
    {                                                                                                        \
        link, set, min, max, bytes, PEER_ALGO_##algorithm, PEER_PROTO_##protocol, blocks, threads,           \
            PEER_##direction, pieces, PEER_PATH_PEER                                                         \
    }
#define PUSH(...)      ROW(__VA_ARGS__, PUSH, 1)
#define PIECES(n, ...) ROW(__VA_ARGS__, PUSH, n)
#define PULL(n, ...)   ROW(__VA_ARGS__, PULL, n)
#define BY_NCCL(...)                                                                                         \
    {                                                                                                        \
        __VA_ARGS__, .path = PEER_PATH_NCCL                                                                  \
    }

static const struct peer_row rows[] = {
    /* Two and more ranks on two cores, see docs/results. Two ranks that add up halves do half the work each. */
    PUSH(HOST, PEER_COLL_ALLREDUCE, 2, 2, 16, ONESHOT, LL, 1, 1),
    PUSH(HOST, PEER_COLL_ALLREDUCE, 2, 2, 3 * KIB, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, PEER_COLL_ALLREDUCE, 2, 2, 6 * KIB, TWOSHOT, FLAG, 1, 1),
    PUSH(HOST, PEER_COLL_ALLREDUCE, 2, 2, ANY_BYTES, STAGED, FLAG, 1, 1),
    PUSH(HOST, PEER_COLL_ALLREDUCE, 3, 4, 64, ONESHOT, FLAG, 1, 1),
    PULL(1, HOST, PEER_COLL_ALLREDUCE, 3, 16, 12 * KIB, ONESHOT, FLAG, 1, 1),
    PULL(1, HOST, PEER_COLL_ALLREDUCE, 3, 16, ANY_BYTES, TWOSHOT, FLAG, 1, 1),
    PUSH(HOST, ROOTED, 2, 16, 16, ONESHOT, LL, 1, 1),
    PUSH(HOST, PEER_COLL_BCAST, 3, 16, 32 * KIB, ONESHOT, FLAG, 1, 1),
    PULL(1, HOST, PEER_COLL_BCAST, 3, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, ROOTED, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, EVERY, 2, 16, 32, ONESHOT, LL, 1, 1),
    PUSH(HOST, PEER_COLL_ALLGATHER, 2, 2, 384, ONESHOT, FLAG, 1, 1),
    PULL(1, HOST, PEER_COLL_ALLGATHER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    PUSH(HOST, EVERY, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 1),
    /* Ranks that share one GPU: its memory is the wire. Measured on an H200, see docs/results. */
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 48 * KIB, ONESHOT, LINE, 32, 128),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 320 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 3 * MIB, ONESHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 2, 2, 6 * MIB, TWOSHOT, FLAG, 64, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 3, 4, 320 * KIB, ONESHOT, LINE, 64, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 3, 3, 3 * MIB, ONESHOT, FLAG, 64, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 3, 3, ANY_BYTES, TWOSHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 4, 4, 640 * KIB, TWOSHOT, LINE, 64, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 4, 4, 1536 * KIB, ONESHOT, FLAG, 64, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 4, 4, ANY_BYTES, TWOSHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 6 * KIB, ONESHOT, LL, 16, 128),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 96 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 384 * KIB, TWOSHOT, LINE, 16, 256),
    PUSH(LOCAL, PEER_COLL_ALLREDUCE, 5, 16, 768 * KIB, TWOSHOT, FLAG, 16, 256),
    PULL(1, LOCAL, PEER_COLL_ALLREDUCE, 5, 16, ANY_BYTES, TWOSHOT, FLAG, 16, 256),
    PUSH(LOCAL, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 32),
    PUSH(LOCAL, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, ONESHOT, FLAG, 16, 512),
    PUSH(LOCAL, PEER_COLL_BCAST, 2, 2, KIB, ONESHOT, LL, 16, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 2, 2, 4 * KIB, ONESHOT, LINE, 16, 512),
    PUSH(LOCAL, PEER_COLL_BCAST, 2, 2, 256 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 3, 4, 12 * KIB, ONESHOT, LL, 16, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 3, 4, 256 * KIB, ONESHOT, LINE, 64, 256),
    PULL(1, LOCAL, PEER_COLL_BCAST, 3, 4, 4 * MIB, ONESHOT, FLAG, 64, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 5, 16, KIB, ONESHOT, LL, 8, 256),
    PUSH(LOCAL, PEER_COLL_BCAST, 5, 16, 16 * KIB, ONESHOT, LINE, 8, 512),
    PULL(1, LOCAL, PEER_COLL_BCAST, 5, 16, 192 * KIB, ONESHOT, LINE, 8, 512),
    PULL(1, LOCAL, PEER_COLL_BCAST, 5, 16, MIB, ONESHOT, FLAG, 16, 256),
    PULL(1, LOCAL, PEER_COLL_BCAST, 3, 16, ANY_BYTES, TWOSHOT, FLAG, 32, 256),
    PUSH(LOCAL, EVERY, 2, 2, 2 * KIB, ONESHOT, LL, 16, 256),
    PUSH(LOCAL, PEER_COLL_REDUCE_SCATTER_BLOCK, 2, 2, 128 * KIB, ONESHOT, LL, 64, 256),
    PUSH(LOCAL, EVERY, 2, 2, 128 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(LOCAL, PEER_COLL_REDUCE_SCATTER_BLOCK, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 256),
    PUSH(LOCAL, EVERY, 2, 2, 384 * KIB, ONESHOT, LL, 64, 256),
    PUSH(LOCAL, EVERY, 3, 4, 12 * KIB, ONESHOT, LL, 16, 256),
    PUSH(LOCAL, EVERY, 3, 4, 256 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(LOCAL, EVERY, 5, 16, 4 * KIB, ONESHOT, LL, 8, 512),
    PUSH(LOCAL, PEER_COLL_REDUCE_SCATTER_BLOCK, 5, 16, 24 * KIB, ONESHOT, LINE, 8, 512),
    PUSH(LOCAL, PEER_COLL_REDUCE_SCATTER_BLOCK, 5, 16, 128 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(LOCAL, EVERY, 5, 16, 32 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(LOCAL, PEER_COLL_SCATTER, 5, 16, 96 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(LOCAL, PEER_COLL_REDUCE, 5, 16, MIB, ONESHOT, FLAG, 16, 256),
    PULL(1, LOCAL, PEER_COLL_REDUCE, 5, 16, ANY_BYTES, TWOSHOT, FLAG, 16, 256),
    PULL(1, LOCAL, PEER_COLL_ALLGATHER, 3, 16, ANY_BYTES, ONESHOT, FLAG, 32, 256),
    PUSH(LOCAL, EVERY, 2, 16, ANY_BYTES, ONESHOT, FLAG, 64, 256),
    /* A GPU for each rank, joined by PCIe. Computed, not measured: a line moves 4/3 of the bytes, a flag costs a
     * fence of some 2 us, oneshot moves n/2 times the bytes of twoshot, which costs one more latency of 1 us;
     * 50 GB/s for two ranks, half of that for more, which then share links. */
    PUSH(WIRE, PEER_COLL_ALLREDUCE, 2, 2, 256 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(WIRE, PEER_COLL_ALLREDUCE, 3, 4, 32 * KIB, ONESHOT, LINE, 32, 256),
    PUSH(WIRE, PEER_COLL_ALLREDUCE, 5, 16, 8 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(WIRE, PEER_COLL_ALLREDUCE, 3, 16, 256 * KIB, TWOSHOT, LINE, 32, 256),
    PUSH(WIRE, PEER_COLL_ALLREDUCE, 2, 16, ANY_BYTES, TWOSHOT, FLAG, 32, 512),
    PUSH(WIRE, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 32),
    PUSH(WIRE, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    PUSH(WIRE, EVERY, 2, 16, 64 * KIB, ONESHOT, LINE, 32, 256),
    PUSH(WIRE, WHOLE, 2, 2, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    PUSH(WIRE, WHOLE, 3, 16, ANY_BYTES, TWOSHOT, FLAG, 32, 512),
    PUSH(WIRE, EVERY, 2, 16, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    /* Host memory behind PCIe, which carries some 39 GB/s each way at once. A flag is waited for at the price of a
     * round trip, a line at the price of reading it over and over, by which many readers keep each other from
     * reading what has come: so few threads, or two pieces, of which half of the blocks read. What several readers poll
     * at one place comes late. Measured on an H200. */
    PUSH(SHM, PEER_COLL_ALLREDUCE, 2, 2, 768, ONESHOT, LL, 16, 128),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 2, 2, 6 * KIB, ONESHOT, LINE, 16, 128),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 2, 2, 96 * KIB, ONESHOT, LINE, 16, 512),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 2, 2, 192 * KIB, ONESHOT, FLAG, 8, 512),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 2, 2, 768 * KIB, TWOSHOT, FLAG, 16, 256),
    PULL(8, SHM, PEER_COLL_ALLREDUCE, 2, 2, 1536 * KIB, ONESHOT, FLAG, 32, 512),
    PIECES(4, SHM, PEER_COLL_ALLREDUCE, 2, 2, 6 * MIB, ONESHOT, FLAG, 32, 512),
    PULL(8, SHM, PEER_COLL_ALLREDUCE, 2, 2, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 3, 4, 768, ONESHOT, LL, 16, 128),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 3, 3, 6 * KIB, ONESHOT, LINE, 16, 128),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 3, 4, 6 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 3, 3, 12 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 4, 4, 12 * KIB, ONESHOT, LINE, 16, 512),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 3, 3, 24 * KIB, ONESHOT, LINE, 16, 512),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 3, 3, 40 * KIB, ONESHOT, FLAG, 8, 256),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 4, 4, 24 * KIB, ONESHOT, FLAG, 8, 128),
    PIECES(2, SHM, PEER_COLL_ALLREDUCE, 3, 3, 96 * KIB, TWOSHOT, LINE, 32, 256),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 3, 3, 768 * KIB, TWOSHOT, FLAG, 16, 256),
    PULL(4, SHM, PEER_COLL_ALLREDUCE, 3, 3, ANY_BYTES, TWOSHOT, FLAG, 64, 256),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 5, 16, 1536, ONESHOT, LL, 16, 128),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 5, 16, 6 * KIB, TWOSHOT, LL, 1, 512),
    PUSH(SHM, PEER_COLL_ALLREDUCE, 5, 16, 12 * KIB, TWOSHOT, LINE, 4, 256),
    PIECES(2, SHM, PEER_COLL_ALLREDUCE, 4, 16, 48 * KIB, TWOSHOT, LINE, 32, 256),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 4, 16, 96 * KIB, TWOSHOT, FLAG, 8, 128),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 4, 4, 384 * KIB, TWOSHOT, FLAG, 8, 256),
    PULL(1, SHM, PEER_COLL_ALLREDUCE, 5, 16, 192 * KIB, TWOSHOT, FLAG, 8, 256),
    PULL(4, SHM, PEER_COLL_ALLREDUCE, 4, 4, 1536 * KIB, TWOSHOT, FLAG, 64, 128),
    PULL(4, SHM, PEER_COLL_ALLREDUCE, 5, 16, 1536 * KIB, TWOSHOT, FLAG, 8, 256),
    PULL(8, SHM, PEER_COLL_ALLREDUCE, 4, 4, ANY_BYTES, TWOSHOT, FLAG, 32, 256),
    PULL(8, SHM, PEER_COLL_ALLREDUCE, 5, 16, ANY_BYTES, TWOSHOT, FLAG, 16, 256),
    PUSH(SHM, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 32),
    PUSH(SHM, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    PUSH(SHM, PEER_COLL_BCAST, 2, 2, 256, ONESHOT, LL, 16, 256),
    PUSH(SHM, PEER_COLL_BCAST, 2, 2, 64 * KIB, ONESHOT, LINE, 16, 512),
    PUSH(SHM, PEER_COLL_BCAST, 2, 2, MIB, ONESHOT, FLAG, 32, 512),
    PULL(1, SHM, PEER_COLL_BCAST, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 128),
    PUSH(SHM, PEER_COLL_BCAST, 3, 4, 16 * KIB, ONESHOT, LINE, 16, 256),
    PULL(1, SHM, PEER_COLL_BCAST, 3, 4, 48 * KIB, ONESHOT, LINE, 16, 128),
    PUSH(SHM, PEER_COLL_BCAST, 5, 16, 16 * KIB, ONESHOT, LINE, 32, 128),
    PULL(1, SHM, PEER_COLL_BCAST, 3, 4, ANY_BYTES, ONESHOT, FLAG, 16, 256),
    PULL(1, SHM, PEER_COLL_BCAST, 5, 16, ANY_BYTES, ONESHOT, FLAG, 8, 256),
    PUSH(SHM, EVERY, 2, 2, KIB, ONESHOT, LL, 8, 512),
    PUSH(SHM, EVERY, 2, 2, 96 * KIB, ONESHOT, LINE, 32, 256),
    PUSH(SHM, EVERY, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 256),
    PUSH(SHM, EVERY, 3, 4, KIB, ONESHOT, LL, 16, 256),
    PUSH(SHM, EVERY, 3, 4, 16 * KIB, ONESHOT, LINE, 8, 512),
    PUSH(SHM, ROOTED, 3, 4, 40 * KIB, ONESHOT, LINE, 32, 256),
    PUSH(SHM, ROOTED, 3, 4, ANY_BYTES, ONESHOT, FLAG, 32, 256),
    PULL(1, SHM, PEER_COLL_ALLGATHER, 3, 4, ANY_BYTES, ONESHOT, FLAG, 16, 256),
    PUSH(SHM, EVERY, 3, 4, ANY_BYTES, ONESHOT, FLAG, 16, 256),
    PUSH(SHM, EVERY, 5, 16, 384, ONESHOT, LL, 8, 512),
    PUSH(SHM, EVERY, 5, 16, 8 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(SHM, PEER_COLL_GATHER, 5, 16, 24 * KIB, ONESHOT, LINE, 16, 256),
    PUSH(SHM, ROOTED, 5, 16, ANY_BYTES, ONESHOT, FLAG, 16, 256),
    PULL(1, SHM, PEER_COLL_ALLGATHER, 5, 16, ANY_BYTES, ONESHOT, FLAG, 8, 256),
    PUSH(SHM, EVERY, 5, 16, ANY_BYTES, ONESHOT, FLAG, 8, 256),
    /* H200s joined by NVLink: all-reduce on 2, 3 and 4, all else on 2; of more ranks computed. What NCCL has more channels
     * for is its own from some MiB on. */
    PUSH(NVL, PEER_COLL_ALLREDUCE, 2, 2, 24 * KIB, ONESHOT, LINE, 64, 128),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 2, 2, 192 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 2, 2, 384 * KIB, ONESHOT, LINE, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 2, 2, 3 * MIB, ONESHOT, FLAG, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 2, 2, 6 * MIB, TWOSHOT, FLAG, 64, 512),
    PULL(1, NVL, PEER_COLL_ALLREDUCE, 2, 2, 12 * MIB, ONESHOT, FLAG, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 16, 1536, ONESHOT, LINE, 64, 256),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 4, 24 * KIB, ONESHOT, LL, 64, 128),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 4, 192 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 3, 384 * KIB, ONESHOT, LINE, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 5, 16, 64 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 16, 768 * KIB, TWOSHOT, LINE, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 3, 3, 3 * MIB, TWOSHOT, FLAG, 64, 512),
    PULL(1, NVL, PEER_COLL_ALLREDUCE, 3, 3, 6 * MIB, TWOSHOT, FLAG, 64, 512),
    PUSH(NVL, PEER_COLL_ALLREDUCE, 4, 16, 6 * MIB, TWOSHOT, FLAG, 64, 512),
    BY_NCCL(NVL, PEER_COLL_ALLREDUCE, 2, 16, ANY_BYTES),
    PULL(1, NVL, PEER_COLL_ALLREDUCE, 2, 2, ANY_BYTES, ONESHOT, FLAG, 64, 512),
    PULL(1, NVL, PEER_COLL_ALLREDUCE, 3, 16, ANY_BYTES, TWOSHOT, FLAG, 64, 512),
    PUSH(NVL, PEER_COLL_BARRIER, 2, 16, ANY_BYTES, ONESHOT, FLAG, 1, 32),
    PUSH(NVL, PEER_COLL_ALLTOALLV, 2, 16, ANY_BYTES, ONESHOT, FLAG, 32, 512),
    PUSH(NVL, WHOLE, 2, 2, 4 * KIB, ONESHOT, LL, 32, 256),
    PUSH(NVL, PEER_COLL_BCAST, 2, 2, MIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, PEER_COLL_REDUCE, 2, 2, MIB, ONESHOT, LINE, 64, 512),
    PUSH(NVL, WHOLE, 3, 16, 256 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, WHOLE, 2, 2, 4 * MIB, ONESHOT, FLAG, 64, 512),
    PUSH(NVL, WHOLE, 3, 16, 4 * MIB, TWOSHOT, FLAG, 64, 512),
    BY_NCCL(NVL, WHOLE, 2, 16, ANY_BYTES),
    PUSH(NVL, PEER_COLL_REDUCE_SCATTER_BLOCK, 2, 16, 12 * KIB, ONESHOT, LL, 32, 256),
    PUSH(NVL, EVERY, 2, 16, 768, ONESHOT, LL, 32, 256),
    PUSH(NVL, EVERY, 2, 16, 128 * KIB, ONESHOT, LINE, 64, 256),
    PUSH(NVL, EVERY, 2, 2, 384 * KIB, ONESHOT, LINE, 64, 512),
    PUSH(NVL, EVERY, 2, 2, 6 * MIB, ONESHOT, FLAG, 64, 512),
    /* A share that its part of the staging does not hold goes in pieces, and then NCCL is faster. */
    PUSH(NVL, EVERY, 3, 4, 3 * MIB, ONESHOT, FLAG, 64, 512),
    PUSH(NVL, EVERY, 5, 16, 1536 * KIB, ONESHOT, FLAG, 64, 512),
    BY_NCCL(NVL, EVERY, 2, 16, ANY_BYTES),
    PUSH(NVL, EVERY, 2, 16, ANY_BYTES, ONESHOT, FLAG, 64, 512),
};

#define ROWS (sizeof rows / sizeof rows[0])

#define NAME(name, text) text,
static const char *const link_names[PEER_N_LINKS] = {"host", "local", "wire", "shm", "nvlink"};
static const char *const algorithm_names[] = {PEER_ALGORITHMS(NAME)};
static const char *const protocol_names[] = {PEER_PROTOCOLS(NAME)};
static const char *const direction_names[] = {PEER_DIRECTIONS(NAME)};
static const char *const collective_names[] = {PEER_COLLECTIVES(NAME)};
#undef NAME

/* A collective with counts that all ranks know goes as the one that it is where they are alike. */
static uint32_t without_counts(uint32_t collective)
{
    return collective == PEER_COLL_ALLGATHERV       ? PEER_COLL_ALLGATHER
           : collective == PEER_COLL_REDUCE_SCATTER ? PEER_COLL_REDUCE_SCATTER_BLOCK
                                                    : collective;
}

static bool in_set(uint32_t set, uint32_t collective)
{
    bool whole = collective == PEER_COLL_REDUCE || collective == PEER_COLL_BCAST;
    return set == EVERY || set == collective || set == without_counts(collective) ||
           (set == ROOTED && peer_collective_rooted(collective)) || (set == WHOLE && whole);
}

static const struct peer_row *row_among(const struct peer_row *among, size_t n,
                                        const struct peer_query *query)
{
    for (size_t i = 0; i < n; i++) {
        const struct peer_row *row = &among[i];
        if (row->link == query->link && in_set(row->collective, query->collective) &&
            row->min_ranks <= query->nranks && query->nranks <= row->max_ranks &&
            query->nbytes <= row->max_bytes &&
            (row->path != PEER_PATH_NCCL || (query->nccl_ok && query->algorithm == PEER_CHOICE_AUTO)))
            return row;
    }
    return NULL;
}

/* PEER_TABLE's, the model's, or a built-in one; *reason: which. */
static const struct peer_row *row_of(const struct peer_query *query, const char **reason)
{
    const struct peer_row *row = row_among(query->rows, query->nrows, query);
    *reason = "PEER_TABLE";
    if (row == NULL) {
        row = row_among(query->model_rows, query->nmodel_rows, query);
        *reason = row != NULL ? "the model" : "the table";
    }
    return row != NULL ? row : row_among(rows, ROWS, query);
}

/* Blocks that have something to do: every thread at least one pack. All, where the size is not known. */
static uint32_t busy_blocks(const struct peer_query *query, const struct peer_plan *plan, uint32_t most)
{
    if (query->collective == PEER_COLL_ALLTOALLV)
        return most;
    uint64_t shares = query->collective == PEER_COLL_ALLREDUCE ? 1 : query->nranks;
    const uint64_t of_block = (uint64_t)peer_pack_of(plan->protocol, 1, 16).data * plan->threads;
    const uint64_t blocks = (query->nbytes * shares + of_block - 1) / of_block;
    return blocks < 1 ? 1 : blocks < most ? (uint32_t)blocks : most;
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

bool peer_collective_has_twoshot(uint32_t collective)
{
    return collective == PEER_COLL_ALLREDUCE || in_set(WHOLE, collective);
}

/* What the settings force, or the row's. */
static uint32_t choose(uint32_t forced, uint32_t row)
{
    return forced != PEER_CHOICE_AUTO ? forced : row;
}

/* The probe sees whether lines tear that are pushed; what is loaded from another GPU it does not see. */
static bool line_serves(const struct peer_query *query, uint32_t direction)
{
    const bool other_gpus = query->link == PEER_LINK_WIRE || query->link == PEER_LINK_NVLINK;
    return query->line_ok && (!other_gpus || direction == PEER_PUSH);
}

/* A row's protocol. The built-in ones say ll for small messages, which is slow with blocks of a reduce-scatter that are no
 * multiple of the 8 bytes that it reads at once; line, which is as fast otherwise, reads words of 4. */
static uint32_t protocol_of(const struct peer_query *query, const struct peer_row *row)
{
    const bool built_in = row >= rows && row < rows + ROWS;
    const bool odd_blocks = query->link != PEER_LINK_HOST && query->nbytes % 8 != 0 &&
                            without_counts(query->collective) == PEER_COLL_REDUCE_SCATTER_BLOCK;
    return built_in && odd_blocks && row->protocol == PEER_PROTO_LL ? PEER_PROTO_LINE : row->protocol;
}

static struct peer_plan peer_plan_of(const struct peer_query *query, const struct peer_row *row,
                                     const char *reason)
{
    struct peer_plan plan = {.path = PEER_PATH_PEER, .reason = reason};
    plan.algorithm = row->algorithm;
    if (peer_collective_has_twoshot(query->collective))
        plan.algorithm = choose(query->algorithm, row->algorithm);
    plan.protocol = choose(query->protocol, protocol_of(query, row));
    plan.direction = choose(query->direction, row->direction);
    if (plan.protocol == PEER_PROTO_LINE && !line_serves(query, plan.direction))
        plan.protocol = PEER_PROTO_LL;
    if (plan.algorithm == PEER_ALGO_ISLAND) {
        plan.direction = PEER_PUSH;
        if (query->islands < 2 || query->collective == PEER_COLL_BCAST)
            plan.algorithm = PEER_ALGO_TWOSHOT;
    }
    if (plan.algorithm == PEER_ALGO_STAGED) { /* it has one form */
        plan.protocol = PEER_PROTO_FLAG;
        plan.direction = PEER_PUSH;
    }
    plan.pieces = query->pieces != 0 ? query->pieces : row->pieces;
    plan.threads = query->threads != 0 && query->link != PEER_LINK_HOST ? query->threads : row->threads;
    plan.blocks = query->blocks != 0 ? query->blocks : busy_blocks(query, &plan, row->blocks);
    plan.threads = at_most(plan.threads, query->max_threads);
    plan.blocks = at_most(at_most(plan.blocks, query->max_blocks), query->max_threads / plan.threads);
    return plan;
}

struct peer_plan peer_select(const struct peer_query *query)
{
    const char *reason;
    const struct peer_row *row = row_of(query, &reason);
    struct peer_plan plan = {.path = query->nccl_ok ? PEER_PATH_NCCL : PEER_PATH_MPI};
    if (query->nranks == 1)
        return (struct peer_plan){.path = PEER_PATH_SELF, .reason = "one rank"};
    if (query->peer_ok && row != NULL && row->path == PEER_PATH_PEER)
        return peer_plan_of(query, row, reason);
    plan.reason = query->nranks > PEER_MAX_PEERS ? "more ranks than the peer kernels serve"
                  : query->peer_ok               ? reason
                  : query->nccl_ok               ? "no peer path"
                                                 : "neither a peer path nor an NCCL that serves the call";
    return plan;
}

const char *peer_collective_name(uint32_t collective)
{
    return collective < PEER_N_COLLECTIVES ? collective_names[collective] : "?";
}

/* "oneshot.line 14x256", "twoshot.flag.pull 32x512/8"; with a blank between the two words if `wide` is 0. */
static void way_text(uint32_t algorithm, uint32_t protocol, uint32_t direction, int wide, uint32_t blocks,
                     uint32_t threads, uint32_t pieces, char *text, size_t text_bytes)
{
    char way[48];
    snprintf(way, sizeof way, "%s.%s%s%s", algorithm_names[algorithm], protocol_names[protocol],
             direction != PEER_PUSH ? "." : "", direction != PEER_PUSH ? direction_names[direction] : "");
    snprintf(text, text_bytes, pieces > 1 ? "%-*s %ux%u/%u" : "%-*s %ux%u", wide, way, blocks, threads,
             pieces);
}

void peer_plan_text(const struct peer_plan *plan, const char *transport, char *text, size_t text_bytes)
{
    static const char *const paths[] = {"peer", "nccl", "mpi", "self"};
    char way[64];
    if (plan->path != PEER_PATH_PEER) {
        snprintf(text, text_bytes, "%s", paths[plan->path]);
        return;
    }
    way_text(plan->algorithm, plan->protocol, plan->direction, 0, plan->blocks, plan->threads, plan->pieces,
             way, sizeof way);
    snprintf(text, text_bytes, "%s %s", transport, way);
}

const char *peer_link_name(enum peer_link link)
{
    return link_names[link];
}

/* ---- Rows as text ---------------------------------------------------------------------------------------- */

static const char *set_name(uint32_t set)
{
    return set == EVERY    ? "(all)"
           : set == ROOTED ? "(rooted)"
           : set == WHOLE  ? "(bcast,reduce)"
                           : collective_names[set];
}

void peer_row_text(const struct peer_row *row, char *text, size_t text_bytes)
{
    char ranks[16], bytes[24], way[64] = "nccl";
    snprintf(ranks, sizeof ranks, "%u-%u", row->min_ranks, row->max_ranks);
    snprintf(bytes, sizeof bytes, row->max_bytes == ANY_BYTES ? "any" : "%" PRIu64, row->max_bytes);
    if (row->path == PEER_PATH_PEER)
        way_text(row->algorithm, row->protocol, row->direction, 17, row->blocks, row->threads, row->pieces,
                 way, sizeof way);
    snprintf(text, text_bytes, "%-6s %-20s %-5s %-8s %s", link_names[row->link], set_name(row->collective),
             ranks, bytes, way);
}

/* The index of a name of `length` bytes, or n. */
static uint32_t name_index(const char *const *names, uint32_t n, const char *text, size_t length)
{
    uint32_t i = 0;
    while (i < n && (strlen(names[i]) != length || memcmp(names[i], text, length) != 0))
        i++;
    return i;
}

/* "twoshot.flag.pull" */
static bool parse_way(const char *text, struct peer_row *row)
{
    size_t length = strcspn(text, ".");
    row->algorithm = name_index(algorithm_names, PEER_N_ALGORITHMS, text, length);
    if (text[length] == '\0')
        return false;
    text += length + 1;
    length = strcspn(text, ".");
    row->protocol = name_index(protocol_names, PEER_N_PROTOCOLS, text, length);
    row->direction = PEER_PUSH;
    if (text[length] == '.')
        row->direction =
            name_index(direction_names, PEER_N_DIRECTIONS, text + length + 1, strlen(text + length + 1));
    return row->algorithm < PEER_N_ALGORITHMS && row->protocol < PEER_N_PROTOCOLS &&
           row->direction < PEER_N_DIRECTIONS;
}

static bool parse_grid(const char *text, struct peer_row *row)
{
    int end = 0, more = 0;
    row->pieces = 1;
    if (sscanf(text, "%ux%u%n", &row->blocks, &row->threads, &end) != 2)
        return false;
    if (text[end] == '/' && sscanf(text + end, "/%u%n", &row->pieces, &more) != 1)
        return false;
    if (text[end + more] != '\0' || row->blocks < 1 || row->blocks > PEER_MAX_BLOCKS || row->pieces < 1 ||
        row->pieces > PEER_MAX_PIECES)
        return false;
    if (row->link == PEER_LINK_HOST)
        return row->threads == 1;
    return row->threads % 32 == 0 && row->threads > 0 && row->threads <= PEER_MAX_THREADS;
}

static bool parse_ranks(const char *text, struct peer_row *row)
{
    int end = 0;
    return sscanf(text, "%u-%u%n", &row->min_ranks, &row->max_ranks, &end) == 2 && text[end] == '\0' &&
           row->min_ranks <= row->max_ranks;
}

static bool parse_bytes_field(const char *text, uint64_t *bytes)
{
    char *end;
    *bytes = ANY_BYTES;
    if (strcmp(text, "any") == 0)
        return true;
    *bytes = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && *end == '\0';
}

static uint32_t parse_set(const char *text)
{
    for (uint32_t set = EVERY; set <= WHOLE; set++)
        if (strcmp(text, set_name(set)) == 0)
            return set;
    return name_index(collective_names, PEER_N_COLLECTIVES, text, strlen(text));
}

/* Whether every collective of a set has a twoshot form. */
static bool set_has_twoshot(uint32_t set)
{
    return set == WHOLE || (set < PEER_N_COLLECTIVES && peer_collective_has_twoshot(set));
}

bool peer_row_parse(const char *text, struct peer_row *row, char *why, size_t why_bytes)
{
    char link[16], collective[32], ranks[16], bytes[24], way[48], grid[32] = "", more[2];
    int fields =
        sscanf(text, "%15s %31s %15s %23s %47s %31s %1s", link, collective, ranks, bytes, way, grid, more);
    const char *what = NULL;
    memset(row, 0, sizeof *row);
    if (fields < 5 || fields > 6) {
        snprintf(why, why_bytes, "it has %s fields; LINK COLLECTIVE RANKS BYTES ALGORITHM GRID are wanted",
                 fields < 5 ? "too few" : "too many");
        return false;
    }
    row->link = name_index(link_names, PEER_N_LINKS, link, strlen(link));
    row->collective = parse_set(collective);
    row->path = strcmp(way, "nccl") == 0 ? PEER_PATH_NCCL : PEER_PATH_PEER;
    if (row->link == PEER_N_LINKS)
        what = "LINK is none of host, local, wire, shm, nvlink";
    else if (row->collective == PEER_N_COLLECTIVES && strcmp(collective, set_name(EVERY)) != 0)
        what = "COLLECTIVE is none that `peer_info --table' shows";
    else if (!parse_ranks(ranks, row))
        what = "RANKS is no range as 2-4";
    else if (!parse_bytes_field(bytes, &row->max_bytes))
        what = "BYTES is neither a number nor any";
    else if (row->path == PEER_PATH_PEER && !parse_way(way, row))
        what = "ALGORITHM is neither nccl nor as twoshot.flag or twoshot.flag.pull";
    else if (row->path == PEER_PATH_PEER && row->algorithm != PEER_ALGO_ONESHOT &&
             !set_has_twoshot(row->collective))
        what = "only allreduce, reduce and bcast have other algorithms than oneshot";
    else if (row->path == PEER_PATH_PEER && row->algorithm == PEER_ALGO_STAGED &&
             (row->protocol != PEER_PROTO_FLAG || row->direction != PEER_PUSH))
        what = "staged is staged.flag, without pull";
    else if (row->path == PEER_PATH_PEER && row->algorithm == PEER_ALGO_ISLAND && row->direction == PEER_PULL)
        what = "island has no pull";
    else if (row->path == PEER_PATH_NCCL && fields == 6)
        what = "nccl has no GRID";
    else if (row->path == PEER_PATH_PEER && !parse_grid(grid, row))
        what =
            "GRID is not BLOCKSxTHREADS or BLOCKSxTHREADS/PIECES, with up to 64 blocks, and on link host 1 "
            "thread, else a multiple of 32 up to 512";
    if (what != NULL)
        snprintf(why, why_bytes, "%s", what);
    return what == NULL;
}

void peer_select_print_row(FILE *to, const struct peer_query *query)
{
    const char *reason;
    const struct peer_row *row = row_of(query, &reason);
    char text[128] = "none";
    if (row != NULL)
        peer_row_text(row, text, sizeof text);
    fprintf(to, "%s", text);
}

static void print_rows(FILE *to, const struct peer_row *first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[128];
        peer_row_text(&first[i], text, sizeof text);
        fprintf(to, "%s\n", text);
    }
}

void peer_select_print(FILE *to, const struct peer_table *table)
{
    fprintf(to, "#%-5s %-20s %-5s %-8s %-17s %s\n", "link", "collective", "ranks", "up to", "algorithm",
            "blocks x threads, at most / pieces, at least");
    print_rows(to, table->rows, table->nrows);
    if (table->nrows > 0)
        fprintf(to, "# built in\n");
    print_rows(to, rows, ROWS);
}
