/* peercoll's limits, statuses, datatypes and operations: the part of peercoll.h that needs no MPI, so that
 * device code can share it. Programs include peercoll.h. */
#ifndef PEERCOLL_TYPES_H
#define PEERCOLL_TYPES_H

/* Ranks of one communicator that the peer kernels serve; larger communicators go to NCCL or MPI. */
#define PEER_MAX_PEERS 16

/* X(name, code, text) */
#define PEER_STATUSES(X)                                                                                     \
    X(PEER_SUCCESS, 0, "success")                                                                            \
    X(PEER_ERR_ARG, -1, "an argument is not legal")                                                          \
    X(PEER_ERR_BUFFER, -2, "a buffer is NULL, misaligned or not of the right kind of memory")                \
    X(PEER_ERR_COUNT, -3, "a count is too large")                                                            \
    X(PEER_ERR_TYPE, -4, "not a datatype")                                                                   \
    X(PEER_ERR_OP, -5, "not an operation, or not one for this datatype")                                     \
    X(PEER_ERR_ROOT, -6, "the root is not a rank of the communicator")                                       \
    X(PEER_ERR_COMM, -7, "not a communicator")                                                               \
    X(PEER_ERR_UNSUPPORTED, -8, "this machine or build can't do what was asked for")                         \
    X(PEER_ERR_SETTING, -9, "a setting has a value that is not legal")                                       \
    X(PEER_ERR_NO_MEMORY, -10, "out of memory")                                                              \
    X(PEER_ERR_SYSTEM, -11, "a call to the operating system failed")                                         \
    X(PEER_ERR_MPI, -12, "a call to MPI failed")                                                             \
    X(PEER_ERR_CUDA, -13, "a call to CUDA failed")                                                           \
    X(PEER_ERR_NCCL, -14, "a call to NCCL failed")                                                           \
    X(PEER_ERR_MISMATCH, -15, "the ranks differ where they must agree")                                      \
    X(PEER_ERR_TIMEOUT, -16, "a rank did not arrive in time")                                                \
    X(PEER_ERR_PROC_FAILED, -17, "a rank's process has ended")                                               \
    X(PEER_ERR_ABORTED, -18, "the communicator was aborted")                                                 \
    X(PEER_ERR_INTERNAL, -19, "an error inside the library")

enum {
#define PEER_STATUS_ENUM(name, code, text) name = code,
    PEER_STATUSES(PEER_STATUS_ENUM)
#undef PEER_STATUS_ENUM
};

/* X(name, bytes, text). Integers are two's complement. FLOAT8_E4M3 has no infinities (OCP's E4M3FN), FLOAT8_E5M2
 * has; a complex number is two floats, real part first; BOOL is one byte, 0 is false and all else true. */
#define PEER_DATATYPES(X)                                                                                    \
    X(PEER_INT8, 1, "int8")                                                                                  \
    X(PEER_UINT8, 1, "uint8")                                                                                \
    X(PEER_INT16, 2, "int16")                                                                                \
    X(PEER_UINT16, 2, "uint16")                                                                              \
    X(PEER_INT32, 4, "int32")                                                                                \
    X(PEER_UINT32, 4, "uint32")                                                                              \
    X(PEER_INT64, 8, "int64")                                                                                \
    X(PEER_UINT64, 8, "uint64")                                                                              \
    X(PEER_FLOAT16, 2, "fp16")                                                                               \
    X(PEER_BFLOAT16, 2, "bf16")                                                                              \
    X(PEER_FLOAT32, 4, "fp32")                                                                               \
    X(PEER_FLOAT64, 8, "fp64")                                                                               \
    X(PEER_FLOAT8_E4M3, 1, "fp8e4m3")                                                                        \
    X(PEER_FLOAT8_E5M2, 1, "fp8e5m2")                                                                        \
    X(PEER_COMPLEX64, 8, "complex64")                                                                        \
    X(PEER_COMPLEX128, 16, "complex128")                                                                     \
    X(PEER_BOOL, 1, "bool")

typedef enum {
#define PEER_DATATYPE_ENUM(name, bytes, text) name,
    PEER_DATATYPES(PEER_DATATYPE_ENUM) PEER_N_DATATYPES /* their number, not a datatype */
#undef PEER_DATATYPE_ENUM
} PEER_Datatype;

/* X(name, text). The logical ones give 0 or 1. */
#define PEER_OPS(X)                                                                                          \
    X(PEER_SUM, "sum")                                                                                       \
    X(PEER_PROD, "prod")                                                                                     \
    X(PEER_MIN, "min")                                                                                       \
    X(PEER_MAX, "max")                                                                                       \
    X(PEER_AVG, "avg")                                                                                       \
    X(PEER_LAND, "land")                                                                                     \
    X(PEER_LOR, "lor")                                                                                       \
    X(PEER_LXOR, "lxor")                                                                                     \
    X(PEER_BAND, "band")                                                                                     \
    X(PEER_BOR, "bor")                                                                                       \
    X(PEER_BXOR, "bxor")

typedef enum {
#define PEER_OP_ENUM(name, text) name,
    PEER_OPS(PEER_OP_ENUM) PEER_N_OPS /* their number, not an operation */
#undef PEER_OP_ENUM
} PEER_Op;

#endif
