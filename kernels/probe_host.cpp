/* The probe for the CPU, compiled once: the base instruction set moves what the others do. */
#include "probe.h"

namespace
{

struct Merge {
    peer_probe_result *result;

    void faults(uint32_t unseen, uint32_t at, uint32_t wrong, uint32_t torn) const
    {
        result->unseen = unseen;
        result->at = at;
        result->wrong = wrong;
        result->torn = torn;
    }

    void stage(uint32_t i, uint64_t begin, uint64_t end, uint64_t amount) const
    {
        result->stage[i] = {begin, end, amount};
    }
};

} // namespace

extern "C" void peer_probe_host(const peer_call *call, const peer_probe_step *step, peer_probe_result *result)
{
    Block b = block_of(*call, 0, true);
    b.state.epoch = step->tag;
    probe(b, *step, Merge{result});
}
