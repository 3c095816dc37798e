/* test_config: the settings (every row's default, legal and bad values, both sources, the hash, the printed table,
 * unknown variables) and the log that some of them steer. One process, no communicator. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "test.h"

/* ---- Both sources --------------------------------------------------------------------------------------- */

struct pair {
    const char *key, *value;
};

static bool pair_get(void *arg, const char *key, char *value, size_t value_bytes)
{
    const struct pair *pair = arg;

    if (strcmp(key, pair->key) != 0)
        return false;
    snprintf(value, value_bytes, "%s", pair->value);
    return true;
}

static int load_from_source(struct peer_config *config, const char *key, const char *value)
{
    struct pair pair = {key, value};
    struct peer_config_source source = {pair_get, &pair};

    return peer_config_load(config, &source);
}

static int load_from_environment(struct peer_config *config, const char *name, const char *value)
{
    int status;

    TEST_INT(setenv(name, value, 1), 0);
    status = peer_config_load(config, NULL);
    TEST_INT(unsetenv(name), 0);
    return status;
}

/* Unsets whatever PEER_ variables the tests are run with. */
static void clear_environment(void)
{
    extern char **environ;
    char name[256];

    for (char **variable = environ; *variable != NULL;) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*variable, "="), *variable);
        if (strncmp(name, "PEER_", 5) == 0 && unsetenv(name) == 0)
            variable = environ; /* it has changed */
        else
            variable++;
    }
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* All settings, with one value of each that isn't the default. */
static const struct {
    const char *name, *key, *standard, *other;
    bool in_hash;
} rows[] = {
    {"PEER_DEVICE", "device", "auto", "host", true},
    {"PEER_TRANSPORT", "transport", "auto", "mpi", true},
    {"PEER_ALGORITHM", "algorithm", "auto", "twoshot", true},
    {"PEER_BLOCKS", "blocks", "auto", "3", true},
    {"PEER_THREADS", "threads", "auto", "64", true},
    {"PEER_PIECES", "pieces", "auto", "4", true},
    {"PEER_ISLANDS", "islands", "auto", "0,1,1,0", true},
    {"PEER_TABLE", "table", "", "/etc/peercoll.table", false},
    {"PEER_STAGING_BYTES", "staging_bytes", "auto", "1M", true},
    {"PEER_TIMEOUT_MS", "timeout_ms", "30000", "5", false},
    {"PEER_PDL", "pdl", "on", "off", false},
    {"PEER_NCCL", "nccl", "auto", "off", false},
    {"PEER_PROBE", "probe", "auto", "full", true},
    {"PEER_PROBE_FAULT", "probe_fault", "none", "ipc.wrong:1-2", true},
    {"PEER_LOG", "log", "warn", "trace", false},
    {"PEER_LOG_FILE", "log_file", "", "x.%r", false},
    {"PEER_EPOCH_START", "epoch_start", "1", "7", true},
    {"PEER_NODE", "node", "", "n1", false},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static void test_defaults(void)
{
    struct peer_config config, again;

    TEST_OK(peer_config_load(&config, NULL));
    TEST_INT(config.device, PEER_DEVICE_AUTO);
    TEST_INT(config.transport, PEER_TRANSPORT_AUTO);
    TEST_INT(config.algorithm, PEER_CHOICE_AUTO);
    TEST_INT(config.protocol, PEER_CHOICE_AUTO);
    TEST_INT(config.blocks, 0);
    TEST_INT(config.threads, 0);
    TEST_INT(config.staging_bytes, 0);
    TEST_INT(config.timeout_ms, 30000);
    TEST_TEXT(config.nccl, "auto");
    TEST_INT(config.probe, PEER_PROBE_AUTO);
    TEST_INT(config.probe_fault.kind, PEER_FAULT_NONE);
    TEST_INT(config.log, PEER_LOG_WARN);
    TEST_TEXT(config.log_file, "");
    TEST_INT(config.epoch_start, 1);
    TEST_TEXT(config.node, "");

    for (size_t i = 0; i < N_ROWS; i++) {
        TEST_OK(load_from_environment(&again, rows[i].name, rows[i].standard));
        TEST_INT(memcmp(&again, &config, sizeof config), 0);
        TEST_OK(load_from_source(&again, rows[i].key, rows[i].standard));
        TEST_INT(memcmp(&again, &config, sizeof config), 0);
    }
}

#define FIELD(f) offsetof(struct peer_config, f), sizeof(((struct peer_config *)NULL)->f)

static const struct {
    const char *name, *key, *value;
    size_t offset, bytes;
    uint64_t wanted;
} legal[] = {
    {"PEER_DEVICE", "device", "auto", FIELD(device), PEER_DEVICE_AUTO},
    {"PEER_DEVICE", "device", "cuda", FIELD(device), PEER_DEVICE_CUDA},
    {"PEER_DEVICE", "device", "host", FIELD(device), PEER_DEVICE_HOST},
    {"PEER_TRANSPORT", "transport", "auto", FIELD(transport), PEER_TRANSPORT_AUTO},
    {"PEER_TRANSPORT", "transport", "ipc", FIELD(transport), PEER_TRANSPORT_IPC},
    {"PEER_TRANSPORT", "transport", "nccl", FIELD(transport), PEER_TRANSPORT_NCCL},
    {"PEER_TRANSPORT", "transport", "mpi", FIELD(transport), PEER_TRANSPORT_MPI},
    {"PEER_BLOCKS", "blocks", "0", FIELD(blocks), 0},
    {"PEER_BLOCKS", "blocks", "auto", FIELD(blocks), 0},
    {"PEER_BLOCKS", "blocks", "1", FIELD(blocks), 1},
    {"PEER_BLOCKS", "blocks", "64", FIELD(blocks), PEER_MAX_BLOCKS},
    {"PEER_THREADS", "threads", "0", FIELD(threads), 0},
    {"PEER_THREADS", "threads", "auto", FIELD(threads), 0},
    {"PEER_THREADS", "threads", "32", FIELD(threads), 32},
    {"PEER_THREADS", "threads", "512", FIELD(threads), PEER_MAX_THREADS},
    {"PEER_STAGING_BYTES", "staging_bytes", "auto", FIELD(staging_bytes), 0},
    {"PEER_STAGING_BYTES", "staging_bytes", "0", FIELD(staging_bytes), 0},
    {"PEER_STAGING_BYTES", "staging_bytes", "16384", FIELD(staging_bytes), 16384},
    {"PEER_STAGING_BYTES", "staging_bytes", "16K", FIELD(staging_bytes), 16384},
    {"PEER_STAGING_BYTES", "staging_bytes", "20480", FIELD(staging_bytes), 20480},
    {"PEER_STAGING_BYTES", "staging_bytes", "0x5000", FIELD(staging_bytes), 0x5000},
    {"PEER_STAGING_BYTES", "staging_bytes", "3M", FIELD(staging_bytes), 3 << 20},
    {"PEER_STAGING_BYTES", "staging_bytes", "256M", FIELD(staging_bytes), 256 << 20},
    {"PEER_TIMEOUT_MS", "timeout_ms", "1", FIELD(timeout_ms), 1},
    {"PEER_TIMEOUT_MS", "timeout_ms", "86400000", FIELD(timeout_ms), 86400000},
    {"PEER_PDL", "pdl", "on", FIELD(pdl), true},
    {"PEER_PDL", "pdl", "off", FIELD(pdl), false},
    {"PEER_PROBE", "probe", "quick", FIELD(probe), PEER_PROBE_QUICK},
    {"PEER_PROBE", "probe", "off", FIELD(probe), PEER_PROBE_OFF},
    {"PEER_PROBE_FAULT", "probe_fault", "slow:all", FIELD(probe_fault.writer), PEER_CHOICE_AUTO},
    {"PEER_PROBE_FAULT", "probe_fault", "slow:all", FIELD(probe_fault.kind), PEER_FAULT_SLOW},
    {"PEER_PROBE_FAULT", "probe_fault", "unseen:0-15", FIELD(probe_fault.reader), 15},
    {"PEER_PROBE_FAULT", "probe_fault", "shm.busy:3-0", FIELD(probe_fault.writer), 3},
    {"PEER_PROBE_FAULT", "probe_fault", "shm.busy:3-0", FIELD(probe_fault.transport), PEER_TRANSPORT_SHM},
    {"PEER_LOG", "log", "off", FIELD(log), PEER_LOG_OFF},
    {"PEER_LOG", "log", "error", FIELD(log), PEER_LOG_ERROR},
    {"PEER_LOG", "log", "warn", FIELD(log), PEER_LOG_WARN},
    {"PEER_LOG", "log", "info", FIELD(log), PEER_LOG_INFO},
    {"PEER_LOG", "log", "debug", FIELD(log), PEER_LOG_DEBUG},
    {"PEER_LOG", "log", "trace", FIELD(log), PEER_LOG_TRACE},
    {"PEER_EPOCH_START", "epoch_start", "0", FIELD(epoch_start), 0},
    {"PEER_EPOCH_START", "epoch_start", "007", FIELD(epoch_start), 7},
    {"PEER_EPOCH_START", "epoch_start", "4294967295", FIELD(epoch_start), UINT32_MAX},
    {"PEER_EPOCH_START", "epoch_start", "0xfffffff0", FIELD(epoch_start), 0xfffffff0},
    {"PEER_EPOCH_START", "epoch_start", "0xABCD", FIELD(epoch_start), 0xabcd},
};

static uint64_t field_value(const struct peer_config *config, size_t offset, size_t bytes)
{
    const char *field = (const char *)config + offset;

    return bytes == sizeof(uint32_t) ? *(const uint32_t *)field : *(const uint64_t *)field;
}

static void test_legal(void)
{
    struct peer_config config;

    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
        TEST_OK(load_from_environment(&config, legal[i].name, legal[i].value));
        TEST_INT(field_value(&config, legal[i].offset, legal[i].bytes), legal[i].wanted);
        TEST_OK(load_from_source(&config, legal[i].key, legal[i].value));
        TEST_INT(field_value(&config, legal[i].offset, legal[i].bytes), legal[i].wanted);
    }
}

static void test_text(void)
{
    struct peer_config config;
    char longest[sizeof config.node];

    TEST_OK(load_from_environment(&config, "PEER_NCCL", "off"));
    TEST_TEXT(config.nccl, "off");
    TEST_OK(load_from_source(&config, "nccl", "/a b/libnccl.so.2"));
    TEST_TEXT(config.nccl, "/a b/libnccl.so.2");
    TEST_OK(load_from_source(&config, "log_file", "log.%r"));
    TEST_TEXT(config.log_file, "log.%r");
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    TEST_OK(load_from_environment(&config, "PEER_NODE", longest));
    TEST_TEXT(config.node, longest);
}

static void test_plan(void)
{
#define WORD(name, text) text,
    static const char *const algorithms[] = {PEER_ALGORITHMS(WORD)};
    static const char *const protocols[] = {PEER_PROTOCOLS(WORD)};
    static const char *const directions[] = {PEER_DIRECTIONS(WORD)};
#undef WORD
    struct peer_config config;
    char text[64];

    for (uint32_t a = 0; a < PEER_N_ALGORITHMS; a++) {
        TEST_OK(load_from_environment(&config, "PEER_ALGORITHM", algorithms[a]));
        TEST_INT(config.algorithm, a);
        TEST_INT(config.protocol, PEER_CHOICE_AUTO);
        TEST_INT(config.direction, PEER_CHOICE_AUTO);
        snprintf(text, sizeof text, "%s.%s", algorithms[a], directions[a % PEER_N_DIRECTIONS]);
        TEST_OK(load_from_source(&config, "algorithm", text));
        TEST_INT(config.protocol, PEER_CHOICE_AUTO);
        TEST_INT(config.direction, a % PEER_N_DIRECTIONS);
        for (uint32_t p = 0; p < PEER_N_PROTOCOLS; p++) {
            snprintf(text, sizeof text, "%s.%s", algorithms[a], protocols[p]);
            TEST_OK(load_from_source(&config, "algorithm", text));
            TEST_INT(config.algorithm, a);
            TEST_INT(config.protocol, p);
            TEST_INT(config.direction, PEER_CHOICE_AUTO);
            for (uint32_t d = 0; d < PEER_N_DIRECTIONS; d++) {
                snprintf(text, sizeof text, "%s.%s.%s", algorithms[a], protocols[p], directions[d]);
                TEST_OK(load_from_source(&config, "algorithm", text));
                TEST_INT(config.algorithm, a);
                TEST_INT(config.protocol, p);
                TEST_INT(config.direction, d);
            }
        }
    }
}

/* ---- Bad values ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *key, *value, *legal;
} bad[] = {
    {"PEER_DEVICE", "device", "gpu", "auto|cuda|host"},
    {"PEER_DEVICE", "device", "", "auto|cuda|host"},
    {"PEER_DEVICE", "device", "Host", "auto|cuda|host"},
    {"PEER_TRANSPORT", "transport", "ip", "auto|ipc|shm|nccl|mpi"},
    {"PEER_TRANSPORT", "transport", "ipc ", "auto|ipc|shm|nccl|mpi"},
    {"PEER_ALGORITHM", "algorithm", "threeshot",
     "oneshot|twoshot|staged|island with or without .line|.ll|.flag, with or without .push|.pull"},
    {"PEER_ALGORITHM", "algorithm", "twoshot.pull.flag", ".push|.pull"},
    {"PEER_ALGORITHM", "algorithm", "twoshot.flag.pull.", ".push|.pull"},
    {"PEER_ALGORITHM", "algorithm", "auto.pull", "oneshot|twoshot|staged|island"},
    {"PEER_ALGORITHM", "algorithm", "oneshot.", "oneshot|twoshot|staged|island"},
    {"PEER_ALGORITHM", "algorithm", ".line", "oneshot|twoshot|staged|island"},
    {"PEER_ALGORITHM", "algorithm", "line", "oneshot|twoshot|staged|island"},
    {"PEER_ALGORITHM", "algorithm", "auto.line", "oneshot|twoshot|staged|island"},
    {"PEER_ALGORITHM", "algorithm", "twoshot.lines", ".line|.ll|.flag"},
    {"PEER_ALGORITHM", "algorithm", "twoshot.l", ".line|.ll|.flag"},
    {"PEER_ALGORITHM", "algorithm", "twoshot.line.ll", ".line|.ll|.flag"},
    {"PEER_ISLANDS", "islands", "0", "as 0,0,1,1"},
    {"PEER_ISLANDS", "islands", "0,0,", "as 0,0,1,1"},
    {"PEER_ISLANDS", "islands", "0,16", "below 16"},
    {"PEER_ISLANDS", "islands", "0,1,1x", "as 0,0,1,1"},
    {"PEER_ISLANDS", "islands", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1", "2 to 16 ranks"},
    {"PEER_BLOCKS", "blocks", "65", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "-1", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "+1", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", " 1", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "1 ", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "1.5", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "1K", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "many", "auto|1..64"},
    {"PEER_BLOCKS", "blocks", "4294967297", "auto|1..64"},
    {"PEER_THREADS", "threads", "31", "auto|32..512, a multiple of 32"},
    {"PEER_THREADS", "threads", "33", "a multiple of 32"},
    {"PEER_THREADS", "threads", "544", "auto|32..512"},
    {"PEER_PIECES", "pieces", "65", "auto|1..64"},
    {"PEER_STAGING_BYTES", "staging_bytes", "8K", "auto|16K..256M, a multiple of 4K"},
    {"PEER_STAGING_BYTES", "staging_bytes", "20000", "a multiple of 4K"},
    {"PEER_STAGING_BYTES", "staging_bytes", "257M", "16K..256M"},
    {"PEER_STAGING_BYTES", "staging_bytes", "1G", "16K..256M"},
    {"PEER_STAGING_BYTES", "staging_bytes", "1MB", "16K..256M"},
    {"PEER_STAGING_BYTES", "staging_bytes", "M", "16K..256M"},
    {"PEER_STAGING_BYTES", "staging_bytes", "17592186044417M", "16K..256M"}, /* 2^64 + 1M */
    {"PEER_TIMEOUT_MS", "timeout_ms", "0", "1..86400000"},
    {"PEER_TIMEOUT_MS", "timeout_ms", "86400001", "1..86400000"},
    {"PEER_TIMEOUT_MS", "timeout_ms", "auto", "1..86400000"},
    {"PEER_TIMEOUT_MS", "timeout_ms", "18446744073709551617", "1..86400000"}, /* 2^64 + 1 */
    {"PEER_NCCL", "nccl", "", "auto|off|path of the library"},
    {"PEER_PDL", "pdl", "auto", "off|on"},
    {"PEER_PROBE", "probe", "on", "auto|full|quick|off"},
    {"PEER_PROBE_FAULT", "probe_fault", "", "none, or"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong", "wrong|busy|unseen|slow"},
    {"PEER_PROBE_FAULT", "probe_fault", "none:all", "wrong|busy|unseen|slow"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong:1", ":WRITER-READER"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong:1-1", ":WRITER-READER"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong:1-16", ":WRITER-READER"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong:-1-2", ":WRITER-READER"},
    {"PEER_PROBE_FAULT", "probe_fault", "wrong:1-2x", ":WRITER-READER"},
    {"PEER_PROBE_FAULT", "probe_fault", "nccl.wrong:all", "ipc. or shm."},
    {"PEER_LOG", "log", "warning", "off|error|warn|info|debug|trace"},
    {"PEER_LOG", "log", "2", "off|error|warn|info|debug|trace"},
    {"PEER_EPOCH_START", "epoch_start", "4294967296", "0..4294967295"},
    {"PEER_EPOCH_START", "epoch_start", "0x", "0..4294967295"},
    {"PEER_EPOCH_START", "epoch_start", "0x0x1", "0..4294967295"},
    {"PEER_EPOCH_START", "epoch_start", "0xg", "0..4294967295"},
    {"PEER_EPOCH_START", "epoch_start", "f", "0..4294967295"},
};

static void check_bad(const char *name, const char *value, const char *legal_part)
{
    char quoted[512];

    snprintf(quoted, sizeof quoted, "%s is \"%s\"", name, value);
    TEST_CONTAINS(PEER_Last_error(), quoted);
    TEST_CONTAINS(PEER_Last_error(), legal_part);
}

static void test_bad(void)
{
    struct peer_config config, defaults;
    char too_long[300];

    TEST_OK(peer_config_load(&defaults, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        TEST_STATUS(load_from_environment(&config, bad[i].name, bad[i].value), PEER_ERR_SETTING);
        check_bad(bad[i].name, bad[i].value, bad[i].legal);
        TEST_INT(memcmp(&config, &defaults, sizeof config), 0);
        TEST_STATUS(load_from_source(&config, bad[i].key, bad[i].value), PEER_ERR_SETTING);
        check_bad(bad[i].key, bad[i].value, bad[i].legal);
        TEST_INT(memcmp(&config, &defaults, sizeof config), 0);
    }

    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    TEST_STATUS(load_from_environment(&config, "PEER_NCCL", too_long), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "255 bytes at most");
    TEST_STATUS(load_from_environment(&config, "PEER_LOG_FILE", too_long), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "255 bytes at most");
    TEST_STATUS(load_from_source(&config, "node", too_long), PEER_ERR_SETTING);
    TEST_CONTAINS(PEER_Last_error(), "63 bytes at most");
}

/* A value from the source wins, so that a bad one in the environment behind it does no harm. */
static void test_source_wins(void)
{
    struct peer_config config;

    TEST_INT(setenv("PEER_BLOCKS", "7", 1), 0);
    TEST_OK(load_from_source(&config, "blocks", "9"));
    TEST_INT(config.blocks, 9);
    TEST_OK(load_from_source(&config, "threads", "64"));
    TEST_INT(config.blocks, 7);
    TEST_INT(config.threads, 64);
    TEST_INT(setenv("PEER_BLOCKS", "wrong", 1), 0);
    TEST_OK(load_from_source(&config, "blocks", "9"));
    TEST_INT(config.blocks, 9);
    TEST_INT(unsetenv("PEER_BLOCKS"), 0);
    TEST_OK(load_from_source(&config, "no_setting", "1"));
}

static void test_hash(void)
{
    struct peer_config config;
    uint64_t hash;

    TEST_OK(peer_config_load(&config, NULL));
    hash = peer_config_hash(&config);
    for (size_t i = 0; i < N_ROWS; i++) {
        TEST_OK(load_from_source(&config, rows[i].key, rows[i].other));
        TEST_INT(peer_config_hash(&config) != hash, rows[i].in_hash);
    }
    /* The value counts, however it was written. */
    TEST_OK(load_from_source(&config, "blocks", "0"));
    TEST_TRUE(peer_config_hash(&config) == hash);
    TEST_OK(load_from_source(&config, "staging_bytes", "1M"));
    hash = peer_config_hash(&config);
    TEST_OK(load_from_source(&config, "staging_bytes", "1048576"));
    TEST_TRUE(peer_config_hash(&config) == hash);
    /* The protocol counts too, and the same text in another row is another hash. */
    TEST_OK(load_from_source(&config, "algorithm", "twoshot"));
    hash = peer_config_hash(&config);
    TEST_OK(load_from_source(&config, "algorithm", "twoshot.ll"));
    TEST_TRUE(peer_config_hash(&config) != hash);
    TEST_OK(load_from_source(&config, "blocks", "32"));
    hash = peer_config_hash(&config);
    TEST_OK(load_from_source(&config, "threads", "32"));
    TEST_TRUE(peer_config_hash(&config) != hash);
}

static void test_print(void)
{
    struct peer_config config;
    char *text = NULL, *line;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    TEST_TRUE(to != NULL);
    TEST_INT(setenv("PEER_ALGORITHM", "twoshot.flag", 1), 0);
    TEST_OK(load_from_source(&config, "staging_bytes", "20K"));
    TEST_INT(unsetenv("PEER_ALGORITHM"), 0);
    peer_config_print(to, &config);
    fclose(to);
    for (size_t i = 0; i < N_ROWS; i++)
        TEST_CONTAINS(text, rows[i].name);

    /* One line a row and one above them; name, value, default and what is legal in columns. */
    for (line = text, bytes = 0; (line = strchr(line, '\n')) != NULL; line++)
        bytes++;
    TEST_INT(bytes, N_ROWS + 1);
    line = strstr(text, "PEER_STAGING_BYTES");
    TEST_INT(strstr(line, "20K") - line, strstr(text, "value") - text);
    TEST_INT(strstr(line, "auto") - line, strstr(text, "default") - text);
    TEST_INT(strstr(line, "auto|16K..256M") - line, strstr(text, "legal") - text);
    TEST_CONTAINS(text, "twoshot.flag");
    TEST_CONTAINS(strstr(text, "PEER_NODE"), "\"\"");
    free(text);
}

/* ---- The log -------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/peercoll-test-XXXXXX";
static char contents[1 << 16];

/* A file in the test's folder; rank and the like in its name. Valid until the next call. */
static const char *file_path(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* What the file holds, which then is no more. */
static const char *take_file(const char *path)
{
    FILE *from = fopen(path, "r");

    TEST_TRUE(from != NULL);
    contents[fread(contents, 1, sizeof contents - 1, from)] = '\0';
    fclose(from);
    TEST_INT(unlink(path), 0);
    return contents;
}

static void test_unknown(void)
{
    peer_log_open(PEER_LOG_WARN, file_path("unknown"), 0);
    for (size_t i = 0; i < N_ROWS; i++)
        TEST_INT(setenv(rows[i].name, rows[i].standard, 1), 0);
    TEST_INT(setenv("PEERAGE", "1", 1), 0);
    peer_config_warn_unknown();
    TEST_TEXT(take_file(file_path("unknown")), "");

    peer_log_open(PEER_LOG_WARN, file_path("unknown"), 0);
    TEST_INT(setenv("PEER_TRANSPRT", "ipc", 1), 0);
    TEST_INT(setenv("PEER_TIMEOUT", "1", 1), 0);
    TEST_INT(setenv("PEER_SOMETHING_ELSE", "", 1), 0);
    peer_config_warn_unknown();
    take_file(file_path("unknown"));
    TEST_CONTAINS(contents, "peercoll[0] warn: ");
    TEST_CONTAINS(contents, "PEER_TRANSPRT is no setting; did you mean PEER_TRANSPORT?\n");
    TEST_CONTAINS(contents, "PEER_TIMEOUT is no setting; did you mean PEER_TIMEOUT_MS?\n");
    TEST_CONTAINS(contents, "PEER_SOMETHING_ELSE is no setting; peer_info --settings lists them\n");
}

static void test_log_levels(void)
{
    char numbered[sizeof folder + 32];

    snprintf(numbered, sizeof numbered, "%s/%s", folder, "a%r.b%r%%");
    peer_log_open(PEER_LOG_INFO, numbered, 12);
    peer_log(PEER_LOG_ERROR, "one %d", 1);
    peer_log(PEER_LOG_WARN, "two");
    peer_log(PEER_LOG_INFO, "three");
    peer_log(PEER_LOG_DEBUG, "four");
    peer_log_open(PEER_LOG_TRACE, numbered, 12);
    peer_log(PEER_LOG_TRACE, "five");
    peer_log(PEER_LOG_OFF, "never");
    peer_log_open(PEER_LOG_OFF, numbered, 13);
    peer_log(PEER_LOG_ERROR, "six");
    TEST_TEXT(take_file(file_path("a12.b12%%")),
              "peercoll[12] error: one 1\npeercoll[12] warn: two\npeercoll[12] info: three\n"
              "peercoll[12] trace: five\n");
    TEST_INT(access(file_path("a13.b13%%"), F_OK), -1);
}

/* Without a file that can be written the log goes to stderr, which is a file here for as long. */
static void test_log_stderr(void)
{
    int saved = dup(STDERR_FILENO);
    int to = open(file_path("stderr"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    TEST_TRUE(saved >= 0 && to >= 0);
    dup2(to, STDERR_FILENO);
    peer_log_open(PEER_LOG_WARN, "/no/such/folder/%r", 3);
    peer_log(PEER_LOG_ERROR, "still here");
    peer_log_open(PEER_LOG_ERROR, "", 4);
    peer_log(PEER_LOG_WARN, "not wanted");
    peer_log(PEER_LOG_ERROR, "wanted");
    dup2(saved, STDERR_FILENO);
    close(to);
    close(saved);
    take_file(file_path("stderr"));
    TEST_CONTAINS(contents, "peercoll[3] warn: log file /no/such/folder/%r: No such file or directory;");
    TEST_CONTAINS(contents, "PEER_LOG_FILE to a file that can be written\npeercoll[3] error: still here\n"
                            "peercoll[4] error: wanted\n");
}

#define N_THREADS 4
#define N_LINES   100

static void *write_lines(void *arg)
{
    for (int i = 0; i < N_LINES; i++)
        peer_log(PEER_LOG_INFO, "%s", (const char *)arg);
    return NULL;
}

/* Lines of threads come whole, and a text that is too long still ends its line. */
static void test_log_threads(void)
{
    pthread_t threads[N_THREADS];
    static const char line[] = "peercoll[0] info: what all of the threads write\n";
    static char too_long[4096];
    size_t length = strlen(line);

    peer_log_open(PEER_LOG_INFO, file_path("threads"), 0);
    for (int i = 0; i < N_THREADS; i++)
        TEST_INT(pthread_create(&threads[i], NULL, write_lines, "what all of the threads write"), 0);
    for (int i = 0; i < N_THREADS; i++)
        TEST_INT(pthread_join(threads[i], NULL), 0);
    take_file(file_path("threads"));
    TEST_INT(strlen(contents), N_THREADS * N_LINES * length);
    for (size_t i = 0; i < N_THREADS * N_LINES; i++)
        TEST_INT(strncmp(contents + i * length, line, length), 0);

    memset(too_long, 'x', sizeof too_long - 1);
    peer_log_open(PEER_LOG_INFO, file_path("long"), 0);
    peer_log(PEER_LOG_INFO, "%s", too_long);
    peer_log(PEER_LOG_INFO, "next");
    TEST_CONTAINS(take_file(file_path("long")), "xxx\npeercoll[0] info: next\n");
    peer_log_open(PEER_LOG_WARN, "", 0);
}

int main(void)
{
    clear_environment();
    TEST_TRUE(mkdtemp(folder) != NULL);

    test_defaults();
    test_legal();
    test_text();
    test_plan();
    test_bad();
    test_source_wins();
    test_hash();
    test_print();
    test_unknown();
    test_log_levels();
    test_log_stderr();
    test_log_threads();

    TEST_INT(rmdir(folder), 0);
    test_pass();
}
