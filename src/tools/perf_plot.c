/* perf_plot.c: --plot: curves of latency and bandwidth over the size of the message, one for each path that is
 * compared, drawn by gnuplot into an SVG. */
#include "perf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
    size_t bytes;
    double us;
};

struct curve {
    char title[96];
    struct point *points;
    size_t npoints;
};

static struct curve *curves;
static size_t ncurves;

static bool check(const struct perf *perf)
{
    FILE *file;

    if (system("command -v gnuplot >/dev/null 2>&1") != 0) {
        fprintf(stderr,
                "peer_perf: --plot needs gnuplot, which is not there (Debian, Ubuntu: apt-get install "
                "gnuplot-nox)\n");
        return false;
    }
    file = fopen(perf->options.plot, "w");
    if (file == NULL) {
        fprintf(stderr, "peer_perf: --plot: %s: %s\n", perf->options.plot, strerror(errno));
        return false;
    }
    fclose(file);
    return true;
}

/* Room for one more of `bytes` each. */
static void *grow(void *array, size_t n, size_t bytes)
{
    array = realloc(array, (n + 1) * bytes);
    if (!array)
        perf_die("out of memory for a plot");
    return array;
}

static bool is_one(unsigned set)
{
    return (set & (set - 1)) == 0;
}

/* "peercoll, graph", and of what else is swept which it is. */
static void title_of(const struct perf *perf, const struct perf_case *c, const char *path, char *title,
                     size_t bytes)
{
    const struct perf_options *options = &perf->options;
    char root[32] = "";

    if (options->root < 0 && c->root >= 0)
        snprintf(root, sizeof root, ", root %d", c->root);
    snprintf(title, bytes, "%s%s%s%s%s%s%s", path,
             !perf->bed.cuda ? ""
             : c->graph > 0  ? ", graph"
                             : ", eager",
             is_one(options->types) ? "" : ", ", is_one(options->types) ? "" : perf_type_name(c->datatype),
             is_one(options->ops) || c->op == PEER_N_OPS ? "" : ", ",
             is_one(options->ops) || c->op == PEER_N_OPS ? "" : perf_op_name(c->op), root);
}

static void add_point(const struct perf *perf, const struct perf_case *c, const char *path, double us)
{
    char title[sizeof curves->title];
    struct curve *curve = curves;

    if (us <= 0)
        return;
    title_of(perf, c, path, title, sizeof title);
    while (curve < curves + ncurves && strcmp(curve->title, title) != 0)
        curve++;
    if (curve == curves + ncurves) {
        curves = grow(curves, ncurves, sizeof *curves);
        curve = &curves[ncurves++];
        *curve = (struct curve){.npoints = 0};
        strcpy(curve->title, title);
    }
    curve->points = grow(curve->points, curve->npoints, sizeof *curve->points);
    curve->points[curve->npoints++] = (struct point){c->bytes, us};
}

static void add_row(const struct perf *perf, const struct perf_case *c, const struct perf_result *result)
{
    add_point(perf, c, "peercoll", result->us[PERF_OUT_OF_PLACE]);
    for (int rival = 0; rival < PERF_N_RIVALS; rival++)
        add_point(perf, c, perf_rival_name((enum perf_rival)rival), result->rival_us[rival]);
}

/* In gnuplot's single quotes, where a quote is doubled. */
static void write_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text != '\0'; text++)
        fprintf(to, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', to);
}

static void write_plot(FILE *to, const char *label, const char *using)
{
    fprintf(to, "set ylabel '%s'\nplot ", label);
    for (size_t i = 0; i < ncurves; i++) {
        fprintf(to, "%s$curve%zu using %s with linespoints title ", i > 0 ? ", " : "", i, using);
        write_quoted(to, curves[i].title);
    }
    fprintf(to, "\n");
}

static void write_script(FILE *to, const struct perf *perf)
{
    for (size_t i = 0; i < ncurves; i++) {
        fprintf(to, "$curve%zu << END\n", i);
        for (size_t p = 0; p < curves[i].npoints; p++)
            fprintf(to, "%zu %g\n", curves[i].points[p].bytes, curves[i].points[p].us);
        fprintf(to, "END\n");
    }
    fprintf(to, "set terminal svg size 900,1000 background 'white'\nset output ");
    write_quoted(to, perf->options.plot);
    fprintf(to,
            "\nset multiplot layout 2,1 title '%s on %d ranks, %s device'\n"
            "set logscale x 2\nset logscale y\nset grid\nset key left top noenhanced\n"
            "set format x '%%.0b %%BB'\nset xlabel 'message'\n",
            perf->options.collective->name, perf->size, perf->bed.cuda ? "cuda" : "host");
    write_plot(to, "us per call", "1:2");
    write_plot(to, "GB/s (message / time)", "1:($1/$2/1e3)");
    fprintf(to, "unset multiplot\n");
}

static bool draw(const struct perf *perf, const struct perf_totals *totals)
{
    FILE *gnuplot = ncurves > 0 ? popen("gnuplot", "w") : NULL;
    int status = -1;

    (void)totals;
    if (gnuplot) {
        write_script(gnuplot, perf);
        status = pclose(gnuplot);
    }
    for (size_t i = 0; i < ncurves; i++)
        free(curves[i].points);
    free(curves);
    if (status != 0)
        fprintf(stderr, "peer_perf: --plot: %s\n",
                ncurves == 0 ? "there is nothing to draw" : "gnuplot failed, see what it says above");
    return status == 0;
}

const struct perf_sink perf_plot = {check, NULL, NULL, add_row, draw};
