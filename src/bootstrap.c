/* The ranks before there is a peer path: a small ops table over MPI, and the few other things that need MPI. */
#include "bootstrap.h"

#include <pthread.h>
#include <stdlib.h>

struct bootstrap_mpi {
    struct peer_bootstrap base; /* first, so that a pointer to it is one to this */
    MPI_Comm comm;
};

static int mpi_error(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return PEER_SUCCESS;
    MPI_Error_string(code, text, &length);
    return peer_error(PEER_ERR_MPI, "%s failed: %.200s", call, text);
}

static MPI_Comm comm_of(struct peer_bootstrap *boot)
{
    return ((struct bootstrap_mpi *)boot)->comm;
}

static int mpi_allgather(struct peer_bootstrap *boot, const void *mine, void *all, size_t bytes_each)
{
    return mpi_error("MPI_Allgather", MPI_Allgather(mine, (int)bytes_each, MPI_BYTE, all, (int)bytes_each,
                                                    MPI_BYTE, comm_of(boot)));
}

static int mpi_alltoall(struct peer_bootstrap *boot, const void *send, void *recv, size_t bytes_each)
{
    return mpi_error("MPI_Alltoall", MPI_Alltoall(send, (int)bytes_each, MPI_BYTE, recv, (int)bytes_each,
                                                  MPI_BYTE, comm_of(boot)));
}

static int mpi_alltoallv(struct peer_bootstrap *boot, const void *send, const int *sendcounts, void *recv,
                         const int *recvcounts, size_t apart)
{
    int code, *displs = malloc((size_t)boot->size * sizeof *displs);
    if (displs == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %d displacements", boot->size);
    for (int r = 0; r < boot->size; r++)
        displs[r] = (int)((size_t)r * apart);
    code =
        MPI_Alltoallv(send, sendcounts, displs, MPI_BYTE, recv, recvcounts, displs, MPI_BYTE, comm_of(boot));
    free(displs);
    return mpi_error("MPI_Alltoallv", code);
}

static int mpi_barrier(struct peer_bootstrap *boot)
{
    return mpi_error("MPI_Barrier", MPI_Barrier(comm_of(boot)));
}

static int mpi_bcast(struct peer_bootstrap *boot, void *data, size_t bytes)
{
    return mpi_error("MPI_Bcast", MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, comm_of(boot)));
}

static void mpi_destroy(struct peer_bootstrap *boot)
{
    if (boot == NULL)
        return;
    MPI_Comm_free(&((struct bootstrap_mpi *)boot)->comm);
    free(boot);
}

int peer_bootstrap_check(MPI_Comm mpi_comm)
{
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return peer_error(PEER_ERR_MPI,
                          "MPI is not running: call MPI_Init before, and MPI_Finalize after, all of "
                          "peercoll's calls");
    if (mpi_comm == MPI_COMM_NULL)
        return peer_error(PEER_ERR_ARG, "mpi_comm is MPI_COMM_NULL");
    MPI_Comm_test_inter(mpi_comm, &inter);
    if (inter)
        return peer_error(PEER_ERR_ARG,
                          "mpi_comm is an intercommunicator; merge it first (MPI_Intercomm_merge)");
    return PEER_SUCCESS;
}

/* call(mpi_comm, out) on a communicator of the user's, whose error handler may end the program: not here. */
static int on_users(MPI_Comm mpi_comm, const char *name, int (*call)(MPI_Comm, MPI_Comm *), MPI_Comm *out)
{
    MPI_Errhandler theirs;
    int code = MPI_Comm_get_errhandler(mpi_comm, &theirs);
    if (code != MPI_SUCCESS)
        return mpi_error("MPI_Comm_get_errhandler", code);
    MPI_Comm_set_errhandler(mpi_comm, MPI_ERRORS_RETURN);
    code = call(mpi_comm, out);
    MPI_Comm_set_errhandler(mpi_comm, theirs);
    MPI_Errhandler_free(&theirs);
    return mpi_error(name, code);
}

static int duplicate(MPI_Comm mpi_comm, MPI_Comm *out)
{
    return MPI_Comm_dup(mpi_comm, out);
}

static int split_by_node(MPI_Comm mpi_comm, MPI_Comm *out)
{
    return MPI_Comm_split_type(mpi_comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, out);
}

int peer_bootstrap_mpi_create(MPI_Comm mpi_comm, struct peer_bootstrap **out)
{
    struct bootstrap_mpi *boot = calloc(1, sizeof *boot);
    int status;
    if (boot == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for a communicator");
    boot->base.allgather = mpi_allgather;
    boot->base.alltoall = mpi_alltoall;
    boot->base.alltoallv = mpi_alltoallv;
    boot->base.barrier = mpi_barrier;
    boot->base.bcast = mpi_bcast;
    boot->base.destroy = mpi_destroy;
    status = on_users(mpi_comm, "MPI_Comm_dup", duplicate, &boot->comm);
    if (status != PEER_SUCCESS) {
        free(boot);
        return status;
    }
    MPI_Comm_set_errhandler(boot->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(boot->comm, &boot->base.rank);
    MPI_Comm_size(boot->comm, &boot->base.size);
    *out = &boot->base;
    return PEER_SUCCESS;
}

int peer_bootstrap_mpi_split(struct peer_bootstrap *boot, int color, int key, MPI_Comm *out)
{
    return mpi_error("MPI_Comm_split", MPI_Comm_split(comm_of(boot), color, key, out));
}

bool peer_bootstrap_info_get(void *arg, const char *key, char *value, size_t value_bytes)
{
    int found = 0;
    /* MPI writes the terminating zero behind the length that it is given. */
    MPI_Info_get(*(MPI_Info *)arg, key, (int)value_bytes - 1, value, &found);
    return found != 0;
}

static void (*finalize_callback)(void);

static int at_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    finalize_callback();
    return MPI_SUCCESS;
}

/* MPI deletes the attributes of MPI_COMM_SELF first of all in MPI_Finalize, while it still works. */
static int hook_finalize(void)
{
    int keyval = MPI_KEYVAL_INVALID;
    int status = mpi_error("MPI_Comm_create_keyval",
                           MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL));
    return status == PEER_SUCCESS
               ? mpi_error("MPI_Comm_set_attr", MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL))
               : status;
}

int peer_bootstrap_at_finalize(void (*callback)(void))
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* threads may make communicators at once */
    static bool hooked;
    int status = PEER_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!hooked) {
        finalize_callback = callback;
        status = hook_finalize();
        hooked = status == PEER_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int peer_bootstrap_world_rank(void)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int peer_bootstrap_local_rank(MPI_Comm mpi_comm, int *local_rank)
{
    MPI_Comm node;
    int status = on_users(mpi_comm, "MPI_Comm_split_type", split_by_node, &node);
    if (status != PEER_SUCCESS)
        return status;
    MPI_Comm_rank(node, local_rank);
    MPI_Comm_free(&node);
    return PEER_SUCCESS;
}

int peer_bootstrap_info_create(const char *const pairs[][2], MPI_Info *info)
{
    int code = MPI_Info_create(info);
    for (int i = 0; code == MPI_SUCCESS && pairs[i][0] != NULL; i++)
        code = MPI_Info_set(*info, pairs[i][0], pairs[i][1]);
    return mpi_error("MPI_Info_set", code);
}
