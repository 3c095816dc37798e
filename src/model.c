/* The cost model: T = T0 + rounds x latency + bytes / rate. An algorithm is told as one to three steps, in each of
 * which all ranks send and then wait; what a step costs follows from its bytes and from how they travel. Each algorithm
 * is one function and one line of `algorithms`. Times are microseconds, rates GB/s (10^9 bytes). */
#include "model.h"

#include <math.h>
#include <string.h>

#define BYTES_PER_US 1000.0 /* of 1 GB/s */

/* ---- Constants ------------------------------------------------------------------------------------------ */

/* Of a device. docs/model.md has the measurement behind each. */
struct constants {
    double start; /* a kernel in a graph begins and ends */
    double share; /* of each further rank on the same GPU */
    double data;  /* own data are read, results written: once a call */
    double round; /* polls, one pack reduced, block sync: of a step */
    double peer;  /* of each peer but the first, in a step */
    double fence; /* what was stored is ordered before the flag that tells of it: of a step under flag */
};

static const struct constants cuda_constants = {0.65, 0.30, 0.70, 0.25, 0.10, 2.10};
static const struct constants host_constants = {0.02, 0.00, 0.01, 0.01, 0.02, 0.00};

/* A read's way there and back, in ways of a flag. Over PCIe to a GPU a flag is a write that a local poll sees, and a
 * read is two such ways. Through the host's memory the poll itself is a read, and a flag's way is the write, that
 * read and half of the one before. */
static const double read_trip[PEER_N_LINKS] = {[PEER_LINK_WIRE] = 2.0, [PEER_LINK_SHM] = 0.6};

/* Bytes on the way for a byte of data. */
static const struct {
    const char *name;
    double bytes;
    bool fence;
} protocols[] = {[PEER_PROTO_LINE] = {"line", 4.0 / 3, false},
                 [PEER_PROTO_LL] = {"ll", 2, false},
                 [PEER_PROTO_FLAG] = {"flag", 1, true},
                 [PEER_MODEL_SENTINEL] = {"sentinel", 1, false}};

/* NCCL's ring by its own tables: base and hop of its low-latency protocol. */
#define NCCL_BASE 6.6
#define NCCL_HOP  1.0
/* It has to be faster by what the model errs of it: it promises less of its results. */
#define NCCL_MARGIN 1.25
/* So has island, of which no published measurement tells the rates between islands. */
#define ISLAND_MARGIN 1.25

/* Bytes of a partial sum for a byte of data: bf16 and fp16 are added up in fp32. */
#define SUM_WIDTH 2

/* ---- Steps of the algorithms ---------------------------------------------------------------------------- */

/* Between whom data go in a step: all ranks, those of an island, or those that own a column in different ones. */
enum level { ALL_RANKS, NEAR, FAR };

/* Bytes of data of one step. */
struct step {
    enum level level;
    double sends;      /* of the rank that sends the most, counted once for each reader */
    double once;       /* of these, what is written if all that is read by several is written once */
    double gets;       /* of the rank that gets the most */
    bool one_sender;   /* nobody else sends, */
    bool one_receiver; /* or nobody else gets anything */
};

#define MOST_STEPS 3

/* Returns the number of steps, 0 if the collective does not go so. */
typedef int steps_of(const struct peer_machine *m, enum peer_collective collective, double bytes,
                     struct step steps[MOST_STEPS]);

static int oneshot(const struct peer_machine *m, enum peer_collective collective, double bytes,
                   struct step steps[MOST_STEPS])
{
    const double nranks = m->nranks, others = (nranks - 1) * bytes;
    switch (collective) {
    case PEER_COLL_BARRIER:
        steps[0] = (struct step){.sends = 0};
        break;
    case PEER_COLL_ALLREDUCE:
    case PEER_COLL_ALLGATHER:
    case PEER_COLL_ALLGATHERV:
        steps[0] = (struct step){.sends = others, .once = bytes, .gets = others};
        break;
    case PEER_COLL_BCAST:
        steps[0] = (struct step){.sends = others, .once = bytes, .gets = bytes, .one_sender = true};
        break;
    case PEER_COLL_SCATTER:
        steps[0] = (struct step){.sends = others, .once = others, .gets = bytes, .one_sender = true};
        break;
    case PEER_COLL_REDUCE:
    case PEER_COLL_GATHER:
        steps[0] = (struct step){.sends = bytes, .once = bytes, .gets = others, .one_receiver = true};
        break;
    default: /* each rank has something for each */
        steps[0] = (struct step){.sends = others, .once = others, .gets = others};
    }
    return 1;
}

/* A reduce is an all-reduce whose results but one are not kept, a broadcast two calls: scatter and all-gather. */
static int twoshot(const struct peer_machine *m, enum peer_collective collective, double bytes,
                   struct step steps[MOST_STEPS])
{
    const double nranks = m->nranks, part = bytes / nranks, others = (nranks - 1) * part;
    const struct step gather = {.sends = others, .once = part, .gets = others};
    if (collective == PEER_COLL_BCAST && nranks > 2)
        steps[0] = (struct step){.sends = others, .once = others, .gets = part, .one_sender = true};
    else if (collective == PEER_COLL_ALLREDUCE || collective == PEER_COLL_REDUCE)
        steps[0] = (struct step){.sends = others, .once = others, .gets = others};
    else
        return 0;
    steps[1] = gather;
    return 2;
}

/* Scatter and gather go to every column's owner in the island, partial sums from owner to owner. */
static int island(const struct peer_machine *m, enum peer_collective collective, double bytes,
                  struct step steps[MOST_STEPS])
{
    const struct peer_figures *f = &m->figures;
    const double column = f->columns > 0 ? bytes / f->columns : 0, others = bytes - column;
    const double sums = SUM_WIDTH * (f->islands - 1) * column;
    if (f->islands < 2 || (collective != PEER_COLL_ALLREDUCE && collective != PEER_COLL_REDUCE))
        return 0;
    steps[0] = (struct step){.level = NEAR, .sends = others, .once = others, .gets = others};
    steps[1] = (struct step){.level = FAR, .sends = sums, .once = sums, .gets = sums};
    steps[2] = (struct step){.level = NEAR, .sends = others, .once = column, .gets = others};
    return 3;
}

/* Those without a line here are not predicted, and so not chosen. */
static steps_of *const algorithms[PEER_N_ALGORITHMS] = {
    [PEER_ALGO_ONESHOT] = oneshot,
    [PEER_ALGO_TWOSHOT] = twoshot,
    [PEER_ALGO_ISLAND] = island,
};

/* ---- What a step costs ---------------------------------------------------------------------------------- */

static double bytes_us(double bytes, double rate)
{
    if (bytes == 0)
        return 0;
    return rate > 0 ? bytes / (rate * BYTES_PER_US) : INFINITY;
}

/* One pair's rate where one link has the traffic to itself, if it is known. */
static double rate_of(bool alone, double pair, double all)
{
    return alone && pair > 0 ? pair : all;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double flag_of(const struct peer_figures *f, enum level level)
{
    return level == NEAR ? f->near_flag_us : level == FAR ? f->far_flag_us : f->flag_us;
}

static double all_stores_of(const struct peer_figures *f, enum level level)
{
    return level == NEAR ? f->near_store_gbs : level == FAR ? f->far_store_gbs : f->all_store_gbs;
}

/* Peers of a rank in a step. */
static double peers_of(const struct peer_machine *m, enum level level)
{
    return (level == NEAR ? m->figures.columns : level == FAR ? m->figures.islands : m->nranks) - 1;
}

/* Time of a step's writes and reads on the link. */
struct traffic {
    double writes, reads;
};

static struct traffic traffic_of(const struct peer_machine *m, const struct peer_way *way,
                                 const struct step *s)
{
    const struct peer_figures *f = &m->figures;
    const double times = protocols[way->protocol].bytes;
    const bool pull = way->direction == PEER_PULL, one_way = s->one_sender || s->one_receiver;
    const double busiest = larger(s->sends, s->gets) * times;
    struct traffic t = {0, 0};
    if (m->link != PEER_LINK_WIRE) { /* the staging is nobody's own: data are written there, and read there */
        t.writes = bytes_us((pull ? s->once : s->sends) * times,
                            rate_of(s->one_sender, f->store_gbs, all_stores_of(f, s->level)));
        t.reads = bytes_us(s->gets * times, rate_of(s->one_receiver, f->load_gbs, f->all_load_gbs));
    } else if (pull) {
        t.reads = bytes_us(busiest, rate_of(one_way, f->load_gbs, f->all_load_gbs));
    } else {
        t.writes = bytes_us(busiest, rate_of(one_way, f->store_gbs, all_stores_of(f, s->level)));
    }
    return t;
}

static const struct constants *constants_of(enum peer_link link)
{
    return link == PEER_LINK_HOST ? &host_constants : &cuda_constants;
}

/* A step without its bytes: until what a rank sends is seen by its peers. */
static double round_us(const struct peer_machine *m, const struct peer_way *way, const struct step *s)
{
    const struct constants *k = constants_of(m->link);
    const double flag = flag_of(&m->figures, s->level), trip = read_trip[m->link] * flag;
    const bool pull = way->direction == PEER_PULL && s->sends > 0;
    double us = k->round + k->peer * (peers_of(m, s->level) - 1) + flag;
    if (s->sends == 0)
        return us;
    if (protocols[way->protocol].fence)
        us += k->fence + (pull || m->link == PEER_LINK_SHM ? trip : 0); /* then the data are fetched */
    else if (pull && m->link == PEER_LINK_WIRE)
        us += trip; /* data are polled from afar: a look that came too early, and the way back of the next */
    return us;
}

static double peer_us(const struct peer_machine *m, enum peer_collective collective,
                      const struct peer_way *way, double bytes)
{
    const struct constants *k = constants_of(m->link);
    struct step steps[MOST_STEPS];
    struct traffic all = {0, 0};
    int n = algorithms[way->algorithm] != NULL ? algorithms[way->algorithm](m, collective, bytes, steps) : 0;
    const int kernels = collective == PEER_COLL_BCAST ? n : 1;
    double us = kernels * (k->start + k->share * (m->gpu_ranks - 1)) + (bytes > 0 ? k->data : 0);
    if (n == 0)
        return INFINITY;
    for (int i = 0; i < n; i++) {
        const struct traffic t = traffic_of(m, way, &steps[i]);
        us += round_us(m, way, &steps[i]);
        all.writes += t.writes;
        all.reads += t.reads;
    }
    /* Of pieces, one is written while the one before is read; each has a flag, and so a fence, of its own, for which one
     * of several teams waits. */
    const bool fence = protocols[way->protocol].fence;
    const double teams = fence && m->link != PEER_LINK_HOST ? smaller(PEER_TEAMS, way->pieces) : 1;
    us += (way->pieces - 1) / teams * (k->round + (fence ? k->fence : 0));
    return us + larger(all.writes, all.reads) + smaller(all.writes, all.reads) / way->pieces;
}

/* A ring passes parts of the message on, round once to combine and once to spread them. */
static double nccl_us(const struct peer_machine *m, enum peer_collective collective, double bytes)
{
    const double hops = m->nranks - 1;
    double rounds = 1, busiest = bytes;
    switch (collective) {
    case PEER_COLL_ALLREDUCE:
        rounds = 2;
        busiest = 2 * hops / m->nranks * bytes;
        break;
    case PEER_COLL_ALLGATHER:
    case PEER_COLL_REDUCE_SCATTER_BLOCK:
        busiest = hops * bytes;
        break;
    case PEER_COLL_BCAST:
    case PEER_COLL_REDUCE:
        break;
    default:
        return INFINITY;
    }
    return NCCL_BASE + rounds * hops * NCCL_HOP + bytes_us(busiest, m->figures.ring_store_gbs);
}

double peer_model_us(const struct peer_machine *machine, enum peer_collective collective,
                     const struct peer_way *way, uint64_t nbytes)
{
    return way->path == PEER_PATH_NCCL ? nccl_us(machine, collective, (double)nbytes)
                                       : peer_us(machine, collective, way, (double)nbytes);
}

/* ---- Ways ----------------------------------------------------------------------------------------------- */

/* Of an equally fast pair the first is chosen. */
#define PEER_WAY(algorithm, protocol, direction, pieces)                                                     \
    {                                                                                                        \
        PEER_PATH_PEER, PEER_ALGO_##algorithm, PEER_PROTO_##protocol, PEER_##direction, pieces               \
    }
static const struct peer_way ways[] = {
    PEER_WAY(ONESHOT, LINE, PUSH, 1), PEER_WAY(ONESHOT, FLAG, PUSH, 1), PEER_WAY(TWOSHOT, LINE, PUSH, 1),
    PEER_WAY(TWOSHOT, FLAG, PUSH, 1), PEER_WAY(ONESHOT, LINE, PULL, 1), PEER_WAY(ONESHOT, FLAG, PULL, 1),
    PEER_WAY(TWOSHOT, LINE, PULL, 1), PEER_WAY(TWOSHOT, FLAG, PULL, 1), PEER_WAY(ONESHOT, FLAG, PULL, 8),
    PEER_WAY(TWOSHOT, FLAG, PULL, 8), PEER_WAY(ISLAND, LINE, PUSH, 1),  PEER_WAY(ISLAND, FLAG, PUSH, 1),
    {.path = PEER_PATH_NCCL},
};
#define WAYS (sizeof ways / sizeof ways[0])
#define NCCL (WAYS - 1)

const struct peer_way *peer_model_ways(size_t *n)
{
    *n = WAYS;
    return ways;
}

#define NAME(name, text) text,
static const char *const algorithm_names[] = {PEER_ALGORITHMS(NAME)};
#undef NAME

void peer_way_text(const struct peer_way *way, char text[PEER_WAY_BYTES])
{
    char pieces[16] = "";
    if (way->path == PEER_PATH_NCCL) {
        snprintf(text, PEER_WAY_BYTES, "nccl");
        return;
    }
    if (way->pieces > 1)
        snprintf(pieces, sizeof pieces, "/%u", way->pieces);
    snprintf(text, PEER_WAY_BYTES, "%s.%s%s%s", algorithm_names[way->algorithm],
             protocols[way->protocol].name, way->direction == PEER_PULL ? ".pull" : "", pieces);
}

bool peer_way_parse(const char *text, struct peer_way *way)
{
    static const uint32_t pieces[] = {1, 8};
    char candidate[PEER_WAY_BYTES];
    *way = (struct peer_way){.path = PEER_PATH_NCCL};
    if (strcmp(text, "nccl") == 0)
        return true;
    for (uint32_t a = 0; a < PEER_N_ALGORITHMS; a++)
        for (uint32_t p = 0; p <= PEER_MODEL_SENTINEL; p++)
            for (uint32_t d = PEER_PUSH; d <= PEER_PULL; d++)
                for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
                    *way = (struct peer_way){PEER_PATH_PEER, a, p, d, pieces[i]};
                    peer_way_text(way, candidate);
                    if (strcmp(text, candidate) == 0)
                        return true;
                }
    return false;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* A size for collectives whose sizes not all ranks know. */
#define UNSIZED_BYTES ((uint64_t)64 << 10)

/* The built-in rows of shm were measured where all ranks together read this much from the host's memory; a machine with
 * so many times more, or less, is another one. */
#define MEASURED_SHM_LOAD_GBS 50.3
#define FAR                   1.5

/* A grid as of the measured rows: select.c leaves those blocks out that have nothing to do. */
static uint32_t blocks_of(const struct peer_machine *m)
{
    return m->link == PEER_LINK_SHM && m->nranks > 2 ? 16 : 32;
}

static uint32_t threads_of(const struct peer_way *way)
{
    return way->protocol == PEER_PROTO_FLAG ? PEER_MAX_THREADS : PEER_MAX_THREADS / 2;
}

/* Lines in the host's memory are polled over the link, one by each thread, and those for which there is no thread wait for
 * others to come. Two GPUs with a link each took 23.6 us for an all-reduce of 256 KiB, 17 by this model, and 26.3 for a
 * broadcast. */
static bool lines_wait_in_turn(const struct peer_machine *m, enum peer_collective collective, uint64_t bytes,
                               const struct peer_way *way)
{
    const double at_once = (double)blocks_of(m) * threads_of(way) * peer_pack_of(way->protocol, 1, 16).data;
    struct step steps[MOST_STEPS];
    bool in_turn = false;
    if (m->link != PEER_LINK_SHM || way->protocol != PEER_PROTO_LINE)
        return false;
    for (int i = algorithms[way->algorithm](m, collective, (double)bytes, steps) - 1; i >= 0; i--)
        in_turn = in_turn || steps[i].gets > at_once;
    return in_turn;
}

/* Whether selection may take it. Only an all-reduce, and a reduce in two steps, is cut into pieces at will. */
static bool allowed(const struct peer_machine *m, enum peer_collective collective, uint64_t bytes,
                    const struct peer_way *way)
{
    const bool cut = collective == PEER_COLL_ALLREDUCE ||
                     (collective == PEER_COLL_REDUCE && way->algorithm == PEER_ALGO_TWOSHOT);
    if (collective == PEER_COLL_BARRIER) /* its kernel has but one way */
        return way->protocol == PEER_PROTO_FLAG && way->direction == PEER_PUSH;
    if (way->direction == PEER_PUSH && m->figures.push_collapsed)
        return false;
    if (way->direction == PEER_PULL && way->protocol == PEER_PROTO_LINE && m->link == PEER_LINK_WIRE)
        return false; /* see select.c */
    if (lines_wait_in_turn(m, collective, bytes, way))
        return false;
    return way->pieces == 1 || cut;
}

/* The fastest of the peer ways. Where the ranks don't know all sizes, it must be flag: its shares need no more room
 * than their bytes. */
static size_t fastest(const struct peer_machine *m, enum peer_collective collective, uint64_t bytes,
                      double *least)
{
    size_t best = WAYS;
    *least = INFINITY;
    for (size_t i = 0; i < WAYS; i++) {
        double us;
        if (ways[i].path != PEER_PATH_PEER || !allowed(m, collective, bytes, &ways[i]) ||
            (collective == PEER_COLL_ALLTOALLV && ways[i].protocol != PEER_PROTO_FLAG))
            continue;
        us = peer_model_us(m, collective, &ways[i], bytes);
        if (ways[i].algorithm == PEER_ALGO_ISLAND)
            us *= ISLAND_MARGIN;
        if (us < *least) {
            *least = us;
            best = i;
        }
    }
    return best;
}

static struct peer_row row_of(const struct peer_machine *m, enum peer_collective collective, uint64_t bytes,
                              const struct peer_way *way)
{
    struct peer_row row = {.link = m->link,
                           .collective = collective,
                           .min_ranks = m->nranks,
                           .max_ranks = m->nranks,
                           .max_bytes = bytes == PEER_MODEL_MOST_BYTES ? UINT64_MAX : bytes,
                           .algorithm = way->algorithm,
                           .protocol = way->protocol,
                           .direction = way->direction,
                           .pieces = way->pieces,
                           .path = way->path};
    row.blocks = blocks_of(m);
    row.threads = threads_of(way);
    if (collective == PEER_COLL_BARRIER) {
        row.blocks = 1;
        row.threads = 32;
    }
    return row;
}

struct rows_out {
    struct peer_row *rows, last;
    size_t n, max;
};

static bool same_but_bytes(const struct peer_row *a, const struct peer_row *b)
{
    return a->collective == b->collective && a->path == b->path && a->algorithm == b->algorithm &&
           a->protocol == b->protocol && a->direction == b->direction && a->pieces == b->pieces;
}

/* One row more, or the last one goes further. */
static void add_row(struct rows_out *out, struct peer_row row)
{
    if (out->n == 0 || !same_but_bytes(&row, &out->last))
        out->n++;
    out->last = row;
    if (out->n <= out->max)
        out->rows[out->n - 1] = row;
}

/* The sizes from..to, of which NCCL is the fastest way, and the peer ways for where it does not serve a call. */
static void add_nccl_rows(struct rows_out *out, const struct peer_machine *m, enum peer_collective collective,
                          uint64_t from, uint64_t to)
{
    double least;
    add_row(out, row_of(m, collective, to, &ways[NCCL]));
    for (; from <= to; from *= 2)
        add_row(out, row_of(m, collective, from, &ways[fastest(m, collective, from, &least)]));
}

static void add_rows(struct rows_out *out, const struct peer_machine *m, enum peer_collective collective)
{
    uint64_t nccl_from = 0;
    for (uint64_t bytes = PEER_MODEL_LEAST_BYTES; bytes <= PEER_MODEL_MOST_BYTES; bytes *= 2) {
        double least;
        size_t way = fastest(m, collective, bytes, &least);
        bool nccl = peer_model_us(m, collective, &ways[NCCL], bytes) * NCCL_MARGIN < least;
        if (nccl && nccl_from == 0)
            nccl_from = bytes;
        if (!nccl && nccl_from > 0) {
            add_nccl_rows(out, m, collective, nccl_from, bytes / 2);
            nccl_from = 0;
        }
        if (!nccl)
            add_row(out, row_of(m, collective, bytes, &ways[way]));
    }
    if (nccl_from > 0)
        add_nccl_rows(out, m, collective, nccl_from, PEER_MODEL_MOST_BYTES);
}

size_t peer_model_rows(const struct peer_figures *figures, enum peer_link link, uint32_t nranks,
                       struct peer_row *rows, size_t max)
{
    const struct peer_machine m = {link, nranks, link == PEER_LINK_LOCAL ? nranks : 1, *figures};
    struct rows_out out = {.rows = rows, .max = max};
    for (int c = 0; c < PEER_N_COLLECTIVES; c++) {
        const enum peer_collective collective = (enum peer_collective)c;
        double least;
        const size_t way = fastest(&m, collective, UNSIZED_BYTES, &least);
        if (way == WAYS) /* the figures tell of no way; the built-in rows serve */
            continue;
        if (collective == PEER_COLL_ALLTOALLV || collective == PEER_COLL_BARRIER)
            add_row(&out, row_of(&m, collective, PEER_MODEL_MOST_BYTES, &ways[way]));
        else
            add_rows(&out, &m, collective);
    }
    return out.n;
}

bool peer_model_serves(const struct peer_figures *figures, enum peer_link link, uint32_t nranks)
{
    const double times = figures->all_load_gbs * nranks / MEASURED_SHM_LOAD_GBS;
    /* Links faster than PCIe are not what its constants are about. */
    return figures->known &&
           (link == PEER_LINK_WIRE || (link == PEER_LINK_SHM && (times < 1 / FAR || times > FAR)));
}
