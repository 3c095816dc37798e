/* peercoll: GPU collectives for programs started by mpirun, where each MPI rank owns one GPU.
 *
 * This header is the contract. The rules that hold for every call:
 *
 * - Collective calls are made by all ranks of the communicator, in the same order. A call says so below;
 *   calls that don't are local. A communicator is used by one thread at a time.
 * - Counts are elements, sizes are bytes. Any count is legal, 0 included. A buffer needs the alignment of its
 *   element, no more. Buffers of one call are disjoint, or the call is in place.
 * - In place: pass PEER_IN_PLACE as sendbuf (PEER_Scatter: as the root's recvbuf), or the same pointer as sendbuf
 *   and recvbuf; both mean the same. Ranks may differ in that. Where the in-place input is then is said at
 *   each call. A sendbuf that lies exactly at this rank's own block of recvbuf, or a recvbuf at its own block
 *   of sendbuf, is legal too (as in NCCL).
 * - A buffer, count or array that a rank does not need (a receive buffer on a rank that is not the root) is
 *   ignored there.
 * - On the cuda device buffers are memory that the GPU can reach, a call is put on `stream` and returns, and
 *   the result is there when the work on that stream has got so far. On the host device buffers are host
 *   memory, `stream` is ignored, and the call has finished when it returns.
 * - Calls on one communicator may go to different streams: each begins after the one before it has ended. Calls on
 *   different communicators don't wait for each other.
 * - Kernels of the program that are launched with programmatic stream serialization may begin while a call before
 *   them on the stream ends, whatever PEER_PDL is: as CUDA wants it, they must call cudaGridDependencySynchronize().
 * - On the cuda device a call may be captured into a CUDA graph and the graph launched any number of times;
 *   all ranks launch alike. (Calls that the MPI fallback serves can't be captured: PEER_ERR_UNSUPPORTED.)
 * - Numbers. Elements are combined from rank 0 to rank n-1, so results are the same bits on all ranks and in every
 *   run. (Algorithm island combines the ranks of an island, and then the islands: the same bits on all ranks, but not
 *   those of the others.) fp16, bf16 and fp8 are accumulated in fp32 and rounded once; fp8 saturates: what is beyond the
 *   largest finite value, infinities too, becomes that value. 8- and 16-bit integers are accumulated in 32
 *   bits, all others in their own width; integers wrap. AVG is the sum, then one division by the number of
 *   ranks; of integers it truncates toward zero. MIN and MAX of a set that holds a NaN are NaN; of equal
 *   elements (+0 and -0) they are the lowest rank's. On one rank the result is the input. (NCCL, where it
 *   serves a call, keeps to the meaning, but promises neither order nor bits.)
 * - Legal pairs of datatype and operation, as MPI's: SUM, PROD, AVG for all but BOOL; MIN, MAX for integers and
 *   floating types; LAND, LOR, LXOR for integers and BOOL; BAND, BOR, BXOR for integers.
 * - Every call returns PEER_SUCCESS or a negative status; PEER_Last_error() has the text. An argument error
 *   leaves the communicator as it was. Any other error breaks the communicator: every later call on it
 *   returns that status, and PEER_Comm_free is what is left to do.
 * - The library never ends the program, prints only through its log (PEER_LOG), and leaves the current device
 *   as it found it. MPI must be initialised, and is never initialised or finalised here.
 */
#ifndef PEERCOLL_H
#define PEERCOLL_H

#include <mpi.h>
#include <stddef.h>

#include "peercoll_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_VERSION_MAJOR 0
#define PEER_VERSION_MINOR 1
#define PEER_VERSION_PATCH 0

/* A communicator: an ordered group of MPI ranks and all they set up together. */
typedef struct peer_comm *PEER_Comm;
#define PEER_COMM_NULL ((PEER_Comm)0)

/* The same type as cudaStream_t, so that no CUDA header is needed here. NULL is the legacy default stream. */
typedef struct CUstream_st *PEER_Stream;

#define PEER_IN_PLACE ((const void *)-1)

/* ---- Communicators -------------------------------------------------------------------------------------- */

/* Makes a communicator over the ranks of mpi_comm. Collective over mpi_comm, blocking; may take seconds.
 *   mpi_comm  an intracommunicator; it is duplicated, and may be freed afterwards.
 *   info      MPI_INFO_NULL, or settings: each variable of peercoll(7) in lower case without PEER_
 *             ("transport", "timeout_ms", ...). A key here wins over the environment; unknown ones are ignored.
 *   comm      out; PEER_COMM_NULL on error. All ranks get the same verdict.
 * On the cuda device the current device of the calling thread is the communicator's (PEER_Select_device).
 *   PEER_ERR_ARG          comm is NULL, mpi_comm is MPI_COMM_NULL or an intercommunicator
 *   PEER_ERR_SETTING      a setting is not legal; the text names it and what is
 *   PEER_ERR_UNSUPPORTED  a device or transport asked for by name can't serve on some rank
 *   PEER_ERR_MISMATCH     the ranks' settings or library versions differ
 *   PEER_ERR_NO_MEMORY, _SYSTEM, _MPI, _CUDA  what failed, on the first rank it failed on */
int PEER_Comm_create(MPI_Comm mpi_comm, MPI_Info info, PEER_Comm *comm);

/* Waits for the calls of this communicator that are still running, and frees it. Collective, blocking.
 *   comm  in and out; becomes PEER_COMM_NULL. PEER_COMM_NULL is legal and does nothing.
 * On the cuda device it waits for all work on the GPU, and so may making a communicator: ranks that have other calls
 * under way make, split and free in one order with them. Calls that NCCL or MPI serve have no time limit.
 * After an error the ranks don't wait for each other, so that a lost rank can't hold the others up; nor do they
 * wait longer than PEER_TIMEOUT_MS. Memory that a lost rank may still write to then stays allocated.
 * A communicator still alive in MPI_Finalize is freed there, with a warning in the log.
 *   PEER_ERR_ARG  comm is NULL      PEER_ERR_COMM  *comm is not a communicator */
int PEER_Comm_free(PEER_Comm *comm);

/* This process's rank in comm, 0 to size-1: its rank in the MPI communicator that comm was made from.
 *   PEER_ERR_COMM, PEER_ERR_ARG (rank is NULL) */
int PEER_Comm_rank(PEER_Comm comm, int *rank);

/* The number of ranks in comm. PEER_ERR_COMM, PEER_ERR_ARG (size is NULL) */
int PEER_Comm_size(PEER_Comm comm, int *size);

/* What became of the calls so far, as far as known: *status is PEER_SUCCESS, or the error that broke the
 * communicator, with PEER_Last_error() set to its text. Local; waits for no call, but, when it first sees an error of
 * the peer kernels, for other ranks' notes of it, for 0.1 s at most.
 *   PEER_ERR_COMM, PEER_ERR_ARG (status is NULL) */
int PEER_Comm_get_async_error(PEER_Comm comm, int *status);

/* Ends the communicator at once, from any rank alone: calls that wait in peer kernels, here and on the other
 * ranks, end, and every later call returns PEER_ERR_ABORTED. (Of calls that NCCL serves only this rank's end, and one
 * that another thread is just making when it has been made; those in MPI don't.) Local, never blocks. It may come
 * from another thread than the one that is inside a call. PEER_Comm_free is what is left to do. On a communicator
 * that is broken already it does nothing.
 *   PEER_ERR_COMM */
int PEER_Comm_abort(PEER_Comm comm);

/* Makes a communicator over the ranks of comm that gave the same color, ordered by key, then by rank in comm;
 * with comm's settings and devices. Collective over comm, blocking.
 *   color  0 or more, or MPI_UNDEFINED: this rank gets PEER_COMM_NULL
 *   out    out; PEER_COMM_NULL on error. All ranks of a color get the same verdict. If comm is broken: its error.
 *   PEER_ERR_ARG (out is NULL, color is negative), and as PEER_Comm_create */
int PEER_Comm_split(PEER_Comm comm, int color, int key, PEER_Comm *out);

/* How comm works, as a new MPI_Info that the caller frees. Local. The keys:
 *   "device"     "cuda" or "host"
 *   "transport"  what auto or the setting came to: "ipc", "shm", "nccl", "mpi" ("self" on one rank). Single calls
 *                may go to NCCL besides: see "plan"
 *   "nodes"      number of nodes
 *   "nccl"       version of the NCCL in use, or why there is none
 *   "memory_bytes"  of memory that it takes on this rank: the device's, with "shm" the host's (NCCL's own not counted)
 *   "create_ms"  how long PEER_Comm_create took on this rank
 *   "plan"       what served the last call on this rank, for example "ipc oneshot.line 14x256"; "none yet"
 *   PEER_ERR_COMM, PEER_ERR_ARG (info_used is NULL), PEER_ERR_MPI */
int PEER_Comm_get_info(PEER_Comm comm, MPI_Info *info_used);

/* Gives every rank of a node a GPU: number (rank among the ranks of mpi_comm on this node) modulo (visible
 * GPUs), and makes it current for the calling thread. Collective over mpi_comm. Call it before PEER_Comm_create
 * unless the program chooses devices itself.
 *   device  out: the number of the GPU, or -1 where the library has no CUDA or the machine no GPU (success:
 *           the host device serves). May be NULL.
 *   PEER_ERR_ARG, PEER_ERR_MPI, PEER_ERR_CUDA */
int PEER_Select_device(MPI_Comm mpi_comm, int *device);

/* ---- Collectives ---------------------------------------------------------------------------------------- */

/* Statuses of all collectives, as far as they apply:
 *   PEER_ERR_COMM, _TYPE, _ROOT         not a communicator, a datatype, a rank of the communicator
 *   PEER_ERR_OP                         not an operation, or not one for this datatype
 *   PEER_ERR_ARG                        an array of counts or displacements is NULL
 *   PEER_ERR_BUFFER                     NULL or misaligned; pageable host memory on the cuda device; buffers,
 *                                       or blocks of one receive buffer, that overlap
 *   PEER_ERR_COUNT                      more bytes than an address can reach; a sendcount, or sendcounts[rank], that
 *                                       is not this rank's recvcounts[rank]
 *   PEER_ERR_UNSUPPORTED                the MPI fallback, inside a graph capture
 *   PEER_ERR_CUDA, _NCCL, _MPI          what failed, here or on another rank; the communicator is broken
 *   PEER_ERR_TIMEOUT, _ABORTED          host device; on the cuda device a later call returns it
 *
 * n is the number of ranks. Block r of a buffer: elements r*count to (r+1)*count-1. Counts and displacements are
 * elements. With a count of 0 the buffers may be NULL. */

/* Every rank gets, for each i, the combination over all ranks of sendbuf[i].
 *   sendbuf  count elements, or PEER_IN_PLACE: the input is in recvbuf
 *   recvbuf  count elements
 *   count    the same on all ranks */
int PEER_Allreduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                   PEER_Comm comm, PEER_Stream stream);

/* As PEER_Allreduce, but only the root gets the result.
 *   sendbuf  count elements; on the root also PEER_IN_PLACE: its input is in recvbuf
 *   recvbuf  root: count elements; ignored elsewhere */
int PEER_Reduce(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Op op,
                int root, PEER_Comm comm, PEER_Stream stream);

/* Every rank gets the root's elements.
 *   buffer  count elements: the root's are sent, the others' overwritten */
int PEER_Bcast(void *buffer, size_t count, PEER_Datatype datatype, int root, PEER_Comm comm,
               PEER_Stream stream);

/* Every rank gets every rank's elements: block r of recvbuf is rank r's sendbuf.
 *   sendbuf    sendcount elements, or PEER_IN_PLACE: this rank's are in its own block of recvbuf
 *   recvbuf    n * sendcount elements
 *   sendcount  the same on all ranks */
int PEER_Allgather(const void *sendbuf, void *recvbuf, size_t sendcount, PEER_Datatype datatype,
                   PEER_Comm comm, PEER_Stream stream);

/* As PEER_Allgather, with blocks of any sizes anywhere: recvcounts[r] elements from rank r go to recvbuf +
 * displs[r].
 *   sendcount   equal to this rank's recvcounts[rank]; ignored in place
 *   recvcounts  n counts, the same on all ranks; 0 is legal
 *   displs      n displacements in elements, in any order, with any gaps; each rank its own. Blocks don't
 *               overlap */
int PEER_Allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t recvcounts[],
                    const size_t displs[], PEER_Datatype datatype, PEER_Comm comm, PEER_Stream stream);

/* Rank r gets, for each i, the combination over all ranks of element i of block r of sendbuf.
 *   sendbuf    n * recvcount elements, or PEER_IN_PLACE: the input is in recvbuf, which then has n * recvcount
 *              elements; the result goes to its begin, and what its other elements become is not defined
 *   recvbuf    recvcount elements
 *   recvcount  the same on all ranks */
int PEER_Reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, PEER_Datatype datatype,
                              PEER_Op op, PEER_Comm comm, PEER_Stream stream);

/* As PEER_Reduce_scatter_block, with blocks of recvcounts[0], recvcounts[1], ... elements, one after the other
 * in sendbuf.
 *   recvcounts  n counts, the same on all ranks; 0 is legal */
int PEER_Reduce_scatter(const void *sendbuf, void *recvbuf, const size_t recvcounts[], PEER_Datatype datatype,
                        PEER_Op op, PEER_Comm comm, PEER_Stream stream);

/* Every rank sends a block to every rank: block r of recvbuf is rank r's block of sendbuf with this rank's number.
 *   sendbuf  n * count elements, or PEER_IN_PLACE: the input is in recvbuf, and is replaced
 *   recvbuf  n * count elements
 *   count    of one block, the same on all ranks */
int PEER_Alltoall(const void *sendbuf, void *recvbuf, size_t count, PEER_Datatype datatype, PEER_Comm comm,
                  PEER_Stream stream);

/* As PEER_Alltoall, with blocks of any sizes anywhere: sendcounts[r] elements at sendbuf + sdispls[r] go to rank r,
 * recvcounts[r] elements from rank r go to recvbuf + rdispls[r].
 *   sendbuf     or PEER_IN_PLACE: the input is in recvbuf, sendcounts and sdispls are ignored (may be NULL)
 *               and recvcounts and rdispls serve for both; recvcounts[r] on this rank then equals
 *               recvcounts[rank] on rank r
 *   sendcounts  n counts; sendcounts[r] here equals recvcounts[rank] on rank r; 0 is legal. Where
 *               peer kernels serve, a block is at most some 8,192 * PEER_STAGING_BYTES / n bytes; a larger one is
 *               PEER_ERR_COUNT on its two ranks
 *   Displacements are each rank's own, in any order, with any gaps. Blocks of recvbuf don't overlap */
int PEER_Alltoallv(const void *sendbuf, const size_t sendcounts[], const size_t sdispls[], void *recvbuf,
                   const size_t recvcounts[], const size_t rdispls[], PEER_Datatype datatype, PEER_Comm comm,
                   PEER_Stream stream);

/* The root gets every rank's elements: block r of its recvbuf is rank r's sendbuf.
 *   sendbuf    sendcount elements; on the root also PEER_IN_PLACE: its own are in its block of recvbuf
 *   recvbuf    root: n * sendcount elements; ignored elsewhere
 *   sendcount  the same on all ranks */
int PEER_Gather(const void *sendbuf, void *recvbuf, size_t sendcount, PEER_Datatype datatype, int root,
                PEER_Comm comm, PEER_Stream stream);

/* Rank r gets block r of the root's sendbuf.
 *   sendbuf    root: n * recvcount elements; ignored elsewhere
 *   recvbuf    recvcount elements; on the root also (void *)PEER_IN_PLACE: its own block stays where it is
 *   recvcount  the same on all ranks */
int PEER_Scatter(const void *sendbuf, void *recvbuf, size_t recvcount, PEER_Datatype datatype, int root,
                 PEER_Comm comm, PEER_Stream stream);

/* No rank passes it (on the cuda device: the work that follows on no rank's stream starts) before all ranks
 * have reached it. It orders the ranks; memory that they share by other means needs fences of its own. */
int PEER_Barrier(PEER_Comm comm, PEER_Stream stream);

/* ---- Errors, versions, datatypes ------------------------------------------------------------------------ */

/* The fixed text of a status; "not a status" for any other number. Never NULL, never freed. */
const char *PEER_Error_string(int status);

/* The text of this thread's last failed call: what, where, why, and the remedy. "" before the first. Valid
 * until the thread's next failed call. */
const char *PEER_Last_error(void);

/* The version of the library in use: major*10000 + minor*100 + patch. PEER_ERR_ARG (version is NULL) */
int PEER_Get_version(int *version);

/* The size of one element. PEER_ERR_TYPE, PEER_ERR_ARG (bytes is NULL) */
int PEER_Datatype_size(PEER_Datatype datatype, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
