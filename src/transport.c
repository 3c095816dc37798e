/* The peer path over a transport: each rank's slab is made, exported and opened by all peers. Nothing is believed
 * of what the driver says about peer access: opening, and then the probe, decide. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* On the host device calls take turns in more staging than a CPU's own cache holds: a line that the last
 * call's reader still holds is written at the cost of taking it back from there, and one that has moved on to
 * the shared cache is not (43,008 bytes on two cores with 1 MiB each: 2.9 us through 2 MiB, 4.2 through 1 MiB,
 * 6.5 in one place). */
#define HOST_ROTATE ((uint64_t)2 << 20)

/* PEER_STAGING_BYTES=auto, of host memory and of a GPU's. Slabs are some three times that; those of 8 ranks fit in
 * the 64 MiB of /dev/shm that a container has by default, and in 64 MiB of a GPU. */
#define HOST_STAGING (UINT64_C(2) << 20)
#define CUDA_STAGING (UINT64_C(8) << 20)

/* Milliseconds that freeing a broken communicator waits for the other ranks to do the same. */
#define CLOSE_MS 1000

/* What ranks exchange. */
struct offer {
    struct peer_handle slab;
    struct peer_handle control; /* rank 0's */
};

static size_t slab_bytes(const struct peer_comm *comm)
{
    return PEER_SLAB_BYTES(comm->peers.staging);
}

/* This rank's slab, state and (rank 0) the control segment, and the handles to them. */
static int make_own(struct peer_comm *comm, struct offer *offer)
{
    struct peer_device *device = &comm->device;
    struct peer_peers *peers = &comm->peers;
    struct peer_mapping *slab = &peers->slab[comm->rank];
    int status = peers->transport->slab_alloc(device, slab_bytes(comm), slab);
    memset(offer, 0, sizeof *offer);
    if (status == PEER_SUCCESS)
        status = device->ops->state_alloc(device, sizeof(struct peer_states), &peers->state);
    if (status == PEER_SUCCESS)
        status = peers->transport->slab_export(device, slab, &offer->slab);
    if (status == PEER_SUCCESS && comm->rank == 0)
        status = peer_device_host.ipc->slab_alloc(NULL, sizeof(struct peer_control), &peers->control_segment);
    if (status == PEER_SUCCESS && comm->rank == 0)
        status = peer_device_host.ipc->slab_export(NULL, &peers->control_segment, &offer->control);
    return status;
}

static int open_peers(struct peer_comm *comm, const struct offer *offers)
{
    struct peer_device *device = &comm->device;
    struct peer_peers *peers = &comm->peers;
    int status = PEER_SUCCESS;
    for (int r = 0; r < comm->size && status == PEER_SUCCESS; r++)
        if (r != comm->rank)
            status =
                peers->transport->slab_import(device, &offers[r].slab, slab_bytes(comm), &peers->slab[r]);
    if (status == PEER_SUCCESS && comm->rank != 0)
        status = peer_device_host.ipc->slab_import(NULL, &offers[0].control, sizeof(struct peer_control),
                                                   &peers->control_segment);
    if (status == PEER_SUCCESS)
        status = device->ops->host_register(device, peers->control_segment.base, sizeof(struct peer_control),
                                            &peers->control_segment.there);
    if (status == PEER_SUCCESS)
        peers->control = peers->control_segment.base;
    return status;
}

/* Slab, state and this rank's record as they are before the first call, which has the tag `start`. Peers must
 * not be writing. */
static int make_clean(struct peer_comm *comm, uint32_t start)
{
    struct peer_device *device = &comm->device;
    struct peer_peers *peers = &comm->peers;
    struct peer_states states = {.stopped = 0};
    uint16_t sweep = (uint16_t)(start >> PEER_SWEEP_SHIFT);
    int status;
    for (int i = 0; i < PEER_MAX_BLOCKS; i++)
        states.copy[i] = (struct peer_state){.epoch = start, .swept = (uint16_t)(sweep | sweep << 2)};
    memset((void *)&peers->control->rank[comm->rank], 0, sizeof peers->control->rank[comm->rank]);
    peers->control->failed = PEER_SUCCESS;
    status = device->ops->fill(device, peers->slab[comm->rank].there, start - 1, slab_bytes(comm) / 4);
    if (status == PEER_SUCCESS)
        status = device->ops->copy(device, peers->state, &states, sizeof states);
    return status;
}

/* From slabs that nobody has touched to a path that has been proved. */
static int prove(struct peer_comm *comm, char *why, size_t why_bytes)
{
    struct peer_peers *peers = &comm->peers;
    bool ok = false;
    int status = peer_vote(comm->boot, make_clean(comm, PEER_PROBE_EPOCH));
    if (status == PEER_SUCCESS)
        status = peer_probe(comm, &ok, &peers->line_ok, why, why_bytes);
    if (status == PEER_SUCCESS)
        status = peer_vote(comm->boot, make_clean(comm, comm->config.epoch_start));
    peers->ok = ok && status == PEER_SUCCESS;
    comm->link = peer_figures_link(comm->link, &comm->figures);
    return status;
}

/* If one rank fails, all do. Then not every rank has the control segment, and none may wait in it for another. */
static int open_together(struct peer_comm *comm, const struct offer *offers)
{
    int status = peer_vote(comm->boot, open_peers(comm, offers));
    if (status != PEER_SUCCESS)
        comm->peers.control = NULL;
    return status;
}

/* What joins the ranks, and the staging that suits it. */
static void settle(struct peer_comm *comm, const struct peer_transport *transport)
{
    bool in_host = transport == &peer_transport_shm || comm->device.ops == &peer_device_host;
    comm->peers.transport = transport;
    comm->peers.staging = comm->config.staging_bytes != 0 ? comm->config.staging_bytes
                          : in_host                       ? HOST_STAGING
                                                          : CUDA_STAGING;
    comm->link = comm->device.ops == &peer_device_host ? PEER_LINK_HOST
                 : in_host                             ? PEER_LINK_SHM
                 : comm->one_gpu                       ? PEER_LINK_LOCAL
                                                       : PEER_LINK_WIRE;
}

int peer_transport_create(struct peer_comm *comm, const struct peer_transport *transport, char *why,
                          size_t why_bytes)
{
    struct offer mine, *all = calloc((size_t)comm->size, sizeof *all);
    struct peer_peers *peers = &comm->peers;
    int status;
    settle(comm, transport);
    status = all != NULL ? make_own(comm, &mine) : peer_error(PEER_ERR_NO_MEMORY, "no memory for handles");
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    if (status == PEER_SUCCESS)
        status = open_together(comm, all);
    peers->transport->slab_settled(&comm->device, &peers->slab[comm->rank]);
    peer_device_host.ipc->slab_settled(NULL, &peers->control_segment);
    if (status == PEER_SUCCESS)
        status = prove(comm, why, why_bytes);
    if (status != PEER_SUCCESS)
        snprintf(why, why_bytes, "%s", PEER_Last_error());
    free(all);
    if (!peers->ok)
        peer_transport_destroy(comm, true);
    return status;
}

/* Waits until every rank has set the word `offset` bytes into its record. False after limit_ms, and, if asked to
 * look at it, as soon as the communicator has failed. */
static bool all_set(const struct peer_comm *comm, size_t offset, uint64_t limit_ms, bool look_at_failed)
{
    const struct peer_control *control = comm->peers.control;
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

bool peer_transport_leave(struct peer_comm *comm)
{
    comm->peers.control->rank[comm->rank].leaving = 1;
    return all_set(comm, offsetof(struct peer_record, leaving), comm->config.timeout_ms, true);
}

void peer_transport_destroy(struct peer_comm *comm, bool together)
{
    struct peer_device *device = &comm->device;
    struct peer_peers *peers = &comm->peers;
    bool safe = true;
    for (int r = 0; r < comm->size && r < PEER_MAX_PEERS; r++)
        if (r != comm->rank)
            peers->transport->slab_close(device, &peers->slab[r]);
    /* An owner's memory must outlive its peers' mappings. */
    if (peers->control != NULL) {
        peers->control->rank[comm->rank].closed = 1;
        safe = all_set(comm, offsetof(struct peer_record, closed),
                       together ? comm->config.timeout_ms : CLOSE_MS, false);
    } else if (together) {
        comm->boot->barrier(comm->boot);
    }
    if (!safe)
        peer_log(PEER_LOG_WARN,
                 "a rank did not free its part of the broken communicator: %zu bytes stay allocated",
                 peers->slab[comm->rank].bytes);
    else if (comm->rank < PEER_MAX_PEERS)
        peers->transport->slab_free(device, &peers->slab[comm->rank]);
    device->ops->state_free(device, peers->state);
    if (peers->control_segment.there != NULL)
        device->ops->host_unregister(device, peers->control_segment.base);
    peer_device_host.ipc->slab_free(NULL, &peers->control_segment);
    *peers = (struct peer_peers){0};
}

uint64_t peer_transport_memory(const struct peer_comm *comm)
{
    return comm->peers.ok ? slab_bytes(comm) + sizeof(struct peer_states) : 0;
}

uint64_t peer_transport_shared_bytes(const struct peer_config *config, int size)
{
    uint64_t staging = config->staging_bytes != 0 ? config->staging_bytes : HOST_STAGING;
    return (uint64_t)size * PEER_SLAB_BYTES(staging) + sizeof(struct peer_control);
}

void peer_transport_call(struct peer_comm *comm, struct peer_call *call)
{
    const struct peer_peers *peers = &comm->peers;
    call->rank = (uint32_t)comm->rank;
    call->nranks = (uint32_t)comm->size;
    call->spin = comm->spin;
    call->staging = peers->staging;
    call->rotate = comm->link == PEER_LINK_HOST ? HOST_ROTATE : 0;
    call->timeout_ns = comm->config.timeout_ms * 1000000;
    call->copies = comm->max_blocks;
    call->state = peers->state;
    call->pace = &comm->pace;
    call->control = peers->control_segment.there;
    for (int r = 0; r < comm->size; r++)
        call->slab[r] = peers->slab[r].there;
}
