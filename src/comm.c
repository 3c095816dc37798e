/* A communicator from birth to end. PEER_Comm_create reads as the list of steps that design calls its life:
 * duplicate and read the settings, tell each other who we are, group into nodes, open the device, make and
 * prove the peer path, make NCCL's communicator, say what came of it. */
#include "bootstrap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "model.h"
#include "peercoll.h"

/* Polls before a wait yields: some 100 us where each rank has a CPU, next to none where they share. */
#define SPIN_ALONE  4000
#define SPIN_SHARED 20

/* Communicators whose calls may be on a GPU at once, each with all its blocks: they wait for their peers there. */
#define COMMS_AT_ONCE 2
#define WARP          32

static pthread_mutex_t alive_lock = PTHREAD_MUTEX_INITIALIZER;
static struct peer_comm *alive; /* all communicators of this process */

/* Counts the forks between the process that made a communicator and this one. */
static unsigned forks;

static void count_fork(void)
{
    forks++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

int peer_comm_check(const struct peer_comm *comm)
{
    if (comm == NULL || comm->magic != PEER_COMM_MAGIC)
        return peer_error(PEER_ERR_COMM, "%s",
                          comm == NULL ? "the communicator is PEER_COMM_NULL"
                                       : "the handle is not a communicator, or a freed one");
    if (comm->forks != forks)
        return peer_error(PEER_ERR_COMM,
                          "the communicator belongs to the parent of this forked process; use it there");
    return PEER_SUCCESS;
}

const char *peer_comm_transport(const struct peer_comm *comm)
{
    if (comm->size == 1)
        return "self";
    return comm->peers.ok ? comm->peers.transport->name : comm->nccl != NULL ? "nccl" : "mpi";
}

/* ---- Votes ---------------------------------------------------------------------------------------------- */

struct ballot {
    int32_t status;
    char text[508];
};

int peer_vote(struct peer_bootstrap *boot, int status)
{
    struct ballot mine = {.status = status}, *all = calloc((size_t)boot->size, sizeof *all);
    int first;
    if (status != PEER_SUCCESS)
        snprintf(mine.text, sizeof mine.text, "%s", PEER_Last_error());
    if (all == NULL) /* alone with this; the others are told by the exchange failing */
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for a vote of %d ranks", boot->size);
    status = boot->allgather(boot, &mine, all, sizeof mine);
    for (first = 0; status == PEER_SUCCESS && first < boot->size; first++)
        if (all[first].status != PEER_SUCCESS)
            status = peer_error(all[first].status, "rank %d: %s", first, all[first].text);
    free(all);
    return status;
}

/* ---- Steps of PEER_Comm_create ---------------------------------------------------------------------------- */

/* Where a communicator's settings come from: the environment and info, or the communicator that it is split
 * from. */
struct origin {
    int status; /* not PEER_SUCCESS: this rank takes part only so that all are refused; PEER_Last_error() has why */
    MPI_Info info;
    const struct peer_comm *parent;
};

static int read_settings(struct peer_comm *comm, const struct origin *origin)
{
    static pthread_once_t warn_once = PTHREAD_ONCE_INIT;
    MPI_Info info = origin->info;
    struct peer_config_source source = {peer_bootstrap_info_get, &info};
    int status = PEER_SUCCESS;
    if (origin->parent != NULL) {
        comm->config = origin->parent->config;
        comm->config.device =
            origin->parent->device.ops == &peer_device_host ? PEER_DEVICE_HOST : PEER_DEVICE_CUDA;
        return PEER_SUCCESS;
    }
    status = peer_config_load(&comm->config, info != MPI_INFO_NULL ? &source : NULL);
    if (status == PEER_SUCCESS) {
        peer_log_open(comm->config.log, comm->config.log_file, peer_bootstrap_world_rank());
        if (comm->rank == 0)
            pthread_once(&warn_once, peer_config_warn_unknown);
    }
    return peer_vote(comm->boot, status);
}

static int load_table(struct peer_comm *comm, const struct origin *origin)
{
    const struct peer_table *parent = origin->parent != NULL ? &origin->parent->table : NULL;
    int status = peer_table_load(comm->boot, comm->config.table, parent, &comm->table);
    if (status == PEER_SUCCESS && comm->table.nrows > 0 && comm->rank == 0)
        peer_log(PEER_LOG_INFO, "PEER_TABLE has %zu rows", comm->table.nrows);
    return status;
}

static const struct peer_device_ops *cuda_ops(void)
{
#ifdef HAVE_CUDA
    return &peer_device_cuda;
#else
    return NULL;
#endif
}

static void fill_in_cuda(struct peer_identity *id)
{
    const struct peer_device_ops *cuda = cuda_ops();
    if (cuda == NULL)
        snprintf(id->why_no_cuda, sizeof id->why_no_cuda, "the library was built without CUDA");
    else
        id->cuda_available = cuda->available(id->why_no_cuda, sizeof id->why_no_cuda);
}

/* Ranks must agree in version and settings; names the first that differs from rank 0. */
static int check_agreement(const struct peer_comm *comm)
{
    const struct peer_identity *ids = comm->ids;
    for (int r = 1; r < comm->size; r++) {
        if (ids[r].version != ids[0].version)
            return peer_error(PEER_ERR_MISMATCH,
                              "rank %d has version %u of the library, rank 0 has %u: use one", r,
                              ids[r].version, ids[0].version);
        if (ids[r].config_hash != ids[0].config_hash)
            return peer_error(
                PEER_ERR_MISMATCH,
                "rank %d has other settings than rank 0: PEER_ variables and MPI_Info keys must be equal "
                "on all ranks (mpirun -x passes variables on)",
                r);
    }
    return PEER_SUCCESS;
}

/* All ranks take the cuda device, or all the host device. */
static int choose_device(struct peer_comm *comm)
{
    const struct peer_identity *ids = comm->ids;
    int without = -1, with = -1; /* the first rank of either kind */
    for (int r = comm->size - 1; r >= 0; r--)
        *(ids[r].cuda_available ? &with : &without) = r;
    if (comm->config.device == PEER_DEVICE_CUDA && without >= 0)
        return peer_error(PEER_ERR_UNSUPPORTED, "PEER_DEVICE=cuda, but rank %d (%s) can't use a GPU: %s",
                          without, ids[without].host, ids[without].why_no_cuda);
    if (comm->config.device != PEER_DEVICE_HOST && without < 0) {
        comm->device.ops = cuda_ops();
    } else {
        comm->device.ops = &peer_device_host;
        if (comm->config.device == PEER_DEVICE_AUTO && comm->rank == 0)
            peer_log(with >= 0 ? PEER_LOG_WARN : PEER_LOG_INFO,
                     "the host device serves%s: rank %d (%s) can't use a GPU: %s",
                     with >= 0 ? ", though other ranks have a GPU (PEER_DEVICE=cuda makes this an error)"
                               : "",
                     without, ids[without].host, ids[without].why_no_cuda);
    }
    return PEER_SUCCESS;
}

static int exchange_identities(struct peer_comm *comm)
{
    struct peer_identity *mine = &comm->ids[comm->rank], copy;
    int status;
    peer_identity_fill(mine, &comm->config);
    fill_in_cuda(mine);
    copy = *mine;
    status = comm->boot->allgather(comm->boot, &copy, comm->ids, sizeof copy);
    if (status == PEER_SUCCESS)
        status = check_agreement(comm);
    if (status == PEER_SUCCESS)
        status = choose_device(comm);
    comm->nnodes = peer_topology_nodes(comm->ids, comm->size);
    return status;
}

/* Opens the device and tells the others its part of the identity. */
static int open_device(struct peer_comm *comm)
{
    struct peer_identity copy = comm->ids[comm->rank];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t sharers;
    int status = comm->device.ops->open(&comm->device);
    if (status == PEER_SUCCESS)
        status = comm->device.ops->identify(&comm->device, &copy);
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &copy, comm->ids, sizeof copy);
    if (status != PEER_SUCCESS)
        return status;
    comm->device.pdl = comm->device.pdl && comm->config.pdl;
    sharers = (uint32_t)peer_topology_sharers(comm->ids, comm->size);
    comm->one_gpu = (int)sharers == comm->size;
    if (comm->device.ops == &peer_device_host)
        comm->link = PEER_LINK_HOST; /* whatever the transport */
    comm->max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS;
    for (int r = 0; r < comm->size; r++)
        if (comm->ids[r].max_threads / sharers / COMMS_AT_ONCE < comm->max_threads)
            comm->max_threads = comm->ids[r].max_threads / sharers / COMMS_AT_ONCE;
    comm->max_threads = comm->max_threads < WARP ? WARP : comm->max_threads / WARP * WARP;
    comm->max_blocks =
        comm->device.ops == &peer_device_host && comm->config.blocks == 0 ? 1 : PEER_MAX_BLOCKS;
    comm->spin = comm->size <= cpus ? SPIN_ALONE : SPIN_SHARED;
    return PEER_SUCCESS;
}

/* Remembers what can't serve, for one warning when it is known what does. */
static void pass_over(struct peer_comm *comm, const char *what, const char *why)
{
    size_t length = strlen(comm->passed_over);
    snprintf(comm->passed_over + length, sizeof comm->passed_over - length, "%s%s: %s",
             length > 0 ? "; " : "", what, why);
}

/* Tries the transports that the setting allows, the best first. */
static void try_transports(struct peer_comm *comm, char *why, size_t why_bytes)
{
    const uint32_t choice = comm->config.transport;
    const struct {
        const struct peer_transport *transport;
        uint32_t named;
    } all[] = {{comm->device.ops->ipc, PEER_TRANSPORT_IPC}, {&peer_transport_shm, PEER_TRANSPORT_SHM}};
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !comm->peers.ok; i++) {
        if (choice != PEER_TRANSPORT_AUTO && choice != all[i].named)
            continue;
        (void)peer_transport_create(comm, all[i].transport, why, why_bytes);
        if (!comm->peers.ok) {
            char what[64];
            snprintf(what, sizeof what, "transport %s can't serve", all[i].transport->name);
            pass_over(comm, what, why);
        }
    }
}

/* The peer path, or the reason why there is none. An error only where the setting names a transport. */
static int make_peer_path(struct peer_comm *comm)
{
    const uint32_t choice = comm->config.transport;
    bool named = choice == PEER_TRANSPORT_IPC || choice == PEER_TRANSPORT_SHM;
    char why[512] = "";
    if (comm->size == 1 || (choice != PEER_TRANSPORT_AUTO && !named))
        return PEER_SUCCESS;
    if (comm->nnodes > 1)
        snprintf(why, sizeof why, "the ranks are on %d nodes", comm->nnodes);
    else if (comm->size > PEER_MAX_PEERS)
        snprintf(why, sizeof why, "%d ranks, the peer kernels serve %d at most", comm->size, PEER_MAX_PEERS);
    if (why[0] != '\0')
        pass_over(comm, "no peer path", why);
    else
        try_transports(comm, why, sizeof why);
    if (named && !comm->peers.ok)
        return peer_error(PEER_ERR_UNSUPPORTED, "PEER_TRANSPORT=%s can't serve: %s",
                          choice == PEER_TRANSPORT_IPC ? "ipc" : "shm", why);
    return PEER_SUCCESS;
}

/* Rows of selection from what the probe measured, where those are better than the built-in ones. */
static int make_model_rows(struct peer_comm *comm)
{
    const uint32_t nranks = (uint32_t)comm->size;
    if (!comm->peers.ok || !peer_model_serves(&comm->figures, comm->link, nranks))
        return PEER_SUCCESS;
    comm->nmodel_rows = peer_model_rows(&comm->figures, comm->link, nranks, NULL, 0);
    if (comm->nmodel_rows == 0)
        return PEER_SUCCESS;
    comm->model_rows = calloc(comm->nmodel_rows, sizeof *comm->model_rows);
    if (comm->model_rows == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu rows of selection", comm->nmodel_rows);
    peer_model_rows(&comm->figures, comm->link, nranks, comm->model_rows, comm->nmodel_rows);
    if (comm->rank == 0)
        peer_log(PEER_LOG_DEBUG, "%zu rows of selection by the model, from what the probe measured",
                 comm->nmodel_rows);
    return PEER_SUCCESS;
}

/* NCCL's communicator where it may be called for. An error only where the setting names nccl. */
static int make_nccl(struct peer_comm *comm)
{
    bool named = comm->config.transport == PEER_TRANSPORT_NCCL;
    int status = PEER_SUCCESS;
    if (comm->size == 1 || (comm->config.transport != PEER_TRANSPORT_AUTO && !named)) {
        snprintf(comm->nccl_reason, sizeof comm->nccl_reason, "not asked for");
        return PEER_SUCCESS;
    }
    if (comm->device.ops == &peer_device_host)
        snprintf(comm->nccl_reason, sizeof comm->nccl_reason, "NCCL has no host device");
    else
        status = peer_nccl_create(comm);
    if (comm->nccl == NULL && named && status == PEER_SUCCESS)
        status = peer_error(PEER_ERR_UNSUPPORTED, "PEER_TRANSPORT=nccl can't serve: %s", comm->nccl_reason);
    if (comm->nccl == NULL && !named && comm->rank == 0)
        peer_log(PEER_LOG_INFO, "no NCCL: %s", comm->nccl_reason);
    return status;
}

static void say_what_came_of_it(const struct peer_comm *comm)
{
    char figures[256];
    if (comm->rank != 0)
        return;
    if (comm->passed_over[0] != '\0')
        peer_log(PEER_LOG_WARN, "%s; %s serves instead", comm->passed_over, peer_comm_transport(comm));
    peer_figures_text(&comm->figures, figures, sizeof figures);
    peer_log(
        PEER_LOG_INFO,
        "%d rank%s on %d node%s, device %s, transport %s%s, at most %u threads, %zu bytes a rank, made in "
        "%llu ms; %s",
        comm->size, comm->size == 1 ? "" : "s", comm->nnodes, comm->nnodes == 1 ? "" : "s",
        comm->device.ops->name, peer_comm_transport(comm),
        comm->peers.ok && !comm->peers.line_ok ? " (lines tear, or were not tried: ll for line)" : "",
        comm->max_threads, (size_t)peer_transport_memory(comm), (unsigned long long)comm->create_ms, figures);
}

/* ---- Birth and end ---------------------------------------------------------------------------------------- */

static void give_back_device(struct peer_comm *comm, bool together)
{
    const struct peer_device_ops *ops = comm->device.ops;
    int before = 0;
    bool entered = ops->enter(&comm->device, &before) == PEER_SUCCESS; /* if not, what can be is given back */
    /* First: a call of NCCL's whose ranks are not all there would never drain. */
    if (comm->nccl != NULL && !together)
        peer_nccl_abort(comm->nccl);
    if (entered)
        ops->drain(&comm->device);
    peer_nccl_destroy(comm->nccl, !together);
    if (comm->peers.ok)
        peer_transport_destroy(comm, together && peer_transport_leave(comm));
    ops->close(&comm->device);
    if (entered)
        ops->leave(&comm->device, before);
}

/* Accepts half-built communicators. */
static void destroy(struct peer_comm *comm, bool together)
{
    if (comm->device.ops != NULL)
        give_back_device(comm, together);
    if (comm->boot != NULL)
        comm->boot->destroy(comm->boot);
    peer_table_free(&comm->table);
    free(comm->staging);
    free(comm->model_rows);
    free(comm->ids);
    comm->magic = 0;
    free(comm);
}

static void list_add(struct peer_comm *comm)
{
    pthread_mutex_lock(&alive_lock);
    comm->next = alive;
    alive = comm;
    pthread_mutex_unlock(&alive_lock);
}

static void list_remove(const struct peer_comm *comm)
{
    pthread_mutex_lock(&alive_lock);
    for (struct peer_comm **at = &alive; *at != NULL; at = &(*at)->next)
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    pthread_mutex_unlock(&alive_lock);
}

static struct peer_comm *first_alive(void)
{
    struct peer_comm *first;
    pthread_mutex_lock(&alive_lock);
    first = alive;
    pthread_mutex_unlock(&alive_lock);
    return first;
}

/* Ends at the first that can't be freed: a child made by fork has its parent's in the list. */
static void free_all_alive(void)
{
    struct peer_comm *comm;
    int status = PEER_SUCCESS;
    while (status == PEER_SUCCESS && (comm = first_alive()) != NULL) {
        peer_log(PEER_LOG_WARN,
                 "a communicator of %d ranks was still alive at MPI_Finalize: call PEER_Comm_free",
                 comm->size);
        status = PEER_Comm_free(&comm);
    }
}

/* What can only fail here alone, and is voted on. */
static int finish(struct peer_comm *comm)
{
    int status;
    peer_islands_settle(comm);
    status = make_model_rows(comm);
    return status == PEER_SUCCESS ? peer_bootstrap_at_finalize(free_all_alive) : status;
}

/* The steps, on a communicator that has its ranks. */
static int build(struct peer_comm *comm, const struct origin *origin)
{
    int status;
    comm->rank = comm->boot->rank;
    comm->size = comm->boot->size;
    comm->ids = calloc((size_t)comm->size, sizeof *comm->ids);
    status = origin->status;
    if (status == PEER_SUCCESS && comm->ids == NULL)
        status = peer_error(PEER_ERR_NO_MEMORY, "no memory for %d ranks", comm->size);
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = read_settings(comm, origin);
    if (status == PEER_SUCCESS)
        status = load_table(comm, origin);
    if (status == PEER_SUCCESS)
        status = exchange_identities(comm);
    if (status == PEER_SUCCESS)
        status = open_device(comm);
    if (status == PEER_SUCCESS)
        status = make_peer_path(comm);
    if (status == PEER_SUCCESS)
        status = make_nccl(comm);
    if (status == PEER_SUCCESS)
        status = peer_vote(comm->boot, finish(comm));
    return status;
}

static int create(MPI_Comm mpi_comm, const struct origin *origin, PEER_Comm *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint64_t begin = peer_now_ns();
    struct peer_comm *comm;
    int status;
    pthread_once(&once, watch_forks);
    comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for a communicator");
    comm->magic = PEER_COMM_MAGIC;
    comm->forks = forks;
    status = peer_bootstrap_mpi_create(mpi_comm, &comm->boot);
    if (status == PEER_SUCCESS)
        status = build(comm, origin);
    if (status != PEER_SUCCESS) {
        destroy(comm, true);
        return status;
    }
    comm->create_ms = (peer_now_ns() - begin) / 1000000;
    say_what_came_of_it(comm);
    list_add(comm);
    *out = comm;
    return PEER_SUCCESS;
}

int PEER_Comm_create(MPI_Comm mpi_comm, MPI_Info info, PEER_Comm *out)
{
    struct origin origin = {.info = info};
    int status = peer_bootstrap_check(mpi_comm);
    if (out != NULL)
        *out = PEER_COMM_NULL;
    else if (status == PEER_SUCCESS)
        origin.status = peer_error(PEER_ERR_ARG, "comm is NULL: pass the address of a PEER_Comm");
    return status == PEER_SUCCESS ? create(mpi_comm, &origin, out) : status;
}

/* The new communicator is on the parent's GPU, whichever is current. */
static int create_beside(const struct peer_comm *parent, MPI_Comm mpi_comm, PEER_Comm *out)
{
    const struct peer_device_ops *ops = parent->device.ops;
    struct origin origin = {.info = MPI_INFO_NULL, .parent = parent};
    int before = 0, status;
    origin.status = ops->enter(&parent->device, &before);
    status = create(mpi_comm, &origin, out);
    if (origin.status == PEER_SUCCESS)
        ops->leave(&parent->device, before);
    return status;
}

int PEER_Comm_split(PEER_Comm comm, int color, int key, PEER_Comm *out)
{
    MPI_Comm group = MPI_COMM_NULL;
    bool refused = out == NULL || (color < 0 && color != MPI_UNDEFINED);
    int status;
    if (out != NULL)
        *out = PEER_COMM_NULL;
    status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    status = peer_fault_check(comm);
    /* Where ranks have a record of faults in common these need no vote, for which a lost rank would be waited for. */
    if (status == PEER_SUCCESS || comm->peers.control == NULL)
        status = peer_vote(comm->boot, status);
    if (status != PEER_SUCCESS)
        return status;
    /* A rank whose arguments are wrong still takes part, so that the others don't wait for it. */
    status = peer_bootstrap_mpi_split(comm->boot, refused ? MPI_UNDEFINED : color, key, &group);
    if (refused)
        return out == NULL
                   ? peer_error(PEER_ERR_ARG, "out is NULL: pass the address of a PEER_Comm")
                   : peer_error(PEER_ERR_ARG,
                                "color is %d: it must be 0 or more, or MPI_UNDEFINED for no communicator",
                                color);
    if (status == PEER_SUCCESS && group != MPI_COMM_NULL) {
        status = create_beside(comm, group, out);
        MPI_Comm_free(&group);
    }
    return status;
}

int PEER_Comm_abort(PEER_Comm comm)
{
    int status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    comm->aborted = 1;
    if (comm->peers.control != NULL && comm->peers.control->failed == PEER_SUCCESS)
        comm->peers.control->failed = PEER_ERR_ABORTED;
    if (comm->nccl != NULL)
        peer_nccl_abort(comm->nccl);
    return PEER_SUCCESS;
}

int PEER_Comm_free(PEER_Comm *handle)
{
    struct peer_comm *comm;
    int status;
    if (handle == NULL)
        return peer_error(PEER_ERR_ARG, "comm is NULL: pass the address of a PEER_Comm");
    comm = *handle;
    if (comm == PEER_COMM_NULL)
        return PEER_SUCCESS;
    status = peer_comm_check(comm);
    if (status != PEER_SUCCESS)
        return status;
    list_remove(comm);
    *handle = PEER_COMM_NULL;
    destroy(comm, comm->status == PEER_SUCCESS && peer_fault_check(comm) == PEER_SUCCESS);
    return PEER_SUCCESS;
}

int PEER_Select_device(MPI_Comm mpi_comm, int *device)
{
    int local = 0, ordinal = -1, status = peer_bootstrap_check(mpi_comm);
    if (status == PEER_SUCCESS)
        status = peer_bootstrap_local_rank(mpi_comm, &local);
    if (status == PEER_SUCCESS && cuda_ops() != NULL)
        status = cuda_ops()->select(local, &ordinal);
    if (status == PEER_SUCCESS && device != NULL)
        *device = ordinal;
    return status;
}
