/* The doctor's facts of a process and its machine: files below a root folder, and the environment. What can't be
 * read stays unknown. */
#include "doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NVIDIA 0x10de

void doctor_facts_init(struct doctor_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    facts->shm_device = facts->shm_free = facts->memlock = DOCTOR_UNKNOWN;
    facts->cpu_quota = facts->cpus_online = facts->numa_nodes = facts->virtual_machine = facts->amd =
        DOCTOR_UNKNOWN;
    facts->gpus = facts->iommus = facts->iommu_passthrough = facts->ptrace_scope = DOCTOR_UNKNOWN;
    facts->mps = facts->gpu_numa = facts->nvml_error = DOCTOR_UNKNOWN;
    facts->generation = facts->max_generation = facts->lanes = facts->max_lanes = DOCTOR_UNKNOWN;
    facts->performance_state = facts->persistence = facts->nvlinks = DOCTOR_UNKNOWN;
}

static FILE *open_below(const char *root, const char *path)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    return fopen(full, "r");
}

bool doctor_read_line(char *text, size_t bytes, const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    FILE *from;
    bool read;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    text[0] = '\0';
    from = open_below(root, path);
    read = from != NULL && fgets(text, (int)bytes, from) != NULL;
    if (from != NULL)
        fclose(from);
    text[strcspn(text, "\n")] = '\0';
    return read;
}

/* ---- Sets of CPUs ------------------------------------------------------------------------------------------ */

void doctor_cpus_parse(const char *list, struct doctor_cpus *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    while (isdigit((unsigned char)*list)) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < 64 * DOCTOR_CPU_WORDS; cpu++)
            cpus->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
        list = end + (*end == ',');
    }
}

int doctor_cpus_count(const struct doctor_cpus *cpus)
{
    int count = 0;
    for (int i = 0; i < DOCTOR_CPU_WORDS; i++)
        count += __builtin_popcountll(cpus->word[i]);
    return count;
}

static int count_of_list(const char *root, const char *path)
{
    char list[1024];
    struct doctor_cpus numbers;
    if (!doctor_read_line(list, sizeof list, root, "%s", path))
        return DOCTOR_UNKNOWN;
    doctor_cpus_parse(list, &numbers);
    return doctor_cpus_count(&numbers);
}

/* ---- The process ------------------------------------------------------------------------------------------- */

/* The rest of the line of a file that begins with a word, without white space before it. */
static bool read_field(char *text, size_t bytes, const char *root, const char *path, const char *word)
{
    char line[4096];
    FILE *from = open_below(root, path);
    bool found = false;
    text[0] = '\0';
    while (from != NULL && !found && fgets(line, sizeof line, from) != NULL) {
        found = strncmp(line, word, strlen(word)) == 0;
        if (found)
            snprintf(text, bytes, "%s", line + strlen(word) + strspn(line + strlen(word), " \t:"));
    }
    if (from != NULL)
        fclose(from);
    text[strcspn(text, "\n")] = '\0';
    return found;
}

/* "pid:[4026531836]" */
static void read_namespace(char *text, size_t bytes, const char *root, const char *name)
{
    char path[PATH_MAX];
    ssize_t length;
    snprintf(path, sizeof path, "%s/proc/self/ns/%s", root, name);
    length = readlink(path, text, bytes - 1);
    text[length > 0 ? length : 0] = '\0';
}

static void gather_shared_memory(const char *root, struct doctor_facts *facts)
{
    char path[PATH_MAX];
    struct statvfs room;
    struct stat where;
    snprintf(path, sizeof path, "%s/dev/shm", root);
    if (statvfs(path, &room) == 0)
        facts->shm_free = (int64_t)((uint64_t)room.f_bavail * room.f_frsize);
    if (stat(path, &where) == 0)
        facts->shm_device = (int64_t)where.st_dev;
}

static void gather_limits(const char *root, struct doctor_facts *facts)
{
    char text[4096];
    long long quota, period;
    if (read_field(text, sizeof text, root, "/proc/self/limits", "Max locked memory"))
        facts->memlock = strncmp(text, "unlimited", 9) == 0 ? INT64_MAX : (int64_t)strtoll(text, NULL, 10);
    if (read_field(text, sizeof text, root, "/proc/self/status", "Cpus_allowed_list"))
        doctor_cpus_parse(text, &facts->cpus);
    facts->ncpus = doctor_cpus_count(&facts->cpus);
    /* "150000 100000": microseconds of CPU time in so many of real time; "max": no limit */
    if (doctor_read_line(text, sizeof text, root, "/sys/fs/cgroup/cpu.max") &&
        sscanf(text, "%lld %lld", &quota, &period) == 2 && period > 0)
        facts->cpu_quota = (int32_t)(quota * 100 / period);
}

/* ---- The environment --------------------------------------------------------------------------------------- */

#define NAME(name) #name,
static const char *const names[] = {DOCTOR_VARIABLES(NAME)};
#undef NAME

static void set_variable(struct doctor_variable *variable, const char *value)
{
    variable->set = 1;
    snprintf(variable->value, sizeof variable->value, "%s", value);
    variable->value[strcspn(variable->value, "\n")] = '\0';
}

/* Lines NAME=VALUE, which count where the environment has nothing. */
static void read_nccl_file(const char *root, const char *path, struct doctor_facts *facts)
{
    char line[1024];
    FILE *from = open_below(root, path);
    while (from != NULL && fgets(line, sizeof line, from) != NULL) {
        size_t length = strcspn(line, "=");
        for (int i = 0; i < DOCTOR_N_VARIABLES; i++)
            if (line[length] == '=' && strncmp(names[i], "NCCL_", 5) == 0 && strlen(names[i]) == length &&
                strncmp(names[i], line, length) == 0 && !facts->variable[i].set)
                set_variable(&facts->variable[i], line + length + 1);
    }
    if (from != NULL)
        fclose(from);
}

static void gather_variables(const char *root, struct doctor_facts *facts)
{
    char path[PATH_MAX];
    for (int i = 0; i < DOCTOR_N_VARIABLES; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL)
            set_variable(&facts->variable[i], value);
    }
    if (getenv("HOME") != NULL) {
        snprintf(path, sizeof path, "%s/.nccl.conf", getenv("HOME"));
        read_nccl_file(root, path, facts);
    }
    read_nccl_file(root, "/etc/nccl.conf", facts);
}

/* ---- The machine ------------------------------------------------------------------------------------------- */

/* Calls `of` with each name in a folder, and returns how many it holds for, or DOCTOR_UNKNOWN. */
static int count_entries(const char *root, const char *path, bool (*of)(const char *root, const char *name))
{
    char full[PATH_MAX];
    int count = 0;
    DIR *folder;
    snprintf(full, sizeof full, "%s%s", root, path);
    folder = opendir(full);
    if (folder == NULL)
        return DOCTOR_UNKNOWN;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += entry->d_name[0] != '.' && of(root, entry->d_name);
    closedir(folder);
    return count;
}

static bool any(const char *root, const char *name)
{
    (void)root, (void)name;
    return true;
}

/* NVIDIA's, of class display. */
static bool is_gpu(const char *root, const char *name)
{
    char vendor[32], class[32];
    return doctor_read_line(vendor, sizeof vendor, root, "/sys/bus/pci/devices/%s/vendor", name) &&
           doctor_read_line(class, sizeof class, root, "/sys/bus/pci/devices/%s/class", name) &&
           strtoul(vendor, NULL, 16) == NVIDIA && strtoul(class, NULL, 16) >> 16 == 0x03;
}

/* Whether a word is among those of the kernel's command line. */
static bool has_word(const char *line, const char *word)
{
    const char *at = line;
    while ((at = strstr(at, word)) != NULL) {
        char before = at == line ? ' ' : at[-1], after = at[strlen(word)];
        if (before == ' ' && (after == ' ' || after == '\0'))
            return true;
        at++;
    }
    return false;
}

static void gather_machine(const char *root, struct doctor_facts *facts)
{
    char text[4096];
    facts->cpus_online = count_of_list(root, "/sys/devices/system/cpu/online");
    facts->numa_nodes = count_of_list(root, "/sys/devices/system/node/online");
    facts->gpus = count_entries(root, "/sys/bus/pci/devices", is_gpu);
    facts->iommus = count_entries(root, "/sys/class/iommu", any);
    if (doctor_read_line(text, sizeof text, root, "/proc/cmdline"))
        facts->iommu_passthrough = has_word(text, "iommu=pt") || has_word(text, "iommu.passthrough=1");
    if (read_field(text, sizeof text, root, "/proc/cpuinfo", "vendor_id"))
        facts->amd = strcmp(text, "AuthenticAMD") == 0;
    if (read_field(text, sizeof text, root, "/proc/cpuinfo", "flags"))
        facts->virtual_machine = has_word(text, "hypervisor");
    if (doctor_read_line(text, sizeof text, root, "/proc/sys/kernel/yama/ptrace_scope"))
        facts->ptrace_scope = atoi(text);
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ..." */
    if (doctor_read_line(text, sizeof text, root, "/proc/driver/nvidia/version")) {
        const char *at = text;
        while (*at != '\0' &&
               !(isdigit((unsigned char)at[0]) && strspn(at, "0123456789") >= 3 && at[3] == '.'))
            at++;
        snprintf(facts->module_version, sizeof facts->module_version, "%.*s", (int)strcspn(at, " "), at);
    }
}

void doctor_gather_process(const char *root, struct doctor_facts *facts)
{
    doctor_read_line(facts->boot_id, sizeof facts->boot_id, root, "/proc/sys/kernel/random/boot_id");
    read_namespace(facts->ipc_namespace, sizeof facts->ipc_namespace, root, "ipc");
    read_namespace(facts->pid_namespace, sizeof facts->pid_namespace, root, "pid");
    gather_shared_memory(root, facts);
    gather_limits(root, facts);
    gather_variables(root, facts);
    gather_machine(root, facts);
}
