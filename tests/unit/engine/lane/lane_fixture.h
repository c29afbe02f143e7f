/* SPDX-License-Identifier: Apache-2.0 */
/* lane_fixture.h: real lanes on a real store in this process, and clients that drive their
 * sessions' shared memory as libembtier does from another process. Each test program includes it
 * once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_LANE_LANE_FIXTURE_H
#define EMBTIER_TESTS_UNIT_ENGINE_LANE_LANE_FIXTURE_H

#include "tests/unit/engine/sessions/buffer_channel.h"
#include "tests/unit/store/store_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "daemon/access/rights.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/table_arrays.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/transport/shm/shm_channel.h"
#include "tiers/arena/arena.h"
#include "tiers/array/row_arrays.h"

#define LANES_MOST     4
#define HOUR_NS        (UINT64_C(3600) * 1000 * 1000 * 1000)
#define FIXTURE_SLOTS  16
#define FIXTURE_YIELDS 200

#define FIXTURE_UID 7

struct lanes_fixture {
    struct store_fixture *f;
    struct request_memory *memory;
    struct accounts *accounts;
    struct account *account; /* shared by all clients */
    struct ticket_memory *ticket_memory;
    struct arena *arenas[TIERS_MAX];
    uint32_t tier_count;
    struct table_arrays *arrays;
    struct lane *lanes[LANES_MOST];
    uint32_t lane_count;
    uint32_t slabs_per_lane;
    uint32_t map_slabs;
    struct row_routes *routes;
    struct tables *tables;
    struct inbox mail; /* the mail that the control thread would get */
    uint64_t last_session;
};

struct lanes_shape {
    uint32_t lane_count;
    uint32_t slabs_per_lane; /* in tier 0; tier 1 has as many */
    uint32_t map_slabs;      /* slabs of tier 0 for maps of rows */
    uint32_t readers;
    uint64_t write_queue_bytes;
    uint64_t spin_ns;
    uint32_t max_batch_rows; /* 0: 1 << 20 */
    uint64_t take_ids;       /* 0: as in the daemon */
    uint64_t ticket_ns;      /* 0: an hour */
    uint64_t array_slabs;    /* of each tier, for tables in arrays */
};

#define FIXTURE_TIERS 2

static const char *const fixture_tiers[FIXTURE_TIERS] = { "test", "other" };

/* With EMBTIER_TEST_HOME=array in the environment, tables with a fixed number of rows become arrays
 * if there is room. */
#define FIXTURE_ARRAY_SLABS 32
#define FIXTURE_ARRAY_BYTES (8 * ARENA_SLAB_BYTES) /* of one array */

static inline bool fixture_has_arrays(void)
{
    const char *const wanted = getenv("EMBTIER_TEST_HOME");

    return wanted && strcmp(wanted, "array") == 0;
}

static inline void fixture_mail(void *owner, struct message *message)
{
    struct lanes_fixture *x = owner;

    inbox_push(&x->mail, message);
}

static inline void lanes_make_tiers(struct lanes_fixture *x, const struct lanes_shape *shape)
{
    const uint64_t cache_slabs = shape->slabs_per_lane * shape->lane_count;
    struct array_tier tiers[FIXTURE_TIERS];
    struct err_msg msg = { { 0 } };

    x->tier_count = FIXTURE_TIERS;
    for (uint32_t t = 0; t < x->tier_count; t++) {
        const struct tier_spec spec = { .name = "test", .kind = TIER_KIND_DRAM };
        const uint64_t array_slabs =
            t == 0 && fixture_has_arrays() ? FIXTURE_ARRAY_SLABS : shape->array_slabs;

        must(arena_new(&spec, (cache_slabs + array_slabs) * ARENA_SLAB_BYTES, &x->arenas[t], &msg),
             &msg);
        tiers[t] = (struct array_tier){ .name = fixture_tiers[t],
                                        .base = (uint8_t *)arena_base(x->arenas[t]) +
                                                cache_slabs * ARENA_SLAB_BYTES,
                                        .slabs = array_slabs };
    }
    must(table_arrays_new(tiers, x->tier_count, &x->arrays, &msg), &msg);
}

static inline void lanes_start(struct lanes_fixture *x, struct store_fixture *f,
                               const struct lanes_shape *shape)
{
    struct err_msg msg = { { 0 } };

    memset(x, 0, sizeof(*x));
    x->f = f;
    fixture_open(f);
    must(request_memory_new(16 * MIB, &x->memory, &msg), &msg);
    must(accounts_new(&x->accounts, &msg), &msg);
    x->account = account_open(x->accounts, FIXTURE_UID);
    assert_non_null(x->account);
    must(ticket_memory_new(16 * MIB,
                           shape->lane_count * shape->slabs_per_lane * ARENA_SLAB_BYTES /
                               ROW_CACHE_PINNED_PART,
                           x->accounts, &x->ticket_memory, &msg),
         &msg);
    x->lane_count = shape->lane_count;
    x->slabs_per_lane = shape->slabs_per_lane;
    x->map_slabs = shape->map_slabs;
    lanes_make_tiers(x, shape);
    must(row_routes_new(store_bucket_map(f->store), x->lane_count, &x->routes, &msg), &msg);
    must(tables_new(f->store, x->routes, x->accounts, &x->tables, &msg), &msg);
    for (uint32_t i = 0; i < x->lane_count; i++) {
        struct lane_opts opts = { .index = i,
                                  .lane_count = x->lane_count,
                                  .lanes = x->lanes,
                                  .store = f->store,
                                  .tables = x->tables,
                                  .memory = x->memory,
                                  .ticket_memory = x->ticket_memory,
                                  .ticket_ns = shape->ticket_ns ? shape->ticket_ns : HOUR_NS,
                                  .routes = x->routes,
                                  .arenas = x->arenas,
                                  .arena_count = x->tier_count,
                                  .reader_count = shape->readers,
                                  .write_queue_bytes = shape->write_queue_bytes,
                                  .max_batch_rows =
                                      shape->max_batch_rows ? shape->max_batch_rows : 1 << 20,
                                  .take_ids = shape->take_ids ? shape->take_ids : LANE_TAKE_IDS,
                                  .spin_ns = shape->spin_ns,
                                  .clock = &clock_monotonic };

        for (uint32_t t = 0; t < x->tier_count; t++) {
            opts.arena_slab_count[t] = shape->slabs_per_lane;
            opts.arena_first_slab[t] = shape->slabs_per_lane * i;
        }
        opts.map_slabs = shape->map_slabs;
        must(lane_new(&opts, &x->lanes[i], &msg), &msg);
    }
    for (uint32_t i = 0; i < x->lane_count; i++)
        must(lane_start(x->lanes[i], &msg), &msg);
    must(tables_load(x->tables, &lane_tables_rows, x->lanes, x->lane_count, x->arrays,
                     &(struct tables_key){ { 0 } }, &msg),
         &msg);
}

static inline void lanes_write_back(struct lanes_fixture *x)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;

    for (uint32_t i = 0; i < x->lane_count; i++) {
        struct rows_cursor cursor = { 0 };

        while (!lane_write_back_step(x->lanes[i], &cursor)) {
            assert_true(now_ns() < until);
            usleep(200);
        }
    }
}

/* Does not write back: a caller that wants that calls lanes_write_back() first. */
static inline void lanes_stop(struct lanes_fixture *x)
{
    for (uint32_t i = 0; i < x->lane_count; i++)
        lane_stop(x->lanes[i]);
    for (uint32_t i = 0; i < x->lane_count; i++)
        lane_free(x->lanes[i]);
    tables_free(x->tables);
    row_routes_free(x->routes);
    table_arrays_free(x->arrays);
    for (uint32_t t = 0; t < x->tier_count; t++)
        arena_free(x->arenas[t]);
    request_memory_free(x->memory);
    ticket_memory_free(x->ticket_memory);
    account_close(x->account);
    accounts_free(x->accounts);
    fixture_close(x->f);
}

static inline uint64_t fixture_durable_table(struct lanes_fixture *x, const char *name,
                                             uint64_t rows, uint32_t dim,
                                             enum embtier_optimizer optimizer,
                                             enum embtier_durability durability)
{
    struct table_spec spec = { .rows = rows,
                               .dim = dim,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = optimizer,
                               .durability = durability,
                               .init = EMBTIER_INIT_CONSTANT,
                               .init_params = { 0.5, 0 },
                               .eps = EMBTIER_DEFAULT,
                               .alpha = EMBTIER_DEFAULT,
                               .beta1 = EMBTIER_DEFAULT,
                               .beta2 = EMBTIER_DEFAULT };
    struct table_info info;
    struct err_msg msg = { { 0 } };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    table_spec_fill_defaults(&spec);
    if (fixture_has_arrays() && rows != EMBTIER_UNBOUNDED &&
        row_array_memory_bytes(rows, table_spec_weight_bytes(&spec) +
                                         table_spec_state_bytes(&spec)) <= FIXTURE_ARRAY_BYTES)
        spec.home = EMBTIER_HOME_ARRAY;
    if (spec.home == EMBTIER_HOME_ARRAY) {
        const enum embtier_err err =
            tables_create(x->tables, &spec, FIXTURE_UID, true, NULL, &info, &msg);

        if (err == EMBTIER_OK)
            return info.handle;
        assert_int_equal(err, EMBTIER_NO_MEMORY);
    }
    spec.home = EMBTIER_HOME_CACHE;
    must(tables_create(x->tables, &spec, FIXTURE_UID, true, NULL, &info, &msg), &msg);
    return info.handle;
}

static inline uint64_t fixture_table(struct lanes_fixture *x, const char *name, uint64_t rows,
                                     uint32_t dim, enum embtier_optimizer optimizer)
{
    return fixture_durable_table(x, name, rows, dim, optimizer, EMBTIER_DURABILITY_REPLAY);
}

static inline struct lane_stats fixture_stats(struct lanes_fixture *x)
{
    struct lane_stats sum = { 0 };

    for (uint32_t i = 0; i < x->lane_count; i++) {
        struct lane_stats stats;

        lane_stats(x->lanes[i], &stats);
        sum.requests += stats.requests;
        sum.get_rows += stats.get_rows;
        sum.set_rows += stats.set_rows;
        sum.queued_get_rows += stats.queued_get_rows;
        sum.stored_get_rows += stats.stored_get_rows;
        sum.initial_get_rows += stats.initial_get_rows;
        sum.failed_rows += stats.failed_rows;
        sum.expired_tickets += stats.expired_tickets;
        sum.shared_reads += stats.shared_reads;
        sum.missed_rows += stats.missed_rows;
        sum.reading_rows += stats.reading_rows;
        for (uint32_t h = 0; h < HOME_KINDS; h++) {
            sum.homes[h].get_hits += stats.homes[h].get_hits;
            sum.homes[h].rows += stats.homes[h].rows;
        }
        sum.write_queue.rows += stats.write_queue.rows;
        sum.write_queue.rows_written += stats.write_queue.rows_written;
    }
    return sum;
}

/* ---- Clients ---- */

/* A client on a channel of transport/shm, as in a process of its own. With
 * EMBTIER_TEST_CHANNEL=buffer in the environment, its channel is a buffer in this process. */
struct client {
    struct lanes_fixture *x;
    struct session *session;
    struct shm_channel *shm;       /* NULL if the channel is a buffer */
    struct buffer_channel *buffer; /* set if shm is NULL */
    struct op_submission *submissions;
    struct op_completion *completions;
    uint32_t submitted;
    uint64_t slot_bytes; /* each slot's part of the region: one segment, its ids and rows */
};

static inline bool fixture_has_buffers(void)
{
    const char *const wanted = getenv("EMBTIER_TEST_CHANNEL");

    return wanted && strcmp(wanted, "buffer") == 0;
}

static inline struct client client_attach(struct lanes_fixture *x, uint64_t slot_bytes)
{
    struct client client = { .x = x, .slot_bytes = slot_bytes };
    struct err_msg msg = { { 0 } };

    if (fixture_has_buffers()) {
        client.buffer = buffer_channel_new(FIXTURE_SLOTS * slot_bytes, FIXTURE_SLOTS);
        client.submissions = client.buffer->submissions;
        client.completions = client.buffer->completions;
    } else {
        must(shm_channel_new(shm_arena_payload_offset(FIXTURE_SLOTS) + FIXTURE_SLOTS * slot_bytes,
                             FIXTURE_SLOTS, 1 << 20, &client.shm, &msg),
             &msg);
        client.submissions = shm_submissions(client.shm->arena);
        client.completions = client.shm->completions;
    }
    must(session_new(++x->last_session,
                     client.shm ? &client.shm->base.channel : &client.buffer->base.channel,
                     x->lane_count, &client.session, &msg),
         &msg);
    client.session->send = fixture_mail;
    client.session->owner = x;
    client.session->account = client.session->ticket_share.account = x->account;
    client.session->rights = rights_everything();
    lane_attach(x->lanes[client.session->home], client.session);
    return client;
}

/* The lane no longer has the session. */
static inline void client_free(struct client *client)
{
    session_free(client->session);
    if (client->shm)
        shm_channel_free(client->shm);
    else
        buffer_channel_free(client->buffer);
}

static inline uint8_t *client_region(const struct client *client)
{
    return client->session->channel.region;
}

static inline struct op_submission *client_submission(const struct client *client, uint32_t number)
{
    return &client->submissions[number % FIXTURE_SLOTS];
}

static inline void client_publish_tail(const struct client *client, uint32_t tail)
{
    if (client->shm)
        shm_publish_tail(client->shm->arena, tail);
    else
        atomic_store(&client->buffer->tail, tail);
}

/* Tells the server whether threads of the client sleep and need waking. Only shared memory has this
 * flag. */
static inline void client_wait_flag(const struct client *client, uint32_t waiting)
{
    if (client->shm)
        shm_client_waits(client->shm->arena, waiting);
}

/* True while no lane polls the tail. */
static inline bool client_must_ring(const struct client *client)
{
    return client->shm ? shm_lane_is_asleep(client->shm->control)
                       : atomic_load(&client->buffer->must_ring);
}

/* The descriptor that a client writes to if it must ring. */
static inline int client_doorbell(const struct client *client)
{
    return client->shm ? client->shm->doorbell_fd : client->buffer->doorbell_fd;
}

/* Pauses between two looks at another thread's work. @looks is 0 before the first. Long waits yield
 * the core, because several tests run at once. */
static inline void fixture_pause(unsigned *looks)
{
    if ((*looks)++ < FIXTURE_YIELDS)
        sched_yield();
    else
        usleep(50);
}

/* Waits until @wanted arrives in the mail. */
static inline void fixture_await_mail(struct lanes_fixture *x, const struct message *wanted)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    unsigned looks = 0;

    for (;;) {
        bool found = false;

        for (struct message *m = inbox_take_all(&x->mail); m; m = m->next)
            found |= m == wanted;
        if (found)
            return;
        if (now_ns() > until)
            fail_msg("no mail");
        fixture_pause(&looks);
    }
}

static inline void client_detach(struct client *client)
{
    struct session *const session = client->session;

    lane_detach(client->x->lanes[session->home], session);
    fixture_await_mail(client->x, &session->gone_message);
    groups_forget(session);
    client_free(client);
}

static inline struct op_segment *client_segment(const struct client *client, uint32_t number)
{
    return (struct op_segment *)(client_region(client) + client->session->channel.payload +
                                 number % FIXTURE_SLOTS * client->slot_bytes);
}

static inline uint64_t *client_ids(const struct client *client, uint32_t number)
{
    return (uint64_t *)(client_segment(client, number) + 1);
}

static inline uint8_t *client_rows(const struct client *client, uint32_t number, uint32_t count)
{
    return (uint8_t *)(client_ids(client, number) + count);
}

static inline uint64_t client_offset(const struct client *client, const void *place)
{
    return (uint64_t)((const uint8_t *)place - client_region(client));
}

static inline void client_publish(struct client *client)
{
    const uint64_t one = 1;

    client->submitted++;
    client_publish_tail(client, client->submitted);
    if (client_must_ring(client))
        assert_int_equal(write(client_doorbell(client), &one, sizeof(one)), sizeof(one));
}

/* Fills in the submission. The ids, and a SET's rows, already lie at client_ids() and client_rows()
 * of request @number. */
static inline void client_fill(struct client *client, uint32_t number, enum op_number op,
                               uint32_t flags, uint64_t table, uint32_t count)
{
    struct op_segment *const segment = client_segment(client, number);

    *segment = (struct op_segment){ .table = table,
                                    .ids_offset = client_offset(client, client_ids(client, number)),
                                    .rows_offset =
                                        client_offset(client, client_rows(client, number, count)),
                                    .id_count = count };
    *client_submission(client, number) =
        (struct op_submission){ .op = op,
                                .flags = flags,
                                .segment_count = 1,
                                .segments_offset = client_offset(client, segment) };
}

static inline uint32_t client_submit_flags(struct client *client, enum op_number op, uint32_t flags,
                                           uint64_t table, uint32_t count)
{
    const uint32_t number = client->submitted;

    client_fill(client, number, op, flags, table, count);
    client_publish(client);
    return number;
}

static inline uint32_t client_submit(struct client *client, enum op_number op, uint64_t table,
                                     uint32_t count)
{
    return client_submit_flags(client, op, 0, table, count);
}

static inline bool client_is_done(const struct client *client, uint32_t number)
{
    return shm_read_sequence(&client->completions[number % FIXTURE_SLOTS]) == number + 1;
}

static inline const struct op_completion *client_wait(const struct client *client, uint32_t number)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    unsigned looks = 0;

    while (!client_is_done(client, number)) {
        if (now_ns() > until)
            fail_msg("request %u of session %llu is not answered", number,
                     (unsigned long long)client->session->id);
        fixture_pause(&looks);
    }
    return &client->completions[number % FIXTURE_SLOTS];
}

/* Sets one row and waits for the answer: every weight is @value. */
static inline enum embtier_err client_set_one(struct client *client, uint64_t table, uint64_t id,
                                              uint32_t dim, float value)
{
    float *const row = (float *)client_rows(client, client->submitted, 1);

    *client_ids(client, client->submitted) = id;
    for (uint32_t i = 0; i < dim; i++)
        row[i] = value;
    return (enum embtier_err)client_wait(client, client_submit(client, OP_SET, table, 1))->err;
}

static inline enum embtier_err client_get_one(struct client *client, uint64_t table, uint64_t id,
                                              float *ret_value)
{
    const uint32_t number = client->submitted;
    const struct op_completion *done;

    *client_ids(client, number) = id;
    done = client_wait(client, client_submit(client, OP_GET, table, 1));
    *ret_value = *(float *)client_rows(client, number, 1);
    return (enum embtier_err)done->err;
}

/* ---- Another process, as a real client has ---- */

/* Calls @run, which does not return, in a new process. The child dies with this process, even if
 * this one crashes. */
static inline pid_t other_process(void (*run)(void *), void *context)
{
    const pid_t child = _Fork(); /* fork() takes all of memkind's locks, more than TSan can track */

    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(context);
        _exit(1);
    }
    return child;
}

static inline void other_process_end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#endif
