/* The words in which the algorithms of kernels/ are written, in a CUDA form and a CPU form side by side: which
 * thread am I, block sync, 16-byte lines, flags, block copy, clock, waiting politely. With them each algorithm is
 * one text for both. A CPU block is one thread with a loop stride of one, and its blocks run one after the
 * other on the calling thread.
 *
 * Everything below lies in an unnamed namespace: the host kernels are compiled once for each instruction set,
 * and the linker must not take one's functions for another's. */
#ifndef PEER_KERNELS_DEVICE_H
#define PEER_KERNELS_DEVICE_H

#include <stdint.h>
#include <string.h>

#include "launch.h"

#ifndef __CUDACC__
    #include <sched.h>
    #include <time.h>
    #if defined(__x86_64__)
        #include <immintrin.h>
    #endif
#endif

namespace
{

/* A 16-byte line, as it is moved at once. */
struct alignas(16) Line {
    uint32_t w[4];
};

/* Where a thread stands in the grid. A split call has several blocks of each number: one that sends, and one of each
 * team, which do the rest: team t with the pieces t, t + nteams, ... */
struct Place {
    uint32_t block, nblocks; /* of those that send, or of a team */
    uint32_t thread, nthreads;
    bool sends, works;
    uint32_t team, nteams;
    uint32_t copy, ncopies; /* number of the block among all, which is that of its copy of the state; all */
};

/* The place of the i-th block of the grid, those that send being the first. */
PEER_BOTH Place place_of(const peer_call &c, uint32_t i, uint32_t thread, uint32_t nthreads, bool split)
{
    if (!split)
        return {i, c.blocks, thread, nthreads, true, true, 0, 1, i, c.blocks};
    const uint32_t row = i / c.blocks;
    return {i % c.blocks,          c.blocks, thread, nthreads,     row == 0, row > 0,
            row > 0 ? row - 1 : 0, c.teams,  i,      peer_grid(&c)};
}

#ifdef __CUDACC__ /* ------------------------------------------------------------------------------ CUDA form */

    #define PEER_FN __device__ __forceinline__
    /* The loop that follows is unrolled: on the GPU, on both, on neither. */
    #define PEER_UNROLL      _Pragma("unroll")
    #define PEER_UNROLL_BOTH _Pragma("unroll")
    #define PEER_NO_UNROLL   _Pragma("unroll 1")

/* See the CPU form. */
constexpr bool LIKE_GPU = true;

/* Bytes that one thread moves at once under the flag protocol. */
constexpr uint32_t PEER_VECTOR = 16;

/* See the CPU form. A thread has no registers of vectors: nothing is as long as one. */
constexpr uint32_t REGISTER = UINT32_MAX;

/* Peers whose data are loaded together, before the first is looked at. */
constexpr uint32_t TOGETHER = 8;

/* Packs of one peer that are loaded before the first is stored. */
constexpr uint32_t AHEAD = 4;

PEER_FN Place place(const peer_call &c, uint32_t, bool split)
{
    return place_of(c, blockIdx.x, threadIdx.x, blockDim.x, split);
}

PEER_FN void block_sync()
{
    __syncthreads();
}

/* Whether all threads of the block bring true; also a block_sync. */
PEER_FN bool block_all(bool ok)
{
    return __syncthreads_and(ok) != 0;
}

/* A line moves as one 128-bit single-copy-atomic access (PTX .b128, sm_70 and later): a reader sees all of a
 * store or nothing of it. Relaxed: a line carries its own tag, so nothing else needs to be ordered with it. */
PEER_FN void line_store(void *to, Line x)
{
    asm volatile("{ .reg .b64 l, h; .reg .b128 q; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4};"
                 " mov.b128 q, {l, h}; st.relaxed.sys.global.b128 [%0], q; }" ::"l"(to),
                 "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
                 : "memory");
}

PEER_FN Line line_load(const void *from)
{
    Line x;
    asm volatile("{ .reg .b64 l, h; .reg .b128 q; ld.relaxed.sys.global.b128 q, [%4];"
                 " mov.b128 {l, h}, q; mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
                 : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
                 : "l"(from)
                 : "memory");
    return x;
}

/* The same 16 bytes as two accesses, each atomic for its 8 bytes. */
PEER_FN void halves_store(void *to, Line x)
{
    asm volatile("{ .reg .b64 l, h; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4};"
                 " st.relaxed.sys.global.v2.b64 [%0], {l, h}; }" ::"l"(to),
                 "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
                 : "memory");
}

PEER_FN Line halves_load(const void *from)
{
    Line x;
    asm volatile("{ .reg .b64 l, h; ld.relaxed.sys.global.v2.b64 {l, h}, [%4];"
                 " mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
                 : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
                 : "l"(from)
                 : "memory");
    return x;
}

/* Release: whoever sees the tag by flag_load sees all that this thread, and the threads that a block_sync
 * joined to it before, wrote earlier. */
PEER_FN void flag_store(uint32_t *flag, uint32_t tag)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(tag) : "memory");
}

PEER_FN uint32_t flag_load(const uint32_t *flag)
{
    uint32_t tag;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(tag) : "l"(flag) : "memory");
    return tag;
}

/* Flags that order nothing but themselves. */
PEER_FN void flag_store_relaxed(uint32_t *flag, uint32_t tag)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(tag) : "memory");
}

PEER_FN uint32_t flag_load_relaxed(const uint32_t *flag)
{
    uint32_t tag;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(tag) : "l"(flag) : "memory");
    return tag;
}

/* All earlier stores of this thread before all later ones, for every observer. */
PEER_FN void fence()
{
    __threadfence_system();
}

/* Programmatic dependent launch (sm_90 and later; PTX griddepcontrol). A kernel so launched may begin before the one before
 * it on the stream has ended. This returns when that one has ended whole and all it wrote can be seen: before, nothing but
 * the kernel's parameters may be touched. All threads call it. */
PEER_FN void wait_kernel_before()
{
    #if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    #endif
}

/* The next kernel may begin, and wait there, once one thread of every block has said so or the block has ended. */
PEER_FN void let_next_begin()
{
    #if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    #endif
}

PEER_FN uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

/* After the spins-th poll of a wait. True: time to look at the clock (a poll takes some 0.7 us). */
PEER_FN bool relax(const peer_call &, uint32_t spins)
{
    return spins % 1024 == 0;
}

/* The largest access, and so the alignment, that moves BYTES whole. */
template <uint32_t BYTES>
struct ChunkOf {
    static constexpr uint32_t VALUE = peer_pack_access(BYTES);
};

/* BYTES bytes between memory and registers, CHUNK of them at a time; the memory is aligned to CHUNK. */
template <uint32_t BYTES, uint32_t CHUNK>
PEER_FN void load_chunks(uint32_t (&w)[BYTES / 4], const void *from)
{
    PEER_UNROLL
    for (uint32_t i = 0; i < BYTES / CHUNK; i++) {
        if constexpr (CHUNK == 16) {
            uint4 x = ((const uint4 *)from)[i];
            w[4 * i] = x.x, w[4 * i + 1] = x.y, w[4 * i + 2] = x.z, w[4 * i + 3] = x.w;
        } else if constexpr (CHUNK == 8) {
            uint2 x = ((const uint2 *)from)[i];
            w[2 * i] = x.x, w[2 * i + 1] = x.y;
        } else {
            w[i] = ((const uint32_t *)from)[i];
        }
    }
}

template <uint32_t BYTES, uint32_t CHUNK>
PEER_FN void store_chunks(void *to, const uint32_t (&w)[BYTES / 4])
{
    PEER_UNROLL
    for (uint32_t i = 0; i < BYTES / CHUNK; i++) {
        if constexpr (CHUNK == 16)
            ((uint4 *)to)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
        else if constexpr (CHUNK == 8)
            ((uint2 *)to)[i] = make_uint2(w[2 * i], w[2 * i + 1]);
        else
            ((uint32_t *)to)[i] = w[i];
    }
}

/* See the CPU form. */
PEER_FN void expect_packs(const char *, uint32_t)
{
}

/* From buffer to buffer, by one thread alone: not on a GPU. */
PEER_FN bool copy_alone(void *, const void *, uint64_t)
{
    return false;
}

/* Stores of packs to a peer's staging; see the CPU form. */
struct Pusher {
    static constexpr bool streaming = false;

    PEER_FN Pusher(const peer_call &, uint64_t)
    {
    }

    template <bool STREAM>
    PEER_FN static void store(char *to, const uint32_t (&w)[PEER_VECTOR / 4])
    {
        store_chunks<PEER_VECTOR, 16>(to, w);
    }

    PEER_FN void end(uint64_t)
    {
    }
};

#else /* ------------------------------------------------------------------------------------------- CPU form */

    #define PEER_FN inline __attribute__((always_inline))
    #define PEER_UNROLL
    #define PEER_UNROLL_BOTH _Pragma("GCC unroll 16")
    #define PEER_NO_UNROLL

constexpr uint32_t PEER_VECTOR = 64; /* a cache line */

    /* Where PEER_LIKE_GPU is set all is as on a GPU, for tests. */
    #ifdef PEER_LIKE_GPU
constexpr bool LIKE_GPU = true;
    #else
constexpr bool LIKE_GPU = false;
    #endif
constexpr uint32_t TOGETHER = LIKE_GPU ? 8 : 1;
constexpr uint32_t AHEAD = LIKE_GPU ? 4 : 1;

PEER_FN Place place(const peer_call &c, uint32_t block, bool split)
{
    return place_of(c, block, 0, 1, split);
}

PEER_FN void block_sync()
{
}

PEER_FN bool block_all(bool ok)
{
    return ok;
}

    #if defined(__x86_64__)
        #ifdef __AVX__
            #define PEER_MOVDQA "vmovdqa"
        #else
            #define PEER_MOVDQA "movdqa"
        #endif

/* Aligned 16-byte moves are atomic on every x86-64 processor that has AVX (both vendors' manuals say so); the
 * probe tests it on the others. */
PEER_FN void line_store(void *to, Line x)
{
    __m128i v;
    memcpy(&v, &x, sizeof v);
    asm volatile(PEER_MOVDQA " %1, %0" : "=m"(*(__m128i *)to) : "x"(v));
}

PEER_FN Line line_load(const void *from)
{
    __m128i v;
    Line x;
    asm volatile(PEER_MOVDQA " %1, %0" : "=x"(v) : "m"(*(const __m128i *)from));
    memcpy(&x, &v, sizeof v);
    return x;
}
    #endif

PEER_FN void halves_store(void *to, Line x)
{
    uint64_t h[2];
    memcpy(h, &x, sizeof h);
    __atomic_store_n((uint64_t *)to, h[0], __ATOMIC_RELAXED);
    __atomic_store_n((uint64_t *)to + 1, h[1], __ATOMIC_RELAXED);
}

PEER_FN Line halves_load(const void *from)
{
    Line x;
    uint64_t h[2] = {__atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED),
                     __atomic_load_n((const uint64_t *)from + 1, __ATOMIC_RELAXED)};
    memcpy(&x, h, sizeof h);
    return x;
}

    #if !defined(__x86_64__)
/* May tear: the probe finds out, and `line` is left to others. */
PEER_FN void line_store(void *to, Line x)
{
    halves_store(to, x);
}

PEER_FN Line line_load(const void *from)
{
    return halves_load(from);
}
    #endif

PEER_FN void flag_store(uint32_t *flag, uint32_t tag)
{
    __atomic_store_n(flag, tag, __ATOMIC_RELEASE);
}

PEER_FN uint32_t flag_load(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

PEER_FN void flag_store_relaxed(uint32_t *flag, uint32_t tag)
{
    __atomic_store_n(flag, tag, __ATOMIC_RELAXED);
}

PEER_FN uint32_t flag_load_relaxed(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

PEER_FN void fence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* A CPU's calls don't overlap. */
PEER_FN void let_next_begin()
{
}

PEER_FN uint64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* After the spins-th poll of a wait. Spins first; then the CPU may be wanted by the rank that is waited for. */
PEER_FN bool relax(const peer_call &c, uint32_t spins)
{
    if (spins > c.spin) {
        sched_yield();
        return spins % 16 == 0;
    }
    #if defined(__x86_64__)
    _mm_pause();
    #endif
    return spins % 1024 == 0;
}

template <uint32_t BYTES>
struct ChunkOf {
    static constexpr uint32_t VALUE = LIKE_GPU ? peer_pack_access(BYTES) : 1;
};

    /* Bytes that the instruction set moves and computes with at once. */
    #if defined(__AVX512F__)
constexpr uint32_t REGISTER = 64;
    #elif defined(__AVX2__)
constexpr uint32_t REGISTER = 32;
    #else
constexpr uint32_t REGISTER = 16;
    #endif

/* A register of A, and the same in memory of any alignment and type. */
template <class A>
struct VectorOf {
    typedef A Type __attribute__((vector_size(REGISTER)));
    typedef A Anywhere __attribute__((vector_size(REGISTER), aligned(1), may_alias));
};

/* memcpy in moves of the size that the data are then used in: a load of what two narrower stores have just written
 * waits for them. */
template <uint32_t BYTES>
PEER_FN void copy_bytes(void *to, const void *from)
{
    using Move = VectorOf<uint32_t>::Anywhere;
    if constexpr (BYTES % REGISTER == 0) {
        for (uint32_t i = 0; i < BYTES / REGISTER; i++)
            ((Move *)to)[i] = ((const Move *)from)[i];
    } else {
        memcpy(to, from, BYTES);
    }
}

template <uint32_t BYTES, uint32_t CHUNK>
PEER_FN void load_chunks(uint32_t (&w)[BYTES / 4], const void *from)
{
    copy_bytes<BYTES>(w, from);
}

template <uint32_t BYTES, uint32_t CHUNK>
PEER_FN void store_chunks(void *to, const uint32_t (&w)[BYTES / 4])
{
    copy_bytes<BYTES>(to, w);
}

/* Packs whose flag is being waited for, asked for at each look at the flag: then they come together with it, not one
 * latency later (64 bytes on two cores that share no cache: 0.30 us instead of 0.36). While nobody has written them they
 * are in this CPU's cache, and asking costs nothing. More than a few are on their way at once anyhow. */
PEER_FN void expect_packs(const char *packs, uint32_t n)
{
    for (uint32_t j = 0; j < n && j < 4; j++)
        __builtin_prefetch(packs + j * PEER_VECTOR);
}

/* The C library knows best how to copy much at once. */
PEER_FN bool copy_alone(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return true;
}

    #if defined(__x86_64__)

/* Stores to a peer's staging. A line that the peer's CPU has read lies in that CPU's caches. Where the two share a
 * cache, taking it back costs little; where they don't (other core complex, other socket) it costs some 25 ns a
 * line, and a streaming store past all caches 2 ns (43,008 bytes: 22 us against 5). In the near case streaming
 * loses (4.2 us against 6.5). A virtual CPU's place changes as the host pleases, so nothing is assumed: plain
 * stores are timed as they happen, and where a line costs more than FAR_TICKS twice in a row, the next
 * STREAMED pushes stream. Which kind a rank uses is its own affair, its peers see the same bytes. */
struct Pusher {
    static constexpr uint64_t FAR_TICKS = 18; /* of the time stamp counter, some 7 ns */
    static constexpr uint32_t STREAMED = 100;
    static constexpr uint32_t SAMPLE = 8; /* of plain pushes one in so many is timed, while all is near */
    static constexpr uint64_t LINES = 64; /* fewer are not worth it, and not timed */

    peer_pace &pace;
    bool streaming, timing = false;
    uint64_t start = 0;

    PEER_FN Pusher(const peer_call &c, uint64_t lines)
        : pace(*c.pace), streaming(lines >= LINES && c.pace->streamed > 0)
    {
        if (streaming || lines < LINES)
            return;
        timing = pace.far > 0 || pace.plain++ % SAMPLE == 0;
        if (timing)
            start = __rdtsc();
    }

    template <bool STREAM>
    PEER_FN static void store(char *to, const uint32_t (&w)[PEER_VECTOR / 4])
    {
        if constexpr (!STREAM) {
            memcpy(to, w, PEER_VECTOR);
        } else {
        #if defined(__AVX512F__)
            _mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(w));
        #else
            for (uint32_t i = 0; i < PEER_VECTOR / 16; i++)
                _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)w + i));
        #endif
        }
    }

    /* After the last store. timed: stores were all that was done since, `timed` of them; 0: they were not. */
    PEER_FN void end(uint64_t timed)
    {
        if (streaming) {
            _mm_sfence(); /* streaming stores are not ordered with the flag by themselves */
            pace.streamed--;
        } else if (timing && timed > 0) {
            pace.far = __rdtsc() - start > FAR_TICKS * timed ? pace.far + 1 : 0;
            pace.streamed = pace.far >= 2 ? STREAMED : 0;
        }
    }
};

    #else

struct Pusher {
    static constexpr bool streaming = false;

    PEER_FN Pusher(const peer_call &, uint64_t)
    {
    }

    template <bool STREAM>
    PEER_FN static void store(char *to, const uint32_t (&w)[PEER_VECTOR / 4])
    {
        memcpy(to, w, PEER_VECTOR);
    }

    PEER_FN void end(uint64_t)
    {
    }
};

    #endif

#endif

} // namespace

#endif
