/* The step that peercoll was made for, with its results checked and timed.
 *
 * A large model that is spread over GPUs without NVLink guesses a few tokens and verifies them in one step. That
 * step makes two small all-reduces per layer: 122 of 43,008 bytes with the defaults. This program makes them, and
 * nothing else, through peercoll, and on the same buffers through NCCL and MPI where these can run. On a GPU a
 * step is one captured graph. Each path makes
 *
 *   one step   into cleared outputs, whose every result is checked
 *   N steps    that are timed: --steps, or as many as fit into --seconds
 *   one step   into cleared outputs, whose every result is checked
 *
 * Every element is a hash of (rank, call, element), so each rank knows what has to come out. From peercoll that is
 * the sum from rank 0 to the last in fp32 (fp64 for fp64), rounded once, bit by bit. NCCL and MPI choose their
 * order and round in between, so their results must be right within what rounding can do.
 *
 * Exit status: 0; 1 if a result was wrong or a call failed; 2 if an option is wrong.
 */
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peercoll.h"
#include "tools/bed.h"
#include "verify_step_numbers.h"

/* ---- The job: what a step is, its data and its right results ---------------------------------------------- */

struct job {
    long layers, per_layer, tokens, hidden, steps;
    double seconds, compute_ms, baseline_tps;
    const struct type *type;

    int rank, size;
    int calls;     /* of a step */
    size_t count;  /* elements of a call */
    size_t nbytes; /* of a call */
    size_t stride; /* bytes from one call's buffer to the next one's: all are aligned as allocations are */
    double tolerance;
    bool progress; /* is shown */

    struct bed bed;
    char *in, *out; /* of all calls; what the collectives work on */
    char *expected; /* the results of all calls; host memory, like staging */
    char *staging;  /* for all calls, and one more */
};

/* Ends all ranks. */
static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("verify_step: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void check_peer(int status, const char *call)
{
    if (status != PEER_SUCCESS)
        fail("%s: %s", call, PEER_Last_error());
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL)
        fail("no memory for %zu bytes: ask for fewer --layers, --tokens or ranks", bytes);
    return memory;
}

static uint64_t hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* What a rank contributes to a call: numbers from -1 to 1. */
static void generate(const struct job *job, int rank, int call, void *buffer)
{
    uint64_t seed = hash(((uint64_t)rank << 32 | (uint64_t)call) + 1);

    for (size_t i = 0; i < job->count; i++)
        store(job->type, buffer, i, ((double)(hash(seed + i) >> 11) - 0x1p52) * 0x1p-52);
}

/* What the call must give: an fp32 (fp64) sum from rank 0 on, rounded once. A double that holds the sum of two
 * floats, rounded to float, is their float sum. */
static void expect(const struct job *job, int call, void *contribution, double *sum, void *result)
{
    bool wide = job->type->datatype == PEER_FLOAT64;

    for (int rank = 0; rank < job->size; rank++) {
        generate(job, rank, call, contribution);
        for (size_t i = 0; i < job->count; i++) {
            double x = decode(job->type, load(job->type, contribution, i));
            double partial = rank == 0 ? x : sum[i] + x;

            sum[i] = wide ? partial : (double)(float)partial;
        }
    }
    for (size_t i = 0; i < job->count; i++)
        store(job->type, result, i, sum[i]);
}

static void prepare(struct job *job, PEER_Comm comm)
{
    double *sum;
    void *contribution;

    job->calls = (int)(job->layers * job->per_layer);
    job->count = (size_t)job->tokens * (size_t)job->hidden;
    job->nbytes = job->count * job->type->bytes;
    job->stride = (job->nbytes + 255) / 256 * 256;
    /* n-1 additions of partial sums of at most n, and the rounding of what we expect */
    job->tolerance = (double)job->size * job->size * job->type->rounding;
    job->progress = job->rank == 0 && isatty(STDERR_FILENO);

    bed_open(&job->bed, comm);
    job->in = bed_alloc(&job->bed, job->calls * job->stride);
    job->out = bed_alloc(&job->bed, job->calls * job->stride);
    job->expected = allocate(job->calls * job->stride);
    job->staging = allocate((job->calls + 1) * job->stride);
    sum = allocate(job->count * sizeof *sum);
    contribution = allocate(job->nbytes);
    for (int call = 0; call < job->calls; call++) {
        expect(job, call, contribution, sum, job->expected + call * job->stride);
        generate(job, job->rank, call, job->staging + call * job->stride);
    }
    bed_put(&job->bed, job->in, job->staging, job->calls * job->stride);
    free(contribution);
    free(sum);
}

static void clean_up(struct job *job)
{
    bed_free(&job->bed, job->in);
    bed_free(&job->bed, job->out);
    bed_close(&job->bed);
    free(job->expected);
    free(job->staging);
}

/* ---- A path: one way to make the step's all-reduces ------------------------------------------------------- */

struct path {
    struct job *job;
    const char *name;
    void (*step)(void *path);
    PEER_Comm comm;          /* peercoll and NCCL, which we reach through peercoll */
    MPI_Datatype type;       /* MPI */
    MPI_Op op;               /* MPI */
    struct bed_graph *graph; /* NULL: the step is called */

    char text[MPI_MAX_INFO_VAL + 1]; /* what served */
    bool exact;                      /* it promises every bit */
    double max_error;                /* if not */
    int wrong_ranks;
    int steps; /* timed */
    double median_us, p99_us;
};

static void step_peer(void *arg)
{
    struct path *path = arg;
    struct job *job = path->job;

    for (int call = 0; call < job->calls; call++) {
        size_t at = call * job->stride;

        check_peer(PEER_Allreduce(job->in + at, job->out + at, job->count, job->type->datatype, PEER_SUM,
                                  path->comm, job->bed.stream),
                   "PEER_Allreduce");
    }
}

/* MPI as a program without peercoll would call it: from host memory, which GPU memory is copied to and from. */
static void step_mpi(void *arg)
{
    struct path *path = arg;
    struct job *job = path->job;
    char *sum = job->staging, *mine = job->staging + job->stride;

    for (int call = 0; call < job->calls; call++) {
        char *in = job->in + call * job->stride, *out = job->out + call * job->stride;

        if (job->bed.cuda) {
            bed_get(&job->bed, mine, in, job->nbytes);
            MPI_Allreduce(mine, sum, (int)job->count, path->type, path->op, MPI_COMM_WORLD);
            bed_put(&job->bed, out, sum, job->nbytes);
        } else {
            MPI_Allreduce(in, out, (int)job->count, path->type, path->op, MPI_COMM_WORLD);
        }
    }
}

/* ---- Running a path ---------------------------------------------------------------------------------------- */

/* One step. Returns its time on this rank, in us; the other ranks are in the same step, since it all-reduces. */
static double take_step(struct path *path)
{
    struct bed *bed = &path->job->bed;

    bed_mark(bed, 0);
    if (path->graph != NULL)
        bed_launch(bed, path->graph);
    else
        path->step(path);
    bed_mark(bed, 1);
    return bed_elapsed_us(bed);
}

/* The information of that name about comm, into text (MPI_MAX_INFO_VAL + 1). */
static void get_info(PEER_Comm comm, const char *key, char *text)
{
    MPI_Info info;
    int found;

    check_peer(PEER_Comm_get_info(comm, &info), "PEER_Comm_get_info");
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &found);
    if (!found)
        fail("PEER_Comm_get_info does not know \"%s\": is this another version's library?", key);
    MPI_Info_free(&info);
}

/* Compares this rank's outputs with what is expected; the first wrong one is told on stderr. */
static bool compare(struct path *path, const char *when)
{
    const struct job *job = path->job;
    size_t nwrong = 0;

    for (int call = 0; call < job->calls; call++) {
        for (size_t i = 0; i < job->count; i++) {
            uint64_t got = load(job->type, job->staging + call * job->stride, i);
            uint64_t expected = load(job->type, job->expected + call * job->stride, i);
            double error = fabs(decode(job->type, got) - decode(job->type, expected));

            if (got == expected)
                continue;
            path->max_error = error > path->max_error ? error : path->max_error;
            if (!path->exact && error <= job->tolerance) /* false for NaN */
                continue;
            if (nwrong++ == 0)
                fprintf(stderr,
                        "verify_step: %s, %s step, rank %d, call %d, element %zu: got 0x%llx (%g), "
                        "expected 0x%llx (%g)\n",
                        path->name, when, job->rank, call, i, (unsigned long long)got, decode(job->type, got),
                        (unsigned long long)expected, decode(job->type, expected));
        }
    }
    if (nwrong > 0)
        fprintf(stderr, "verify_step: %s, %s step, rank %d: %zu of %zu results are wrong\n", path->name, when,
                job->rank, nwrong, job->calls * job->count);
    return nwrong == 0;
}

/* One step into outputs that held no result before. */
static void take_checked_step(struct path *path, const char *when)
{
    struct job *job = path->job;
    int wrong, wrong_ranks;

    memset(job->staging, 0xff, job->calls * job->stride); /* NaNs */
    bed_put(&job->bed, job->out, job->staging, job->calls * job->stride);
    take_step(path);
    if (path->comm != PEER_COMM_NULL) {
        get_info(path->comm, "plan", path->text);
        /* These two have an order of adding of their own. */
        path->exact = strncmp(path->text, "nccl", 4) != 0 && strstr(path->text, "island") == NULL;
    }
    bed_get(&job->bed, job->staging, job->out, job->calls * job->stride);
    wrong = !compare(path, when);
    MPI_Allreduce(&wrong, &wrong_ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    path->wrong_ranks = wrong_ranks > path->wrong_ranks ? wrong_ranks : path->wrong_ranks;
}

/* Rank 0's clock decides for all. */
static bool time_is_left(const struct job *job, double since_us)
{
    int left = bed_now_us() - since_us < job->seconds * 1e6;

    MPI_Bcast(&left, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return left;
}

/* Every ROUND steps the ranks agree whether to go on. That sets them apart, and one step that is not timed brings
 * them together again. */
static void take_timed_steps(struct path *path, double *us)
{
    enum { ROUND = 10 };
    const struct job *job = path->job;
    double since_us = bed_now_us();

    for (path->steps = 0; path->steps < job->steps; path->steps++) {
        if (path->steps % ROUND == 0) {
            if (path->steps > 0 && !time_is_left(job, since_us))
                break;
            if (job->progress)
                fprintf(stderr, "\r%s: %d of %ld steps\033[K", path->name, path->steps, job->steps);
            take_step(path);
        }
        us[path->steps] = take_step(path);
    }
    if (job->progress)
        fputs("\r\033[K", stderr);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run_path(struct path *path)
{
    double *mine = allocate(path->job->steps * sizeof *mine);
    double *slowest = allocate(path->job->steps * sizeof *slowest);

    take_checked_step(path, "first");
    take_timed_steps(path, mine);
    MPI_Allreduce(mine, slowest, path->steps, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, path->steps, sizeof *slowest, compare_doubles);
    path->median_us = (slowest[(path->steps - 1) / 2] + slowest[path->steps / 2]) / 2;
    path->p99_us = slowest[(99 * path->steps + 99) / 100 - 1];
    free(mine);
    free(slowest);
    take_checked_step(path, "last");
    MPI_Allreduce(MPI_IN_PLACE, &path->max_error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

/* ---- The table: rank 0 prints it ---------------------------------------------------------------------------- */

static void print_head(const struct job *job, PEER_Comm comm)
{
    char device[MPI_MAX_INFO_VAL + 1];

    get_info(comm, "device", device);
    if (job->rank != 0)
        return;
    printf("verify_step: %d ranks, %s device; a step is %d all-reduces of %zu bytes (%ld x %ld %s)\n\n",
           job->size, device, job->calls, job->nbytes, job->tokens, job->hidden, job->type->name);
    printf("%-9s %-30s %5s %19s %14s %14s\n", "", "", "", "us per all-reduce ", "communication",
           "break-even");
    printf("%-9s %-30s %5s %9s %9s %14s %14s  %s\n", "", "path", "steps", "median", "p99", "ms per step",
           "accept length", "results");
    fflush(stdout);
}

static void print_path(const struct path *path)
{
    const struct job *job = path->job;
    double communication_ms = path->median_us / 1000;
    bool graph = job->bed.cuda && path->graph != NULL;
    char label[sizeof path->text + 8];

    if (job->rank != 0)
        return;
    snprintf(label, sizeof label, "%s%s", path->text, graph ? ", graph" : "");
    printf("%-9s %-30s %5d %9.2f %9.2f %14.2f %14.2f  ", path->name, label, path->steps,
           path->median_us / job->calls, path->p99_us / job->calls, communication_ms,
           (job->compute_ms + communication_ms) * job->baseline_tps / 1000);
    if (path->wrong_ranks > 0)
        printf("WRONG on %d ranks\n", path->wrong_ranks);
    else if (path->exact || path->max_error == 0)
        printf("all bits right\n");
    else
        printf("right but for rounding (by %.2g)\n", path->max_error);
    fflush(stdout);
}

static void print_foot(const struct job *job)
{
    if (job->rank == 0)
        printf("\nTimes are the slowest rank's. Break-even: a step is %g ms of computing and its "
               "communication;\n"
               "so many tokens it must yield for %g tokens/s.\n",
               job->compute_ms, job->baseline_tps);
}

/* ---- The paths: each returns whether its results were right -------------------------------------------- */

static bool run_comm(struct job *job, PEER_Comm comm, const char *name)
{
    struct path path = {.job = job, .name = name, .step = step_peer, .comm = comm};
    char transport[MPI_MAX_INFO_VAL + 1];

    get_info(comm, "transport", transport);
    if (strcmp(transport, "mpi") != 0) /* MPI can't be captured */
        path.graph = bed_capture(&job->bed, step_peer, &path);
    run_path(&path);
    print_path(&path);
    if (path.graph != NULL)
        bed_graph_free(&job->bed, path.graph);
    return path.wrong_ranks == 0;
}

static bool run_nccl(struct job *job)
{
    PEER_Comm comm;
    MPI_Info info;
    bool right = true;
    int status;

    if (job->size == 1) { /* which the library serves with a copy */
        printf("%-9s can't run: it is not needed for one rank\n", "nccl");
        return true;
    }
    MPI_Info_create(&info);
    MPI_Info_set(info, "transport", "nccl");
    status = PEER_Comm_create(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    if (status == PEER_SUCCESS) {
        right = run_comm(job, comm, "nccl");
        check_peer(PEER_Comm_free(&comm), "PEER_Comm_free");
    } else if (job->rank == 0) {
        printf("%-9s can't run: %s\n", "nccl", PEER_Last_error());
    }
    return right;
}

static bool run_mpi(struct job *job)
{
    struct path path = {.job = job, .name = "mpi", .step = step_mpi, .comm = PEER_COMM_NULL};
    const char *sum = "MPI_SUM";
    bool own = job->type->bytes == 2;

    if (own) {
        MPI_Type_contiguous(2, MPI_BYTE, &path.type);
        MPI_Type_commit(&path.type);
        MPI_Op_create(job->type->datatype == PEER_BFLOAT16 ? add_bf16 : add_fp16, 1, &path.op);
        sum = "own sum";
    } else {
        path.type = job->type->datatype == PEER_FLOAT32 ? MPI_FLOAT : MPI_DOUBLE;
        path.op = MPI_SUM;
    }
    snprintf(path.text, sizeof path.text, "MPI_Allreduce, %s%s", sum, job->bed.cuda ? ", copies" : "");
    run_path(&path);
    if (own) {
        MPI_Op_free(&path.op);
        MPI_Type_free(&path.type);
    }
    print_path(&path);
    return path.wrong_ranks == 0;
}

/* ---- Options -------------------------------------------------------------------------------------------------- */

/* The numbers among the options: whole ones are a long in struct job, the others a double. */
static const struct number {
    const char *name, *help;
    size_t offset;
    bool whole;
    double preset, least, most;
} numbers[] = {
    {"layers", "layers of the model", offsetof(struct job, layers), true, 61, 1, 1e4},
    {"per-layer", "all-reduces per layer", offsetof(struct job, per_layer), true, 2, 1, 1e3},
    {"tokens", "tokens of a step", offsetof(struct job, tokens), true, 3, 1, 1e6},
    {"hidden", "elements per token", offsetof(struct job, hidden), true, 7168, 1, 1e6},
    {"steps", "steps to time on each path", offsetof(struct job, steps), true, 200, 1, 1e6},
    {"seconds", "time for them; a slow path makes fewer", offsetof(struct job, seconds), false, 20, 0, 1e6},
    {"compute-ms", "computing per step, for the break-even; nothing is computed here",
     offsetof(struct job, compute_ms), false, 5, 0, 1e6},
    {"baseline-tps", "tokens/s without guessing, to break even with", offsetof(struct job, baseline_tps),
     false, 82, 0, 1e9},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers, OPTION_TYPE = NUMBERS, OPTION_HELP };

static void print_usage(void)
{
    printf("Usage: mpirun -np RANKS verify_step [OPTION...]\n"
           "Makes and times the all-reduces of a verification step of a large model through peercoll, NCCL\n"
           "and MPI, and checks all results of the first and the last step.\n\n");
    for (int i = 0; i < NUMBERS; i++)
        printf("  --%-12s N   %s (%g)\n", numbers[i].name, numbers[i].help, numbers[i].preset);
    printf("  --%-12s T   of an element: bf16, fp16, fp32 or fp64 (%s)\n", "type", types[0].name);
    printf("  --%-12s     this\n\n", "help");
    printf("The library's settings (PEER_DEVICE, PEER_TRANSPORT, ...) hold for the peercoll path.\n");
}

/* A mistake of the user: told once, and the end of all ranks, which read the same options. */
static void refuse(const struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
static void refuse(const struct job *job, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (job->rank == 0) {
        fputs("verify_step: ", stderr);
        vfprintf(stderr, format, args);
        fputs("; see verify_step --help\n", stderr);
    }
    va_end(args);
    MPI_Finalize();
    exit(2);
}

static void set_number(struct job *job, const struct number *number, double x)
{
    void *field = (char *)job + number->offset;

    if (number->whole)
        *(long *)field = (long)x;
    else
        *(double *)field = x;
}

static void parse_number(struct job *job, const struct number *number, const char *text)
{
    char *end;
    double x = strtod(text, &end);

    if (end == text || *end != '\0' || !(x >= number->least && x <= number->most) ||
        (number->whole && x != (double)(long)x))
        refuse(job, "--%s %s: must be a %snumber from %.0f to %.0f", number->name, text,
               number->whole ? "whole " : "", number->least, number->most);
    set_number(job, number, x);
}

static void parse_type(struct job *job, const char *text)
{
    job->type = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, text) == 0)
            job->type = &types[i];
    if (job->type == NULL)
        refuse(job, "--type %s: must be bf16, fp16, fp32 or fp64", text);
}

static void parse_options(struct job *job, int argc, char **argv)
{
    struct option options[NUMBERS + 3] = {[OPTION_TYPE] = {"type", required_argument, NULL, OPTION_TYPE},
                                          [OPTION_HELP] = {"help", no_argument, NULL, OPTION_HELP}};
    int option;

    for (int i = 0; i < NUMBERS; i++) {
        options[i] = (struct option){numbers[i].name, required_argument, NULL, i};
        set_number(job, &numbers[i], numbers[i].preset);
    }
    job->type = &types[0];
    opterr = job->rank == 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == OPTION_HELP) {
            if (job->rank == 0)
                print_usage();
            MPI_Finalize();
            exit(0);
        }
        if (option == OPTION_TYPE)
            parse_type(job, optarg);
        else if (option >= 0 && option < NUMBERS)
            parse_number(job, &numbers[option], optarg);
        else
            refuse(job, "there is no such option, or it lacks its value");
    }
    if (optind < argc)
        refuse(job, "%s: there are options only", argv[optind]);
    if (job->tokens * job->hidden > INT_MAX)
        refuse(job, "--tokens times --hidden is more than %d, where MPI's counts end", INT_MAX);
}

int main(int argc, char **argv)
{
    struct job job = {0};
    PEER_Comm comm;
    bool right;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    parse_options(&job, argc, argv);
    check_peer(PEER_Select_device(MPI_COMM_WORLD, NULL), "PEER_Select_device");
    check_peer(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), "PEER_Comm_create");
    prepare(&job, comm);

    print_head(&job, comm);
    right = run_comm(&job, comm, "peercoll");
    right = run_nccl(&job) && right;
    right = run_mpi(&job) && right;
    print_foot(&job);

    clean_up(&job);
    check_peer(PEER_Comm_free(&comm), "PEER_Comm_free");
    MPI_Finalize();
    return right ? 0 : 1;
}
