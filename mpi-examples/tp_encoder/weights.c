/* weights.c: reads a safetensors file. That is 8 bytes with the length of a header, the header, which is JSON, and the
 * numbers:
 *
 *   {"encoder.layer.0.output.dense.weight": {"dtype": "F32", "shape": [384, 1536], "data_offsets": [from, to]}, ...}
 *
 * where offsets count from the header's end. Numbers are little-endian, as on all machines with GPUs. */
#include "config.h"
#include "weights.h"
#include "tp_encoder.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct weights {
    char *path;
    const char *file; /* mapped */
    size_t size;
    const char *data; /* behind the header */
    json_t *header;
};

static void map_file(struct weights *weights)
{
    struct stat status;
    int fd = open(weights->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &status) != 0)
        fail("%s: %s; get-model fetches the model, or makes its folder from yours", weights->path,
             strerror(errno));
    weights->size = (size_t)status.st_size;
    if (weights->size <= sizeof(uint64_t))
        fail("%s is no safetensors file: it has %zu bytes only", weights->path, weights->size);
    weights->file = mmap(NULL, weights->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (weights->file == MAP_FAILED)
        fail("mapping %s: %s", weights->path, strerror(errno));
    close(fd);
}

struct weights *weights_open(const char *path)
{
    struct weights *weights = allocate(sizeof *weights);
    const char *header;
    uint64_t length;
    json_error_t error;

    weights->path = strdup(path);
    if (weights->path == NULL)
        fail("out of memory");
    map_file(weights);
    memcpy(&length, weights->file, sizeof length);
    if (length > weights->size - sizeof length)
        fail("%s is no safetensors file, or is cut off: its header is said to have %llu bytes, of %zu in all",
             path, (unsigned long long)length, weights->size);
    header = weights->file + sizeof length;
    weights->data = header + length;
    weights->header = json_loadb(header, length, 0, &error);
    if (!json_is_object(weights->header))
        fail("%s is no safetensors file: its header is no JSON object (%s)", path, error.text);
    return weights;
}

void weights_close(struct weights *weights)
{
    json_decref(weights->header);
    munmap((void *)weights->file, weights->size);
    free(weights->path);
    free(weights);
}

/* Whether the shape is rows by columns; a vector has one dimension. */
static bool has_shape(const json_t *shape, size_t rows, size_t columns)
{
    size_t dimensions = json_array_size(shape);

    if (dimensions == 1)
        return rows == 1 && (size_t)json_integer_value(json_array_get(shape, 0)) == columns;
    return dimensions == 2 && (size_t)json_integer_value(json_array_get(shape, 0)) == rows &&
           (size_t)json_integer_value(json_array_get(shape, 1)) == columns;
}

const float *weights_get(const struct weights *weights, const char *name, size_t rows, size_t columns)
{
    json_t *tensor = json_object_get(weights->header, name), *shape;
    size_t size = weights->size - (size_t)(weights->data - weights->file);
    json_int_t from, to;
    const char *dtype;

    if (json_unpack(tensor, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape", &shape, "data_offsets", &from,
                    &to))
        fail("%s has no tensor %s: it is not all-MiniLM-L6-v2", weights->path, name);
    if (strcmp(dtype, "F32") != 0)
        fail("%s: %s is of type %s, and this program reads F32: take the model as it was published",
             weights->path, name, dtype);
    if (!has_shape(shape, rows, columns))
        fail("%s: %s is not %zu x %zu: it is not all-MiniLM-L6-v2", weights->path, name, rows, columns);
    if (from < 0 || to < from || (size_t)to > size || (size_t)(to - from) != rows * columns * sizeof(float) ||
        (uintptr_t)(weights->data + from) % sizeof(float) != 0)
        fail("%s is damaged, or cut off: %s does not lie in it. Fetch it again", weights->path, name);
    return (const float *)(const void *)(weights->data + from);
}
