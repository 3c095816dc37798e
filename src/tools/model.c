/* peer_info --model: predicted times of all ways to do a collective, by size, on a machine of given figures, and the rows
 * of selection that follow. */
#include "config.h"
#include "info_model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *text)
{
    fprintf(stderr, "%s: --model: %s\n", program_invocation_short_name, text);
    return EXIT_FAILURE;
}

/* ---- Figures as words ------------------------------------------------------------------------------------ */

static bool set_link(struct peer_machine *machine, const char *value)
{
    for (uint32_t link = 0; link < PEER_N_LINKS; link++)
        if (strcmp(value, peer_link_name((enum peer_link)link)) == 0) {
            machine->link = (enum peer_link)link;
            return true;
        }
    return false;
}

static bool set_count(uint32_t *count, const char *value)
{
    char *end;
    unsigned long number = strtoul(value, &end, 10);
    *count = (uint32_t)number;
    return *end == '\0' && number >= 1 && number <= PEER_MAX_PEERS;
}

static bool set_figure(struct peer_figures *to, const char *name, size_t length, const char *value,
                       bool *known)
{
    for (size_t i = 0; i < PEER_N_FIGURES; i++)
        if (strlen(peer_figure_names[i].name) == length &&
            memcmp(peer_figure_names[i].name, name, length) == 0) {
            char *end;
            double number = strtod(value, &end);
            *known = true;
            memcpy((char *)to + peer_figure_names[i].offset, &number, sizeof number);
            return end != value && *end == '\0' && isfinite(number) && number > 0;
        }
    *known = false;
    return false;
}

bool model_set(struct peer_machine *machine, const char *word, char *why, size_t why_bytes)
{
    const size_t length = strcspn(word, "=");
    const char *value = word + length + (word[length] == '=');
    bool known = true, good;
    if (strcmp(word, "push_collapsed") == 0)
        return machine->figures.push_collapsed = true;
    if (strncmp(word, "link=", 5) == 0)
        good = set_link(machine, value);
    else if (strncmp(word, "ranks=", 6) == 0)
        good = set_count(&machine->nranks, value);
    else if (strncmp(word, "gpu_ranks=", 10) == 0)
        good = set_count(&machine->gpu_ranks, value);
    else
        good = set_figure(&machine->figures, word, length, value, &known);
    if (good)
        return true;
    if (!known) {
        /* a long word leaves no room for all names, or for none */
        size_t at = (size_t)snprintf(why, why_bytes, "%s: there are link, gpu_ranks, push_collapsed", word);
        for (size_t i = 0; i < PEER_N_FIGURES && at < why_bytes; i++)
            at += (size_t)snprintf(why + at, why_bytes - at, ", %s", peer_figure_names[i].name);
    } else {
        snprintf(why, why_bytes,
                 "%s: a link is host, local, wire, shm or nvlink, a count is 1 to %d, a figure more than 0",
                 word, PEER_MAX_PEERS);
    }
    return false;
}

uint32_t model_collective(const char *name)
{
    uint32_t collective = 0;
    while (collective < PEER_N_COLLECTIVES && strcmp(peer_collective_name(collective), name) != 0)
        collective++;
    return collective;
}

/* ---- The option ------------------------------------------------------------------------------------------ */

/* The ways as columns, each headed by the words of its name below each other. */
static void print_head(const struct peer_way *ways, size_t nways)
{
    for (int line = 0; line < 4; line++) {
        printf("%-9s", line == 0 ? "bytes" : "");
        for (size_t i = 0; i < nways; i++) {
            char text[PEER_WAY_BYTES], *rest = text;
            const char *word = NULL;
            peer_way_text(&ways[i], text);
            for (int skip = 0; skip <= line; skip++)
                word = strsep(&rest, "./");
            printf(" %8s", word != NULL ? word : "");
        }
        printf("\n");
    }
}

static void print_times(const struct peer_machine *machine, enum peer_collective collective)
{
    size_t nways;
    const struct peer_way *ways = peer_model_ways(&nways);
    print_head(ways, nways);
    for (uint64_t bytes = PEER_MODEL_LEAST_BYTES; bytes <= PEER_MODEL_MOST_BYTES; bytes *= 2) {
        printf("%-9" PRIu64, bytes);
        for (size_t i = 0; i < nways; i++) {
            double us = peer_model_us(machine, collective, &ways[i], bytes);
            if (isfinite(us))
                printf(" %8.1f", us);
            else
                printf(" %8s", "-");
        }
        printf("\n");
    }
}

static int print_rows(const struct peer_machine *m, enum peer_collective collective)
{
    size_t n = peer_model_rows(&m->figures, m->link, m->nranks, NULL, 0);
    struct peer_row *rows = calloc(n + 1, sizeof *rows);
    if (rows == NULL)
        return complain("no memory for its rows");
    peer_model_rows(&m->figures, m->link, m->nranks, rows, n);
    printf("rows of selection\n");
    for (size_t i = 0; i < n; i++) {
        char text[128];
        peer_row_text(&rows[i], text, sizeof text);
        if (rows[i].collective == (uint32_t)collective)
            printf("%s\n", text);
    }
    free(rows);
    return EXIT_SUCCESS;
}

int model_show(int nwords, char *const *words)
{
    struct peer_machine machine = {.link = PEER_LINK_WIRE, .gpu_ranks = 1, .figures.known = true};
    const uint32_t collective = nwords > 0 ? model_collective(words[0]) : PEER_N_COLLECTIVES;
    char why[512];
    if (nwords < 2)
        return complain("it needs COLLECTIVE RANKS and figures, as in: --model allreduce 8 flag_us=0.7 "
                        "all_store_gbs=24");
    if (collective == PEER_N_COLLECTIVES)
        return complain("no such collective; `peer_info --table' has their names");
    if (!set_count(&machine.nranks, words[1]) || machine.nranks < 2)
        return complain("RANKS must be a number from 2 to 16");
    for (int i = 2; i < nwords; i++)
        if (!model_set(&machine, words[i], why, sizeof why))
            return complain(why);
    if (machine.figures.flag_us == 0)
        return complain("flag_us, the way of a flag from rank to rank, must be given");
    print_times(&machine, (enum peer_collective)collective);
    return print_rows(&machine, (enum peer_collective)collective);
}
