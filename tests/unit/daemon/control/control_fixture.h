/* SPDX-License-Identifier: Apache-2.0 */
/* control_fixture.h: the parts of a server on real lanes, and a control thread that serves clients
 * on a socket. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_DAEMON_CONTROL_CONTROL_FIXTURE_H
#define EMBTIER_TESTS_UNIT_DAEMON_CONTROL_CONTROL_FIXTURE_H

#include "tests/unit/engine/lane/lane_fixture.h"

#include <signal.h>
#include <sys/signalfd.h>

#include "daemon/access/access.h"
#include "daemon/control/control.h"
#include "daemon/endurance/endurance.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/knobs/knobs.h"
#include "daemon/jobs/plan/plan_record.h"
#include "daemon/jobs/profile/profiles.h"
#include "daemon/jobs/reload/reload.h"
#include "daemon/jobs/transfer/transfer_memory.h"

struct control_fixture {
    struct lanes_fixture x;
    struct transfer_memory *transfer_memory;
    struct checkpoints *checkpoints;
    struct endurance *endurance;
    struct groups *groups;
    struct profiles *profiles;
    struct access *access;
    struct reloads *reloads;
    struct plan_record *plan_record;
    struct server_parts parts;
    struct control *control;
    char path[220];
    int signals[2]; /* signals come out of the first, as of a signalfd */
    pthread_t thread;
};

static const struct lanes_shape control_shape = {
    .lane_count = 2, .slabs_per_lane = 6, .readers = 1, .write_queue_bytes = MIB
};

static inline void control_fill_config(struct control_fixture *c, struct config *config)
{
    snprintf(c->path, sizeof(c->path), "%s/s", c->x.f->root);
    config->socket.path = c->path;
    config->socket.mode = 0600;
    config->socket.max_arena_bytes = MIB;
    config->socket.max_total_arena_bytes = MIB;
    config->socket.max_sessions = 8;
    config->socket.max_batch_rows = 1000;
    config->cache.tier_count = FIXTURE_TIERS;
    for (uint32_t t = 0; t < FIXTURE_TIERS; t++)
        snprintf(config->cache.tiers[t].name, sizeof(config->cache.tiers[t].name), "%s",
                 fixture_tiers[t]);
}

static inline void control_make_jobs(struct control_fixture *c)
{
    struct lanes_fixture *const x = &c->x;
    struct err_msg msg = { { 0 } };

    must(transfer_memory_new(MIB, x->accounts, &c->transfer_memory, &msg), &msg);
    must(checkpoints_new(&(struct checkpoints_opts){ .store = x->f->store,
                                                     .tables = x->tables,
                                                     .memory = c->transfer_memory,
                                                     .accounts = x->accounts,
                                                     .lanes = x->lanes,
                                                     .lane_count = x->lane_count,
                                                     .core_count = 1,
                                                     .keep = 1 },
                         &c->checkpoints, &msg),
         &msg);
    must(profiles_new(&(struct profiles_opts){ .tables = x->tables,
                                               .memory = c->transfer_memory,
                                               .memory_bytes = MIB,
                                               .lanes = x->lanes,
                                               .lane_count = x->lane_count,
                                               .core_count = 1 },
                      &c->profiles, &msg),
         &msg);
    must(endurance_new(&(struct endurance_opts){ .config = &x->f->config,
                                                 .host = &host_files,
                                                 .directory = x->f->root },
                       clock_wall_ms(), &c->endurance, &msg),
         &msg);
    must(groups_new(HOUR_NS, MIB, x->accounts, &clock_monotonic, &c->groups, &msg), &msg);
}

/* Makes the parts, in the directories of @f. */
static inline void control_make_parts(struct control_fixture *c, struct store_fixture *f,
                                      const struct transport *transport)
{
    struct err_msg msg = { { 0 } };

    memset(c, 0, sizeof(*c));
    lanes_start(&c->x, f, &control_shape);
    control_fill_config(c, &f->config);
    control_make_jobs(c);
    must(access_new(NULL, NULL, &c->access, &msg), &msg);
    must(reloads_new(&c->reloads, &msg), &msg);
    must(plan_record_open(f->root, &c->plan_record, &msg), &msg);
    c->parts = (struct server_parts){ .config = &f->config,
                                      .transport = transport,
                                      .store = f->store,
                                      .tables = c->x.tables,
                                      .access = c->access,
                                      .reloads = c->reloads,
                                      .accounts = c->x.accounts,
                                      .memory = c->x.memory,
                                      .ticket_memory = c->x.ticket_memory,
                                      .groups = c->groups,
                                      .transfer_memory = c->transfer_memory,
                                      .checkpoints = c->checkpoints,
                                      .plan_record = c->plan_record,
                                      .profiles = c->profiles,
                                      .arrays = c->x.arrays,
                                      .lanes = c->x.lanes,
                                      .lane_count = c->x.lane_count };
    must(knobs_new(&(struct knobs_opts){ .config = c->parts.config,
                                         .store = c->parts.store,
                                         .accounts = c->parts.accounts,
                                         .checkpoints = c->parts.checkpoints,
                                         .endurance = c->endurance,
                                         .groups = c->parts.groups,
                                         .lanes = c->parts.lanes,
                                         .lane_count = c->parts.lane_count },
                   &c->parts.knobs, &msg),
         &msg);
}

static inline void control_free_parts(struct control_fixture *c)
{
    profiles_end(c->profiles);
    for (uint32_t i = 0; i < c->x.lane_count; i++)
        lane_stop(c->x.lanes[i]);
    control_free(c->control);
    groups_free(c->groups);
    profiles_free(c->profiles);
    checkpoints_free(c->checkpoints);
    transfer_memory_free(c->transfer_memory);
    lanes_stop(&c->x);
    knobs_free(c->parts.knobs);
    endurance_free(c->endurance);
    reloads_free(c->reloads);
    plan_record_free(c->plan_record);
    access_free(c->access);
}

static void *control_serve(void *context)
{
    struct control_fixture *const c = context;
    struct err_msg msg = { { 0 } };

    must(control_run(c->control, c->signals[0], &msg), &msg);
    return NULL;
}

/* Serves clients from here on, whose sessions are on @transport. */
static inline void control_start(struct control_fixture *c, struct store_fixture *f,
                                 const struct transport *transport)
{
    struct err_msg msg = { { 0 } };

    control_make_parts(c, f, transport);
    must(control_new(&c->parts, &c->control, &msg), &msg);
    assert_int_equal(pipe2(c->signals, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&c->thread, NULL, control_serve, c), 0);
}

static inline void control_stop(struct control_fixture *c)
{
    const struct signalfd_siginfo info = { .ssi_signo = SIGTERM };

    assert_int_equal(write(c->signals[1], &info, sizeof(info)), sizeof(info));
    pthread_join(c->thread, NULL);
    control_end_jobs(c->control);
    close(c->signals[0]);
    close(c->signals[1]);
    control_free_parts(c);
}

#endif
