/* The bed on which tools, tests and verify_step lay their work: buffers, a stream and graphs, in the same calls on
 * the cuda and the host device. Every call ends the program with a message if it fails: these are programs. */
#ifndef PEER_TOOLS_BED_H
#define PEER_TOOLS_BED_H

#include <stdbool.h>
#include <stddef.h>

#include "peercoll.h"

struct bed_graph;

struct bed {
    bool cuda;
    PEER_Stream stream; /* NULL on the host device */
};

/* For the device that comm uses (PEER_Comm_get_info "device"). */
void bed_open(struct bed *bed, PEER_Comm comm);
void bed_close(struct bed *bed);

/* Memory that collectives take; copies to and from plain host memory have finished on return. */
void *bed_alloc(struct bed *bed, size_t bytes);
void bed_free(struct bed *bed, void *buffer);
void bed_put(struct bed *bed, void *buffer, const void *from, size_t bytes);
void bed_get(struct bed *bed, void *to, const void *buffer, size_t bytes);

/* From buffer to buffer, put on bed->stream like a call. */
void bed_copy(struct bed *bed, void *to, const void *from, size_t bytes);

/* Waits until all that is on bed->stream has ended. */
void bed_sync(struct bed *bed);

/* Runs body(arg) into a graph, to be launched on bed->stream; on the host device the graph just calls the body. */
struct bed_graph *bed_capture(struct bed *bed, void (*body)(void *arg), void *arg);
void bed_launch(struct bed *bed, struct bed_graph *graph);
void bed_graph_free(struct bed *bed, struct bed_graph *graph);

/* Microseconds on bed->stream between two marks (CUDA events); on the host device of the wall clock. */
void bed_mark(struct bed *bed, int which); /* 0 or 1 */
double bed_elapsed_us(struct bed *bed);    /* from mark 0 to mark 1; waits for both */

/* The wall clock. */
double bed_now_us(void);

#endif
