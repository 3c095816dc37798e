/* All-reduce: oneshot and twoshot, each over lines (`line`, `ll`) and over flags (`flag`), by push and by pull.
 *
 * oneshot, for each piece of the message
 *   1 send     a rank writes its packs of the piece for every peer (region ALL)
 *   2 reduce   it reads what every peer wrote, adds up from rank 0 to rank n-1, writes the result out
 * twoshot, part r of a piece belonging to rank r
 *   1 scatter  a rank writes its packs of part r for rank r (region ONE), for every r
 *   2 reduce   it adds up its own part, writes the result out and for every peer (region ALL)
 *   3 gather   it reads the other parts' results and writes them out
 * staged is twoshot by push and flags whose sends take turns, for hosts that choke on writes from many to many: a rank
 * has one stream out and one in at a time. In turn i it sends to the i-th rank after it, when that says so (phase TURN),
 * and waits for the stream of the i-th before it, whose successor it then tells. The first turn is free.
 * Pushed packs lie with who reads them, so that waiting is on local memory. Pulled ones lie with who wrote them: what
 * all shall read is then written once. (`line` and `ll` by pull wait on a peer's memory, which is right where all
 * staging is equally far, as with transport shm; under `flag` the flags are always pushed.)
 * A block handles one run of packs of every part, the same in every step, and so meets only the blocks of its own
 * number at the peers. Under `line` and `ll` each 16-byte line carries its tag. Under `flag` a block signals every
 * peer after 1 (phase 0), and after 2 of twoshot (phase 1), and waits for every peer's signal before it reads. Of a
 * split call (below) each team has flags of phase 1 of its own.
 *
 * Pieces overlap: step 1 of piece p+1 comes before step 2 of piece p, and in twoshot that before step 3 of p-1. All
 * threads of a block have ended a step before one begins the next (where there is but one piece they need not, nor as
 * below).
 *
 * Split. Where the pieces have a place each, none is overwritten in the call, and a sender need not wait for anybody. Then
 * under `flag` some blocks send all pieces (step 1), and the others do the rest: so both directions of a link are busy, and
 * nobody waits for a fence who could read. The others are teams that take the pieces in turn: while one waits, another reads.
 * Under lines in twoshot all blocks send all pieces at once, and other threads of theirs wait for what comes (flowing).
 *
 * Why a slot may be overwritten by piece p+4 of the same call (across calls: kernels/protocol.h); A and B are
 * blocks of the same number on two ranks. Where the slot lies does not matter.
 *   oneshot    A writes piece p+4 after its reduce of p+2, so after it saw what B sent for p+2, which B sent after
 *              its own reduce of p. So B no longer reads p.
 *   twoshot    ONE, A to B: A scatters p+4 after its gather of p+1, so after B's reduce of p+1, which came
 *              after B's reduce of p. ALL, B to A: B reduces p+4 after it saw what A scattered for p+4, and
 *              A did that after its gather of p+1, which came after its gather of p.
 * In both, a block that has packs in a piece has packs in all pieces before it, since only the last is smaller. */
#ifndef PEER_KERNELS_ALLREDUCE_H
#define PEER_KERNELS_ALLREDUCE_H

#include "parts.h"

namespace
{

/* ---- line and ll ---------------------------------------------------------------------------------------- */

template <class T, class Op, class Packs, class Kind>
struct Lines : Steps<T, Op, Packs, Kind> {
    using Base = Steps<T, Op, Packs, Kind>;
    using MyPack = typename Packs::MyPack;
    using Base::b, Base::op, Base::tag, Base::load_own, Base::store_own, Base::begin, Base::end;

    static constexpr bool CAN_FLOW = !Kind::PLAIN; /* one piece flows anyhow */

    MyPack ahead = {};   /* of this rank: this thread's first pack of oneshot */
    uint32_t before = 0; /* threads of the block that have work already, see flowing() */

    using Base::Base;

    /* This thread's number, counted from the first that has no work yet, if there is one. */
    PEER_FN uint32_t me() const
    {
        if constexpr (Kind::PLAIN) {
            return b.at.thread;
        } else {
            const uint32_t n = b.at.nthreads, shifted = b.at.thread + n - before % n;
            return shifted < n ? shifted : shifted - n;
        }
    }

    /* The next step begins with other threads than this one, which has work for so many; a warp does the same. */
    PEER_FN void leave(uint32_t threads)
    {
        before += (threads + 31) / 32 * 32;
    }

    template <Region REGION>
    PEER_FN void push(uint32_t r, uint32_t p, uint32_t j, const MyPack &x) const
    {
        Packs::push(Base::template to<REGION>(r, p), b.c.stride, j, x, tag(p));
    }

    PEER_FN void push_to_all(uint32_t p, uint32_t j, const MyPack &x) const
    {
        for (uint32_t i = 1; i <= Base::receivers(); i++)
            push<ALL>(peer_at(b.c, i), p, j, x);
    }

    /* Pack j combined over all ranks, this rank's being `own`. */
    template <Region REGION>
    PEER_FN bool reduce(const MyPack &own, uint32_t p, uint32_t j, MyPack &result)
    {
        auto from = Base::template from_each<REGION>(p);
        if (!Packs::reduce(b, b.c.stride, j, tag(p), own, op, from, result))
            return false;
        met_all<Kind>();
        return true;
    }

    /* body(r, j) for this thread's share of the block's runs of all peers' parts, as one loop: so that it takes as
     * many threads as there are packs. Ends at the first body that returns false, with false. */
    template <class Body>
    PEER_FN bool over_peers(uint32_t p, Body body)
    {
        const peer_call &c = b.c;
        uint64_t here = c.npacks - p * c.piece_packs; /* packs in this piece and after */
        for (uint32_t f = me(); f < (c.nranks - 1) * c.block_packs; f += b.at.nthreads) {
            uint32_t r = peer_at(c, 1 + f / c.block_packs);
            uint32_t j = b.at.block * c.block_packs + f % c.block_packs;
            if (j < c.stride && (uint64_t)r * c.stride + j < here && !body(r, j))
                return false;
        }
        return true;
    }

    PEER_FN void load_ahead()
    {
        Part part = part_of(b.c, 0, 0);
        if (begin() < end(part))
            ahead = load_own(begin());
    }

    PEER_FN MyPack load_own_of(const Part &part, uint32_t p, uint32_t j) const
    {
        return p == 0 && j == begin() ? ahead : load_own(part.first + j);
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads)
            push_to_all(p, j, load_own_of(part, p, j));
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        not_before<Kind>(b, (p + 1ull) * b.c.wire_ns);
        for (uint32_t j = begin(); j < end(part); j += b.at.nthreads) {
            MyPack result;
            if (!reduce<ALL>(load_own_of(part, p, j), p, j, result))
                return false;
            store_own(part.first + j, result);
        }
        return true;
    }

    PEER_FN void scatter(uint32_t p)
    {
        over_peers(p, [&](uint32_t r, uint32_t j) {
            push<ONE>(r, p, j, load_own(part_of(b.c, p, r).first + j));
            return true;
        });
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        const peer_call &c = b.c;
        Part part = part_of(c, p, c.rank);
        not_before<Kind>(b, (p + 1ull) * c.wire_ns);
        for (uint32_t j = b.at.block * c.block_packs + me(); j < end(part); j += b.at.nthreads) {
            MyPack result;
            if (!reduce<ONE>(load_own(part.first + j), p, j, result))
                return false;
            push_to_all(p, j, result);
            store_own(part.first + j, result);
        }
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        const uint32_t first = b.c.wire_ns; /* results that all pull are sent once */
        const uint32_t second = !Kind::PLAIN && b.c.pull_all ? first / (b.c.nranks - 1) : first;
        not_before<Kind>(b, Base::npieces() * (uint64_t)first + (p + 1ull) * second);
        return over_peers(p, [&](uint32_t r, uint32_t j) {
            MyPack x;
            bool ok = Packs::pull_one(b, Base::template from<ALL>(r, p), b.c.stride, j, tag(p), x);
            if (ok)
                store_own(part_of(b.c, p, r).first + j, x);
            return ok;
        });
    }
};

/* ---- flag ----------------------------------------------------------------------------------------------- */

template <class T, class Op, class Packs, class Kind>
struct Flags : Steps<T, Op, Packs, Kind> {
    using Base = Steps<T, Op, Packs, Kind>;
    using MyPack = typename Base::MyPack;
    using Base::b, Base::op, Base::tag, Base::load_own, Base::store_own, Base::begin, Base::end;

    static constexpr bool CAN_FLOW = false;

    const uint32_t rank, nranks;

    PEER_FN Flags(Block &block, Op operation)
        : Base(block, operation), rank(block.c.rank), nranks(block.c.nranks)
    {
    }

    PEER_FN void load_ahead()
    {
    }

    /* Writes this rank's own packs of a part. */
    PEER_FN void push_own(const Part &part, char *to) const
    {
        push_run(b, Base::run_of(part), to,
                 [&](uint32_t j, auto whole) { return this->load_own(part.first + j, whole); });
    }

    /* body(j, pack) for each pack of this block's run of a part, combined over all ranks. */
    template <Region REGION, class Body>
    PEER_FN void reduce_run(const Part &part, uint32_t p, Body body) const
    {
        Packs::reduce_run(
            Base::run_of(part), Base::template from_each<REGION>(p),
            Base::buffers.at(part.first * (Packs::BYTES / sizeof(T))), rank, nranks, op,
            [&](uint32_t j) { return load_own(part.first + j); }, body);
    }

    PEER_FN void oneshot_send(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        for (uint32_t i = 1; i <= Base::receivers(); i++)
            push_own(part, Base::template to<ALL>(peer_at(b.c, i), p));
        signal_peers(b, 0, tag(p), first());
    }

    /* Whom to signal first. Where other blocks send, this rank's own: they must have read what is overwritten in
     * place. */
    PEER_FN uint32_t first() const
    {
        return !Kind::PLAIN && b.c.teams > 0 ? 0 : 1;
    }

    PEER_FN bool oneshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, 0);
        auto expect = [&](uint32_t r) { expect_packs(Base::template from<ALL>(r, p), part.count); };
        if (!wait_peers(b, 0, tag(p), expect, first()))
            return false;
        met_all<Kind>();
        mark(b, PEER_MARK_ARRIVED, p);
        reduce_run<ALL>(part, p, [&](uint32_t j, const MyPack &x, auto whole) {
            this->store_own(part.first + j, x, whole);
        });
        return true;
    }

    PEER_FN void scatter(uint32_t p)
    {
        for (uint32_t i = 1; i < nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            push_own(part_of(b.c, p, r), Base::template to<ONE>(r, p));
        }
        signal_peers(b, 0, tag(p));
    }

    template <bool STREAM>
    PEER_FN void reduce_and_push(const Part &part, uint32_t p) const
    {
        reduce_run<ONE>(part, p, [&](uint32_t j, const MyPack &x, auto whole) {
            for (uint32_t i = 1; i <= Base::receivers(); i++)
                Pusher::store<STREAM>(
                    Base::template to<ALL>(peer_at(b.c, i), p) + (uint64_t)j * Packs::STAGED, x.w);
            this->store_own(part.first + j, x, whole);
        });
    }

    /* send(r) for every peer r in turn, the data's flags being of `phase`. turn: a number that grows from one round of
     * turns to the next. */
    template <class Send>
    PEER_FN bool in_turns(uint32_t p, uint32_t phase, uint32_t turn, Send send)
    {
        const uint32_t tells = b.state.epoch + turn;
        for (uint32_t i = 1; i < nranks; i++) {
            const uint32_t to = peer_at(b.c, i), from = peer_at(b.c, nranks - i);
            if (i > 1 && !wait_one(b, TURN, to, tells))
                return false;
            send(to);
            signal_one(b, to, phase, tag(p));
            if (!wait_one(b, phase, from, tag(p)))
                return false;
            if (i + 1 < nranks)
                signal_one(b, peer_at(b.c, nranks - i - 1), TURN, tells);
        }
        return true;
    }

    /* Rounds of turns come in this order: scatter 0, scatter 1, results 0, scatter 2, results 1, ... */
    PEER_FN bool staged_scatter(uint32_t p)
    {
        return in_turns(p, 0, 2 * p,
                        [&](uint32_t r) { push_own(part_of(b.c, p, r), Base::template to<ONE>(r, p)); });
    }

    /* The result is kept where a peer's would lie, until it has been sent to all. */
    PEER_FN bool staged_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, rank);
        char *kept = Base::template to<ALL>(rank, p);
        reduce_run<ONE>(part, p, [&](uint32_t j, const MyPack &x, auto whole) {
            Pusher::store<false>(kept + (uint64_t)j * Packs::STAGED, x.w);
            this->store_own(part.first + j, x, whole);
        });
        return in_turns(p, 1, 2 * p + 3, [&](uint32_t r) {
            push_run(b, Base::run_of(part), Base::template to<ALL>(r, p),
                     [&](uint32_t j, auto) { return Packs::load(kept, j); });
        });
    }

    PEER_FN bool twoshot_reduce(uint32_t p)
    {
        Part part = part_of(b.c, p, rank);
        if (!wait_peers(b, 0, tag(p)))
            return false;
        met_all<Kind>();
        mark(b, PEER_MARK_ARRIVED, p);
        Pusher pusher(b.c, end(part) > begin() ? end(part) - begin() : 0);
        if (pusher.streaming)
            reduce_and_push<true>(part, p);
        else
            reduce_and_push<false>(part, p);
        pusher.end(0);
        signal_peers(b, 1, tag(p));
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        if (!wait_peers(b, 1, tag(p)))
            return false;
        for (uint32_t i = 1; i < nranks; i++) {
            uint32_t r = peer_at(b.c, i);
            Part part = part_of(b.c, p, r);
            const char *packs = Base::template from<ALL>(r, p);
            over_run(
                Base::run_of(part), [&](uint32_t j, auto) { return Packs::load(packs, j); },
                [&](uint32_t j, const MyPack &x, auto whole) { this->store_own(part.first + j, x, whole); });
        }
        return true;
    }
};

/* ---- The order of steps --------------------------------------------------------------------------------- */

template <class MySteps>
PEER_FN void oneshot(Block &b, MySteps &s)
{
    const uint32_t n = s.npieces();
    mark(b, PEER_MARK_BEGIN);
    s.load_ahead();
    if (!enter(b))
        return;
    if (b.at.sends)
        s.oneshot_send(0);
    mark(b, PEER_MARK_SENT);
    advance(b);
    for (uint32_t p = 0; p < n; p++) {
        if (p + 1 < n && b.at.sends)
            s.oneshot_send(p + 1);
        if (works_on(b, p) && !step_ended(n, s.oneshot_reduce(p)))
            return;
    }
    mark(b, PEER_MARK_END);
}

template <class MySteps>
PEER_FN void twoshot(Block &b, MySteps &s)
{
    const uint32_t n = s.npieces();
    mark(b, PEER_MARK_BEGIN);
    if (!enter(b))
        return;
    if (b.at.sends)
        s.scatter(0);
    mark(b, PEER_MARK_SENT);
    advance(b);
    for (uint32_t t = 1; t <= n + 1; t++) {
        if (t < n && b.at.sends)
            s.scatter(t);
        if (t <= n && works_on(b, t - 1) && !step_ended(n, s.twoshot_reduce(t - 1)))
            return;
        mark(b, PEER_MARK_REDUCED, t - 1);
        if (t >= 2 && works_on(b, t - 2) && !step_ended(n, s.gather(t - 2)))
            return;
    }
    mark(b, PEER_MARK_END);
}

/* twoshot over lines whose pieces have a place each: nothing is overwritten in the call, so each step of each piece has
 * threads of its own, as far as there are some, which wait for nobody else; but none looks for results before its block has
 * its own, when they are hardly there: 8 ranks took 58 us for 43,008 bytes without that, and 36 with it. In place a result
 * overwrites what has been read, since it depends on its having been sent. */
template <class MySteps>
PEER_FN void flowing(Block &b, MySteps &s)
{
    const uint32_t n = s.npieces(), own = b.c.block_packs, peers = (b.c.nranks - 1) * own;
    mark(b, PEER_MARK_BEGIN);
    if (!enter(b))
        return;
    for (uint32_t p = 0; p < n; p++, s.leave(peers))
        s.scatter(p);
    mark(b, PEER_MARK_SENT);
    advance(b);
    bool ok = true;
    for (uint32_t p = 0; p < n && ok; p++, s.leave(own))
        ok = s.twoshot_reduce(p);
    if (!block_all(ok))
        return;
    mark(b, PEER_MARK_REDUCED);
    for (uint32_t p = 0; p < n; p++, s.leave(peers))
        if (!s.gather(p))
            return;
    mark(b, PEER_MARK_END);
}

/* As twoshot; the sends of step 1 wait for others, so the state moves on before them. */
template <class MySteps>
PEER_FN void staged(Block &b, MySteps &s)
{
    const uint32_t n = s.npieces();
    mark(b, PEER_MARK_BEGIN);
    if (!enter(b))
        return;
    advance(b);
    for (uint32_t t = 0; t <= n + 1; t++) {
        if (t < n && !s.staged_scatter(t))
            return;
        mark(b, PEER_MARK_SENT, t);
        if (t >= 1 && t <= n && !s.staged_reduce(t - 1))
            return;
        mark(b, PEER_MARK_REDUCED, t - 1);
        if (t >= 2 && !step_ended(n, s.gather(t - 2)))
            return;
    }
    mark(b, PEER_MARK_END);
}

template <class T, class Op, uint32_t PROTOCOL, class Kind>
struct StepsOf {
    using Packs = typename PacksOf<T, PROTOCOL>::Type;
    using Type = Lines<T, Op, Packs, Kind>;
};

template <class T, class Op, class Kind>
struct StepsOf<T, Op, PEER_PROTO_FLAG, Kind> {
    using Type = Flags<T, Op, FlagPacks<T>, Kind>;
};

template <uint32_t ALGORITHM, class MySteps>
PEER_FN void run(Block &b, MySteps steps)
{
    if constexpr (ALGORITHM == PEER_ALGO_ONESHOT) {
        oneshot(b, steps);
    } else if constexpr (ALGORITHM == PEER_ALGO_STAGED) {
        staged(b, steps);
    } else {
        if constexpr (MySteps::CAN_FLOW)
            if (b.c.ring >= b.c.npieces) {
                flowing(b, steps);
                return;
            }
        twoshot(b, steps);
    }
}

/* One block's part in an all-reduce. ALGORITHM and PROTOCOL are the call's, known to the compiler. */
template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL, class Kind>
PEER_FN void allreduce(Block &b, Op op)
{
    look(b);
    begin_looks<Kind>(b);
    run<ALGORITHM>(b, typename StepsOf<T, Op, PROTOCOL, Kind>::Type(b, op));
}

} // namespace

#endif
