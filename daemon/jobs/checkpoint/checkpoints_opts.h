/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints_opts.h: settings and parts of the server that checkpoints_make.c and
 * checkpoint_making.c work with. Borrowed for the checkpoints' life. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_OPTS_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINTS_OPTS_H

#include <stdint.h>

struct accounts;
struct lane;
struct store;
struct tables;
struct transfer_memory;

struct checkpoints_opts {
    struct store *store;
    struct tables *tables;
    struct transfer_memory *memory; /* of scans and restores */
    struct accounts *accounts;      /* in which users' checkpoints count */
    struct lane *const *lanes;
    uint32_t lane_count;
    uint32_t core_count;  /* that the server may run on */
    uint64_t interval_ns; /* at first: between the server's own checkpoints; 0: it makes none */
    uint32_t keep;        /* at first: how many of its own the server keeps */
};

#endif
