/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a client that writes what it likes into its region and its submissions
 * (submission_input.h), on real lanes with a real store in memory. Each request is answered. The
 * rows of a table that no request can name stay as they are, and so does the memory of another
 * client and that behind the region.
 *
 * Lanes, tables and their rows live as long as the process, so an input's outcome may depend on
 * those before it. The client is a new one for each input. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "base/log/log.h"
#include "proto/op_fields.h"
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/submission_input.h"

#define KEPT_ROWS    16
#define KEPT_DIM     4
#define KEPT_VALUE   2
#define CANARY       0xa5
#define CANARY_BYTES (SUBMISSION_REGION_BYTES / FIXTURE_SLOTS / 2)
#define PAGE_BYTES   4096

/* Enough for all rows of the small tables. */
static const struct lanes_shape shape = { .lane_count = 2,
                                          .slabs_per_lane = 4,
                                          .map_slabs = 1,
                                          .readers = 1,
                                          .write_queue_bytes = MIB,
                                          .array_slabs = 4 };

static struct lanes_fixture lanes;
static uint64_t handles[SUBMISSION_TABLE_COUNT + 1]; /* by small number */
static uint64_t kept;                                /* handle of the table that must not change */
static struct client good;

/* The requests of this client need only the first half of a slot. */
static uint8_t *canary_at(uint32_t slot)
{
    return (uint8_t *)client_segment(&good, slot) + CANARY_BYTES;
}

/* ---- Lanes and tables ---- */

static uint64_t make_table(const char *name, uint64_t rows, uint32_t dim, enum embtier_dtype dtype,
                           enum embtier_optimizer optimizer, enum embtier_home home,
                           enum embtier_durability durability)
{
    struct table_spec spec = { .rows = rows,
                               .dim = dim,
                               .dtype = dtype,
                               .optimizer = optimizer,
                               .home = home,
                               .durability = durability,
                               .init = EMBTIER_INIT_CONSTANT,
                               .init_params = { 0.5, 0 },
                               .eps = EMBTIER_DEFAULT,
                               .alpha = EMBTIER_DEFAULT,
                               .beta1 = EMBTIER_DEFAULT,
                               .beta2 = EMBTIER_DEFAULT,
                               .momentum = EMBTIER_DEFAULT };
    struct table_info info;
    struct err_msg msg = { { 0 } };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    table_spec_fill_defaults(&spec);
    must(tables_create(lanes.tables, &spec, FIXTURE_UID, true, NULL, &info, &msg), &msg);
    return info.handle;
}

static void make_tables(void)
{
    uint32_t count = 0;

#define X(name, rows, dim, dtype, optimizer, home, durability)                                     \
    handles[++count] =                                                                             \
        make_table(name, rows, dim, EMBTIER_DTYPE_##dtype, EMBTIER_OPTIMIZER_##optimizer,          \
                   EMBTIER_HOME_##home, EMBTIER_DURABILITY_##durability);
    SUBMISSION_TABLES(X)
#undef X
    kept = fixture_table(&lanes, "kept", KEPT_ROWS, KEPT_DIM, EMBTIER_OPTIMIZER_NONE);
    for (uint64_t id = 0; id < KEPT_ROWS; id++)
        FUZZ_CHECK(client_set_one(&good, kept, id, KEPT_DIM, KEPT_VALUE) == EMBTIER_OK);
}

static void stop_lanes(void)
{
    struct store_fixture *const f = lanes.f;

    client_detach(&good);
    lanes_stop(&lanes);
    fixture_free(f);
}

static void start_lanes(void)
{
    struct store_fixture *const f = fixture_at(fuzz_folder());

    FUZZ_CHECK(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0);         // NOLINT(concurrency-mt-unsafe)
    FUZZ_CHECK(setenv("EMBTIER_TEST_CHANNEL", "buffer", 1) == 0); // NOLINT(concurrency-mt-unsafe)
    log_set_level(LOG_LEVEL_ERROR);
    for (uint32_t i = 0; i < ARRAY_LEN(f->made); i++)
        fixture_make_directory(f, i);
    lanes_start(&lanes, f, &shape);
    good = client_attach(&lanes, SUBMISSION_REGION_BYTES / FIXTURE_SLOTS);
    make_tables();
    for (uint32_t slot = 0; slot < FIXTURE_SLOTS; slot++)
        memset(canary_at(slot), CANARY, CANARY_BYTES);
    FUZZ_CHECK(atexit(stop_lanes) == 0);
}

/* ---- One input ---- */

struct hostile {
    struct client *client;
    struct op_submission submissions[SUBMISSION_REQUESTS_MAX];
    uint64_t tickets[SUBMISSION_REQUESTS_MAX + 1]; /* of the answers so far */
    uint32_t count;
};

static uint32_t segment_bytes(const struct op_submission *submission)
{
    switch (submission->op) {
    case OP_GET:
    case OP_SET:
        return sizeof(struct op_segment);
    case OP_POOL:
        return sizeof(struct op_pool_segment);
    default:
        return sizeof(struct op_push_segment);
    }
}

/* Puts handles in place of small numbers. Every segment begins with its table. */
static void name_tables(const struct client *client, const struct op_submission *submission)
{
    const struct channel *const channel = &client->session->channel;
    const uint32_t bytes = segment_bytes(submission);
    uint64_t at = submission->segments_offset;

    for (uint32_t i = 0; i < MIN(submission->segment_count, 256u); i++, at += bytes) {
        uint64_t table;

        if (!channel_holds(channel, at, sizeof(table), sizeof(table)))
            return;
        memcpy(&table, channel->region + at, sizeof(table));
        if (table > 0 && table <= SUBMISSION_TABLE_COUNT)
            memcpy(channel->region + at, &handles[table], sizeof(table));
    }
}

/* A segment's table lies at a multiple of OP_ID_ALIGN. */
static void hide_kept_table(const struct client *client)
{
    uint64_t *const words = (uint64_t *)(void *)client_region(client);

    for (size_t i = 0; i < client->session->channel.region_bytes / sizeof(*words); i++)
        if (words[i] == kept)
            words[i] = 0;
}

static uint64_t ticket_of(const struct hostile *hostile, uint64_t number)
{
    return number > 0 && number <= SUBMISSION_REQUESTS_MAX ? hostile->tickets[number] : number;
}

static void publish(struct hostile *hostile, uint32_t index)
{
    struct op_submission submission = hostile->submissions[index];

    submission.ticket = ticket_of(hostile, submission.ticket);
    submission.prefetch = ticket_of(hostile, submission.prefetch);
    *client_submission(hostile->client, index) = submission;
    client_publish(hostile->client);
}

/* An answer is an error or a result, and an error names a segment that there is. */
static void await(struct hostile *hostile, uint32_t index)
{
    const struct op_completion *const done = client_wait(hostile->client, index);

    FUZZ_CHECK(strcmp(err_name((enum embtier_err)done->err), "UNKNOWN") != 0);
    FUZZ_CHECK(done->segment == UINT32_MAX ||
               done->segment < hostile->submissions[index].segment_count);
    FUZZ_CHECK(done->err == EMBTIER_OK || done->ticket == 0);
    hostile->tickets[index + 1] = done->ticket;
}

static void run_requests(struct hostile *hostile, bool at_once)
{
    for (uint32_t i = 0; i < hostile->count; i++) {
        publish(hostile, i);
        if (!at_once)
            await(hostile, i);
    }
    for (uint32_t i = 0; at_once && i < hostile->count; i++)
        await(hostile, i);
}

/* Looks at one row each time, as each look waits for a lane. */
static void check_kept(void)
{
    static uint64_t id;
    float value = 0;

    id = (id + 1) % KEPT_ROWS;
    FUZZ_CHECK(client_get_one(&good, kept, id, &value) == EMBTIER_OK && value == KEPT_VALUE);
    for (uint32_t slot = 0; slot < FIXTURE_SLOTS; slot++)
        for (uint32_t i = 0; i < CANARY_BYTES; i++)
            FUZZ_CHECK(canary_at(slot)[i] == CANARY);
}

/* The region's last page goes on behind its end, and its first bytes are not the client's. */
static void check_outside(const struct client *client)
{
    const struct channel *const channel = &client->session->channel;

    for (uint64_t i = 0; i < channel->payload; i++)
        FUZZ_CHECK(channel->region[i] == 0);
    for (uint64_t i = channel->region_bytes; i < align_up(channel->region_bytes, PAGE_BYTES); i++)
        FUZZ_CHECK(channel->region[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    struct hostile hostile = { .count = 1 + fuzz_byte(&input) % SUBMISSION_REQUESTS_MAX };
    const uint8_t flags = fuzz_byte(&input);
    struct client client;

    if (!lanes.tables)
        start_lanes();
    client = client_attach(&lanes, SUBMISSION_REGION_BYTES / FIXTURE_SLOTS);
    hostile.client = &client;
    for (uint32_t i = 0; i < hostile.count; i++)
        fuzz_take(&input, &hostile.submissions[i], sizeof(hostile.submissions[i]));
    fuzz_take(&input, client_region(&client) + client.session->channel.payload,
              MIN(input.left, (size_t)SUBMISSION_REGION_BYTES));
    for (uint32_t i = 0; i < hostile.count; i++)
        name_tables(&client, &hostile.submissions[i]);
    hide_kept_table(&client);
    run_requests(&hostile, flags & SUBMISSION_AT_ONCE);
    check_outside(&client);
    client_detach(&client);
    check_kept();
    return 0;
}
