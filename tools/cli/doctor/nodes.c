/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/doctor/nodes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/node_memory.h"

#define NODES           "/sys/devices/system/node"
#define NODE_NUMBER_MAX 65535

static uint64_t available_bytes(const struct host *host, uint32_t node)
{
    FILE *const meminfo = host_open(host, NODES "/node%u/meminfo", node);
    FILE *const zoneinfo = host_open(host, "/proc/zoneinfo");
    const long page_bytes = sysconf(_SC_PAGESIZE);
    const uint64_t bytes =
        node_memory_available_bytes(meminfo, zoneinfo, node, (uint64_t)MAX(page_bytes, 0));

    if (meminfo)
        fclose(meminfo);
    if (zoneinfo)
        fclose(zoneinfo);
    return bytes;
}

/* A list of numbers and ranges. That of a node without processors is an empty line. */
static bool read_processors(const struct host *host, uint32_t node, struct host_line *ret_list)
{
    FILE *const file = host_open(host, NODES "/node%u/cpulist", node);
    bool is_list;

    if (!file)
        return false;
    is_list = fgets(ret_list->text, sizeof(ret_list->text), file) != NULL;
    fclose(file);
    if (!is_list)
        return false;
    ret_list->text[strcspn(ret_list->text, "\n")] = '\0';
    return strspn(ret_list->text, "0123456789,-") == strlen(ret_list->text);
}

static bool read_node(const struct host *host, const char *name, struct node *ret_node)
{
    char key[64];
    uint64_t number;
    uint64_t kib;

    if (!host_parse_number(name + strlen("node"), &number) || number > NODE_NUMBER_MAX)
        return false;
    *ret_node = (struct node){ .number = (uint32_t)number };
    snprintf(key, sizeof(key), "Node %u MemTotal", ret_node->number);
    if (!read_processors(host, ret_node->number, &ret_node->processors) ||
        !host_field(host, key, &kib, NODES "/%s/meminfo", name) || kib > UINT64_MAX / KIB)
        return false;
    ret_node->bytes = kib * KIB;
    ret_node->available_bytes = available_bytes(host, ret_node->number);
    return true;
}

void nodes_read(const struct host *host, struct nodes *ret_nodes)
{
    struct host_names names;

    *ret_nodes = (struct nodes){ 0 };
    host_names_read(host, "node", &names, NODES);
    ret_nodes->nodes = calloc(names.count + 1, sizeof(*ret_nodes->nodes));
    for (size_t i = 0; ret_nodes->nodes && i < names.count; i++) {
        if (read_node(host, names.names[i], &ret_nodes->nodes[ret_nodes->count]))
            ret_nodes->count++;
        else
            ret_nodes->is_damaged = true;
    }
    host_names_clear(&names);
}

void nodes_clear(struct nodes *nodes)
{
    free(nodes->nodes);
    *nodes = (struct nodes){ 0 };
}

const struct node *nodes_find(const struct nodes *nodes, int number)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (number >= 0 && nodes->nodes[i].number == (uint32_t)number)
            return &nodes->nodes[i];
    return NULL;
}
