/* The doctor's checks of NCCL, the fallback, and of the settings of NCCL and MPI that slow them down. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#define SHARED_VERSION 23003 /* accepts ranks that share a GPU, if asked to */

static int version_of(const char *text)
{
    int major = 0, minor = 0, patch = 0;
    return sscanf(text, "%d.%d.%d", &major, &minor, &patch) == 3 ? major * 10000 + minor * 100 + patch : 0;
}

static const char instead[] =
    "calls that the peer kernels don't serve (user's choice, many ranks, several machines) "
    "go through MPI and host memory";

static void judge_no_nccl(const struct doctor_input *in, struct doctor_report *report)
{
    const char *why = in->comm.nccl;
    char seen[384] = "";
    doctor_append(seen, sizeof seen, "%s", why);
    if (strstr(why, "share a GPU") != NULL)
        doctor_note(report, seen,
                    "not needed while the peer path serves; NCCL 2.30.3 or newer, with "
                    "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2, would serve");
    else if (strstr(why, "without NCCL's header") != NULL)
        doctor_finding(
            report, 1.5, seen, instead,
            "apt-get install libnccl-dev (NVIDIA's repository), then ./configure --with-nccl=auto && make "
            "&& make install");
    else if (doctor_gpus(in) < in->size)
        doctor_note(report, seen,
                    "not needed while the peer path serves; ranks that share a GPU: NCCL 2.30.3 or newer "
                    "with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2");
    else
        doctor_finding(report, 1.5, seen, instead,
                       "apt-get install libnccl2 (NVIDIA's repository), or PEER_NCCL=PATH of a libnccl.so.2; "
                       "NCCL_DEBUG=WARN shows why one that is there fails");
}

void doctor_check_nccl(const struct doctor_input *in, struct doctor_report *report)
{
    int version = version_of(in->comm.nccl);
    if (!doctor_on_cuda(in))
        doctor_unchecked(report, "no GPU is in use");
    else if (in->size == 1 || in->comm.status != PEER_SUCCESS)
        doctor_unchecked(report, "%s",
                         in->size == 1 ? "one rank has no peers: mpirun -np N starts more"
                                       : "there is no communicator");
    else if (strcmp(in->config.nccl, "off") == 0 || strstr(in->comm.nccl, "not asked for") != NULL)
        doctor_unchecked(report, "the settings ask for no NCCL");
    else if (version == 0)
        judge_no_nccl(in, report);
    else
        doctor_fine(report, "NCCL %s serves what the peer kernels don't", in->comm.nccl);
}

/* ---- Settings of NCCL -------------------------------------------------------------------------------------- */

static const char nccl_cost[] =
    "measured elsewhere, 8 PCIe GPUs, 16 to 64 KB: NCCL through host memory 48 to 344 us, "
    "peer-to-peer 17 to 29 (of calls that NCCL serves)";

/* The first rank that has the variable at 1, or -1. */
static int rank_with(const struct doctor_input *in, int variable)
{
    for (int rank = 0; rank < in->size; rank++) {
        const char *value = doctor_value(in, rank, variable);
        if (value != NULL && strcmp(value, "1") == 0)
            return rank;
    }
    return -1;
}

static void judge_switched_off(const struct doctor_input *in, int variable, const char *name,
                               struct doctor_report *report)
{
    char seen[128] = "", remedy[128] = "";
    if (rank_with(in, variable) < 0)
        return;
    doctor_append(seen, sizeof seen, "%s=1 on rank %d", name, rank_with(in, variable));
    doctor_append(remedy, sizeof remedy, "unset %s (look in /etc/nccl.conf and ~/.nccl.conf, too)", name);
    doctor_finding(report, 3, seen, nccl_cost, remedy);
}

/* Two GPUs that no bridge joins: what goes between them passes the CPU's host bridge. DOCTOR_UNKNOWN where the
 * bridges can't be seen. */
static int joined_by_host(const struct doctor_input *in)
{
    int joined = 0;
    for (int a = 0; a < in->size; a++) {
        if (in->ranks[a].nhops < 2)
            return DOCTOR_UNKNOWN;
        for (int b = 0; b < a; b++) {
            const struct doctor_facts *one = &in->ranks[a], *other = &in->ranks[b];
            joined = joined || strcmp(one->hop[one->nhops - 1].pci, other->hop[other->nhops - 1].pci) != 0;
        }
    }
    return joined;
}

static bool on_one_node(const struct doctor_input *in)
{
    for (int rank = 1; rank < in->size; rank++)
        if (in->ranks[rank].gpu_numa != in->ranks[0].gpu_numa)
            return false;
    return true;
}

/* A level that lets NCCL go peer-to-peer through host bridges, PHB of one NUMA node and SYS of all; older ones are
 * numbers. */
static bool level_reaches(const struct doctor_input *in, const char *level)
{
    if (strcmp(level, "PHB") == 0 || strcmp(level, "3") == 0)
        return on_one_node(in);
    return strcmp(level, "SYS") == 0 || strcmp(level, "4") == 0 || strcmp(level, "5") == 0;
}

/* NCCL goes peer-to-peer up to PCIe switches; through the host's bridge only by itself on AMD with two GPUs. */
static void judge_level(const struct doctor_input *in, struct doctor_report *report)
{
    const char *level = doctor_value(in, 0, DOCTOR_NCCL_P2P_LEVEL);
    bool nvlink = in->ranks[0].nvlinks > 0, pair = in->ranks[0].amd == 1 && doctor_gpus(in) <= 2;
    int host = joined_by_host(in);
    char seen[256] = "";
    if (nvlink || (level != NULL && level_reaches(in, level)) || (level == NULL && pair) || host == 0) {
        doctor_fine(report, "nothing keeps NCCL from the peer-to-peer path");
    } else if (host == DOCTOR_UNKNOWN) {
        doctor_unchecked(report,
                         "whether the GPUs are joined by a switch or the host's bridge can't be seen, so "
                         "NCCL_P2P_LEVEL can't be judged");
    } else {
        doctor_append(seen, sizeof seen,
                      "GPUs are joined through the CPU's host bridges, and NCCL_P2P_LEVEL is %s",
                      level != NULL ? level : "unset, so NCCL goes through host memory there");
        doctor_finding(
            report, 3, seen, nccl_cost,
            "NCCL_P2P_LEVEL=SYS (mpirun -x NCCL_P2P_LEVEL=SYS), if the peer path above is found right");
    }
}

void doctor_check_nccl_settings(const struct doctor_input *in, struct doctor_report *report)
{
    int before = report->n;
    if (doctor_why_no_pairs(in) != NULL) {
        doctor_unchecked(report, "%s", doctor_why_no_pairs(in));
        return;
    }
    if (version_of(in->comm.nccl) == 0) {
        doctor_unchecked(report, "there is no NCCL");
        return;
    }
    judge_switched_off(in, DOCTOR_NCCL_P2P_DISABLE, "NCCL_P2P_DISABLE", report);
    judge_switched_off(in, DOCTOR_NCCL_SHM_DISABLE, "NCCL_SHM_DISABLE", report);
    if (in->comm.nodes > 1)
        judge_switched_off(in, DOCTOR_NCCL_IB_DISABLE, "NCCL_IB_DISABLE", report);
    if (report->n == before)
        judge_level(in, report);
}

/* ---- Settings of MPI --------------------------------------------------------------------------------------- */

/* Whether a comma-separated list has the word. */
static bool list_has(const char *list, const char *word)
{
    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        if (length == strlen(word) && strncmp(list, word, length) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

/* OMPI_MCA_btl keeps Open MPI from shared memory: "tcp,self", "^vader". Its name is sm in version 5. */
static bool excludes_shared_memory(const char *btl)
{
    bool not = btl[0] == '^';
    bool named = list_has(btl + not, "vader") || list_has(btl + not, "sm");
    return not ? named : !named;
}

void doctor_check_mpi_settings(const struct doctor_input *in, struct doctor_report *report)
{
    for (int rank = 0; rank < in->size; rank++) {
        const char *btl = doctor_value(in, rank, DOCTOR_OMPI_MCA_btl);
        const char *pml = doctor_value(in, rank, DOCTOR_OMPI_MCA_pml);
        char seen[512] = "";
        if (btl == NULL || !excludes_shared_memory(btl) || (pml != NULL && strcmp(pml, "ob1") != 0))
            continue;
        doctor_append(seen, sizeof seen, "OMPI_MCA_btl=%s on rank %d keeps Open MPI from shared memory", btl,
                      rank);
        doctor_finding(
            report, 2, seen,
            "of the MPI fallback; measured elsewhere (2 CPUs, 2 ranks, MPI_Allreduce of 8 bytes): 18 us "
            "over tcp, 0.2 over shared memory",
            "unset OMPI_MCA_btl, or add to it: vader (Open MPI 5: sm)");
        return;
    }
    doctor_fine(report, "nothing keeps MPI from shared memory");
}
