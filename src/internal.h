/* The library's inside: what its files share. Public names are in peercoll.h, kernels in kernels/launch.h. */
#ifndef PEER_INTERNAL_H
#define PEER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "peercoll_types.h"
#include "kernels/launch.h"
#include "kernels/probe_launch.h"
#include "select.h"

#define PEER_NAME_BYTES 64

/* ---- status.c: statuses and the text of the last error --------------------------------------------------- */

/* Sets this thread's last error to the formatted text and returns status. Every failure goes through here. */
int peer_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *peer_status_name(int status);
const char *PEER_Last_error(void); /* as in peercoll.h, for files that need no MPI */
/* "2.28.3" of major*10000 + minor*100 + patch, as we and NCCL count. */
void peer_version_text(int version, char *text, size_t text_bytes);
const char *peer_datatype_name(uint32_t datatype);
const char *peer_op_name(uint32_t op);
/* 0 for what is no datatype. */
uint32_t peer_datatype_bytes(uint32_t datatype);
/* What an element must be aligned to: of a complex number, its parts' size. */
uint32_t peer_datatype_alignment(uint32_t datatype);
/* Whether the operation is defined for the datatype. */
bool peer_op_serves(uint32_t datatype, uint32_t op);

/* ---- log.c: the one place that prints ------------------------------------------------------------------- */

enum peer_log_level {
    PEER_LOG_OFF,
    PEER_LOG_ERROR,
    PEER_LOG_WARN,
    PEER_LOG_INFO,
    PEER_LOG_DEBUG,
    PEER_LOG_TRACE
};

/* The levels as the setting spells them, ended by NULL. */
extern const char *const peer_log_words[];
/* Where and how much; file "" is stderr, %r in it the rank. Last caller wins: the log is the process's. */
void peer_log_open(enum peer_log_level level, const char *file, int rank);
void peer_log(enum peer_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- config.c: settings --------------------------------------------------------------------------------- */

enum peer_device_choice { PEER_DEVICE_AUTO, PEER_DEVICE_CUDA, PEER_DEVICE_HOST };
enum peer_transport_choice {
    PEER_TRANSPORT_AUTO,
    PEER_TRANSPORT_IPC,
    PEER_TRANSPORT_SHM,
    PEER_TRANSPORT_NCCL,
    PEER_TRANSPORT_MPI
};

enum peer_probe_choice { PEER_PROBE_AUTO, PEER_PROBE_FULL, PEER_PROBE_QUICK, PEER_PROBE_OFF };

/* PEER_PROBE_FAULT: what shall go wrong in the probe, in what `writer` sends to `reader`. */
enum peer_fault_kind {
    PEER_FAULT_NONE,
    PEER_FAULT_WRONG,  /* data */
    PEER_FAULT_BUSY,   /* data, only when all ranks send much at once */
    PEER_FAULT_UNSEEN, /* flags */
    PEER_FAULT_SLOW    /* data take PEER_PROBE_SLOW times as long */
};

struct peer_probe_fault {
    uint32_t kind;           /* enum peer_fault_kind */
    uint32_t transport;      /* enum peer_transport_choice: ipc, shm, or auto for any */
    uint32_t writer, reader; /* ranks; PEER_CHOICE_AUTO: all pairs */
};

/* PEER_ALGORITHM=auto, in the fields of the plan that it names; "oneshot" leaves the protocol to selection. */
#define PEER_CHOICE_AUTO UINT32_MAX

/* Ranks in islands: island[r] is r's number; islands are numbered in the order of their lowest ranks. */
struct peer_grouping {
    uint32_t nranks; /* 0, of the setting: auto */
    uint32_t n;      /* islands; 1: all ranks are in one */
    uint8_t island[PEER_MAX_PEERS];
};

/* The most that a message is cut into to overlap. */
#define PEER_MAX_PIECES 64

struct peer_config {
    uint32_t device;              /* enum peer_device_choice */
    uint32_t transport;           /* enum peer_transport_choice */
    uint32_t algorithm;           /* enum peer_algorithm, or PEER_CHOICE_AUTO */
    uint32_t protocol;            /* enum peer_protocol, or PEER_CHOICE_AUTO */
    uint32_t direction;           /* enum peer_direction, or PEER_CHOICE_AUTO */
    uint32_t blocks;              /* 0: auto */
    uint32_t threads;             /* 0: auto */
    uint32_t pieces;              /* 0: auto */
    struct peer_grouping islands; /* of communicators of so many ranks; nranks 0: auto */
    uint64_t staging_bytes;       /* 0: auto, which PEER_Comm_create settles */
    uint64_t timeout_ms;
    uint32_t pdl;    /* bool */
    char table[256]; /* "": none */
    char nccl[256];  /* "auto", "off" or a path */
    uint32_t log;    /* enum peer_log_level */
    char log_file[256];
    uint32_t probe; /* enum peer_probe_choice */
    struct peer_probe_fault probe_fault;
    uint32_t epoch_start;
    char node[PEER_NAME_BYTES]; /* "": the machine's own */
};

/* A source of settings that wins over the environment: true and the value of a key ("timeout_ms"), or false. */
struct peer_config_source {
    bool (*get)(void *arg, const char *key, char *value, size_t value_bytes);
    void *arg;
};

/* Defaults, then the environment, then source (may be NULL). Names what is wrong: PEER_ERR_SETTING. */
int peer_config_load(struct peer_config *config, const struct peer_config_source *source);
/* A number that is equal on two ranks if the settings that must agree do. */
uint64_t peer_config_hash(const struct peer_config *config);
/* Warns in the log of PEER_ variables that are no setting. */
void peer_config_warn_unknown(void);
/* The folder for what can be found out again: $XDG_CACHE_HOME or ~/.cache. False if there is none. */
bool peer_config_cache(char *folder, size_t folder_bytes);
/* FNV-1a: goes on from `hash` over the text and its terminating 0. */
uint64_t peer_hash(uint64_t hash, const char *text);
#define PEER_HASH_START UINT64_C(0xcbf29ce484222325)
/* The table with the values in force, for peer_info --settings. */
void peer_config_print(FILE *to, const struct peer_config *config);

/* ---- bootstrap.c: the ranks before there is a peer path --------------------------------------------------- */

/* Over MPI today. All calls but rank and size are collective. */
struct peer_bootstrap {
    int (*allgather)(struct peer_bootstrap *boot, const void *mine, void *all, size_t bytes_each);
    int (*barrier)(struct peer_bootstrap *boot);
    /* From rank 0. */
    int (*bcast)(struct peer_bootstrap *boot, void *data, size_t bytes);
    /* Bytes to and from every rank, for the MPI fallback: all-to-all of bytes_each. */
    int (*alltoall)(struct peer_bootstrap *boot, const void *send, void *recv, size_t bytes_each);
    /* Of counts[r] bytes, block r being `apart` bytes from the one before. */
    int (*alltoallv)(struct peer_bootstrap *boot, const void *send, const int *sendcounts, void *recv,
                     const int *recvcounts, size_t apart);
    void (*destroy)(struct peer_bootstrap *boot); /* accepts NULL */
    int rank, size;
};

/* ---- device_cuda.c, device_host.c: where kernels run ----------------------------------------------------- */

/* What a slab's owner hands to its peers. */
struct peer_handle {
    char bytes[128];
};

/* Where a call goes: the numbers of its stream and of the capture that this is in; 0: not known, none. */
struct peer_place {
    bool captured;
    uint64_t stream, capture;
};

/* Where a communicator's last call went. */
struct peer_trail {
    bool begun;
    struct peer_place end;
    void *event; /* recorded behind it */
};

/* The launch side of a communicator's device; the state that a device needs hangs on it. */
struct peer_device {
    const struct peer_device_ops *ops;
    int ordinal;                /* CUDA: the device */
    uint32_t max_threads;       /* CUDA: in blocks that are resident at once, were the GPU ours */
    bool pdl;                   /* CUDA: kernels are launched by programmatic dependent launch */
    void *stream;               /* CUDA: for the library's own work */
    struct peer_place place;    /* CUDA: of the call at hand, from follow to followed */
    struct peer_trail trail[2]; /* CUDA: of the calls outside and inside of a capture */
};

/* A memory that peers map, in the owner's and in a peer's process. */
struct peer_mapping {
    void *base;
    size_t bytes;
    void *there;                /* base, as kernels reach it */
    char name[PEER_NAME_BYTES]; /* of a shared segment, until it is settled */
};

struct peer_identity;
struct peer_transport;

struct peer_device_ops {
    const char *name;
    uint32_t (*vector_bytes)(void);
    /* Whether this process can use the device; `why` gets the reason if not. Initialises nothing that stays. */
    bool (*available)(char *why, size_t why_bytes);
    /* Makes the GPU for the local_rank'th rank of a node current; *ordinal -1 where there is none. */
    int (*select)(int local_rank, int *ordinal);
    /* Makes the device of an open one current, as it was when it was opened, and as all operations below but check_buffer
     * want it; *before is what was, for leave. */
    int (*enter)(const struct peer_device *device, int *before);
    void (*leave)(const struct peer_device *device, int before);
    int (*open)(struct peer_device *device);
    void (*close)(struct peer_device *device);
    /* Fills in the device's part of an identity. */
    int (*identify)(struct peer_device *device, struct peer_identity *id);
    /* Transport ipc for this device. */
    const struct peer_transport *ipc;
    /* Private memory for the state, cleared. */
    int (*state_alloc)(struct peer_device *device, size_t bytes, void **state);
    void (*state_free)(struct peer_device *device, void *state);
    /* Sets nwords 32-bit words; copies to and from device memory. All have finished on return. */
    int (*fill)(struct peer_device *device, void *to, uint32_t word, size_t nwords);
    int (*copy)(struct peer_device *device, void *to, const void *from, size_t bytes);
    /* Makes host memory (the control segment) reachable for kernels at *there. */
    int (*host_register)(struct peer_device *device, void *base, size_t bytes, void **there);
    void (*host_unregister)(struct peer_device *device, void *base);
    /* Whether kernels can reach a user's buffer: PEER_SUCCESS or PEER_ERR_BUFFER with the remedy. */
    int (*check_buffer)(struct peer_device *device, const char *name, const void *buffer);
    /* Calls on the stream. `launch` and `copy_async` return before they end on a CUDA device. */
    int (*launch)(struct peer_device *device, const struct peer_call *call, void *stream);
    int (*copy_async)(struct peer_device *device, void *to, const void *from, size_t bytes, void *stream);
    int (*synchronize)(struct peer_device *device, void *stream);
    /* Before and after a communicator's call is put on a stream: the first makes it wait for the call before,
     * if that went to another stream. */
    int (*follow)(struct peer_device *device, void *stream);
    int (*followed)(struct peer_device *device, void *stream);
    /* Memory for what is put on the stream between the two. */
    int (*temp_alloc)(struct peer_device *device, size_t bytes, void **temp, void *stream);
    void (*temp_free)(struct peer_device *device, void *temp, void *stream);
    int (*is_capturing)(struct peer_device *device, void *stream, bool *capturing);
    /* Runs a step of the probe to its end; result: as it is before the step. */
    int (*probe)(struct peer_device *device, const struct peer_call *call, const struct peer_probe_step *step,
                 struct peer_probe_result *result);
    /* Waits until all that was launched for this communicator has ended. */
    int (*drain)(struct peer_device *device);
};

extern const struct peer_device_ops peer_device_host;
extern const struct peer_device_ops peer_device_cuda;

/* Host device's own reduction, for the MPI fallback on any device. */
const struct peer_host_kernels *peer_host_kernels(void);

/* ---- topology.c: who we are and where -------------------------------------------------------------------- */

/* What a rank tells the others; fixed size, the same layout on all. */
struct peer_identity {
    uint64_t config_hash;
    uint32_t version;
    uint32_t cuda_available; /* whether this rank can use the cuda device */
    uint32_t max_threads; /* of the device, in blocks that are resident at once, were it this rank's alone */
    char boot_id[40];
    char host[PEER_NAME_BYTES];
    char node[PEER_NAME_BYTES]; /* PEER_NODE; ranks with equal boot_id and node share memory */
    char gpu_uuid[48];          /* "" on the host device */
    char pci[16];
    char why_no_cuda[128];
};

/* All but what the device fills in. */
void peer_identity_fill(struct peer_identity *id, const struct peer_config *config);
int peer_topology_nodes(const struct peer_identity *ids, int size);
/* The most ranks that share one GPU. */
int peer_topology_sharers(const struct peer_identity *ids, int size);

/* ---- figures.c, island.c: what the probe has measured --------------------------------------------------------- */

/* Row: the rank that stores, loads or sends the flag first; column: whose memory. 0: not known, and itself. */
struct peer_matrices {
    float store_gbs[PEER_MAX_PEERS][PEER_MAX_PEERS];
    float load_gbs[PEER_MAX_PEERS][PEER_MAX_PEERS];
    float flag_us[PEER_MAX_PEERS][PEER_MAX_PEERS];
};

/* The figures by name; every one is a double. */
struct peer_figure_name {
    const char *name;
    size_t offset; /* in struct peer_figures */
};
#define PEER_N_FIGURES 14
extern const struct peer_figure_name peer_figure_names[PEER_N_FIGURES];

/* What joins GPUs with such figures: PEER_LINK_WIRE or PEER_LINK_NVLINK; other links stay what they are. */
enum peer_link peer_figures_link(enum peer_link link, const struct peer_figures *figures);
/* What peer_info and the log say of them. */
void peer_figures_text(const struct peer_figures *figures, char *text, size_t text_bytes);

/* Groups ranks into islands: within one the distance (time of a flag, or 1/rate) is clearly less than between any
 * two. island[r] is r's number; islands are numbered in the order of their lowest ranks. Returns how many there
 * are: 1 if there is no clear gap. Pure. */
int peer_islands(const float distance[PEER_MAX_PEERS][PEER_MAX_PEERS], int size,
                 uint8_t island[PEER_MAX_PEERS]);
/* By the matrices of a machine: the flags' latencies if they tell, else the rates. */
int peer_islands_measured(const struct peer_matrices *matrices, int size, uint8_t island[PEER_MAX_PEERS]);
struct peer_comm;
/* The islands that a communicator goes by: those of PEER_ISLANDS if it is about so many ranks, else what was measured. */
void peer_islands_settle(struct peer_comm *comm);

/* ---- request.c, check.c: what a call asks for -------------------------------------------------------------- */

/* A broadcast of two steps: the root scatters, then all spread their parts. */
enum peer_step { PEER_STEP_ONLY, PEER_STEP_SCATTER, PEER_STEP_SPREAD };

/* A collective call's arguments. In place is resolved: sendbuf is where the input lies. */
struct peer_request {
    enum peer_collective collective;
    const void *sendbuf;
    void *recvbuf;
    size_t count; /* of the message or of a block, where all have the same */
    PEER_Datatype datatype;
    PEER_Op op;
    int root;
    const size_t *recvcounts, *rdispls, *sendcounts, *sdispls; /* those that the collective has, or NULL */
    void *stream;
    enum peer_step step;
};

/* Elements of a buffer. */
struct peer_block {
    size_t at, count;
};

/* What `rank` sends to a rank, and receives from one. */
struct peer_block peer_block_to(const struct peer_request *q, int rank, int size, int to);
struct peer_block peer_block_from(const struct peer_request *q, int rank, int size, int from);
/* What a receiver gets is combined. */
bool peer_request_reduces(const struct peer_request *q);
/* One rank sends all, or gets all. */
bool peer_collective_rooted(uint32_t collective);
/* No rank sends anything, as all ranks know. */
bool peer_request_empty(const struct peer_request *q, int size);
/* Elements of the largest block that any rank sends to another; 0 where not all ranks know it. */
size_t peer_request_largest(const struct peer_request *q, int size);
/* Whatever a rank sends, all to whom it sends get the same. */
bool peer_request_shares(const struct peer_request *q);
/* Every rank gets data of every other, as all ranks know. */
bool peer_request_meets(const struct peer_request *q, int size);
/* The arrays that there are, in a fixed order; returns their number. */
int peer_request_arrays(const struct peer_request *q, const size_t *arrays[4]);

/* PEER_SUCCESS, or what is wrong with the arguments; counts are checked before anything is computed from them. */
int peer_check(struct peer_comm *comm, const struct peer_request *q);
int peer_check_array(const char *name, const size_t *array);

/* call.c: checks it, plans it, launches it. */
int peer_request_run(struct peer_comm *comm, const struct peer_request *q);

/* ---- A communicator -------------------------------------------------------------------------------------- */

#define PEER_COMM_MAGIC 0x7065657263636f6cull

struct peer_nccl;

/* The peer path: slabs, state, control. Empty (ok false) where another path serves. */
struct peer_peers {
    bool ok;
    bool line_ok;
    const struct peer_transport *transport;
    uint64_t staging;                         /* PEER_STAGING_BYTES, auto settled */
    struct peer_mapping slab[PEER_MAX_PEERS]; /* rank r's; this rank's own is its allocation */
    struct peer_mapping control_segment;
    struct peer_control *control; /* as the host reaches it; kernels: control_segment.there */
    void *state;
};

/* The last request, plan and call, so that one like it needs no selection. */
struct peer_last_call {
    bool valid;
    struct peer_request request;      /* its buffers: those of the last launch */
    size_t arrays[4][PEER_MAX_PEERS]; /* copies of its arrays, peer_request_arrays */
    struct peer_plan plan;
    struct peer_call call;
    struct peer_exchange exchange;
    uint64_t offsets, counts; /* of the shares, all or-ed together: what they are aligned to */
    bool even; /* so far as counts go, if the buffers are aligned to `access`: see struct peer_call */
    uint32_t access;
};

struct peer_comm {
    uint64_t magic;
    struct peer_bootstrap *boot;
    int rank, size;
    int nnodes;
    struct peer_config config;
    struct peer_identity *ids; /* of all ranks */
    struct peer_device device;
    struct peer_peers peers;
    struct peer_table table;     /* rows that come before the built-in ones */
    struct peer_figures figures; /* of the peer path */
    struct peer_matrices matrices;
    struct peer_grouping grouping;
    char passed_over[1024]; /* what would have served rather, and why it can't; "": nothing */
    struct peer_nccl *nccl; /* NULL: none, see nccl_reason */
    char nccl_reason[256];
    char *staging;                    /* of the MPI fallback, made at its first call */
    uint32_t max_blocks, max_threads; /* of a grid, see struct peer_query */
    enum peer_link link;              /* where the staging lies */
    struct peer_row *model_rows;      /* that follow from them, or NULL */
    size_t nmodel_rows;
    bool one_gpu; /* that all ranks share */
    struct peer_pace pace;
    uint32_t spin;          /* host device: polls before a wait yields the CPU */
    uint64_t create_ms;     /* that PEER_Comm_create took here */
    unsigned forks;         /* of the process, when the communicator was made */
    struct peer_comm *next; /* of the list of those alive */
    int status;             /* not PEER_SUCCESS: broken */
    volatile int aborted;   /* by PEER_Comm_abort, from any thread */
    char status_text[512];
    struct peer_last_call last;
    uint64_t
        *marks; /* for peer_perf: where the next kernel's times go, and after them the next one's; or NULL */
};

/* What selection is asked for a call; call.c, and for peer_perf. */
struct peer_query peer_query_of(const struct peer_comm *comm, const struct peer_request *q);

/* ---- transport*.c, probe.c, fault.c ----------------------------------------------------------------------- */

/* How a slab is made, and reached by its owner's peers. Each sets the mapping's base and there. */
struct peer_transport {
    const char *name;
    int (*slab_alloc)(struct peer_device *device, size_t bytes, struct peer_mapping *slab);
    void (*slab_free)(struct peer_device *device, struct peer_mapping *slab);
    int (*slab_export)(struct peer_device *device, const struct peer_mapping *slab,
                       struct peer_handle *handle);
    int (*slab_import)(struct peer_device *device, const struct peer_handle *handle, size_t bytes,
                       struct peer_mapping *mapping);
    void (*slab_close)(struct peer_device *device, struct peer_mapping *mapping);
    /* All ranks have imported: nothing of the slab need be findable by name any more. */
    void (*slab_settled)(struct peer_device *device, struct peer_mapping *slab);
};

/* The host's memory, which all devices reach. (Each device has its ipc.) */
extern const struct peer_transport peer_transport_shm;

/* Collective: slabs made, exchanged, opened, probed. PEER_SUCCESS with comm->peers.ok false and the reason in
 * `why` where the ranks can't reach each other so: all ranks alike. */
int peer_transport_create(struct peer_comm *comm, const struct peer_transport *transport, char *why,
                          size_t why_bytes);
/* Says that this rank makes no more calls, and waits until all ranks have. False if the communicator has failed, or
 * a rank has not come within the deadline of a wait. */
bool peer_transport_leave(struct peer_comm *comm);
/* Unmaps the peers' slabs, and frees this rank's when no peer maps it any more. together: all ranks are here. */
void peer_transport_destroy(struct peer_comm *comm, bool together);
/* Bytes that this rank's part takes, of the device's memory, or under transport shm of the host's. */
uint64_t peer_transport_memory(const struct peer_comm *comm);
/* Bytes of /dev/shm that all ranks of a communicator take whose slabs lie in host memory. */
uint64_t peer_transport_shared_bytes(const struct peer_config *config, int size);
/* The fields of a call that depend on the communicator alone. */
void peer_transport_call(struct peer_comm *comm, struct peer_call *call);

/* Collective: runs the probe and votes; *ok: the path may be used, *line_ok: lines don't tear. Sets the
 * communicator's figures as far as they are known. */
int peer_probe(struct peer_comm *comm, bool *ok, bool *line_ok, char *why, size_t why_bytes);
/* The figures that an earlier process has left of this machine, these ranks and this transport. Local. */
bool peer_probe_cache_read(const struct peer_comm *comm, struct peer_figures *figures,
                           struct peer_matrices *matrices);
/* Leaves the communicator's. What goes wrong is logged at level debug. */
void peer_probe_cache_write(const struct peer_comm *comm);

uint64_t peer_now_ns(void); /* of the monotonic clock */
/* PEER_SUCCESS, or the status of the first wait that failed on any rank, with comm broken and the text set.
 * Cheap. */
int peer_fault_check(struct peer_comm *comm);
/* Breaks the communicator with the calling thread's last error as its text. Returns status. */
int peer_fault_break(struct peer_comm *comm, int status);

/* ---- comm.c, for collectives.c ----------------------------------------------------------------------------- */

/* PEER_SUCCESS if comm is a communicator of this process. */
int peer_comm_check(const struct peer_comm *comm);
/* What serves this communicator's calls, for peer_plan_text: "ipc". */
const char *peer_comm_transport(const struct peer_comm *comm);

/* A vote: the first rank's status that is not PEER_SUCCESS, with its text as this thread's last error, on all
 * ranks alike. Collective. */
int peer_vote(struct peer_bootstrap *boot, int status);

/* ---- nccl.c, staged.c: the fallbacks ---------------------------------------------------------------------- */

/* Collective. NULL with the reason in comm->nccl_reason where there is none. */
int peer_nccl_create(struct peer_comm *comm);
void peer_nccl_destroy(struct peer_nccl *nccl, bool abort);
/* NCCL knows the datatype and the operation, and its result has the meaning that peercoll.h gives it. */
bool peer_nccl_serves(const struct peer_nccl *nccl, const struct peer_request *q);
int peer_nccl_version(const struct peer_nccl *nccl);
/* Puts the call on its stream. A reduce-scatter or all-to-all must not be in place. */
int peer_nccl_run(struct peer_nccl *nccl, int rank, int size, const struct peer_request *q);
/* Ends NCCL's calls on this rank; from any thread. */
void peer_nccl_abort(struct peer_nccl *nccl);
/* PEER_SUCCESS, or what NCCL says has gone wrong since. */
int peer_nccl_async_error(struct peer_nccl *nccl);

/* Blocking; the buffers are the communicator's device's. A reduce-scatter of unequal blocks must not be in
 * place. */
int peer_staged_run(struct peer_comm *comm, const struct peer_request *q);

#endif
