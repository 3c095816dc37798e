/* The doctor's list of checks, and those of the driver, the communicator and its ranks. Each reads facts only.
 *
 * Figures of cost are from the public record of machines with several PCIe GPUs and from this project's one GPU; a
 * finding's `slower` is their ratio, and orders the findings, no more. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *title; /* of a finding */
    void (*check)(const struct doctor_input *in, struct doctor_report *report);
} checks[] = {
    {"driver", "CUDA doesn't serve the GPUs", doctor_check_driver},
    {"gpu-per-rank", "The GPUs are not spread over the ranks", doctor_check_gpu},
    {"mps", "Ranks that share a GPU take turns", doctor_check_mps},
    {"peer-path", "The ranks don't reach each other's memory", doctor_check_path},
    {"peer-rates", "Data between the ranks are slow", doctor_check_rates},
    {"namespaces", "The ranks are in containers apart", doctor_check_namespaces},
    {"acs", "PCIe bridges redirect what goes between GPUs", doctor_check_acs},
    {"iommu", "The IOMMU is in the way", doctor_check_iommu},
    {"bar1", "BAR1, the window to a GPU's memory, is too small", doctor_check_bar1},
    {"pcie-link", "PCIe links are slower than they can be", doctor_check_link},
    {"numa", "Ranks run far from their GPUs", doctor_check_numa},
    {"cpus", "There are more ranks than CPUs", doctor_check_cpus},
    {"shm", "/dev/shm is too small", doctor_check_shm},
    {"memlock", "Too little memory may be pinned", doctor_check_memlock},
    {"nccl", "NCCL is missing or too old", doctor_check_nccl},
    {"nccl-settings", "NCCL is kept from the peer-to-peer path", doctor_check_nccl_settings},
    {"mpi-settings", "MPI is kept from shared memory", doctor_check_mpi_settings},
    {"settings", "A variable is no setting", doctor_check_settings},
    {"persistence", "The driver doesn't stay loaded", doctor_check_persistence},
};

static bool comes_after(const struct doctor_item *a, const struct doctor_item *b)
{
    return a->kind != b->kind ? a->kind > b->kind : a->slower < b->slower;
}

/* Equals keep the order of the checks, unlike with qsort; there are few. */
static void sort(struct doctor_report *report)
{
    for (int i = 1; i < report->n; i++)
        for (int j = i; j > 0 && comes_after(&report->items[j - 1], &report->items[j]); j--) {
            struct doctor_item swap = report->items[j];
            report->items[j] = report->items[j - 1];
            report->items[j - 1] = swap;
        }
}

void doctor_judge(const struct doctor_input *in, struct doctor_report *report)
{
    report->n = 0;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        report->check = checks[i].name;
        report->title = checks[i].title;
        checks[i].check(in, report);
    }
    sort(report);
}

/* ---- What several checks ask ------------------------------------------------------------------------------- */

bool doctor_on_cuda(const struct doctor_input *in)
{
    for (int rank = 0; rank < in->size; rank++)
        if (in->ranks[rank].gpu_uuid[0] == '\0')
            return false;
    return in->config.device != PEER_DEVICE_HOST;
}

bool doctor_same_gpu(const struct doctor_input *in, int rank, int other)
{
    return strcmp(in->ranks[rank].gpu_uuid, in->ranks[other].gpu_uuid) == 0;
}

bool doctor_first_of_gpu(const struct doctor_input *in, int rank)
{
    for (int other = 0; other < rank; other++)
        if (doctor_same_gpu(in, rank, other))
            return false;
    return in->ranks[rank].gpu_uuid[0] != '\0';
}

int doctor_gpus(const struct doctor_input *in)
{
    int count = 0;
    for (int rank = 0; rank < in->size; rank++)
        count += doctor_first_of_gpu(in, rank);
    return count;
}

const char *doctor_why_no_pairs(const struct doctor_input *in)
{
    if (!doctor_on_cuda(in))
        return "no GPU is in use";
    return doctor_gpus(in) < 2 ? "it matters between GPUs, and the ranks have one" : NULL;
}

const char *doctor_value(const struct doctor_input *in, int rank, int variable)
{
    const struct doctor_variable *of = &in->ranks[rank].variable[variable];
    return of->set ? of->value : NULL;
}

/* Ranks have other GPUs to choose from than rank 0. */
static bool visible_devices_differ(const struct doctor_input *in)
{
    const char *first = doctor_value(in, 0, DOCTOR_CUDA_VISIBLE_DEVICES);
    for (int rank = 1; rank < in->size; rank++) {
        const char *value = doctor_value(in, rank, DOCTOR_CUDA_VISIBLE_DEVICES);
        if ((value == NULL) != (first == NULL) || (value != NULL && strcmp(value, first) != 0))
            return true;
    }
    return false;
}

/* ---- The driver -------------------------------------------------------------------------------------------- */

#define ON_THE_CPU "all calls run on the CPU, on data in host memory"

/* nvmlInit's answer if the kernel module is another than the libraries are made for. */
#define NVML_VERSION_MISMATCH 18

static bool lacks_gpu(const struct doctor_input *in, int rank, int other)
{
    (void)other;
    return in->ranks[rank].gpu_uuid[0] == '\0';
}

/* The GPUs are there, but CUDA doesn't serve them. */
static void judge_driver(const struct doctor_facts *facts, struct doctor_report *report)
{
    char seen[512] = "";
    doctor_append(seen, sizeof seen, "%d NVIDIA GPU%s on the PCI bus; ", facts->gpus,
                  facts->gpus == 1 ? "" : "s");
    if (facts->runtime_cuda == 0) {
        doctor_append(seen, sizeof seen, "this peercoll was built without CUDA");
        doctor_finding(report, 100, seen, ON_THE_CPU,
                       "install the CUDA toolkit, then ./configure "
                       "--with-cuda=auto && make && make install");
    } else if (facts->nvml_error == NVML_VERSION_MISMATCH) {
        doctor_append(seen, sizeof seen, "the driver's libraries are not of its kernel module's version (%s)",
                      facts->module_version);
        doctor_finding(report, 100, seen, ON_THE_CPU,
                       "reboot; or with no program on the GPUs: rmmod nvidia_uvm nvidia_drm nvidia_modeset "
                       "nvidia && modprobe nvidia_uvm");
    } else if (facts->driver_cuda == 0) {
        doctor_append(seen, sizeof seen, "%s", facts->why_no_gpu);
        doctor_finding(
            report, 100, seen, ON_THE_CPU,
            facts->module_version[0] != '\0'
                ? "its kernel module is loaded, its libraries are not found: in a container, start "
                  "it with docker run --gpus all; else install the driver again"
                : "install NVIDIA's driver, or load it: modprobe nvidia_uvm; in a virtual machine, "
                  "pass the GPU through");
    } else if (facts->driver_cuda / 1000 < facts->runtime_cuda / 1000) {
        doctor_append(seen, sizeof seen, "the driver is for CUDA %d.%d, peercoll was built with %d.%d",
                      facts->driver_cuda / 1000, facts->driver_cuda % 1000 / 10, facts->runtime_cuda / 1000,
                      facts->runtime_cuda % 1000 / 10);
        doctor_finding(report, 100, seen, ON_THE_CPU,
                       "install a newer driver, or build peercoll with an older CUDA: ./configure "
                       "--with-cuda=DIR");
    } else {
        doctor_append(seen, sizeof seen, "CUDA says: %s", facts->why_no_gpu);
        doctor_finding(
            report, 100, seen, ON_THE_CPU,
            "unset CUDA_VISIBLE_DEVICES, or name GPUs in it; nvidia-smi shows whether the GPUs work");
    }
}

void doctor_check_driver(const struct doctor_input *in, struct doctor_report *report)
{
    const struct doctor_facts *facts = &in->ranks[0];
    if (facts->gpu_uuid[0] != '\0')
        doctor_fine(report, "driver %s for CUDA %d.%d, peercoll built with %d.%d",
                    facts->driver_version[0] != '\0' ? facts->driver_version : facts->module_version,
                    facts->driver_cuda / 1000, facts->driver_cuda % 1000 / 10, facts->runtime_cuda / 1000,
                    facts->runtime_cuda % 1000 / 10);
    else if (facts->gpus > 0 && in->config.device != PEER_DEVICE_HOST)
        judge_driver(facts, report);
    else
        doctor_unchecked(report, "%s",
                         in->config.device == PEER_DEVICE_HOST ? "PEER_DEVICE=host"
                         : facts->gpus == 0                    ? "there is no NVIDIA GPU"
                                                               : "the PCI bus can't be read (/sys/bus/pci)");
}

/* ---- A GPU for each rank ----------------------------------------------------------------------------------- */

/* GPUs of the machine that no rank has, as far as can be seen. */
static int idle_gpus(const struct doctor_input *in)
{
    int there = 0;
    for (int rank = 0; rank < in->size; rank++) {
        if (in->ranks[rank].gpus > there)
            there = in->ranks[rank].gpus;
        if (in->ranks[rank].gpus_visible > there)
            there = in->ranks[rank].gpus_visible;
    }
    return there - doctor_gpus(in);
}

static int most_on_one_gpu(const struct doctor_input *in)
{
    int most = 0;
    for (int rank = 0; rank < in->size; rank++) {
        int sharers = 0;
        for (int other = 0; other < in->size; other++)
            sharers += doctor_same_gpu(in, rank, other);
        most = sharers > most ? sharers : most;
    }
    return most;
}

static void append_sharers(char *text, size_t bytes, const struct doctor_input *in)
{
    const char *before = "";
    for (int rank = 0; rank < in->size; rank++) {
        char ranks[256] = "";
        if (!doctor_first_of_gpu(in, rank) ||
            doctor_append_ranks(ranks, sizeof ranks, in, doctor_same_gpu, rank) < 2)
            continue;
        doctor_append(text, bytes, "%s%s share GPU %s", before, ranks, in->ranks[rank].gpu_pci);
        before = "; ";
    }
}

static void judge_idle(const struct doctor_input *in, int idle, struct doctor_report *report)
{
    const char *visible = doctor_value(in, 0, DOCTOR_CUDA_VISIBLE_DEVICES);
    char seen[1024] = "", remedy[512] = "";
    append_sharers(seen, sizeof seen, in);
    doctor_append(seen, sizeof seen, ", while %d GPU%s of this machine %s no rank's", idle,
                  idle == 1 ? "" : "s", idle == 1 ? "is" : "are");
    if (visible_devices_differ(in)) {
        doctor_append(seen, sizeof seen, "; CUDA_VISIBLE_DEVICES is not the same on all ranks");
        doctor_append(
            remedy, sizeof remedy,
            "show every rank every GPU: unset CUDA_VISIBLE_DEVICES in what starts the ranks (Slurm: "
            "--gpus-per-node=%d --gpu-bind=none, not --gpus-per-task), and call PEER_Select_device "
            "before any CUDA call",
            doctor_gpus(in) + idle);
    } else if (visible != NULL) {
        doctor_append(seen, sizeof seen, "; CUDA_VISIBLE_DEVICES=%.80s", visible);
        doctor_append(remedy, sizeof remedy, "unset CUDA_VISIBLE_DEVICES, or name a GPU in it for each rank");
    } else {
        doctor_append(remedy, sizeof remedy,
                      "if a container hides GPUs, have it show them all (docker run --gpus all); ask a batch "
                      "system for a GPU for each rank; start all ranks of the machine by one mpirun, so that "
                      "PEER_Select_device counts "
                      "them together");
    }
    doctor_finding(report, 500, seen,
                   "measured elsewhere: ranks that take turns on a GPU 2,257 us a call; with a GPU each (8 "
                   "on PCIe, 43,008 bytes) about 20",
                   remedy);
}

void doctor_check_gpu(const struct doctor_input *in, struct doctor_report *report)
{
    int idle = idle_gpus(in), most = most_on_one_gpu(in), gpus = doctor_gpus(in);
    char ranks[256] = "", seen[512] = "";
    if (in->config.device == PEER_DEVICE_HOST || gpus == 0) {
        doctor_unchecked(report, "no GPU is in use");
    } else if (!doctor_on_cuda(in)) {
        int without = 0;
        while (!lacks_gpu(in, without, 0))
            without++;
        doctor_append_ranks(ranks, sizeof ranks, in, lacks_gpu, 0);
        doctor_append(seen, sizeof seen, "%s can't use a GPU, the others can: %s", ranks,
                      in->ranks[without].why_no_gpu);
        doctor_finding(report, 100, seen, "all calls, of all ranks, run on the CPU",
                       "start all ranks with the same environment and container; look at their "
                       "CUDA_VISIBLE_DEVICES");
    } else if (most > 1 && idle > 0) {
        judge_idle(in, idle, report);
    } else if (most > 1) {
        append_sharers(seen, sizeof seen, in);
        doctor_fine(report, "%s; no GPU idles", seen);
    } else {
        doctor_fine(report, "%d rank%s on %d GPU%s", in->size, in->size == 1 ? "" : "s", gpus,
                    gpus == 1 ? "" : "s");
    }
}

void doctor_check_mps(const struct doctor_input *in, struct doctor_report *report)
{
    char seen[1024] = "";
    int with = 0, unknown = 0;
    if (!doctor_on_cuda(in)) {
        doctor_unchecked(report, "no GPU is in use");
        return;
    }
    for (int rank = 0; rank < in->size; rank++) {
        with += in->ranks[rank].mps > 0;
        unknown += in->ranks[rank].mps == DOCTOR_UNKNOWN;
    }
    append_sharers(seen, sizeof seen, in);
    if (seen[0] == '\0') {
        doctor_fine(report, "no ranks share a GPU, so the MPS daemon is not needed");
    } else if (unknown > 0) {
        doctor_unchecked(report, "CUDA doesn't say whether the MPS daemon runs");
    } else if (with == in->size) {
        doctor_fine(report, "the MPS daemon lets ranks that share a GPU run at once");
    } else {
        doctor_append(seen, sizeof seen, " without the MPS daemon, so their kernels take turns");
        doctor_finding(
            report, 400, seen,
            "measured elsewhere (one H200): 2,257 us a call, under the daemon 3 to 6 (43,008 bytes)",
            "before mpirun, as the same user: nvidia-cuda-mps-control -d (to end it: echo quit | "
            "nvidia-cuda-mps-control)");
    }
}

/* ---- The communicator -------------------------------------------------------------------------------------- */

/* What helps, by what was said on the way. */
static const char *remedy_of_path(const struct doctor_input *in)
{
    const char *log = in->comm.log;
    if (in->config.transport != PEER_TRANSPORT_AUTO)
        return "unset PEER_TRANSPORT, so that the best path that works is taken";
    if (in->comm.nodes > 1)
        return "the peer path is for ranks of one machine: start them all on one, or make a communicator for "
               "each "
               "machine (MPI_Comm_split_type, MPI_COMM_TYPE_SHARED)";
    if (in->size > PEER_MAX_PEERS)
        return "start fewer ranks, or make communicators of fewer ranks";
    if (doctor_on_cuda(in) && visible_devices_differ(in))
        return "show every rank every GPU: unset CUDA_VISIBLE_DEVICES (Slurm: --gpu-bind=none)";
    if (strstr(log, "/dev/shm") != NULL)
        return "make /dev/shm larger, or share it between the ranks' containers: docker run --ipc=host";
    if (strstr(log, "cudaIpc") != NULL)
        return "nvidia-smi topo -p2p w shows whether the driver lets these GPUs reach each other (GeForce "
               "cards "
               "and MIG slices can't; in a virtual machine it is the host's to allow); containers of one "
               "machine "
               "need --ipc=host --pid=host";
    if (strstr(log, "probe failed") != NULL)
        return "mend what is said of acs and iommu, then update BIOS and driver; nvidia-smi topo -p2p w "
               "shows what "
               "the driver promises";
    return "PEER_LOG=debug peer_info --comm tells more";
}

static void judge_fallback(const struct doctor_input *in, struct doctor_report *report)
{
    static const struct {
        const char *transport;
        double slower;
        const char *cost;
    } costs[] = {
        {"shm", 5,
         "every byte crosses PCIe twice; measured elsewhere: 2 ranks on one H200, 43,008 bytes, 11.4 us "
         "through "
         "host memory and 3.2 through the GPU's"},
        {"nccl", 3,
         "measured elsewhere (8 PCIe GPUs, 16 to 64 KB): NCCL 17 to 29 us where it is tuned, 48 to 344 where "
         "it "
         "is not; peer kernels 12 to 26"},
        {"mpi", 30,
         "from a GPU each call copies to host memory, waits for MPI, and copies back, and can't be captured "
         "in a graph; measured elsewhere, on 2 CPUs, 43,008 bytes: 13.5 us, over the peer path 2.9"},
    };
    char seen[1024] = "";
    doctor_append(seen, sizeof seen, "calls go through %s", in->comm.transport);
    if (in->config.transport != PEER_TRANSPORT_AUTO)
        doctor_append(seen, sizeof seen, ", as PEER_TRANSPORT says");
    else if (in->comm.log[0] != '\0')
        doctor_append(seen, sizeof seen, ": %.900s", in->comm.log);
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        if (strcmp(in->comm.transport, costs[i].transport) == 0)
            doctor_finding(report, costs[i].slower, seen, costs[i].cost, remedy_of_path(in));
}

void doctor_check_path(const struct doctor_input *in, struct doctor_report *report)
{
    char seen[1024] = "";
    if (in->comm.status != PEER_SUCCESS) {
        doctor_append(seen, sizeof seen, "no communicator can be made: %.900s", in->comm.log);
        doctor_finding(report, 1000, seen, "no call works", remedy_of_path(in));
    } else if (in->size == 1) {
        doctor_unchecked(report, "one rank has no peers: mpirun -np N starts more");
    } else if (strcmp(in->comm.transport, "ipc") == 0) {
        doctor_fine(report, "ipc: the ranks map each other's %s, and the probe found data and flags right",
                    strcmp(in->comm.device, "cuda") == 0 ? "GPU memory" : "shared memory");
    } else {
        judge_fallback(in, report);
    }
}

void doctor_check_settings(const struct doctor_input *in, struct doctor_report *report)
{
    if (in->comm.no_settings[0] == '\0')
        doctor_fine(report, "every PEER_ variable is a setting, and legal");
    else
        doctor_finding(report, 1, in->comm.no_settings, "it has no effect",
                       "peer_info --settings lists the settings");
}
