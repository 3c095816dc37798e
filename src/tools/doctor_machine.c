/* The doctor's checks of the machine: what lies between GPUs, memory, CPUs. Each reads facts only. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0
#define GIB 1073741824.0

/* ---- Containers -------------------------------------------------------------------------------------------- */

#define APART_REMEDY                                                                                         \
    "run all ranks in one container, or start each with docker run --ipc=host --pid=host (Kubernetes: "      \
    "hostIPC: true, hostPID: true)"

static bool same_machine(const struct doctor_facts *a, const struct doctor_facts *b)
{
    return a->boot_id[0] != '\0' && strcmp(a->boot_id, b->boot_id) == 0;
}

/* Of two ranks on one machine: what they don't share, or NULL. */
static const char *not_shared(const struct doctor_facts *a, const struct doctor_facts *b)
{
    if (strcmp(a->pid_namespace, b->pid_namespace) != 0)
        return "process numbers (their PID namespaces differ)";
    if (strcmp(a->ipc_namespace, b->ipc_namespace) != 0)
        return "IPC (their IPC namespaces differ)";
    return a->shm_device != b->shm_device ? "/dev/shm" : NULL;
}

void doctor_check_namespaces(const struct doctor_input *in, struct doctor_report *report)
{
    const struct doctor_facts *first = &in->ranks[0];
    char seen[256] = "";
    for (int rank = 0; rank < in->size; rank++) {
        const struct doctor_facts *facts = &in->ranks[rank];
        const char *what = same_machine(first, facts) ? not_shared(first, facts) : NULL;
        if (facts->boot_id[0] == '\0' || facts->pid_namespace[0] == '\0' || facts->ipc_namespace[0] == '\0') {
            doctor_unchecked(report, "rank %d can't read /proc/self/ns or the machine's boot id", rank);
            return;
        }
        if (what == NULL)
            continue;
        doctor_append(seen, sizeof seen, "ranks 0 and %d are on one machine and don't share %s", rank, what);
        if (strcmp(in->comm.transport, "ipc") == 0)
            doctor_note(report, seen,
                        "the peer path works all the same; if it fails at times: " APART_REMEDY);
        else
            doctor_finding(
                report, 10, seen,
                "the peer path can't be opened, or not always; measured elsewhere: set-up failed at random "
                "on 8 GPUs with a container for each rank, or all data took the network",
                APART_REMEDY);
        return;
    }
    doctor_fine(report, "ranks of one machine share processes, IPC and /dev/shm");
    if (first->ptrace_scope >= 2)
        doctor_note(
            report, "/proc/sys/kernel/yama/ptrace_scope is 2 or more: MPI can't copy from process to process",
            "only large messages of the MPI fallback suffer; as root: sysctl kernel.yama.ptrace_scope=1");
}

/* ---- Between the GPUs -------------------------------------------------------------------------------------- */

#define ACS_REQUEST_REDIRECT    0x4
#define ACS_COMPLETION_REDIRECT 0x8

static bool on_way(const struct doctor_facts *facts, const char *pci)
{
    for (int i = 0; i < facts->nhops; i++)
        if (strcmp(facts->hop[i].pci, pci) == 0)
            return true;
    return false;
}

/* A bridge above this rank's GPU that is not above every other's: data between the two pass it. */
static bool between_gpus(const struct doctor_input *in, const char *pci)
{
    for (int other = 0; other < in->size; other++)
        if (!on_way(&in->ranks[other], pci))
            return true;
    return false;
}

/* The bridge was told of for an earlier GPU. */
static bool told_before(const struct doctor_input *in, int rank, const char *pci)
{
    for (int earlier = 0; earlier < rank; earlier++)
        if (on_way(&in->ranks[earlier], pci))
            return true;
    return false;
}

static void judge_acs(int bridges, int unreadable, const char *redirecting, struct doctor_report *report)
{
    char seen[1024] = "";
    if (redirecting[0] != '\0') {
        doctor_append(seen, sizeof seen, "redirection of peer requests is on in the bridges%s", redirecting);
        doctor_finding(
            report, 2, seen,
            "data between GPUs go up to the CPU and back; measured elsewhere: half the rate for two "
            "GPUs of one switch, NCCL hung, and on one machine data were wrong",
            "for each, as root, after each boot: setpci -s BRIDGE ECAP_ACS+6.w=0000; or in the BIOS: "
            "ACS Enable: Disabled (also: Access Control Services)");
    }
    if (unreadable > 0)
        doctor_unchecked(report, "%d of %d bridges can't be read: run as root, outside of a container",
                         unreadable, bridges);
    else if (redirecting[0] == '\0')
        doctor_fine(report, "none of %d bridges between the GPUs redirects", bridges);
}

void doctor_check_acs(const struct doctor_input *in, struct doctor_report *report)
{
    char redirecting[512] = "";
    int bridges = 0, unreadable = 0;
    if (doctor_why_no_pairs(in) != NULL) {
        doctor_unchecked(report, "%s", doctor_why_no_pairs(in));
        return;
    }
    for (int rank = 0; rank < in->size; rank++)
        for (int i = 1; i < in->ranks[rank].nhops; i++) {
            const struct doctor_hop *hop = &in->ranks[rank].hop[i];
            if (told_before(in, rank, hop->pci) || !between_gpus(in, hop->pci))
                continue;
            bridges++;
            unreadable += hop->acs == DOCTOR_UNKNOWN;
            if (hop->acs > 0 && (hop->acs & (ACS_REQUEST_REDIRECT | ACS_COMPLETION_REDIRECT)) != 0)
                doctor_append(redirecting, sizeof redirecting, " %s", hop->pci);
        }
    if (bridges > 0)
        judge_acs(bridges, unreadable, redirecting, report);
    else if (in->ranks[0].virtual_machine > 0)
        doctor_unchecked(report, "this is a virtual machine that shows no bridges: look on its host");
    else
        doctor_unchecked(report, "no bridge above the GPUs is to be seen (/sys/bus/pci)");
}

/* "DMA" and "DMA-FQ": addresses are translated; "identity": they pass. */
static bool translated(const struct doctor_input *in, int rank, int other)
{
    (void)other;
    return strncmp(in->ranks[rank].iommu_type, "DMA", 3) == 0;
}

static bool iommu_unknown(const struct doctor_input *in, int rank, int other)
{
    const struct doctor_facts *facts = &in->ranks[rank];
    (void)other;
    return facts->iommu_type[0] == '\0' && facts->iommus != 0 && facts->iommu_passthrough != 1;
}

void doctor_check_iommu(const struct doctor_input *in, struct doctor_report *report)
{
    char ranks[256] = "", seen[512] = "";
    if (doctor_why_no_pairs(in) != NULL) {
        doctor_unchecked(report, "%s", doctor_why_no_pairs(in));
    } else if (doctor_append_ranks(ranks, sizeof ranks, in, translated, 0) > 0) {
        doctor_append(seen, sizeof seen,
                      "the IOMMU translates the addresses of the GPUs of %s (iommu_group/type: %s)", ranks,
                      in->ranks[0].iommu_type);
        doctor_finding(
            report, 1.2, seen,
            "measured elsewhere: 15% of the rate between GPUs, NCCL hung on 8 GPUs, and on one machine "
            "data were wrong; (on machines whose posted writes collapse it hides that)",
            "kernel parameter iommu=pt (in /etc/default/grub: GRUB_CMDLINE_LINUX, then update-grub and "
            "reboot), or in the BIOS: IOMMU, VT-d or AMD-Vi: Disabled");
    } else {
        ranks[0] = '\0';
        if (doctor_append_ranks(ranks, sizeof ranks, in, iommu_unknown, 0) > 0)
            doctor_unchecked(report, "how the IOMMU treats the GPUs of %s can't be read (iommu_group/type)",
                             ranks);
        else
            doctor_fine(report, "no IOMMU translates the GPUs' addresses%s",
                        in->ranks[0].virtual_machine > 0 ? ", as far as this virtual machine shows" : "");
    }
}

static bool small_bar1(const struct doctor_input *in, int rank, int other)
{
    const struct doctor_facts *facts = &in->ranks[rank];
    (void)other;
    return facts->bar1_bytes > 0 && facts->gpu_bytes > 0 && facts->bar1_bytes < facts->gpu_bytes;
}

static bool unknown_bar1(const struct doctor_input *in, int rank, int other)
{
    (void)other;
    return in->ranks[rank].bar1_bytes <= 0 || in->ranks[rank].gpu_bytes <= 0;
}

void doctor_check_bar1(const struct doctor_input *in, struct doctor_report *report)
{
    char seen[512] = "", ranks[256] = "";
    int first = 0;
    if (doctor_why_no_pairs(in) != NULL) {
        doctor_unchecked(report, "%s", doctor_why_no_pairs(in));
    } else if (doctor_append_ranks(ranks, sizeof ranks, in, small_bar1, 0) > 0) {
        while (!small_bar1(in, first, 0))
            first++;
        doctor_append(seen, sizeof seen, "BAR1 is smaller than the GPU's memory for %s: %.0f MiB of %.0f",
                      ranks, (double)in->ranks[first].bar1_bytes / MIB,
                      (double)in->ranks[first].gpu_bytes / MIB);
        doctor_finding(
            report, 8, seen,
            "peers reach a GPU's memory through it; measured elsewhere: with 256 MiB in place of 96 GiB "
            "the peer path was crippled",
            "BIOS: Above 4G Decoding: Enabled, Re-Size BAR Support: Enabled, CSM: Disabled; on "
            "workstation cards also NVIDIA's displaymodeselector: headless (physical_display_disabled)");
    } else {
        ranks[0] = '\0';
        if (doctor_append_ranks(ranks, sizeof ranks, in, unknown_bar1, 0) > 0)
            doctor_unchecked(report, "the size of BAR1 can't be read for %s (sysfs, NVML)", ranks);
        else
            doctor_fine(report, "BAR1 holds all of each GPU's memory (%.0f GiB)",
                        (double)in->ranks[0].bar1_bytes / GIB);
    }
}

/* ---- CPUs -------------------------------------------------------------------------------------------------- */

static struct doctor_cpus cpus_and(const struct doctor_cpus *a, const struct doctor_cpus *b)
{
    struct doctor_cpus both;
    for (int i = 0; i < DOCTOR_CPU_WORDS; i++)
        both.word[i] = a->word[i] & b->word[i];
    return both;
}

/* CPUs of the rank that are near its GPU. */
static int near_cpus(const struct doctor_facts *facts)
{
    struct doctor_cpus near = cpus_and(&facts->cpus, &facts->gpu_cpus);
    return doctor_cpus_count(&near);
}

static bool numa_unknown(const struct doctor_facts *facts)
{
    return facts->numa_nodes == DOCTOR_UNKNOWN || facts->ncpus == 0 ||
           (facts->numa_nodes > 1 && (facts->gpu_numa < 0 || doctor_cpus_count(&facts->gpu_cpus) == 0));
}

static bool runs_far(const struct doctor_input *in, int rank, int other)
{
    (void)other;
    return in->ranks[rank].numa_nodes > 1 && near_cpus(&in->ranks[rank]) == 0;
}

static bool may_run_far(const struct doctor_input *in, int rank, int other)
{
    (void)other;
    return in->ranks[rank].numa_nodes > 1 && near_cpus(&in->ranks[rank]) < in->ranks[rank].ncpus;
}

void doctor_check_numa(const struct doctor_input *in, struct doctor_report *report)
{
    char ranks[256] = "", seen[512] = "", remedy[512] = "";
    int first = 0;
    if (!doctor_on_cuda(in)) {
        doctor_unchecked(report, "no GPU is in use");
        return;
    }
    for (int rank = 0; rank < in->size; rank++)
        if (numa_unknown(&in->ranks[rank])) {
            doctor_unchecked(report, "rank %d: its CPUs or its GPU's NUMA node can't be read", rank);
            return;
        }
    if (doctor_append_ranks(ranks, sizeof ranks, in, may_run_far, 0) == 0) {
        doctor_fine(report, "each rank runs on its GPU's NUMA node");
        return;
    }
    while (!may_run_far(in, first, 0))
        first++;
    doctor_append(seen, sizeof seen, "%s may run off the NUMA node of the GPU", ranks);
    ranks[0] = '\0';
    if (doctor_append_ranks(ranks, sizeof ranks, in, runs_far, 0) > 0)
        doctor_append(seen, sizeof seen, "; %s must", ranks);
    doctor_append(seen, sizeof seen, " (GPU %s is on node %d)", in->ranks[first].gpu_pci,
                  in->ranks[first].gpu_numa);
    doctor_append(
        remedy, sizeof remedy,
        "bind each rank to its GPU's node, for rank %d: numactl --cpunodebind=%d --membind=%d PROGRAM (and "
        "mpirun --bind-to none); if the GPUs' nodes are in the ranks' order: mpirun --map-by numa --bind-to "
        "numa",
        first, in->ranks[first].gpu_numa, in->ranks[first].gpu_numa);
    doctor_finding(
        report, strstr(seen, "must") != NULL ? 1.8 : 1.3, seen,
        "launches, and data that go through host memory, cross the sockets; measured elsewhere: between GPUs "
        "a read takes 1.3 us across sockets and 0.7 near, and 37 to 51 GB/s pass, near 52 to 57",
        remedy);
}

static bool on_first_machine(const struct doctor_input *in, int rank, int other)
{
    return strcmp(in->ranks[rank].boot_id, in->ranks[other].boot_id) == 0;
}

/* CPUs that the ranks of rank 0's machine may use, all together. 0: a rank's are not known. */
static int cpus_of_ranks(const struct doctor_input *in)
{
    struct doctor_cpus all = {{0}};
    for (int rank = 0; rank < in->size; rank++) {
        if (in->ranks[rank].ncpus == 0)
            return 0;
        for (int i = 0; i < DOCTOR_CPU_WORDS && on_first_machine(in, rank, 0); i++)
            all.word[i] |= in->ranks[rank].cpus.word[i];
    }
    return doctor_cpus_count(&all);
}

void doctor_check_cpus(const struct doctor_input *in, struct doctor_report *report)
{
    int ranks = 0, cpus = cpus_of_ranks(in), quota = in->ranks[0].cpu_quota;
    char seen[256] = "", remedy[256] = "";
    for (int rank = 0; rank < in->size; rank++)
        ranks += on_first_machine(in, rank, 0);
    if (cpus == 0) {
        doctor_unchecked(report, "what CPUs the ranks may use can't be read (/proc/self/status)");
        return;
    }
    if (ranks > cpus) {
        doctor_append(seen, sizeof seen, "%d ranks share %d CPU%s", ranks, cpus, cpus == 1 ? "" : "s");
    } else if (quota != DOCTOR_UNKNOWN && 100 * ranks > quota) {
        doctor_append(seen, sizeof seen, "%d ranks share the time of %.1f CPUs (/sys/fs/cgroup/cpu.max)",
                      ranks, quota / 100.0);
    } else {
        doctor_fine(report, "%d rank%s, %d CPU%s", ranks, ranks == 1 ? "" : "s", cpus, cpus == 1 ? "" : "s");
        return;
    }
    doctor_append(seen, sizeof seen, "; a rank that waits polls");
    if (in->ranks[0].cpus_online >= ranks)
        doctor_append(remedy, sizeof remedy,
                      "the machine has %d: mpirun --bind-to none, or give the job or container more CPUs",
                      in->ranks[0].cpus_online);
    else
        doctor_append(remedy, sizeof remedy, "start %d rank%s at most: mpirun -np %d", cpus,
                      cpus == 1 ? "" : "s", cpus);
    doctor_finding(report, 25, seen,
                   "measured elsewhere (2 CPUs, MPI_Allreduce of 8 bytes): 4 ranks 7.0 us, 2 ranks 0.28",
                   remedy);
}

/* ---- Host memory ------------------------------------------------------------------------------------------- */

/* The largest staging whose slabs have room, or 0. */
static uint64_t staging_that_fits(int size, int64_t room)
{
    uint64_t staging = 0;
    while (staging < (UINT64_C(256) << 20) &&
           (uint64_t)size * PEER_SLAB_BYTES(staging + 4096) + sizeof(struct peer_control) <= (uint64_t)room)
        staging += 4096;
    return staging < 16 << 10 ? 0 : staging;
}

void doctor_check_shm(const struct doctor_input *in, struct doctor_report *report)
{
    bool only_control = strcmp(in->comm.device, "cuda") == 0 && strcmp(in->comm.transport, "ipc") == 0;
    uint64_t need = only_control ? sizeof(struct peer_control) : in->shared_bytes;
    int64_t room = in->ranks[0].shm_free;
    char seen[256] = "", remedy[384] = "";
    for (int rank = 1; rank < in->size; rank++)
        if (in->ranks[rank].shm_free < room)
            room = in->ranks[rank].shm_free;
    if (room == DOCTOR_UNKNOWN) {
        doctor_unchecked(report, "/dev/shm can't be asked for its room");
        return;
    }
    if (in->size == 1 || need <= (uint64_t)room) {
        doctor_fine(report, "%.1f MiB are free, %.1f are needed", (double)room / MIB,
                    in->size == 1 ? 0.0 : (double)need / MIB);
        return;
    }
    doctor_append(seen, sizeof seen, "/dev/shm has %.1f MiB free, the ranks' slabs need %.1f",
                  (double)room / MIB, (double)need / MIB);
    doctor_append(
        remedy, sizeof remedy,
        "as root: mount -o remount,size=%.0fM /dev/shm; containers: docker run --shm-size=%.0fm (Kubernetes: "
        "an emptyDir of medium Memory)",
        (double)need / MIB * 2 + 1, (double)need / MIB * 2 + 1);
    if (staging_that_fits(in->size, room) > 0)
        doctor_append(remedy, sizeof remedy, "; or PEER_STAGING_BYTES=%lluK",
                      (unsigned long long)staging_that_fits(in->size, room) >> 10);
    doctor_finding(report, 20, seen, "no path through shared memory: MPI or NCCL serve all calls", remedy);
}

/* The driver pins beyond the limit where it may; so only pinning that failed tells. */
void doctor_check_memlock(const struct doctor_input *in, struct doctor_report *report)
{
    int64_t limit = in->ranks[0].memlock;
    char seen[256] = "";
    if (!doctor_on_cuda(in)) {
        doctor_unchecked(report, "no GPU is in use");
    } else if (strstr(in->comm.log, "cudaHostRegister failed") == NULL) {
        doctor_fine(report, "what had to be pinned was");
    } else if (limit == DOCTOR_UNKNOWN || limit >= (int64_t)in->shared_bytes) {
        doctor_unchecked(report, "pinning failed, but the limit is not what stops it (ulimit -l)");
    } else {
        doctor_append(seen, sizeof seen, "pinning host memory failed, and the limit is %lld KiB (ulimit -l)",
                      (long long)limit >> 10);
        doctor_finding(report, 20, seen, "no path through host memory: NCCL or MPI serve all calls",
                       "ulimit -l unlimited in what starts the ranks (/etc/security/limits.conf: * - memlock "
                       "unlimited; systemd: LimitMEMLOCK=infinity; docker run --ulimit memlock=-1)");
    }
}

void doctor_check_persistence(const struct doctor_input *in, struct doctor_report *report)
{
    int mode = in->ranks[0].persistence;
    if (!doctor_on_cuda(in))
        doctor_unchecked(report, "no GPU is in use");
    else if (mode == DOCTOR_UNKNOWN)
        doctor_unchecked(report, "NVML doesn't say whether persistence mode is on");
    else if (mode == 1)
        doctor_fine(report, "persistence mode is on");
    else
        doctor_note(
            report,
            "persistence mode is off: a program's first CUDA call may load the driver, for a second or so",
            "as root: nvidia-smi -pm 1");
}
