/* Faults: how a wait that failed in a kernel becomes the communicator's status and a text that names the call and
 * the ranks that did not arrive. */
#include "internal.h"

#include "peercoll.h"

#include <string.h>
#include <time.h>

/* How long the ranks' records are waited for after the first wait has failed; they come within a few polls. */
#define GRACE_NS 100000000

int peer_fault_break(struct peer_comm *comm, int status)
{
    if (comm->status == PEER_SUCCESS) {
        comm->status = status;
        snprintf(comm->status_text, sizeof comm->status_text, "%s", PEER_Last_error());
        comm->last.valid = false;
        /* So that the others need not wait for this rank until their time is up. */
        if (comm->peers.control != NULL && comm->peers.control->failed == PEER_SUCCESS)
            comm->peers.control->failed = status;
        peer_log(PEER_LOG_ERROR, "communicator broken: %s", comm->status_text);
    }
    return status;
}

uint64_t peer_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How many ranks have a record of the failed call, in which they waited. */
static int recorded_ranks(const struct peer_comm *comm)
{
    int recorded = 0;
    for (int r = 0; r < comm->size; r++)
        recorded += comm->peers.control->rank[r].status != PEER_SUCCESS;
    return recorded;
}

static void wait_for_records(const struct peer_comm *comm)
{
    uint64_t deadline = peer_now_ns() + GRACE_NS;
    const struct timespec pause = {0, 200000};
    while (recorded_ranks(comm) < comm->size - 1 && peer_now_ns() < deadline)
        nanosleep(&pause, NULL);
}

/* "2, 5" into text: the ranks that did not arrive. They are those without a record: a rank that waited has one, be
 * it that it waited for another that waited itself. Whom a rank missed first tells less. */
static int missing_ranks(const struct peer_comm *comm, char *text, size_t text_bytes)
{
    int missing = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < comm->size && used < text_bytes; r++)
        if (comm->peers.control->rank[r].status == PEER_SUCCESS)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", missing++ > 0 ? ", " : "", r);
    return missing;
}

/* The record that tells most: this rank's own, or the first there is. */
static const struct peer_record *record_of(const struct peer_comm *comm)
{
    const struct peer_control *control = comm->peers.control;
    const struct peer_record *record = &control->rank[comm->rank];
    for (int r = 0; r < comm->size && record->status == PEER_SUCCESS; r++)
        record = &control->rank[r];
    return record;
}

static int timeout_error(const struct peer_comm *comm)
{
    const struct peer_record *record = record_of(comm);
    char ranks[8 * PEER_MAX_PEERS];
    int missing = missing_ranks(comm, ranks, sizeof ranks);
    return peer_error(
        PEER_ERR_TIMEOUT,
        "%s (call %u of the communicator, %llu bytes): rank%s %s did not arrive%s within %llu ms; did all "
        "ranks make the call, with the same arguments? (PEER_TIMEOUT_MS sets the limit)",
        peer_collective_name(record->collective), record->call, (unsigned long long)record->nbytes,
        missing == 1 ? "" : "s", missing > 0 ? ranks : "unknown",
        missing > 1 && peer_collective_rooted(record->collective)
            ? ", or some of them (others had nothing to wait for)"
            : "",
        (unsigned long long)comm->config.timeout_ms);
}

int peer_fault_check(struct peer_comm *comm)
{
    int status = comm->status;
    if (status != PEER_SUCCESS)
        return peer_error(status, "the communicator is broken since: %s", comm->status_text);
    if (comm->peers.control != NULL)
        status = comm->peers.control->failed;
    if (status == PEER_SUCCESS && comm->aborted)
        status = PEER_ERR_ABORTED;
    if (status == PEER_SUCCESS)
        return PEER_SUCCESS;
    if (status == PEER_ERR_TIMEOUT) {
        wait_for_records(comm);
        timeout_error(comm);
    } else if (status == PEER_ERR_ABORTED) {
        peer_error(status,
                   comm->aborted ? "this rank called PEER_Comm_abort" : "a rank called PEER_Comm_abort");
    } else {
        peer_error(status, "a call failed on another rank (%s), which has the text of it",
                   PEER_Error_string(status));
    }
    return peer_fault_break(comm, status);
}
