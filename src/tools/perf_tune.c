/* perf_tune.c: --tune: measures every way in which a call can be made, and writes a table of the best.
 *
 * A way is a row; it is in force while it is the communicator's only row of PEER_TABLE. For each size every way gets
 * a few short runs, one that is hopeless but one; then the fastest and the one that selection picked by itself run
 * in turns. A way that was far behind at two sizes in a row, and farther at the second, is not tried at larger ones, and ways that differ in their
 * grids alone not where three of them, a middling, a large and a small one, are hopeless. Decisions follow from times
 * that all ranks got from one reduction, so all ranks take the same. */
#include "config.h"
#include "perf.h"
#include "perf_tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUN_US       2e3 /* of a short run */
#define LONGEST_US   2e4 /* of a run of a slow way */
#define PILOT_US     5e2 /* when calls have run so long their speed is known */
#define MAX_CALLS    4096
#define RUNS         3
#define HOPELESS     1.5   /* times the best so far: it gets no more runs, nor is it cut into pieces */
#define SLOW_FROM    65536 /* bytes: shorter messages tell of latencies alone */
#define SCOUTS       3     /* grids of one kind of way; */
#define SCOUTS_SLOW  2.0   /* if all take so many times the best, no other is tried */
#define SLOW         3.0   /* times the best: slow */
#define SLOW_SIZES   2     /* slow at so many in a row: tried no more */
#define FINALISTS    4     /* and the pick */
#define LAUNCH_US    100   /* a call that takes so long is hopeless or not whether or not it is in a graph, */
#define LONG_US      1000  /* and one that takes so long is as good as in one */
#define PIECES_ABOVE 262144

static struct tune tune;
static struct {
    struct peer_table own;   /* the communicator's own rows */
    int slow[TUNE_MAX_WAYS]; /* sizes in a row at which it was slow, and no less so than at the one before */
    double ratio[TUNE_MAX_WAYS]; /* to the best, at the last of them */
    int best;                    /* of the size before */
    struct perf_case last;
} state;

/* ---- The ways ------------------------------------------------------------------------------------------- */

static void use_rows(struct perf *perf, struct peer_table table)
{
    perf->comm->table = table;
    perf->comm->last.valid = false;
}

static void use_way(struct perf *perf, int way)
{
    use_rows(perf, (struct peer_table){&tune.ways[way], 1});
}

/* The first SCOUTS tell whether the others are worth a trial. */
static void add_grids(struct peer_row row, bool pieces)
{
    static const struct {
        uint32_t blocks, threads;
    } grids[] = {{16, 256}, {64, 512}, {8, 128},  {8, 256},  {8, 512},  {16, 128},
                 {16, 512}, {32, 128}, {32, 256}, {32, 512}, {64, 128}, {64, 256}};
    const bool host = row.link == PEER_LINK_HOST;

    for (row.pieces = 1; row.pieces <= (pieces ? 8 : 1); row.pieces = row.pieces == 1 ? 4 : 2 * row.pieces)
        for (int i = 0; i < (host ? 1 : 12); i++) {
            row.blocks = host ? 1 : grids[i].blocks;
            row.threads = host ? 1 : grids[i].threads;
            tune.ways[tune.nways++] = row;
        }
}

/* Whether the collective has it, and it differs from the others. */
static bool is_way(const struct peer_comm *comm, const struct peer_request *request,
                   const struct peer_row *row)
{
    const bool reduction = request->collective == PEER_COLL_ALLREDUCE ||
                           (request->collective == PEER_COLL_REDUCE && row->algorithm != PEER_ALGO_ONESHOT);

    if (row->algorithm == PEER_ALGO_STAGED)
        return reduction && row->protocol == PEER_PROTO_FLAG && row->direction == PEER_PUSH;
    if (row->algorithm == PEER_ALGO_ISLAND)
        return reduction && row->direction == PEER_PUSH && comm->grouping.n > 1;
    if (row->algorithm == PEER_ALGO_TWOSHOT && !reduction &&
        !(request->collective == PEER_COLL_BCAST && comm->size > 2))
        return false;
    /* In host memory shares that differ are always pushed, see call.c. */
    return row->direction == PEER_PUSH || reduction || comm->link != PEER_LINK_SHM ||
           peer_request_shares(request);
}

/* Every way that this collective has on this communicator. */
static void add_ways(const struct perf *perf, const struct peer_request *request)
{
    const struct peer_comm *comm = perf->comm;
    const bool reduction =
        request->collective == PEER_COLL_ALLREDUCE || request->collective == PEER_COLL_REDUCE;
    struct peer_row row = {.link = comm->link,
                           .collective = request->collective,
                           .min_ranks = (uint32_t)comm->size,
                           .max_ranks = (uint32_t)comm->size,
                           .max_bytes = UINT64_MAX,
                           .path = PEER_PATH_NCCL};

    if (peer_query_of(comm, request).nccl_ok)
        tune.ways[tune.nways++] = row;
    row.path = PEER_PATH_PEER;
    row.blocks = 1;
    row.threads = comm->link == PEER_LINK_HOST ? 1 : 32;
    row.protocol = PEER_PROTO_FLAG;
    if (request->collective == PEER_COLL_BARRIER) {
        tune.ways[tune.nways++] = row;
        return;
    }
    for (row.algorithm = 0; row.algorithm < PEER_N_ALGORITHMS; row.algorithm++)
        for (row.protocol = 0; row.protocol < PEER_N_PROTOCOLS; row.protocol++)
            for (row.direction = 0; row.direction < PEER_N_DIRECTIONS; row.direction++)
                if (is_way(comm, request, &row))
                    add_grids(row, reduction);
}

/* The plan that a way comes to for a call. False if there is none of its kind: a setting, or what the GPU holds at
 * once, has changed it. */
static bool plan_of(struct peer_query query, int way, struct peer_plan *plan)
{
    const struct peer_row *row = &tune.ways[way];

    query.rows = row;
    query.nrows = 1;
    *plan = peer_select(&query);
    if (row->path != PEER_PATH_PEER || plan->path != row->path)
        return plan->path == row->path;
    return plan->algorithm == row->algorithm && plan->protocol == row->protocol &&
           plan->direction == row->direction && plan->threads == row->threads && plan->pieces == row->pieces;
}

static bool same_plan(const struct peer_plan *a, const struct peer_plan *b)
{
    return a->path == b->path &&
           (a->path != PEER_PATH_PEER ||
            (a->algorithm == b->algorithm && a->protocol == b->protocol && a->direction == b->direction &&
             a->blocks == b->blocks && a->threads == b->threads && a->pieces == b->pieces));
}

/* The way that comes to the plan that selection picked; a new one if there is none. */
static int way_of_pick(const struct peer_query *query, const struct peer_plan *pick)
{
    struct peer_row row = tune.ways[tune.nways - 1]; /* for its link, collective and ranks */
    struct peer_plan plan;

    for (int way = 0; way < tune.nways; way++)
        if (plan_of(*query, way, &plan) && same_plan(&plan, pick))
            return way;
    row.path = pick->path;
    row.algorithm = pick->algorithm;
    row.protocol = pick->protocol;
    row.direction = pick->direction;
    row.blocks = pick->blocks;
    row.threads = pick->threads;
    row.pieces = pick->pieces;
    tune.ways[tune.nways] = row;
    return tune.nways++;
}

/* ---- Times ---------------------------------------------------------------------------------------------- */

static int fastest(const double *us)
{
    int best = -1;

    for (int way = 0; way < tune.nways; way++)
        if (us[way] >= 0 && (best < 0 || us[way] < us[best]))
            best = way;
    return best;
}

static int between(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

/* Makes a runner of the way that is in force, whose calls take about `us`: in a graph if that is asked for. A run has
 * as many calls as the fastest way makes in RUN_US, as far as that takes no longer than LONGEST_US: what the ranks
 * need to find each other at its start then weighs the same on all ways. */
static void open_runner(struct perf *perf, const struct perf_case *c, double us, double fastest_us, int graph,
                        struct perf_runner *runner)
{
    struct perf_call call = perf_call_of(perf, c, PERF_OUT_OF_PLACE);
    int most = between(LONGEST_US / us, 1, MAX_CALLS), calls = between(RUN_US / fastest_us, 1, most);
    int per_graph = graph > 0 ? between(calls, 1, graph) : 0;

    if (!perf_runner_open(runner, &perf->bed, call.collective->run, &call, per_graph))
        perf_die("%s", PEER_Last_error());
    runner->units = between((double)calls / perf_runner_calls(runner), 1, MAX_CALLS);
}

/* The time of the way that is in force, the best of a few runs, since hiccups only make one longer. `best`: the best
 * way so far, or < 0. */
static double try_way(struct perf *perf, const struct perf_case *c, double best, struct perf_runner *runner)
{
    const int graph = perf->options.graph;
    double us;

    open_runner(perf, c, RUN_US, RUN_US, 0, runner);
    perf_runner_go(runner, 1);
    us = perf_runner_pilot(runner, PILOT_US);
    perf_runner_close(runner);
    if (graph > 0 && (us > LONG_US || (best >= 0 && us > HOPELESS * best && us > LAUNCH_US)))
        return us;
    open_runner(perf, c, us, best >= 0 && best < us ? best : us, graph, runner);
    us = perf_runner_us(runner, runner->units);
    for (int run = 1; run < RUNS && !(best >= 0 && us > HOPELESS * best && run > 1); run++) {
        double again = perf_runner_us(runner, runner->units);
        us = again < us ? again : us;
    }
    perf_runner_close(runner);
    return us;
}

/* Runs in turns: their medians are the times that count. */
static void final(struct perf *perf, const struct perf_case *c, const int *ways, int n, double *us)
{
    struct perf_runner *runners = calloc((size_t)n, sizeof *runners);
    double best = us[fastest(us)];

    if (!runners)
        perf_die("out of memory");
    for (int i = 0; i < n; i++) {
        use_way(perf, ways[i]);
        open_runner(perf, c, us[ways[i]], best, perf->options.graph, &runners[i]);
    }
    for (int run = 0; run < perf->options.runs; run++)
        for (int i = 0; i < n; i++) {
            use_way(perf, ways[i]);
            perf_runner_go(&runners[i], 1);
            runners[i].us[run] = perf_runner_us(&runners[i], runners[i].units);
        }
    for (int i = 0; i < n; i++) {
        us[ways[i]] = perf_median(runners[i].us, perf->options.runs);
        perf_runner_close(&runners[i]);
    }
    free(runners);
}

/* ---- One size ------------------------------------------------------------------------------------------- */

/* Those that are tried first make the others hopeless the sooner. */
static int in_order(int i, int pick, int before)
{
    return i == 0 ? pick : i == 1 ? before : i - 2;
}

/* The same but for grid and pieces. */
static bool same_way(const struct peer_row *a, const struct peer_row *b)
{
    return a->path == b->path && a->algorithm == b->algorithm && a->protocol == b->protocol &&
           a->direction == b->direction;
}

/* The way that is the same in one piece; the way itself if there is none. */
static int unpieced(int way)
{
    const struct peer_row *row = &tune.ways[way], *other = tune.ways;

    while (other < row && !(same_way(other, row) && other->blocks == row->blocks &&
                            other->threads == row->threads && other->pieces == 1))
        other++;
    return (int)(other - tune.ways);
}

/* Whether the scouts of the way's kind, if it is none of them, were all too slow. */
static bool scouted_out(int way, const double *us, double best)
{
    int first = 0, slow = 0;

    while (!same_way(&tune.ways[first], &tune.ways[way]) || tune.ways[first].pieces != tune.ways[way].pieces)
        first++;
    for (int i = first; i < first + SCOUTS && i < way; i++)
        slow += us[i] < 0 || us[i] > SCOUTS_SLOW * best;
    return way >= first + SCOUTS && slow == SCOUTS;
}

/* Whether it is worth a trial at this size; `plan` is what it comes to, us and best the times so far. */
static bool is_candidate(const struct peer_query *query, int way, const double *us, double best,
                         struct peer_plan *plan)
{
    if (state.slow[way] >= SLOW_SIZES || scouted_out(way, us, best) || !plan_of(*query, way, plan))
        return false;
    return plan->path != PEER_PATH_PEER || plan->pieces == 1 ||
           (query->nbytes >= PIECES_ABOVE && us[unpieced(way)] >= 0 && us[unpieced(way)] <= HOPELESS * best);
}

/* Times every way, ways of one plan once. Returns how many there were. */
static int try_all(struct perf *perf, const struct perf_case *c, const struct peer_query *query, int pick,
                   double *us)
{
    struct peer_plan *plans = calloc((size_t)tune.nways, sizeof *plans);
    struct perf_runner *runner = calloc(1, sizeof *runner);
    double best = -1;
    int tried = 0;

    if (!plans || !runner)
        perf_die("out of memory");
    for (int i = 0; i < tune.nways + 2; i++) {
        int way = in_order(i, pick, state.best), like = 0;
        if (us[way] >= 0 || !(way == pick ? plan_of(*query, way, &plans[way])
                                          : is_candidate(query, way, us, best, &plans[way])))
            continue;
        while (like < tune.nways && (us[like] < 0 || !same_plan(&plans[like], &plans[way])))
            like++;
        if (like < tune.nways) {
            us[way] = us[like];
            continue;
        }
        use_way(perf, way);
        us[way] = try_way(perf, c, best, runner);
        best = best < 0 || us[way] < best ? us[way] : best;
        tried++;
    }
    free(plans);
    free(runner);
    return tried;
}

/* The fastest ways of different times, and the pick first. */
static int finalists(int pick, const double *us, int *ways)
{
    double above = 0;
    int n = 1;

    ways[0] = pick;
    while (n <= FINALISTS) {
        int next = -1;
        for (int way = 0; way < tune.nways; way++)
            if (us[way] > above && us[way] != us[pick] && (next < 0 || us[way] < us[next]))
                next = way;
        if (next < 0)
            break;
        above = us[next];
        ways[n++] = next;
    }
    return n;
}

/* Ways that had the time of a finalist, being of the same plan, get its new one. */
static void settle(const double *before, double *us)
{
    for (int way = 0; way < tune.nways; way++)
        for (int other = 0; other < tune.nways && us[way] == before[way] && us[way] >= 0; other++)
            if (before[other] == before[way] && us[other] != before[other])
                us[way] = us[other];
}

static void count_slow(const double *us, size_t bytes)
{
    for (int way = 0; way < tune.nways; way++)
        if (us[way] >= 0 && bytes >= SLOW_FROM) {
            const double ratio = us[way] / us[state.best];
            const bool slower = state.slow[way] == 0 || ratio >= state.ratio[way];
            state.slow[way] = ratio > SLOW && slower ? state.slow[way] + 1 : ratio > SLOW;
            state.ratio[way] = ratio;
        }
}

static void print_size(const struct perf *perf, const struct perf_case *c, const struct peer_query *query,
                       const struct peer_plan *pick, double pick_us, double best_us, int tried)
{
    struct peer_plan plan;
    char picked[64], best[64];

    if (perf->rank != 0)
        return;
    plan_of(*query, state.best, &plan);
    peer_plan_text(pick, peer_comm_transport(perf->comm), picked, sizeof picked);
    peer_plan_text(&plan, peer_comm_transport(perf->comm), best, sizeof best);
    printf("  %12zu %12zu %10.2f %10.2f %6.2f %6d  %-32s %s\n", c->bytes, c->count, pick_us, best_us,
           pick_us / best_us, tried, picked, best);
    fflush(stdout);
}

void perf_tune(struct perf *perf, const struct perf_case *c)
{
    double *us = tune.us[tune.nsizes], before[TUNE_MAX_WAYS];
    struct perf_call call = perf_call_of(perf, c, PERF_OUT_OF_PLACE);
    struct peer_request request;
    struct peer_query query;
    struct peer_plan pick;
    int way, tried, ways[1 + FINALISTS];

    use_rows(perf, state.own);
    if (call.collective->run(&call, 1) != PEER_SUCCESS)
        perf_die("%s", PEER_Last_error());
    request = perf->comm->last.request;
    query = peer_query_of(perf->comm, &request);
    pick = peer_select(&query);
    if (tune.nsizes == 0)
        add_ways(perf, &request);
    way = way_of_pick(&query, &pick);
    for (int i = 0; i < TUNE_MAX_WAYS; i++)
        us[i] = -1;
    tried = try_all(perf, c, &query, way, us);
    memcpy(before, us, sizeof before);
    final(perf, c, ways, finalists(way, us, ways), us);
    settle(before, us);
    state.best = fastest(us);
    count_slow(us, c->bytes);
    print_size(perf, c, &query, &pick, us[way], us[state.best], tried);
    tune.nbytes[tune.nsizes++] = query.nbytes;
    state.last = *c;
    use_rows(perf, state.own);
}

/* ---- The file ------------------------------------------------------------------------------------------- */

/* There must be a peer path, and the file be writable, before the work begins. */
static bool refuse(const struct perf *perf, char *why, size_t bytes)
{
    const struct peer_comm *comm = perf->comm;
    FILE *file;

    if (!comm->peers.ok) {
        snprintf(why, bytes, "there is nothing to choose from where transport %s serves",
                 peer_comm_transport(comm));
        return true;
    }
    if (perf->rank != 0)
        return false;
    file = fopen(perf->options.tune, "a");
    if (file == NULL)
        snprintf(why, bytes, "%s: %s", perf->options.tune, strerror(errno));
    else
        fclose(file);
    return file == NULL;
}

bool perf_tune_open(struct perf *perf)
{
    char why[512] = "";
    int refused = refuse(perf, why, sizeof why);

    MPI_Bcast(&refused, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (perf->rank == 0 && refused)
        fprintf(stderr, "%s: --tune: %s\n", program_invocation_short_name, why);
    if (refused)
        return false;
    state.own = perf->comm->table;
    if (perf->rank != 0)
        return true;
    printf("# pick: what selection takes by itself; best: the fastest of all that were tried; ratio: pick / "
           "best\n"
           "# time: us per call on the slowest rank%s, pick and best in turns, median of %d runs\n#\n"
           "# %12s %12s %10s %10s %6s %6s  %-32s %s\n# %12s %12s %10s %10s\n",
           perf->options.graph > 0 ? ", in a graph" : "", perf->options.runs, "size", "count", "pick", "best",
           "ratio", "tried", "pick", "best", "(B)", "(elements)", "(us)", "(us)");
    fflush(stdout);
    return true;
}

void perf_tune_close(struct perf *perf)
{
    const struct perf_case *c = &state.last;
    struct peer_row rows[TUNE_MAX_SIZES];
    int n = tune_rows(&tune, rows), version;
    char date[32] = "";
    time_t now = time(NULL);
    FILE *file;

    if (perf->rank != 0)
        return;
    PEER_Get_version(&version);
    strftime(date, sizeof date, "%Y-%m-%d", localtime(&now));
    file = fopen(perf->options.tune, "w");
    if (file == NULL)
        perf_die("%s: %s", perf->options.tune, strerror(errno));
    fprintf(file, "# peer_perf %s --tune, %s: peercoll %d.%d.%d, device %s, %d ranks, link %s, %s%s%s\n",
            perf->options.collective->name, date, version / 10000, version / 100 % 100, version % 100,
            perf->comm->device.ops->name, perf->size, peer_link_name(perf->comm->link),
            c->bytes > 0 ? perf_type_name(c->datatype) : "no data", c->op < PEER_N_OPS ? " " : "",
            c->op < PEER_N_OPS ? perf_op_name(c->op) : "");
    fprintf(file, "# link, collective, ranks, up to bytes, algorithm, blocks x threads / pieces\n");
    tune_write(file, rows, n);
    if (ferror(file) | fclose(file))
        perf_die("%s: %s", perf->options.tune, strerror(errno));
    printf("# %d row%s in %s: use it with PEER_TABLE\n", n, n == 1 ? "" : "s", perf->options.tune);
}
