/* From a call's datatype, operation, algorithm and protocol, which are numbers, to the kernel, which is a template:
 * the one list that the host and the CUDA launcher instantiate from. SUM of the floating types that model code
 * uses has kernels of its own, on a GPU further ones for plain calls whose looks are put off. There SUM of fp64 and of the
 * integers of 4 and 8 bytes, which MPI programs use most, has its own as well. All else shares one kernel for each size of
 * element, see kernels/cold.h. */
#ifndef PEER_KERNELS_DISPATCH_H
#define PEER_KERNELS_DISPATCH_H

#include <type_traits>

#include "allreduce.h"
#include "barrier.h"
#include "cold.h"
#include "exchange.h"
#include "island.h"

/* X(datatype, C++ type) */
#define PEER_HOT_TYPES(X)                                                                                    \
    X(PEER_FLOAT16, Half)                                                                                    \
    X(PEER_BFLOAT16, BFloat)                                                                                 \
    X(PEER_FLOAT32, float)

/* The same, where a thread is a GPU's and the call even: as most are, since these elements consist of whole
 * words. Sums wrap, and so are the same with and without sign. */
#define PEER_WARM_TYPES(X)                                                                                   \
    X(PEER_FLOAT64, double)                                                                                  \
    X(PEER_INT32, uint32_t)                                                                                  \
    X(PEER_UINT32, uint32_t)                                                                                 \
    X(PEER_INT64, uint64_t)                                                                                  \
    X(PEER_UINT64, uint64_t)

namespace
{

template <class T>
struct Tag {
    using Type = T;
};

/* body(Tag<element type>, operation); even: the call is. False: no such datatype. */
template <class Body>
bool with_reduction(uint32_t datatype, uint32_t op, bool even, Body body)
{
#define HOT(name, T)                                                                                         \
    if (datatype == name && op == PEER_SUM) {                                                                \
        body(Tag<T>(), Sum());                                                                               \
        return true;                                                                                         \
    }
#define WARM(name, T)                                                                                        \
    if (even && datatype == name && op == PEER_SUM) {                                                        \
        body(Tag<T>(), EvenSum());                                                                           \
        return true;                                                                                         \
    }
#define COLD(name, bytes, text)                                                                              \
    if (datatype == name) {                                                                                  \
        body(Tag<Cold<bytes>>(), AnyOp{datatype, op});                                                       \
        return true;                                                                                         \
    }
    PEER_HOT_TYPES(HOT)
    if constexpr (LIKE_GPU) {
        PEER_WARM_TYPES(WARM)
    }
    PEER_DATATYPES(COLD)
#undef HOT
#undef WARM
#undef COLD
    (void)even;
    return false;
}

inline bool is_plain(const peer_call &c)
{
    const peer_exchange *x = c.exchange;
    return c.npieces == 1 && !c.pull_one && !c.pull_all && c.teams == 0 && c.marks == nullptr &&
           (x == nullptr || (x->uniform && !x->pull));
}

/* body(KindOf), for a call that reduces. What a kernel need not ask costs neither time nor registers, and code that is not
 * there no cache of instructions: so calls that are worth it have kernels of their own kind. */
template <class Op, class Body>
void with_kind(const peer_call &c, Body body)
{
    if constexpr (Op::HOT || LIKE_GPU) {
        if (c.even && is_plain(c) && c.wire_ns == 0) {
            body(KindOf<true, true>());
            return;
        }
    }
    if constexpr (Op::HOT && !Op::EVEN_ONLY && LIKE_GPU) {
        if (c.even && is_plain(c)) {
            body(KindOf<true, true, true>());
            return;
        }
    }
    if constexpr (Op::HOT) {
        if (Op::EVEN_ONLY || c.even) {
            body(KindOf<true, false>());
            return;
        }
    }
    if constexpr (!Op::EVEN_ONLY)
        body(KindOf<false, false>());
}

/* The same for one that moves. */
template <class Body>
void with_kind_of_move(const peer_call &c, Body body)
{
    if (is_plain(c) && c.wire_ns == 0)
        body(KindOf<false, true>());
    else if (is_plain(c))
        body(KindOf<false, true, true>());
    else
        body(KindOf<false, false>());
}

template <uint32_t V>
struct Number {
    static constexpr uint32_t VALUE = V;
};

/* body(Number<protocol>) */
template <class Body>
void with_protocol(uint32_t protocol, Body body)
{
    if (protocol == PEER_PROTO_LINE)
        body(Number<PEER_PROTO_LINE>());
    else if (protocol == PEER_PROTO_LL)
        body(Number<PEER_PROTO_LL>());
    else
        body(Number<PEER_PROTO_FLAG>());
}

/* body(Number<algorithm>, Number<protocol>) */
template <class Body>
void with_algorithm(uint32_t algorithm, uint32_t protocol, Body body)
{
    with_protocol(protocol, [&](auto p) {
        if (algorithm == PEER_ALGO_ONESHOT)
            body(Number<PEER_ALGO_ONESHOT>(), p);
        else if (algorithm == PEER_ALGO_TWOSHOT)
            body(Number<PEER_ALGO_TWOSHOT>(), p);
        else if (algorithm == PEER_ALGO_ISLAND)
            body(Number<PEER_ALGO_ISLAND>(), p);
        else /* it has one protocol */
            body(Number<PEER_ALGO_STAGED>(), Number<PEER_PROTO_FLAG>());
    });
}

/* The kind of kernel that there is under a protocol: looks are at lines. */
template <uint32_t PROTOCOL, class Kind>
using KindUnder =
    std::conditional_t<PROTOCOL == PEER_PROTO_FLAG, KindOf<Kind::EVEN, Kind::PLAIN, false>, Kind>;

/* And for an algorithm. island has one: it is for links that take longer than its questions. */
template <uint32_t ALGORITHM, uint32_t PROTOCOL, class Kind>
using KindFor =
    std::conditional_t<ALGORITHM == PEER_ALGO_ISLAND, KindOf<false, false>, KindUnder<PROTOCOL, Kind>>;

/* One block's part in an all-reduce by any algorithm. */
template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL, class Kind>
PEER_FN void any_allreduce(Block &b, Op op)
{
    if constexpr (ALGORITHM == PEER_ALGO_ISLAND)
        island<T, Op, PROTOCOL, Kind>(b, op);
    else
        allreduce<T, Op, ALGORITHM, PROTOCOL, Kind>(b, op);
}

/* body(Tag<type as wide as the unit of an exchange that moves>) */
template <class Body>
void with_unit(uint32_t unit, Body body)
{
    if (unit == 4)
        body(Tag<uint32_t>());
    else
        body(Tag<uint8_t>());
}

} // namespace

#endif
