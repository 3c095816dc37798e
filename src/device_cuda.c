/* The cuda device: kernels run on the GPU that was current when the communicator was made, and memory that peers
 * map is cudaMalloc'ed and exported by cudaIpcMemHandle_t. */
#include "internal.h"

#include <cuda_runtime.h>
#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) <= sizeof(struct peer_handle), "a handle fits");

/* Ours for CUDA's; the error doesn't stay behind as CUDA's last. */
static int cuda_error(const char *call, cudaError_t code)
{
    if (code == cudaSuccess)
        return PEER_SUCCESS;
    (void)cudaGetLastError();
    return peer_error(code == cudaErrorMemoryAllocation ? PEER_ERR_NO_MEMORY : PEER_ERR_CUDA,
                      "%s failed: %s (%s)", call, cudaGetErrorString(code), cudaGetErrorName(code));
}

/* Callers enter once for all they do: a default stream is the current device's, and so is what is launched or
 * allocated. */
static int enter(const struct peer_device *device, int *before)
{
    cudaError_t code = cudaGetDevice(before);
    if (code == cudaSuccess && *before != device->ordinal)
        code = cudaSetDevice(device->ordinal);
    return cuda_error("cudaSetDevice", code);
}

static void leave(const struct peer_device *device, int before)
{
    if (before != device->ordinal)
        (void)cudaSetDevice(before);
}

static bool cuda_available(char *why, size_t why_bytes)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0)
        return true;
    (void)cudaGetLastError();
    snprintf(why, why_bytes, "%s", code == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(code));
    return false;
}

static int cuda_select(int local_rank, int *ordinal)
{
    int count = 0;
    *ordinal = -1;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)cudaGetLastError(); /* no GPU is no error here */
        return PEER_SUCCESS;
    }
    *ordinal = local_rank % count;
    return cuda_error("cudaSetDevice", cudaSetDevice(*ordinal));
}

static int cuda_open(struct peer_device *device)
{
    int resident = 0, resident_probes = 0, multiprocessors = 0;
    cudaStream_t stream = NULL;
    cudaError_t code = cudaGetDevice(&device->ordinal);
    if (code == cudaSuccess)
        code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    device->stream = stream;
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device->ordinal);
    if (code == cudaSuccess)
        code = (cudaError_t)peer_preload_cuda(&resident);
    if (code == cudaSuccess)
        code = (cudaError_t)peer_probe_preload_cuda(&resident_probes);
    if (code == cudaSuccess)
        code = (cudaError_t)peer_can_launch_early(&device->pdl);
    if (resident > resident_probes)
        resident = resident_probes;
    device->max_threads = (uint32_t)(resident * multiprocessors) * PEER_MAX_THREADS;
    for (int i = 0; i < 2 && code == cudaSuccess; i++) {
        cudaEvent_t event = NULL;
        code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        device->trail[i].event = event;
    }
    return cuda_error("setting up the GPU", code);
}

static void cuda_close(struct peer_device *device)
{
    if (device->stream != NULL)
        (void)cudaStreamDestroy(device->stream);
    device->stream = NULL;
    for (int i = 0; i < 2; i++)
        if (device->trail[i].event != NULL)
            (void)cudaEventDestroy(device->trail[i].event);
}

static int cuda_identify(struct peer_device *device, struct peer_identity *id)
{
    struct cudaDeviceProp prop;
    cudaError_t code = cudaGetDeviceProperties(&prop, device->ordinal);
    if (code != cudaSuccess)
        return cuda_error("cudaGetDeviceProperties", code);
    id->max_threads = device->max_threads;
    for (int i = 0; i < 16; i++)
        snprintf(id->gpu_uuid + 2 * i, sizeof id->gpu_uuid - 2 * (size_t)i, "%02x",
                 prop.uuid.bytes[i] & 0xff);
    return cuda_error("cudaDeviceGetPCIBusId",
                      cudaDeviceGetPCIBusId(id->pci, sizeof id->pci, device->ordinal));
}

static int cuda_synchronize(struct peer_device *device, void *stream)
{
    (void)device;
    return cuda_error("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

static int cuda_fill(struct peer_device *device, void *to, uint32_t word, size_t nwords)
{
    int status =
        cuda_error("filling device memory", (cudaError_t)peer_fill_cuda(to, word, nwords, device->stream));
    return status == PEER_SUCCESS ? cuda_synchronize(device, device->stream) : status;
}

static int cuda_copy_async(struct peer_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    (void)device;
    return cuda_error("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

static int cuda_copy(struct peer_device *device, void *to, const void *from, size_t bytes)
{
    int status = cuda_copy_async(device, to, from, bytes, device->stream);
    return status == PEER_SUCCESS ? cuda_synchronize(device, device->stream) : status;
}

static int cuda_state_alloc(struct peer_device *device, size_t bytes, void **state)
{
    cudaError_t code = cudaMalloc(state, bytes);
    if (code != cudaSuccess)
        *state = NULL;
    if (code == cudaSuccess)
        code = cudaMemset(*state, 0, bytes);
    if (code == cudaSuccess) /* the library's own stream does not wait for this one */
        code = cudaStreamSynchronize(cudaStreamLegacy);
    (void)device;
    return cuda_error("cudaMalloc", code);
}

static void cuda_state_free(struct peer_device *device, void *state)
{
    (void)device;
    if (state != NULL)
        (void)cudaFree(state);
}

static int cuda_slab_alloc(struct peer_device *device, size_t bytes, struct peer_mapping *slab)
{
    int status = cuda_state_alloc(device, bytes, &slab->base);
    slab->bytes = bytes;
    slab->there = slab->base;
    return status;
}

static void cuda_slab_free(struct peer_device *device, struct peer_mapping *slab)
{
    cuda_state_free(device, slab->base);
    *slab = (struct peer_mapping){0};
}

static int cuda_slab_export(struct peer_device *device, const struct peer_mapping *slab,
                            struct peer_handle *handle)
{
    (void)device;
    memset(handle, 0, sizeof *handle);
    return cuda_error("cudaIpcGetMemHandle", cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, slab->base));
}

static int cuda_slab_import(struct peer_device *device, const struct peer_handle *handle, size_t bytes,
                            struct peer_mapping *mapping)
{
    cudaIpcMemHandle_t ipc;
    cudaError_t code;
    (void)device;
    memcpy(&ipc, handle, sizeof ipc);
    code = cudaIpcOpenMemHandle(&mapping->base, ipc, cudaIpcMemLazyEnablePeerAccess);
    if (code != cudaSuccess)
        mapping->base = NULL;
    mapping->bytes = bytes;
    mapping->there = mapping->base;
    return cuda_error("cudaIpcOpenMemHandle", code);
}

static void cuda_slab_close(struct peer_device *device, struct peer_mapping *mapping)
{
    (void)device;
    if (mapping->base != NULL)
        (void)cudaIpcCloseMemHandle(mapping->base);
    *mapping = (struct peer_mapping){0};
}

static void cuda_slab_settled(struct peer_device *device, struct peer_mapping *slab)
{
    (void)device, (void)slab;
}

static int cuda_host_register(struct peer_device *device, void *base, size_t bytes, void **there)
{
    cudaError_t code = cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    (void)device;
    if (code == cudaSuccess) {
        code = cudaHostGetDevicePointer(there, base, 0);
        if (code != cudaSuccess)
            (void)cudaHostUnregister(base);
    }
    return cuda_error("cudaHostRegister", code);
}

static void cuda_host_unregister(struct peer_device *device, void *base)
{
    (void)device;
    if (cudaHostUnregister(base) != cudaSuccess)
        (void)cudaGetLastError();
}

static int cuda_check_buffer(struct peer_device *device, const char *name, const void *buffer)
{
    struct cudaPointerAttributes attributes;
    cudaError_t code = cudaPointerGetAttributes(&attributes, buffer);
    if (code != cudaSuccess)
        return cuda_error("cudaPointerGetAttributes", code);
    if (attributes.type == cudaMemoryTypeUnregistered)
        return peer_error(
            PEER_ERR_BUFFER,
            "%s (%p) is pageable host memory, which the GPU can't reach: use cudaMalloc, "
            "cudaMallocHost or cudaHostRegister, or make the communicator with PEER_DEVICE=host",
            name, (void *)(uintptr_t)buffer);
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != device->ordinal)
        return peer_error(PEER_ERR_BUFFER, "%s (%p) lies on GPU %d, the communicator is on GPU %d", name,
                          (void *)(uintptr_t)buffer, attributes.device, device->ordinal);
    return PEER_SUCCESS;
}

static int cuda_launch(struct peer_device *device, const struct peer_call *call, void *stream)
{
    return cuda_error("launching a kernel", (cudaError_t)peer_launch_cuda(call, device->pdl, stream));
}

/* The probe's threads add to the result with atomics, so it lies in device memory. */
static int cuda_probe(struct peer_device *device, const struct peer_call *call,
                      const struct peer_probe_step *step, struct peer_probe_result *result)
{
    void *there = NULL;
    int status = cuda_error("cudaMalloc", cudaMalloc(&there, sizeof *result));
    if (status != PEER_SUCCESS)
        return status;
    status = cuda_copy(device, there, result, sizeof *result);
    if (status == PEER_SUCCESS)
        status = cuda_error("launching the probe",
                            (cudaError_t)peer_probe_cuda(call, step, there, device->stream));
    if (status == PEER_SUCCESS)
        status = cuda_copy(device, result, there, sizeof *result);
    cuda_state_free(device, there);
    return status;
}

/* A number for the stream that no other has had: a later one may have its handle. In a capture it can't be
 * asked for, but there the handle will do, since the stream stays. 0: not known. */
static cudaError_t stream_number(cudaStream_t stream, bool capturing, uint64_t *number)
{
    *number = 0;
    if (stream == cudaStreamPerThread)
        return cudaSuccess;
    if (capturing) {
        *number = (uintptr_t)stream;
        return cudaSuccess;
    }
#if CUDART_VERSION >= 12000
    unsigned long long id = 0;
    cudaError_t code = cudaStreamGetId(stream, &id);
    *number = id + 1;
    return code;
#else
    return cudaSuccess;
#endif
}

static cudaError_t place_of(cudaStream_t stream, struct peer_place *place)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaError_t code;
#if CUDART_VERSION >= 13000
    code = cudaStreamGetCaptureInfo(stream, &capture, &id, NULL, NULL, NULL, NULL);
#elif CUDART_VERSION >= 12000
    code = cudaStreamGetCaptureInfo_v2(stream, &capture, &id, NULL, NULL, NULL);
#else
    code = cudaStreamGetCaptureInfo(stream, &capture, &id);
#endif
    place->captured = capture != cudaStreamCaptureStatusNone;
    place->capture = id;
    return code == cudaSuccess ? stream_number(stream, place->captured, &place->stream) : code;
}

/* Calls of one communicator are ordered by an event that follows each. Inside a capture that becomes an edge of the
 * graph; what was captured, and what was not, the program orders where it launches the graph. */
static cudaError_t wait_for_trail(struct peer_device *device, cudaStream_t stream)
{
    struct peer_place *place = &device->place;
    cudaError_t code = place_of(stream, place);
    const struct peer_trail *trail = &device->trail[place->captured];
    if (code != cudaSuccess || !trail->begun || trail->end.capture != place->capture ||
        (trail->end.stream == place->stream && place->stream != 0))
        return code;
    return cudaStreamWaitEvent(stream, trail->event, 0);
}

static cudaError_t extend_trail(struct peer_device *device, cudaStream_t stream)
{
    struct peer_trail *trail = &device->trail[device->place.captured];
    trail->begun = true;
    trail->end = device->place;
    return cudaEventRecord(trail->event, stream);
}

static int cuda_follow(struct peer_device *device, void *stream)
{
    return cuda_error("ordering the call after the one before", wait_for_trail(device, stream));
}

static int cuda_followed(struct peer_device *device, void *stream)
{
    return cuda_error("recording an event behind the call", extend_trail(device, stream));
}

static int cuda_temp_alloc(struct peer_device *device, size_t bytes, void **temp, void *stream)
{
    (void)device;
    return cuda_error("cudaMallocAsync", cudaMallocAsync(temp, bytes, stream));
}

static void cuda_temp_free(struct peer_device *device, void *temp, void *stream)
{
    (void)device;
    if (temp != NULL)
        (void)cudaFreeAsync(temp, stream);
}

static int cuda_is_capturing(struct peer_device *device, void *stream, bool *capturing)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    int status = cuda_error("cudaStreamIsCapturing", cudaStreamIsCapturing(stream, &capture));
    (void)device;
    *capturing = capture != cudaStreamCaptureStatusNone;
    return status;
}

/* The calls may have gone to any stream, and into graphs that were launched where we can't see. */
static int cuda_drain(struct peer_device *device)
{
    (void)device;
    return cuda_error("cudaDeviceSynchronize", cudaDeviceSynchronize());
}

static const struct peer_transport cuda_ipc = {
    .name = "ipc",
    .slab_alloc = cuda_slab_alloc,
    .slab_free = cuda_slab_free,
    .slab_export = cuda_slab_export,
    .slab_import = cuda_slab_import,
    .slab_close = cuda_slab_close,
    .slab_settled = cuda_slab_settled,
};

const struct peer_device_ops peer_device_cuda = {
    .name = "cuda",
    .vector_bytes = peer_vector_cuda,
    .available = cuda_available,
    .select = cuda_select,
    .enter = enter,
    .leave = leave,
    .open = cuda_open,
    .close = cuda_close,
    .identify = cuda_identify,
    .ipc = &cuda_ipc,
    .state_alloc = cuda_state_alloc,
    .state_free = cuda_state_free,
    .fill = cuda_fill,
    .copy = cuda_copy,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .check_buffer = cuda_check_buffer,
    .launch = cuda_launch,
    .copy_async = cuda_copy_async,
    .synchronize = cuda_synchronize,
    .follow = cuda_follow,
    .followed = cuda_followed,
    .temp_alloc = cuda_temp_alloc,
    .temp_free = cuda_temp_free,
    .is_capturing = cuda_is_capturing,
    .probe = cuda_probe,
    .drain = cuda_drain,
};
