/* log.c: the one place that prints. The log is the process's: one level, one file, shared by all communicators.
 *
 * A line is "peercoll[RANK] LEVEL: TEXT", written by one write() to a descriptor in append mode, so that lines
 * of ranks and threads that share a file or a terminal come whole. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* The level alone is read without the lock: a line that isn't wanted costs one load. */
static atomic_uint log_level = PEER_LOG_WARN;

/* Of what follows, and so that a descriptor isn't closed under a writer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = STDERR_FILENO;
static char log_who[16] = "?"; /* the rank, once it is known */

const char *const peer_log_words[] = {
    [PEER_LOG_OFF] = "off",
    [PEER_LOG_ERROR] = "error",
    [PEER_LOG_WARN] = "warn",
    [PEER_LOG_INFO] = "info",
    [PEER_LOG_DEBUG] = "debug",
    [PEER_LOG_TRACE] = "trace",
    NULL,
};

/* Opens the file that the pattern names for this rank: its descriptor, or -1 with errno. */
static int open_file(const char *pattern, const char *rank)
{
    char path[4096];
    size_t length = 0;

    while (*pattern != '\0' && length + strlen(rank) < sizeof path) {
        if (strncmp(pattern, "%r", 2) == 0) {
            length += (size_t)sprintf(path + length, "%s", rank);
            pattern += 2;
        } else {
            path[length++] = *pattern++;
        }
    }
    if (*pattern != '\0') {
        errno = ENAMETOOLONG;
        return -1;
    }
    path[length] = '\0';
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

void peer_log_open(enum peer_log_level level, const char *file, int rank)
{
    char who[sizeof log_who];
    int fd = STDERR_FILENO, failure = 0;

    snprintf(who, sizeof who, "%d", rank);
    if (file[0] != '\0' && level > PEER_LOG_OFF)
        fd = open_file(file, who);
    if (fd < 0) {
        failure = errno;
        fd = STDERR_FILENO;
    }

    pthread_mutex_lock(&lock);
    if (log_fd != STDERR_FILENO)
        close(log_fd);
    log_fd = fd;
    strcpy(log_who, who);
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&log_level, level, memory_order_relaxed);

    if (failure != 0)
        peer_log(PEER_LOG_WARN,
                 "log file %s: %s; the log goes to stderr; set PEER_LOG_FILE to a file that can be written",
                 file, strerror(failure));
}

void peer_log(enum peer_log_level level, const char *format, ...)
{
    char line[2048];
    size_t length;
    ssize_t written;
    va_list args;
    int saved = errno;

    if (level == PEER_LOG_OFF || level > atomic_load_explicit(&log_level, memory_order_relaxed))
        return;

    pthread_mutex_lock(&lock);
    length = (size_t)snprintf(line, sizeof line, "peercoll[%s] %s: ", log_who, peer_log_words[level]);
    va_start(args, format);
    vsnprintf(line + length, sizeof line - length, format, args);
    va_end(args);
    length = strlen(line);
    /* A text that is too long is cut; the newline takes the place of the terminating 0. */
    line[length++] = '\n';
    written = write(log_fd, line, length);
    (void)written; /* if the log can't be written there is nowhere left to tell */
    pthread_mutex_unlock(&lock);
    errno = saved;
}
