/* SPDX-License-Identifier: Apache-2.0 */
/* A client that changes its requests while the server reads them: does what was checked get used?
 *
 * Another process switches every field of a request, and its ids, to and fro between what is right
 * and what must be refused, as fast as it can, while GETs of that request are submitted. Each may
 * be served or refused; what must not happen is that the process dies (sanitizers watch), that a
 * table changes, that a row comes to be that no table has, or that another client's memory
 * changes. EMBTIER_TEST_MUTATIONS says how many changes there are to be. */
#include "lane_fixture.h"

#include <sys/mman.h>

#define DIM            16
#define SLOT_BYTES     (64 * KIB)
#define ROWS           1000
#define COUNT          50 /* ids of a request */
#define HEADER_FIELDS  9  /* of submission and segment */
#define MUTATIONS      1000000
#define REQUESTS_LEAST 100000
#define AT_LEAST_NS    (UINT64_C(5) * 1000 * 1000 * 1000) /* both sides have to run at once */
#define CANARY         0xa5
#define FAR            (UINT64_C(1) << 40) /* no memory of ours is there; test_request.c has the edges */

/* Room for all rows: none leaves, so what is cached can be counted. */
static const struct lanes_shape one_lane = {
    .lane_count = 1, .slabs_per_lane = 4, .readers = 1, .write_queue_bytes = MIB
};

struct field {
    volatile void *place;
    uint32_t bytes; /* 4 or 8 */
    uint64_t good;
    uint64_t bad[4];
};

static void field_put(const struct field *field, uint64_t value)
{
    if (field->bytes == 4)
        *(volatile uint32_t *)field->place = (uint32_t)value;
    else
        *(volatile uint64_t *)field->place = value;
}

struct mutator {
    struct lanes_fixture x;
    struct client bad, good;
    uint64_t table, other;
    struct field fields[HEADER_FIELDS + COUNT];
    uint32_t field_count;
    _Atomic uint64_t *changes; /* shared with the other process */
};

static void add_field(struct mutator *m, volatile void *place, uint32_t bytes, uint64_t good,
                      uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    m->fields[m->field_count++] = (struct field){ place, bytes, good, { a, b, c, d } };
}

/* The one request in slot 0, and all that can be wrong with it. */
static void make_request(struct mutator *m)
{
    struct session *const session = m->bad.session;
    struct shm_submission *const submission = &shm_submissions(session->arena)[0];
    struct shm_segment *const segment = client_segment(&m->bad, 0);
    uint64_t *const ids = client_ids(&m->bad, 0);
    const uint64_t ids_offset = client_offset(&m->bad, ids);
    const uint64_t rows_offset = client_offset(&m->bad, client_rows(&m->bad, 0, COUNT));
    const uint64_t segments_offset = client_offset(&m->bad, segment);

    add_field(m, &submission->op, 4, SHM_OP_GET, 0, 77, UINT32_MAX, 3);
    add_field(m, &submission->flags, 4, SHM_FLAG_STATE, 0, UINT32_MAX, 3, 2);
    add_field(m, &submission->segment_count, 4, 1, UINT32_MAX, SHM_SEGMENTS_MAX, 70000, 3000);
    add_field(m, &submission->segments_offset, 8, segments_offset, FAR, 2 * FAR, 4 * FAR, 8 * FAR);
    add_field(m, &segment->table, 8, m->table, 0, UINT64_MAX, UINT64_C(77) << 32, UINT32_MAX);
    add_field(m, &segment->ids_offset, 8, ids_offset, FAR, 2 * FAR, 4 * FAR, 8 * FAR);
    add_field(m, &segment->rows_offset, 8, rows_offset, FAR, 2 * FAR, 4 * FAR, 8 * FAR);
    add_field(m, &segment->id_count, 4, COUNT, UINT32_MAX, 100000, 2000000, 50000);
    add_field(m, &segment->flags, 4, 0, 1, UINT32_MAX, 1, 2);
    for (uint32_t i = 0; i < COUNT; i++)
        add_field(m, &ids[i], 8, i * 7, ROWS + i, UINT64_MAX, UINT64_C(1) << 40, ROWS);
    for (uint32_t i = 0; i < m->field_count; i++)
        field_put(&m->fields[i], m->fields[i].good);
}

static void mutate(void *context)
{
    const struct mutator *const m = context;

    for (uint64_t random = 42;;) {
        const struct field *field;

        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        field = &m->fields[random % (random & 1 << 20 ? m->field_count : HEADER_FIELDS)];
        /* One field at a time, and for some nanoseconds only: else few requests would come far. */
        field_put(field, field->bad[random >> 62]);
        for (uint32_t wait = (random >> 32) % 64; wait > 0; wait--)
            __asm__ volatile("" ::: "memory");
        field_put(field, field->good);
        for (uint32_t wait = (random >> 40) % 256; wait > 0; wait--)
            __asm__ volatile("" ::: "memory");
        atomic_fetch_add_explicit(m->changes, 2, memory_order_relaxed);
    }
}

static uint64_t mutations_wanted(void)
{
    const char *const text = getenv("EMBTIER_TEST_MUTATIONS"); // NOLINT(concurrency-mt-unsafe)

    return text ? strtoull(text, NULL, 10) : MUTATIONS;
}

static uint64_t cached_rows(struct mutator *m)
{
    struct lane_stats stats;
    uint64_t rows = 0;

    lane_stats(m->x.lanes[0], &stats);
    for (uint32_t t = 0; t < TIERS_MAX; t++)
        rows += stats.cache.tiers[t].rows;
    return rows;
}

static void submit_until_enough(struct mutator *m)
{
    const uint64_t wanted = mutations_wanted();
    const uint64_t until = now_ns() + AT_LEAST_NS;
    uint32_t served = 0, refused = 0;

    for (uint32_t i = 0; i < REQUESTS_LEAST || now_ns() < until || atomic_load(m->changes) < wanted;
         i++) {
        const uint32_t number = m->bad.submitted;

        /* All slots ask with the same segment and ids; slot 0's submission changes, too. */
        if (number % FIXTURE_SLOTS != 0)
            shm_submissions(m->bad.session->arena)[number % FIXTURE_SLOTS] =
                (struct shm_submission){
                    .op = SHM_OP_GET,
                    .segment_count = 1,
                    .segments_offset = client_offset(&m->bad, client_segment(&m->bad, 0)),
                };
        memset(client_rows(&m->bad, 0, COUNT), CANARY, 2 * COUNT * DIM * sizeof(float));
        client_publish(&m->bad);
        if (client_wait(&m->bad, number)->err == EMBTIER_OK)
            served++;
        else
            refused++;
        if (i % 1024 == 0)
            assert_int_equal(cached_rows(m), 2 * ROWS);
    }
    printf("%u served, %u refused\n", served, refused);
    assert_true(served > 0);
    assert_true(refused > 0);
}

static void check_table(struct mutator *m, uint64_t table, float value)
{
    for (uint64_t id = 0; id < ROWS; id++) {
        float got = 0;

        assert_int_equal(client_get_one(&m->good, table, id, &got), EMBTIER_OK);
        assert_true(got == value);
    }
}

static void test_what_changes_behind_a_check_is_not_used(void **state)
{
    static struct mutator m;
    uint8_t *canary;
    pid_t child;

    lanes_start(&m.x, *state, &one_lane);
    m.table = fixture_table(&m.x, "t", ROWS, DIM, EMBTIER_OPTIMIZER_ADAGRAD);
    m.other = fixture_table(&m.x, "other", ROWS, DIM, EMBTIER_OPTIMIZER_NONE);
    m.bad = client_attach(&m.x, SLOT_BYTES);
    m.good = client_attach(&m.x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id++) {
        assert_int_equal(client_set_one(&m.good, m.table, id, DIM, 1), EMBTIER_OK);
        assert_int_equal(client_set_one(&m.good, m.other, id, DIM, 2), EMBTIER_OK);
    }
    assert_int_equal(cached_rows(&m), 2 * ROWS);
    canary = client_rows(&m.good, FIXTURE_SLOTS - 1, COUNT);
    memset(canary, CANARY, SLOT_BYTES / 2);
    m.changes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m.changes != MAP_FAILED);
    make_request(&m);

    child = other_process(mutate, &m);
    submit_until_enough(&m);
    other_process_end(child);

    for (uint32_t i = 0; i < SLOT_BYTES / 2; i++)
        assert_int_equal(canary[i], CANARY);
    assert_int_equal(cached_rows(&m), 2 * ROWS);
    check_table(&m, m.table, 1);
    check_table(&m, m.other, 2);
    munmap((void *)m.changes, 4096);
    client_detach(&m.bad);
    client_detach(&m.good);
    lanes_stop(&m.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_changes_behind_a_check_is_not_used, fixture_setup,
                                        fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
