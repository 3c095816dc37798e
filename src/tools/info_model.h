/* What peer_info prints of the cost model. */
#ifndef PEER_TOOLS_INFO_MODEL_H
#define PEER_TOOLS_INFO_MODEL_H

#include "model.h"

/* Sets what a word as "flag_us=0.7" or "link=wire" names. False with the reason in `why`. */
bool model_set(struct peer_machine *machine, const char *word, char *why, size_t why_bytes);
/* PEER_N_COLLECTIVES if it is none. */
uint32_t model_collective(const char *name);

/* The two options: predicted times of a collective by size, from the words COLLECTIVE RANKS [FIGURE=VALUE...]; and
 * predictions beside the measurements of a file. Each prints, and returns the exit status. */
int model_show(int nwords, char *const *words);
int model_check(const char *file);

#endif
