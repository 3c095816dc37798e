/* The doctor's facts of a GPU and the bridges above it, from sysfs: links, BAR1, NUMA node, IOMMU group, access
 * control. */
#include "doctor.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* PCI Express extended configuration space: a list of capabilities from here on. */
#define EXTENDED_BEGIN 0x100
#define CONFIG_BYTES   4096
#define CAP_ACS        0x000d
#define ACS_CONTROL    6 /* bytes into the capability */

static int read_number(const char *root, const char *pci, const char *name)
{
    char text[64];
    return doctor_read_line(text, sizeof text, root, "/sys/bus/pci/devices/%s/%s", pci, name)
               ? (int)strtol(text, NULL, 0)
               : DOCTOR_UNKNOWN;
}

/* "16.0 GT/s PCIe" */
static int read_rate(const char *root, const char *pci, const char *name)
{
    char text[64];
    double rate;
    doctor_read_line(text, sizeof text, root, "/sys/bus/pci/devices/%s/%s", pci, name);
    rate = strtod(text, NULL);
    return rate > 0 ? (int)(rate * 1000 + 0.5) : DOCTOR_UNKNOWN;
}

/* 0 lanes is how a link says that there is none. */
static int read_width(const char *root, const char *pci, const char *name)
{
    int width = read_number(root, pci, name);
    return width > 0 && width < 255 ? width : DOCTOR_UNKNOWN;
}

static unsigned little_endian(const unsigned char *at, int bytes)
{
    unsigned value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (unsigned)at[i] << 8 * i;
    return value;
}

/* The list may be broken, but ends: each step goes to another place. Without root it is not readable. */
static int read_acs(const char *root, const char *pci)
{
    unsigned char config[CONFIG_BYTES];
    char path[PATH_MAX];
    size_t bytes = 0, at = EXTENDED_BEGIN;
    FILE *from;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", root, pci);
    from = fopen(path, "r");
    if (from != NULL) {
        bytes = fread(config, 1, sizeof config, from);
        fclose(from);
    }
    if (bytes <= EXTENDED_BEGIN)
        return DOCTOR_UNKNOWN;
    for (int steps = 0; steps < CONFIG_BYTES / 8 && at >= EXTENDED_BEGIN && at + 8 <= bytes; steps++) {
        unsigned header = little_endian(config + at, 4);
        if ((header & 0xffff) == CAP_ACS)
            return (int)little_endian(config + at + ACS_CONTROL, 2);
        at = header >> 20;
    }
    return DOCTOR_NO_ACS;
}

static void gather_hop(const char *root, const char *pci, struct doctor_hop *hop)
{
    snprintf(hop->pci, sizeof hop->pci, "%s", pci);
    hop->rate = read_rate(root, pci, "current_link_speed");
    hop->max_rate = read_rate(root, pci, "max_link_speed");
    hop->width = read_width(root, pci, "current_link_width");
    hop->max_width = read_width(root, pci, "max_link_width");
    hop->acs = read_acs(root, pci);
}

/* "0000:3b:00.0" */
static bool is_address(const char *text)
{
    unsigned domain, bus, device, function;
    char end;
    return sscanf(text, "%x:%x:%x.%x%c", &domain, &bus, &device, &function, &end) == 4;
}

/* A device's folder lies in that of the bridge above it, and so on up to the host bridge. */
static void gather_way(const char *root, struct doctor_facts *facts)
{
    char path[PATH_MAX], real[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", root, facts->gpu_pci);
    if (realpath(path, real) == NULL)
        return;
    for (char *slash = strrchr(real, '/');
         slash != NULL && facts->nhops < DOCTOR_HOPS && is_address(slash + 1); slash = strrchr(real, '/')) {
        gather_hop(root, slash + 1, &facts->hop[facts->nhops++]);
        *slash = '\0';
    }
}

/* The second line of `resource`: first and last address of BAR1. */
static int64_t read_bar1(const char *root, const char *pci)
{
    char path[PATH_MAX], line[256] = "";
    unsigned long long first = 0, last = 0;
    FILE *from;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/resource", root, pci);
    from = fopen(path, "r");
    if (from == NULL)
        return 0;
    for (int i = 0; i < 2; i++)
        if (fgets(line, sizeof line, from) == NULL)
            line[0] = '\0';
    fclose(from);
    return sscanf(line, "%llx %llx", &first, &last) == 2 && last > first ? (int64_t)(last - first + 1) : 0;
}

static void gather_numa(const char *root, struct doctor_facts *facts)
{
    char list[1024];
    facts->gpu_numa = read_number(root, facts->gpu_pci, "numa_node");
    if (facts->gpu_numa >= 0 &&
        doctor_read_line(list, sizeof list, root, "/sys/devices/system/node/node%d/cpulist", facts->gpu_numa))
        doctor_cpus_parse(list, &facts->gpu_cpus);
}

static void gather_iommu(const char *root, struct doctor_facts *facts)
{
    char path[PATH_MAX], real[PATH_MAX];
    if (doctor_read_line(facts->iommu_type, sizeof facts->iommu_type, root,
                         "/sys/bus/pci/devices/%s/iommu_group/type", facts->gpu_pci))
        return;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/iommu_group", root, facts->gpu_pci);
    if (facts->nhops > 0 && realpath(path, real) == NULL && errno == ENOENT)
        snprintf(facts->iommu_type, sizeof facts->iommu_type, "none");
}

void doctor_gather_pci(const char *root, struct doctor_facts *facts)
{
    if (facts->gpu_pci[0] == '\0')
        return;
    for (char *c = facts->gpu_pci; *c != '\0'; c++) /* CUDA writes capitals, sysfs small letters */
        *c = (char)tolower((unsigned char)*c);
    gather_way(root, facts);
    if (read_bar1(root, facts->gpu_pci) > 0) /* else NVML's word stands */
        facts->bar1_bytes = read_bar1(root, facts->gpu_pci);
    gather_numa(root, facts);
    gather_iommu(root, facts);
}
