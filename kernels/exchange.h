/* Exchange: every rank sends a share of its buffer to every rank, and the receiver puts what it gets in its
 * place (all-gather, all-to-all, broadcast, gather, scatter: PEER_KERNEL_MOVE) or combines the shares of all ranks
 * (reduce-scatter, reduce: PEER_KERNEL_COMBINE). Shares are of any size, and may be empty.
 *
 * For each piece of the shares
 *   1 send     a rank writes its packs of the piece for each peer it has a share for: by push to its own region
 *              there, by pull to the peer's region here, or to one region for all if they get the same
 *   2 receive  it reads what each peer that has a share for it wrote, and puts it into its buffer or combines
 *              it with its own share
 * A block handles one run of packs of every share, the same on both sides, and so meets only the blocks of its own
 * number at the peers. Under `line` and `ll` each 16-byte line carries its tag; under `flag` a block signals each
 * receiver after 1 (phase 0), and waits for each sender's signal before it reads. Step 1 of piece p+1 comes before
 * step 2 of piece p.
 *
 * Credit. A share of more than PEER_RING pieces comes back to slots it has used: before a block writes piece p of a
 * share it waits for the receiver's signal (phase 1) that it has read piece p - PEER_RING. A wait for a signal of
 * piece p - PEER_RING is for a step that comes before everybody's step 1 of piece p, so there is no circle.
 *
 * Where the data alone are no rendezvous (a broadcast, counts that may be 0) block 0 announces itself as
 * kernels/protocol.h says (phase 2), before step 1 of the first piece, and waits for all peers at the end.
 *
 * In place a block overwrites with a piece that it receives what it has sent of the same piece or before: the runs
 * of what is sent and of what takes its place are the same (all-to-all), or its own first part (reduce-scatter in
 * blocks). The threads of a block meet between the two. */
#ifndef PEER_KERNELS_EXCHANGE_H
#define PEER_KERNELS_EXCHANGE_H

#include "packs.h"

namespace
{

/* A share, and whose it is. */
struct PeerShare : peer_share {
    uint32_t rank;
};

/* Packs of a share's piece p. */
PEER_FN uint32_t piece_of(const peer_share &s, uint32_t p)
{
    uint64_t before = (uint64_t)p * s.piece_packs;
    uint64_t left = s.npacks > before ? s.npacks - before : 0;
    return (uint32_t)(left < s.piece_packs ? left : s.piece_packs);
}

/* The packs of piece p of the share that `writer` has for `reader`. */
template <class Kind>
PEER_FN char *share_at(const Block &b, const peer_exchange &x, const peer_share &s, uint32_t reader,
                       uint32_t writer, uint32_t p)
{
    const peer_call &c = b.c;
    const bool pulled = !Kind::PLAIN && x.pull;
    const uint32_t region = !pulled ? writer : x.shared ? 0 : reader;
    uint64_t at = region * x.region_bytes + p % PEER_RING * x.slot_bytes;
    if (c.small)
        at = x.places_at + (region * PEER_PLACES + b.state.place) * x.region_bytes;
    if (s.turns > 1)
        at += (b.state.group >> 1) % s.turns * s.turn_bytes;
    return half_at(c, pulled ? writer : reader, c.protocol, half_of(b)) + at;
}

/* What the steps of every protocol need. */
template <class T, class Packs, class Kind>
struct Exchange {
    using MyPack = typename Packs::MyPack;

    Block &b;
    const peer_exchange &x;
    const Buffers<T, Packs::BYTES, Kind::EVEN> buffers;

    PEER_FN Exchange(Block &block, const peer_exchange &exchange) : b(block), x(exchange), buffers(block.c)
    {
    }

    PEER_FN uint32_t tag(uint32_t p) const
    {
        return b.state.epoch + p;
    }

    PEER_FN uint32_t npieces() const
    {
        return Kind::PLAIN ? 1 : x.npieces;
    }

    /* The i-th share that is sent, or received. */
    PEER_FN PeerShare sent(uint32_t i) const
    {
        return share(i, x.nsend, x.send_step, x.send_at, x.send_count);
    }

    /* The i-th that is written. */
    PEER_FN PeerShare written(uint32_t i) const
    {
        return sent(x.first_write + i);
    }

    PEER_FN PeerShare received(uint32_t i) const
    {
        return share(i, x.nrecv, x.recv_step, x.recv_at, x.recv_count);
    }

    PEER_FN PeerShare share(uint32_t i, uint32_t n, uint64_t step, const uint64_t *at,
                            const uint64_t *count) const
    {
        const uint32_t r = n == b.c.nranks - 1 ? peer_at(b.c, 1 + i) : x.root;
        PeerShare s = {};
        if (Kind::PLAIN || x.uniform) {
            (peer_share &)s = x.common;
            s.at = r * step;
        } else {
            s.at = at[r];
            s.count = count[r];
            peer_set_share(&b.c, &x, {Packs::BYTES, Packs::STAGED}, &s);
        }
        s.rank = r;
        return s;
    }

    /* Pack j of piece p of a share of sendbuf. */
    template <class IsWhole = Partly>
    PEER_FN MyPack load(const peer_share &s, uint32_t p, uint32_t j, IsWhole whole = {}) const
    {
        return buffers.load(s.at / sizeof(T), (uint64_t)p * s.piece_packs + j, s.count / sizeof(T), whole);
    }

    /* To the byte `at` of recvbuf. */
    template <class IsWhole = Partly>
    PEER_FN void store_at(uint64_t at, const peer_share &s, uint32_t p, uint32_t j, const MyPack &pack,
                          IsWhole whole = {}) const
    {
        buffers.store(at / sizeof(T), (uint64_t)p * s.piece_packs + j, s.count / sizeof(T), pack, whole);
    }

    template <class IsWhole = Partly>
    PEER_FN void store(const peer_share &s, uint32_t p, uint32_t j, const MyPack &pack,
                       IsWhole whole = {}) const
    {
        store_at(s.at, s, p, j, pack, whole);
    }

    /* This block's run of piece p of a share: packs begin .. end-1. */
    PEER_FN uint32_t begin(const peer_share &s) const
    {
        return b.at.block * s.run;
    }

    PEER_FN uint32_t end(const peer_share &s, uint32_t p) const
    {
        uint32_t end = (b.at.block + 1) * s.run, packs = piece_of(s, p);
        return end < packs ? end : packs;
    }

    PEER_FN Run run_of(const peer_share &s, uint32_t p) const
    {
        const uint32_t stop = end(s, p);
        return {begin(s) + b.at.thread, buffers.whole((uint64_t)p * s.piece_packs, stop, s.count / sizeof(T)),
                stop, b.at.nthreads};
    }

    PEER_FN char *to(const PeerShare &s, uint32_t p) const
    {
        return share_at<Kind>(b, x, s, s.rank, b.c.rank, p);
    }

    PEER_FN char *from(const PeerShare &s, uint32_t p) const
    {
        return share_at<Kind>(b, x, s, b.c.rank, s.rank, p);
    }

    /* Where the packs of piece p begin that each writer has for this rank, all shares being like s. Pushed ones are
     * evenly apart: nothing else need be computed for each. */
    PEER_FN auto from_each(const peer_share &s, uint32_t p) const
    {
        char *const first = share_at<Kind>(b, x, s, b.c.rank, 0, p);
        const uint64_t apart = x.region_bytes * (b.c.small ? PEER_PLACES : 1);
        return [=, &s](uint32_t r) {
            if constexpr (Kind::PLAIN)
                return first + r * apart;
            else
                return share_at<Kind>(b, x, s, b.c.rank, r, p);
        };
    }

    /* Signals the receivers of shares that have a piece p: this block's packs of it are there. */
    PEER_FN void signal_sent(uint32_t p) const
    {
        block_sync();
        for (uint32_t i = b.at.thread; i < x.nsend; i += b.at.nthreads) {
            PeerShare s = sent(i);
            if (p < s.npieces)
                flag_store(flag_at(b, s.rank, 0, b.c.rank), tag(p));
        }
    }

    /* Waits for those signals here; all threads get the same answer. */
    PEER_FN bool wait_received(uint32_t p)
    {
        bool ok = true;
        for (uint32_t i = b.at.thread; i < x.nrecv && ok; i += b.at.nthreads) {
            PeerShare s = received(i);
            const char *packs = from(s, p);
            ok = p >= s.npieces ||
                 wait_flag(b, 0, s.rank, tag(p), [&] { expect_packs(packs, piece_of(s, p)); });
        }
        return block_all(ok);
    }

    /* Waits until the receivers have read what piece p overwrites. */
    PEER_FN bool wait_credit(uint32_t p)
    {
        bool ok = true;
        if (p < PEER_RING)
            return true;
        for (uint32_t i = b.at.thread; i < x.nsend && ok; i += b.at.nthreads) {
            PeerShare s = sent(i);
            ok = p >= s.npieces || wait_flag(b, 1, s.rank, tag(p - PEER_RING), [] {});
        }
        return block_all(ok);
    }

    /* The other side. To be called when all threads have read piece p. */
    PEER_FN void give_credit(uint32_t p) const
    {
        if (p + PEER_RING >= npieces())
            return;
        for (uint32_t i = b.at.thread; i < x.nrecv; i += b.at.nthreads) {
            PeerShare s = received(i);
            if (p + PEER_RING < s.npieces)
                flag_store(flag_at(b, s.rank, 1, b.c.rank), tag(p));
        }
    }
};

/* ---- line and ll ---------------------------------------------------------------------------------------- */

template <class T, class Packs, class Kind>
struct LineExchange : Exchange<T, Packs, Kind> {
    using Base = Exchange<T, Packs, Kind>;
    using MyPack = typename Packs::MyPack;
    using Base::b, Base::x, Base::tag, Base::load, Base::store, Base::begin, Base::end;

    using Base::Base;

    /* body(share, packs, j) for this thread's part of the block's runs of piece p of all n shares, as one
     * loop: so that it takes as many threads as there are packs. share(i): the i-th; packs(s): where its packs
     * lie; run: the largest. Ends at the first body that returns false, with false. */
    template <class Share, class At, class Body>
    PEER_FN bool over(uint32_t n, uint32_t run, Share share, At packs_of, uint32_t p, Body body)
    {
        uint32_t at = UINT32_MAX;
        PeerShare s = {};
        char *packs = nullptr;
        for (uint32_t f = b.at.thread; f < n * run; f += b.at.nthreads) {
            const uint32_t i = f / run, j = f - i * run;
            if (i != at) {
                at = i;
                s = share(i);
                packs = packs_of(s);
            }
            if (begin(s) + j < end(s, p) && !body(s, packs, begin(s) + j))
                return false;
        }
        return true;
    }

    PEER_FN void send(uint32_t p)
    {
        const uint32_t now = tag(p);
        over(
            x.nwrite, x.send_run, [&](uint32_t i) { return Base::written(i); },
            [&](const PeerShare &s) { return Base::to(s, p); }, p,
            [&](const PeerShare &s, char *packs, uint32_t j) {
                Packs::push(packs, s.piece_packs, j, load(s, p, j), now);
                return true;
            });
    }

    PEER_FN bool receive(uint32_t p)
    {
        const uint32_t now = tag(p);
        not_before<Kind>(b, (p + 1ull) * b.c.wire_ns);
        return over(
            x.nrecv, x.recv_run, [&](uint32_t i) { return Base::received(i); },
            [&](const PeerShare &s) { return Base::from(s, p); }, p,
            [&](const PeerShare &s, char *packs, uint32_t j) {
                MyPack pack;
                bool ok = Packs::pull_one(b, packs, s.piece_packs, j, now, pack);
                if (ok)
                    store(s, p, j, pack);
                return ok;
            });
    }

    /* The shares of all ranks are of one size; the own one is s. */
    template <class Op>
    PEER_FN bool combine(const peer_share &s, uint32_t p, Op op)
    {
        auto from = Base::from_each(s, p);
        not_before<Kind>(b, (p + 1ull) * b.c.wire_ns);
        for (uint32_t j = begin(s) + b.at.thread; j < end(s, p); j += b.at.nthreads) {
            MyPack result;
            if (!Packs::reduce(b, s.piece_packs, j, tag(p), load(s, p, j), op, from, result))
                return false;
            met_all<Kind>();
            Base::store_at(x.own_to, s, p, j, result);
        }
        return true;
    }
};

/* ---- flag ----------------------------------------------------------------------------------------------- */

template <class T, class Packs, class Kind>
struct FlagExchange : Exchange<T, Packs, Kind> {
    using Base = Exchange<T, Packs, Kind>;
    using MyPack = typename Packs::MyPack;
    using Base::b, Base::x, Base::tag, Base::load, Base::store, Base::begin, Base::end;

    using Base::Base;

    PEER_FN void send(uint32_t p)
    {
        for (uint32_t i = 0; i < x.nwrite; i++) {
            const PeerShare s = Base::written(i);
            push_run(b, Base::run_of(s, p), Base::to(s, p),
                     [&](uint32_t j, auto whole) { return this->load(s, p, j, whole); });
        }
        Base::signal_sent(p);
    }

    PEER_FN bool receive(uint32_t p)
    {
        if (!Base::wait_received(p))
            return false;
        mark(b, PEER_MARK_ARRIVED, p);
        for (uint32_t i = 0; i < x.nrecv; i++) {
            const PeerShare s = Base::received(i);
            const char *from = Base::from(s, p);
            over_run(
                Base::run_of(s, p), [&](uint32_t j, auto) { return Packs::load(from, j); },
                [&](uint32_t j, const MyPack &pack, auto whole) { this->store(s, p, j, pack, whole); });
        }
        return true;
    }

    template <class Op>
    PEER_FN bool combine(const peer_share &s, uint32_t p, Op op)
    {
        if (!Base::wait_received(p))
            return false;
        met_all<Kind>();
        mark(b, PEER_MARK_ARRIVED, p);
        const char *own = Base::buffers.at((s.at + (uint64_t)p * s.piece_packs * Packs::BYTES) / sizeof(T));
        Packs::reduce_run(
            Base::run_of(s, p), Base::from_each(s, p), own, b.c.rank, b.c.nranks, op,
            [&](uint32_t j) { return load(s, p, j); },
            [&](uint32_t j, const MyPack &pack, auto whole) {
                this->store_at(x.own_to, s, p, j, pack, whole);
            });
        return true;
    }
};

/* ---- The order of steps --------------------------------------------------------------------------------- */

/* steps.send(p) and receive(p) over all pieces; own() is what else there is to do while data are on their way. */
template <class Steps, class Own, class Receive>
PEER_FN void run_exchange(Block &b, Steps &steps, Own own, Receive receive)
{
    const uint32_t npieces = steps.npieces();
    const bool arrive = (b.c.arrive || (b.c.small && b.last)) && b.at.block == 0;
    mark(b, PEER_MARK_BEGIN);
    if (!enter(b))
        return;
    if (arrive)
        announce(b);
    steps.send(0);
    mark(b, PEER_MARK_SENT);
    advance(b);
    for (uint32_t p = 0; p < npieces; p++) {
        if (p + 1 < npieces) {
            if (!steps.wait_credit(p + 1))
                return;
            steps.send(p + 1);
        }
        if (p == 0)
            own();
        if (!step_ended(npieces, receive(p)))
            return;
        steps.give_credit(p);
    }
    if (arrive)
        wait_announced(b);
    mark(b, PEER_MARK_END);
}

template <class T, uint32_t PROTOCOL, class Kind>
struct ExchangeOf {
    using Type = LineExchange<T, typename PacksOf<T, PROTOCOL>::Type, Kind>;
};

template <class T, class Kind>
struct ExchangeOf<T, PEER_PROTO_FLAG, Kind> {
    using Type = FlagExchange<T, FlagPacks<T>, Kind>;
};

/* This block's part of the own share, which goes from buffer to buffer. */
template <class T>
PEER_FN void copy_own(const Block &b, const peer_exchange &x)
{
    constexpr uint32_t N = PEER_VECTOR / sizeof(T);
    const Buffers<T, PEER_VECTOR, false> buffers(b.c);
    const uint64_t at = x.own.at / sizeof(T), to = x.own_to / sizeof(T), count = x.own.count / sizeof(T);
    if (count == 0 || buffers.send + at == buffers.recv + to ||
        (b.at.nblocks == 1 && copy_alone(buffers.recv + to, buffers.send + at, x.own.count)))
        return;
    const uint64_t packs = (count + N - 1) / N, step = (uint64_t)b.at.nblocks * b.at.nthreads;
    for (uint64_t i = (uint64_t)b.at.block * b.at.nthreads + b.at.thread; i < packs; i += step)
        buffers.store(to, i, count, buffers.load(at, i, count));
}

/* One block's part in an exchange that moves. T is as wide as the call's unit. */
template <class T, uint32_t PROTOCOL, class Kind>
PEER_FN void move(Block &b, const peer_exchange &x)
{
    typename ExchangeOf<T, PROTOCOL, Kind>::Type steps(b, x);
    look(b);
    begin_looks<Kind>(b);
    run_exchange(
        b, steps, [&] { copy_own<T>(b, x); }, [&](uint32_t p) { return steps.receive(p); });
}

/* In an exchange that combines. A rank that gets nothing (it is not the root) has no share of its own. */
template <class Steps, class Op>
PEER_FN void run_combine(Block &b, Steps steps, Op op)
{
    const peer_exchange &x = steps.x;
    run_exchange(
        b, steps, [] {}, [&](uint32_t p) { return x.own.count == 0 || steps.combine(x.own, p, op); });
}

template <class T, class Op, uint32_t PROTOCOL, class Kind>
PEER_FN void combine(Block &b, const peer_exchange &x, Op op)
{
    look(b);
    begin_looks<Kind>(b);
    run_combine(b, typename ExchangeOf<T, PROTOCOL, Kind>::Type(b, x), op);
}

} // namespace

#endif
