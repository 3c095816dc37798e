/* What every test program needs: checks that don't go away with NDEBUG, and the ways to end.
 *
 * A check that fails prints file, line and both values and ends the program, which ends its MPI job as well.
 * A program that passes ends with test_pass(), one that can't run here with test_skip(); under MPI, set
 * test_rank first, and call both after MPI_Finalize on all ranks alike. */
#ifndef PEER_TEST_H
#define PEER_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "peercoll.h"

/* This process's rank, for messages; rank 0 says that the test has passed. Weak: one for all files of a program. */
__attribute__((weak)) int test_rank;

/* Each argument is evaluated once. */
#define TEST_TRUE(condition)        test_check_true(__FILE__, __LINE__, #condition, (condition))
#define TEST_INT(got, wanted)       test_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))
#define TEST_TEXT(got, wanted)      test_check_text(__FILE__, __LINE__, #got, (got), (wanted))
#define TEST_CONTAINS(text, part)   test_check_contains(__FILE__, __LINE__, #text, (text), (part))
#define TEST_STATUS(status, wanted) test_check_status(__FILE__, __LINE__, #status, (status), (wanted))
#define TEST_OK(status)             TEST_STATUS(status, PEER_SUCCESS)

/* Begins a failure's message; the caller goes on in the same line, and ends with test_end_failure. */
static inline void test_begin_failure(const char *file, int line)
{
    fflush(stdout);
    fprintf(stderr, "%s:%d: rank %d: ", file, line, test_rank);
}

_Noreturn static inline void test_end_failure(void)
{
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

static inline void test_check_true(const char *file, int line, const char *what, bool holds)
{
    if (holds)
        return;
    test_begin_failure(file, line);
    fprintf(stderr, "%s does not hold", what);
    test_end_failure();
}

static inline void test_check_int(const char *file, int line, const char *what, long long got,
                                  long long wanted)
{
    if (got == wanted)
        return;
    test_begin_failure(file, line);
    fprintf(stderr, "%s is %lld (0x%llx), should be %lld (0x%llx)", what, got, (unsigned long long)got,
            wanted, (unsigned long long)wanted);
    test_end_failure();
}

static inline void test_check_text(const char *file, int line, const char *what, const char *got,
                                   const char *wanted)
{
    if (got != NULL && strcmp(got, wanted) == 0)
        return;
    test_begin_failure(file, line);
    fprintf(stderr, "%s is \"%s\", should be \"%s\"", what, got != NULL ? got : "(null)", wanted);
    test_end_failure();
}

static inline void test_check_contains(const char *file, int line, const char *what, const char *text,
                                       const char *part)
{
    if (text != NULL && strstr(text, part) != NULL)
        return;
    test_begin_failure(file, line);
    fprintf(stderr, "%s is \"%s\", should contain \"%s\"", what, text != NULL ? text : "(null)", part);
    test_end_failure();
}

static inline void test_check_status(const char *file, int line, const char *what, int got, int wanted)
{
    if (got == wanted)
        return;
    test_begin_failure(file, line);
    fprintf(stderr, "%s is %s, should be %s; last error: %s", what, peer_status_name(got),
            peer_status_name(wanted), PEER_Last_error());
    test_end_failure();
}

/* This machine or build can't run the test, for the reason given. */
_Noreturn static inline void test_skip(const char *reason)
{
    if (test_rank == 0)
        printf("SKIP: %s\n", reason);
    exit(77);
}

_Noreturn static inline void test_pass(void)
{
    if (test_rank == 0)
        printf("passed\n");
    exit(EXIT_SUCCESS);
}

#endif
