/* The doctor's facts that only the driver knows, from the CUDA runtime and from NVML, the library that nvidia-smi is
 * made of. NVML is opened at run time, and its few functions are declared here: not every toolkit has its header,
 * and their form has not changed since they came. */
#include "doctor.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif

/* ---- CUDA -------------------------------------------------------------------------------------------------- */

#ifdef HAVE_CUDA

/* Whether the MPS daemon serves the device. Before CUDA 12.4's headers: whether its control socket is there. */
static int ask_mps(int device, const struct doctor_facts *facts)
{
    #if CUDART_VERSION >= 12040
    int served = 0;
    (void)facts;
    return cudaDeviceGetAttribute(&served, cudaDevAttrMpsEnabled, device) == cudaSuccess ? served
                                                                                         : DOCTOR_UNKNOWN;
    #else
    const struct doctor_variable *folder = &facts->variable[DOCTOR_CUDA_MPS_PIPE_DIRECTORY];
    char path[512];
    (void)device;
    snprintf(path, sizeof path, "%s/control", folder->set ? folder->value : "/tmp/nvidia-mps");
    return access(path, F_OK) == 0;
    #endif
}

static void ask_device(int device, struct doctor_facts *facts)
{
    struct cudaDeviceProp prop;
    char pci[32];
    if (cudaGetDeviceProperties(&prop, device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(pci, sizeof pci, device) != cudaSuccess) {
        snprintf(facts->why_no_gpu, sizeof facts->why_no_gpu, "GPU %d can't be asked: %s", device,
                 cudaGetErrorString(cudaGetLastError()));
        return;
    }
    for (int i = 0; i < 16; i++)
        doctor_append(facts->gpu_uuid, sizeof facts->gpu_uuid, "%02x", prop.uuid.bytes[i] & 0xff);
    snprintf(facts->gpu_name, sizeof facts->gpu_name, "%.63s", prop.name);
    snprintf(facts->gpu_pci, sizeof facts->gpu_pci, "%.15s", pci);
    facts->gpu_bytes = (int64_t)prop.totalGlobalMem;
    facts->mps = ask_mps(device, facts);
}

static void ask_cuda(struct doctor_facts *facts)
{
    int count = 0, device = 0, version = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    facts->runtime_cuda = CUDART_VERSION;
    if (cudaDriverGetVersion(&version) == cudaSuccess)
        facts->driver_cuda = version;
    facts->gpus_visible = code == cudaSuccess ? count : 0;
    if (code == cudaSuccess && count > 0)
        code = cudaGetDevice(&device);
    if (code == cudaSuccess && count > 0)
        ask_device(device, facts);
    else if (version == 0) /* CUDA would say that it is too old */
        snprintf(facts->why_no_gpu, sizeof facts->why_no_gpu, "there is no NVIDIA driver");
    else
        snprintf(facts->why_no_gpu, sizeof facts->why_no_gpu, "%s",
                 code == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(code));
    (void)cudaGetLastError();
}

#else

static void ask_cuda(struct doctor_facts *facts)
{
    snprintf(facts->why_no_gpu, sizeof facts->why_no_gpu, "this build has no CUDA");
}

#endif

/* ---- NVML -------------------------------------------------------------------------------------------------- */

#define NVML_LIBRARY     "libnvidia-ml.so.1"
#define NVML_NVLINKS     18 /* at most */
#define NVML_BUFFER_SIZE 80

struct nvml_bar1 {
    unsigned long long total, free, used;
};

/* X(function, arguments); all return 0 for success. */
#define NVML_FUNCTIONS(X)                                                                                    \
    X(nvmlInit_v2, (void))                                                                                   \
    X(nvmlShutdown, (void))                                                                                  \
    X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                        \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                                                   \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, void **))                                             \
    X(nvmlDeviceGetBAR1MemoryInfo, (void *, struct nvml_bar1 *))                                             \
    X(nvmlDeviceGetCurrPcieLinkGeneration, (void *, unsigned *))                                             \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (void *, unsigned *))                                              \
    X(nvmlDeviceGetCurrPcieLinkWidth, (void *, unsigned *))                                                  \
    X(nvmlDeviceGetMaxPcieLinkWidth, (void *, unsigned *))                                                   \
    X(nvmlDeviceGetPerformanceState, (void *, unsigned *))                                                   \
    X(nvmlDeviceGetPersistenceMode, (void *, unsigned *))                                                    \
    X(nvmlDeviceGetNvLinkState, (void *, unsigned, unsigned *))

struct nvml {
#define MEMBER(name, arguments) int(*name) arguments;
    NVML_FUNCTIONS(MEMBER)
#undef MEMBER
};

static int ask_number(int (*function)(void *, unsigned *), void *device)
{
    unsigned value = 0;
    return function(device, &value) == 0 ? (int)value : DOCTOR_UNKNOWN;
}

static void ask_nvml_device(const struct nvml *nvml, void *device, struct doctor_facts *facts)
{
    struct nvml_bar1 bar1;
    facts->generation = ask_number(nvml->nvmlDeviceGetCurrPcieLinkGeneration, device);
    facts->max_generation = ask_number(nvml->nvmlDeviceGetMaxPcieLinkGeneration, device);
    facts->lanes = ask_number(nvml->nvmlDeviceGetCurrPcieLinkWidth, device);
    facts->max_lanes = ask_number(nvml->nvmlDeviceGetMaxPcieLinkWidth, device);
    facts->performance_state = ask_number(nvml->nvmlDeviceGetPerformanceState, device);
    facts->persistence = ask_number(nvml->nvmlDeviceGetPersistenceMode, device);
    if (nvml->nvmlDeviceGetBAR1MemoryInfo(device, &bar1) == 0)
        facts->bar1_bytes = (int64_t)bar1.total;
    facts->nvlinks = 0;
    for (unsigned link = 0; link < NVML_NVLINKS; link++) {
        unsigned active = 0;
        if (nvml->nvmlDeviceGetNvLinkState(device, link, &active) == 0)
            facts->nvlinks += active != 0;
    }
}

static void ask_nvml(struct doctor_facts *facts)
{
    struct nvml nvml;
    char version[NVML_BUFFER_SIZE] = "";
    unsigned count = 0;
    void *device, *library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
#define LOAD(name, arguments)                                                                                \
    *(void **)&nvml.name = dlsym(library, #name);                                                            \
    if (nvml.name == NULL)                                                                                   \
        return;
    NVML_FUNCTIONS(LOAD)
#undef LOAD
    facts->nvml_error = nvml.nvmlInit_v2();
    if (facts->nvml_error != 0)
        return;
    if (nvml.nvmlSystemGetDriverVersion(version, sizeof version) == 0)
        snprintf(facts->driver_version, sizeof facts->driver_version, "%.31s", version);
    if (nvml.nvmlDeviceGetCount_v2(&count) == 0 && (int)count > facts->gpus)
        facts->gpus = (int)count; /* where a container hides the PCI bus */
    if (facts->gpu_pci[0] != '\0' && nvml.nvmlDeviceGetHandleByPciBusId_v2(facts->gpu_pci, &device) == 0)
        ask_nvml_device(&nvml, device, facts);
    nvml.nvmlShutdown();
}

void doctor_gather_gpu(struct doctor_facts *facts)
{
    ask_cuda(facts);
    ask_nvml(facts);
}
