/* status.c: names and texts of statuses, datatypes and operations, all from the lists in peercoll_types.h, and
 * the text of each thread's last error. */
#include <stdarg.h>
#include <string.h>

#include "internal.h"
#include "peercoll.h"

static _Thread_local char last_error[1024];

int peer_error(int status, const char *format, ...)
{
    /* An argument may be last_error itself, where a failure is told again with more around it. */
    char text[sizeof last_error];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    strcpy(last_error, text);
    return status;
}

const char *PEER_Last_error(void)
{
    return last_error;
}

const char *PEER_Error_string(int status)
{
    switch (status) {
#define STATUS_TEXT(name, code, text)                                                                        \
    case name:                                                                                               \
        return text;
        PEER_STATUSES(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status";
}

const char *peer_status_name(int status)
{
    switch (status) {
#define STATUS_NAME(name, code, text)                                                                        \
    case name:                                                                                               \
        return #name;
        PEER_STATUSES(STATUS_NAME)
#undef STATUS_NAME
    }
    return "not a status";
}

void peer_version_text(int version, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

const char *peer_datatype_name(uint32_t datatype)
{
    switch (datatype) {
#define DATATYPE_NAME(name, bytes, text)                                                                     \
    case name:                                                                                               \
        return text;
        PEER_DATATYPES(DATATYPE_NAME)
#undef DATATYPE_NAME
    }
    return "not a datatype";
}

uint32_t peer_datatype_bytes(uint32_t datatype)
{
    switch (datatype) {
#define DATATYPE_BYTES(name, bytes, text)                                                                    \
    case name:                                                                                               \
        return bytes;
        PEER_DATATYPES(DATATYPE_BYTES)
#undef DATATYPE_BYTES
    }
    return 0;
}

/* What a datatype's elements are: which operations it has follows from that. */
enum type_class { CLASS_NONE, CLASS_INTEGER, CLASS_FLOATING, CLASS_COMPLEX, CLASS_LOGICAL };

static enum type_class class_of(uint32_t datatype)
{
    static const enum type_class classes[PEER_N_DATATYPES] = {
        [PEER_INT8] = CLASS_INTEGER,         [PEER_UINT8] = CLASS_INTEGER,
        [PEER_INT16] = CLASS_INTEGER,        [PEER_UINT16] = CLASS_INTEGER,
        [PEER_INT32] = CLASS_INTEGER,        [PEER_UINT32] = CLASS_INTEGER,
        [PEER_INT64] = CLASS_INTEGER,        [PEER_UINT64] = CLASS_INTEGER,
        [PEER_FLOAT16] = CLASS_FLOATING,     [PEER_BFLOAT16] = CLASS_FLOATING,
        [PEER_FLOAT32] = CLASS_FLOATING,     [PEER_FLOAT64] = CLASS_FLOATING,
        [PEER_FLOAT8_E4M3] = CLASS_FLOATING, [PEER_FLOAT8_E5M2] = CLASS_FLOATING,
        [PEER_COMPLEX64] = CLASS_COMPLEX,    [PEER_COMPLEX128] = CLASS_COMPLEX,
        [PEER_BOOL] = CLASS_LOGICAL,
    };
    return datatype < PEER_N_DATATYPES ? classes[datatype] : CLASS_NONE;
}

uint32_t peer_datatype_alignment(uint32_t datatype)
{
    uint32_t bytes = peer_datatype_bytes(datatype);
    return class_of(datatype) == CLASS_COMPLEX ? bytes / 2 : bytes;
}

bool peer_op_serves(uint32_t datatype, uint32_t op)
{
    enum type_class class = class_of(datatype);
    switch (op) {
    case PEER_SUM:
    case PEER_PROD:
    case PEER_AVG:
        return class == CLASS_INTEGER || class == CLASS_FLOATING || class == CLASS_COMPLEX;
    case PEER_MIN:
    case PEER_MAX:
        return class == CLASS_INTEGER || class == CLASS_FLOATING;
    case PEER_LAND:
    case PEER_LOR:
    case PEER_LXOR:
        return class == CLASS_INTEGER || class == CLASS_LOGICAL;
    case PEER_BAND:
    case PEER_BOR:
    case PEER_BXOR:
        return class == CLASS_INTEGER;
    default:
        return false;
    }
}

const char *peer_op_name(uint32_t op)
{
    switch (op) {
#define OP_NAME(name, text)                                                                                  \
    case name:                                                                                               \
        return text;
        PEER_OPS(OP_NAME)
#undef OP_NAME
    }
    return "not an operation";
}

int PEER_Get_version(int *version)
{
    if (version == NULL)
        return peer_error(PEER_ERR_ARG, "PEER_Get_version: version is NULL; pass the address of an int");
    *version = PEER_VERSION_MAJOR * 10000 + PEER_VERSION_MINOR * 100 + PEER_VERSION_PATCH;
    return PEER_SUCCESS;
}

int PEER_Datatype_size(PEER_Datatype datatype, size_t *bytes)
{
    if (bytes == NULL)
        return peer_error(PEER_ERR_ARG, "PEER_Datatype_size: bytes is NULL; pass the address of a size_t");
    if (peer_datatype_bytes(datatype) == 0)
        return peer_error(PEER_ERR_TYPE,
                          "PEER_Datatype_size: datatype is %d, which is none; pass a value of PEER_Datatype",
                          (int)datatype);
    *bytes = peer_datatype_bytes(datatype);
    return PEER_SUCCESS;
}
