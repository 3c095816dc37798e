/* test_errors: statuses and their texts, each thread's own last error, and what every public call does with
 * arguments that are not legal: the right status, a text that names the argument, and a communicator as usable
 * as before.
 *
 * Any number of ranks; the host device, whatever PEER_DEVICE says. */
#include <pthread.h>
#include <unistd.h>

#include "test.h"

/* ---- Statuses, version, datatypes ----------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
    int status, code;
} statuses[] = {
#define STATUS(name, code, text) {#name, text, name, code},
    PEER_STATUSES(STATUS)
#undef STATUS
};

#define N_STATUSES ((int)(sizeof statuses / sizeof statuses[0]))

static void test_statuses(void)
{
    for (int i = 0; i < N_STATUSES; i++) {
        TEST_INT(statuses[i].status, statuses[i].code);
        TEST_TRUE(i == 0 ? statuses[i].status == PEER_SUCCESS : statuses[i].status < 0);
        TEST_TRUE(statuses[i].text[0] != '\0');
        TEST_TEXT(PEER_Error_string(statuses[i].status), statuses[i].text);
        TEST_TEXT(peer_status_name(statuses[i].status), statuses[i].name);
        for (int j = 0; j < i; j++) {
            TEST_TRUE(statuses[i].status != statuses[j].status);
            TEST_TRUE(strcmp(statuses[i].text, statuses[j].text) != 0);
        }
    }
    TEST_TEXT(PEER_Error_string(1), "not a status");
    TEST_TEXT(PEER_Error_string(-N_STATUSES), "not a status");
    TEST_TEXT(PEER_Error_string(-2147483647 - 1), "not a status");
    TEST_TEXT(peer_status_name(1), "not a status");
}

static void test_version(void)
{
    int version = -1;

    TEST_OK(PEER_Get_version(&version));
    TEST_INT(version, PEER_VERSION_MAJOR * 10000 + PEER_VERSION_MINOR * 100 + PEER_VERSION_PATCH);
    TEST_STATUS(PEER_Get_version(NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "version is NULL");
}

static void test_datatypes(void)
{
    static const struct {
        PEER_Datatype datatype;
        size_t bytes;
        const char *text;
    } datatypes[] = {
#define DATATYPE(name, bytes, text) {name, bytes, text},
        PEER_DATATYPES(DATATYPE)
#undef DATATYPE
    };
    static const int none[] = {PEER_N_DATATYPES, -1, 1 << 30};
    size_t bytes;

    for (size_t i = 0; i < PEER_N_DATATYPES; i++) {
        TEST_OK(PEER_Datatype_size(datatypes[i].datatype, &bytes));
        TEST_INT(bytes, datatypes[i].bytes);
        TEST_INT(peer_datatype_bytes(datatypes[i].datatype), datatypes[i].bytes);
        TEST_TEXT(peer_datatype_name(datatypes[i].datatype), datatypes[i].text);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        bytes = 77;
        TEST_STATUS(PEER_Datatype_size((PEER_Datatype)none[i], &bytes), PEER_ERR_TYPE);
        TEST_CONTAINS(PEER_Last_error(), "datatype");
        TEST_INT(bytes, 77);
        TEST_INT(peer_datatype_bytes((uint32_t)none[i]), 0);
        TEST_TEXT(peer_datatype_name((uint32_t)none[i]), "not a datatype");
    }
    TEST_STATUS(PEER_Datatype_size(PEER_INT32, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "bytes is NULL");
    TEST_TEXT(peer_op_name(PEER_SUM), "sum");
    TEST_TEXT(peer_op_name(PEER_N_OPS), "not an operation");
}

/* ---- The last error ------------------------------------------------------------------------------------- */

static void *fail_in_thread(void *arg)
{
    (void)arg;
    TEST_TEXT(PEER_Last_error(), "");
    TEST_STATUS(peer_error(PEER_ERR_MPI, "of the thread"), PEER_ERR_MPI);
    TEST_TEXT(PEER_Last_error(), "of the thread");
    return NULL;
}

static void test_last_error(void)
{
    pthread_t thread;
    char text[2000];
    int version;

    TEST_STATUS(peer_error(PEER_ERR_OP, "%s %d", "of main", 1), PEER_ERR_OP);
    TEST_INT(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    TEST_INT(pthread_join(thread, NULL), 0);
    TEST_OK(PEER_Get_version(&version));
    TEST_TEXT(PEER_Last_error(), "of main 1");

    /* Told again with more around it. */
    TEST_STATUS(peer_error(PEER_ERR_ARG, "rank 3: %s!", PEER_Last_error()), PEER_ERR_ARG);
    TEST_TEXT(PEER_Last_error(), "rank 3: of main 1!");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    peer_error(PEER_ERR_ARG, "%s", text);
    TEST_INT(strlen(PEER_Last_error()), 1023);
    peer_error(PEER_ERR_ARG, "twice %s", PEER_Last_error());
    TEST_CONTAINS(PEER_Last_error(), "twice xxx");
}

/* ---- Communicators -------------------------------------------------------------------------------------- */

static int rank, size;

/* Settings of the host device, with a pair of the caller's. The caller frees it. */
static MPI_Info make_info(const char *key, const char *value)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "device", "host");
    if (key != NULL)
        MPI_Info_set(info, key, value);
    return info;
}

static int create_with(const char *key, const char *value, PEER_Comm *comm)
{
    MPI_Info info = make_info(key, value);
    int status = PEER_Comm_create(MPI_COMM_WORLD, info, comm);

    MPI_Info_free(&info);
    return status;
}

/* The sum over all ranks of rank + 1 comes out right, with and without PEER_IN_PLACE. */
static void check_usable(PEER_Comm comm)
{
    int32_t mine = rank + 1, sum = 0;

    TEST_OK(PEER_Allreduce(&mine, &sum, 1, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(sum, size * (size + 1) / 2);
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, &mine, 1, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(mine, size * (size + 1) / 2);
}

static void check_failed_create(int status, int wanted, PEER_Comm comm, const char *part)
{
    TEST_STATUS(status, wanted);
    TEST_CONTAINS(PEER_Last_error(), part);
    TEST_TRUE(comm == PEER_COMM_NULL);
}

static void test_create(void)
{
    PEER_Comm comm = (PEER_Comm)&comm; /* not PEER_COMM_NULL before */
    MPI_Comm half, between;
    int status;

    check_failed_create(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, NULL), PEER_ERR_ARG, PEER_COMM_NULL,
                        "comm is NULL");
    status = PEER_Comm_create(MPI_COMM_NULL, MPI_INFO_NULL, &comm);
    check_failed_create(status, PEER_ERR_ARG, comm, "mpi_comm is MPI_COMM_NULL");
    if (size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &between);
        comm = (PEER_Comm)&comm;
        status = PEER_Comm_create(between, MPI_INFO_NULL, &comm);
        check_failed_create(status, PEER_ERR_ARG, comm, "intercommunicator");
        MPI_Comm_free(&between);
        MPI_Comm_free(&half);
    }
}

/* One rank's bad setting, or other setting, is all ranks' failure, with its text. */
static void test_create_settings(void)
{
    PEER_Comm comm = (PEER_Comm)&comm;
    bool last = rank == size - 1;
    int status;

    status = create_with("blocks", "many", &comm);
    check_failed_create(status, PEER_ERR_SETTING, comm, "info key blocks is \"many\"");
    status = create_with("timeout_ms", last ? "-5" : "20000", &comm);
    check_failed_create(status, PEER_ERR_SETTING, comm, "info key timeout_ms is \"-5\"");
    TEST_INT(setenv("PEER_EPOCH_START", last ? "x" : "1", 1), 0);
    status = create_with(NULL, NULL, &comm);
    TEST_INT(unsetenv("PEER_EPOCH_START"), 0);
    check_failed_create(status, PEER_ERR_SETTING, comm, "PEER_EPOCH_START is \"x\"");

    if (size > 1) {
        status = create_with("staging_bytes", last ? "64K" : "128K", &comm);
        check_failed_create(status, PEER_ERR_MISMATCH, comm, "settings");
    }
    /* These need not agree; and after all those failures it works. */
    TEST_OK(create_with("timeout_ms", last ? "20000" : "10000", &comm));
    check_usable(comm);
    TEST_OK(PEER_Comm_free(&comm));
}

static void test_free(void)
{
    PEER_Comm comm, other;

    TEST_OK(create_with(NULL, NULL, &comm));
    TEST_OK(create_with(NULL, NULL, &other));
    TEST_OK(PEER_Comm_free(&comm));
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_OK(PEER_Comm_free(&comm));
    TEST_STATUS(PEER_Comm_free(NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "comm is NULL");
    check_usable(other);
    TEST_OK(PEER_Comm_free(&other));
}

/* Every call with a handle that is none. */
static void check_bad_handle(PEER_Comm bad)
{
    int32_t value = 1, sum = 2;
    int number = 3;
    MPI_Info info = MPI_INFO_NULL;

    TEST_STATUS(PEER_Comm_rank(bad, &number), PEER_ERR_COMM);
    TEST_CONTAINS(PEER_Last_error(), "communicator");
    TEST_STATUS(PEER_Comm_size(bad, &number), PEER_ERR_COMM);
    TEST_STATUS(PEER_Comm_get_async_error(bad, &number), PEER_ERR_COMM);
    TEST_STATUS(PEER_Comm_get_info(bad, &info), PEER_ERR_COMM);
    TEST_TRUE(info == MPI_INFO_NULL);
    TEST_STATUS(PEER_Barrier(bad, NULL), PEER_ERR_COMM);
    TEST_STATUS(PEER_Allreduce(&value, &sum, 1, PEER_INT32, PEER_SUM, bad, NULL), PEER_ERR_COMM);
    TEST_STATUS(PEER_Allreduce(NULL, NULL, 0, PEER_INT32, PEER_SUM, bad, NULL), PEER_ERR_COMM);
    TEST_INT(number, 3);
    TEST_INT(sum, 2);
}

static void test_bad_handles(PEER_Comm comm)
{
    static uint64_t garbage[1024]; /* larger than a communicator, and not one */
    PEER_Comm bad = (PEER_Comm)garbage;

    check_bad_handle(PEER_COMM_NULL);
    check_bad_handle(bad);
    TEST_STATUS(PEER_Comm_free(&bad), PEER_ERR_COMM);
    TEST_TRUE(bad == (PEER_Comm)garbage);
    check_usable(comm);
}

static void test_null_results(PEER_Comm comm)
{
    int status = 1;

    TEST_STATUS(PEER_Comm_rank(comm, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "rank is NULL");
    TEST_STATUS(PEER_Comm_size(comm, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "size is NULL");
    TEST_STATUS(PEER_Comm_get_async_error(comm, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "status is NULL");
    TEST_STATUS(PEER_Comm_get_info(comm, NULL), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "info_used is NULL");
    TEST_STATUS(PEER_Select_device(MPI_COMM_NULL, &status), PEER_ERR_ARG);
    TEST_CONTAINS(PEER_Last_error(), "mpi_comm is MPI_COMM_NULL");
    TEST_OK(PEER_Comm_get_async_error(comm, &status));
    TEST_INT(status, PEER_SUCCESS);
    check_usable(comm);
}

/* ---- PEER_Allreduce ------------------------------------------------------------------------------------- */

static char *send_bytes, *recv_bytes; /* 64 each, aligned to 64 */

static void test_bad_allreduce(PEER_Comm comm)
{
    const struct {
        const void *sendbuf;
        void *recvbuf;
        size_t count;
        int datatype, op, wanted;
        const char *part;
    } calls[] = {
        {send_bytes, recv_bytes, 4, PEER_N_DATATYPES, PEER_SUM, PEER_ERR_TYPE, "PEER_Datatype"},
        {send_bytes, recv_bytes, 4, -1, PEER_SUM, PEER_ERR_TYPE, "PEER_Datatype"},
        {NULL, NULL, 0, PEER_N_DATATYPES, PEER_SUM, PEER_ERR_TYPE, "PEER_Datatype"},
        {send_bytes, recv_bytes, 4, PEER_INT32, PEER_N_OPS, PEER_ERR_OP, "PEER_Op"},
        {send_bytes, recv_bytes, 4, PEER_INT32, -1, PEER_ERR_OP, "PEER_Op"},
        {NULL, NULL, 0, PEER_INT32, PEER_N_OPS, PEER_ERR_OP, "PEER_Op"},
        {NULL, recv_bytes, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "sendbuf is NULL"},
        {send_bytes, NULL, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "recvbuf is NULL"},
        {NULL, NULL, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "recvbuf is NULL"},
        {PEER_IN_PLACE, NULL, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "recvbuf is NULL"},
        {send_bytes, (void *)PEER_IN_PLACE, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "recvbuf"},
        {send_bytes + 1, recv_bytes, 4, PEER_FLOAT16, PEER_SUM, PEER_ERR_BUFFER, "sendbuf"},
        {send_bytes + 2, recv_bytes, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "sendbuf"},
        {send_bytes, recv_bytes + 1, 4, PEER_BFLOAT16, PEER_SUM, PEER_ERR_BUFFER, "recvbuf"},
        {send_bytes, recv_bytes + 4, 4, PEER_FLOAT64, PEER_SUM, PEER_ERR_BUFFER, "recvbuf"},
        {PEER_IN_PLACE, recv_bytes + 3, 4, PEER_FLOAT32, PEER_SUM, PEER_ERR_BUFFER, "recvbuf"},
        {recv_bytes + 4, recv_bytes, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "overlap"},
        {recv_bytes, recv_bytes + 12, 4, PEER_INT32, PEER_SUM, PEER_ERR_BUFFER, "overlap"},
        {recv_bytes, recv_bytes + 24, 4, PEER_FLOAT64, PEER_SUM, PEER_ERR_BUFFER, "overlap"},
        {send_bytes, recv_bytes, SIZE_MAX, PEER_FLOAT16, PEER_SUM, PEER_ERR_COUNT, "elements"},
        {send_bytes, recv_bytes, SIZE_MAX / 8 + 2, PEER_INT64, PEER_SUM, PEER_ERR_COUNT, "elements"},
        {send_bytes, recv_bytes, SIZE_MAX / 4, PEER_INT32, PEER_SUM, PEER_ERR_COUNT, "elements"},
        {PEER_IN_PLACE, recv_bytes, SIZE_MAX, PEER_FLOAT64, PEER_SUM, PEER_ERR_COUNT, "elements"},
    };

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int status, before = peer_error(PEER_ERR_INTERNAL, "call %zu of the table left no text", i);

        memset(send_bytes, 0x11, 64);
        memset(recv_bytes, 0x22, 64);
        status = PEER_Allreduce(calls[i].sendbuf, calls[i].recvbuf, calls[i].count,
                                (PEER_Datatype)calls[i].datatype, (PEER_Op)calls[i].op, comm, NULL);
        TEST_TRUE(status != before);
        TEST_CONTAINS(PEER_Last_error(), calls[i].part);
        TEST_STATUS(status, calls[i].wanted);
        for (int b = 0; b < 64; b++)
            TEST_TRUE(send_bytes[b] == 0x11 && recv_bytes[b] == 0x22);
        check_usable(comm);
    }
}

/* What looks like an error and is none. */
static void test_good_allreduce(PEER_Comm comm)
{
    int32_t *send = (int32_t *)send_bytes, *recv = (int32_t *)recv_bytes;
    int32_t sum = size * (size + 1) / 2;

    TEST_OK(PEER_Allreduce(NULL, NULL, 0, PEER_FLOAT64, PEER_MAX, comm, NULL));
    TEST_OK(PEER_Allreduce(PEER_IN_PLACE, NULL, 0, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_OK(PEER_Allreduce(recv_bytes + 1, recv_bytes + 2, 0, PEER_INT64, PEER_SUM, comm, NULL));
    check_usable(comm);

    /* Side by side, in both orders. */
    recv[2] = recv[3] = rank + 1;
    TEST_OK(PEER_Allreduce(recv + 2, recv, 2, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(recv[0], sum);
    TEST_INT(recv[1], sum);
    TEST_INT(recv[2], rank + 1);
    TEST_OK(PEER_Allreduce(recv + 2, recv + 4, 2, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(recv[3], rank + 1);
    TEST_INT(recv[4], sum);
    TEST_INT(recv[5], sum);

    /* In place by the same pointer on one rank, by name on the others, and not at all on the last. */
    recv[0] = send[0] = rank + 1;
    TEST_OK(PEER_Allreduce(rank == 0          ? (const void *)recv
                           : rank == size - 1 ? (const void *)send
                                              : PEER_IN_PLACE,
                           recv, 1, PEER_INT32, PEER_SUM, comm, NULL));
    TEST_INT(recv[0], sum);
    TEST_INT(send[0], rank + 1);
}

/* Only some ranks make the mistake, and make the call right after. */
static void test_error_on_one_rank(PEER_Comm comm)
{
    if (rank == size - 1) {
        TEST_STATUS(PEER_Allreduce(NULL, recv_bytes, 4, PEER_INT32, PEER_SUM, comm, NULL), PEER_ERR_BUFFER);
        TEST_STATUS(PEER_Allreduce(send_bytes, recv_bytes, 4, PEER_INT32, PEER_N_OPS, comm, NULL),
                    PEER_ERR_OP);
    }
    check_usable(comm);
    TEST_OK(PEER_Barrier(comm, NULL));
}

/* Before MPI_Init and after MPI_Finalize. */
static void test_without_mpi(void)
{
    PEER_Comm comm = (PEER_Comm)&comm;
    int device = 1;

    TEST_STATUS(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), PEER_ERR_MPI);
    TEST_CONTAINS(PEER_Last_error(), "MPI_Init");
    TEST_TRUE(comm == PEER_COMM_NULL);
    TEST_STATUS(PEER_Select_device(MPI_COMM_WORLD, &device), PEER_ERR_MPI);
}

int main(int argc, char **argv)
{
    PEER_Comm comm;
    int number;

    TEST_TEXT(PEER_Last_error(), "");
    test_statuses();
    test_version();
    test_datatypes();
    test_last_error();
    test_without_mpi();

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_rank = rank;
    TEST_INT(posix_memalign((void **)&send_bytes, 64, 64), 0);
    TEST_INT(posix_memalign((void **)&recv_bytes, 64, 64), 0);

    test_create();
    test_create_settings();
    test_free();
    TEST_OK(create_with(NULL, NULL, &comm));
    TEST_OK(PEER_Comm_rank(comm, &number));
    TEST_INT(number, rank);
    TEST_OK(PEER_Comm_size(comm, &number));
    TEST_INT(number, size);
    test_bad_handles(comm);
    test_null_results(comm);
    test_bad_allreduce(comm);
    test_good_allreduce(comm);
    test_error_on_one_rank(comm);
    TEST_OK(PEER_Comm_free(&comm));

    free(send_bytes);
    free(recv_bytes);
    MPI_Finalize();
    test_without_mpi();
    test_pass();
}
