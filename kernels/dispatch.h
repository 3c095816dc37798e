/* From a call's datatype, operation, algorithm and protocol, which are numbers, to the kernel, which is a template:
 * the one list that the host and the CUDA launcher instantiate from. SUM of the floating types that model code
 * uses has kernels of its own; all else shares one kernel for each datatype, which looks at the operation. */
#ifndef PEER_KERNELS_DISPATCH_H
#define PEER_KERNELS_DISPATCH_H

#include "allreduce.h"
#include "barrier.h"
#include "probe.h"

/* X(datatype, C++ type) */
#define PEER_KERNEL_TYPES(X)                                                                                 \
    X(PEER_INT32, int32_t)                                                                                   \
    X(PEER_INT64, int64_t)                                                                                   \
    X(PEER_FLOAT16, Half)                                                                                    \
    X(PEER_BFLOAT16, BFloat)                                                                                 \
    X(PEER_FLOAT32, float)                                                                                   \
    X(PEER_FLOAT64, double)

#define PEER_HOT_TYPES(X)                                                                                    \
    X(PEER_FLOAT16, Half)                                                                                    \
    X(PEER_BFLOAT16, BFloat)                                                                                 \
    X(PEER_FLOAT32, float)

namespace
{

template <class T>
struct Tag {
    using Type = T;
};

/* body(Tag<element type>, operation). False: no such datatype. */
template <class Body>
bool with_reduction(uint32_t datatype, uint32_t op, Body body)
{
#define HOT(name, T)                                                                                         \
    if (datatype == name && op == PEER_SUM) {                                                                \
        body(Tag<T>(), Sum{op});                                                                             \
        return true;                                                                                         \
    }
#define ANY(name, T)                                                                                         \
    if (datatype == name) {                                                                                  \
        body(Tag<T>(), AnyOp{op});                                                                           \
        return true;                                                                                         \
    }
    PEER_HOT_TYPES(HOT)
    PEER_KERNEL_TYPES(ANY)
#undef HOT
#undef ANY
    return false;
}

template <uint32_t V>
struct Number {
    static constexpr uint32_t VALUE = V;
};

/* body(Number<algorithm>, Number<protocol>) */
template <class Body>
void with_algorithm(uint32_t algorithm, uint32_t protocol, Body body)
{
    auto with_protocol = [&](auto a) {
        if (protocol == PEER_PROTO_LINE)
            body(a, Number<PEER_PROTO_LINE>());
        else if (protocol == PEER_PROTO_LL)
            body(a, Number<PEER_PROTO_LL>());
        else
            body(a, Number<PEER_PROTO_FLAG>());
    };
    if (algorithm == PEER_ALGO_ONESHOT)
        with_protocol(Number<PEER_ALGO_ONESHOT>());
    else
        with_protocol(Number<PEER_ALGO_TWOSHOT>());
}

} // namespace

#endif
