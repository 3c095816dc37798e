/* All-reduce in two levels, for ranks in islands: groups within which data travel better than between them.
 *
 * A piece is cut into columns, as many as the largest island has ranks. In every island column j has an owner: member j
 * modulo the island's size. Islands may be of any number and size.
 *   1 scatter  a rank writes its packs of every column to the column's owner in its own island (region NEAR)
 *   2 reduce   an owner adds up its island's, and writes the partial sum to the owners in all other islands, and for
 *              itself (region FAR)
 *   3 join     it adds up the islands' partial sums from island 0 on, and writes the result out and to its island's
 *              other members (region RESULT)
 *   4 gather   they write it out
 * So of a message of S bytes, S / columns leave a rank for another island where twoshot sends S or so. A partial sum travels
 * as what it is added up in (fp32 for bf16), and is rounded once, at the end; all owners of a column compute the same.
 * Data are always pushed. A block handles one run of packs of every column, the same in every step. Under `flag` it
 * signals its island after 1 (phase 0) and 3 (phase RESULTS), and after 2 the ranks that own a column with it
 * (phase 1).
 *
 * Pieces overlap: in turn t come step 1 of piece t, step 2 of t-1, step 3 of t-2, step 4 of t-3.
 *
 * Why a slot may be overwritten by piece p+4 of the same call (across calls: kernels/protocol.h):
 *   NEAR    A, to the owner B: A scatters p+4 after its gather of p, which saw a result that B sent after its reduce of p.
 *   FAR     A, to the owner B: A reduces p+4 after its join of p+2, which saw B's partial sum of p+2, and B sent that after
 *           its join of p.
 *   RESULT  an owner A, to B: A joins p+4 after its gather of p+2, which saw B's result of p+2, and B sent that after its
 *           gather of p.
 * Every rank owns a column, since the largest island has as many ranks as there are columns. And a call is a rendezvous: a
 * result has come from all members of all islands. */
#ifndef PEER_KERNELS_ISLAND_H
#define PEER_KERNELS_ISLAND_H

#include "allreduce.h"

namespace
{

/* This rank's view of the islands, and where packs of the columns lie. */
template <class T, class Op, class Packs, class Kind>
struct Islands : Steps<T, Op, Packs, Kind> {
    using Base = Steps<T, Op, Packs, Kind>;
    using MyPack = typename Packs::MyPack;
    using Sum = Accumulator<T, Packs::BYTES, Op>;
    using Base::b, Base::op, Base::tag, Base::load_own, Base::store_own;

    /* Packs of the width of a sum. */
    static constexpr uint32_t WIDTH = sizeof(Sum) / Packs::BYTES;
    static_assert(WIDTH == PEER_SUM_WIDTH(sizeof(T)), "the geometry leaves room for it");

    const peer_islands &islands;
    const uint32_t mine, member, members; /* this rank's island, its number there, and how many there are */

    PEER_FN Islands(Block &block, Op operation)
        : Base(block, operation), islands(block.c.islands), mine(islands.island[block.c.rank]),
          member(islands.member[block.c.rank]), members(islands.size[mine])
    {
    }

    PEER_FN uint32_t member_rank(uint32_t island, uint32_t i) const
    {
        return islands.ranks[islands.first[island] + i];
    }

    /* The owner of column j in an island, and j's number among those that it owns. */
    PEER_FN uint32_t owner(uint32_t island, uint32_t j) const
    {
        return member_rank(island, j % islands.size[island]);
    }

    PEER_FN uint32_t number(uint32_t island, uint32_t j) const
    {
        return j / islands.size[island];
    }

    PEER_FN bool is_mine(uint32_t j) const
    {
        return j % members == member;
    }

    /* Columns of this rank, which are member, member + members, ...; and in its island the most of any rank. */
    PEER_FN uint32_t owned() const
    {
        return (islands.columns - member + members - 1) / members;
    }

    PEER_FN uint32_t most_owned() const
    {
        return peer_most_owned(islands.columns, members);
    }

    /* In rank r's staging, of piece p: the packs of a place, or, of all readers', those of `all`. */
    PEER_FN char *place(uint32_t r, uint32_t p, uint32_t place, uint32_t all = 0) const
    {
        const peer_call &c = b.c;
        return half_at(c, r, c.protocol, half_of(b)) + b.turn + slot_of(c, p) * c.slot_bytes +
               all * (uint64_t)Packs::STAGED + place * apart();
    }

    PEER_FN char *near(uint32_t r, uint32_t p, uint32_t writer, uint32_t j) const
    {
        return place(r, p, writer * most_owned() + number(mine, j));
    }

    /* The packs of a sum lie one stride apart. */
    PEER_FN char *far(uint32_t r, uint32_t p, uint32_t writer, uint32_t j) const
    {
        const uint32_t island = islands.island[r];
        const uint32_t each = peer_most_owned(islands.columns, islands.size[island]);
        return place(r, p, islands.far_at + (writer * each + number(island, j)) * WIDTH);
    }

    PEER_FN char *result(uint32_t r, uint32_t p, uint32_t j) const
    {
        return place(r, p, j, b.c.all_at);
    }

    PEER_FN uint64_t apart() const
    {
        return (uint64_t)b.c.stride * Packs::STAGED;
    }

    /* body(j, i) for the packs i of this block's runs of `n` columns from column `first` on, `step` apart, as one loop: so
     * that it takes as many threads as there are packs. Ends at the first body that returns false, with false. The same
     * thread gets the same pack each time. */
    template <class Body>
    PEER_FN bool over(uint32_t p, uint32_t first, uint32_t step, uint32_t n, Body body) const
    {
        const peer_call &c = b.c;
        for (uint32_t f = b.at.thread; f < n * c.block_packs; f += b.at.nthreads) {
            const uint32_t j = (first + f / c.block_packs * step) % islands.columns;
            const uint32_t i = b.at.block * c.block_packs + f % c.block_packs;
            if (i < part_of(c, p, j).count && !body(j, i))
                return false;
        }
        return true;
    }

    template <class Body>
    PEER_FN bool over_mine(uint32_t p, Body body) const
    {
        return over(p, member, members, owned(), body);
    }

    /* Every other column, from the next member's on. */
    template <class Body>
    PEER_FN bool over_others(uint32_t p, Body body) const
    {
        return over(p, member + 1, 1, islands.columns,
                    [&](uint32_t j, uint32_t i) { return is_mine(j) || body(j, i); });
    }

    PEER_FN MyPack own(uint32_t p, uint32_t j, uint32_t i) const
    {
        return load_own(part_of(b.c, p, j).first + i);
    }

    PEER_FN void keep(uint32_t p, uint32_t j, uint32_t i, const MyPack &x) const
    {
        store_own(part_of(b.c, p, j).first + i, x);
    }

    /* to(char *) for every place that a partial sum goes to: the owners' of the column, this rank's included. */
    template <class To>
    PEER_FN void to_owners(uint32_t p, uint32_t j, To to) const
    {
        for (uint32_t k = 0; k < islands.n; k++) {
            const uint32_t island = (mine + k) % islands.n;
            to(far(owner(island, j), p, mine, j));
        }
    }

    template <class To>
    PEER_FN void to_members(uint32_t p, uint32_t j, To to) const
    {
        for (uint32_t m = 1; m < members; m++)
            to(result(member_rank(mine, (member + m) % members), p, j));
    }
};

/* ---- line and ll ---------------------------------------------------------------------------------------- */

template <class T, class Op, class Packs, class Kind>
struct IslandLines : Islands<T, Op, Packs, Kind> {
    using Base = Islands<T, Op, Packs, Kind>;
    using Base::b, Base::op, Base::tag, Base::islands, Base::mine, Base::member, Base::members, Base::WIDTH;
    using typename Base::MyPack, typename Base::Sum;

    using Base::Base;

    PEER_FN void push(char *packs, uint32_t p, uint32_t i, const MyPack &x) const
    {
        Packs::push(packs, b.c.stride, i, x, tag(p));
    }

    PEER_FN void scatter(uint32_t p)
    {
        Base::over_others(p, [&](uint32_t j, uint32_t i) {
            push(Base::near(Base::owner(mine, j), p, member, j), p, i, Base::own(p, j, i));
            return true;
        });
    }

    PEER_FN bool reduce(uint32_t p)
    {
        const uint64_t apart = Base::most_owned() * Base::apart();
        return Base::over_mine(p, [&](uint32_t j, uint32_t i) {
            char *const packs = Base::near(b.c.rank, p, 0, j);
            auto from = [=](uint32_t m) { return packs + m * apart; };
            Sum sum;
            MyPack part[WIDTH];
            if (!Packs::add_up(b, b.c.stride, i, tag(p), Base::own(p, j, i), member, members, op, from, sum))
                return false;
            sum.save(part);
            Base::to_owners(p, j, [&](char *to) {
                for (uint32_t w = 0; w < WIDTH; w++)
                    push(to + w * Base::apart(), p, i, part[w]);
            });
            return true;
        });
    }

    PEER_FN bool join(uint32_t p)
    {
        return Base::over_mine(p, [&](uint32_t j, uint32_t i) {
            Sum sum;
            for (uint32_t k = 0; k < islands.n; k++) {
                char *const packs = Base::far(b.c.rank, p, k, j);
                MyPack part[WIDTH];
                Sum next;
                if (!Packs::pull(
                        b, b.c.stride, 0, i, tag(p), [](uint32_t) { return true; },
                        [&](uint32_t w) { return packs + w * Base::apart(); }, part))
                    return false;
                next.restore(part);
                sum.join(next, k == 0, op);
            }
            const MyPack x = sum.result(op, b.c.nranks);
            Base::to_members(p, j, [&](char *to) { push(to, p, i, x); });
            Base::keep(p, j, i, x);
            return true;
        });
    }

    PEER_FN bool gather(uint32_t p)
    {
        return Base::over_others(p, [&](uint32_t j, uint32_t i) {
            MyPack x;
            if (!Packs::pull_one(b, Base::result(b.c.rank, p, j), b.c.stride, i, tag(p), x))
                return false;
            Base::keep(p, j, i, x);
            return true;
        });
    }
};

/* ---- flag ----------------------------------------------------------------------------------------------- */

template <class T, class Op, class Packs, class Kind>
struct IslandFlags : Islands<T, Op, Packs, Kind> {
    using Base = Islands<T, Op, Packs, Kind>;
    using Base::b, Base::op, Base::tag, Base::islands, Base::mine, Base::member, Base::members, Base::WIDTH;
    using typename Base::MyPack, typename Base::Sum;

    using Base::Base;

    PEER_FN static void push(char *packs, uint32_t i, const MyPack &x)
    {
        Pusher::store<false>(packs + (uint64_t)i * Packs::STAGED, x.w);
    }

    PEER_FN void scatter(uint32_t p)
    {
        Base::over_others(p, [&](uint32_t j, uint32_t i) {
            push(Base::near(Base::owner(mine, j), p, member, j), i, Base::own(p, j, i));
            return true;
        });
        signal_set(b, islands.near, 0, tag(p));
    }

    PEER_FN bool reduce(uint32_t p)
    {
        const uint64_t apart = Base::most_owned() * Base::apart();
        if (!wait_set(b, islands.near, 0, tag(p)))
            return false;
        mark(b, PEER_MARK_ARRIVED, p);
        Base::over_mine(p, [&](uint32_t j, uint32_t i) {
            const char *const packs = Base::near(b.c.rank, p, 0, j);
            auto from = [=](uint32_t m) { return packs + m * apart; };
            Sum sum;
            MyPack part[WIDTH];
            Packs::add_up(
                from, i, member, members, op, [&] { return Base::own(p, j, i); }, sum);
            sum.save(part);
            Base::to_owners(p, j, [&](char *to) {
                for (uint32_t w = 0; w < WIDTH; w++)
                    push(to + w * Base::apart(), i, part[w]);
            });
            return true;
        });
        signal_set(b, islands.far, 1, tag(p));
        return true;
    }

    PEER_FN bool join(uint32_t p)
    {
        if (!wait_set(b, islands.far, 1, tag(p)))
            return false;
        Base::over_mine(p, [&](uint32_t j, uint32_t i) {
            Sum sum;
            for (uint32_t k = 0; k < islands.n; k++) {
                const char *const packs = Base::far(b.c.rank, p, k, j);
                MyPack part[WIDTH];
                Sum next;
                for (uint32_t w = 0; w < WIDTH; w++)
                    part[w] = Packs::load(packs + w * Base::apart(), i);
                next.restore(part);
                sum.join(next, k == 0, op);
            }
            const MyPack x = sum.result(op, b.c.nranks);
            Base::to_members(p, j, [&](char *to) { push(to, i, x); });
            Base::keep(p, j, i, x);
            return true;
        });
        signal_set(b, islands.near, RESULTS, tag(p));
        return true;
    }

    PEER_FN bool gather(uint32_t p)
    {
        return wait_set(b, islands.near, RESULTS, tag(p)) &&
               Base::over_others(p, [&](uint32_t j, uint32_t i) {
                   Base::keep(p, j, i, Packs::load(Base::result(b.c.rank, p, j), i));
                   return true;
               });
    }
};

/* ---- The order of steps --------------------------------------------------------------------------------- */

template <class MySteps>
PEER_FN void run_island(Block &b, MySteps s)
{
    const uint32_t n = b.c.npieces;
    mark(b, PEER_MARK_BEGIN);
    if (!enter(b))
        return;
    s.scatter(0);
    mark(b, PEER_MARK_SENT);
    advance(b);
    for (uint32_t t = 1; t < n + 3; t++) {
        if (t < n)
            s.scatter(t);
        if (t <= n && !step_ended(n, s.reduce(t - 1)))
            return;
        mark(b, PEER_MARK_REDUCED, t - 1);
        if (t >= 2 && t <= n + 1 && !step_ended(n, s.join(t - 2)))
            return;
        if (t >= 3 && !step_ended(n, s.gather(t - 3)))
            return;
    }
    mark(b, PEER_MARK_END);
}

template <class T, class Op, uint32_t PROTOCOL, class Kind>
struct IslandOf {
    using Type = IslandLines<T, Op, typename PacksOf<T, PROTOCOL>::Type, Kind>;
};

template <class T, class Op, class Kind>
struct IslandOf<T, Op, PEER_PROTO_FLAG, Kind> {
    using Type = IslandFlags<T, Op, FlagPacks<T>, Kind>;
};

/* One block's part in an all-reduce by islands. */
template <class T, class Op, uint32_t PROTOCOL, class Kind>
PEER_FN void island(Block &b, Op op)
{
    look(b);
    run_island(b, typename IslandOf<T, Op, PROTOCOL, Kind>::Type(b, op));
}

} // namespace

#endif
