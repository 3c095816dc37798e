/* The rows of selection: which collectives one is of, and those that are built in. */
#ifndef PEER_ROWS_H
#define PEER_ROWS_H

#include "select.h"

#define ANY_BYTES UINT64_MAX

/* Sets: all; those of a root; of these the ones that send it, or make it send, the whole message. */
#define EVERY  PEER_N_COLLECTIVES
#define ROOTED (PEER_N_COLLECTIVES + 1)
#define WHOLE  (PEER_N_COLLECTIVES + 2)

/* The rows of src/rows.c, in their order. */
const struct peer_row *peer_builtin_rows(size_t *n);

#endif
