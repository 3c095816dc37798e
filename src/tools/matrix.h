/* What the probe has measured of a communicator, as tables. */
#ifndef PEER_TOOLS_MATRIX_H
#define PEER_TOOLS_MATRIX_H

#include "internal.h"

/* The three matrices, the islands that follow from them, and the figures; one line if nothing was measured. */
void matrix_print(const struct peer_comm *comm);

#endif
