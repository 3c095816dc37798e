/* Machines with one thing wrong, and what the doctor is to find: that thing and no other. */
#include "machine.h"
#include "test.h"

/* What the two ranks know, and what is judged; reset before each case. */
static struct doctor_facts ranks[2];
static struct doctor_input in;
static struct doctor_report report;

static void lose_gpus(void)
{
    for (int rank = 0; rank < in.size; rank++) {
        ranks[rank].gpu_uuid[0] = '\0';
        ranks[rank].gpus_visible = 0;
        strcpy(ranks[rank].why_no_gpu, "there is no NVIDIA driver");
    }
    strcpy(in.comm.device, "host");
}

static void no_driver(void)
{
    lose_gpus();
    ranks[0].driver_cuda = 0;
    ranks[0].module_version[0] = '\0';
}

static void no_libraries(void)
{
    lose_gpus();
    ranks[0].driver_cuda = 0;
}

static void no_cuda_built(void)
{
    lose_gpus();
    ranks[0].runtime_cuda = ranks[0].driver_cuda = 0;
}

static void other_module(void)
{
    lose_gpus();
    ranks[0].nvml_error = 18;
}

static void old_driver(void)
{
    lose_gpus();
    ranks[0].driver_cuda = 12040;
}

static void hidden_gpus(void)
{
    lose_gpus();
    strcpy(ranks[0].why_no_gpu, "no GPU is visible");
}

static void one_without(void)
{
    ranks[1].gpu_uuid[0] = '\0';
    strcpy(ranks[1].why_no_gpu, "no GPU is visible");
    strcpy(in.comm.device, "host");
}

static void set(struct doctor_facts *facts, int variable, const char *value)
{
    facts->variable[variable].set = 1;
    strcpy(facts->variable[variable].value, value);
}

static void share(void)
{
    strcpy(ranks[1].gpu_uuid, "aa");
    strcpy(ranks[1].gpu_pci, "0000:03:00.0");
    ranks[0].mps = ranks[1].mps = 1;
    memset(&in.rates, 0, sizeof in.rates);
}

static void share_hidden(void)
{
    share();
    set(&ranks[0], DOCTOR_CUDA_VISIBLE_DEVICES, "0");
    set(&ranks[1], DOCTOR_CUDA_VISIBLE_DEVICES, "0");
}

static void share_bound(void)
{
    share_hidden();
    set(&ranks[1], DOCTOR_CUDA_VISIBLE_DEVICES, "0,1");
}

static void take_turns(void)
{
    share();
    for (int rank = 0; rank < 2; rank++) {
        ranks[rank].mps = 0;
        ranks[rank].gpus = ranks[rank].gpus_visible = 1;
    }
}

static void share_all(void)
{
    take_turns();
    ranks[0].mps = ranks[1].mps = 1;
}

static void no_ipc(void)
{
    strcpy(in.comm.transport, "shm");
    strcpy(in.comm.log, "transport ipc can't serve: rank 0: cudaIpcOpenMemHandle failed: invalid argument");
}

static void probe_failed(void)
{
    strcpy(in.comm.transport, "nccl");
    strcpy(in.comm.log, "no peer path: the probe failed: rank 1 got wrong data from rank 0");
}

static void two_nodes(void)
{
    strcpy(in.comm.transport, "nccl");
    in.comm.nodes = 2;
    strcpy(ranks[1].boot_id, "another");
}

static void named_transport(void)
{
    strcpy(in.comm.transport, "mpi");
    in.config.transport = PEER_TRANSPORT_MPI;
}

static void no_communicator(void)
{
    in.comm.status = PEER_ERR_CUDA;
    strcpy(in.comm.log, "rank 1: setting up the GPU failed");
    in.comm.nccl[0] = '\0';
}

static void pid_apart(void)
{
    strcpy(ranks[1].pid_namespace, "pid:[1]");
    strcpy(in.comm.transport, "nccl");
}

static void ipc_apart(void)
{
    strcpy(ranks[1].ipc_namespace, "ipc:[1]");
}

static void shm_apart(void)
{
    ranks[1].shm_device++;
    strcpy(in.comm.transport, "shm");
}

static void idle_state(void)
{
    ranks[0].performance_state = ranks[1].performance_state = 8;
}

/* Of a virtual machine: the GPU lies at the host bridge, and only NVML knows its link. */
static void link_by_nvml(void)
{
    for (int rank = 0; rank < 2; rank++) {
        struct doctor_facts *facts = &ranks[rank];
        facts->nhops = 1;
        facts->generation = facts->max_generation = 5;
        facts->lanes = rank == 0 ? 16 : 4;
        facts->max_lanes = 16;
    }
}

static void virtual_links(void)
{
    link_by_nvml();
    ranks[0].nhops = ranks[1].nhops = 4;
    ranks[0].virtual_machine = ranks[1].virtual_machine = 1;
    ranks[1].lanes = 16;
}

static void little_shm(void)
{
    in.config.device = PEER_DEVICE_HOST;
    strcpy(in.comm.device, "host");
    ranks[0].shm_free = 2 << 20;
}

static void no_pinning(void)
{
    strcpy(in.comm.transport, "nccl");
    strcpy(in.comm.log, "no peer path: rank 0: cudaHostRegister failed: out of memory");
}

static void no_nccl(void)
{
    strcpy(in.comm.nccl, "none: libnccl.so.2: cannot open shared object file (PEER_NCCL names the library)");
}

static void no_nccl_header(void)
{
    strcpy(in.comm.nccl, "none: the library was built without NCCL's header");
}

static void old_nccl(void)
{
    strcpy(in.comm.nccl, "none: the NCCL that is there knows no bf16: it is older than 2.10");
}

static void shared_nccl(void)
{
    share_all();
    strcpy(in.comm.nccl, "none: rank 0: ranks share a GPU, which NCCL 22803 refuses");
}

static void two_nodes_without_ib(void)
{
    two_nodes();
    set(&ranks[1], DOCTOR_NCCL_IB_DISABLE, "1");
}

static void no_btl(void)
{
    set(&ranks[0], DOCTOR_OMPI_MCA_btl, "tcp,self");
}

static void no_vader(void)
{
    set(&ranks[1], DOCTOR_OMPI_MCA_btl, "^openib,vader");
}

static void other_pml(void)
{
    no_btl();
    set(&ranks[0], DOCTOR_OMPI_MCA_pml, "ucx");
}

static void misspelt(void)
{
    strcpy(in.comm.no_settings,
           "environment variable PEER_TRANSPRT is no setting; did you mean PEER_TRANSPORT?");
}

static void no_persistence(void)
{
    ranks[0].persistence = 0;
}

static void one_node(void)
{
    ranks[1].gpu_numa = 0;
}

static void nvlinks(void)
{
    ranks[0].nvlinks = ranks[1].nvlinks = 18;
    memset(&in.rates, 0, sizeof in.rates);
}

#define HOST_PAIR "0000:81:00.0" /* at another host bridge than the first rank's */

/* What is wrong, in files, or by what is done to the facts; and what is to come of it. */
static const struct {
    const char *findings, *notes, *unchecked; /* the checks that say so; NULL: not looked at */
    const char *seen, *remedy;                /* parts of what the first of them says */
    void (*spoil)(void);
    const char *second;  /* rank 1's GPU, if not the one beside rank 0's */
    const char *file[4]; /* path and contents, twice at most */
} cases[] = {
    {"driver", "", NULL, "3 NVIDIA GPUs", "modprobe nvidia_uvm", .spoil = no_driver},
    {"driver", "", NULL, "there is no NVIDIA driver", "docker run --gpus all", .spoil = no_libraries},
    {"driver", "", NULL, "without CUDA", "--with-cuda", .spoil = no_cuda_built},
    {"driver", "", NULL, "kernel module's version (" MACHINE_MODULE ")", "reboot", .spoil = other_module},
    {"driver", "", NULL, "for CUDA 12.4, peercoll was built with 13.0", "newer driver", .spoil = old_driver},
    {"driver", "", NULL, "no GPU is visible", "unset CUDA_VISIBLE_DEVICES", .spoil = hidden_gpus},
    {"gpu-per-rank", "", NULL, "rank 1 can't use a GPU", "same environment", .spoil = one_without},
    {"gpu-per-rank", "", NULL, "ranks 0, 1 share GPU 0000:03:00.0, while 2 GPUs", "PEER_Select_device",
     .spoil = share},
    {"gpu-per-rank", "", NULL, "CUDA_VISIBLE_DEVICES=0", "unset CUDA_VISIBLE_DEVICES", .spoil = share_hidden},
    {"gpu-per-rank", "", NULL, "not the same on all", "--gpus-per-node=3 --gpu-bind=none",
     .spoil = share_bound},
    {"mps", "", NULL, "ranks 0, 1 share GPU 0000:03:00.0", "nvidia-cuda-mps-control -d", .spoil = take_turns},
    {"", "", "peer-rates acs iommu bar1 nccl-settings", "", "", .spoil = share_all},
    {"peer-path", "", "", "calls go through shm: transport ipc can't", "nvidia-smi topo -p2p",
     .spoil = no_ipc},
    {"peer-path", "", "", "wrong data", "acs and iommu", .spoil = probe_failed},
    {"peer-path", "", "", "calls go through nccl", "MPI_Comm_split_type", .spoil = two_nodes},
    {"peer-path", "", "", "as PEER_TRANSPORT says", "unset PEER_TRANSPORT", .spoil = named_transport},
    {"peer-path", "", "nccl nccl-settings", "no communicator", "PEER_LOG=debug", .spoil = no_communicator},
    {"namespaces peer-path", "", "", "PID namespaces differ", "--pid=host", .spoil = pid_apart},
    /* The path works all the same. */
    {"", "namespaces", "", "", "", .spoil = ipc_apart},
    {"namespaces peer-path", "", "", "don't share /dev/shm", "--ipc=host", .spoil = shm_apart},
    {"", "namespaces", "", "", "", .file = {"/proc/sys/kernel/yama/ptrace_scope", "2\n"}},
    {"iommu", "", "", "GPUs of rank 1", "iommu=pt", .file = {MACHINE_GPU_B "/iommu_group/type", "DMA-FQ\n"}},
    {"", "", "iommu", "", "", .file = {MACHINE_GPU_B "/iommu_group/type", "\n"}},
    {"", "", "", "", "",
     .file = {MACHINE_GPU_B "/iommu_group/type", "\n", "/proc/cmdline", "quiet iommu=pt ro\n"}},
    {"bar1", "", "", "rank 0: 256 MiB", "Re-Size BAR",
     .file = {MACHINE_GPU_A "/resource", "0x0 0x0 0x0\n0x0000000040000000 0x000000004fffffff 0x0\n"}},
    {"pcie-link", "", "", "0000:03:00.0: generation 5 x8 (31.5 GB/s), both ends can do generation 5 x16",
     "riser", .file = {MACHINE_GPU_A "/current_link_width", "8\n"}},
    {"pcie-link", "", "", "0000:04:00.0: generation 3 x16", "BIOS",
     .file = {MACHINE_GPU_B "/current_link_speed", "8.0 GT/s PCIe\n"}},
    {"pcie-link", "", "", "0000:01:00.0: generation 4 x16", "BIOS",
     .file = {MACHINE_SWITCH "/current_link_speed", "16.0 GT/s PCIe\n"}},
    {"", "pcie-link", "", "", "", .spoil = idle_state,
     .file = {MACHINE_GPU_A "/current_link_speed", "2.5 GT/s PCIe\n"}},
    {"pcie-link", "", "", "0000:01:00.0: generation 4 x16", "BIOS", .spoil = idle_state,
     .file = {MACHINE_SWITCH "/current_link_speed", "16.0 GT/s PCIe\n"}},
    {"pcie-link", "", "acs nccl-settings", "0000:04:00.0: generation 5 x4", "lspci", .spoil = link_by_nvml},
    /* A virtual machine makes up what is above the GPU. */
    {"", "", "", "", "", .spoil = virtual_links, .file = {MACHINE_GPU_A "/current_link_width", "8\n"}},
    /* The slot can do no more: nothing is wrong. */
    {"", "", "", "", "",
     .file = {MACHINE_PORT_A "/max_link_width", "8\n", MACHINE_GPU_A "/current_link_width", "8\n"}},
    {"numa", "", "", "ranks 0, 1 may run off", "--cpunodebind=0",
     .file = {"/proc/self/status", "Cpus_allowed_list:\t0-7\n"}},
    {"numa", "", "", "ranks 0, 1 must", "--cpunodebind=0",
     .file = {"/proc/self/status", "Cpus_allowed_list:\t4-7\n"}},
    {"", "", "numa", "", "", .file = {MACHINE_GPU_A "/numa_node", "-1\n"}},
    {"", "", "", "", "",
     .file = {MACHINE_GPU_A "/numa_node", "-1\n", "/sys/devices/system/node/online", "0\n"}},
    {"cpus", "", "", "2 ranks share 1 CPU;", "the machine has 8",
     .file = {"/proc/self/status", "Cpus_allowed_list:\t2\n"}},
    {"cpus", "", "", "time of 1.5 CPUs", "more CPUs", .file = {"/sys/fs/cgroup/cpu.max", "150000 100000\n"}},
    {"cpus", "", "", "2 ranks share 1 CPU", "mpirun -np 1",
     .file = {"/proc/self/status", "Cpus_allowed_list:\t0\n", "/sys/devices/system/cpu/online", "0\n"}},
    {"shm", "", NULL, "2.0 MiB free", "--shm-size", .spoil = little_shm},
    {"memlock peer-path", "", "", "8192 KiB", "ulimit -l unlimited", .spoil = no_pinning},
    {"peer-path", "", "memlock", "cudaHostRegister failed", "PEER_LOG=debug", .spoil = no_pinning,
     .file = {"/proc/self/limits", "Max locked memory unlimited unlimited bytes\n"}},
    {"nccl", "", "nccl-settings", "libnccl.so.2", "PEER_NCCL", .spoil = no_nccl},
    {"nccl", "", "nccl-settings", "header", "--with-nccl", .spoil = no_nccl_header},
    {"nccl", "", "nccl-settings", "no bf16", "libnccl2", .spoil = old_nccl},
    {"", "nccl", NULL, "", "", .spoil = shared_nccl},
    {"nccl-settings", "", "", "NCCL_P2P_DISABLE=1", "unset NCCL_P2P_DISABLE",
     .file = {"/etc/nccl.conf", "# ours\nNCCL_DEBUG=WARN\nNCCL_P2P_DISABLE=1\n"}},
    {"nccl-settings", "", "", "NCCL_SHM_DISABLE=1", "unset NCCL_SHM_DISABLE",
     .file = {"/root/.nccl.conf", "NCCL_SHM_DISABLE=1\n", "/etc/nccl.conf", "NCCL_SHM_DISABLE=0\n"}},
    {"peer-path nccl-settings", "", "", "calls go through nccl", "MPI_Comm", .spoil = two_nodes_without_ib},
    {"nccl-settings", "", "", "NCCL_P2P_LEVEL is unset", "NCCL_P2P_LEVEL=SYS", .second = HOST_PAIR,
     .file = {"/proc/self/status", "Cpus_allowed_list:\t0-7\n", "/sys/devices/system/node/online", "0\n"}},
    {"nccl-settings", "", "", "NCCL_P2P_LEVEL is PIX", "NCCL_P2P_LEVEL=SYS", .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n", "/etc/nccl.conf", "NCCL_P2P_LEVEL=PIX\n"}},
    {"", "", "", "", "", .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n", "/etc/nccl.conf", "NCCL_P2P_LEVEL=SYS\n"}},
    {"", "", "", "", "", .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n", "/proc/cpuinfo",
              "vendor_id\t: AuthenticAMD\nflags\t: fpu\n"}},
    {"", "", "peer-rates", "", "", .spoil = nvlinks, .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n"}},
    {"nccl-settings", "", "", "NCCL_P2P_LEVEL is PHB", "NCCL_P2P_LEVEL=SYS", .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n", "/etc/nccl.conf", "NCCL_P2P_LEVEL=PHB\n"}},
    {"", "", "", "", "", .spoil = one_node, .second = HOST_PAIR,
     .file = {"/sys/devices/system/node/online", "0\n", "/etc/nccl.conf", "NCCL_P2P_LEVEL=PHB\n"}},
    {"mpi-settings", "", "", "OMPI_MCA_btl=tcp,self on rank 0", "vader", .spoil = no_btl},
    {"mpi-settings", "", "", "OMPI_MCA_btl=^openib,vader on rank 1", "vader", .spoil = no_vader},
    {"", "", "", "", "", .spoil = other_pml},
    {"settings", "", "", "PEER_TRANSPRT", "--settings", .spoil = misspelt},
    {"", "persistence", "", "", "", .spoil = no_persistence},
};

static void check_case(size_t i)
{
    char first[32];
    printf("case %zu: %s\n", i, cases[i].findings); /* for whoever reads of a failure */
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), cases[i].findings);
    TEST_TEXT(machine_checks(&report, DOCTOR_NOTE), cases[i].notes);
    if (cases[i].unchecked != NULL)
        TEST_TEXT(machine_checks(&report, DOCTOR_UNCHECKED), cases[i].unchecked);
    if (cases[i].findings[0] == '\0')
        return;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(cases[i].findings, " "), cases[i].findings);
    TEST_TEXT(report.items[0].check, first);
    TEST_CONTAINS(report.items[0].seen, cases[i].seen);
    TEST_CONTAINS(report.items[0].remedy, cases[i].remedy);
    /* Texts that fill their room were cut off. */
    TEST_TRUE(strlen(report.items[0].cost) < sizeof report.items[0].cost - 1);
    TEST_TRUE(strlen(report.items[0].remedy) < sizeof report.items[0].remedy - 1);
    TEST_TRUE(report.items[0].cost[0] != '\0' && report.items[0].slower >= 1);
}

void test_doctor_cases(const char *root)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *before[2] = {NULL, NULL};
        for (int file = 0; file < 2 && cases[i].file[2 * file] != NULL; file++) {
            before[file] = machine_read(root, cases[i].file[2 * file]);
            machine_write(root, cases[i].file[2 * file], cases[i].file[2 * file + 1]);
        }
        in = machine_gather(root, ranks, cases[i].second != NULL ? cases[i].second : "0000:04:00.0");
        if (cases[i].spoil != NULL)
            cases[i].spoil();
        doctor_judge(&in, &report);
        check_case(i);
        for (int file = 0; file < 2 && cases[i].file[2 * file] != NULL; file++)
            machine_restore(root, cases[i].file[2 * file], before[file]);
    }
}
