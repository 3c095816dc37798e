/* The probe's figures from one start to the next: a small text file for each machine, set of ranks and transport, in
 * the user's cache folder. Its first lines say what it is of; a file of anything else is not believed. Numbers are
 * whole millionths, so that no locale reads them differently. That there is no such folder, or that it can't be
 * written, is no error: then the figures are measured again. */
#include "figures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FORMAT     "peercoll probe 2"
#define PATH_BYTES 1024
#define KEY_BYTES  4096
#define MILLION    1e6
#define MOST       1e15 /* millionths: no rate or time is more */

static const struct {
    const char *name;
    size_t offset;
} matrix_rows[] = {
    {"store", offsetof(struct peer_matrices, store_gbs)},
    {"load", offsetof(struct peer_matrices, load_gbs)},
    {"flag", offsetof(struct peer_matrices, flag_us)},
};

#define N_MATRICES (sizeof matrix_rows / sizeof matrix_rows[0])

/* ---- What the figures are of ------------------------------------------------------------------------------- */

/* What follows the colon in the first line of a file that begins with `begin`; "" if there is none. */
static void read_value(const char *path, const char *begin, char *value, size_t value_bytes)
{
    FILE *file = fopen(path, "r");
    char line[256], *colon = NULL;
    value[0] = '\0';
    while (file != NULL && colon == NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, begin, strlen(begin)) == 0)
            colon = strchr(line, ':');
    if (colon != NULL)
        snprintf(value, value_bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    if (file != NULL)
        fclose(file);
}

/* One line: whatever changes the figures when it changes, as far as a process can see it. */
static void key_of(const struct peer_comm *comm, char key[KEY_BYTES])
{
    const bool host = comm->device.ops == &peer_device_host;
    struct utsname system;
    char hardware[256];
    size_t length;
    if (host)
        read_value("/proc/cpuinfo", "model name", hardware, sizeof hardware);
    else
        read_value("/proc/driver/nvidia/version", "NVRM", hardware, sizeof hardware);
    if (uname(&system) != 0)
        system.release[0] = '\0';
    snprintf(key, KEY_BYTES, "%u %s %s, %d ranks, %zu bytes, %s, %s %s, %ld CPUs", comm->ids[0].version,
             comm->device.ops->name, comm->peers.transport->name, comm->size, (size_t)comm->peers.staging,
             hardware, comm->ids[0].host, system.release, sysconf(_SC_NPROCESSORS_ONLN));
    for (int r = 0; r < comm->size && !host; r++) {
        length = strlen(key);
        snprintf(key + length, KEY_BYTES - length, ", %s %s", comm->ids[r].gpu_uuid, comm->ids[r].pci);
    }
}

/* False if there is no place for it. */
static bool folder_of(char folder[PATH_BYTES])
{
    char cache[PATH_BYTES - 64];
    if (!peer_config_cache(cache, sizeof cache))
        return false;
    snprintf(folder, PATH_BYTES, "%s/peercoll", cache);
    return true;
}

static void path_of(const char *folder, const char *key, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%.*s/probe-%016" PRIx64, PATH_BYTES - 32, folder,
             peer_hash(PEER_HASH_START, key));
}

/* ---- Read -------------------------------------------------------------------------------------------------- */

static bool line_is(FILE *file, const char *wanted)
{
    char line[KEY_BYTES + 2];
    size_t length = strlen(wanted);
    return fgets(line, sizeof line, file) != NULL && strncmp(line, wanted, length) == 0 &&
           strcmp(line + length, "\n") == 0;
}

static bool read_number(FILE *file, double *value)
{
    uint64_t millionths;
    if (fscanf(file, "%" SCNu64, &millionths) != 1 || (double)millionths > MOST)
        return false;
    *value = (double)millionths / MILLION;
    return true;
}

static bool read_name(FILE *file, const char *wanted)
{
    char name[32];
    return fscanf(file, "%31s", name) == 1 && strcmp(name, wanted) == 0;
}

/* All entries but those of a rank and itself are greater than 0. */
static bool read_matrix(FILE *file, const char *name, int size, float (*matrix)[PEER_MAX_PEERS])
{
    double value = 0;
    if (!read_name(file, name))
        return false;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            if (!read_number(file, &value) || (value > 0) != (i != j))
                return false;
            matrix[i][j] = (float)value;
        }
    return true;
}

static bool read_figures(FILE *file, const char *key, int size, struct peer_figures *figures,
                         struct peer_matrices *matrices)
{
    bool ok = line_is(file, FORMAT) && line_is(file, key);
    for (size_t i = 0; i < PEER_N_FIGURES && ok; i++) {
        double *value = (double *)((char *)figures + peer_figure_names[i].offset);
        ok = read_name(file, peer_figure_names[i].name) && read_number(file, value) && *value > 0;
    }
    for (size_t i = 0; i < N_MATRICES && ok; i++)
        ok = read_matrix(file, matrix_rows[i].name, size,
                         (float(*)[PEER_MAX_PEERS])((char *)matrices + matrix_rows[i].offset));
    return ok && read_name(file, "end");
}

bool peer_probe_cache_read(const struct peer_comm *comm, struct peer_figures *figures,
                           struct peer_matrices *matrices)
{
    char key[KEY_BYTES], folder[PATH_BYTES], path[PATH_BYTES];
    FILE *file;
    bool ok;
    if (!folder_of(folder) || access(folder, F_OK) != 0)
        return false;
    key_of(comm, key);
    path_of(folder, key, path);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    ok = read_figures(file, key, comm->size, figures, matrices);
    fclose(file);
    if (ok) {
        peer_log(PEER_LOG_DEBUG, "the probe's figures are those of %s", path);
        peer_figures_settle(figures, matrices, comm->size, comm->link);
    } else {
        peer_log(PEER_LOG_DEBUG, "%s is not of this machine and these ranks, or broken: it is ignored", path);
    }
    return ok;
}

/* ---- Write ------------------------------------------------------------------------------------------------- */

static void write_number(FILE *file, double value)
{
    fprintf(file, " %" PRIu64, (uint64_t)(value * MILLION + 0.5));
}

static void write_figures(FILE *file, const struct peer_comm *comm, const char *key)
{
    fprintf(file, "%s\n%s\n", FORMAT, key);
    for (size_t i = 0; i < PEER_N_FIGURES; i++) {
        fprintf(file, "%s", peer_figure_names[i].name);
        write_number(file, *(const double *)((const char *)&comm->figures + peer_figure_names[i].offset));
        fprintf(file, "\n");
    }
    for (size_t i = 0; i < N_MATRICES; i++) {
        const float *matrix = (const float *)((const char *)&comm->matrices + matrix_rows[i].offset);
        fprintf(file, "%s\n", matrix_rows[i].name);
        for (int row = 0; row < comm->size; row++) {
            for (int column = 0; column < comm->size; column++)
                write_number(file, matrix[row * PEER_MAX_PEERS + column]);
            fprintf(file, "\n");
        }
    }
    fprintf(file, "end\n");
}

/* Makes the folder and the one that it lies in. */
static bool make_folder(char *folder)
{
    char *last = strrchr(folder, '/');
    *last = '\0';
    (void)mkdir(folder, 0700);
    *last = '/';
    return mkdir(folder, 0700) == 0 || errno == EEXIST;
}

void peer_probe_cache_write(const struct peer_comm *comm)
{
    char key[KEY_BYTES], folder[PATH_BYTES], path[PATH_BYTES], temp[PATH_BYTES + 8];
    FILE *file = NULL;
    bool ok;
    int fd = -1;
    if (!folder_of(folder))
        return;
    key_of(comm, key);
    path_of(folder, key, path);
    snprintf(temp, sizeof temp, "%s-XXXXXX", path);
    if (make_folder(folder))
        fd = mkstemp(temp);
    if (fd >= 0)
        file = fdopen(fd, "w");
    if (file == NULL) {
        peer_log(PEER_LOG_DEBUG, "can't write %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    write_figures(file, comm, key);
    ok = !ferror(file);
    ok = fclose(file) == 0 && ok && rename(temp, path) == 0;
    if (!ok) {
        peer_log(PEER_LOG_DEBUG, "can't write %s: %s", path, strerror(errno));
        unlink(temp);
    }
}
