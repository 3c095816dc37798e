/* The model, split over the ranks (encoder.c). */
#ifndef TP_ENCODER_ENCODER_H
#define TP_ENCODER_ENCODER_H

#include <stddef.h>

#include "peercoll.h"
#include "tools/bed.h"
#include "ops.h"
#include "tp_encoder.h"
#include "weights.h"

/* What adds up the ranks' shares. */
enum sum_by {
    SUM_BY_PEERCOLL, /* and what it stands on: its own kernels, NCCL, ... as the communicator was made */
    SUM_BY_MPI,      /* MPI_Allreduce; on a GPU with copies to and from pinned host memory */
    SUM_BY_NOTHING,  /* wrong results, for timing only */
};

/* What this rank has of a layer. */
struct layer {
    float *qkv_weight, *qkv_bias;   /* its heads' rows of query, key and value, one below the other */
    float *out_weight, *out_bias;   /* its heads' columns; the bias is whole */
    float *up_weight, *up_bias;     /* its rows */
    float *down_weight, *down_bias; /* its columns; the bias is whole */
    struct norm attention_norm, output_norm; /* whole */
};

struct encoder {
    PEER_Comm comm; /* may be set to another one between two runs */
    enum sum_by sum_by;
    struct bed bed;
    struct ops *ops;

    int heads, columns; /* of the feed-forward: this rank's */
    float *word, *position, *type;
    struct norm embedding_norm;
    struct layer layers[LAYERS];

    struct batch batch; /* what encoder_run works on; its arrays are int *ids, *lengths below */
    int *ids, *lengths; /* device */
    float *x;           /* rows x HIDDEN: the tokens on their way, the same on all ranks */
    float *partial;     /* rows x HIDDEN: this rank's share, then the sum */
    float *qkv, *context, *scores, *inner; /* this rank's heads and columns */
    float *vectors;                        /* batch x HIDDEN: the results */
    float *staging;                        /* host: what MPI adds up */
};

/* Reads this rank's part of the model to the device of comm, with room for batches of so many lines. */
void encoder_open(struct encoder *encoder, PEER_Comm comm, const struct weights *weights, int max_batch);
void encoder_close(struct encoder *encoder);

/* The next runs are for so many lines, padded to so many tokens. */
void encoder_set_shape(struct encoder *encoder, int batch, int length);

/* The batch's tokens and the lines' lengths to the device, from host memory. */
void encoder_put(struct encoder *encoder, const int *ids, const int *lengths);

/* One forward pass, from the tokens to encoder->vectors, on the stream; can be captured unless MPI adds up. Of type
 * void *, as bed_capture wants it: a struct encoder *. */
void encoder_run(void *encoder);

#endif
