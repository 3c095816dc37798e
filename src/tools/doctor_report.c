/* What the doctor's checks say: collected, put in order, and printed as text. */
#include "doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ITEM_COLUMN 8 /* where texts begin: of findings, of lists */
#define LIST_COLUMN 5
#define LINE_WIDTH  100

/* ---- Collecting -------------------------------------------------------------------------------------------- */

static struct doctor_item *add(struct doctor_report *report, enum doctor_kind kind)
{
    /* Checks speak four times at most, so there is room; and what would come last of all counts least. */
    const int last = (int)(sizeof report->items / sizeof report->items[0]) - 1;
    struct doctor_item *item = &report->items[report->n < last ? report->n++ : last];
    *item = (struct doctor_item){.kind = kind, .check = report->check, .title = report->title};
    return item;
}

void doctor_finding(struct doctor_report *report, double slower, const char *seen, const char *cost,
                    const char *remedy)
{
    struct doctor_item *item = add(report, DOCTOR_FINDING);
    item->slower = slower;
    doctor_append(item->seen, sizeof item->seen, "%s", seen);
    doctor_append(item->cost, sizeof item->cost, "%s", cost);
    doctor_append(item->remedy, sizeof item->remedy, "%s", remedy);
}

void doctor_note(struct doctor_report *report, const char *seen, const char *remedy)
{
    struct doctor_item *item = add(report, DOCTOR_NOTE);
    doctor_append(item->seen, sizeof item->seen, "%s", seen);
    doctor_append(item->remedy, sizeof item->remedy, "%s", remedy);
}

void doctor_fine(struct doctor_report *report, const char *format, ...)
{
    struct doctor_item *item = add(report, DOCTOR_FINE);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item->seen, sizeof item->seen, format, arguments);
    va_end(arguments);
}

void doctor_unchecked(struct doctor_report *report, const char *format, ...)
{
    struct doctor_item *item = add(report, DOCTOR_UNCHECKED);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item->seen, sizeof item->seen, format, arguments);
    va_end(arguments);
}

int doctor_count(const struct doctor_report *report, enum doctor_kind kind)
{
    int count = 0;
    for (int i = 0; i < report->n; i++)
        count += report->items[i].kind == kind;
    return count;
}

/* ---- Texts ------------------------------------------------------------------------------------------------- */

void doctor_append(char *text, size_t bytes, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, bytes - length, format, arguments);
    va_end(arguments);
}

int doctor_append_ranks(char *text, size_t bytes, const struct doctor_input *in,
                        bool (*of)(const struct doctor_input *in, int rank, int other), int other)
{
    int count = 0;
    const char *before = " ";
    for (int rank = 0; rank < in->size; rank++)
        count += of(in, rank, other);
    doctor_append(text, bytes, count == 1 ? "rank" : "ranks");
    for (int rank = 0; rank < in->size; rank++) {
        int last = rank;
        if (!of(in, rank, other))
            continue;
        while (last + 1 < in->size && of(in, last + 1, other))
            last++;
        if (last > rank + 1)
            doctor_append(text, bytes, "%s%d-%d", before, rank, last);
        else
            for (int r = rank; r <= last; r++)
                doctor_append(text, bytes, "%s%d", r == rank ? before : ", ", r);
        before = ", ";
        rank = last;
    }
    return count;
}

static const struct doctor_item *first_of(const struct doctor_report *report, enum doctor_kind kind)
{
    for (int i = 0; i < report->n; i++)
        if (report->items[i].kind == kind)
            return &report->items[i];
    return NULL;
}

void doctor_verdict(const struct doctor_report *report, char *text, size_t bytes)
{
    int findings = doctor_count(report, DOCTOR_FINDING), unchecked = doctor_count(report, DOCTOR_UNCHECKED);
    text[0] = '\0';
    if (findings > 0)
        doctor_append(text, bytes, "%d finding%s, the costliest: %s", findings, findings == 1 ? "" : "s",
                      first_of(report, DOCTOR_FINDING)->title);
    else
        doctor_append(text, bytes, "nothing wrong in %d checks", doctor_count(report, DOCTOR_FINE));
    if (unchecked > 0)
        doctor_append(text, bytes, "; %d could not be made", unchecked);
}

/* ---- Printing ---------------------------------------------------------------------------------------------- */

/* Words of a text on lines of LINE_WIDTH, all of them from column `begin` on. */
static void print_wrapped(FILE *to, const char *label, int begin, const char *text)
{
    int column = begin;
    fprintf(to, "   %-*s", begin - 3, label);
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > begin && column + 1 + length > LINE_WIDTH) {
            fprintf(to, "\n%*s", begin, "");
            column = begin;
        }
        column += fprintf(to, "%s%.*s", column > begin ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void print_item(FILE *to, const struct doctor_item *item)
{
    print_wrapped(to, "seen", ITEM_COLUMN, item->seen);
    if (item->cost[0] != '\0')
        print_wrapped(to, "cost", ITEM_COLUMN, item->cost);
    if (item->remedy[0] != '\0')
        print_wrapped(to, "do", ITEM_COLUMN, item->remedy);
}

static void print_findings(FILE *to, const struct doctor_report *report)
{
    int number = 0;
    for (int i = 0; i < report->n; i++) {
        const struct doctor_item *item = &report->items[i];
        if (item->kind != DOCTOR_FINDING)
            continue;
        fprintf(to, "\n%d. %s (%s)\n", ++number, item->title, item->check);
        print_item(to, item);
    }
    for (int i = 0; i < report->n; i++) {
        const struct doctor_item *item = &report->items[i];
        if (item->kind != DOCTOR_NOTE)
            continue;
        fprintf(to, "\nnote (%s)\n", item->check);
        print_item(to, item);
    }
}

/* Checks that could not be made for the same reason stand together. */
static void print_unchecked(FILE *to, const struct doctor_report *report)
{
    fprintf(to, "\nnot checked\n");
    for (int i = 0; i < report->n; i++) {
        const struct doctor_item *item = &report->items[i];
        char text[2048] = "";
        bool told = false;
        if (item->kind != DOCTOR_UNCHECKED)
            continue;
        for (int j = 0; j < report->n; j++) {
            const struct doctor_item *other = &report->items[j];
            if (other->kind != DOCTOR_UNCHECKED || strcmp(other->seen, item->seen) != 0)
                continue;
            told = told || j < i;
            doctor_append(text, sizeof text, "%s%s", j == i ? "" : ", ", other->check);
        }
        if (told)
            continue;
        doctor_append(text, sizeof text, ": %s", item->seen);
        print_wrapped(to, "-", LIST_COLUMN, text);
    }
}

void doctor_print(FILE *to, const struct doctor_input *in, const struct doctor_report *report)
{
    char verdict[256];
    fprintf(to, "%d rank%s, device %s, transport %s\n", in->size, in->size == 1 ? "" : "s", in->comm.device,
            in->comm.transport);
    print_findings(to, report);
    if (doctor_count(report, DOCTOR_FINE) > 0)
        fprintf(to, "\nchecked, nothing wrong\n");
    for (int i = 0; i < report->n; i++) {
        const struct doctor_item *item = &report->items[i];
        char text[1200] = "";
        if (item->kind != DOCTOR_FINE)
            continue;
        doctor_append(text, sizeof text, "%s: %s", item->check, item->seen);
        print_wrapped(to, "-", LIST_COLUMN, text);
    }
    if (doctor_count(report, DOCTOR_UNCHECKED) > 0)
        print_unchecked(to, report);
    doctor_verdict(report, verdict, sizeof verdict);
    fprintf(to, "\nverdict: %s\n", verdict);
}
