/* test_number: datatypes and operations, without any transport: the host kernels' reduction, for each
 * instruction set that this CPU has, against the reference.
 *   patterns   all 65,536 bit patterns of fp16 and bf16: widened and rounded they are themselves; combined
 *              with many partners they give the reference's bits
 *   ties       three-part sums of fp16 and bf16 at, just above and just below half way between two values
 *   pairs      all pairs of bit patterns of the datatypes of one byte
 *   parts      2 to 16 parts of every datatype and operation, on data of every kind
 *   edges      counts that fill no vector, pointers off their alignment, the result over one of the parts
 * and which pairs of datatype and operation there are. On two ranks also: large messages of any bits through
 * PEER_Allreduce give what the host's reduction gives, which on the cuda device compares the two devices. */
#include <stdlib.h>

#include "config.h"
#include "trial.h"
#include "test.h"

#define PATTERNS 65536
#define PARTNERS 48
#define LARGE    100000 /* elements */

/* ---- Instruction sets ------------------------------------------------------------------------------------- */

struct variant {
    const char *name;
    const struct peer_host_kernels *kernels;
};

static struct variant variants[3];
static int nvariants;

static void list_variants(void)
{
    variants[nvariants++] = (struct variant){"base", &peer_host_kernels_base};
#ifdef PEER_HAVE_ISA_VARIANTS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        variants[nvariants++] = (struct variant){"avx2", &peer_host_kernels_avx2};
    if (peer_host_kernels() == &peer_host_kernels_avx512)
        variants[nvariants++] = (struct variant){"avx512", &peer_host_kernels_avx512};
#endif
}

static void print_element(const unsigned char *from, size_t element)
{
    fprintf(stderr, "0x");
    for (size_t b = element; b > 0; b--) /* little endian */
        fprintf(stderr, "%02x", from[b - 1]);
}

/* Reduces by every variant and by the reference, and compares. */
static void check(PEER_Datatype type, PEER_Op op, const void *const parts[], int nparts, size_t count)
{
    size_t element = reference_element(type);
    unsigned char *got = malloc(count * element + 1), *wanted = malloc(count * element + 1);
    TEST_TRUE(got != NULL && wanted != NULL);
    reference_combine(type, op, parts, nparts, wanted, count);
    for (int v = 0; v < nvariants; v++) {
        memset(got, 0x5b, count * element);
        variants[v].kernels->reduce(type, op, parts, (uint32_t)nparts, got, count);
        size_t i = reference_differ(type, got, wanted, count);
        if (i == count)
            continue;
        test_begin_failure(__FILE__, __LINE__);
        fprintf(stderr, "%s: %s of %d %s: element %zu is ", variants[v].name, peer_op_name(op), nparts,
                peer_datatype_name(type), i);
        print_element(got + i * element, element);
        fprintf(stderr, ", should be ");
        print_element(wanted + i * element, element);
        test_end_failure();
    }
    free(got);
    free(wanted);
}

/* ---- fp16 and bf16 ---------------------------------------------------------------------------------------- */

static void patterns(PEER_Datatype type)
{
    static const PEER_Op ops[] = {PEER_SUM, PEER_SUM, PEER_MIN, PEER_MAX, PEER_PROD, PEER_PROD, PEER_AVG};
    static uint16_t all[PATTERNS], partner[PATTERNS];
    const void *parts[] = {all, partner}, *swapped[] = {partner, all};
    for (int i = 0; i < PATTERNS; i++)
        all[i] = (uint16_t)i;
    check(type, PEER_SUM, parts, 1, PATTERNS);
    for (uint64_t p = 0; p < PARTNERS; p++) {
        for (uint64_t i = 0; i < PATTERNS; i++) {
            uint64_t any = reference_mix(p * PATTERNS + i);
            uint64_t near = i ^ (any >> 20 & 0x87ff); /* of about the same size, either sign */
            partner[i] = (uint16_t)(p % 2 == 0 ? any : near);
        }
        PEER_Op op = ops[p % (sizeof ops / sizeof *ops)];
        check(type, op, parts, 2, PATTERNS);
        check(type, op, swapped, 2, PATTERNS);
    }
}

/* x + half a unit of its last place + a little, for every positive finite x. */
static void ties(PEER_Datatype type)
{
    static uint16_t x[PATTERNS], half_unit[PATTERNS], little[PATTERNS];
    const void *parts[] = {x, half_unit, little};
    size_t n = 0;
    for (int bits = 0; bits < 0x8000; bits++) {
        double value = reference_widen(type, (uint16_t)bits),
               next = reference_widen(type, (uint16_t)(bits + 1));
        double half = (next - value) / 2;
        if (!(half < 1e300)) /* infinities and NaNs */
            continue;
        x[n] = (uint16_t)bits;
        half_unit[n] = reference_narrow(type, half);
        little[n] = n % 3 == 0 ? 0 : reference_narrow(type, n % 3 == 1 ? half / 64 : -half / 64);
        n++;
    }
    TEST_TRUE(n > 30000 && n <= PATTERNS);
    check(type, PEER_SUM, parts, 3, n);
    for (size_t i = 0; i < n; i++) {
        x[i] ^= 0x8000;
        half_unit[i] ^= 0x8000;
    }
    check(type, PEER_SUM, parts, 3, n);
}

/* ---- All datatypes ------------------------------------------------------------------------------------------ */

static void legality(void)
{
    for (uint32_t type = 0; type < PEER_N_DATATYPES; type++) {
        bool is_complex = type == PEER_COMPLEX64 || type == PEER_COMPLEX128;
        TEST_INT(peer_datatype_alignment(type),
                 reference_element((PEER_Datatype)type) / (is_complex ? 2 : 1));
        for (uint32_t op = 0; op < PEER_N_OPS; op++)
            TEST_INT(peer_op_serves(type, op), reference_legal((PEER_Datatype)type, (PEER_Op)op));
        TEST_TRUE(!peer_op_serves(type, PEER_N_OPS));
    }
    TEST_TRUE(!peer_op_serves(PEER_N_DATATYPES, PEER_SUM));
    TEST_INT(peer_datatype_alignment(PEER_N_DATATYPES), 0);
}

static void pairs(PEER_Datatype type, PEER_Op op)
{
    static unsigned char a[PATTERNS], b[PATTERNS];
    const void *parts[] = {a, b};
    for (int i = 0; i < PATTERNS; i++) {
        a[i] = (unsigned char)(i & 0xff);
        b[i] = (unsigned char)(i >> 8);
    }
    check(type, op, parts, 2, PATTERNS);
}

static void check_parts(PEER_Datatype type, PEER_Op op)
{
    enum { N = 4001 };
    void *parts[PEER_MAX_PEERS];
    for (int r = 0; r < PEER_MAX_PEERS; r++) {
        parts[r] = malloc(N * reference_element(type));
        TEST_TRUE(parts[r] != NULL);
        reference_fill(type, 41, r, parts[r], N);
    }
    for (int n = 2; n <= PEER_MAX_PEERS; n++)
        check(type, op, (const void *const *)parts, n, N);
    for (int r = 0; r < PEER_MAX_PEERS; r++)
        free(parts[r]);
}

static void edge(PEER_Datatype type, PEER_Op op, size_t count, size_t shift)
{
    enum { ROOM = 256 };
    size_t element = reference_element(type), bytes = count * element;
    _Alignas(16) unsigned char a[ROOM * 16], b[ROOM * 16], to[ROOM * 16], wanted[ROOM * 16];
    const void *parts[] = {a + shift * element, b + (shift + 1) % 2 * element};
    reference_fill(type, count, 0, a, ROOM);
    reference_fill(type, count, 1, b, ROOM);
    memset(wanted, 0x5b, sizeof wanted);
    reference_combine(type, op, parts, 2, wanted + element, count);
    for (int v = 0; v < nvariants; v++) {
        memset(to, 0x5b, sizeof to);
        variants[v].kernels->reduce(type, op, parts, 2, to + element, count);
        TEST_INT(reference_differ(type, to + element, wanted + element, count), count);
        TEST_TRUE(memcmp(to, wanted, element) == 0);
        TEST_TRUE(memcmp(to + element + bytes, wanted + element + bytes, sizeof to - element - bytes) == 0);
        variants[v].kernels->reduce(type, op, parts, 2, a + shift * element, count); /* over the first part */
        TEST_INT(reference_differ(type, a + shift * element, wanted + element, count), count);
        reference_fill(type, count, 0, a, ROOM);
    }
}

static void all_of(PEER_Datatype type)
{
    for (int op = 0; op < PEER_N_OPS; op++) {
        if (!reference_legal(type, (PEER_Op)op))
            continue;
        if (reference_element(type) == 1)
            pairs(type, (PEER_Op)op);
        check_parts(type, (PEER_Op)op);
        for (size_t count = 0; count < 100; count++)
            edge(type, (PEER_Op)op, count, count % 2);
    }
    if (type == PEER_FLOAT16 || type == PEER_BFLOAT16) {
        patterns(type);
        ties(type);
    }
}

/* ---- Through the communicator's device ---------------------------------------------------------------------- */

static void through_device(int rank, PEER_Datatype type)
{
    size_t element = reference_element(type);
    uint64_t *mine[2], *got = malloc(LARGE * element), *wanted = malloc(LARGE * element);
    struct bed bed;
    PEER_Comm comm = trial_create(MPI_COMM_WORLD, "transport=ipc");
    bed_open(&bed, comm);
    for (int r = 0; r < 2; r++) {
        mine[r] = malloc(LARGE * element);
        TEST_TRUE(mine[r] != NULL && got != NULL && wanted != NULL);
        for (size_t i = 0; i < LARGE * element / 8; i++)
            mine[r][i] = reference_mix(i * 2 + (uint64_t)r + 1000 * (uint64_t)type);
    }
    void *send = bed_alloc(&bed, LARGE * element), *recv = bed_alloc(&bed, LARGE * element);
    bed_put(&bed, send, mine[rank], LARGE * element);
    for (int op = 0; op < PEER_N_OPS; op++) {
        if (!reference_legal(type, (PEER_Op)op))
            continue;
        TEST_OK(PEER_Allreduce(send, recv, LARGE, type, (PEER_Op)op, comm, bed.stream));
        bed_sync(&bed);
        bed_get(&bed, got, recv, LARGE * element);
        peer_host_kernels()->reduce(type, (uint32_t)op, (const void *const *)mine, 2, wanted, LARGE);
        TEST_INT(reference_differ(type, got, wanted, LARGE), LARGE);
    }
    bed_free(&bed, send);
    bed_free(&bed, recv);
    bed_close(&bed);
    trial_free(&comm);
    for (int r = 0; r < 2; r++)
        free(mine[r]);
    free(got);
    free(wanted);
}

int main(int argc, char **argv)
{
    int rank, size;
    trial_begin(&argc, &argv, &rank, &size);
    list_variants();
    legality();
    for (int type = rank; type < PEER_N_DATATYPES; type += size) /* the ranks share the work */
        all_of((PEER_Datatype)type);
    MPI_Barrier(MPI_COMM_WORLD);
    if (size == 2)
        for (int type = 0; type < PEER_N_DATATYPES; type++)
            through_device(rank, (PEER_Datatype)type);
    MPI_Finalize();
    test_pass();
}
