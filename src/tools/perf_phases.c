/* perf_phases.c: --phases: where the time of one call goes, by the times that its kernel marks (enum peer_mark).
 *
 * On the host device a call is timed from outside as well, by the same clock. On a GPU only its own clock is looked
 * at: a call begins when the kernel before it on this rank has ended. */
#include "config.h"
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define HOST_CALLS  500
#define LAUNCHES    25 /* on a GPU, each of */
#define CALLS       20 /* calls, of which the first counts as the one before */
#define KERNELS     2  /* of a call at most */
#define MAX_CALLS   1000
#define MARKS_OF(n) ((size_t)(n)*KERNELS * PEER_N_MARKS)

enum phase { LAUNCH, PUBLISH, WAIT, REDUCE, GATHER, END, TOTAL, N_PHASES };

static const char *const names[N_PHASES] = {"launch", "publish", "wait", "reduce", "gather", "end", "total"};

/* Of one size on one rank. */
struct samples {
    int ncalls;
    double ns[N_PHASES][MAX_CALLS];
    bool has[N_PHASES];
};

static void add(struct samples *s, enum phase phase, uint64_t from, uint64_t to)
{
    s->has[phase] = true;
    s->ns[phase][s->ncalls] += (double)(int64_t)(to - from);
}

/* One kernel's marks; `before`: when what came before it ended. */
static void add_kernel(struct samples *s, const uint64_t *m, uint64_t before)
{
    uint64_t at = m[PEER_MARK_SENT];

    add(s, LAUNCH, before, m[PEER_MARK_BEGIN]);
    add(s, PUBLISH, m[PEER_MARK_BEGIN], at);
    if (m[PEER_MARK_ARRIVED] != 0) {
        add(s, WAIT, at, m[PEER_MARK_ARRIVED]);
        at = m[PEER_MARK_ARRIVED];
    }
    if (m[PEER_MARK_REDUCED] != 0) {
        add(s, REDUCE, at, m[PEER_MARK_REDUCED]);
        add(s, GATHER, m[PEER_MARK_REDUCED], m[PEER_MARK_END]);
    } else {
        add(s, REDUCE, at, m[PEER_MARK_END]);
    }
}

/* One call's; `after`: when it returned, or 0. */
static void add_call(struct samples *s, const uint64_t *m, int kernels, uint64_t before, uint64_t after)
{
    uint64_t end = before;

    for (int i = 0; i < kernels; i++, m += PEER_N_MARKS) {
        add_kernel(s, m, end);
        end = m[PEER_MARK_END];
    }
    if (after != 0)
        add(s, END, end, after);
    add(s, TOTAL, before, after != 0 ? after : end);
    s->ncalls++;
}

/* How many kernels the call is; 0 if none of ours. */
static int count_kernels(struct perf *perf, const struct perf_call *call, uint64_t *marks)
{
    perf->comm->last.valid = false;
    perf->comm->marks = marks;
    if (call->collective->run(call, 1) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    bed_sync(&perf->bed);
    return (int)((perf->comm->marks - marks) / PEER_N_MARKS);
}

static void sample_host(struct perf *perf, const struct perf_call *call, int kernels, uint64_t *marks,
                        struct samples *s)
{
    for (int i = 0; i < HOST_CALLS; i++) {
        uint64_t before = peer_now_ns(), after;
        perf->comm->marks = marks;
        if (call->collective->run(call, 1) != PEER_SUCCESS)
            perf_die("%s", PEER_Last_error());
        after = peer_now_ns();
        add_call(s, marks, kernels, before, after);
    }
}

static void sample_cuda(struct perf *perf, const struct perf_case *c, const struct perf_call *call,
                        int kernels, uint64_t *marks, struct samples *s)
{
    struct perf_runner *runner = calloc(1, sizeof *runner);
    uint64_t m[MARKS_OF(CALLS)];
    size_t each = (size_t)kernels * PEER_N_MARKS;

    if (!runner)
        perf_die("out of memory");
    perf->comm->marks = marks;
    if (!perf_runner_open(runner, &perf->bed, call->collective->run, call, c->graph > 0 ? CALLS : 0))
        perf_die("%s", PEER_Last_error());
    for (int launch = 0; launch < LAUNCHES; launch++) {
        perf->comm->marks = marks;
        perf_runner_go(runner, c->graph > 0 ? 1 : CALLS);
        bed_get(&perf->bed, m, marks, sizeof m);
        for (int i = 1; i < CALLS; i++)
            add_call(s, m + (size_t)i * each, kernels, m[(size_t)i * each - PEER_N_MARKS + PEER_MARK_END], 0);
    }
    perf_runner_close(runner);
    free(runner);
}

/* The medians, < 0 of a phase that there is not. */
static void medians(struct samples *s, double *ns)
{
    for (int phase = 0; phase < N_PHASES; phase++)
        ns[phase] = s->has[phase] && s->ncalls > 0 ? perf_median(s->ns[phase], s->ncalls) : -1;
}

static void print_rows(const struct perf *perf, const struct perf_case *c, double (*ns)[N_PHASES])
{
    char plan[64];

    peer_plan_text(&perf->comm->last.plan, peer_comm_transport(perf->comm), plan, sizeof plan);
    for (int r = 0; r < perf->size; r++) {
        printf("  %12zu %12zu %5d", c->bytes, c->count, r);
        for (int phase = 0; phase < N_PHASES; phase++)
            if (ns[r][phase] < 0)
                printf(" %9s", "-");
            else
                printf(" %9.0f", ns[r][phase]);
        printf(" %6s  %s\n", c->graph > 0 ? "graph" : "eager", plan);
    }
    fflush(stdout);
}

void perf_phases(struct perf *perf, const struct perf_case *c)
{
    static const uint64_t zero[MARKS_OF(CALLS)];
    struct perf_call call = perf_call_of(perf, c, PERF_OUT_OF_PLACE);
    struct samples *s = calloc(1, sizeof *s);
    uint64_t *marks = bed_alloc(&perf->bed, sizeof zero);
    double mine[N_PHASES], (*all)[N_PHASES] = calloc((size_t)perf->size, sizeof *all);
    int kernels;

    if (!s || !all)
        perf_die("out of memory");
    bed_put(&perf->bed, marks, zero, sizeof zero);
    kernels = count_kernels(perf, &call, marks);
    MPI_Barrier(MPI_COMM_WORLD);
    if (kernels > 0 && perf->bed.cuda)
        sample_cuda(perf, c, &call, kernels, marks, s);
    else if (kernels > 0)
        sample_host(perf, &call, kernels, marks, s);
    perf->comm->marks = NULL;
    medians(s, mine);
    MPI_Gather(mine, N_PHASES, MPI_DOUBLE, all, N_PHASES, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (perf->rank == 0)
        print_rows(perf, c, all);
    perf->comm->last.valid = false; /* a call like this one would mark again */
    bed_free(&perf->bed, marks);
    free(s);
    free(all);
}

bool perf_phases_open(const struct perf *perf)
{
    if (!perf->comm->peers.ok) {
        if (perf->rank == 0)
            fprintf(stderr, "%s: --phases: where transport %s serves there is no kernel to look into\n",
                    program_invocation_short_name, peer_comm_transport(perf->comm));
        return false;
    }
    if (perf->rank != 0)
        return true;
    printf("# ns on each rank, the median of %d calls, as the first thread of the kernel's first block sees "
           "them\n"
           "# launch:  from %s to the kernel's first instruction\n"
           "# publish: this rank's data are written for the peers, and signalled; in staged, in turns, with "
           "the waits\n"
           "# wait:    until the peers' data are there; under line and ll, which wait line by line, part of "
           "reduce\n"
           "# reduce:  they are combined, or moved, and stored; in twoshot the own part, which is then sent "
           "to all\n"
           "# gather:  twoshot: the other parts are waited for and stored\n"
           "# end:     to the return of the call, on the host device\n"
           "# A message in several pieces: all but the first are in the last of reduce and gather\n#\n"
           "# %12s %12s %5s",
           perf->bed.cuda ? LAUNCHES * (CALLS - 1) : HOST_CALLS,
           perf->bed.cuda ? "the end of the kernel before" : "the call", "size", "count", "rank");
    for (int phase = 0; phase < N_PHASES; phase++)
        printf(" %9s", names[phase]);
    printf(" %6s  %s\n# %12s %12s\n", "mode", "plan", "(B)", "(elements)");
    fflush(stdout);
    return true;
}
