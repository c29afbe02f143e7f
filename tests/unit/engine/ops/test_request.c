/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every request that a client can write gets a clear answer, that a refused one has no
 * effect, and that other clients do not notice. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "daemon/engine/rows/request.h"

#define DIM        8
#define SLOT_BYTES (64 * KIB)
#define ROWS       1000
/* Small enough for request memory, so that requests meet this limit and not that one. */
#define MAX_BATCH_ROWS  150000
#define MANY            140000
#define MANY_SLOT_BYTES (64 + MANY * (8 + 4 * DIM))

static const struct lanes_shape two_lanes = {
    .lane_count = 2,
    .slabs_per_lane = 2,
    .readers = 1,
    .write_queue_bytes = 256 * KIB,
    .max_batch_rows = MAX_BATCH_ROWS,
    .take_ids = 3, /* nearly every request takes several turns */
};

struct hostile {
    struct lanes_fixture x;
    struct client bad;
    struct client good;
    uint64_t table;
    uint32_t number; /* of the request being made */
    struct op_submission *submission;
    struct op_segment *segment;
};

static void hostile_start(struct hostile *h, struct store_fixture *f)
{
    memset(h, 0, sizeof(*h));
    lanes_start(&h->x, f, &two_lanes);
    h->table = fixture_table(&h->x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    h->bad = client_attach(&h->x, SLOT_BYTES);
    h->good = client_attach(&h->x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_set_one(&h->good, h->table, id, DIM, 7), EMBTIER_OK);
}

/* Checks that every row is unchanged and that another client is served. */
static void hostile_stop(struct hostile *h)
{
    for (uint64_t id = 0; id < ROWS; id++) {
        float value = 0;

        assert_int_equal(client_get_one(&h->good, h->table, id, &value), EMBTIER_OK);
        assert_true(value == 7);
    }
    client_detach(&h->bad);
    client_detach(&h->good);
    lanes_stop(&h->x);
}

/* Makes a valid SET of @count rows, which the caller then spoils. */
static void make(struct hostile *h, uint32_t count)
{
    const uint64_t arena_bytes = h->bad.session->channel.region_bytes;

    h->number = h->bad.submitted;
    h->segment = client_segment(&h->bad, h->number);
    h->submission = client_submission(&h->bad, h->number);
    assert_true(count * (8 + 4 * DIM) < arena_bytes);
    for (uint32_t i = 0; i < count; i++)
        client_ids(&h->bad, h->number)[i] = i;
    memset(client_rows(&h->bad, h->number, count), 1, (size_t)count * DIM * 4);
    *h->segment = (struct op_segment){
        .table = h->table,
        .ids_offset = client_offset(&h->bad, client_ids(&h->bad, h->number)),
        .rows_offset = client_offset(&h->bad, client_rows(&h->bad, h->number, count)),
        .id_count = count,
    };
    *h->submission = (struct op_submission){
        .op = OP_SET,
        .segment_count = 1,
        .segments_offset = client_offset(&h->bad, h->segment),
    };
}

static void expect(struct hostile *h, enum embtier_err err, uint32_t segment)
{
    const struct op_completion *done;

    client_publish(&h->bad);
    done = client_wait(&h->bad, h->number);
    if (done->err != (uint32_t)err || done->segment != segment)
        fail_msg("%s in segment %u, expected %s in %u", err_name((enum embtier_err)done->err),
                 done->segment, err_name(err), segment);
}

static void test_spoiled_submissions_are_refused(void **state)
{
    struct hostile h;

    hostile_start(&h, *state);
    for (uint32_t i = 0; i < 2; i++) {
        make(&h, 10);
        h.submission->op = i ? UINT32_MAX : 0;
        expect(&h, EMBTIER_INVALID, UINT32_MAX);
        /* The refusal names the operation, not a field that no operation uses. */
        assert_int_equal(client_wait(&h.bad, h.number)->limit, OP_LAST);
    }
    make(&h, 10);
    h.submission->flags = OP_FLAG_STATE << 1;
    expect(&h, EMBTIER_UNSUPPORTED, UINT32_MAX);
    make(&h, 10);
    h.submission->flags = UINT32_MAX;
    expect(&h, EMBTIER_UNSUPPORTED, UINT32_MAX);
    make(&h, 10);
    h.submission->segment_count = UINT32_MAX;
    expect(&h, EMBTIER_TOO_LARGE, UINT32_MAX);
    make(&h, 10);
    h.submission->segment_count = OP_SEGMENTS_MAX; /* more than fit in the arena */
    expect(&h, EMBTIER_OFFSET_RANGE, UINT32_MAX);
    hostile_stop(&h);
}

/* Wrong offsets of segments, ids and rows: before the payload, behind the end, past the end of 64
 * bits, misaligned. */
static void test_offsets_outside_the_arena_are_refused(void **state)
{
    struct hostile h;

    hostile_start(&h, *state);
    const uint64_t bad[] = {
        0,
        h.bad.session->channel.payload / 2, /* transport/shm: the submissions */
        h.bad.session->channel.payload - 8,
        h.bad.session->channel.region_bytes - 8, /* only the first would lie inside */
        h.bad.session->channel.region_bytes,
        h.bad.session->channel.region_bytes + 8,
        UINT64_MAX - 7,
        UINT64_MAX - 79, /* ten ids would end at 0 */
        h.bad.session->channel.payload + 1,
    };
    for (uint32_t i = 0; i < ARRAY_LEN(bad); i++) {
        make(&h, 10);
        h.submission->segments_offset = bad[i];
        expect(&h, EMBTIER_OFFSET_RANGE, UINT32_MAX);
        make(&h, 10);
        h.segment->ids_offset = bad[i];
        expect(&h, EMBTIER_OFFSET_RANGE, 0);
        make(&h, 10);
        h.segment->rows_offset = bad[i];
        expect(&h, EMBTIER_OFFSET_RANGE, 0);
    }
    hostile_stop(&h);
}

/* The weights alone would lie in the arena. */
static void test_whole_rows_that_end_outside_the_arena_are_refused(void **state)
{
    const uint32_t row_bytes = 3 * DIM * 4;
    struct hostile h;

    hostile_start(&h, *state);
    h.table = fixture_table(&h.x, "state", ROWS, DIM, EMBTIER_OPTIMIZER_ADAM);
    for (uint32_t over = 0; over <= 10 * DIM * 8; over += 2) {
        make(&h, 10);
        h.submission->op = over % 4 ? OP_GET : OP_SET;
        h.submission->flags = OP_FLAG_STATE;
        h.segment->rows_offset = h.bad.session->channel.region_bytes - 10 * row_bytes + over;
        if (over == 0)
            expect(&h, EMBTIER_OK, UINT32_MAX);
        else
            expect(&h, EMBTIER_OFFSET_RANGE, 0);
    }
    h.table = fixture_table(&h.x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    hostile_stop(&h);
}

static void test_counts_that_overflow_are_refused(void **state)
{
    struct hostile h;
    const uint32_t segments = 2000;

    hostile_start(&h, *state);
    make(&h, 10);
    h.segment->id_count = UINT32_MAX;
    expect(&h, EMBTIER_TOO_LARGE, UINT32_MAX);
    make(&h, 10);
    h.segment->id_count = MAX_BATCH_ROWS + 1;
    expect(&h, EMBTIER_TOO_LARGE, UINT32_MAX);
    make(&h, 10);
    h.segment->id_count = MAX_BATCH_ROWS; /* allowed, but neither ids nor rows fit in the arena */
    expect(&h, EMBTIER_OFFSET_RANGE, 0);
    make(&h, 10); /* the sum of the counts overflows 32 bits */
    for (uint32_t i = 0; i < segments; i++)
        h.segment[i] = (struct op_segment){ .table = h.table, .id_count = UINT32_MAX - i % 2 };
    h.submission->segment_count = segments;
    expect(&h, EMBTIER_TOO_LARGE, UINT32_MAX);
    hostile_stop(&h);
}

/* The second segment is wrong, so the first must have no effect. */
static void test_one_wrong_segment_refuses_the_whole_request(void **state)
{
    struct hostile h;
    const struct {
        struct op_segment segment;
        enum embtier_err err;
    } wrong[] = {
        { { .table = 0, .id_count = 1 }, EMBTIER_NO_TABLE },
        { { .table = UINT64_MAX, .id_count = 1 }, EMBTIER_NO_TABLE },
        { { .table = UINT64_C(77) << 32, .id_count = 1 }, EMBTIER_NO_TABLE },
        { { .table = UINT32_MAX, .id_count = 0 }, EMBTIER_NO_TABLE },
        { { .id_count = 1, .flags = 1 }, EMBTIER_UNSUPPORTED },
        { { .id_count = 1 }, EMBTIER_ID_RANGE },
    };

    hostile_start(&h, *state);
    for (uint32_t i = 0; i < ARRAY_LEN(wrong); i++) {
        uint8_t *behind;

        make(&h, 10);
        behind = (uint8_t *)h.segment + 8192;
        ((struct op_segment *)behind)[0] = *h.segment;
        ((struct op_segment *)behind)[1] = wrong[i].segment;
        if (!wrong[i].segment.table)
            ((struct op_segment *)behind)[1].table = i == 0 ? 0 : h.table;
        ((struct op_segment *)behind)[1].ids_offset = client_offset(&h.bad, behind + 4096);
        ((struct op_segment *)behind)[1].rows_offset = client_offset(&h.bad, behind + 8192);
        *(uint64_t *)(behind + 4096) = ROWS; /* the first id out of range */
        h.submission->segments_offset = client_offset(&h.bad, behind);
        h.submission->segment_count = 2;
        expect(&h, wrong[i].err, 1);
    }
    hostile_stop(&h);
}

static void test_requests_without_ids_succeed(void **state)
{
    struct hostile h;

    hostile_start(&h, *state);
    make(&h, 10);
    h.submission->segment_count = 0;
    expect(&h, EMBTIER_OK, UINT32_MAX);
    make(&h, 10);
    h.segment->id_count = 0;
    expect(&h, EMBTIER_OK, UINT32_MAX);
    hostile_stop(&h);
}

/* A GET's rows may overlap its ids or its segments: this harms only its client. */
static void test_overlaps_in_the_arena_harm_no_session(void **state)
{
    struct hostile h;

    hostile_start(&h, *state);
    for (uint32_t i = 0; i < 200; i++) {
        make(&h, 100);
        h.submission->op = OP_GET;
        h.segment[0].rows_offset = h.segment[0].ids_offset;
        expect(&h, EMBTIER_OK, UINT32_MAX);
        make(&h, 100);
        h.submission->op = OP_GET;
        h.segment[0].rows_offset = h.submission->segments_offset;
        expect(&h, EMBTIER_OK, UINT32_MAX);
    }
    hostile_stop(&h);
}

static void expect_broken(struct hostile *h)
{
    fixture_await_mail(&h->x, &h->bad.session->broken_message);
    assert_non_null(h->bad.session->broken_why);
    h->bad.submitted = 0;
}

static void test_more_submitted_than_there_are_slots_ends_the_session(void **state)
{
    const uint64_t one = 1;
    struct hostile h;

    hostile_start(&h, *state);
    client_publish_tail(&h.bad, FIXTURE_SLOTS + 1);
    assert_int_equal(write(client_doorbell(&h.bad), &one, sizeof(one)), sizeof(one));
    expect_broken(&h);
    hostile_stop(&h);
}

static void test_tail_that_goes_back_ends_the_session(void **state)
{
    const uint64_t one = 1;
    struct hostile h;

    hostile_start(&h, *state);
    make(&h, 0);
    expect(&h, EMBTIER_OK, UINT32_MAX);
    client_publish_tail(&h.bad, 0);
    assert_int_equal(write(client_doorbell(&h.bad), &one, sizeof(one)), sizeof(one));
    expect_broken(&h);
    hostile_stop(&h);
}

/* Tests a full doorbell, and one that rings without a request. */
static void test_doorbell_can_be_abused_without_harm(void **state)
{
    const uint64_t most = UINT64_MAX - 1, one = 1;
    struct hostile h;
    uint64_t drained;

    hostile_start(&h, *state);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(write(client_doorbell(&h.bad), &one, sizeof(one)), sizeof(one));
    assert_int_equal(read(client_doorbell(&h.bad), &drained, sizeof(drained)), sizeof(drained));
    assert_int_equal(write(client_doorbell(&h.bad), &most, sizeof(most)), sizeof(most));
    assert_int_equal(write(client_doorbell(&h.bad), &one, sizeof(one)), -1);
    client_wait_flag(&h.bad, UINT32_MAX);
    hostile_stop(&h);
}

static void scribble(void *context)
{
    const struct hostile *const h = context;
    uint64_t random = 42;

    for (;;) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        ((volatile uint8_t *)client_segment(&h->bad, 0))[random % (FIXTURE_SLOTS * SLOT_BYTES)] =
            (uint8_t)(random >> 56);
    }
}

/* Another process scribbles, as a client's would. Only GETs: a SET would rightly store the
 * scribbles. */
static void test_arena_that_changes_all_the_time_harms_no_session(void **state)
{
    struct hostile h;
    pid_t child;

    hostile_start(&h, *state);
    child = other_process(scribble, &h);
    for (uint32_t i = 0; i < 3000; i++) {
        make(&h, 50);
        h.submission->op = OP_GET;
        client_publish(&h.bad);
        client_wait(&h.bad, h.number);
    }
    other_process_end(child);
    hostile_stop(&h);
}

/* Submits so many rows that taking in their ids, three at a time, takes long. */
static uint32_t submit_many(struct client *client, enum op_number op, uint64_t table)
{
    for (uint32_t i = 0; i < MANY; i++)
        client_ids(client, client->submitted)[i] = i % ROWS;
    memset(client_rows(client, client->submitted, MANY), 0, (size_t)MANY * DIM * 4);
    return client_submit(client, op, table, MANY);
}

static void test_a_request_does_not_overtake_a_large_one_that_is_being_taken_in(void **state)
{
    struct hostile h;
    struct client large;
    uint64_t table;
    uint32_t next;

    hostile_start(&h, *state);
    table = fixture_table(&h.x, "other", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    large = client_attach(&h.x, MANY_SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id += 50) {
        assert_int_equal(client_set_one(&h.good, table, id, DIM, 7), EMBTIER_OK);
        submit_many(&large, OP_SET, table);
        client_ids(&large, large.submitted)[0] = id;
        *(float *)client_rows(&large, large.submitted, 1) = 7;
        next = client_submit(&large, OP_GET, table, 1);
        assert_int_equal(client_wait(&large, next)->err, EMBTIER_OK);
        assert_true(*(float *)client_rows(&large, next, 1) == 0);
    }
    client_detach(&large);
    hostile_stop(&h);
}

static void test_a_large_request_that_is_half_taken_in_goes_with_its_client(void **state)
{
    struct request_memory_share share = { 0 };
    struct hostile h;
    uint32_t half_taken = 0;
    uint64_t until;
    void *all;

    hostile_start(&h, *state);
    for (uint32_t i = 0; i < 100 && half_taken < 5; i++) {
        struct client large = client_attach(&h.x, MANY_SLOT_BYTES);
        const uint32_t many = submit_many(&large, OP_GET, h.table);
        float value;

        assert_int_equal(client_get_one(&h.good, h.table, 1, &value), EMBTIER_OK);
        half_taken += !client_is_done(&large, many);
        client_detach(&large);
    }
    assert_int_equal(half_taken, 5);
    until = now_ns() + FIXTURE_WAIT_NS;
    while (!(all = request_memory_take(h.x.memory, &share, request_memory_largest(h.x.memory),
                                       REQUEST_MEMORY_ENDS))) {
        assert_true(now_ns() < until);
        usleep(1000); /* the last answered requests may not have ended yet */
    }
    request_memory_give(h.x.memory, all);
    hostile_stop(&h); /* lanes could not stop if the table still had a user */
}

static void test_segment_of_a_ref_is_found_with_empty_segments_between(void **state)
{
    /*                        0  1  2  3  4  5  end */
    const uint32_t starts[] = { 0, 0, 3, 3, 3, 4, 4 };
    struct request request = { .segment_count = 6 };
    struct part part = { .request = &request, .starts = starts };

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(part_segment_of(&part, i), 1);
    assert_int_equal(part_segment_of(&part, 3), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_spoiled_submissions_are_refused),
        T(test_offsets_outside_the_arena_are_refused),
        T(test_whole_rows_that_end_outside_the_arena_are_refused),
        T(test_counts_that_overflow_are_refused),
        T(test_one_wrong_segment_refuses_the_whole_request),
        T(test_requests_without_ids_succeed),
        T(test_overlaps_in_the_arena_harm_no_session),
        T(test_more_submitted_than_there_are_slots_ends_the_session),
        T(test_tail_that_goes_back_ends_the_session),
        T(test_doorbell_can_be_abused_without_harm),
        T(test_arena_that_changes_all_the_time_harms_no_session),
        T(test_a_request_does_not_overtake_a_large_one_that_is_being_taken_in),
        T(test_a_large_request_that_is_half_taken_in_goes_with_its_client),
        cmocka_unit_test(test_segment_of_a_ref_is_found_with_empty_segments_between),
#undef T
    };

    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
