/* The made-up machine, see machine.h. */
#define _GNU_SOURCE
#include "machine.h"
#include "test.h"

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_BYTES 4096

/* The folders above a path. */
static void make_folders(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
}

void machine_write_bytes(const char *root, const char *path, const void *data, size_t bytes)
{
    char full[PATH_MAX];
    FILE *to;
    snprintf(full, sizeof full, "%s%s", root, path);
    to = fopen(full, "w");
    if (to == NULL) {
        make_folders(full);
        to = fopen(full, "w");
    }
    TEST_TRUE(to != NULL);
    TEST_INT(fwrite(data, 1, bytes, to), bytes);
    TEST_INT(fclose(to), 0);
}

void machine_write(const char *root, const char *path, const char *text)
{
    machine_write_bytes(root, path, text, strlen(text));
}

char *machine_read(const char *root, const char *path)
{
    char full[PATH_MAX], text[1024];
    FILE *from;
    snprintf(full, sizeof full, "%s%s", root, path);
    from = fopen(full, "r");
    if (from == NULL)
        return NULL;
    text[fread(text, 1, sizeof text - 1, from)] = '\0';
    fclose(from);
    return strdup(text);
}

void machine_restore(const char *root, const char *path, char *before)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    if (before != NULL)
        machine_write(root, path, before);
    else
        TEST_INT(unlink(full), 0);
    free(before);
}

static void make_link(const char *root, const char *path, const char *target)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    make_folders(full);
    TEST_INT(symlink(target, full), 0);
}

static void write_attribute(const char *root, const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    machine_write(root, path, text);
}

/* First a capability that is none of ours (1: advanced errors), then access control, which ends the list. */
void machine_write_acs(const char *root, const char *folder, unsigned control)
{
    unsigned char config[CONFIG_BYTES] = {0};
    char path[PATH_MAX];
    config[0x100] = 0x01;
    config[0x102] = 0x02;
    config[0x103] = 0x14; /* the next is at 0x140 */
    config[0x140] = 0x0d;
    config[0x142] = 0x01;
    config[0x146] = (unsigned char)control;
    config[0x147] = (unsigned char)(control >> 8);
    snprintf(path, sizeof path, "%s/config", folder);
    machine_write_bytes(root, path, config, sizeof config);
}

/* What bridges and GPUs have, and the name by which they are found. */
static void make_device(const char *root, const char *folder)
{
    char path[PATH_MAX], target[PATH_MAX];
    write_attribute(root, folder, "vendor", "0x8086\n");
    write_attribute(root, folder, "class", "0x060400\n");
    write_attribute(root, folder, "current_link_speed", "32.0 GT/s PCIe\n");
    write_attribute(root, folder, "max_link_speed", "32.0 GT/s PCIe\n");
    write_attribute(root, folder, "current_link_width", "16\n");
    write_attribute(root, folder, "max_link_width", "16\n");
    machine_write_acs(root, folder, 0x13); /* validation, blocking and forwarding, and no redirection */
    snprintf(path, sizeof path, "/sys/bus/pci/devices%s", strrchr(folder, '/'));
    snprintf(target, sizeof target, "../../../..%s", folder);
    make_link(root, path, target);
}

static void make_gpu(const char *root, const char *folder, const char *node)
{
    make_device(root, folder);
    write_attribute(root, folder, "vendor", "0x10de\n");
    write_attribute(root, folder, "class", "0x030200\n");
    write_attribute(root, folder, "resource",
                    "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
                    "0x0000040000000000 0x0000043fffffffff 0x000000000014220c\n"
                    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
    write_attribute(root, folder, "numa_node", node);
    write_attribute(root, folder, "iommu_group/type", "identity\n");
}

static void make_processes(const char *root)
{
    machine_write(root, "/proc/sys/kernel/random/boot_id", MACHINE_BOOT_ID "\n");
    machine_write(root, "/proc/sys/kernel/yama/ptrace_scope", "1\n");
    machine_write(root, "/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n");
    machine_write(root, "/proc/cpuinfo",
                  "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx2\n\n");
    machine_write(root, "/proc/driver/nvidia/version",
                  "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " MACHINE_MODULE "  Tue Sep 23\n");
    machine_write(root, "/proc/self/status",
                  "Name:\tpeer_info\nCpus_allowed:\t0f\nCpus_allowed_list:\t0-3\n");
    machine_write(root, "/proc/self/limits",
                  "Limit                     Soft Limit           Hard Limit           Units     \n"
                  "Max locked memory         8388608              8388608              bytes     \n");
    make_link(root, "/proc/self/ns/ipc", "ipc:[4026531839]");
    make_link(root, "/proc/self/ns/pid", "pid:[4026531836]");
}

const char *machine_create(void)
{
    static char root[64];
    strcpy(root, "/tmp/peercoll-machine-XXXXXX");
    TEST_TRUE(mkdtemp(root) != NULL);
    make_device(root, "/sys/devices/pci0000:00/0000:00:01.0");
    make_device(root, MACHINE_SWITCH);
    make_device(root, MACHINE_PORT_A);
    make_device(root, MACHINE_PORT_B);
    make_gpu(root, MACHINE_GPU_A, "0\n");
    make_gpu(root, MACHINE_GPU_B, "0\n");
    make_device(root, MACHINE_ROOT_C);
    make_gpu(root, MACHINE_GPU_C, "1\n");
    machine_write(root, "/sys/devices/system/cpu/online", "0-7\n");
    machine_write(root, "/sys/devices/system/node/online", "0-1\n");
    machine_write(root, "/sys/devices/system/node/node0/cpulist", "0-3\n");
    machine_write(root, "/sys/devices/system/node/node1/cpulist", "4-7\n");
    machine_write(root, "/sys/class/iommu/dmar0/name", "dmar0\n");
    machine_write(root, "/sys/fs/cgroup/cpu.max", "max 100000\n");
    machine_write(root, "/dev/shm/a-file", "");
    make_processes(root);
    return root;
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where)
{
    (void)what, (void)kind, (void)where;
    return remove(path);
}

void machine_remove(const char *root)
{
    TEST_INT(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- The doctor's view of it ------------------------------------------------------------------------------- */

void machine_give_gpu(struct doctor_facts *facts, const char *uuid, const char *pci)
{
    strcpy(facts->gpu_uuid, uuid);
    strcpy(facts->gpu_name, "a GPU");
    strcpy(facts->gpu_pci, pci);
    strcpy(facts->driver_version, MACHINE_MODULE);
    facts->gpus_visible = 3;
    facts->gpu_bytes = INT64_C(140) << 30;
    facts->driver_cuda = facts->runtime_cuda = 13000;
    facts->mps = 0;
    facts->nvml_error = 0;
    facts->performance_state = 0;
    facts->persistence = 1;
    facts->nvlinks = 0;
}

struct doctor_input machine_gather(const char *root, struct doctor_facts ranks[2], const char *second)
{
    struct doctor_input in = {.size = 2, .ranks = ranks};
    for (int rank = 0; rank < in.size; rank++) {
        doctor_facts_init(&ranks[rank]);
        doctor_gather_process(root, &ranks[rank]);
        machine_give_gpu(&ranks[rank], rank == 0 ? "aa" : "bb", rank == 0 ? "0000:03:00.0" : second);
        doctor_gather_pci(root, &ranks[rank]);
        ranks[rank].shm_free = INT64_C(1) << 30; /* the folder's file system says nothing */
    }
    TEST_OK(peer_config_load(&in.config, NULL));
    in.comm = (struct doctor_comm){
        .status = PEER_SUCCESS, .nodes = 1, .device = "cuda", .transport = "ipc", .nccl = "2.28.3"};
    in.shared_bytes = peer_transport_shared_bytes(&in.config, in.size);
    in.rates.store_gbs[0][1] = in.rates.store_gbs[1][0] = MACHINE_GBS;
    return in;
}

const char *machine_checks(const struct doctor_report *report, enum doctor_kind kind)
{
    static char text[512];
    text[0] = '\0';
    for (int i = 0; i < report->n; i++)
        if (report->items[i].kind == kind)
            doctor_append(text, sizeof text, "%s%s", text[0] != '\0' ? " " : "", report->items[i].check);
    return text;
}
