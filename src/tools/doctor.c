/* peer_info --check: makes a communicator as a program would, gathers what each rank knows to rank 0, which judges and
 * prints. Whatever fails on the way is something to tell of; only MPI's own failures end it. */
#include "doctor.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "peercoll.h"

/* ---- The communicator -------------------------------------------------------------------------------------- */

/* The log of rank 0, to be read back: a file without a name, that the log opens by its descriptor. */
static FILE *catch_log(MPI_Info info)
{
    FILE *file = tmpfile();
    char path[64];
    if (file == NULL)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    MPI_Info_set(info, "log", "warn");
    MPI_Info_set(info, "log_file", path);
    return file;
}

/* The lines, without "peercoll[0] warn: " and the like before them. */
static void read_log(FILE *file, struct doctor_comm *into)
{
    char line[1024];
    if (file == NULL)
        return;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        bool unknown = strstr(line, " is no setting") != NULL;
        char *to = unknown ? into->no_settings : into->log, *begin = strstr(line, ": ");
        line[strcspn(line, "\n")] = '\0';
        if (begin != NULL)
            doctor_append(to, unknown ? sizeof into->no_settings : sizeof into->log, "%s%s",
                          to[0] != '\0' ? "; " : "", begin + 2);
    }
    fclose(file);
}

static void read_info(PEER_Comm comm, struct doctor_comm *into)
{
    MPI_Info info;
    char nodes[16] = "1";
    int found;
    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS)
        return;
    MPI_Info_get(info, "device", sizeof into->device - 1, into->device, &found);
    MPI_Info_get(info, "transport", sizeof into->transport - 1, into->transport, &found);
    MPI_Info_get(info, "nccl", sizeof into->nccl - 1, into->nccl, &found);
    MPI_Info_get(info, "nodes", sizeof nodes - 1, nodes, &found);
    into->nodes = atoi(nodes);
    MPI_Info_free(&info);
}

/* Collective. On return the GPU has worked, so that its link is awake. */
/* What the full probe measured. */
static void read_rates(PEER_Comm comm, struct doctor_rates *rates)
{
    if (!comm->figures.known)
        return;
    memcpy(rates->store_gbs, comm->matrices.store_gbs, sizeof rates->store_gbs);
    memcpy(rates->load_gbs, comm->matrices.load_gbs, sizeof rates->load_gbs);
    memcpy(rates->flag_us, comm->matrices.flag_us, sizeof rates->flag_us);
    rates->all_store_gbs = comm->figures.all_store_gbs;
    rates->all_load_gbs = comm->figures.all_load_gbs;
}

static void try_communicator(int rank, const struct peer_config *config, struct doctor_comm *into,
                             struct doctor_rates *rates)
{
    PEER_Comm comm = PEER_COMM_NULL;
    MPI_Info info;
    FILE *log;
    char failure[512] = "";
    *into = (struct doctor_comm){.nodes = 1, .device = "none", .transport = "none"};
    MPI_Info_create(&info);
    MPI_Info_set(info, "probe", "full");
    log = rank == 0 ? catch_log(info) : NULL;
    into->status = PEER_Comm_create(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    if (into->status == PEER_SUCCESS)
        into->status = PEER_Barrier(comm, NULL);
    if (into->status != PEER_SUCCESS)
        snprintf(failure, sizeof failure, "%s", PEER_Last_error());
    if (comm != PEER_COMM_NULL) {
        read_info(comm, into);
        read_rates(comm, rates);
        PEER_Comm_free(&comm);
    }
    peer_log_open(config->log, config->log_file, rank);
    read_log(log, into);
    if (failure[0] != '\0')
        snprintf(into->log, sizeof into->log, "%s", failure);
}

/* ---- Gathering and judging --------------------------------------------------------------------------------- */

/* On rank 0. Returns the exit status. */
static int judge(const struct doctor_input *in, bool json)
{
    struct doctor_report *report = malloc(sizeof *report);
    int status = DOCTOR_EXIT_UNABLE;
    if (report == NULL) {
        fprintf(stderr, "peer_info: no memory for a report\n");
        return status;
    }
    doctor_judge(in, report);
    if (!json)
        doctor_print(stdout, in, report);
    if (json && doctor_print_json(stdout, in, report) != PEER_SUCCESS)
        fprintf(stderr, "peer_info: %s\n", PEER_Last_error());
    else
        status = doctor_count(report, DOCTOR_FINDING) > 0 ? DOCTOR_EXIT_FINDINGS : DOCTOR_EXIT_FINE;
    free(report);
    return status;
}

/* Collective. */
static int examine(int rank, int size, const struct peer_config *config, bool json)
{
    struct doctor_input in = {.size = size, .config = *config};
    struct doctor_facts mine, *all = rank == 0 ? malloc((size_t)size * sizeof *all) : NULL;
    char why[sizeof mine.why_no_gpu] = "";
    int status = DOCTOR_EXIT_UNABLE;
    if (rank == 0 && all == NULL) {
        fprintf(stderr, "peer_info: no memory for the facts of %d ranks\n", size);
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    doctor_facts_init(&mine);
    doctor_gather_process("", &mine); /* before the communicator takes its part of /dev/shm */
    if (config->device != PEER_DEVICE_HOST && PEER_Select_device(MPI_COMM_WORLD, NULL) != PEER_SUCCESS)
        snprintf(why, sizeof why, "%.120s", PEER_Last_error());
    try_communicator(rank, config, &in.comm, &in.rates);
    if (config->device != PEER_DEVICE_HOST && why[0] == '\0')
        doctor_gather_gpu(&mine);
    if (why[0] != '\0')
        memcpy(mine.why_no_gpu, why, sizeof why);
    doctor_gather_pci("", &mine);
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (all != NULL) {
        in.ranks = all;
        in.shared_bytes = peer_transport_shared_bytes(config, size);
        status = judge(&in, json);
        free(all);
    }
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return status;
}

int doctor_run(int *argc, char ***argv, bool json)
{
    struct peer_config config;
    int rank, size, bad, any_bad, status = DOCTOR_EXIT_UNABLE;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bad = peer_config_load(&config, NULL) == PEER_SUCCESS ? size : rank; /* the first that is wrong tells */
    MPI_Allreduce(&bad, &any_bad, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (any_bad == size)
        status = examine(rank, size, &config, json);
    else if (any_bad == rank)
        fprintf(stderr, "peer_info: %s\n", PEER_Last_error());
    MPI_Finalize();
    return status;
}
