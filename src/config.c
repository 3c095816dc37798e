/* config.c: the settings. The table `rows` is the one place that names them: each row is an environment variable
 * and, in lower case without PEER_, a key of a source that wins over the environment (an MPI_Info). Parsing, the
 * texts of errors, the hash that ranks compare and the printed table all follow the rows.
 *
 * The library's only getenvs are here. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Of a row in text: its value in force, or what is legal. */
#define TEXT_BYTES 512

/* No variable's name is longer. */
#define NAME_BYTES 32

enum kind {
    KIND_WORD,   /* one of `words`, into a uint32_t */
    KIND_PLAN,   /* "auto", ALGORITHM or ALGORITHM.PROTOCOL, into config's two fields */
    KIND_NUMBER, /* decimal or 0x..., into a uint32_t or uint64_t */
    KIND_FAULT,  /* "" or [TRANSPORT.]FAULT:PAIR, into a struct peer_probe_fault */
    KIND_GROUPS, /* "auto", or a number for each rank, into a struct peer_grouping */
    KIND_TEXT    /* anything that the field has room for; "" only if that is the default */
};

enum flag {
    PER_RANK = 1, /* ranks may differ; all other rows go into the hash */
    AUTO = 2,     /* of a number: "auto" and 0 are legal and mean 0 */
    UNITS = 4     /* of a number: it is bytes, K and M may follow */
};

struct row {
    const char *name;
    const char *standard; /* the default, as a user would write it */
    unsigned flags;
    enum kind kind;
    size_t offset, bytes;     /* the field in struct peer_config */
    const char *const *words; /* KIND_WORD: by value, NULL at the end */
    uint64_t min, max, step;  /* KIND_NUMBER: the range, and what divides the value */
    const char *legal;        /* KIND_TEXT: what the text is */
    const char *help;
};

static const char *const device_words[] = {
    [PEER_DEVICE_AUTO] = "auto", [PEER_DEVICE_CUDA] = "cuda", [PEER_DEVICE_HOST] = "host", NULL};

static const char *const transport_words[] = {
    [PEER_TRANSPORT_AUTO] = "auto", [PEER_TRANSPORT_IPC] = "ipc", [PEER_TRANSPORT_SHM] = "shm",
    [PEER_TRANSPORT_NCCL] = "nccl", [PEER_TRANSPORT_MPI] = "mpi", NULL};

static const char *const probe_words[] = {[PEER_PROBE_AUTO] = "auto",
                                          [PEER_PROBE_FULL] = "full",
                                          [PEER_PROBE_QUICK] = "quick",
                                          [PEER_PROBE_OFF] = "off",
                                          NULL};

static const char *const switch_words[] = {[false] = "off", [true] = "on", NULL};

static const char *const fault_words[] = {
    [PEER_FAULT_NONE] = "none",     [PEER_FAULT_WRONG] = "wrong", [PEER_FAULT_BUSY] = "busy",
    [PEER_FAULT_UNSEEN] = "unseen", [PEER_FAULT_SLOW] = "slow",   NULL};

#define NAME_TEXT(name, text) [name] = text,
static const char *const algorithm_words[] = {PEER_ALGORITHMS(NAME_TEXT) NULL};
static const char *const protocol_words[] = {PEER_PROTOCOLS(NAME_TEXT) NULL};
static const char *const direction_words[] = {PEER_DIRECTIONS(NAME_TEXT) NULL};
#undef NAME_TEXT

/* The members of a row from kind to legal. */
#define FIELD(f)                  offsetof(struct peer_config, f), sizeof(((struct peer_config *)NULL)->f)
#define WORD(f, words)            KIND_WORD, FIELD(f), words, 0, 0, 0, NULL
#define PLAN(f)                   KIND_PLAN, FIELD(f), NULL, 0, 0, 0, NULL
#define FAULT(f)                  KIND_FAULT, FIELD(f), NULL, 0, 0, 0, NULL
#define GROUPS(f)                 KIND_GROUPS, FIELD(f), NULL, 0, 0, 0, NULL
#define NUMBER(f, min, max, step) KIND_NUMBER, FIELD(f), NULL, min, max, step, NULL
#define TEXT(f, legal)            KIND_TEXT, FIELD(f), NULL, 0, 0, 0, legal

static const struct row rows[] = {
    {"PEER_DEVICE", "auto", 0, WORD(device, device_words),
     "where collectives run: the GPUs or the CPU; auto: the GPUs if every rank has one"},
    {"PEER_TRANSPORT", "auto", 0, WORD(transport, transport_words),
     "what moves the data: the peers' device memory, host memory that all map, NCCL, or MPI"},
    {"PEER_ALGORITHM", "auto", 0, PLAN(algorithm),
     "algorithm, protocol and direction of the peer kernels; auto: by size and ranks"},
    {"PEER_BLOCKS", "auto", AUTO, NUMBER(blocks, 1, PEER_MAX_BLOCKS, 1),
     "blocks of a peer kernel; auto: by size and ranks"},
    {"PEER_THREADS", "auto", AUTO, NUMBER(threads, 32, PEER_MAX_THREADS, 32),
     "threads of a block; auto: by size and ranks"},
    {"PEER_PIECES", "auto", AUTO, NUMBER(pieces, 1, PEER_MAX_PIECES, 1),
     "pieces that an all-reduce is cut into at least, so that they overlap; auto: by size and ranks"},
    {"PEER_ISLANDS", "auto", 0, GROUPS(islands),
     "the island of each rank of a communicator of so many ranks, for algorithm island; auto: as measured"},
    {"PEER_TABLE", "", PER_RANK, TEXT(table, "path of a file"),
     "rows that selection looks at before its own, from peer_perf --tune; rank 0's file serves all"},
    {"PEER_STAGING_BYTES", "auto", UNITS | AUTO, NUMBER(staging_bytes, 16 << 10, 256 << 20, 4096),
     "staging for a call, lines having a quarter of it; the slab is some three times that; auto: 8M in "
     "a GPU's memory, 2M in the host's"},
    {"PEER_TIMEOUT_MS", "30000", PER_RANK, NUMBER(timeout_ms, 1, 86400000, 1),
     "longest wait of peer kernels for another rank, in milliseconds"},
    {"PEER_PDL", "on", PER_RANK, WORD(pdl, switch_words), "kernels begin while those before them end"},
    {"PEER_NCCL", "auto", PER_RANK, TEXT(nccl, "auto|off|path of the library"),
     "the NCCL that serves what the peer kernels don't; auto: the system's, if there is one"},
    {"PEER_PROBE", "auto", 0, WORD(probe, probe_words),
     "how a communicator tries its peer path: full measures rates and latencies, quick does not, off "
     "believes it; auto: full the first time on a machine where they matter"},
    {"PEER_LOG", "warn", PER_RANK, WORD(log, peer_log_words), "how much is logged"},
    {"PEER_LOG_FILE", "", PER_RANK, TEXT(log_file, "path of a file"),
     "where the log goes; %r in it is the rank in MPI_COMM_WORLD; empty: stderr"},
    {"PEER_EPOCH_START", "1", 0, NUMBER(epoch_start, 0, UINT32_MAX, 1),
     "for tests: a communicator's first epoch"},
    {"PEER_PROBE_FAULT", "none", 0, FAULT(probe_fault),
     "for tests: what goes wrong in the probe, between whom"},
    {"PEER_NODE", "", PER_RANK, TEXT(node, "name of a node"),
     "for tests: the node that this rank claims to be on; empty: the machine"},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

/* ---- From text to a field: false leaves the field as it was --------------------------------------------- */

static bool parse_word(const char *const *words, const char *text, size_t length, uint32_t *value)
{
    for (uint32_t i = 0; words[i] != NULL; i++) {
        if (strlen(words[i]) == length && strncmp(words[i], text, length) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

/* "auto", or ALGORITHM[.PROTOCOL][.DIRECTION] */
static bool parse_plan(const char *text, struct peer_config *config)
{
    uint32_t algorithm = PEER_CHOICE_AUTO, protocol = PEER_CHOICE_AUTO, direction = PEER_CHOICE_AUTO;
    size_t length = strcspn(text, ".");

    if (strcmp(text, "auto") != 0) {
        if (!parse_word(algorithm_words, text, length, &algorithm))
            return false;
        text += length;
        length = *text == '.' ? 1 + strcspn(text + 1, ".") : 0;
        if (length > 0 && parse_word(protocol_words, text + 1, length - 1, &protocol))
            text += length;
        if (*text == '.' && !parse_word(direction_words, text + 1, strlen(text + 1), &direction))
            return false;
    }
    config->algorithm = algorithm;
    config->protocol = protocol;
    config->direction = direction;
    return true;
}

/* A rank's number, and what ends it. */
static bool parse_rank(const char **text, uint32_t *rank)
{
    const bool begins = isdigit((unsigned char)(*text)[0]) != 0; /* no blank, no sign */
    char *end;
    const unsigned long number = strtoul(*text, &end, 10);
    *rank = (uint32_t)number;
    *text = end;
    return begins && number < PEER_MAX_PEERS;
}

/* "none", or [TRANSPORT.]FAULT:WRITER-READER, or [TRANSPORT.]FAULT:all */
static bool parse_fault(const char *text, struct peer_probe_fault *fault)
{
    struct peer_probe_fault parsed = {
        .transport = PEER_TRANSPORT_AUTO, .writer = PEER_CHOICE_AUTO, .reader = PEER_CHOICE_AUTO};
    const char *dot = strchr(text, '.'), *colon;

    if (strcmp(text, fault_words[PEER_FAULT_NONE]) != 0) {
        if (dot != NULL &&
            (!parse_word(transport_words, text, (size_t)(dot - text), &parsed.transport) ||
             (parsed.transport != PEER_TRANSPORT_IPC && parsed.transport != PEER_TRANSPORT_SHM)))
            return false;
        text = dot != NULL ? dot + 1 : text;
        colon = strchr(text, ':');
        if (colon == NULL || !parse_word(fault_words, text, (size_t)(colon - text), &parsed.kind) ||
            parsed.kind == PEER_FAULT_NONE)
            return false;
        text = colon + 1;
        if (strcmp(text, "all") != 0 &&
            (!parse_rank(&text, &parsed.writer) || *text++ != '-' || !parse_rank(&text, &parsed.reader) ||
             *text != '\0' || parsed.writer == parsed.reader))
            return false;
    }
    *fault = parsed;
    return true;
}

/* "auto", or numbers as in "0,0,1,1", for two ranks or more; renumbered in the order of the lowest ranks. */
static bool parse_groups(const char *text, struct peer_grouping *groups)
{
    struct peer_grouping parsed = {0};
    uint8_t number[PEER_MAX_PEERS];
    uint32_t island;

    memset(number, 0xff, sizeof number);
    while (strcmp(text, "auto") != 0) {
        if (parsed.nranks == PEER_MAX_PEERS || !parse_rank(&text, &island))
            return false;
        if (number[island] == 0xff)
            number[island] = (uint8_t)parsed.n++;
        parsed.island[parsed.nranks++] = number[island];
        if (*text == '\0')
            break;
        if (*text++ != ',')
            return false;
    }
    if (parsed.nranks != 1)
        *groups = parsed;
    return parsed.nranks != 1;
}

static bool parse_number(const struct row *row, const char *text, void *field)
{
    int base = strncmp(text, "0x", 2) == 0 ? 16 : 10;
    uint64_t value, unit = 1;
    char *end;

    if ((row->flags & AUTO) && strcmp(text, "auto") == 0)
        text = "0";
    if (!isdigit((unsigned char)text[0])) /* strtoull takes white space and signs */
        return false;
    errno = 0;
    value = strtoull(text, &end, base);
    if (errno != 0)
        return false;
    if ((row->flags & UNITS) && (*end == 'K' || *end == 'M'))
        unit = *end++ == 'K' ? 1 << 10 : 1 << 20;
    if (*end != '\0' || value > UINT64_MAX / unit)
        return false;
    value *= unit;
    if (!((row->flags & AUTO) && value == 0) &&
        (value < row->min || value > row->max || value % row->step != 0))
        return false;
    if (row->bytes == sizeof(uint32_t))
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = value;
    return true;
}

static bool parse_text(const struct row *row, const char *text, char *field)
{
    if (strlen(text) >= row->bytes || (text[0] == '\0' && row->standard[0] != '\0'))
        return false;
    strcpy(field, text);
    return true;
}

static bool parse(const struct row *row, const char *text, struct peer_config *config)
{
    void *field = (char *)config + row->offset;

    switch (row->kind) {
    case KIND_WORD:
        return parse_word(row->words, text, strlen(text), field);
    case KIND_PLAN:
        return parse_plan(text, config);
    case KIND_FAULT:
        return parse_fault(text, field);
    case KIND_GROUPS:
        return parse_groups(text, field);
    case KIND_NUMBER:
        return parse_number(row, text, field);
    case KIND_TEXT:
        return parse_text(row, text, field);
    }
    return false;
}

/* ---- From a row to text: into TEXT_BYTES ---------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void append(char *text, const char *format, ...)
{
    size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + length, TEXT_BYTES - length, format, args);
    va_end(args);
}

static void append_words(char *text, const char *before_each, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++)
        append(text, "%s%s%s", i > 0 ? "|" : "", before_each, words[i]);
}

static void append_number(char *text, const struct row *row, uint64_t value)
{
    if ((row->flags & AUTO) && value == 0)
        append(text, "auto");
    else if ((row->flags & UNITS) && value % (1 << 20) == 0)
        append(text, "%" PRIu64 "M", value >> 20);
    else if ((row->flags & UNITS) && value % (1 << 10) == 0)
        append(text, "%" PRIu64 "K", value >> 10);
    else
        append(text, "%" PRIu64, value);
}

static void append_legal(char *text, const struct row *row)
{
    switch (row->kind) {
    case KIND_WORD:
        append_words(text, "", row->words);
        break;
    case KIND_PLAN:
        append(text, "auto, or ");
        append_words(text, "", algorithm_words);
        append(text, " with or without ");
        append_words(text, ".", protocol_words);
        append(text, ", with or without ");
        append_words(text, ".", direction_words);
        break;
    case KIND_FAULT:
        append(text, "none, or, after ipc. or shm. if it is for one of them, ");
        append_words(text, "", fault_words + 1);
        append(text, " with :WRITER-READER, the numbers of two ranks, or :all");
        break;
    case KIND_GROUPS:
        append(text, "auto, or for each of 2 to %d ranks the number of its island, below %d, as 0,0,1,1",
               PEER_MAX_PEERS, PEER_MAX_PEERS);
        break;
    case KIND_NUMBER:
        if (row->flags & AUTO)
            append(text, "auto|");
        append_number(text, row, row->min);
        append(text, "..");
        append_number(text, row, row->max);
        if (row->step > 1) {
            append(text, ", a multiple of ");
            append_number(text, row, row->step);
        }
        break;
    case KIND_TEXT:
        append(text, "%s, %zu bytes at most", row->legal, row->bytes - 1);
        break;
    }
}

static void append_fault(char *text, const struct peer_probe_fault *fault)
{
    if (fault->transport != PEER_TRANSPORT_AUTO)
        append(text, "%s.", transport_words[fault->transport]);
    append(text, "%s", fault_words[fault->kind]);
    if (fault->writer != PEER_CHOICE_AUTO)
        append(text, ":%u-%u", fault->writer, fault->reader);
    else if (fault->kind != PEER_FAULT_NONE)
        append(text, ":all");
}

static void append_groups(char *text, const struct peer_grouping *groups)
{
    append(text, "%s", groups->nranks == 0 ? "auto" : "");
    for (uint32_t r = 0; r < groups->nranks; r++)
        append(text, "%s%u", r > 0 ? "," : "", groups->island[r]);
}

/* The value in force, as a user would write it; different text for different values. */
static void append_value(char *text, const struct row *row, const struct peer_config *config)
{
    const void *field = (const char *)config + row->offset;

    switch (row->kind) {
    case KIND_WORD:
        append(text, "%s", row->words[*(const uint32_t *)field]);
        break;
    case KIND_PLAN:
        append(text, "%s",
               config->algorithm == PEER_CHOICE_AUTO ? "auto" : algorithm_words[config->algorithm]);
        if (config->protocol != PEER_CHOICE_AUTO)
            append(text, ".%s", protocol_words[config->protocol]);
        if (config->direction != PEER_CHOICE_AUTO)
            append(text, ".%s", direction_words[config->direction]);
        break;
    case KIND_FAULT:
        append_fault(text, field);
        break;
    case KIND_GROUPS:
        append_groups(text, field);
        break;
    case KIND_NUMBER:
        append_number(text, row,
                      row->bytes == sizeof(uint32_t) ? *(const uint32_t *)field : *(const uint64_t *)field);
        break;
    case KIND_TEXT:
        append(text, "%s", (const char *)field);
        break;
    }
}

/* ---- Load ----------------------------------------------------------------------------------------------- */

/* "timeout_ms" of PEER_TIMEOUT_MS */
static void row_key(const struct row *row, char key[NAME_BYTES])
{
    const char *name = row->name + strlen("PEER_");
    size_t i;

    for (i = 0; name[i] != '\0'; i++)
        key[i] = (char)tolower((unsigned char)name[i]);
    key[i] = '\0';
}

static int bad_value(const struct row *row, const char *what, const char *name, const char *value)
{
    char legal[TEXT_BYTES] = "";

    append_legal(legal, row);
    return peer_error(PEER_ERR_SETTING, "%s %s is \"%.256s\"; it must be %s", what, name, value, legal);
}

int peer_config_load(struct peer_config *config, const struct peer_config_source *source)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < N_ROWS; i++)
        parse(&rows[i], rows[i].standard, config);

    /* A row that is wrong ends it: config is then usable still, with defaults from that row on. */
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *value = getenv(rows[i].name);
        char key[NAME_BYTES], from_source[2 * TEXT_BYTES];

        row_key(&rows[i], key);
        if (source != NULL && source->get(source->arg, key, from_source, sizeof from_source)) {
            if (!parse(&rows[i], from_source, config))
                return bad_value(&rows[i], "info key", key, from_source);
        } else if (value != NULL && !parse(&rows[i], value, config)) {
            return bad_value(&rows[i], "environment variable", rows[i].name, value);
        }
    }
    return PEER_SUCCESS;
}

uint64_t peer_hash(uint64_t hash, const char *text)
{
    for (size_t i = 0; i <= strlen(text); i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

uint64_t peer_config_hash(const struct peer_config *config)
{
    uint64_t hash = PEER_HASH_START;

    for (size_t i = 0; i < N_ROWS; i++) {
        char text[TEXT_BYTES] = "";

        if (rows[i].flags & PER_RANK)
            continue;
        append_value(text, &rows[i], config);
        hash = peer_hash(hash, text);
    }
    return hash;
}

bool peer_config_cache(char *folder, size_t folder_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;

    if (cache != NULL && cache[0] == '/') /* a relative one is to be ignored, says its standard */
        length = snprintf(folder, folder_bytes, "%s", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(folder, folder_bytes, "%s/.cache", home);
    return length > 0 && (size_t)length < folder_bytes;
}

/* ---- Unknown variables ---------------------------------------------------------------------------------- */

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete or replace to get from a to b, which is shorter than NAME_BYTES. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES], columns = strlen(b) + 1;

    for (size_t j = 0; j < columns; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j < columns; j++) {
            size_t replaced = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            row[j] = min_of(replaced, 1 + min_of(row[j], row[j - 1]));
        }
    }
    return row[columns - 1];
}

/* The setting that was probably meant, or NULL. The beginning of a name stands for the name. */
static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    size_t least = strlen(name + strlen("PEER_")) / 3 + 1;

    for (size_t i = 0; i < N_ROWS; i++) {
        bool begins = strncmp(rows[i].name, name, strlen(name)) == 0;
        size_t distance = begins ? 0 : edit_distance(name, rows[i].name);
        if (distance < least) {
            least = distance;
            nearest = rows[i].name;
        }
    }
    return nearest;
}

static void warn_unknown(const char *name)
{
    const char *nearest;

    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(name, rows[i].name) == 0)
            return;
    nearest = nearest_name(name);
    if (nearest != NULL)
        peer_log(PEER_LOG_WARN, "environment variable %s is no setting; did you mean %s?", name, nearest);
    else
        peer_log(PEER_LOG_WARN, "environment variable %s is no setting; peer_info --settings lists them",
                 name);
}

void peer_config_warn_unknown(void)
{
    extern char **environ;
    char name[TEXT_BYTES];

    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        if (strncmp(*variable, "PEER_", strlen("PEER_")) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*variable, "="), *variable);
        warn_unknown(name);
    }
}

/* ---- The printed table ---------------------------------------------------------------------------------- */

enum column { COLUMN_NAME, COLUMN_VALUE, COLUMN_STANDARD, COLUMN_LEGAL, COLUMN_HELP, N_COLUMNS };

static void append_cell(char *text, const struct row *row, enum column column,
                        const struct peer_config *config)
{
    switch (column) {
    case COLUMN_NAME:
        append(text, "%s", row->name);
        break;
    case COLUMN_VALUE:
        append_value(text, row, config);
        break;
    case COLUMN_STANDARD:
        append(text, "%s", row->standard);
        break;
    case COLUMN_LEGAL:
        append_legal(text, row);
        break;
    default:
        append(text, "%s", row->help);
        break;
    }
    if (text[0] == '\0')
        append(text, "\"\"");
}

void peer_config_print(FILE *to, const struct peer_config *config)
{
    static const char *const titles[N_COLUMNS] = {"setting", "value", "default", "legal", "meaning"};
    int width[N_COLUMNS];

    for (enum column c = 0; c < N_COLUMNS; c++) {
        size_t widest = strlen(titles[c]);
        for (size_t i = 0; i < N_ROWS; i++) {
            char text[TEXT_BYTES] = "";
            append_cell(text, &rows[i], c, config);
            widest = strlen(text) > widest ? strlen(text) : widest;
        }
        width[c] = (int)widest;
    }
    for (enum column c = 0; c < N_COLUMNS; c++)
        fprintf(to, c < COLUMN_HELP ? "%-*s  " : "%.*s\n", width[c], titles[c]);
    for (size_t i = 0; i < N_ROWS; i++) {
        for (enum column c = 0; c < N_COLUMNS; c++) {
            char text[TEXT_BYTES] = "";
            append_cell(text, &rows[i], c, config);
            fprintf(to, c < COLUMN_HELP ? "%-*s  " : "%.*s\n", width[c], text);
        }
    }
}
