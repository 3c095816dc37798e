/* Transport shm: slabs are host memory that all ranks of a node share, and that each rank's GPU reaches over PCIe.
 * For GPUs that can't reach each other's memory. A slab's pages are made by its owner, so on the NUMA node that the
 * owner's process runs on; a rank that is bound to the node of its GPU reads near what its peers push. */
#include "internal.h"

/* Makes a segment that is mapped here reachable for the device's kernels, or unmaps it. */
static int make_reachable(struct peer_device *device, struct peer_mapping *segment, int status)
{
    if (status == PEER_SUCCESS) {
        status = device->ops->host_register(device, segment->base, segment->bytes, &segment->there);
        if (status != PEER_SUCCESS)
            peer_device_host.ipc->slab_free(NULL, segment);
    }
    return status;
}

static int shm_slab_alloc(struct peer_device *device, size_t bytes, struct peer_mapping *slab)
{
    return make_reachable(device, slab, peer_device_host.ipc->slab_alloc(NULL, bytes, slab));
}

static int shm_slab_import(struct peer_device *device, const struct peer_handle *handle, size_t bytes,
                           struct peer_mapping *mapping)
{
    return make_reachable(device, mapping, peer_device_host.ipc->slab_import(NULL, handle, bytes, mapping));
}

static void shm_slab_free(struct peer_device *device, struct peer_mapping *slab)
{
    if (slab->base != NULL)
        device->ops->host_unregister(device, slab->base);
    peer_device_host.ipc->slab_free(NULL, slab);
}

static int shm_slab_export(struct peer_device *device, const struct peer_mapping *slab,
                           struct peer_handle *handle)
{
    return peer_device_host.ipc->slab_export(device, slab, handle);
}

static void shm_slab_settled(struct peer_device *device, struct peer_mapping *slab)
{
    peer_device_host.ipc->slab_settled(device, slab);
}

const struct peer_transport peer_transport_shm = {
    .name = "shm",
    .slab_alloc = shm_slab_alloc,
    .slab_free = shm_slab_free,
    .slab_export = shm_slab_export,
    .slab_import = shm_slab_import,
    .slab_close = shm_slab_free, /* no name is left of a segment that was opened */
    .slab_settled = shm_slab_settled,
};
