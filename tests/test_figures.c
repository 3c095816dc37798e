/* test_figures: what is concluded from the probe's figures, on machines that are made up: who meets whom in its rounds,
 * whether a path is sane, whether stores have collapsed, and the islands that ranks form. */
#include <math.h>
#include <stdlib.h>

#include "figures.h"
#include "test.h"

typedef float matrix[PEER_MAX_PEERS][PEER_MAX_PEERS];

/* ---- Rounds ------------------------------------------------------------------------------------------------- */

/* In each round everybody has one partner, who has him, or rests; in all of them everybody meets everybody once. */
static void test_rounds(void)
{
    for (uint32_t n = 2; n <= PEER_MAX_PEERS; n++) {
        int met[PEER_MAX_PEERS][PEER_MAX_PEERS] = {{0}};
        uint32_t rounds = peer_probe_rounds(n);
        TEST_TRUE(2 * 3 * rounds <= PEER_PROBE_STAGES);
        for (uint32_t round = 0; round < rounds; round++)
            for (uint32_t r = 0; r < n; r++) {
                uint32_t partner = peer_probe_partner(r, n, round);
                if (partner == n)
                    continue;
                TEST_TRUE(partner < n && partner != r);
                TEST_INT(peer_probe_partner(partner, n, round), r);
                met[r][partner]++;
            }
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < n; b++)
                TEST_INT(met[a][b], a != b);
    }
}

/* Nobody is the target of two in a stage, but in the pattern of all; each reaches each in the course of it. */
static void test_targets(void)
{
    static const uint32_t patterns[] = {PEER_PROBE_PAIRS, PEER_PROBE_STAGED};
    for (uint32_t n = 2; n <= PEER_MAX_PEERS; n++)
        for (size_t i = 0; i < 2; i++) {
            uint32_t stages = i == 0 ? 2 * peer_probe_rounds(n) : n - 1;
            uint32_t reached[PEER_MAX_PEERS] = {0};
            for (uint32_t stage = 0; stage < stages; stage++) {
                uint32_t taken = 0;
                for (uint32_t r = 0; r < n; r++) {
                    const struct peer_probe_step step = {.pattern = patterns[i]};
                    uint32_t targets = peer_probe_targets(&step, r, n, stage);
                    TEST_INT(targets & taken, 0);
                    TEST_INT(targets & reached[r], 0);
                    TEST_INT(targets & (targets - 1), 0);
                    taken |= targets;
                    reached[r] |= targets;
                }
            }
            for (uint32_t r = 0; r < n; r++)
                TEST_INT(reached[r], ((1u << n) - 1) & ~(1u << r));
        }
    struct peer_probe_step step = {.pattern = PEER_PROBE_ALL, .sets = {2, 5, 0}};
    TEST_INT(peer_probe_targets(&step, 1, 3, 0), 5);
    step.pattern = PEER_PROBE_RING;
    TEST_INT(peer_probe_targets(&step, 2, 3, 0), 1);
    step.pattern = PEER_PROBE_SETS;
    TEST_INT(peer_probe_targets(&step, 1, 3, 7), 5);
}

/* ---- Sanity ------------------------------------------------------------------------------------------------- */

static void fill(matrix m, int size, float value)
{
    memset(m, 0, sizeof(matrix));
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            m[a][b] = a == b ? 0 : value;
}

static void make(struct peer_matrices *m, int size, float store, float load)
{
    fill(m->store_gbs, size, store);
    fill(m->load_gbs, size, load);
    fill(m->flag_us, size, 1);
}

static bool pairs_sane(const struct peer_matrices *m, int size, enum peer_link link, const char *told)
{
    char why[512] = "";
    bool sane = peer_figures_pairs_sane(m, size, peer_figures_floor(link, 1), why, sizeof why);
    if (!sane)
        TEST_CONTAINS(why, told);
    return sane;
}

static void test_pairs(void)
{
    struct peer_matrices m;
    for (int size = 2; size <= PEER_MAX_PEERS; size++) {
        make(&m, size, 50, 48);
        TEST_TRUE(pairs_sane(&m, size, PEER_LINK_WIRE, ""));
        m.store_gbs[1][0] = 0.5f; /* stores alone: a figure, no reason to give up */
        TEST_TRUE(pairs_sane(&m, size, PEER_LINK_WIRE, ""));
        m.load_gbs[0][1] = 2.5f;
        TEST_TRUE(pairs_sane(&m, size, PEER_LINK_WIRE, ""));
        m.load_gbs[0][1] = 0.5f;
        TEST_TRUE(!pairs_sane(&m, size, PEER_LINK_WIRE, "from rank 1 to rank 0"));
        make(&m, size, 0.57f, 0.5f); /* 1% of PCIe 5.0 x16, everywhere */
        TEST_TRUE(!pairs_sane(&m, size, PEER_LINK_WIRE, "no sound link"));
        make(&m, size, 0.8f, 0.7f); /* PCIe 3.0 x1 is slow, but works */
        TEST_TRUE(pairs_sane(&m, size, PEER_LINK_WIRE, ""));
        make(&m, size, 0.05f, 0.07f);
        TEST_TRUE(!pairs_sane(&m, size, PEER_LINK_HOST, "no sound link"));
    }
}

/* All at once, GB/s, as measured on machines that are in order, and on one whose stores collapse. */
static void test_together(void)
{
    static const struct {
        double store, load;
        bool sane, collapsed;
    } machines[] = {{25.4, 20.6, true, false}, {20, 25, true, false}, {6.5, 20, true, true},
                    {2.6, 52, true, true},     {0.9, 20, true, true}, {0.2, 20, true, true},
                    {0.25, 0.2, false, false}};
    const double floor_gbs = peer_figures_floor(PEER_LINK_WIRE, 1);
    struct peer_matrices m;
    char why[512];
    make(&m, 8, 50, 48);
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        struct peer_figures f = {.all_store_gbs = machines[i].store, .all_load_gbs = machines[i].load};
        peer_figures_settle(&f, &m, 8, PEER_LINK_WIRE);
        TEST_TRUE(f.known);
        TEST_TRUE(f.store_gbs == 50 && f.load_gbs == 48 && f.flag_us == 1);
        TEST_INT(f.push_collapsed, machines[i].collapsed);
        TEST_INT(peer_figures_together_sane(&f, &m, 8, floor_gbs, why, sizeof why), machines[i].sane);
    }
}

/* What between which ranks is longest, and the rates of all where none have been measured. */
static void islands_of(void)
{
    const struct peer_grouping grouping = {4, 2, {0, 0, 0, 1}}, one = {4, 1, {0}};
    struct peer_matrices m = {0};
    struct peer_figures f = {.all_store_gbs = 20, .far_store_gbs = 7};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            m.flag_us[a][b] = a == b ? 0 : a == 3 || b == 3 ? 1.5f : 0.5f;
    m.flag_us[2][0] = 0.75f;
    m.flag_us[3][1] = 2;
    peer_figures_islands(&f, &m, &grouping);
    TEST_TRUE(f.islands == 2 && f.columns == 3 && f.near_flag_us == 0.75 && f.far_flag_us == 2);
    TEST_TRUE(f.near_store_gbs == 20 && f.far_store_gbs == 7);
    f.far_store_gbs = 0;
    peer_figures_islands(&f, &m, &one);
    TEST_TRUE(f.islands == 1 && f.columns == 4 && f.far_store_gbs == 20);
    TEST_TRUE(f.near_flag_us == 2 && f.far_flag_us == peer_figures_median(m.flag_us, 4));
}

static void links(void)
{
    struct peer_figures f = {.known = true, .store_gbs = 300, .all_store_gbs = 200};
    TEST_INT(peer_figures_link(PEER_LINK_WIRE, &f), PEER_LINK_NVLINK);
    TEST_INT(peer_figures_link(PEER_LINK_LOCAL, &f), PEER_LINK_LOCAL);
    f.all_store_gbs = 40; /* some pairs only */
    TEST_INT(peer_figures_link(PEER_LINK_WIRE, &f), PEER_LINK_WIRE);
    f = (struct peer_figures){.store_gbs = 300, .all_store_gbs = 200};
    TEST_INT(peer_figures_link(PEER_LINK_WIRE, &f), PEER_LINK_WIRE);
}

/* ---- Islands ------------------------------------------------------------------------------------------------- */

/* A distance of `near` within an island and `far` between them, each up to `noise` longer, by chance. */
static void draw(matrix m, int size, const char *islands, float near, float far, float noise)
{
    memset(m, 0, sizeof(matrix));
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            if (a != b)
                m[a][b] =
                    (islands[a] == islands[b] ? near : far) * (1 + noise * (float)rand() / (float)RAND_MAX);
}

static void check_islands(const matrix m, const char *islands)
{
    uint8_t island[PEER_MAX_PEERS];
    int size = (int)strlen(islands), wanted = 0;
    for (int r = 0; r < size; r++)
        wanted = islands[r] - '0' + 1 > wanted ? islands[r] - '0' + 1 : wanted;
    TEST_INT(peer_islands(m, size, island), wanted);
    for (int r = 0; r < size; r++)
        TEST_INT(island[r], islands[r] - '0');
}

/* Numbered in the order of the lowest ranks, as peer_islands does. */
static const char *const splits[] = {"00001111", "00000111", "001122",           "01010101",        "0001",
                                     "001",      "0123301",  "0000000011111111", "0011223344556677"};

static void test_islands(void)
{
    matrix m;
    srand(1);
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
        for (int noisy = 0; noisy < 20; noisy++) {
            /* a switch and the CPU; one CPU and two, by the rates; one GPU and PCIe */
            draw(m, (int)strlen(splits[i]), splits[i], 0.65f, 1.08f, noisy ? 0.15f : 0);
            check_islands(m, splits[i]);
            draw(m, (int)strlen(splits[i]), splits[i], 1 / 52.f, 1 / 34.f, noisy ? 0.1f : 0);
            check_islands(m, splits[i]);
            draw(m, (int)strlen(splits[i]), splits[i], 0.001f, 0.04f, noisy ? 0.5f : 0);
            check_islands(m, splits[i]);
        }
}

/* No clear gap: one island. */
static void test_no_islands(void)
{
    static const char *const one[] = {"00", "000", "00000", "00000000", "0000000000000000"};
    matrix m;
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        for (int noisy = 0; noisy < 100; noisy++) {
            draw(m, (int)strlen(one[i]), one[i], 1, 1, noisy ? 0.2f : 0);
            check_islands(m, one[i]);
        }
    /* A chain, each as far from the next as any: there is nowhere to cut. */
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
            m[a][b] = (float)abs(a - b);
    check_islands(m, "00000000");
    memset(m, 0, sizeof m); /* not measured */
    check_islands(m, "00000000");
}

/* One measurement of two that was disturbed changes nothing. */
static void test_disturbed(void)
{
    matrix m;
    draw(m, 8, "00001111", 0.65f, 1.08f, 0);
    m[2][1] = 5;
    m[4][7] = 1.2f;
    check_islands(m, "00001111");
}

/* Flags first; rates where flags tell nothing, by whichever of store and load is better. */
static void test_measured(void)
{
    struct peer_matrices m;
    uint8_t island[PEER_MAX_PEERS];
    make(&m, 4, 50, 48);
    TEST_INT(peer_islands_measured(&m, 4, island), 1);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b && a % 2 != b % 2)
                m.store_gbs[a][b] = m.load_gbs[a][b] = 20;
    TEST_INT(peer_islands_measured(&m, 4, island), 2);
    TEST_INT(island[0], island[2]);
    TEST_INT(island[1], 1);
    draw(m.flag_us, 4, "0011", 0.65f, 1.08f, 0);
    TEST_INT(peer_islands_measured(&m, 4, island), 2);
    TEST_INT(island[1], 0);
    TEST_INT(island[2], 1);
}

int main(void)
{
    links();
    islands_of();
    test_rounds();
    test_targets();
    test_pairs();
    test_together();
    test_islands();
    test_no_islands();
    test_disturbed();
    test_measured();
    test_pass();
}
