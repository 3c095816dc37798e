/* The host device: kernels run on the calling thread, shared segments play device memory. A handle is a segment's
 * name, which is unlinked as soon as all ranks have mapped it, so that a crash leaves nothing behind. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "config.h"

const struct peer_host_kernels *peer_host_kernels(void)
{
#ifdef PEER_HAVE_ISA_VARIANTS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &peer_host_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &peer_host_kernels_avx2;
#endif
    return &peer_host_kernels_base;
}

static const struct peer_host_kernels *kernels; /* set by host_open, before any call */

static uint32_t host_vector_bytes(void)
{
    return peer_host_kernels()->vector_bytes;
}

static bool host_available(char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return true;
}

static int host_select(int local_rank, int *ordinal)
{
    (void)local_rank;
    *ordinal = -1;
    return PEER_SUCCESS;
}

static int host_enter(const struct peer_device *device, int *before)
{
    (void)device, (void)before;
    return PEER_SUCCESS;
}

static void host_leave(const struct peer_device *device, int before)
{
    (void)device, (void)before;
}

static int host_open(struct peer_device *device)
{
    kernels = peer_host_kernels();
    device->max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS; /* they run one after the other */
    return PEER_SUCCESS;
}

static void host_close(struct peer_device *device)
{
    (void)device;
}

static int host_identify(struct peer_device *device, struct peer_identity *id)
{
    id->max_threads = device->max_threads;
    return PEER_SUCCESS;
}

/* A name that no other process has: random, since process numbers repeat across containers that share /dev/shm.
 * It goes with the mapping until it is settled. */
static int segment_create(char *name, size_t name_bytes)
{
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 16; tries++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -1;
        snprintf(name, name_bytes, "/peercoll-%016llx", (unsigned long long)random);
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    return fd;
}

/* Reserves the pages: a full /dev/shm is an error here, and not a bus error at first touch. A signal would end it with
 * EINTR and nothing done, and one of a timer so again and again: they wait meanwhile. */
static int reserve(int fd, size_t bytes)
{
    sigset_t all, before;
    int code;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    code = posix_fallocate(fd, 0, (off_t)bytes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static int host_slab_alloc(struct peer_device *device, size_t bytes, struct peer_mapping *slab)
{
    int code, fd = segment_create(slab->name, sizeof slab->name);
    (void)device;
    if (fd < 0) {
        code = errno;
        slab->name[0] = '\0';
        return peer_error(PEER_ERR_SYSTEM, "can't make a shared segment in /dev/shm: %s", strerror(code));
    }
    code = reserve(fd, bytes);
    slab->base = code == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (slab->base == MAP_FAILED) {
        code = code != 0 ? code : errno;
        close(fd);
        shm_unlink(slab->name);
        *slab = (struct peer_mapping){0};
        return peer_error(
            PEER_ERR_NO_MEMORY,
            "/dev/shm has no room for %zu bytes (%s): make it larger (containers: --shm-size), or "
            "lower PEER_STAGING_BYTES",
            bytes, strerror(code));
    }
    close(fd);
    slab->bytes = bytes;
    slab->there = slab->base;
    return PEER_SUCCESS;
}

static void host_slab_settled(struct peer_device *device, struct peer_mapping *slab)
{
    (void)device;
    if (slab->name[0] != '\0')
        shm_unlink(slab->name);
    slab->name[0] = '\0';
}

static void host_slab_close(struct peer_device *device, struct peer_mapping *mapping)
{
    (void)device;
    if (mapping->base != NULL)
        munmap(mapping->base, mapping->bytes);
    *mapping = (struct peer_mapping){0};
}

static void host_slab_free(struct peer_device *device, struct peer_mapping *slab)
{
    host_slab_settled(device, slab);
    host_slab_close(device, slab);
}

static int host_slab_export(struct peer_device *device, const struct peer_mapping *slab,
                            struct peer_handle *handle)
{
    (void)device;
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, slab->name, sizeof slab->name);
    return PEER_SUCCESS;
}

static int host_slab_import(struct peer_device *device, const struct peer_handle *handle, size_t bytes,
                            struct peer_mapping *mapping)
{
    int fd = shm_open(handle->bytes, O_RDWR, 0);
    (void)device;
    if (fd < 0)
        return peer_error(PEER_ERR_SYSTEM,
                          "can't open the shared segment %s: %s (do the ranks share /dev/shm?)",
                          handle->bytes, strerror(errno));
    mapping->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (mapping->base == MAP_FAILED) {
        mapping->base = NULL;
        return peer_error(PEER_ERR_SYSTEM, "can't map the shared segment %s: %s", handle->bytes,
                          strerror(errno));
    }
    mapping->bytes = bytes;
    mapping->there = mapping->base;
    return PEER_SUCCESS;
}

static int host_state_alloc(struct peer_device *device, size_t bytes, void **state)
{
    (void)device;
    *state = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (*state == NULL)
        return peer_error(PEER_ERR_NO_MEMORY, "no memory for %zu bytes of state", bytes);
    memset(*state, 0, bytes);
    return PEER_SUCCESS;
}

static void host_state_free(struct peer_device *device, void *state)
{
    (void)device;
    free(state);
}

static int host_fill(struct peer_device *device, void *to, uint32_t word, size_t nwords)
{
    (void)device;
    for (size_t i = 0; i < nwords; i++)
        ((volatile uint32_t *)to)[i] = word;
    return PEER_SUCCESS;
}

static int host_copy(struct peer_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memmove(to, from, bytes);
    return PEER_SUCCESS;
}

static int host_copy_async(struct peer_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    return host_copy(device, to, from, bytes);
}

static int host_register(struct peer_device *device, void *base, size_t bytes, void **there)
{
    (void)device, (void)bytes;
    *there = base;
    return PEER_SUCCESS;
}

static void host_unregister(struct peer_device *device, void *base)
{
    (void)device, (void)base;
}

static int host_check_buffer(struct peer_device *device, const char *name, const void *buffer)
{
    (void)device, (void)name, (void)buffer;
    return PEER_SUCCESS;
}

static int host_launch(struct peer_device *device, const struct peer_call *call, void *stream)
{
    (void)device, (void)stream;
    kernels->launch(call);
    return PEER_SUCCESS;
}

static int host_probe(struct peer_device *device, const struct peer_call *call,
                      const struct peer_probe_step *step, struct peer_probe_result *result)
{
    (void)device;
    peer_probe_host(call, step, result);
    return PEER_SUCCESS;
}

static int host_synchronize(struct peer_device *device, void *stream)
{
    (void)device, (void)stream;
    return PEER_SUCCESS;
}

static int host_temp_alloc(struct peer_device *device, size_t bytes, void **temp, void *stream)
{
    (void)device, (void)stream;
    *temp = malloc(bytes);
    return *temp != NULL ? PEER_SUCCESS
                         : peer_error(PEER_ERR_NO_MEMORY, "no memory for a copy of %zu bytes", bytes);
}

static void host_temp_free(struct peer_device *device, void *temp, void *stream)
{
    (void)device, (void)stream;
    free(temp);
}

static int host_is_capturing(struct peer_device *device, void *stream, bool *capturing)
{
    (void)device, (void)stream;
    *capturing = false;
    return PEER_SUCCESS;
}

static int host_drain(struct peer_device *device)
{
    (void)device;
    return PEER_SUCCESS;
}

static const struct peer_transport host_ipc = {
    .name = "ipc",
    .slab_alloc = host_slab_alloc,
    .slab_free = host_slab_free,
    .slab_export = host_slab_export,
    .slab_import = host_slab_import,
    .slab_close = host_slab_close,
    .slab_settled = host_slab_settled,
};

const struct peer_device_ops peer_device_host = {
    .name = "host",
    .vector_bytes = host_vector_bytes,
    .available = host_available,
    .select = host_select,
    .enter = host_enter,
    .leave = host_leave,
    .open = host_open,
    .close = host_close,
    .identify = host_identify,
    .ipc = &host_ipc,
    .state_alloc = host_state_alloc,
    .state_free = host_state_free,
    .fill = host_fill,
    .copy = host_copy,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .check_buffer = host_check_buffer,
    .launch = host_launch,
    .copy_async = host_copy_async,
    .synchronize = host_synchronize,
    .follow = host_synchronize, /* calls end before they return */
    .followed = host_synchronize,
    .temp_alloc = host_temp_alloc,
    .temp_free = host_temp_free,
    .is_capturing = host_is_capturing,
    .probe = host_probe,
    .drain = host_drain,
};
