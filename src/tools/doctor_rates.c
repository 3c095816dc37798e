/* The doctor's checks of PCIe links and of the rates and latencies that were measured between ranks. */
#include "doctor.h"

#include <string.h>

/* Below this part of what the link can do a rate is a finding. Measured elsewhere: links that work reach 80 to 90%,
 * with all GPUs sending to all 30 to 40%, machines whose posted writes collapse 4 to 11%. */
#define LEAST_PART 0.25

/* A flag takes 0.6 to 1.4 us between GPUs, over switches and sockets, and 2.3 through host memory; more means that the
 * driver stages it. */
#define MOST_LATENCY_US 5.0

/* ---- Links ------------------------------------------------------------------------------------------------- */

static int generation_of(int rate)
{
    static const int rates[] = {2500, 5000, 8000, 16000, 32000, 64000};
    int generation = 0;
    while (generation < 6 && rate >= rates[generation])
        generation++;
    return generation;
}

static int rate_of(int generation)
{
    return generation >= 3 && generation <= 6 ? 8000 << (generation - 3)
           : generation == 2                  ? 5000
           : generation == 1                  ? 2500
                                              : DOCTOR_UNKNOWN;
}

/* Of 10 bits 8 are data up to generation 2, later 128 of 130. */
double doctor_gbs(int rate, int width)
{
    return rate <= 0 || width <= 0 ? 0 : rate / 8000.0 * width * (rate < 8000 ? 0.8 : 128.0 / 130);
}

/* A link: as it is, and the most that both ends can do. Unknown where one end is. */
struct link {
    char pci[DOCTOR_PCI_BYTES]; /* its lower end */
    int rate, width, most_rate, most_width;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Hops 0 and 1 are the ends of the GPU's link, 2 and 3 of the link above its switch, and so on. A GPU whose upper end
 * can't be seen, or is one that a virtual machine makes up, has NVML's word. */
static bool link_of(const struct doctor_facts *facts, int i, struct link *link)
{
    const struct doctor_hop *lower = &facts->hop[2 * i], *upper = lower + 1;
    *link = (struct link){.rate = DOCTOR_UNKNOWN};
    if (facts->virtual_machine <= 0 && 2 * i + 1 < facts->nhops && lower->rate > 0 && lower->width > 0) {
        memcpy(link->pci, lower->pci, sizeof link->pci);
        link->rate = lower->rate;
        link->width = lower->width;
        link->most_rate = least(lower->max_rate, upper->max_rate);
        link->most_width = least(lower->max_width, upper->max_width);
    } else if (i == 0) {
        memcpy(link->pci, facts->gpu_pci, sizeof link->pci);
        link->rate = rate_of(facts->generation);
        link->width = facts->lanes;
        link->most_rate = rate_of(facts->max_generation);
        link->most_width = facts->max_lanes;
    }
    return link->rate > 0 && link->width > 0 && link->most_rate > 0 && link->most_width > 0;
}

double doctor_way_gbs(const struct doctor_facts *facts)
{
    double slowest = 0;
    struct link link;
    for (int i = 0; i < DOCTOR_HOPS / 2; i++)
        if (link_of(facts, i, &link)) {
            double gbs = doctor_gbs(link.most_rate, link.most_width);
            slowest = slowest == 0 || gbs < slowest ? gbs : slowest;
        }
    return slowest;
}

/* What the links say together. */
struct links {
    int known;
    double slower;            /* of the worst */
    char below[640];          /* links that are below what they can be */
    char perhaps_asleep[640]; /* links of GPUs that may only be idle */
};

static void append_link(char *text, size_t bytes, const struct link *link)
{
    doctor_append(text, bytes,
                  "%s%s: generation %d x%d (%.1f GB/s), both ends can do generation %d x%d (%.1f GB/s)",
                  text[0] != '\0' ? "; " : "", link->pci, generation_of(link->rate), link->width,
                  doctor_gbs(link->rate, link->width), generation_of(link->most_rate), link->most_width,
                  doctor_gbs(link->most_rate, link->most_width));
}

/* An idle GPU lowers its own link's generation, never its width. */
static void judge_link(const struct doctor_facts *facts, int i, const struct link *link, struct links *links)
{
    links->known++;
    if (link->width < link->most_width ||
        (link->rate < link->most_rate && (i > 0 || facts->performance_state == 0))) {
        double slower = doctor_gbs(link->most_rate, link->most_width) / doctor_gbs(link->rate, link->width);
        append_link(links->below, sizeof links->below, link);
        links->slower = slower > links->slower ? slower : links->slower;
    } else if (link->rate < link->most_rate) {
        append_link(links->perhaps_asleep, sizeof links->perhaps_asleep, link);
    }
}

/* The link above a switch belongs to all of its GPUs; the first tells of it. */
static bool told_before(const struct doctor_input *in, int rank, const char *pci)
{
    for (int earlier = 0; earlier < rank; earlier++)
        for (int i = 0; i < in->ranks[earlier].nhops; i++)
            if (strcmp(in->ranks[earlier].hop[i].pci, pci) == 0)
                return true;
    return false;
}

void doctor_check_link(const struct doctor_input *in, struct doctor_report *report)
{
    struct links links = {0};
    struct link link;
    if (!doctor_on_cuda(in)) {
        doctor_unchecked(report, "no GPU is in use");
        return;
    }
    for (int rank = 0; rank < in->size; rank++)
        for (int i = 0; i < DOCTOR_HOPS / 2 && doctor_first_of_gpu(in, rank); i++)
            if (link_of(&in->ranks[rank], i, &link) && !told_before(in, rank, link.pci))
                judge_link(&in->ranks[rank], i, &link, &links);
    if (links.below[0] != '\0')
        doctor_finding(
            report, links.slower, links.below,
            "large messages take as much longer as the rates say; measured elsewhere, one pair of GPUs: "
            "generation 5 x16 52 to 57 GB/s, generation 4 x16 26",
            "seat the card and its riser anew, or use another slot; BIOS: PCIe Link Speed: Auto, "
            "bifurcation of the slot: x16; lspci -vv -s ADDRESS shows LnkCap and LnkSta");
    if (links.perhaps_asleep[0] != '\0')
        doctor_note(
            report, links.perhaps_asleep,
            "a GPU at idle lowers its link's generation: look again under load, while peer_perf runs: "
            "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max --format=csv");
    if (links.known == 0)
        doctor_unchecked(report, "neither sysfs nor NVML tells of the links");
    else if (links.below[0] == '\0' && links.perhaps_asleep[0] == '\0')
        doctor_fine(report, "%d link%s, at the least %.1f GB/s, as fast as both ends can", links.known,
                    links.known == 1 ? "" : "s", doctor_way_gbs(&in->ranks[0]));
}

/* ---- Measured rates ---------------------------------------------------------------------------------------- */

/* What joins the two can carry, 0 where that isn't known or isn't PCIe. */
static double pair_gbs(const struct doctor_input *in, int from, int to)
{
    double a = doctor_way_gbs(&in->ranks[from]), b = doctor_way_gbs(&in->ranks[to]);
    bool nvlink = in->ranks[from].nvlinks > 0 && in->ranks[to].nvlinks > 0;
    return nvlink || doctor_same_gpu(in, from, to) ? 0 : a < b ? a : b;
}

/* The worst of what is below its limit. */
struct worst {
    int judged, below, from, to;
    double part, gbs, most_gbs;
};

static void judge_rate(struct worst *worst, int from, int to, double gbs, double most_gbs)
{
    if (gbs <= 0 || most_gbs <= 0)
        return;
    worst->judged++;
    worst->below += gbs < LEAST_PART * most_gbs;
    if (worst->judged == 1 || gbs / most_gbs < worst->part)
        *worst = (struct worst){worst->judged, worst->below, from, to, gbs / most_gbs, gbs, most_gbs};
}

static struct worst worst_pair(const struct doctor_input *in, const float gbs[PEER_MAX_PEERS][PEER_MAX_PEERS])
{
    struct worst worst = {0};
    for (int from = 0; from < in->size && in->size <= PEER_MAX_PEERS; from++)
        for (int to = 0; to < in->size; to++)
            if (from != to)
                judge_rate(&worst, from, to, (double)gbs[from][to], pair_gbs(in, from, to));
    return worst;
}

/* With all at once a rank that has a GPU of its own has its link to itself, and no more. The slowest link is what all
 * are held to. */
static struct worst worst_of_all(const struct doctor_input *in, double gbs)
{
    struct worst worst = {0};
    double most_gbs = in->ranks[0].nvlinks > 0 ? 0 : doctor_way_gbs(&in->ranks[0]);
    for (int rank = 1; rank < in->size; rank++)
        if (doctor_way_gbs(&in->ranks[rank]) < most_gbs)
            most_gbs = doctor_way_gbs(&in->ranks[rank]);
    if (doctor_gpus(in) == in->size)
        judge_rate(&worst, 0, 0, gbs, most_gbs);
    return worst;
}

static double times_slower(const struct worst *worst)
{
    return worst->part > 0.001 ? 1 / worst->part : 1000;
}

static void report_pair(const struct worst *worst, const char *what, const char *remedy,
                        struct doctor_report *report)
{
    char seen[256] = "";
    if (worst->below == 0)
        return;
    doctor_append(
        seen, sizeof seen,
        "rank %d %s rank %d at %.1f GB/s, %.0f%% of the %.1f that the links can carry; %d of %d pairs "
        "are below 25%%",
        worst->from, what, worst->to, worst->gbs, 100 * worst->part, worst->most_gbs, worst->below,
        worst->judged);
    doctor_finding(
        report, times_slower(worst), seen,
        "measured elsewhere: drivers that stage in host memory unseen: 242 us a call of 114 KB, on 4 GPUs, "
        "and 16 to 17 after they were told not to",
        remedy);
}

static void report_all(const struct worst *worst, const char *what, const char *remedy,
                       struct doctor_report *report)
{
    char seen[256] = "";
    if (worst->below == 0)
        return;
    doctor_append(
        seen, sizeof seen,
        "with all ranks at once, each %s at %.1f GB/s in all, %.0f%% of the %.1f that its link can carry",
        what, worst->gbs, 100 * worst->part, worst->most_gbs);
    doctor_finding(
        report, times_slower(worst), seen,
        "measured elsewhere, 8 GPUs behind switches on AMD hosts: stores fell from 52 to 7 GB/s, an "
        "all-reduce of 64 KB took 504 us in place of 26",
        remedy);
}

static void report_latency(const struct doctor_input *in, struct doctor_report *report)
{
    int from = 0, to = 0;
    double most = 0;
    char seen[256] = "";
    for (int a = 0; a < in->size && in->size <= PEER_MAX_PEERS; a++)
        for (int b = 0; b < in->size; b++)
            if (a != b && (double)in->rates.flag_us[a][b] > most) {
                most = (double)in->rates.flag_us[a][b];
                from = a;
                to = b;
            }
    if (most <= MOST_LATENCY_US)
        return;
    doctor_append(seen, sizeof seen, "a flag from rank %d to rank %d takes %.1f us", from, to, most);
    doctor_finding(
        report, most, seen,
        "measured elsewhere: 0.6 to 1.1 us between GPUs of one machine, 14 us where the driver stages",
        "nvidia-smi topo -p2p w shows whether the driver lets the GPUs reach each other; ranks that share a "
        "GPU need the MPS daemon");
}

static const char staged[] =
    "mend what is said of acs, iommu, bar1 and links; update driver and BIOS; if the driver stages between "
    "GPUs at the CPU's own ports, force it not to (unofficial, so check results after it, as peer_perf "
    "does): "
    "in /etc/modprobe.d: options nvidia "
    "NVreg_RegistryDwords=\"ForceP2P=0x11;GrdmaPciTopoCheckOverride=1;EnableResizableBar=1\", then "
    "update-initramfs -u and reboot";
static const char collapse[] =
    "update BIOS and the switches' firmware (it mended one machine); otherwise leave PEER_ALGORITHM at auto, "
    "so that what was measured decides";

void doctor_check_rates(const struct doctor_input *in, struct doctor_report *report)
{
    const struct doctor_rates *rates = &in->rates;
    struct worst store = worst_pair(in, rates->store_gbs), load = worst_pair(in, rates->load_gbs);
    struct worst store_all = worst_of_all(in, rates->all_store_gbs),
                 load_all = worst_of_all(in, rates->all_load_gbs);
    int judged = store.judged + load.judged + store_all.judged + load_all.judged, before = report->n;
    if (!doctor_on_cuda(in)) {
        doctor_unchecked(report, "no GPU is in use");
        return;
    }
    report_pair(&store, "stores to", staged, report);
    report_pair(&load, "loads from", staged, report);
    /* If pairs are slow by themselves, all at once tells nothing new. */
    if (store.below == 0)
        report_all(&store_all, "stores", collapse, report);
    if (load.below == 0)
        report_all(&load_all, "loads", collapse, report);
    report_latency(in, report);
    if (report->n > before)
        return;
    if (judged > 0)
        doctor_fine(report, "%d rates, none below 25%% of what the links can carry", judged);
    else
        doctor_unchecked(report, "no rates were measured over links that are known");
}
