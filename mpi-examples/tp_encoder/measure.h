/* Times a batch, and what of it is communication (measure.c). */
#ifndef TP_ENCODER_MEASURE_H
#define TP_ENCODER_MEASURE_H

#include "encoder.h"

/* Runs the batch that the encoder has `runs` times with each means of adding up, and rank 0 prints a table. All ranks
 * call it. */
void measure(struct encoder *encoder, int runs);

#endif
