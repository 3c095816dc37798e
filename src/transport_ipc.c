/* Transport ipc: each rank's slab is memory of its device, exported by handle and opened by all peers. Nothing is
 * believed of what the driver says about peer access: opening, and then the probe, decide. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* On the host device calls take turns in more staging than a CPU's own cache holds: a line that the last
 * call's reader still holds is written at the cost of taking it back from there, and one that has moved on to
 * the shared cache is not (43,008 bytes on two cores with 1 MiB each: 2.9 us through 2 MiB, 4.2 through 1 MiB,
 * 6.5 in one place). */
#define HOST_ROTATE ((uint64_t)2 << 20)

/* Milliseconds that freeing a broken communicator waits for the other ranks to do the same. */
#define CLOSE_MS 1000

/* What ranks exchange. */
struct offer {
    struct peer_handle slab;
    struct peer_handle control; /* rank 0's */
};

static size_t slab_bytes(const struct peer_comm *comm)
{
    return PEER_SLAB_BYTES(comm->config.staging_bytes);
}

/* This rank's slab, state and (rank 0) the control segment, and the handles to them. */
static int make_own(struct peer_comm *comm, struct offer *offer)
{
    struct peer_device *device = &comm->device;
    struct peer_ipc *ipc = &comm->ipc;
    struct peer_mapping *slab = &ipc->slab[comm->rank];
    int status = device->ops->slab_alloc(device, slab_bytes(comm), slab);
    memset(offer, 0, sizeof *offer);
    if (status == PEER_SUCCESS)
        status = device->ops->state_alloc(device, sizeof(struct peer_states), &ipc->state);
    if (status == PEER_SUCCESS)
        status = device->ops->slab_export(device, slab, &offer->slab);
    if (status == PEER_SUCCESS && comm->rank == 0)
        status = peer_device_host.slab_alloc(NULL, sizeof(struct peer_control), &ipc->control_segment);
    if (status == PEER_SUCCESS && comm->rank == 0)
        status = peer_device_host.slab_export(NULL, &ipc->control_segment, &offer->control);
    return status;
}

static int open_peers(struct peer_comm *comm, const struct offer *offers)
{
    struct peer_device *device = &comm->device;
    struct peer_ipc *ipc = &comm->ipc;
    int status = PEER_SUCCESS;
    for (int r = 0; r < comm->size && status == PEER_SUCCESS; r++)
        if (r != comm->rank)
            status = device->ops->slab_import(device, &offers[r].slab, slab_bytes(comm), &ipc->slab[r]);
    if (status == PEER_SUCCESS && comm->rank != 0)
        status = peer_device_host.slab_import(NULL, &offers[0].control, sizeof(struct peer_control),
                                              &ipc->control_segment);
    if (status == PEER_SUCCESS)
        status = device->ops->host_register(device, ipc->control_segment.base, sizeof(struct peer_control),
                                            &ipc->control_there);
    if (status == PEER_SUCCESS)
        ipc->control = ipc->control_segment.base;
    return status;
}

/* Slab, state and this rank's record as they are before the first call, which has the tag `start`. Peers must
 * not be writing. */
static int make_clean(struct peer_comm *comm, uint32_t start)
{
    struct peer_device *device = &comm->device;
    struct peer_ipc *ipc = &comm->ipc;
    struct peer_states states = {.stopped = 0};
    uint16_t sweep = (uint16_t)(start >> PEER_SWEEP_SHIFT);
    int status;
    for (int i = 0; i < PEER_MAX_BLOCKS; i++)
        states.copy[i] = (struct peer_state){.epoch = start, .swept = (uint16_t)(sweep | sweep << 2)};
    memset((void *)&ipc->control->rank[comm->rank], 0, sizeof ipc->control->rank[comm->rank]);
    ipc->control->failed = PEER_SUCCESS;
    status = device->ops->fill(device, ipc->slab[comm->rank].base, start - 1, slab_bytes(comm) / 4);
    if (status == PEER_SUCCESS)
        status = device->ops->copy(device, ipc->state, &states, sizeof states);
    return status;
}

/* From slabs that nobody has touched to a path that has been proved. */
static int prove(struct peer_comm *comm, char *why, size_t why_bytes)
{
    struct peer_ipc *ipc = &comm->ipc;
    bool ok = false;
    int status = peer_vote(comm->boot, make_clean(comm, PEER_PROBE_EPOCH));
    if (status == PEER_SUCCESS)
        status = peer_probe(comm, &ok, &ipc->line_ok, why, why_bytes);
    if (status == PEER_SUCCESS)
        status = peer_vote(comm->boot, make_clean(comm, comm->config.epoch_start));
    ipc->ok = ok && status == PEER_SUCCESS;
    return status;
}

int peer_ipc_create(struct peer_comm *comm, char *why, size_t why_bytes)
{
    struct offer mine, *all = calloc((size_t)comm->size, sizeof *all);
    struct peer_ipc *ipc = &comm->ipc;
    int status =
        all != NULL ? make_own(comm, &mine) : peer_error(PEER_ERR_NO_MEMORY, "no memory for handles");
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    if (status == PEER_SUCCESS)
        status = peer_vote(comm->boot, open_peers(comm, all));
    comm->device.ops->slab_settled(&comm->device, &ipc->slab[comm->rank]);
    peer_device_host.slab_settled(NULL, &ipc->control_segment);
    if (status == PEER_SUCCESS)
        status = prove(comm, why, why_bytes);
    else
        snprintf(why, why_bytes, "%s", PEER_Last_error());
    free(all);
    if (!ipc->ok)
        peer_ipc_destroy(comm, true);
    return status;
}

/* Waits until every rank has set the word `offset` bytes into its record. False after limit_ms, and, if asked to
 * look at it, as soon as the communicator has failed. */
static bool all_set(const struct peer_comm *comm, size_t offset, uint64_t limit_ms, bool look_at_failed)
{
    const struct peer_control *control = comm->ipc.control;
    const struct timespec pause = {0, 200000};
    for (uint64_t pauses = 0; pauses < limit_ms * 5; pauses++) {
        int set = 0;
        for (int r = 0; r < comm->size; r++)
            set += *(const volatile uint32_t *)((const char *)&control->rank[r] + offset) != 0;
        if (set == comm->size)
            return true;
        if (look_at_failed && control->failed != PEER_SUCCESS)
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

bool peer_ipc_leave(struct peer_comm *comm)
{
    comm->ipc.control->rank[comm->rank].leaving = 1;
    return all_set(comm, offsetof(struct peer_record, leaving), comm->config.timeout_ms, true);
}

void peer_ipc_destroy(struct peer_comm *comm, bool together)
{
    struct peer_device *device = &comm->device;
    struct peer_ipc *ipc = &comm->ipc;
    bool safe = true;
    for (int r = 0; r < comm->size && r < PEER_MAX_PEERS; r++)
        if (r != comm->rank)
            device->ops->slab_close(device, &ipc->slab[r]);
    /* An owner's memory must outlive its peers' mappings. */
    if (ipc->control != NULL) {
        ipc->control->rank[comm->rank].closed = 1;
        safe = all_set(comm, offsetof(struct peer_record, closed),
                       together ? comm->config.timeout_ms : CLOSE_MS, false);
    } else if (together) {
        comm->boot->barrier(comm->boot);
    }
    if (!safe)
        peer_log(PEER_LOG_WARN,
                 "a rank did not free its part of the broken communicator: %zu bytes stay allocated",
                 ipc->slab[comm->rank].bytes);
    else if (comm->rank < PEER_MAX_PEERS)
        device->ops->slab_free(device, &ipc->slab[comm->rank]);
    device->ops->state_free(device, ipc->state);
    if (ipc->control_there != NULL)
        device->ops->host_unregister(device, ipc->control_segment.base);
    peer_device_host.slab_free(NULL, &ipc->control_segment);
    *ipc = (struct peer_ipc){0};
}

uint64_t peer_ipc_memory(const struct peer_comm *comm)
{
    return comm->ipc.ok ? slab_bytes(comm) + sizeof(struct peer_states) : 0;
}

void peer_ipc_call(struct peer_comm *comm, struct peer_call *call)
{
    const struct peer_ipc *ipc = &comm->ipc;
    call->rank = (uint32_t)comm->rank;
    call->nranks = (uint32_t)comm->size;
    call->spin = comm->spin;
    call->staging = comm->config.staging_bytes;
    call->rotate = comm->link == PEER_LINK_HOST ? HOST_ROTATE : 0;
    call->timeout_ns = comm->config.timeout_ms * 1000000;
    call->copies = comm->max_blocks;
    call->state = ipc->state;
    call->pace = &comm->pace;
    call->control = ipc->control_there;
    for (int r = 0; r < comm->size; r++)
        call->slab[r] = ipc->slab[r].base;
}
