/* SPDX-License-Identifier: Apache-2.0 */
/* A client that changes its requests while the server reads them: does what was checked get used?
 *
 * Another process switches every field of a request, its ids, and of a pooled lookup its bags'
 * offsets, to and fro between what is right and what must be refused, as fast as it can, while that
 * request is submitted. Each may be served or refused; what must not happen is that the process
 * dies (sanitizers watch), that a table changes, that a row comes to be that no table has, that a
 * bag has another table's rows, or that another client's memory changes. EMBTIER_TEST_MUTATIONS
 * says how many changes there are to be; an argument, which tests. */
#include "lane_fixture.h"

#include <sys/mman.h>

#define SLOT_BYTES    (512 * KIB)
#define COUNT         50 /* ids of a request */
#define BAGS          5
#define HEADER_FIELDS 16 /* of submission and segment, at most */
#define MUTATIONS     1000000
#define AT_LEAST_NS   (UINT64_C(5) * 1000 * 1000 * 1000) /* both sides have to run at once */
#define CANARY        0xa5
#define FAR           (UINT64_C(1) << 40) /* no memory of ours is there; test_request.c has the edges */

/* Room for all rows: none leaves, so what is cached can be counted. */
static const struct lanes_shape shapes[] = {
    { .lane_count = 1,
      .slabs_per_lane = 4,
      .map_slabs = 1,
      .readers = 1,
      .write_queue_bytes = MIB },
    { .lane_count = 3,
      .slabs_per_lane = 4,
      .map_slabs = 1,
      .readers = 1,
      .write_queue_bytes = MIB },
};

/* What is asked for. */
struct aim {
    enum shm_op op;
    uint32_t dim;
    uint32_t rows; /* of each table */
    uint32_t requests_least;
};

static const struct aim gets = { SHM_OP_GET, 16, 1000, 100000 };
static const struct aim pushes = { SHM_OP_PUSH, 16, 1000, 20000 };
static const struct aim lookups = { SHM_OP_POOL, 8192, 40, 2000 }; /* of two waves */

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
    const struct aim *aim;
    uint64_t table, other;
    struct field fields[HEADER_FIELDS + COUNT + BAGS + 1];
    uint32_t header_fields;
    uint32_t field_count;
    float *bags;               /* of a pooled lookup */
    _Atomic uint64_t *changes; /* shared with the other process */
};

static void add_field(struct mutator *m, volatile void *place, uint32_t bytes, uint64_t good,
                      uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    m->fields[m->field_count++] = (struct field){ place, bytes, good, { a, b, c, d } };
}

static void add_far_field(struct mutator *m, volatile void *place, const void *good)
{
    add_field(m, place, 8, client_offset(&m->bad, good), FAR, 2 * FAR, 4 * FAR, 8 * FAR);
}

/* The segment of a GET; returns its ids. */
static uint64_t *make_segment(struct mutator *m)
{
    struct shm_segment *const segment = client_segment(&m->bad, 0);

    add_field(m, &segment->table, 8, m->table, 0, UINT64_MAX, UINT64_C(77) << 32, UINT32_MAX);
    add_far_field(m, &segment->ids_offset, client_ids(&m->bad, 0));
    add_far_field(m, &segment->rows_offset, client_rows(&m->bad, 0, COUNT));
    add_field(m, &segment->id_count, 4, COUNT, UINT32_MAX, 100000, 2000000, 50000);
    add_field(m, &segment->flags, 4, 0, 1, UINT32_MAX, 1, 2);
    m->header_fields = m->field_count;
    return client_ids(&m->bad, 0);
}

/* The same of a pooled lookup. */
static uint64_t *make_pool_segment(struct mutator *m)
{
    struct shm_pool_segment *const segment = (void *)client_segment(&m->bad, 0);
    uint64_t *const ids = (uint64_t *)(segment + 1);
    float *const weights = (float *)(ids + COUNT);
    uint32_t *const offsets = (uint32_t *)(weights + COUNT);

    m->bags = (float *)(offsets + BAGS + 1);
    add_field(m, &segment->table, 8, m->table, 0, UINT64_MAX, UINT64_C(77) << 32, UINT32_MAX);
    add_far_field(m, &segment->ids_offset, ids);
    add_far_field(m, &segment->bags_offset, m->bags);
    add_far_field(m, &segment->offsets_offset, offsets);
    add_far_field(m, &segment->weights_offset, weights);
    add_field(m, &segment->id_count, 4, COUNT, UINT32_MAX, 100000, 2000000, COUNT - 1);
    add_field(m, &segment->bag_count, 4, BAGS, UINT32_MAX, 100000, BAGS + 1, BAGS - 1);
    add_field(m, &segment->mode, 4, EMBTIER_POOL_SUM, 0, UINT32_MAX, EMBTIER_POOL_MEAN,
              EMBTIER_POOL_MAX);
    add_field(m, &segment->flags, 4, 0, 1, UINT32_MAX, 1, 2);
    for (uint32_t b = 0; b <= BAGS; b++)
        add_field(m, &offsets[b], 4, b * COUNT / BAGS, UINT32_MAX, COUNT + 1,
                  (b + 2) * COUNT / BAGS, b > 1 ? b - 1 : 1);
    m->header_fields = m->field_count;
    for (uint32_t i = 0; i < COUNT; i++)
        weights[i] = 1;
    return ids;
}

/* The same of a push of rows. With a learning rate of 0 it changes none. */
static uint64_t *make_push_segment(struct mutator *m)
{
    struct shm_push_segment *const segment = (void *)client_segment(&m->bad, 0);
    uint64_t *const ids = (uint64_t *)(segment + 1);
    float *const gradients = (float *)(ids + COUNT);

    memset(segment, 0, sizeof(*segment));
    add_field(m, &segment->table, 8, m->table, 0, UINT64_MAX, UINT64_C(77) << 32, UINT32_MAX);
    add_far_field(m, &segment->ids_offset, ids);
    add_far_field(m, &segment->gradients_offset, gradients);
    add_field(m, &segment->weights_offset, 8, 0, FAR, 2 * FAR, 64, 4096);
    add_field(m, &segment->count, 4, COUNT, UINT32_MAX, 100000, 2000000, 50000);
    add_field(m, &segment->dim, 4, m->aim->dim, 0, UINT32_MAX, 1, m->aim->dim + 1);
    add_field(m, &segment->flags, 4, 0, 1, UINT32_MAX, 1, 2);
    m->header_fields = m->field_count;
    for (uint32_t i = 0; i < COUNT * m->aim->dim; i++)
        gradients[i] = 1;
    return ids;
}

/* The one request in slot 0, and all that can be wrong with it. */
static void make_request(struct mutator *m)
{
    struct session *const session = m->bad.session;
    struct shm_submission *const submission = &shm_submissions(session->arena)[0];
    const struct shm_segment *const segment = client_segment(&m->bad, 0);
    const bool is_get = m->aim->op == SHM_OP_GET;
    uint64_t *ids;

    add_field(m, &submission->op, 4, m->aim->op, 0, 77, UINT32_MAX,
              is_get ? SHM_OP_POOL : SHM_OP_GET);
    /* Without the state, rows are shorter. */
    add_field(m, &submission->flags, 4, is_get ? SHM_FLAG_STATE : 0, is_get ? 0 : SHM_FLAG_STATE,
              UINT32_MAX, 3, 4);
    add_field(m, &submission->segment_count, 4, 1, UINT32_MAX, SHM_SEGMENTS_MAX, 70000, 3000);
    add_far_field(m, &submission->segments_offset, segment);
    if (m->aim->op == SHM_OP_PUSH) {
        add_field(m, &submission->step, 8, 1, 0, UINT64_MAX, UINT64_C(1) << 60, 0);
        add_field(m, &submission->ticket, 8, 0, 1, UINT64_MAX, m->bad.session->id << 32 | 1, 2);
        ids = make_push_segment(m);
    } else {
        ids = is_get ? make_segment(m) : make_pool_segment(m);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        add_field(m, &ids[i], 8, i * 7 % m->aim->rows, m->aim->rows + i, UINT64_MAX,
                  UINT64_C(1) << 40, m->aim->rows);
    for (uint32_t i = 0; i < m->field_count; i++)
        field_put(&m->fields[i], m->fields[i].good);
}

static void mutate(void *context)
{
    const struct mutator *const m = context;

    for (uint64_t random = 42;;) {
        const struct field *field;

        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        field = &m->fields[random % (random & 1 << 20 ? m->field_count : m->header_fields)];
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
    uint64_t rows = 0;

    for (uint32_t i = 0; i < m->x.lane_count; i++) {
        struct lane_stats stats;

        lane_stats(m->x.lanes[i], &stats);
        for (uint32_t t = 0; t < TIERS_MAX; t++)
            rows += stats.cache.tiers[t].rows;
    }
    return rows;
}

static void clear_answer(struct mutator *m)
{
    if (m->bags)
        memset(m->bags, 0, (size_t)BAGS * m->aim->dim * sizeof(float));
    else if (m->aim->op == SHM_OP_GET)
        memset(client_rows(&m->bad, 0, COUNT), CANARY, 2 * COUNT * m->aim->dim * sizeof(float));
}

/* Whatever the offsets were, a bag has whole rows of the one table only, and these are ones. */
static void check_answer(const struct mutator *m)
{
    for (uint32_t b = 0; m->bags && b < BAGS; b++) {
        const float *const bag = m->bags + (size_t)b * m->aim->dim;

        assert_true(bag[0] >= 0 && bag[0] <= COUNT && bag[0] == (float)(uint32_t)bag[0]);
        for (uint32_t c = 1; c < m->aim->dim; c++)
            assert_true(bag[c] == bag[0]);
    }
}

static void submit_until_enough(struct mutator *m)
{
    const uint64_t wanted = mutations_wanted();
    const uint64_t until = now_ns() + AT_LEAST_NS;
    uint32_t served = 0, refused = 0;

    for (uint32_t i = 0;
         i < m->aim->requests_least || now_ns() < until || atomic_load(m->changes) < wanted; i++) {
        const uint32_t number = m->bad.submitted;

        /* All slots ask with the same segment and ids; slot 0's submission changes, too. */
        if (number % FIXTURE_SLOTS != 0)
            shm_submissions(m->bad.session->arena)[number % FIXTURE_SLOTS] =
                (struct shm_submission){
                    .op = m->aim->op,
                    .step = 1,
                    .segment_count = 1,
                    .segments_offset = client_offset(&m->bad, client_segment(&m->bad, 0)),
                };
        clear_answer(m);
        client_publish(&m->bad);
        if (client_wait(&m->bad, number)->err == EMBTIER_OK) {
            check_answer(m);
            served++;
        } else {
            refused++;
        }
        if (i % 1024 == 0)
            assert_int_equal(cached_rows(m), 2 * m->aim->rows);
    }
    printf("%u served, %u refused\n", served, refused);
    assert_true(served > 0);
    assert_true(refused > 0);
}

static void check_table(struct mutator *m, uint64_t table, float value)
{
    for (uint64_t id = 0; id < m->aim->rows; id++) {
        float got = 0;

        assert_int_equal(client_get_one(&m->good, table, id, &got), EMBTIER_OK);
        assert_true(got == value);
    }
}

static void mutate_requests(struct store_fixture *f, const struct lanes_shape *shape,
                            const struct aim *aim)
{
    static struct mutator m;
    uint8_t *canary;
    pid_t child;

    memset(&m, 0, sizeof(m));
    m.aim = aim;
    lanes_start(&m.x, f, shape);
    m.table = fixture_table(&m.x, "t", aim->rows, aim->dim,
                            aim->op == SHM_OP_GET    ? EMBTIER_OPTIMIZER_ADAGRAD
                            : aim->op == SHM_OP_PUSH ? EMBTIER_OPTIMIZER_SGD
                                                     : EMBTIER_OPTIMIZER_NONE);
    m.other = fixture_table(&m.x, "other", aim->rows, aim->dim, EMBTIER_OPTIMIZER_NONE);
    m.bad = client_attach(&m.x, SLOT_BYTES);
    m.good = client_attach(&m.x, SLOT_BYTES);
    for (uint64_t id = 0; id < aim->rows; id++) {
        assert_int_equal(client_set_one(&m.good, m.table, id, aim->dim, 1), EMBTIER_OK);
        assert_int_equal(client_set_one(&m.good, m.other, id, aim->dim, 2), EMBTIER_OK);
    }
    assert_int_equal(cached_rows(&m), 2 * aim->rows);
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
    assert_int_equal(cached_rows(&m), 2 * aim->rows);
    check_table(&m, m.table, 1);
    check_table(&m, m.other, 2);
    munmap((void *)m.changes, 4096);
    client_detach(&m.bad);
    client_detach(&m.good);
    lanes_stop(&m.x);
}

static void test_what_changes_behind_a_check_is_not_used(void **state)
{
    mutate_requests(*state, &shapes[0], &gets);
}

static void test_what_changes_behind_a_check_of_a_pooled_lookup_is_not_used(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        mutate_requests(*state, &shapes[s], &lookups);
}

static void test_what_changes_behind_a_check_of_a_push_is_not_used(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        mutate_requests(*state, &shapes[s], &pushes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_what_changes_behind_a_check_is_not_used),
        T(test_what_changes_behind_a_check_of_a_pooled_lookup_is_not_used),
        T(test_what_changes_behind_a_check_of_a_push_is_not_used),
#undef T
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
