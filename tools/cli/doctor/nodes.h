/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h: the NUMA nodes, as the kernel lists them. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_DOCTOR_NODES_H
#define EMBTIER_TOOLS_CLI_DOCTOR_NODES_H

#include "base/host/host.h"

struct node {
    uint32_t number;
    struct host_line processors; /* "0-7,16-23"; "" if it has none */
    uint64_t bytes;
    uint64_t available_bytes; /* UINT64_MAX: the kernel does not tell */
};

struct nodes {
    struct node *nodes;
    size_t count;
    bool is_damaged; /* a node was left out, as its files make no sense */
};

/* No nodes: a kernel without NUMA, or /sys cannot be read. */
void nodes_read(const struct host *host, struct nodes *ret_nodes);
void nodes_clear(struct nodes *nodes);
/* NULL: there is none. */
const struct node *nodes_find(const struct nodes *nodes, int number);

/* Memory that is farther away than DRAM: CXL, or persistent memory as system memory. */
static inline bool node_is_far(const struct node *node)
{
    return node->processors.text[0] == '\0' && node->bytes > 0;
}

#endif
