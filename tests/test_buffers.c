/* test_buffers: the kinds of memory that the cuda device takes: from cudaMalloc, cudaMallocAsync,
 * cudaMallocManaged, cudaMallocHost, cudaHostRegister and the driver's virtual memory management, as send and
 * as receive buffer; and pageable memory, which it refuses with the remedy, after which the communicator works
 * as before. */
#include "config.h"
#include "collective.h"
#include "trial.h"
#include "test.h"

#ifdef HAVE_CUDA
    #include <cuda.h>
    #include <cuda_runtime_api.h>

    #define INPUT_BYTES (256 << 10)
    #define CAPACITY    (220 << 10)
    #define MESSAGE     (200 << 10)

static int rank, size;
static uint64_t random_state = 4; /* the same on all ranks */

static void need(cudaError_t error)
{
    TEST_TEXT(cudaGetErrorString(error), cudaGetErrorString(cudaSuccess));
}

/* ---- Memory --------------------------------------------------------------------------------------------- */

/* One allocation. */
struct memory {
    void *base;
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* of virtual memory */
};

static void plain_alloc(struct memory *m)
{
    need(cudaMalloc(&m->base, m->bytes));
}

static void plain_free(struct memory *m)
{
    need(cudaFree(m->base));
}

static void pool_alloc(struct memory *m)
{
    need(cudaMallocAsync(&m->base, m->bytes, NULL));
    need(cudaStreamSynchronize(NULL));
}

static void pool_free(struct memory *m)
{
    need(cudaFreeAsync(m->base, NULL));
    need(cudaStreamSynchronize(NULL));
}

static void managed_alloc(struct memory *m)
{
    need(cudaMallocManaged(&m->base, m->bytes, cudaMemAttachGlobal));
}

static void pinned_alloc(struct memory *m)
{
    need(cudaMallocHost(&m->base, m->bytes));
}

static void pinned_free(struct memory *m)
{
    need(cudaFreeHost(m->base));
}

static void registered_alloc(struct memory *m)
{
    TEST_INT(posix_memalign(&m->base, 4096, m->bytes), 0);
    need(cudaHostRegister(m->base, m->bytes, cudaHostRegisterDefault));
}

static void registered_free(struct memory *m)
{
    need(cudaHostUnregister(m->base));
    free(m->base);
}

/* The driver's functions, by the runtime: nothing links the driver. */
static struct {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver;

static void find(const char *name, void *function)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result;
    #if CUDART_VERSION >= 12050
    need(cudaGetDriverEntryPointByVersion(name, &found, 11000, cudaEnableDefault, &result));
    #elif CUDART_VERSION >= 12000
    need(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
    #else
    result = cudaDriverEntryPointSuccess;
    need(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault));
    #endif
    TEST_INT(result, cudaDriverEntryPointSuccess);
    TEST_TRUE(found != NULL);
    memcpy(function, &found, sizeof found);
}

static void find_driver(void)
{
    find("cuMemGetAllocationGranularity", &driver.granularity);
    find("cuMemCreate", &driver.create);
    find("cuMemRelease", &driver.release);
    find("cuMemAddressReserve", &driver.reserve);
    find("cuMemAddressFree", &driver.unreserve);
    find("cuMemMap", &driver.map);
    find("cuMemUnmap", &driver.unmap);
    find("cuMemSetAccess", &driver.set_access);
}

static void virtual_alloc(struct memory *m)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    size_t unit;
    int device;
    need(cudaGetDevice(&device));
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = access.location.id = device;
    TEST_INT(driver.granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
    m->bytes = (m->bytes + unit - 1) / unit * unit;
    TEST_INT(driver.create(&m->handle, m->bytes, &prop, 0), CUDA_SUCCESS);
    TEST_INT(driver.reserve(&at, m->bytes, 0, 0, 0), CUDA_SUCCESS);
    TEST_INT(driver.map(at, m->bytes, 0, m->handle, 0), CUDA_SUCCESS);
    TEST_INT(driver.set_access(at, m->bytes, &access, 1), CUDA_SUCCESS);
    m->base = (void *)(uintptr_t)at;
}

static void virtual_free(struct memory *m)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->base;
    TEST_INT(driver.unmap(at, m->bytes), CUDA_SUCCESS);
    TEST_INT(driver.unreserve(at, m->bytes), CUDA_SUCCESS);
    TEST_INT(driver.release(m->handle), CUDA_SUCCESS);
}

static const struct kind {
    const char *name;
    void (*alloc)(struct memory *m);
    void (*free)(struct memory *m);
} kinds[] = {
    {"cudaMalloc", plain_alloc, plain_free},
    {"cudaMallocAsync", pool_alloc, pool_free},
    {"cudaMallocManaged", managed_alloc, plain_free},
    {"cudaMallocHost", pinned_alloc, pinned_free},
    {"cudaHostRegister", registered_alloc, registered_free},
    {"cuMemCreate", virtual_alloc, virtual_free},
};

    #define KINDS (sizeof kinds / sizeof *kinds)

/* ---- Tests ---------------------------------------------------------------------------------------------- */

static struct coll_call draw_call(enum coll_kind kind, size_t bytes)
{
    struct coll_call call = {.kind = kind, .type = (PEER_Datatype)coll_draw(&random_state, PEER_N_DATATYPES)};
    call.op = coll_legal_op(call.type, (PEER_Op)coll_draw(&random_state, PEER_N_OPS));
    coll_draw_shape(&call, coll_draw(&random_state, UINT64_MAX), rank, size);
    if (coll_has_blocks(kind))
        bytes /= (size_t)size;
    coll_draw_counts(&call, bytes / reference_element(call.type), size);
    return call;
}

static void run_all(struct coll_trial *trial, struct inputs *inputs, PEER_Comm comm)
{
    for (int kind = 0; kind < COLL_KINDS; kind++)
        for (int large = 0; large < 2; large++) {
            struct coll_call call = draw_call((enum coll_kind)kind, large ? MESSAGE : 800);
            coll_run(trial, inputs, rank, &call, comm);
        }
}

/* Each kind for both buffers, and with the next kind for the other one. Ranks may differ, too. */
static void test_kinds(struct coll_trial *trial, struct inputs *inputs, PEER_Comm comm)
{
    unsigned char *send = trial->send, *recv = trial->recv;
    for (size_t i = 0; i < KINDS; i++)
        for (size_t shift = 0; shift < 3; shift++) {
            const struct kind *sends = &kinds[(i + (shift == 2 ? (size_t)rank : 0)) % KINDS];
            const struct kind *recvs = &kinds[(i + shift) % KINDS];
            struct memory for_send = {.bytes = coll_room(CAPACITY)}, for_recv = for_send;
            char note[80];
            snprintf(note, sizeof note, "send buffer of %s, receive buffer of %s", sends->name, recvs->name);
            trial->note = note;
            sends->alloc(&for_send);
            recvs->alloc(&for_recv);
            trial->send = for_send.base;
            trial->recv = for_recv.base;
            run_all(trial, inputs, comm);
            sends->free(&for_send);
            recvs->free(&for_recv);
        }
    trial->send = send;
    trial->recv = recv;
    trial->note = NULL;
}

static void refuse(struct coll_trial *trial, PEER_Comm comm, enum coll_kind kind, const char *buffer)
{
    trial->now = draw_call(kind, 800);
    trial->now.place = COLL_OUT_OF_PLACE;
    trial->now.root = rank; /* so that every rank has both buffers; nobody gets as far as to wait */
    trial->now.count = 10;
    coll_spread_counts(&trial->now, COLL_SPREAD_EVEN, size);
    trial->rank = rank;
    trial->size = size;
    coll_lay_out(&trial->layout, &trial->now, rank, size);
    TEST_STATUS(coll_start(trial, comm, trial->bed->stream), PEER_ERR_BUFFER);
    TEST_CONTAINS(PEER_Last_error(), buffer);
    TEST_CONTAINS(PEER_Last_error(), "pageable");
    TEST_CONTAINS(PEER_Last_error(), "cudaMallocHost");
}

static void test_pageable(struct coll_trial *trial, struct inputs *inputs, PEER_Comm comm)
{
    unsigned char *send = trial->send, *recv = trial->recv, *pageable;
    TEST_INT(posix_memalign((void **)&pageable, 4096, coll_room(CAPACITY)), 0);
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        if (kind != COLL_BCAST) {
            trial->send = pageable;
            refuse(trial, comm, (enum coll_kind)kind, "sendbuf");
            trial->send = send;
        }
        trial->recv = pageable;
        refuse(trial, comm, (enum coll_kind)kind, kind == COLL_BCAST ? "buffer" : "recvbuf");
        trial->recv = recv;
    }
    run_all(trial, inputs, comm);
    free(pageable);
}

static void run_tests(struct bed *bed, PEER_Comm comm, int my_rank, int n)
{
    struct coll_trial trial;
    struct inputs inputs;
    rank = my_rank;
    size = n;
    find_driver();
    inputs_open(&inputs, 12, size, INPUT_BYTES);
    coll_open(&trial, bed, CAPACITY);
    test_kinds(&trial, &inputs, comm);
    test_pageable(&trial, &inputs, comm);
    coll_close(&trial);
    inputs_close(&inputs);
}

    #define RUN run_tests
#else
    #define RUN NULL
#endif

int main(int argc, char **argv)
{
    return coll_main_cuda(argc, argv, "transport=ipc staging_bytes=64K",
                          "the host device takes all memory alike", RUN);
}
