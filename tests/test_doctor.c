/* The doctor, on made-up machines: with nothing wrong it finds nothing, with one thing wrong that thing, and where
 * nothing can be read it says so. */
#include "machine.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "config.h"
#include "src/tools/doctor.h"

/* doctor_cases.c */
void test_doctor_cases(const char *root);

#ifdef HAVE_JANSSON
    #include <jansson.h>
#endif

static const char *root;
static struct doctor_facts ranks[2];
static struct doctor_report report;

static void clear_variables(void)
{
#define UNSET(name) unsetenv(#name);
    DOCTOR_VARIABLES(UNSET)
#undef UNSET
    setenv("HOME", "/root", 1);
}

static const struct doctor_item *item_of(const char *check)
{
    for (int i = 0; i < report.n; i++)
        if (strcmp(report.items[i].check, check) == 0)
            return &report.items[i];
    test_skip("no such check"); /* never: the caller has looked */
}

/* ---- Facts ------------------------------------------------------------------------------------------------- */

static void test_facts(void)
{
    const struct doctor_facts *facts = ranks;
    machine_gather(root, ranks, "0000:04:00.0");
    TEST_TEXT(facts->boot_id, MACHINE_BOOT_ID);
    TEST_TEXT(facts->pid_namespace, "pid:[4026531836]");
    TEST_TEXT(facts->ipc_namespace, "ipc:[4026531839]");
    TEST_TEXT(facts->module_version, MACHINE_MODULE);
    TEST_INT(facts->memlock, 8388608);
    TEST_INT(facts->ncpus, 4);
    TEST_INT(facts->cpus.word[0], 0xf);
    TEST_INT(facts->cpu_quota, DOCTOR_UNKNOWN);
    TEST_INT(facts->cpus_online, 8);
    TEST_INT(facts->numa_nodes, 2);
    TEST_INT(facts->gpus, 3);
    TEST_INT(facts->iommus, 1);
    TEST_INT(facts->iommu_passthrough, 0);
    TEST_INT(facts->ptrace_scope, 1);
    TEST_INT(facts->virtual_machine, 0);
    TEST_INT(facts->amd, 0);
    TEST_INT(facts->gpu_numa, 0);
    TEST_INT(facts->gpu_cpus.word[0], 0xf);
    TEST_TEXT(facts->iommu_type, "identity");
    TEST_INT(facts->bar1_bytes, INT64_C(256) << 30);
    TEST_INT(facts->nhops, 4);
    TEST_TEXT(facts->hop[0].pci, "0000:03:00.0");
    TEST_TEXT(facts->hop[3].pci, "0000:00:01.0");
    TEST_INT(facts->hop[0].rate, 32000);
    TEST_INT(facts->hop[1].width, 16);
    TEST_INT(facts->hop[1].acs, 0x13);
    TEST_TRUE(fabs(doctor_way_gbs(facts) - 63.0) < 0.1);
}

static void test_cpus(void)
{
    struct doctor_cpus cpus;
    doctor_cpus_parse("0-3,8,64-65\n", &cpus);
    TEST_INT(cpus.word[0], 0x10f);
    TEST_INT(cpus.word[1], 3);
    TEST_INT(doctor_cpus_count(&cpus), 7);
    doctor_cpus_parse("", &cpus);
    TEST_INT(doctor_cpus_count(&cpus), 0);
    doctor_cpus_parse("3-1,1020-99999999", &cpus);
    TEST_INT(doctor_cpus_count(&cpus), 4);
}

/* A list of capabilities that goes round in a circle, and one that leads out of what was read. */
static void test_broken_config(void)
{
    unsigned char config[4096] = {[0x100] = 1, [0x102] = 2, [0x103] = 0x10};
    machine_gather(root, ranks, "0000:04:00.0");
    machine_write_bytes(root, MACHINE_PORT_A "/config", config, sizeof config);
    machine_gather(root, ranks, "0000:04:00.0");
    TEST_INT(ranks[0].hop[1].acs, DOCTOR_NO_ACS);
    config[0x103] = 0x90;
    machine_write_bytes(root, MACHINE_PORT_A "/config", config, 512);
    machine_gather(root, ranks, "0000:04:00.0");
    TEST_INT(ranks[0].hop[1].acs, DOCTOR_NO_ACS);
    machine_write_acs(root, MACHINE_PORT_A, 0x13);
}

/* ---- Nothing wrong, nothing known -------------------------------------------------------------------------- */

static void test_healthy(void)
{
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_TEXT(machine_checks(&report, DOCTOR_NOTE), "");
    TEST_TEXT(machine_checks(&report, DOCTOR_UNCHECKED), "");
    TEST_INT(report.n, 19);
}

/* No file, no driver, no GPU. */
static void test_nothing(void)
{
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    for (int rank = 0; rank < 2; rank++) {
        doctor_facts_init(&ranks[rank]);
        doctor_gather_process("/no/such/folder", &ranks[rank]);
        doctor_gather_pci("/no/such/folder", &ranks[rank]);
    }
    strcpy(in.comm.device, "host");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_TEXT(machine_checks(&report, DOCTOR_FINE), "peer-path mpi-settings settings");
    TEST_CONTAINS(item_of("cpus")->seen, "/proc/self/status");
    TEST_CONTAINS(item_of("shm")->seen, "can't be asked");
    TEST_CONTAINS(item_of("driver")->seen, "can't be read");
}

/* GPUs that work, of which nothing can be read, as in containers. */
static void test_hidden(void)
{
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    for (int rank = 0; rank < 2; rank++) {
        doctor_facts_init(&ranks[rank]);
        machine_give_gpu(&ranks[rank], rank == 0 ? "aa" : "bb", "0000:77:00.0");
        ranks[rank].nvml_error = ranks[rank].persistence = ranks[rank].performance_state = DOCTOR_UNKNOWN;
        doctor_gather_pci("/no/such/folder", &ranks[rank]);
    }
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_TEXT(machine_checks(&report, DOCTOR_UNCHECKED),
              "peer-rates namespaces acs iommu bar1 pcie-link numa cpus shm "
              "nccl-settings persistence");
}

/* ---- Access control, staging ------------------------------------------------------------------------------- */

/* Access control counts in bridges between the GPUs, and only if it can be read. */
static void test_acs(void)
{
    struct doctor_input in;
    unsigned char begin[64] = {0};
    machine_write_acs(root, MACHINE_SWITCH, 0x1d); /* above both GPUs: data between them don't pass it */
    in = machine_gather(root, ranks, "0000:04:00.0");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_CONTAINS(item_of("acs")->seen, "none of 2 bridges");
    machine_write_acs(root, MACHINE_PORT_B, 0x1d);
    in = machine_gather(root, ranks, "0000:04:00.0");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "acs");
    TEST_CONTAINS(report.items[0].seen, "0000:02:01.0");
    TEST_CONTAINS(report.items[0].remedy, "setpci -s");
    machine_write_bytes(root, MACHINE_PORT_B "/config", begin,
                        sizeof begin); /* what is shown to others than root */
    in = machine_gather(root, ranks, "0000:04:00.0");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_TEXT(machine_checks(&report, DOCTOR_UNCHECKED), "acs");
    TEST_CONTAINS(item_of("acs")->seen, "1 of 2 bridges can't be read: run as root");
    machine_write_acs(root, MACHINE_SWITCH, 0x13);
    machine_write_acs(root, MACHINE_PORT_B, 0x13);
}

/* A third rank, on the first one's GPU, adds no bridge and no link. */
static void test_sharer(void)
{
    struct doctor_facts three[3];
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    memset(&in.rates, 0, sizeof in.rates);
    memcpy(three, ranks, sizeof ranks);
    three[2] = ranks[0];
    for (int rank = 0; rank < 3; rank++) {
        three[rank].mps = 1;
        three[rank].gpus = three[rank].gpus_visible = 2;
    }
    in.ranks = three;
    in.size = 3;
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "");
    TEST_CONTAINS(item_of("acs")->seen, "none of 2 bridges");
    TEST_CONTAINS(item_of("pcie-link")->seen, "3 links, at the least 63.0 GB/s");
    TEST_CONTAINS(item_of("gpu-per-rank")->seen, "ranks 0, 2 share GPU 0000:03:00.0; no GPU idles");
}

/* The staging that is advised fits, and one page more would not. */
static void test_staging(void)
{
    struct doctor_input in;
    unsigned long long kib = 0;
    const char *advice;
    in = machine_gather(root, ranks, "0000:04:00.0");
    ranks[0].shm_free = 9 << 20;
    in.config.device = PEER_DEVICE_HOST;
    strcpy(in.comm.device, "host");
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "shm");
    advice = strstr(report.items[0].remedy, "PEER_STAGING_BYTES=");
    TEST_TRUE(advice != NULL && sscanf(advice, "PEER_STAGING_BYTES=%lluK", &kib) == 1);
    in.config.staging_bytes = kib << 10;
    TEST_TRUE(peer_transport_shared_bytes(&in.config, 2) <= 9 << 20);
    in.config.staging_bytes += 4096;
    TEST_TRUE(peer_transport_shared_bytes(&in.config, 2) > 9 << 20);
}

/* ---- Measured rates ---------------------------------------------------------------------------------------- */

/* From rank 0 to 1 and from 1 to 0, of stores and loads, GB/s, of flags, us, and GB/s with all at once. */
struct figures {
    float store[2], load[2], flag[2];
    double all_store, all_load;
};

static void judge_rates(struct figures f)
{
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    for (int from = 0; from < 2; from++) {
        in.rates.store_gbs[from][1 - from] = f.store[from];
        in.rates.load_gbs[from][1 - from] = f.load[from];
        in.rates.flag_us[from][1 - from] = f.flag[from];
    }
    in.rates.all_store_gbs = f.all_store;
    in.rates.all_load_gbs = f.all_load;
    doctor_judge(&in, &report);
}

/* What the links can carry is 63.0 GB/s. */
static void test_rates(void)
{
    static const struct {
        struct figures figures;
        const char *seen, *remedy; /* of the finding; "": there is none */
        double slower;
    } all[] = {
        {{{52, 53}, {50, 51}, {0.65f, 1.1f}, 22, 24}, "", "", 0},
        {{{15.8f, 15.8f}, {0}, {0}, 0, 0}, "", "", 0},
        {{{0}, {15.7f, 52}, {0}, 0, 0}, "rank 0 loads from rank 1 at 15.7 GB/s", "iommu", 63.0 / 15.7},
        {{{52, 2.6f}, {50, 51}, {0.65f, 1.1f}, 2, 24},
         "rank 1 stores to rank 0 at 2.6 GB/s, 4% of the 63.0 that the links can carry; 1 of 2 pairs",
         "update-initramfs -u and reboot",
         63.0 / 2.6},
        {{{52, 53}, {50, 51}, {0.65f, 14}, 22, 24},
         "a flag from rank 1 to rank 0 takes 14.0 us",
         "topo -p2p",
         14},
        {{{52, 53}, {50, 51}, {0.65f, 5}, 22, 24}, "", "", 0},
        {{{52, 53}, {50, 51}, {0}, 6.5, 24},
         "each stores at 6.5 GB/s in all, 10%",
         "PEER_ALGORITHM",
         63.0 / 6.5},
        {{{52, 53}, {50, 51}, {0}, 22, 6.5},
         "each loads at 6.5 GB/s in all, 10%",
         "PEER_ALGORITHM",
         63.0 / 6.5},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        judge_rates(all[i].figures);
        TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), all[i].seen[0] != '\0' ? "peer-rates" : "");
        TEST_CONTAINS(item_of("peer-rates")->seen, all[i].seen);
        TEST_CONTAINS(item_of("peer-rates")->remedy, all[i].remedy);
        TEST_TRUE(fabs(item_of("peer-rates")->slower - all[i].slower) < 0.1);
    }
    judge_rates((struct figures){{0}, {0}, {0}, 0, 0});
    TEST_TEXT(machine_checks(&report, DOCTOR_UNCHECKED), "peer-rates");
}

/* ---- What is printed --------------------------------------------------------------------------------------- */

/* A machine with several faults: the costliest comes first. */
static struct doctor_input several_faults(void)
{
    struct doctor_input in = machine_gather(root, ranks, "0000:04:00.0");
    strcpy(in.comm.no_settings, "a \"quoted\" \\ text");
    ranks[0].persistence = 0;
    strcpy(ranks[1].pid_namespace, "pid:[1]");
    strcpy(in.comm.transport, "mpi");
    in.config.transport = PEER_TRANSPORT_MPI;
    return in;
}

static void test_text(void)
{
    struct doctor_input in;
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    in = several_faults();
    doctor_judge(&in, &report);
    TEST_TEXT(machine_checks(&report, DOCTOR_FINDING), "peer-path namespaces settings");
    doctor_print(to, &in, &report);
    fclose(to);
    TEST_CONTAINS(text, "2 ranks, device cuda, transport mpi\n\n1. The ranks don't reach");
    TEST_CONTAINS(text, "\n2. The ranks are in containers apart (namespaces)\n   seen ranks 0 and 1 ");
    TEST_CONTAINS(text, "\n   do   unset PEER_TRANSPORT");
    TEST_CONTAINS(text, "\nnote (persistence)\n");
    TEST_CONTAINS(text, "\nverdict: 3 findings, the costliest: The ranks don't reach each other's memory\n");
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        TEST_TRUE(strcspn(line, "\n") <= 100);
    free(text);
}

static void test_json(void)
{
#ifdef HAVE_JANSSON
    struct doctor_input in;
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    json_t *document, *finding;
    in = several_faults();
    doctor_judge(&in, &report);
    TEST_OK(doctor_print_json(to, &in, &report));
    fclose(to);
    document = json_loads(text, 0, NULL);
    TEST_TRUE(document != NULL);
    TEST_INT(json_integer_value(json_object_get(document, "ranks")), 2);
    TEST_TEXT(json_string_value(json_object_get(document, "transport")), "mpi");
    TEST_INT(json_array_size(json_object_get(document, "findings")), 3);
    TEST_INT(json_array_size(json_object_get(document, "notes")), 1);
    TEST_INT(json_array_size(json_object_get(document, "fine")), 15);
    TEST_INT(json_array_size(json_object_get(document, "not_checked")), 0);
    finding = json_array_get(json_object_get(document, "findings"), 2);
    TEST_TEXT(json_string_value(json_object_get(finding, "check")), "settings");
    TEST_TEXT(json_string_value(json_object_get(finding, "seen")), "a \"quoted\" \\ text");
    TEST_TEXT(json_string_value(json_object_get(finding, "do")), "peer_info --settings lists the settings");
    TEST_TRUE(json_is_real(json_object_get(finding, "times_slower")));
    json_decref(document);
    free(text);
#endif
}

/* "ranks 0-2, 5" */
static bool is_listed(const struct doctor_input *in, int rank, int mask)
{
    (void)in;
    return mask >> rank & 1;
}

static void test_ranks(void)
{
    struct doctor_input in = {.size = 8};
    static const struct {
        int mask;
        const char *text;
    } lists[] = {
        {1, "rank 0"}, {3, "ranks 0, 1"}, {0x27, "ranks 0-2, 5"}, {0xff, "ranks 0-7"}, {0xa0, "ranks 5, 7"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char text[64] = "";
        TEST_INT(doctor_append_ranks(text, sizeof text, &in, is_listed, lists[i].mask),
                 __builtin_popcount((unsigned)lists[i].mask));
        TEST_TEXT(text, lists[i].text);
    }
}

int main(void)
{
    clear_variables();
    root = machine_create();
    test_facts();
    test_cpus();
    test_broken_config();
    test_healthy();
    test_nothing();
    test_hidden();
    test_doctor_cases(root);
    test_acs();
    test_sharer();
    test_staging();
    test_rates();
    test_text();
    test_json();
    test_ranks();
    machine_remove(root);
    test_pass();
}
