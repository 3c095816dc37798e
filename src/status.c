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
