/* tp_encoder: turns lines of text into vectors with a real model, all-MiniLM-L6-v2, split over MPI's ranks.
 *
 *   ./get-model                                     # fetches the model's files once
 *   mpirun -np 2 tp_encoder --similar=2 lines.txt   # which lines mean about the same?
 *
 * It is the program that peercoll is for: tensor parallelism, with two small all-reduces in each layer, between which
 * there is little to do. encoder.c has the split and the all-reduces, and is what to read first. The others:
 *
 *   text.c, tokenizer.c       lines, on all ranks; lines to token numbers
 *   weights.c                 the published model.safetensors
 *   batches.c                 lines of like length together; on a GPU a graph of the forward pass for each length
 *   ops_host.c, ops_cuda.c    the maths, by CBLAS or cuBLAS; with ops_kernels.cu
 *   results.c, measure.c      what is done with the vectors; times
 *
 * Exit status: 0; 1 if something failed, the ranks' bits differ or --check found vectors too far off. */
#include "config.h"
#include "batches.h"
#include "encoder.h"
#include "measure.h"
#include "results.h"
#include "text.h"
#include "tokenizer.h"
#include "tp_encoder.h"
#include "weights.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    const char *model, *check, *file;
    int batch, similar, runs;
    double cosine, within;
    bool tokens, help;
};

/* ---- What tp_encoder.h promises ------------------------------------------------------------------------------- */

void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("tp_encoder: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    if (memory == NULL)
        fail("no memory for %zu bytes: give fewer lines at once, or a smaller --batch", bytes);
    return memory;
}

void check_peer(int status, const char *call)
{
    if (status != PEER_SUCCESS)
        fail("%s: %s", call, PEER_Last_error());
}

/* ---- Options ------------------------------------------------------------------------------------------------------ */

enum { KEY_SIMILAR = 256, KEY_CHECK, KEY_COSINE, KEY_WITHIN, KEY_TIME, KEY_TOKENS };

static const struct argp_option option_table[] = {
    {"model", 'm', "FOLDER", 0, "Where model.safetensors and vocab.txt are (default all-MiniLM-L6-v2)", 1},
    {"batch", 'b', "LINES", 0, "Lines that are encoded at a time (default 8)", 1},
    {NULL, 0, NULL, 0, "Instead of the vectors, print:", 2},
    {"similar", KEY_SIMILAR, "N", OPTION_ARG_OPTIONAL,
     "With each line the N others that are most like it, and how much: the cosine (default 3)", 2},
    {"check", KEY_CHECK, "FILE", 0,
     "How far they are from the vectors in FILE, as printed before; fail if too far, or if two ranks differ "
     "in a bit",
     2},
    {"cosine", KEY_COSINE, "X", 0, "With --check: the least cosine (default 0.9999)", 2},
    {"within", KEY_WITHIN, "X", 0, "With --check: the most by which a number may differ (default: any)", 2},
    {"time", KEY_TIME, "RUNS", OPTION_ARG_OPTIONAL,
     "How long the first batch takes with peercoll, NCCL, MPI and without all-reduces (default 20)", 2},
    {"tokens", KEY_TOKENS, NULL, 0, "The lines' token numbers", 2},
    {NULL, 0, NULL, 0, "Help:", 3},
    {"help", 'h', NULL, 0, "Print this", 3},
    {0},
};

static error_t take_count(struct argp_state *state, const char *option, const char *arg, int most, int *count)
{
    char *end;
    long value = strtol(arg, &end, 10);

    if (end == arg || *end != '\0' || value < 1 || value > most) {
        argp_error(state, "%s %s: give a whole number from 1 to %d", option, arg, most);
        return EINVAL;
    }
    *count = (int)value;
    return 0;
}

static error_t take_real(struct argp_state *state, const char *option, const char *arg, double *x)
{
    char *end;

    *x = strtod(arg, &end);
    if (end == arg || *end != '\0' || !(*x >= 0)) {
        argp_error(state, "%s %s: give a number from 0 on", option, arg);
        return EINVAL;
    }
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *options = state->input;

    switch (key) {
    case 'm':
        options->model = arg;
        return 0;
    case 'b':
        return take_count(state, "--batch", arg, 1024, &options->batch);
    case KEY_SIMILAR:
        return take_count(state, "--similar", arg ? arg : "3", 1000000, &options->similar);
    case KEY_CHECK:
        options->check = arg;
        return 0;
    case KEY_COSINE:
        return take_real(state, "--cosine", arg, &options->cosine);
    case KEY_WITHIN:
        return take_real(state, "--within", arg, &options->within);
    case KEY_TIME:
        return take_count(state, "--time", arg ? arg : "20", 100000, &options->runs);
    case KEY_TOKENS:
        options->tokens = true;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->file != NULL) {
            argp_error(state, "%s: one file at a time, and there is %s already", arg, options->file);
            return EINVAL;
        }
        options->file = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .args_doc = "[FILE]",
    .doc =
        "Turns lines of text, from FILE or standard input, into vectors of 384 numbers that are alike where "
        "the lines "
        "mean about the same. The model is all-MiniLM-L6-v2, split over the ranks that mpirun started."
        "\vget-model fetches the model. The library's settings (PEER_DEVICE, PEER_TRANSPORT, ...) hold here "
        "too.\n\nExample: mpirun -np 2 tp_encoder --similar=1 lines.txt",
};

/* argp's own help would end one rank; all ranks hear of an error and one tells of it. */
static bool parse_options(struct options *options, int argc, char **argv, int rank)
{
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP | (rank == 0 ? 0 : ARGP_NO_ERRS);

    *options = (struct options){
        .model = "all-MiniLM-L6-v2",
        .batch = 8,
        .cosine = 0.9999,
        .within = INFINITY,
    };
    return argp_parse(&parser, argc, argv, flags, NULL, options) == 0;
}

/* ---- The program --------------------------------------------------------------------------------------------------- */

/* The path of a file of the model; the caller frees it. */
static char *model_file(const struct options *options, const char *name)
{
    size_t size = strlen(options->model) + strlen(name) + 2;
    char *path = allocate(size);

    snprintf(path, size, "%s/%s", options->model, name);
    return path;
}

static void make_tokens(struct tokens *tokens, const struct options *options, const struct text *text)
{
    char *path = model_file(options, "vocab.txt");
    struct tokenizer *tokenizer = tokenizer_open(path);

    tokens_make(tokens, tokenizer, text);
    tokenizer_close(tokenizer);
    free(path);
}

static void print_tokens(const struct tokens *tokens)
{
    for (size_t line = 0; line < tokens->count; line++)
        for (int i = 0; i < tokens->lengths[line]; i++)
            printf("%d%c", tokens->ids[line * MAX_TOKENS + (size_t)i],
                   i < tokens->lengths[line] - 1 ? ' ' : '\n');
}

static void open_encoder(struct encoder *encoder, const struct options *options, PEER_Comm comm, int batch)
{
    char *path = model_file(options, "model.safetensors");
    struct weights *weights = weights_open(path);

    encoder_open(encoder, comm, weights, batch);
    weights_close(weights); /* each rank has its part */
    free(path);
}

/* The first lines, as they come. */
static void put_first_batch(struct encoder *encoder, const struct tokens *tokens, int batch)
{
    size_t *lines = allocate((size_t)batch * sizeof *lines);

    for (size_t i = 0; i < (size_t)batch; i++)
        lines[i] = i;
    batch_put(encoder, tokens, lines, (size_t)batch, batch);
    free(lines);
}

/* Whether what this rank writes to stderr comes out on a terminal. Open MPI's mpirun passes it on through a pipe, so
 * that where its own stderr goes is asked too: it is our parent on the machine where it was called. */
static bool is_on_terminal(void)
{
    char path[64];
    struct stat status;
    bool yes;
    int fd;

    if (isatty(STDERR_FILENO))
        return true;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), STDERR_FILENO);
    if (stat(path, &status) != 0 || !S_ISCHR(status.st_mode))
        return false;
    fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    yes = isatty(fd);
    close(fd);
    return yes;
}

/* All that is done with vectors. Returns whether all is well. */
static bool encode(const struct options *options, const struct text *text, const struct tokens *tokens,
                   int rank)
{
    int batch = text->count < (size_t)options->batch ? (int)text->count : options->batch;
    float *vectors = allocate(text->count * HIDDEN * sizeof *vectors);
    struct encoder encoder;
    PEER_Comm comm;
    int good;

    check_peer(PEER_Select_device(MPI_COMM_WORLD, NULL), "PEER_Select_device");
    check_peer(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), "PEER_Comm_create");
    open_encoder(&encoder, options, comm, batch);
    encode_all(&encoder, tokens, batch, vectors, rank == 0 && is_on_terminal());
    good = same_on_all_ranks(vectors, text->count);
    if (rank == 0 && options->similar > 0)
        print_similar(vectors, text, options->similar);
    if (rank == 0 && options->check != NULL)
        good = check_vectors(vectors, text->count, options->check, options->cosine, options->within) && good;
    if (rank == 0 && options->similar == 0 && options->check == NULL && options->runs == 0)
        print_vectors(vectors, text->count);
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (options->runs > 0) {
        put_first_batch(&encoder, tokens, batch);
        measure(&encoder, options->runs);
    }
    encoder_close(&encoder);
    check_peer(PEER_Comm_free(&comm), "PEER_Comm_free");
    free(vectors);
    return good;
}

static bool run(const struct options *options, int rank)
{
    struct text text;
    struct tokens tokens;
    bool good = true;

    text_read(&text, options->file);
    make_tokens(&tokens, options, &text);
    if (options->tokens) {
        if (rank == 0)
            print_tokens(&tokens);
    } else if (text.count > 0) {
        good = encode(options, &text, &tokens, rank);
    }
    tokens_free(&tokens);
    text_free(&text);
    return good;
}

int main(int argc, char **argv)
{
    struct options options;
    bool good;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    good = parse_options(&options, argc, argv, rank);
    if (good && options.help && rank == 0)
        argp_help(&parser, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, program_invocation_short_name);
    if (good && !options.help)
        good = run(&options, rank);
    MPI_Finalize();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
