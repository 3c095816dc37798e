/* perf_options.c: the command line of peer_perf, with nccl-tests' letters. */
#include "config.h"
#include "perf.h"
#include "bytes.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of options without a letter. */
enum { KEY_COMPARE = 256, KEY_USAGE, KEY_TUNE, KEY_JSON, KEY_PLOT, KEY_PHASES };

#define LIST_TYPE(name, bytes, text) text ", "
#define LIST_OP(name, text)          text ", "

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "Messages:", 1},
    {"minbytes", 'b', "BYTES", 0, "Smallest message, as 8, 64K, 16M, 1G (default 8)", 1},
    {"maxbytes", 'e', "BYTES", 0, "Largest message (default 16M, or that of -b if -b is given alone)", 1},
    {"stepfactor", 'f', "N", 0, "Each message N times the one before (default 2)", 1},
    {"stepbytes", 'i', "BYTES", 0, "Each message BYTES more than the one before", 1},
    {"datatype", 'd', "TYPE", 0, PEER_DATATYPES(LIST_TYPE) "or all (default: fp32)", 1},
    {"op", 'o', "OP", 0,
     "For collectives that reduce: " PEER_OPS(LIST_OP) "or all: those that the datatype has (default sum)",
     1},
    {"root", 'r', "RANK", 0,
     "For collectives that have a root: the root, or -1, each rank in turn (default 0)", 1},
    {NULL, 0, NULL, 0, "Measurement:", 2},
    {"iters", 'n', "N", 0, "Calls in one run (default: as many as take some 30 ms, 20000 at most)", 2},
    {"warmup", 'w', "N", 0, "Calls before the first run (default 5)", 2},
    {"runs", 'N', "N", 0, "Runs, of which the median counts (default 5)", 2},
    {"graph", 'G', "N", 0,
     "Calls in one CUDA graph; 0: no graphs (default 50 on the cuda device, a row in a graph and a row "
     "without for each message; 0 on the host device)",
     2},
    {"check", 'c', "0|1", 0, "Check the results of some calls besides (default 1)", 2},
    {"compare", KEY_COMPARE, "LIST", 0, "Measure these in turns with us: nccl, mpi or nccl,mpi", 2},
    {NULL, 0, NULL, 0, "Instead of the table of times, or beside it:", 3},
    {"json", KEY_JSON, NULL, 0, "Print one JSON document, and nothing else", 3},
    {"plot", KEY_PLOT, "FILE", 0,
     "Draw latency and bandwidth of all that is compared into FILE, an SVG, through gnuplot", 3},
    {"phases", KEY_PHASES, NULL, 0,
     "Print where the time of one call goes: launch, publish, wait, reduce, gather", 3},
    {"tune", KEY_TUNE, "FILE", 0,
     "Measure every algorithm, protocol, direction and grid, and NCCL, and write the best for each size to "
     "FILE, "
     "for PEER_TABLE. Write --tune=FILE with `=', since Open MPI's mpirun takes a word --tune for its own",
     3},
    {NULL, 0, NULL, 0, "Help:", 4},
    {"help", 'h', NULL, 0, "Print this", 4},
    {"usage", KEY_USAGE, NULL, 0, "Print the options in short", 4},
    {"version", 'V', NULL, 0, "Print the version", 4},
    {0},
};

/* Where a name stands in a list of names; -1 if it doesn't. */
static int find_name(const char *const names[], int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

#define TEXT_OF_TYPE(name, bytes, text) text,
#define TEXT_OF_OP(name, text)          text,
static const char *const type_names[] = {PEER_DATATYPES(TEXT_OF_TYPE)};
static const char *const op_names[] = {PEER_OPS(TEXT_OF_OP)};

const char *perf_type_name(PEER_Datatype datatype)
{
    return type_names[datatype];
}

const char *perf_op_name(PEER_Op op)
{
    return op_names[op];
}

static error_t take_bytes(struct argp_state *state, const char *option, const char *arg, size_t *bytes)
{
    if (parse_bytes(arg, bytes) && *bytes > 0)
        return 0;
    argp_error(state, "%s %s: not a size; give a number of bytes from 1 on, as 8, 64K, 16M or 1G", option,
               arg);
    return EINVAL;
}

static error_t take_root(struct argp_state *state, const char *arg, struct perf_options *options)
{
    size_t value;
    int nranks;

    if (strcmp(arg, "-1") == 0) {
        options->root = -1;
        return 0;
    }
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (parse_bytes(arg, &value) && value < (size_t)nranks) {
        options->root = (int)value;
        return 0;
    }
    argp_error(state, "-r %s: give a rank, from 0 to %d, or -1", arg, nranks - 1);
    return EINVAL;
}

/* Options that take a number, and what is legal. */
static const struct number_option {
    int key, least, most;
    size_t offset; /* of an int in struct perf_options */
} number_options[] = {
    {'f', 2, 1 << 20, offsetof(struct perf_options, step_factor)},
    {'n', 1, 100000000, offsetof(struct perf_options, iters)},
    {'w', 0, 100000000, offsetof(struct perf_options, warmup)},
    {'N', 1, PERF_MAX_RUNS, offsetof(struct perf_options, runs)},
    {'G', 0, 10000, offsetof(struct perf_options, graph)},
    {'c', 0, 1, offsetof(struct perf_options, check)},
};

/* ARGP_ERR_UNKNOWN if the key is none of these options'. */
static error_t take_number(struct argp_state *state, int key, const char *arg)
{
    const struct number_option *option = number_options;
    const struct number_option *end = option + sizeof number_options / sizeof number_options[0];
    size_t value;

    while (option < end && option->key != key)
        option++;
    if (option == end)
        return ARGP_ERR_UNKNOWN;
    if (parse_bytes(arg, &value) && value >= (size_t)option->least && value <= (size_t)option->most) {
        *(int *)((char *)state->input + option->offset) = (int)value;
        return 0;
    }
    argp_error(state, "-%c %s: give a number from %d to %d", key, arg, option->least, option->most);
    return EINVAL;
}

/* One name or "all", as a set of bits. */
static error_t take_names(struct argp_state *state, const char *option, const char *arg,
                          const char *const names[], int n, unsigned *set)
{
    int i = find_name(names, n, arg);
    char legal[256] = "";

    if (i >= 0 || strcmp(arg, "all") == 0) {
        *set = i >= 0 ? 1u << i : (1u << n) - 1;
        return 0;
    }
    for (i = 0; i < n; i++)
        snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s, ", names[i]);
    argp_error(state, "%s %s: give one of %sor all", option, arg, legal);
    return EINVAL;
}

static error_t take_rivals(struct argp_state *state, const char *arg, struct perf_options *options)
{
    const char *name = arg;

    for (;;) {
        size_t length = strcspn(name, ",");
        if (length == 4 && memcmp(name, "nccl", 4) == 0) {
            options->compare_nccl = true;
        } else if (length == 3 && memcmp(name, "mpi", 3) == 0) {
            options->compare_mpi = true;
        } else {
            argp_error(state, "--compare %s: give nccl, mpi or nccl,mpi", arg);
            return EINVAL;
        }
        if (name[length] == '\0')
            return 0;
        name += length + 1;
    }
}

static error_t take_collective(struct argp_state *state, const char *arg, struct perf_options *options)
{
    char names[256];

    if (options->collective) {
        argp_error(state, "%s: one collective at a time, and there is %s already", arg,
                   options->collective->name);
        return EINVAL;
    }
    options->collective = perf_collective_find(arg);
    if (options->collective)
        return 0;
    perf_collective_names(names, sizeof names);
    argp_error(state, "%s: no such collective; there are %s", arg, names);
    return EINVAL;
}

static bool is_one(unsigned set)
{
    return (set & (set - 1)) == 0;
}

/* A table is for one kind of call, and its sizes are powers. */
static error_t finish_tune(struct argp_state *state, const struct perf_options *options)
{
    const char *what = !is_one(options->types)   ? "one datatype, not -d all"
                       : !is_one(options->ops)   ? "one operation, not -o all"
                       : options->root < 0       ? "one root, not -r -1"
                       : options->step_bytes > 0 ? "-f, not -i"
                       : options->compare_nccl || options->compare_mpi
                           ? "no --compare: NCCL is among its ways"
                       : options->json || options->plot ? "neither --json nor --plot"
                                                        : NULL;
    if (what == NULL)
        return 0;
    argp_error(state, "--tune takes %s", what);
    return EINVAL;
}

/* What can be judged only when all is known. */
static error_t finish(struct argp_state *state, struct perf_options *options)
{
    char names[256];

    if (options->help || options->usage || options->version)
        return 0;
    if (!options->collective) {
        perf_collective_names(names, sizeof names);
        argp_error(state, "which collective? Give one of %s", names);
        return EINVAL;
    }
    if (options->max_bytes == 0)
        options->max_bytes = options->min_bytes ? options->min_bytes : (size_t)16 << 20;
    if (options->min_bytes == 0)
        options->min_bytes = 8;
    if (options->min_bytes > options->max_bytes) {
        argp_error(state, "the smallest message has %zu bytes and the largest %zu: exchange -b and -e",
                   options->min_bytes, options->max_bytes);
        return EINVAL;
    }
    if (options->json && perf_json == NULL) {
        argp_error(state, "--json: this program was built without jansson");
        return EINVAL;
    }
    if ((options->plot || options->phases) && options->collective->send == PERF_NOTHING) {
        argp_error(state, "%s: a %s has none", options->plot ? "--plot" : "--phases",
                   options->collective->name);
        return EINVAL;
    }
    if (options->phases &&
        (options->tune || options->json || options->plot || options->compare_nccl || options->compare_mpi)) {
        argp_error(state, "--phases goes with none of --tune, --json, --plot and --compare");
        return EINVAL;
    }
    return options->tune ? finish_tune(state, options) : 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct perf_options *options = state->input;

    switch (key) {
    case 'b':
        return take_bytes(state, "-b", arg, &options->min_bytes);
    case 'e':
        return take_bytes(state, "-e", arg, &options->max_bytes);
    case 'i':
        return take_bytes(state, "-i", arg, &options->step_bytes);
    case 'd':
        return take_names(state, "-d", arg, type_names, PEER_N_DATATYPES, &options->types);
    case 'o':
        return take_names(state, "-o", arg, op_names, PEER_N_OPS, &options->ops);
    case 'r':
        return take_root(state, arg, options);
    case KEY_COMPARE:
        return take_rivals(state, arg, options);
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_PLOT:
        options->plot = arg;
        return 0;
    case KEY_PHASES:
        options->phases = true;
        return 0;
    case KEY_TUNE:
        options->tune = arg;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    case KEY_USAGE:
        options->usage = true;
        return 0;
    case 'V':
        options->version = true;
        return 0;
    case ARGP_KEY_ARG:
        return take_collective(state, arg, options);
    case ARGP_KEY_END:
        return finish(state, options);
    default:
        return take_number(state, key, arg);
    }
}

/* The list of collectives, after all else. */
static char *extend_help(int key, const char *text, void *input)
{
    char names[256], *more = NULL;

    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA)
        return (char *)text;
    perf_collective_names(names, sizeof names);
    if (asprintf(&more, "COLLECTIVE is one of %s.\n", names) < 0)
        return NULL;
    return more;
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .args_doc = "COLLECTIVE",
    .doc = "Measures a collective of peercoll over the ranks that mpirun started, checks its results, and "
           "compares it "
           "with NCCL and MPI."
           "\vEach row gives what nccl-tests gives: the message, then time in us, algorithm and bus "
           "bandwidth in GB/s "
           "and the number of wrong elements, with two buffers and in place; then whether the calls were in "
           "a graph, "
           "the rivals' times with two buffers and their ratio to ours (above 1 we are faster), and what "
           "served our "
           "call. `-' stands for what can't be had. Where each rank has a block, a message is the blocks of "
           "all ranks, "
           "and the count that of one block. Exit status 1 if anything was wrong.\n\n"
           "Example: mpirun -np 2 peer_perf allreduce -b 8 -e 16M --compare mpi",
    .help_filter = extend_help,
};

bool perf_options_parse(struct perf_options *options, int argc, char **argv, int rank)
{
    /* argp's own help would end one rank; all ranks hear of an error and one tells of it. */
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP | (rank == 0 ? 0 : ARGP_NO_ERRS);

    *options = (struct perf_options){
        .step_factor = 2,
        .types = 1u << PEER_FLOAT32,
        .ops = 1u << PEER_SUM,
        .warmup = 5,
        .runs = 5,
        .check = 1,
        .graph = -1,
    };
    return argp_parse(&parser, argc, argv, flags, NULL, options) == 0;
}

bool perf_options_answer(const struct perf_options *options, int rank)
{
    int version;

    if (!options->help && !options->usage && !options->version)
        return false;
    if (rank != 0)
        return true;
    if (options->version) {
        PEER_Get_version(&version);
        printf("peer_perf (peercoll) %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    } else {
        argp_help(&parser, stdout, options->help ? ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK : ARGP_HELP_USAGE,
                  program_invocation_short_name);
    }
    return true;
}
