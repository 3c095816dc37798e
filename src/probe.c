/* The probe of the peer path. First data and flags of every pair of ranks, all at once, by the kernels' own
 * accesses, verified; then, in full, latencies and rates of pairs and of all ranks at once, with the data verified
 * under load. Every step is a launch on each rank, each wait of it bounded by a deadline, and ends in an exchange
 * of verdicts from which all ranks conclude alike. */
#include "figures.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 5000 /* of a step */

#define QUICK_ROUNDS 16 /* of verification */
#define FULL_ROUNDS  64

#define PAIR_ROUNDS     3 /* in each direction; of flags one, which is many trips */
#define FLAG_TRIPS      64
#define TOGETHER_ROUNDS 16
#define STAGE_NS        5000000 /* a stage of a slow path repeats nothing after this */

/* A flag that takes longer on GPUs: the ranks share one and take turns on it, and each further stage would take
 * milliseconds for each of them. */
#define TURNS_US 1000

/* What an active rank moves in a stage, in bytes, and how much of it one time after the other through the same place
 * at the most. A CPU has the second time in its own cache, so it moves all at one time. */
#define CUDA_STAGE (4u << 20)
#define CUDA_PLACE (1u << 20)
#define HOST_STAGE (256u << 10)

/* Grids: of flags and verification, of a pair alone, of all ranks at once; where max_threads allows it. */
#define VERIFY_THREADS  128
#define PAIR_BLOCKS     16
#define TOGETHER_BLOCKS 8

struct probe {
    struct peer_comm *comm;
    uint32_t tag; /* of the next step */
    bool sane;    /* until the reason is in why */
    char *why;
    size_t why_bytes;
    struct peer_verdict mine, all[PEER_MAX_PEERS];
};

static bool on_host(const struct probe *p)
{
    return p->comm->device.ops == &peer_device_host;
}

/* ---- A step ----------------------------------------------------------------------------------------------- */

/* The ranks that this one does wrong by: those it sends to, or those it gets data from. */
static uint32_t wronged(const struct probe *p, bool sends)
{
    const struct peer_probe_fault *fault = &p->comm->config.probe_fault;
    const uint32_t rank = (uint32_t)p->comm->rank;
    if (fault->writer == PEER_CHOICE_AUTO)
        return ~(1u << rank);
    if (rank != (sends ? fault->writer : fault->reader))
        return 0;
    return 1u << (sends ? fault->reader : fault->writer);
}

/* PEER_PROBE_FAULT, as far as it is for this step. */
static void add_fault(const struct probe *p, struct peer_probe_step *step)
{
    const struct peer_probe_fault *fault = &p->comm->config.probe_fault;
    const uint32_t here =
        p->comm->peers.transport == &peer_transport_shm ? PEER_TRANSPORT_SHM : PEER_TRANSPORT_IPC;
    const bool verifies = step->kind == PEER_PROBE_VERIFY;
    const bool moves = step->kind >= PEER_PROBE_STORES;
    if (fault->transport != PEER_TRANSPORT_AUTO && fault->transport != here)
        return;
    if (fault->kind == PEER_FAULT_UNSEEN && verifies)
        step->unseen = wronged(p, true);
    if (fault->kind == PEER_FAULT_WRONG && verifies)
        step->wrong = wronged(p, true);
    if (fault->kind == PEER_FAULT_BUSY && moves && step->pattern == PEER_PROBE_ALL)
        step->wrong = wronged(p, true);
    if (fault->kind == PEER_FAULT_SLOW && moves)
        step->slow = wronged(p, step->kind == PEER_PROBE_STORES);
}

static void set_grid(const struct probe *p, const struct peer_probe_step *step, struct peer_call *call)
{
    const uint32_t most = p->comm->max_threads;
    call->blocks = call->threads = 1;
    if (on_host(p))
        return;
    call->threads = VERIFY_THREADS < most ? VERIFY_THREADS : most;
    if (step->kind < PEER_PROBE_STORES)
        return;
    call->threads = PEER_MAX_THREADS < most ? PEER_MAX_THREADS : most;
    call->blocks = step->pattern == PEER_PROBE_PAIRS ? PAIR_BLOCKS : TOGETHER_BLOCKS;
    if (call->blocks > most / call->threads)
        call->blocks = most / call->threads;
}

/* The first to wait in vain is who has something to tell: others then wait for it. */
static uint32_t first_wait(const struct probe *p)
{
    uint32_t first = UINT32_MAX;
    for (int r = 0; r < p->comm->size; r++)
        if (p->all[r].result.unseen != 0 && p->all[r].result.at < first)
            first = p->all[r].result.at;
    return first;
}

/* The pairs that failed, and the first of them by its reader; says so in why if there are any. */
static void look_for_faults(struct probe *p)
{
    const uint32_t first = first_wait(p);
    const bool unseen = first != UINT32_MAX;
    int reader = -1, writer = -1, pairs = 0;
    char others[48] = "";
    for (int r = 0; r < p->comm->size; r++) {
        const struct peer_probe_result *result = &p->all[r].result;
        const uint32_t ranks = !unseen ? result->wrong : result->at == first ? result->unseen : 0;
        for (int w = 0; w < p->comm->size; w++)
            if (ranks >> w & 1 && pairs++ == 0)
                reader = r, writer = w;
    }
    if (pairs == 0)
        return;
    p->sane = false;
    if (pairs > 1)
        snprintf(others, sizeof others, " (and %d other pairs fail)", pairs - 1);
    snprintf(p->why, p->why_bytes, "the probe failed: rank %d %s rank %d%s", reader,
             unseen ? "never saw a flag from" : "got wrong data from", writer, others);
}

/* Runs the step on all ranks; p->all and p->sane tell what came of it. */
static int run_step(struct probe *p, struct peer_probe_step *step)
{
    struct peer_comm *comm = p->comm;
    struct peer_call call = {.collective = PEER_COLL_BARRIER};
    const uint64_t limit_ns = (uint64_t)TIMEOUT_MS * 1000000;
    int status;
    peer_transport_call(comm, &call);
    set_grid(p, step, &call);
    if (call.timeout_ns > limit_ns)
        call.timeout_ns = limit_ns;
    step->tag = p->tag;
    step->budget_ns = STAGE_NS;
    p->tag += PEER_PROBE_TAGS;
    add_fault(p, step);
    p->mine = (struct peer_verdict){.result.at = UINT32_MAX};
    for (int s = 0; s < PEER_PROBE_STAGES; s++)
        p->mine.result.stage[s].begin_ns = UINT64_MAX;
    p->mine.status = comm->device.ops->probe(&comm->device, &call, step, &p->mine.result);
    status = peer_vote(comm->boot, p->mine.status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &p->mine, p->all, sizeof p->mine);
    if (status == PEER_SUCCESS)
        look_for_faults(p);
    return status;
}

/* ---- The steps -------------------------------------------------------------------------------------------- */

static int verify(struct probe *p, uint32_t rounds, bool *line_ok)
{
    struct peer_probe_step step = {.kind = PEER_PROBE_VERIFY, .stages = rounds};
    int status = run_step(p, &step);
    *line_ok = status == PEER_SUCCESS;
    for (int r = 0; r < p->comm->size && *line_ok; r++)
        *line_ok = p->all[r].result.torn == 0;
    return status;
}

/* How much goes to each target at a time, and how often. */
static void set_amount(const struct probe *p, struct peer_probe_step *step)
{
    const uint32_t size = (uint32_t)p->comm->size;
    const bool many = step->pattern == PEER_PROBE_ALL || step->pattern == PEER_PROBE_SETS;
    const uint32_t targets = many ? size - 1 : 1;
    const uint64_t room = 2 * PEER_HALF_BYTES(p->comm->peers.staging, PEER_PROTO_FLAG) / size;
    uint64_t bytes = (on_host(p) ? HOST_STAGE : CUDA_PLACE) / targets;
    if (bytes > room)
        bytes = room;
    step->bytes = (uint32_t)(bytes / 64 * 64);
    step->repeats = on_host(p) ? 1 : CUDA_STAGE / targets / step->bytes;
}

static int pairs(struct probe *p, uint32_t kind, float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS])
{
    const uint32_t both_ways = 2 * peer_probe_rounds((uint32_t)p->comm->size);
    struct peer_probe_step step = {.kind = kind, .pattern = PEER_PROBE_PAIRS};
    int status;
    set_amount(p, &step);
    if (kind == PEER_PROBE_FLAGS)
        step.repeats = FLAG_TRIPS;
    step.stages = kind == PEER_PROBE_FLAGS ? both_ways : PAIR_ROUNDS * both_ways;
    status = run_step(p, &step);
    if (status == PEER_SUCCESS && p->sane)
        peer_figures_pairs(p->all, p->comm->size, &step, matrix);
    return status;
}

static int together(struct probe *p, uint32_t kind, uint32_t pattern, double *figure)
{
    struct peer_probe_step step = {.kind = kind, .pattern = pattern, .stages = TOGETHER_ROUNDS};
    int status;
    set_amount(p, &step);
    if (pattern == PEER_PROBE_STAGED)
        step.stages = PAIR_ROUNDS * ((uint32_t)p->comm->size - 1);
    status = run_step(p, &step);
    if (status == PEER_SUCCESS && p->sane)
        *figure = peer_figures_together(p->all, p->comm->size, &step);
    return status;
}

/* What each rank gets when all store to their sets, as algorithm island has them: within the islands, or between them. */
static int by_islands(struct probe *p, bool within, double *figure)
{
    const struct peer_grouping *g = &p->comm->grouping;
    struct peer_probe_step step = {
        .kind = PEER_PROBE_STORES, .pattern = PEER_PROBE_SETS, .stages = TOGETHER_ROUNDS};
    struct peer_call call = {.nranks = g->nranks};
    int status;
    for (call.rank = 0; call.rank < g->nranks; call.rank++) {
        peer_set_islands(&call, g->island, g->n);
        step.sets[call.rank] = within ? call.islands.near & ~(1u << call.rank) : call.islands.far;
    }
    set_amount(p, &step);
    status = run_step(p, &step);
    if (status == PEER_SUCCESS && p->sane)
        *figure = peer_figures_together(p->all, p->comm->size, &step);
    return status;
}

static int measure_islands(struct probe *p)
{
    struct peer_comm *comm = p->comm;
    struct peer_figures *f = &comm->figures;
    int status = PEER_SUCCESS;
    peer_islands_settle(comm);
    if (comm->grouping.n > 1) {
        status = by_islands(p, true, &f->near_store_gbs);
        if (status == PEER_SUCCESS && p->sane)
            status = by_islands(p, false, &f->far_store_gbs);
    }
    if (status == PEER_SUCCESS && p->sane)
        peer_figures_islands(f, &comm->matrices, &comm->grouping);
    return status;
}

/* Latencies and rates into the communicator, and the judgement on them. */
static int measure(struct probe *p)
{
    struct peer_comm *comm = p->comm;
    struct peer_figures *f = &comm->figures;
    struct peer_matrices *m = &comm->matrices;
    const int sharers = peer_topology_sharers(comm->ids, comm->size);
    const double floor_gbs = peer_figures_floor(comm->link, sharers);
    const struct {
        uint32_t kind, pattern;
        double *figure;
    } all_at_once[] = {{PEER_PROBE_STORES, PEER_PROBE_ALL, &f->all_store_gbs},
                       {PEER_PROBE_LOADS, PEER_PROBE_ALL, &f->all_load_gbs},
                       {PEER_PROBE_BOTH, PEER_PROBE_ALL, &f->all_both_gbs},
                       {PEER_PROBE_STORES, PEER_PROBE_RING, &f->ring_store_gbs},
                       {PEER_PROBE_STORES, PEER_PROBE_STAGED, &f->staged_store_gbs}};
    int status = pairs(p, PEER_PROBE_FLAGS, m->flag_us);
    if (status == PEER_SUCCESS && p->sane && !on_host(p) &&
        peer_figures_median(m->flag_us, comm->size) > TURNS_US) {
        peer_log(PEER_LOG_DEBUG, "the ranks take turns on a GPU: rates are not measured");
        return status;
    }
    if (status == PEER_SUCCESS && p->sane)
        status = pairs(p, PEER_PROBE_STORES, m->store_gbs);
    if (status == PEER_SUCCESS && p->sane)
        status = pairs(p, PEER_PROBE_LOADS, m->load_gbs);
    if (status == PEER_SUCCESS && p->sane)
        p->sane = peer_figures_pairs_sane(m, comm->size, floor_gbs, p->why, p->why_bytes);
    for (size_t i = 0; i < sizeof all_at_once / sizeof all_at_once[0]; i++)
        if (status == PEER_SUCCESS && p->sane)
            status = together(p, all_at_once[i].kind, all_at_once[i].pattern, all_at_once[i].figure);
    if (status == PEER_SUCCESS && p->sane)
        status = measure_islands(p);
    if (status != PEER_SUCCESS || !p->sane)
        return status;
    peer_figures_settle(f, m, comm->size, comm->link);
    p->sane = peer_figures_together_sane(f, m, comm->size, floor_gbs, p->why, p->why_bytes);
    return status;
}

/* ---- What of it is done ----------------------------------------------------------------------------------- */

/* What rank 0 finds in its cache, for all. */
static int share_cache(struct peer_comm *comm)
{
    struct {
        struct peer_figures figures;
        struct peer_matrices matrices;
    } mine = {0}, *all = calloc((size_t)comm->size, sizeof *all);
    int status = all != NULL ? PEER_SUCCESS : peer_error(PEER_ERR_NO_MEMORY, "no memory for figures");
    if (comm->rank == 0 && !peer_probe_cache_read(comm, &mine.figures, &mine.matrices))
        mine.figures.known = false;
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    if (status == PEER_SUCCESS && all[0].figures.known) {
        comm->figures = all[0].figures;
        comm->matrices = all[0].matrices;
    }
    free(all);
    return status;
}

/* Rates decide what is chosen where data cross a link. */
static bool rates_matter(const struct peer_comm *comm)
{
    return comm->link == PEER_LINK_WIRE || comm->link == PEER_LINK_SHM;
}

static int run(struct probe *p, bool *line_ok)
{
    struct peer_comm *comm = p->comm;
    const bool full = comm->config.probe == PEER_PROBE_FULL;
    /* What is measured by a user's islands, or with faults, is not the machine's. */
    const bool cached = comm->config.probe_fault.kind == PEER_FAULT_NONE && comm->config.islands.nranks == 0;
    int status = verify(p, full ? FULL_ROUNDS : QUICK_ROUNDS, line_ok);
    if (status == PEER_SUCCESS && p->sane && cached && !full)
        status = share_cache(comm);
    if (status != PEER_SUCCESS || !p->sane || comm->figures.known)
        return status;
    if (full || (comm->config.probe == PEER_PROBE_AUTO && rates_matter(comm))) {
        status = measure(p);
        if (status == PEER_SUCCESS && p->sane && cached && comm->figures.known && comm->rank == 0)
            peer_probe_cache_write(comm);
    }
    return status;
}

int peer_probe(struct peer_comm *comm, bool *ok, bool *line_ok, char *why, size_t why_bytes)
{
    struct probe *p;
    int status;
    memset(&comm->figures, 0, sizeof comm->figures);
    memset(&comm->matrices, 0, sizeof comm->matrices);
    *ok = *line_ok = false;
    if (comm->config.probe == PEER_PROBE_OFF) { /* the path is believed, but not that lines don't tear */
        *ok = true;
        return PEER_SUCCESS;
    }
    p = calloc(1, sizeof *p);
    status = p != NULL ? PEER_SUCCESS : peer_error(PEER_ERR_NO_MEMORY, "no memory for the probe");
    status = peer_vote(comm->boot, status);
    if (status == PEER_SUCCESS) {
        p->comm = comm;
        p->tag = PEER_PROBE_EPOCH;
        p->sane = true;
        p->why = why;
        p->why_bytes = why_bytes;
        status = run(p, line_ok);
        *ok = status == PEER_SUCCESS && p->sane;
        comm->figures.known = *ok && comm->figures.known;
    }
    free(p);
    return status;
}
