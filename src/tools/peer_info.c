/* peer_info: what this build of peercoll can do and what it finds on this machine; its settings, its selection
 * table, and how a communicator of the ranks that mpirun started works.
 *
 * Only --comm, --matrix and --check use MPI, so that all else also runs where mpirun doesn't. */
#include "config.h"
#include "internal.h"
#include "peercoll.h"
#include "bytes.h"
#include "doctor.h"
#include "info_model.h"
#include "matrix.h"

#include <argp.h>
#include <dlfcn.h>
#include <errno.h>

#ifdef HAVE_CUDA
    #include <cuda_runtime_api.h>
#endif
#ifdef HAVE_NCCL
    #include <nccl.h>
#endif

/* What to print; at most one can be asked for. */
enum {
    SHOW_ALL = 0,
    SHOW_SETTINGS = 256,
    SHOW_SELECT,
    SHOW_TABLE,
    SHOW_COMM,
    SHOW_MODEL,
    SHOW_MODEL_CHECK,
    SHOW_MATRIX,
    SHOW_CHECK,
    OPTION_JSON
};

#define SELECT_WORDS 4
#define MOST_WORDS   16

struct options {
    int show;
    bool json;
    char *words[MOST_WORDS]; /* --select: collective, bytes, type, ranks; --model: see info_model.h */
    int nwords;
    const char *file; /* of --model-check */
};

static int complain(const char *text)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
    return EXIT_FAILURE;
}

/* ---- The build ------------------------------------------------------------------------------------------ */

/* As CUDA counts: 13000 is 13.0. */
static void print_build_cuda(void)
{
#ifdef HAVE_CUDA
    printf("  CUDA        %d.%d\n", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
#else
    printf("  CUDA        none: the host device (CPU) is all there is\n");
#endif
#ifdef HAVE_NCCL
    printf("  NCCL        header %d.%d.%d; the library is opened at run time\n", NCCL_MAJOR, NCCL_MINOR,
           NCCL_PATCH);
#else
    printf("  NCCL        none: MPI is the only fallback\n");
#endif
}

static void print_build(void)
{
    const char *best = "base";
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length, version;

    PEER_Get_version(&version);
    MPI_Get_library_version(library, &length); /* legal before MPI_Init */
    library[strcspn(library, ",\n\t")] = '\0';
    printf("peercoll %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    printf("  MPI         %s\n", library);
    print_build_cuda();
#ifdef PEER_HAVE_ISA_VARIANTS
    if (peer_host_kernels() == &peer_host_kernels_avx2)
        best = "avx2";
    else if (peer_host_kernels() == &peer_host_kernels_avx512)
        best = "avx512";
    printf("  CPU kernels base, avx2, avx512; this CPU runs %s\n", best);
#else
    printf("  CPU kernels %s\n", best);
#endif
    printf("  ranks       up to %d by peer kernels, more by NCCL or MPI\n", PEER_MAX_PEERS);
}

/* ---- The machine ---------------------------------------------------------------------------------------- */

#ifdef HAVE_CUDA

static void print_uuid(const unsigned char *bytes)
{
    printf("  GPU-");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

static void print_gpu(int device)
{
    struct cudaDeviceProp properties;
    char pci[32] = "?";
    cudaError_t error = cudaGetDeviceProperties(&properties, device);

    if (error != cudaSuccess) {
        printf("  %d  can't be asked: %s\n", device, cudaGetErrorString(error));
        return;
    }
    cudaDeviceGetPCIBusId(pci, sizeof pci, device);
    printf("  %d  %s", device, properties.name);
    print_uuid((const unsigned char *)properties.uuid.bytes);
    printf("  %s  compute capability %d.%d  %d multiprocessors  %.0f GiB\n", pci, properties.major,
           properties.minor, properties.multiProcessorCount, (double)properties.totalGlobalMem / (1 << 30));
}

static void print_peer_access(int gpus)
{
    printf("peer access, as the driver has it (a communicator tries it out when it is made)\n      ");
    for (int to = 0; to < gpus; to++)
        printf("%4d", to);
    for (int from = 0; from < gpus; from++) {
        printf("\n  %4d", from);
        for (int to = 0; to < gpus; to++) {
            int can = 0;
            if (from != to && cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess)
                can = 0;
            printf("%4s", from == to ? "-" : can ? "yes" : "no");
        }
    }
    printf("\n");
}

static void print_gpus(void)
{
    int gpus = 0, driver = 0;
    cudaError_t error = cudaGetDeviceCount(&gpus);
    const char *why = error != cudaSuccess ? cudaGetErrorString(error) : "no GPU is visible";

    cudaDriverGetVersion(&driver);
    printf("GPUs\n");
    if (error != cudaSuccess || gpus == 0) {
        if (driver == 0) /* CUDA would say that it is too old */
            why = "there is no NVIDIA driver";
        printf("  none: %s. The host device (CPU) serves.\n", why);
        return;
    }
    printf("  driver for CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
    for (int device = 0; device < gpus; device++)
        print_gpu(device);
    if (gpus > 1)
        print_peer_access(gpus);
}

#else

static void print_gpus(void)
{
    printf("GPUs\n  not looked for: this build has no CUDA. The host device (CPU) serves.\n");
}

#endif

/* The library that the loader finds, whether or not the build would use it. */
static void print_nccl(const struct peer_config *config)
{
    const char *path = strcmp(config->nccl, "auto") == 0 ? "libnccl.so.2" : config->nccl;
    void *library;
    int (*get_version)(int *) = NULL;
    int version = 0;

    printf("NCCL library\n");
    if (strcmp(config->nccl, "off") == 0) {
        printf("  not looked for: PEER_NCCL=off\n");
        return;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        printf("  none: %s (PEER_NCCL may name the library)\n", dlerror());
        return;
    }
    *(void **)&get_version = dlsym(library, "ncclGetVersion");
    if (!get_version || get_version(&version) != 0)
        printf("  %s: it doesn't tell its version, so it is no NCCL that we can use\n", path);
    else
        printf("  %s: %d.%d.%d\n", path, version / 10000, version % 10000 / 100, version % 100);
}

static int show_all(void)
{
    struct peer_config config;

    if (peer_config_load(&config, NULL) != PEER_SUCCESS)
        return complain(PEER_Last_error());
    print_build();
    print_gpus();
    print_nccl(&config);
    return EXIT_SUCCESS;
}

static int show_settings(void)
{
    struct peer_config config;

    if (peer_config_load(&config, NULL) != PEER_SUCCESS)
        return complain(PEER_Last_error());
    peer_config_print(stdout, &config);
    return EXIT_SUCCESS;
}

/* ---- Selection ------------------------------------------------------------------------------------------ */

static const char *yes_no(bool known, bool value)
{
    return !known ? "-" : value ? "yes" : "no";
}

/* Prints it with where its row comes from; `table`: the file of PEER_TABLE. */
static void print_plan(const struct peer_query *query, const char *table)
{
    struct peer_plan plan = peer_select(query);
    char text[64];

    peer_plan_text(&plan, "ipc", text, sizeof text);
    printf("%-6s %-5s %-5s %-5s  %-25s ", peer_link_name(query->link), yes_no(true, query->peer_ok),
           yes_no(query->peer_ok, query->line_ok), yes_no(query->link != PEER_LINK_HOST, query->nccl_ok),
           text);
    if (plan.path == PEER_PATH_PEER) {
        printf("row: ");
        peer_select_print_row(stdout, query);
    } else {
        printf("%s", plan.reason);
    }
    if (strcmp(plan.reason, "PEER_TABLE") == 0)
        printf("%s%s", plan.path == PEER_PATH_PEER ? "  of PEER_TABLE " : " ", table);
    printf("\n");
}

/* For each link, whatever the peer path's probe and the search for NCCL may come to. */
static void print_plans(struct peer_query query, const char *table)
{
    printf("%-6s %-5s %-5s %-5s  %-25s %s\n", "link", "peers", "lines", "NCCL", "plan", "from");
    for (int link = PEER_LINK_HOST; link < PEER_N_LINKS; link++) {
        query.link = (enum peer_link)link;
        query.nccl_ok = link != PEER_LINK_HOST;
        query.peer_ok = query.line_ok = true;
        print_plan(&query, table);
        query.line_ok = false;
        print_plan(&query, table);
        query.peer_ok = false;
        print_plan(&query, table);
        if (query.nccl_ok) {
            query.nccl_ok = false;
            print_plan(&query, table);
        }
    }
    printf("link: the CPU's memory, one GPU that the ranks share, a GPU for each rank on PCIe, host memory\n"
           "peers: they map each other's memory; lines: 16 bytes arrive whole; NCCL: it serves the ranks\n"
           "wire: a communicator looks at rows first that it computes from what its probe measured, see "
           "PEER_LOG=info\n");
}

/* The settings, and the rows of PEER_TABLE; false with the reason in PEER_Last_error(). */
static bool load_table(struct peer_config *config, struct peer_table *table)
{
    *table = (struct peer_table){NULL, 0};
    return peer_config_load(config, NULL) == PEER_SUCCESS &&
           (config->table[0] == '\0' || peer_table_read(config->table, table) == PEER_SUCCESS);
}

#define LIST_TYPE(name, bytes, text) " " text

static int show_select(char *const words[SELECT_WORDS])
{
    struct peer_config config;
    struct peer_table table;
    struct peer_query query = {.max_blocks = PEER_MAX_BLOCKS,
                               .max_threads = PEER_MAX_BLOCKS * PEER_MAX_THREADS};
    uint32_t collective = 0, datatype = 0;
    size_t bytes, ranks;

    if (!load_table(&config, &table))
        return complain(PEER_Last_error());
    while (collective < PEER_N_COLLECTIVES && strcmp(peer_collective_name(collective), words[0]) != 0)
        collective++;
    if (collective == PEER_N_COLLECTIVES)
        return complain("--select: no such collective; `peer_info --table' has their names");
    if (!parse_bytes(words[1], &bytes))
        return complain("--select: BYTES must be a number, as 43008, 64K or 16M");
    while (datatype < PEER_N_DATATYPES && strcmp(peer_datatype_name(datatype), words[2]) != 0)
        datatype++;
    if (datatype == PEER_N_DATATYPES)
        return complain("--select: TYPE must be one of" PEER_DATATYPES(LIST_TYPE));
    if (bytes % peer_datatype_bytes(datatype) != 0)
        return complain("--select: BYTES is no whole number of elements of that TYPE");
    if (!parse_bytes(words[3], &ranks) || ranks < 1 || ranks > INT32_MAX)
        return complain("--select: RANKS must be a number from 1 on");
    query.collective = (enum peer_collective)collective;
    query.nbytes = bytes;
    query.nranks = (uint32_t)ranks;
    query.algorithm = config.algorithm;
    query.protocol = config.protocol;
    query.blocks = config.blocks;
    query.direction = config.direction;
    query.threads = config.threads;
    query.pieces = config.pieces;
    query.rows = table.rows;
    query.nrows = table.nrows;
    print_plans(query, config.table);
    peer_table_free(&table);
    return EXIT_SUCCESS;
}

static int show_table(void)
{
    struct peer_config config;
    struct peer_table table;

    if (!load_table(&config, &table))
        return complain(PEER_Last_error());
    if (config.table[0] != '\0')
        printf("# PEER_TABLE %s, then what is built in\n", config.table);
    peer_select_print(stdout, &table);
    peer_table_free(&table);
    return EXIT_SUCCESS;
}

/* ---- A communicator ------------------------------------------------------------------------------------- */

static void print_comm(PEER_Comm comm, int size)
{
    MPI_Info info;
    int nkeys, found;
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];

    if (PEER_Comm_get_info(comm, &info) != PEER_SUCCESS) {
        complain(PEER_Last_error());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    printf("%-12s %d\n", "ranks", size);
    MPI_Info_get_nkeys(info, &nkeys);
    for (int i = 0; i < nkeys; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
        printf("%-12s %s\n", key, value);
    }
    MPI_Info_free(&info);
}

/* Makes one, runs a barrier through it, and prints from rank 0 how it works, or what its probe measured. */
static int show_comm(int *argc, char ***argv, bool matrix)
{
    MPI_Info info = MPI_INFO_NULL;
    PEER_Comm comm;
    int rank, size, status;

    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (PEER_Select_device(MPI_COMM_WORLD, NULL) != PEER_SUCCESS) {
        complain(PEER_Last_error()); /* one rank's GPU may fail alone */
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    if (matrix) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "probe", "full");
    }
    status = PEER_Comm_create(MPI_COMM_WORLD, info, &comm);
    if (matrix)
        MPI_Info_free(&info);
    if (status != PEER_SUCCESS && rank == 0) /* all ranks get the same verdict */
        complain(PEER_Last_error());
    if (status == PEER_SUCCESS) {
        if (PEER_Barrier(comm, NULL) != PEER_SUCCESS) {
            complain(PEER_Last_error());
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
        if (rank == 0 && !matrix)
            print_comm(comm, size);
        if (rank == 0 && (matrix || comm->figures.known))
            matrix_print(comm);
        status = PEER_Comm_free(&comm);
        if (status != PEER_SUCCESS)
            complain(PEER_Last_error());
    }
    MPI_Finalize();
    return status == PEER_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Main ----------------------------------------------------------------------------------------------- */

static const struct argp_option option_table[] = {
    {"settings", SHOW_SETTINGS, NULL, 0, "Print the settings, with the values in force", 1},
    {"select", SHOW_SELECT, NULL, 0,
     "Print how a call would be served: COLLECTIVE BYTES TYPE RANKS, as in: --select allreduce 43008 bf16 8",
     1},
    {"table", SHOW_TABLE, NULL, 0, "Print the table that selection reads", 1},
    {"model", SHOW_MODEL, NULL, 0,
     "Print the times that the cost model predicts: COLLECTIVE RANKS FIGURE=VALUE..., as in: --model "
     "allreduce 8 "
     "flag_us=0.7 all_store_gbs=24 all_load_gbs=22",
     1},
    {"model-check", SHOW_MODEL_CHECK, "FILE", 0,
     "Print the model's predictions beside a file's measurements, as docs/model.md has them", 1},
    {"comm", SHOW_COMM, NULL, 0, "Under mpirun: make a communicator of all ranks and print how it works", 1},
    {"matrix", SHOW_MATRIX, NULL, 0,
     "Under mpirun: measure what the ranks' stores, loads and flags reach, pair by pair and all at once", 1},
    {"check", SHOW_CHECK, NULL, 0,
     "Under mpirun: say what is wrong with this machine's peer path, what it costs, and what to do", 1},
    {"json", OPTION_JSON, NULL, 0, "With --check: print a JSON document", 1},
    {NULL, 'h', NULL, 0, "The same as --help", -1},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *options = state->input;

    switch (key) {
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case SHOW_SETTINGS:
    case SHOW_SELECT:
    case SHOW_TABLE:
    case SHOW_COMM:
    case SHOW_MODEL:
    case SHOW_MODEL_CHECK:
    case SHOW_MATRIX:
    case SHOW_CHECK:
        if (options->show != SHOW_ALL)
            argp_error(state, "one thing at a time");
        options->show = key;
        options->file = arg;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->nwords == (options->show == SHOW_SELECT  ? SELECT_WORDS
                                : options->show == SHOW_MODEL ? MOST_WORDS
                                                              : 0))
            argp_error(state, "%s: there is no use for it here", arg);
        options->words[options->nwords++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (options->json && options->show != SHOW_CHECK)
            argp_error(state, "--json goes with --check");
        if (options->show == SHOW_SELECT && options->nwords < SELECT_WORDS)
            argp_error(state,
                       "--select needs COLLECTIVE BYTES TYPE RANKS, as in: --select allreduce 43008 bf16 8");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const char *argp_program_version = "peer_info (peercoll) " VERSION; /* read by argp for --version */

int main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = option_table,
        .parser = parse_option,
        .args_doc = "\n--settings\n--select COLLECTIVE BYTES TYPE RANKS\n--table\n"
                    "--model COLLECTIVE RANKS FIGURE=VALUE...\n--model-check FILE\n--comm\n--matrix\n--check "
                    "[--json]",
        .doc = "Prints what this build of peercoll can do, and the GPUs and the NCCL that it finds.",
    };
    struct options options = {0};

    argp_err_exit_status = DOCTOR_EXIT_UNABLE;
    argp_parse(&parser, argc, argv, 0, NULL, &options);
    switch (options.show) {
    case SHOW_SETTINGS:
        return show_settings();
    case SHOW_SELECT:
        return show_select(options.words);
    case SHOW_TABLE:
        return show_table();
    case SHOW_MODEL:
        return model_show(options.nwords, options.words);
    case SHOW_MODEL_CHECK:
        return model_check(options.file);
    case SHOW_COMM:
    case SHOW_MATRIX:
        return show_comm(&argc, &argv, options.show == SHOW_MATRIX);
    case SHOW_CHECK:
        return doctor_run(&argc, &argv, options.json);
    default:
        return show_all();
    }
}
