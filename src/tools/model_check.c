/* peer_info --model-check FILE: the model's predictions beside measurements, as the tables of docs/model.md. A line of
 * the file is one of
 *
 *   machine NAME FIGURE=VALUE... ranks=N -- SOURCE        as --model has them; of all lines of that name the last
 *   group BOUND TITLE                                     the median error of its rows must be no more, in percent
 *   rows MACHINE SOURCE COLLECTIVE WAY BYTES:US...        belongs to the group before
 *
 * The exit status is 1 if a group's bound is passed, and if the file can't be read. */
#include "config.h"
#include "info_model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MACHINES 64
#define MOST_ROWS     512 /* of a group */
#define MOST_WORDS    32

struct machine {
    char name[32];
    struct peer_machine figures;
};

struct check {
    const char *file;
    int line;
    struct machine machines[MOST_MACHINES];
    size_t nmachines;
    double bound; /* of the group, percent; 0: there is none yet */
    double errors[MOST_ROWS];
    size_t nerrors;
    bool passed;
};

static bool complain(const struct check *c, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "%s: %s:%d: ", program_invocation_short_name, c->file, c->line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

/* ---- Machines -------------------------------------------------------------------------------------------- */

static bool read_machine(struct check *c, int nwords, char **words)
{
    struct machine *machine = &c->machines[c->nmachines];
    char why[512];
    int i = 2;
    if (nwords < 3 || c->nmachines == MOST_MACHINES)
        return complain(c, "a machine has a NAME and figures, and there are at most %d", MOST_MACHINES);
    *machine = (struct machine){.figures = {.link = PEER_LINK_WIRE, .gpu_ranks = 1}};
    snprintf(machine->name, sizeof machine->name, "%s", words[1]);
    if (c->nmachines == 0)
        printf("| machine | figures | from |\n|---|---|---|\n");
    printf("| %s |", machine->name);
    for (; i < nwords && strcmp(words[i], "--") != 0; i++) {
        if (!model_set(&machine->figures, words[i], why, sizeof why))
            return complain(c, "%s", why);
        printf(" %s", words[i]);
    }
    printf(" |");
    for (i++; i < nwords; i++)
        printf(" %s", words[i]);
    printf(" |\n");
    if (machine->figures.nranks < 2 || machine->figures.figures.flag_us == 0)
        return complain(c, "%s: ranks, 2 at least, and flag_us must be given", words[1]);
    c->nmachines++;
    return true;
}

static const struct peer_machine *machine_of(const struct check *c, const char *name)
{
    for (size_t i = 0; i < c->nmachines; i++)
        if (strcmp(c->machines[i].name, name) == 0)
            return &c->machines[i].figures;
    return NULL;
}

/* ---- Groups of rows --------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of an even number the lower one: a value that is there. */
static double median(double *values, size_t n)
{
    qsort(values, n, sizeof values[0], by_value);
    return values[(n - 1) / 2];
}

static void end_group(struct check *c)
{
    double bias, worst = 0, typical;
    if (c->nerrors == 0)
        return;
    bias = median(c->errors, c->nerrors);
    for (size_t i = 0; i < c->nerrors; i++) {
        c->errors[i] = fabs(c->errors[i]);
        worst = c->errors[i] > worst ? c->errors[i] : worst;
    }
    typical = median(c->errors, c->nerrors);
    printf(
        "\n%zu rows: median error %.0f%% either way (bound %.0f%%), %+.0f%% with its sign, largest %.0f%%.\n",
        c->nerrors, typical, c->bound, bias, worst);
    if (typical > c->bound) {
        complain(c, "the median error of the group above is %.1f%%, more than its bound", typical);
        c->passed = false;
    }
    c->nerrors = 0;
}

static bool read_group(struct check *c, int nwords, char **words)
{
    char *end = "?";
    end_group(c);
    c->bound = nwords > 2 ? strtod(words[1], &end) : 0;
    if (*end != '\0' || c->bound <= 0)
        return complain(c, "a group has a BOUND in percent and a TITLE");
    printf("\n###");
    for (int i = 2; i < nwords; i++)
        printf(" %s", words[i]);
    printf("\n\n| source | machine | collective | way | bytes | measured us | model us | error |\n"
           "|---|---|---|---|---|---|---|---|\n");
    return true;
}

static bool read_size(struct check *c, char **words, const struct peer_machine *machine, const char *size)
{
    const uint32_t collective = model_collective(words[3]);
    struct peer_way way;
    uint64_t bytes;
    double measured, us;
    int end = 0;
    if (collective == PEER_N_COLLECTIVES || !peer_way_parse(words[4], &way))
        return complain(c, "%s %s: no collective, or no way to do one, as oneshot.line.pull", words[3],
                        words[4]);
    if (sscanf(size, "%" SCNu64 ":%lf%n", &bytes, &measured, &end) != 2 || size[end] != '\0' || measured <= 0)
        return complain(c, "%s: not BYTES:US", size);
    us = peer_model_us(machine, (enum peer_collective)collective, &way, bytes);
    if (!isfinite(us))
        return complain(c, "%s: a figure that %s of %s takes is not given", words[1], words[3], words[4]);
    if (c->nerrors == MOST_ROWS)
        return complain(c, "a group has more than %d rows", MOST_ROWS);
    c->errors[c->nerrors] = 100 * (us - measured) / measured;
    printf("| %s | %s | %s | %s | %" PRIu64 " | %.4g | %.3g | %+.0f%% |\n", words[2], words[1], words[3],
           words[4], bytes, measured, us, c->errors[c->nerrors]);
    c->nerrors++;
    return true;
}

static bool read_rows(struct check *c, int nwords, char **words)
{
    const struct peer_machine *machine = nwords > 5 ? machine_of(c, words[1]) : NULL;
    if (machine == NULL || c->bound == 0)
        return complain(c, "rows belong to a group, and have the name of a machine, SOURCE, COLLECTIVE, WAY "
                           "and BYTES:US...");
    for (int i = 5; i < nwords; i++)
        if (!read_size(c, words, machine, words[i]))
            return false;
    return true;
}

/* ---- The file --------------------------------------------------------------------------------------------- */

static bool read_line(struct check *c, char *line)
{
    char *words[MOST_WORDS], *rest = line, *word;
    int n = 0;
    while ((word = strsep(&rest, " \n")) != NULL)
        if (*word != '\0' && n < MOST_WORDS)
            words[n++] = word;
    if (n == 0 || words[0][0] == '#')
        return true;
    if (n == MOST_WORDS)
        return complain(c, "a line of more than %d words", MOST_WORDS - 1);
    if (strcmp(words[0], "machine") == 0)
        return read_machine(c, n, words);
    if (strcmp(words[0], "group") == 0)
        return read_group(c, n, words);
    if (strcmp(words[0], "rows") == 0)
        return read_rows(c, n, words);
    return complain(c, "%s: a line begins with machine, group, rows or #", words[0]);
}

int model_check(const char *file)
{
    struct check check = {.file = file, .passed = true};
    FILE *from = fopen(file, "r");
    char *line = NULL;
    size_t line_bytes = 0;
    bool good = true;
    if (from == NULL) {
        fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, file, strerror(errno));
        return EXIT_FAILURE;
    }
    while (good && getline(&line, &line_bytes, from) >= 0) {
        check.line++;
        good = read_line(&check, line);
    }
    if (good)
        end_group(&check);
    free(line);
    fclose(from);
    return good && check.passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
