/* SPDX-License-Identifier: Apache-2.0 */
/* server_parts.h: the parts of the server, for those that it hands them to. */
#ifndef EMBTIER_DAEMON_SERVER_PARTS_H
#define EMBTIER_DAEMON_SERVER_PARTS_H

#include <stdint.h>

#include "config/config.h"

struct accounts;
struct arena;
struct checkpoints;
struct groups;
struct lane;
struct request_memory;
struct ticket_memory;
struct store;
struct tables;
struct transfer_memory;

/* The control thread and the metrics see this of the server; borrowed for its life. */
struct server_parts {
    const struct config *config;
    struct store *store;
    struct tables *tables;
    struct accounts *accounts;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    struct groups *groups;
    struct transfer_memory *transfer_memory;
    struct checkpoints *checkpoints;
    struct arena *arenas[TIERS_MAX];
    struct lane **lanes;
    uint32_t lane_count;
    uint64_t started_ns;
};

#endif
