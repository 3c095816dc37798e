/* The probe of the peer path: every pair of ranks at once, data and flags by the kernels' own stores,
 * verified, under a deadline; then a vote, so that all ranks go the same way. */
#include "internal.h"

#include <string.h>

#define PROBE_ROUNDS     16
#define PROBE_TIMEOUT_MS 5000

/* What a rank saw, and can be heard of by all. */
struct verdict {
    int32_t status;
    struct peer_probe_result result;
};

static int probe_here(struct peer_comm *comm, struct peer_probe_result *result)
{
    struct peer_call call = {.collective = PEER_COLL_BARRIER, .blocks = 1};
    uint64_t limit_ns = (uint64_t)PROBE_TIMEOUT_MS * 1000000;
    peer_transport_call(comm, &call);
    call.threads = comm->device.ops == &peer_device_host ? 1 : 128;
    if (call.timeout_ns > limit_ns)
        call.timeout_ns = limit_ns;
    return comm->device.ops->probe(&comm->device, &call, PROBE_ROUNDS, result);
}

/* The first fault among all ranks' verdicts, in words; false if there is none. */
static bool fault_of(const struct verdict *all, int size, char *why, size_t why_bytes)
{
    static const struct {
        const char *what;
        size_t offset;
    } kinds[] = {
        {"never saw a flag from", offsetof(struct peer_probe_result, unseen)},
        {"got wrong data from", offsetof(struct peer_probe_result, wrong)},
    };
    for (int reader = 0; reader < size; reader++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            for (int writer = 0; writer < size; writer++) {
                uint32_t ranks;
                memcpy(&ranks, (const char *)&all[reader].result + kinds[k].offset, sizeof ranks);
                if (!(ranks >> writer & 1))
                    continue;
                snprintf(why, why_bytes, "the probe failed: rank %d %s rank %d", reader, kinds[k].what,
                         writer);
                return true;
            }
    return false;
}

int peer_probe(struct peer_comm *comm, bool *ok, bool *line_ok, char *why, size_t why_bytes)
{
    struct verdict mine = {0}, all[PEER_MAX_PEERS];
    int status;
    *ok = *line_ok = false;
    mine.status = probe_here(comm, &mine.result);
    status = peer_vote(comm->boot, mine.status);
    if (status == PEER_SUCCESS)
        status = comm->boot->allgather(comm->boot, &mine, all, sizeof mine);
    if (status != PEER_SUCCESS)
        return status;
    *ok = !fault_of(all, comm->size, why, why_bytes);
    *line_ok = true;
    for (int r = 0; r < comm->size; r++)
        *line_ok = *line_ok && all[r].result.torn == 0;
    return PEER_SUCCESS;
}
