/* The doctor, peer_info --check: says what is wrong with a machine's peer path, what it costs, and what to do.
 *
 *   doctor.c          makes a communicator, gathers every rank's facts to rank 0, and prints
 *   doctor_facts.c    facts of a process and its machine, from files and the environment
 *   doctor_pci.c      facts of a GPU and the bridges above it, from sysfs
 *   doctor_gpu.c      facts that only the driver knows, from CUDA and NVML
 *   doctor_judge.c    the list of checks, and those of the communicator and its ranks
 *   doctor_machine.c  the checks of the machine
 *   doctor_nccl.c     the checks of NCCL and MPI
 *   doctor_rates.c    the checks of links and of measured rates
 *   doctor_report.c   what the checks say, as text
 *   doctor_json.c     the same as a document
 *
 * Facts are gathered without judging, and judged without looking at the machine, so that tests can make both up. */
#ifndef PEER_TOOLS_DOCTOR_H
#define PEER_TOOLS_DOCTOR_H

#include "internal.h"

/* ---- Facts ------------------------------------------------------------------------------------------------ */

#define DOCTOR_UNKNOWN (-1) /* of a number that could not be read; a text then is "" */
#define DOCTOR_NO_ACS  (-2) /* the bridge has no access control */

#define DOCTOR_HOPS       12
#define DOCTOR_CPU_WORDS  16
#define DOCTOR_PCI_BYTES  16
#define DOCTOR_NAME_BYTES 64

/* The environment that matters; NCCL's also from its files. */
#define DOCTOR_VARIABLES(X)                                                                                  \
    X(CUDA_VISIBLE_DEVICES)                                                                                  \
    X(CUDA_MPS_PIPE_DIRECTORY)                                                                               \
    X(NCCL_P2P_DISABLE)                                                                                      \
    X(NCCL_P2P_LEVEL)                                                                                        \
    X(NCCL_SHM_DISABLE)                                                                                      \
    X(NCCL_IB_DISABLE)                                                                                       \
    X(NCCL_MULTI_RANK_GPU_ENABLE)                                                                            \
    X(OMPI_MCA_btl)                                                                                          \
    X(OMPI_MCA_pml)
#define DOCTOR_ENUM(name) DOCTOR_##name,
enum { DOCTOR_VARIABLES(DOCTOR_ENUM) DOCTOR_N_VARIABLES };
#undef DOCTOR_ENUM

struct doctor_variable {
    int32_t set;
    char value[380];
};

struct doctor_cpus {
    uint64_t word[DOCTOR_CPU_WORDS];
};

/* A PCI device: a GPU or a bridge above it, and the link that it is an end of. */
struct doctor_hop {
    char pci[DOCTOR_PCI_BYTES];
    int32_t rate, max_rate;   /* of a lane, MT/s: 16000 is generation 4 */
    int32_t width, max_width; /* lanes */
    int32_t acs; /* ACS control register, DOCTOR_NO_ACS, or DOCTOR_UNKNOWN: it takes root to read it */
};

/* What one rank knows of itself and sees of its machine. Of fixed size: it goes through MPI as bytes. */
struct doctor_facts {
    /* the process */
    char boot_id[40];
    char ipc_namespace[32], pid_namespace[32];
    int64_t shm_device; /* the file system of /dev/shm */
    int64_t shm_free;   /* its bytes */
    int64_t memlock;    /* bytes, INT64_MAX: unlimited */
    struct doctor_cpus cpus;
    int32_t ncpus;     /* in cpus */
    int32_t cpu_quota; /* percent of a CPU that the container may use; DOCTOR_UNKNOWN: no limit is known */
    struct doctor_variable variable[DOCTOR_N_VARIABLES];
    /* the machine */
    int32_t cpus_online, numa_nodes;
    int32_t virtual_machine, amd;
    int32_t gpus; /* NVIDIA's on the PCI bus */
    int32_t iommus;
    int32_t iommu_passthrough; /* by the kernel's command line */
    int32_t ptrace_scope;
    char module_version[32]; /* of the driver's kernel module */
    /* this rank's GPU; "" and 0 without one */
    int32_t gpus_visible;
    char gpu_uuid[48], gpu_name[DOCTOR_NAME_BYTES], gpu_pci[DOCTOR_PCI_BYTES];
    char why_no_gpu[128];
    int64_t gpu_bytes, bar1_bytes;
    int32_t driver_cuda, runtime_cuda; /* 13000 is 13.0 */
    int32_t mps;                       /* the daemon serves this GPU */
    int32_t gpu_numa;
    struct doctor_cpus gpu_cpus; /* of that NUMA node */
    char iommu_type[16];         /* of its group; "none": it is in no group */
    int32_t nhops;
    struct doctor_hop hop[DOCTOR_HOPS]; /* the GPU, then the bridges up to the host */
    /* what NVML says */
    char driver_version[32];
    int32_t nvml_error; /* 0: it works; DOCTOR_UNKNOWN: there is no NVML */
    int32_t generation, max_generation, lanes, max_lanes;
    int32_t performance_state; /* 0: at work */
    int32_t persistence, nvlinks;
};

/* Everything unknown. */
void doctor_facts_init(struct doctor_facts *facts);
/* Files are read below `root`, "" on a real machine. */
void doctor_gather_process(const char *root, struct doctor_facts *facts);
/* The GPU that is current; sets gpu_pci, which doctor_gather_pci needs. */
void doctor_gather_gpu(struct doctor_facts *facts);
void doctor_gather_pci(const char *root, struct doctor_facts *facts);

/* The first line of the file root/path..., without its end; false and text "" if it can't be read. */
bool doctor_read_line(char *text, size_t bytes, const char *root, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "0-3,8" */
void doctor_cpus_parse(const char *list, struct doctor_cpus *cpus);
int doctor_cpus_count(const struct doctor_cpus *cpus);

/* ---- What is judged --------------------------------------------------------------------------------------- */

/* What came of PEER_Comm_create; strings as PEER_Comm_get_info has them. */
struct doctor_comm {
    int status;
    int nodes;
    char device[16], transport[16], nccl[256];
    char log[4096];        /* what was logged on the way, or the error's text */
    char no_settings[512]; /* the same of PEER_ variables that are none */
};

/* Measured between ranks; 0: not known. Row: the rank that stores, loads or sends the flag; column: whose memory. */
struct doctor_rates {
    float store_gbs[PEER_MAX_PEERS][PEER_MAX_PEERS]; /* one pair at a time, GB/s of data that moved */
    float load_gbs[PEER_MAX_PEERS][PEER_MAX_PEERS];
    float flag_us[PEER_MAX_PEERS][PEER_MAX_PEERS]; /* one way */
    double all_store_gbs,
        all_load_gbs; /* of each rank, while all store to, or load from, all others at once */
};

struct doctor_input {
    int size;
    const struct doctor_facts *ranks;
    struct peer_config config;
    struct doctor_comm comm;
    uint64_t shared_bytes; /* of /dev/shm, if the slabs lie there */
    struct doctor_rates rates;
};

/* Each rank has a GPU, and may use it. */
bool doctor_on_cuda(const struct doctor_input *in);
/* The same GPU, or both have none. */
bool doctor_same_gpu(const struct doctor_input *in, int rank, int other);
/* No rank before this one has its GPU: the rank that speaks for a GPU. */
bool doctor_first_of_gpu(const struct doctor_input *in, int rank);
/* GPUs that the ranks have. */
int doctor_gpus(const struct doctor_input *in);
/* Why a check of what joins several GPUs makes no sense here, or NULL if it does. */
const char *doctor_why_no_pairs(const struct doctor_input *in);
/* The value of a variable on a rank, or NULL. */
const char *doctor_value(const struct doctor_input *in, int rank, int variable);
/* What a link can carry, GB/s; 0 where it isn't known. */
double doctor_gbs(int rate, int width);
/* What the links from this rank's GPU to the host can carry, the least of them. */
double doctor_way_gbs(const struct doctor_facts *facts);

/* ---- What is said ----------------------------------------------------------------------------------------- */

enum doctor_kind {
    DOCTOR_FINDING,  /* something is wrong */
    DOCTOR_NOTE,     /* worth knowing; does not count */
    DOCTOR_FINE,     /* checked, nothing wrong */
    DOCTOR_UNCHECKED /* could not be checked */
};

struct doctor_item {
    enum doctor_kind kind;
    const char *check, *title;
    double slower;   /* findings: about how many times slower calls are; the order in which they are told */
    char seen[1024]; /* or why it could not be checked */
    char cost[384];
    char remedy[640];
};

struct doctor_report {
    const char *check, *title; /* the one that speaks now */
    int n;
    struct doctor_item items[64];
};

void doctor_finding(struct doctor_report *report, double slower, const char *seen, const char *cost,
                    const char *remedy);
void doctor_note(struct doctor_report *report, const char *seen, const char *remedy);
void doctor_fine(struct doctor_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
void doctor_unchecked(struct doctor_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int doctor_count(const struct doctor_report *report, enum doctor_kind kind);
/* One line that says it all. */
void doctor_verdict(const struct doctor_report *report, char *text, size_t bytes);

/* Appends to a text; what doesn't fit is cut off. */
void doctor_append(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "rank 0" or "ranks 0-2, 5": those for which `of` holds, given `other`. Returns how many. */
int doctor_append_ranks(char *text, size_t bytes, const struct doctor_input *in,
                        bool (*of)(const struct doctor_input *in, int rank, int other), int other);

/* All checks; the findings come first, the costliest first of all. */
void doctor_judge(const struct doctor_input *in, struct doctor_report *report);
void doctor_print(FILE *to, const struct doctor_input *in, const struct doctor_report *report);
/* PEER_SUCCESS, or PEER_ERR_UNSUPPORTED without jansson, PEER_ERR_SYSTEM. */
int doctor_print_json(FILE *to, const struct doctor_input *in, const struct doctor_report *report);

/* The checks, each in one of the files above. Each says something about itself, at most four times. */
void doctor_check_driver(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_gpu(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_mps(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_path(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_rates(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_namespaces(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_acs(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_iommu(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_bar1(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_link(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_numa(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_cpus(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_shm(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_memlock(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_nccl(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_nccl_settings(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_mpi_settings(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_settings(const struct doctor_input *in, struct doctor_report *report);
void doctor_check_persistence(const struct doctor_input *in, struct doctor_report *report);

/* ---- The program ------------------------------------------------------------------------------------------ */

/* Exit statuses of peer_info --check. */
enum { DOCTOR_EXIT_FINE, DOCTOR_EXIT_FINDINGS, DOCTOR_EXIT_UNABLE };

/* Initialises MPI, checks, prints from rank 0, finalises. The same exit status on all ranks. */
int doctor_run(int *argc, char ***argv, bool json);

#endif
