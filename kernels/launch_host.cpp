/* The kernels for the CPU. Compiled once for each instruction set, PEER_ISA being its name (launch.h has the
 * list); everything but the one table at the end is local to this file. */
#include "dispatch.h"

namespace
{

/* body(block); plain: see block_of. */
template <class Body>
void on_every_block(const peer_call &c, bool plain, Body body)
{
    for (uint32_t i = 0; i < peer_grid(&c); i++) {
        Block b = block_of(c, i, plain);
        body(b);
    }
}

template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL, class Kind>
void run_allreduce(const peer_call &c, Op op)
{
    on_every_block(c, Kind::PLAIN, [&](Block &b) { any_allreduce<T, Op, ALGORITHM, PROTOCOL, Kind>(b, op); });
}

void launch_allreduce(const peer_call &c)
{
    with_reduction(c.datatype, c.op, c.even, [&](auto type, auto op) {
        with_algorithm(c.algorithm, c.protocol, [&](auto algorithm, auto protocol) {
            using T = typename decltype(type)::Type;
            using Op = decltype(op);
            constexpr uint32_t ALGORITHM = decltype(algorithm)::VALUE, PROTOCOL = decltype(protocol)::VALUE;
            with_kind<Op>(c, [&](auto kind) {
                run_allreduce<T, Op, ALGORITHM, PROTOCOL, KindFor<ALGORITHM, PROTOCOL, decltype(kind)>>(c,
                                                                                                        op);
            });
        });
    });
}

void launch_combine(const peer_call &c)
{
    with_reduction(c.datatype, c.op, c.even, [&](auto type, auto op) {
        with_protocol(c.protocol, [&](auto protocol) {
            using T = typename decltype(type)::Type;
            using Op = decltype(op);
            constexpr uint32_t PROTOCOL = decltype(protocol)::VALUE;
            with_kind<Op>(c, [&](auto kind) {
                using Kind = KindUnder<PROTOCOL, decltype(kind)>;
                on_every_block(c, Kind::PLAIN,
                               [&](Block &b) { combine<T, Op, PROTOCOL, Kind>(b, *c.exchange, op); });
            });
        });
    });
}

void launch_move(const peer_call &c)
{
    with_unit(c.unit, [&](auto type) {
        with_protocol(c.protocol, [&](auto protocol) {
            using T = typename decltype(type)::Type;
            constexpr uint32_t PROTOCOL = decltype(protocol)::VALUE;
            with_kind_of_move(c, [&](auto kind) {
                using Kind = KindUnder<PROTOCOL, decltype(kind)>;
                on_every_block(c, Kind::PLAIN, [&](Block &b) { move<T, PROTOCOL, Kind>(b, *c.exchange); });
            });
        });
    });
}

void launch(const peer_call *call)
{
    const peer_call &c = *call;
    switch (c.kernel) {
    case PEER_KERNEL_BARRIER:
        on_every_block(c, true, [](Block &b) { barrier(b); });
        break;
    case PEER_KERNEL_ALLREDUCE:
        launch_allreduce(c);
        break;
    case PEER_KERNEL_MOVE:
        launch_move(c);
        break;
    case PEER_KERNEL_COMBINE:
        launch_combine(c);
        break;
    }
}

void reduce(uint32_t datatype, uint32_t op, const void *const parts[], uint32_t nparts, void *recv,
            size_t count)
{
    with_reduction(datatype, op, false, [=](auto type, auto operation) {
        using T = typename decltype(type)::Type;
        constexpr uint32_t N = PEER_VECTOR / sizeof(T);
        for (uint64_t i = 0; i * N < count; i++) {
            Accumulator<T, PEER_VECTOR, decltype(operation)> acc;
            acc.start(load_pack<T, PEER_VECTOR, false>((const T *)parts[0], i, count, 1), operation);
            for (uint32_t r = 1; r < nparts; r++)
                acc.add(load_pack<T, PEER_VECTOR, false>((const T *)parts[r], i, count, 1), operation);
            store_pack<T, PEER_VECTOR, false>((T *)recv, i, count, 1, acc.result(operation, nparts));
        }
    });
}

} // namespace

#define TABLE_OF(isa)   peer_host_kernels_##isa
#define TABLE_NAME(isa) TABLE_OF(isa)

extern "C" const struct peer_host_kernels TABLE_NAME(PEER_ISA) = {launch, reduce, PEER_VECTOR};
