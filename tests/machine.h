/* A made-up machine for tests of the doctor: the files that it reads of /sys, /proc, /etc and /dev, below a folder.
 *
 *   0000:00:01.0 root port
 *     0000:01:00.0 switch, upstream
 *       0000:02:00.0 downstream - 0000:03:00.0 GPU       generation 5, 16 lanes everywhere; NUMA node 0
 *       0000:02:01.0 downstream - 0000:04:00.0 GPU
 *   0000:80:01.0 root port      - 0000:81:00.0 GPU       NUMA node 1
 *
 * 8 CPUs, 0-3 on node 0; processes may run on those. Nothing is wrong with it. */
#ifndef PEER_TEST_MACHINE_H
#define PEER_TEST_MACHINE_H

#include <stddef.h>

#include "src/tools/doctor.h"

#define MACHINE_SWITCH  "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
#define MACHINE_PORT_A  MACHINE_SWITCH "/0000:02:00.0"
#define MACHINE_GPU_A   MACHINE_PORT_A "/0000:03:00.0"
#define MACHINE_PORT_B  MACHINE_SWITCH "/0000:02:01.0"
#define MACHINE_GPU_B   MACHINE_PORT_B "/0000:04:00.0"
#define MACHINE_ROOT_C  "/sys/devices/pci0000:80/0000:80:01.0"
#define MACHINE_GPU_C   MACHINE_ROOT_C "/0000:81:00.0"
#define MACHINE_MODULE  "580.95.05"
#define MACHINE_GBS     52 /* a rate between its GPUs with which nothing is wrong */
#define MACHINE_BOOT_ID "0d0cb7e5-8b66-4a28-8d5c-6f2a7f0b8a11"

/* Makes it below a new folder, whose path this is; machine_remove takes it away. */
const char *machine_create(void);
void machine_remove(const char *root);
/* A file's contents, with its folders; `bytes` of data for one that is not text. */
void machine_write(const char *root, const char *path, const char *text);
void machine_write_bytes(const char *root, const char *path, const void *data, size_t bytes);
/* What a file holds, or NULL if there is none; and puts it back, or takes the file away. */
char *machine_read(const char *root, const char *path);
void machine_restore(const char *root, const char *path, char *before);
/* The configuration space of a bridge whose ACS control register is `control`. */
void machine_write_acs(const char *root, const char *folder, unsigned control);

/* What CUDA and NVML would say of a GPU. */
void machine_give_gpu(struct doctor_facts *facts, const char *uuid, const char *pci);
/* What two ranks gather on it, with GPUs of their own; `second` is the PCI address of rank 1's. */
struct doctor_input machine_gather(const char *root, struct doctor_facts ranks[2], const char *second);
/* The checks that came out so, in the order in which they are told: "acs iommu". */
const char *machine_checks(const struct doctor_report *report, enum doctor_kind kind);

#endif
