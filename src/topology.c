/* Who the ranks are and which of them share a machine. */
#include "internal.h"

#include <string.h>
#include <unistd.h>

#include "peercoll.h"

static void read_boot_id(char *to, size_t to_bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file != NULL) {
        if (fgets(to, (int)to_bytes, file) == NULL)
            to[0] = '\0';
        to[strcspn(to, "\n")] = '\0';
        fclose(file);
    }
}

void peer_identity_fill(struct peer_identity *id, const struct peer_config *config)
{
    int version = 0;
    memset(id, 0, sizeof *id);
    PEER_Get_version(&version);
    id->version = (uint32_t)version;
    id->config_hash = peer_config_hash(config);
    if (gethostname(id->host, sizeof id->host - 1) != 0)
        id->host[0] = '\0';
    read_boot_id(id->boot_id, sizeof id->boot_id);
    if (id->boot_id[0] == '\0') /* no /proc: the host's name has to do */
        snprintf(id->boot_id, sizeof id->boot_id, "%.39s", id->host);
    memcpy(id->node, config->node, sizeof id->node);
}

/* Names of hosts repeat and containers of one machine differ in them; the boot id does neither. */
static bool same_node(const struct peer_identity *a, const struct peer_identity *b)
{
    return strcmp(a->boot_id, b->boot_id) == 0 && strcmp(a->node, b->node) == 0;
}

int peer_topology_nodes(const struct peer_identity *ids, int size)
{
    int nodes = 0;
    for (int r = 0; r < size; r++) {
        bool seen = false;
        for (int earlier = 0; earlier < r && !seen; earlier++)
            seen = same_node(&ids[earlier], &ids[r]);
        nodes += !seen;
    }
    return nodes;
}

int peer_topology_sharers(const struct peer_identity *ids, int size)
{
    int most = 1;
    for (int r = 0; r < size; r++) {
        int sharers = 0;
        for (int other = 0; other < size; other++)
            sharers += strcmp(ids[other].gpu_uuid, ids[r].gpu_uuid) == 0;
        if (ids[r].gpu_uuid[0] != '\0' && sharers > most)
            most = sharers;
    }
    return most;
}
