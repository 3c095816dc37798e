/* Plans and rows as text, and rows back from it: what peer_info prints, peer_perf --tune writes and PEER_TABLE reads. */
#include "internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

#define NAME(name, text) text,
static const char *const link_names[PEER_N_LINKS] = {"host", "local", "wire", "shm", "nvlink"};
static const char *const algorithm_names[] = {PEER_ALGORITHMS(NAME)};
static const char *const protocol_names[] = {PEER_PROTOCOLS(NAME)};
static const char *const direction_names[] = {PEER_DIRECTIONS(NAME)};
static const char *const collective_names[] = {PEER_COLLECTIVES(NAME)};
#undef NAME

const char *peer_collective_name(uint32_t collective)
{
    return collective < PEER_N_COLLECTIVES ? collective_names[collective] : "?";
}

/* "oneshot.line 14x256", "twoshot.flag.pull 32x512/8"; with a blank between the two words if `wide` is 0. */
static void way_text(uint32_t algorithm, uint32_t protocol, uint32_t direction, int wide, uint32_t blocks,
                     uint32_t threads, uint32_t pieces, char *text, size_t text_bytes)
{
    char way[48];
    snprintf(way, sizeof way, "%s.%s%s%s", algorithm_names[algorithm], protocol_names[protocol],
             direction != PEER_PUSH ? "." : "", direction != PEER_PUSH ? direction_names[direction] : "");
    snprintf(text, text_bytes, pieces > 1 ? "%-*s %ux%u/%u" : "%-*s %ux%u", wide, way, blocks, threads,
             pieces);
}

void peer_plan_text(const struct peer_plan *plan, const char *transport, char *text, size_t text_bytes)
{
    static const char *const paths[] = {"peer", "nccl", "mpi", "self"};
    char way[64];
    if (plan->path != PEER_PATH_PEER) {
        snprintf(text, text_bytes, "%s", paths[plan->path]);
        return;
    }
    way_text(plan->algorithm, plan->protocol, plan->direction, 0, plan->blocks, plan->threads, plan->pieces,
             way, sizeof way);
    snprintf(text, text_bytes, "%s %s", transport, way);
}

const char *peer_link_name(enum peer_link link)
{
    return link_names[link];
}

static const char *set_name(uint32_t set)
{
    return set == EVERY    ? "(all)"
           : set == ROOTED ? "(rooted)"
           : set == WHOLE  ? "(bcast,reduce)"
                           : collective_names[set];
}

void peer_row_text(const struct peer_row *row, char *text, size_t text_bytes)
{
    char ranks[16], bytes[24], way[64] = "nccl";
    snprintf(ranks, sizeof ranks, "%u-%u", row->min_ranks, row->max_ranks);
    snprintf(bytes, sizeof bytes, row->max_bytes == ANY_BYTES ? "any" : "%" PRIu64, row->max_bytes);
    if (row->path == PEER_PATH_PEER)
        way_text(row->algorithm, row->protocol, row->direction, 17, row->blocks, row->threads, row->pieces,
                 way, sizeof way);
    snprintf(text, text_bytes, "%-6s %-20s %-5s %-8s %s", link_names[row->link], set_name(row->collective),
             ranks, bytes, way);
}

/* The index of a name of `length` bytes, or n. */
static uint32_t name_index(const char *const *names, uint32_t n, const char *text, size_t length)
{
    uint32_t i = 0;
    while (i < n && (strlen(names[i]) != length || memcmp(names[i], text, length) != 0))
        i++;
    return i;
}

/* "twoshot.flag.pull" */
static bool parse_way(const char *text, struct peer_row *row)
{
    size_t length = strcspn(text, ".");
    row->algorithm = name_index(algorithm_names, PEER_N_ALGORITHMS, text, length);
    if (text[length] == '\0')
        return false;
    text += length + 1;
    length = strcspn(text, ".");
    row->protocol = name_index(protocol_names, PEER_N_PROTOCOLS, text, length);
    row->direction = PEER_PUSH;
    if (text[length] == '.')
        row->direction =
            name_index(direction_names, PEER_N_DIRECTIONS, text + length + 1, strlen(text + length + 1));
    return row->algorithm < PEER_N_ALGORITHMS && row->protocol < PEER_N_PROTOCOLS &&
           row->direction < PEER_N_DIRECTIONS;
}

static bool parse_grid(const char *text, struct peer_row *row)
{
    int end = 0, more = 0;
    row->pieces = 1;
    if (sscanf(text, "%ux%u%n", &row->blocks, &row->threads, &end) != 2)
        return false;
    if (text[end] == '/' && sscanf(text + end, "/%u%n", &row->pieces, &more) != 1)
        return false;
    if (text[end + more] != '\0' || row->blocks < 1 || row->blocks > PEER_MAX_BLOCKS || row->pieces < 1 ||
        row->pieces > PEER_MAX_PIECES)
        return false;
    if (row->link == PEER_LINK_HOST)
        return row->threads == 1;
    return row->threads % 32 == 0 && row->threads > 0 && row->threads <= PEER_MAX_THREADS;
}

static bool parse_ranks(const char *text, struct peer_row *row)
{
    int end = 0;
    return sscanf(text, "%u-%u%n", &row->min_ranks, &row->max_ranks, &end) == 2 && text[end] == '\0' &&
           row->min_ranks <= row->max_ranks;
}

static bool parse_bytes_field(const char *text, uint64_t *bytes)
{
    char *end;
    *bytes = ANY_BYTES;
    if (strcmp(text, "any") == 0)
        return true;
    *bytes = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && *end == '\0';
}

static uint32_t parse_set(const char *text)
{
    for (uint32_t set = EVERY; set <= WHOLE; set++)
        if (strcmp(text, set_name(set)) == 0)
            return set;
    return name_index(collective_names, PEER_N_COLLECTIVES, text, strlen(text));
}

/* Whether every collective of a set has a twoshot form. */
static bool set_has_twoshot(uint32_t set)
{
    return set == WHOLE || (set < PEER_N_COLLECTIVES && peer_collective_has_twoshot(set));
}

bool peer_row_parse(const char *text, struct peer_row *row, char *why, size_t why_bytes)
{
    char link[16], collective[32], ranks[16], bytes[24], way[48], grid[32] = "", more[2];
    int fields =
        sscanf(text, "%15s %31s %15s %23s %47s %31s %1s", link, collective, ranks, bytes, way, grid, more);
    const char *what = NULL;
    memset(row, 0, sizeof *row);
    if (fields < 5 || fields > 6) {
        snprintf(why, why_bytes, "it has %s fields; LINK COLLECTIVE RANKS BYTES ALGORITHM GRID are wanted",
                 fields < 5 ? "too few" : "too many");
        return false;
    }
    row->link = name_index(link_names, PEER_N_LINKS, link, strlen(link));
    row->collective = parse_set(collective);
    row->path = strcmp(way, "nccl") == 0 ? PEER_PATH_NCCL : PEER_PATH_PEER;
    if (row->link == PEER_N_LINKS)
        what = "LINK is none of host, local, wire, shm, nvlink";
    else if (row->collective == PEER_N_COLLECTIVES && strcmp(collective, set_name(EVERY)) != 0)
        what = "COLLECTIVE is none that `peer_info --table' shows";
    else if (!parse_ranks(ranks, row))
        what = "RANKS is no range as 2-4";
    else if (!parse_bytes_field(bytes, &row->max_bytes))
        what = "BYTES is neither a number nor any";
    else if (row->path == PEER_PATH_PEER && !parse_way(way, row))
        what = "ALGORITHM is neither nccl nor as twoshot.flag or twoshot.flag.pull";
    else if (row->path == PEER_PATH_PEER && row->algorithm != PEER_ALGO_ONESHOT &&
             !set_has_twoshot(row->collective))
        what = "only allreduce, reduce and bcast have other algorithms than oneshot";
    else if (row->path == PEER_PATH_PEER && row->algorithm == PEER_ALGO_STAGED &&
             (row->protocol != PEER_PROTO_FLAG || row->direction != PEER_PUSH))
        what = "staged is staged.flag, without pull";
    else if (row->path == PEER_PATH_PEER && row->algorithm == PEER_ALGO_ISLAND && row->direction == PEER_PULL)
        what = "island has no pull";
    else if (row->path == PEER_PATH_NCCL && fields == 6)
        what = "nccl has no GRID";
    else if (row->path == PEER_PATH_PEER && !parse_grid(grid, row))
        what =
            "GRID is not BLOCKSxTHREADS or BLOCKSxTHREADS/PIECES, with up to 64 blocks, and on link host 1 "
            "thread, else a multiple of 32 up to 512";
    if (what != NULL)
        snprintf(why, why_bytes, "%s", what);
    return what == NULL;
}

static void print_rows(FILE *to, const struct peer_row *first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[128];
        peer_row_text(&first[i], text, sizeof text);
        fprintf(to, "%s\n", text);
    }
}

void peer_select_print(FILE *to, const struct peer_table *table)
{
    size_t n;
    const struct peer_row *rows = peer_builtin_rows(&n);
    fprintf(to, "#%-5s %-20s %-5s %-8s %-17s %s\n", "link", "collective", "ranks", "up to", "algorithm",
            "blocks x threads, at most / pieces, at least");
    print_rows(to, table->rows, table->nrows);
    if (table->nrows > 0)
        fprintf(to, "# built in\n");
    print_rows(to, rows, n);
}
