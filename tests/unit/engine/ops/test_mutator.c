/* SPDX-License-Identifier: Apache-2.0 */
/* A client that changes its requests while the server reads them: does the server use what it
 * checked?
 *
 * While a request is submitted, another process switches its fields to and fro between right and
 * wrong values, as fast as it can. It does so with every field, the ids, and a pooled lookup's
 * offsets. The server may serve or refuse each request, but it must not die (sanitizers watch). No
 * table may change, and no row may appear that no table has. No bag may hold another table's rows,
 * and no other client's memory may change. Each form in the table of proto/op_fields.h has a test,
 * and that table names its fields: a new field is covered by being there. EMBTIER_TEST_MUTATIONS
 * sets the number of changes; an argument selects tests. */
#include "tests/unit/engine/ops/forms_fixture.h"

#include <math.h>
#include <sys/mman.h>

#define SLOT_BYTES   (5 * MIB)
#define COUNT        50 /* ids in a request */
#define BAGS         5
#define FIELDS       20 /* most fields of submission and segment together */
#define MUTATIONS    1000000
#define AT_LEAST_NS  (UINT64_C(500) * 1000 * 1000) /* both sides must run at once */
#define CANARY       0xa5
#define FAR          (UINT64_C(1) << 40) /* none of our memory; test_request.c has the edges */
#define HELPER_PLACE (FIXTURE_SLOTS / 2) /* the slot whose memory helper requests use */

/* Enough room for all rows: none leaves, so the cached rows can be counted. */
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

/* The request of each form. */
struct aim {
    uint32_t form;
    uint32_t dim;
    uint32_t rows; /* in each table */
    uint32_t requests_least;
    uint32_t shapes;
};

static struct aim aim_of(uint32_t form)
{
    if (FORM_IS(form, GET))
        return (struct aim){ form, 16, 1000, 100000, 1 };
    if (FORM_IS(form, POOL))
        return (struct aim){ form, 8192, 40, 2000, 2 }; /* two waves */
    return (struct aim){ form, 16, 1000, 10000, 2 };
}

struct field {
    volatile void *place;
    uint32_t bytes; /* 4 or 8 */
    _Atomic uint64_t good;
    uint64_t bad[4];
};

static void field_put(const struct field *field, uint64_t value)
{
    if (field->bytes == 4)
        *(volatile uint32_t *)field->place = (uint32_t)value;
    else
        *(volatile uint64_t *)field->place = value;
}

/* Memory that both processes use. */
struct shared {
    _Atomic uint64_t changes;
    struct field fields[FIELDS + COUNT + BAGS + 1];
};

struct mutator {
    struct lanes_fixture x;
    struct client bad, good;
    struct aim aim;
    struct form_shape shape;
    struct form_place place;
    uint64_t other;
    struct shared *shared;
    struct field *fields;
    uint32_t header_fields;
    uint32_t field_count;
    struct field *ticket_field;
    uint64_t ticket;   /* for the next request */
    uint64_t left_one; /* ticket of a prefetch still to be released */
};

static struct field *add_field(struct mutator *m, volatile void *place, uint32_t bytes,
                               const uint64_t bad[4])
{
    struct field *const field = &m->fields[m->field_count++];
    uint64_t good = 0;

    assert_true(m->field_count <= ARRAY_LEN(m->shared->fields));
    memcpy(&good, (const void *)place, bytes);
    field->place = place;
    field->bytes = bytes;
    atomic_store(&field->good, good);
    memcpy(field->bad, bad, sizeof(field->bad));
    return field;
}

/* Values that are wrong, or lead elsewhere. A field that is not listed gets offsets or words that
 * are usually wrong. */
static const struct {
    const char *name;
    uint64_t bad[4];
} bads[] = {
    { "op", { 0, 77, UINT32_MAX, OP_GET } },
    /* The state flag changes the length of rows. */
    { "flags", { OP_FLAG_STATE, UINT32_MAX, 3, 4 } },
    { "segment_count", { UINT32_MAX, OP_SEGMENTS_MAX, 70000, 3000 } },
    { "step", { 0, UINT64_MAX, UINT64_C(1) << 60, 0 } },
    { "table", { 0, UINT64_MAX, UINT64_C(77) << 32, UINT32_MAX } },
    { "id_count", { UINT32_MAX, 100000, 2000000, 50000 } },
    { "count", { UINT32_MAX, 100000, 2000000, 50000 } },
    { "bag_count", { UINT32_MAX, 100000, BAGS + 1, BAGS - 1 } },
    { "mode", { 0, UINT32_MAX, EMBTIER_POOL_MEAN, EMBTIER_POOL_MAX } },
    { "dim", { 0, UINT32_MAX, 1, 17 } },
    /* Rates that are not valid: a valid one would change rows. */
    { "learning_rate", { 0x7ff0000000000000, 0x7ff8000000000000, UINT64_MAX, 1 } },
};
static const uint64_t bad_offsets[4] = { FAR, 2 * FAR, 4 * FAR, 8 * FAR };
static const uint64_t bad_words[4] = { 1, UINT64_MAX, 64, 4096 };

static const uint64_t *bads_of(const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(bads); i++)
        if (strcmp(bads[i].name, name) == 0)
            return bads[i].bad;
    return length > 7 && strcmp(name + length - 7, "_offset") == 0 ? bad_offsets : bad_words;
}

static void add_fields(struct mutator *m, const struct op_field *fields, uint32_t count,
                       void *place)
{
    for (uint32_t i = 0; i < count; i++) {
        struct field *const added = add_field(m, (uint8_t *)place + fields[i].offset,
                                              fields[i].bytes, bads_of(fields[i].name));

        if (strcmp(fields[i].name, "ticket") == 0)
            m->ticket_field = added;
        if (strcmp(fields[i].name, "op") == 0 && atomic_load(&added->good) == OP_GET)
            added->bad[3] = OP_POOL;
        /* A GET's right value asks for whole rows, because shorter rows would put less at stake. */
        if (strcmp(fields[i].name, "flags") == 0 && atomic_load(&added->good) == OP_FLAG_STATE)
            added->bad[0] = 0;
    }
}

/* Makes the one request in slot 0, and lists all that can be wrong with it. */
static void make_request(struct mutator *m)
{
    struct op_submission *const submission = client_submission(&m->bad, 0);
    void *const segment = client_segment(&m->bad, 0);
    const struct op_field *fields;
    uint32_t count;

    *submission = form_lay_out(&m->bad, m->aim.form, &m->shape, 0, segment, &m->place);
    if (FORM_IS(m->aim.form, GET))
        submission->flags = OP_FLAG_STATE;
    fields = op_submission_fields(&count);
    add_fields(m, fields, count, submission);
    fields = op_segment_fields(m->aim.form, &count);
    add_fields(m, fields, count, segment);
    assert_true(m->field_count <= FIELDS);
    for (uint32_t b = 0; FORM_IS(m->aim.form, POOL) && b <= BAGS; b++)
        add_field(m, &m->place.offsets[b], 4,
                  (uint64_t[]){ UINT32_MAX, COUNT + 1, (b + 2) * COUNT / BAGS, b > 1 ? b - 1 : 1 });
    m->header_fields = m->field_count;
    for (uint32_t i = 0; op_segment_bytes(m->aim.form) > 0 && i < COUNT; i++)
        add_field(m, &m->place.ids[i], 8,
                  (uint64_t[]){ m->shape.rows + i, UINT64_MAX, UINT64_C(1) << 40, m->shape.rows });
}

static void mutate(void *context)
{
    const struct mutator *const m = context;

    for (uint64_t random = 42;;) {
        const struct field *field;

        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        field = &m->fields[random % (random & 1 << 20 ? m->field_count : m->header_fields)];
        /* Spoils one field at a time, for a few nanoseconds only. Otherwise few requests would get
         * far. */
        field_put(field, field->bad[random >> 62]);
        for (uint32_t wait = (random >> 32) % 64; wait > 0; wait--)
            __asm__ volatile("" ::: "memory");
        field_put(field, atomic_load_explicit(&field->good, memory_order_relaxed));
        for (uint32_t wait = (random >> 40) % 256; wait > 0; wait--)
            __asm__ volatile("" ::: "memory");
        atomic_fetch_add_explicit(&m->shared->changes, 2, memory_order_relaxed);
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
        for (uint32_t h = 0; h < HOME_KINDS; h++)
            rows += stats.homes[h].rows;
    }
    return rows;
}

/* True if the form's requests need helper requests between them, from a slot that it does not
 * mutate. */
static bool needs_helpers(const struct mutator *m)
{
    return form_takes_ticket(m->aim.form) || FORM_IS(m->aim.form, PREFETCH);
}

/* Submits a helper in the slot before each request: gets a ticket for it, or releases the last
 * one's. */
static void submit_helper(struct mutator *m)
{
    void *const at = client_segment(&m->bad, HELPER_PLACE);

    assert_int_equal(m->bad.submitted % 2, 1);
    if (form_takes_ticket(m->aim.form) && m->ticket == 0) {
        m->ticket = form_look_up(&m->bad, &m->shape, at);
    } else if (m->left_one != 0) {
        form_release(&m->bad, m->left_one);
        m->left_one = 0;
    } else {
        const struct op_submission nothing = { .op = OP_GET,
                                               .segments_offset = client_offset(&m->bad, at) };

        assert_int_equal(form_submit(&m->bad, &nothing)->err, EMBTIER_OK);
    }
}

static void clear_answer(struct mutator *m)
{
    const size_t numbers = (size_t)COUNT * m->aim.dim * 2;

    if (FORM_IS(m->aim.form, POOL))
        memset(m->place.numbers, 0, (size_t)BAGS * m->aim.dim * sizeof(float));
    else if (FORM_IS(m->aim.form, GET))
        memset(m->place.numbers, CANARY, numbers * sizeof(float));
}

/* Whatever the offsets were, a bag holds only whole rows of its own table, which are all ones. */
static void check_answer(const struct mutator *m)
{
    for (uint32_t b = 0; FORM_IS(m->aim.form, POOL) && b < BAGS; b++) {
        const float *const bag = m->place.numbers + (size_t)b * m->aim.dim;

        assert_true(bag[0] >= 0 && bag[0] <= COUNT && bag[0] == (float)(uint32_t)bag[0]);
        for (uint32_t c = 1; c < m->aim.dim; c++)
            assert_true(bag[c] == bag[0]);
    }
}

/* All slots use the same segment and ids. Slot 0's submission is mutated too. */
static void fill_slot(struct mutator *m, uint32_t number)
{
    const struct op_submission submission = {
        .op = (uint32_t)atomic_load(&m->fields[0].good),
        .step = FORM_IS(m->aim.form, PUSH_BAGS) || FORM_IS(m->aim.form, PUSH_ROWS) ? 1 : 0,
        .ticket = m->ticket,
        .segment_count = op_segment_bytes(m->aim.form) > 0 ? 1 : 0,
        .segments_offset = op_segment_bytes(m->aim.form) > 0
                               ? client_offset(&m->bad, client_segment(&m->bad, 0))
                               : 0,
    };

    atomic_store(&m->ticket_field->good, m->ticket);
    if (number % FIXTURE_SLOTS == 0)
        field_put(m->ticket_field, m->ticket);
    else
        *client_submission(&m->bad, number) = submission;
}

/* True if the request was served. */
static bool submit_one(struct mutator *m)
{
    const uint32_t number = m->bad.submitted;
    const struct op_completion *done;

    fill_slot(m, number);
    clear_answer(m);
    client_publish(&m->bad);
    done = client_wait(&m->bad, number);
    if (done->err != EMBTIER_OK)
        return false;
    m->ticket = 0;
    m->left_one = done->ticket;
    check_answer(m);
    return true;
}

static void submit_until_enough(struct mutator *m)
{
    const uint64_t wanted = mutations_wanted();
    const uint64_t until = now_ns() + AT_LEAST_NS;
    uint32_t served = 0, refused = 0;

    for (uint32_t i = 0;
         i < m->aim.requests_least || now_ns() < until || atomic_load(&m->shared->changes) < wanted;
         i++) {
        if (needs_helpers(m) && i > 0)
            submit_helper(m);
        if (submit_one(m))
            served++;
        else
            refused++;
        if (i % 1024 == 0)
            assert_int_equal(cached_rows(m), 2 * m->aim.rows);
    }
    printf("%s: %u served, %u refused\n", op_form_words(m->aim.form), served, refused);
    assert_true(served > 0);
    assert_true(refused > 0);
}

static void check_table(struct mutator *m, uint64_t table, float value)
{
    for (uint64_t id = 0; id < m->aim.rows; id++) {
        float got = 0;

        assert_int_equal(client_get_one(&m->good, table, id, &got), EMBTIER_OK);
        assert_true(got == value);
    }
}

static enum embtier_optimizer optimizer_of(uint32_t form)
{
    return FORM_IS(form, GET) || FORM_IS(form, SET) ? EMBTIER_OPTIMIZER_ADAGRAD
           : FORM_IS(form, POOL)                    ? EMBTIER_OPTIMIZER_NONE
                                                    : EMBTIER_OPTIMIZER_SGD;
}

static void mutate_requests(struct store_fixture *f, const struct lanes_shape *shape,
                            const struct aim *aim)
{
    static struct mutator m;
    uint8_t *canary;
    pid_t child;

    memset(&m, 0, sizeof(m));
    m.aim = *aim;
    lanes_start(&m.x, f, shape);
    m.shape = (struct form_shape){
        .table = fixture_table(&m.x, "t", aim->rows, aim->dim, optimizer_of(aim->form)),
        .dim = aim->dim,
        .rows = aim->rows,
        .segments = 1,
        .ids = COUNT,
        .bags = BAGS,
    };
    m.other = fixture_table(&m.x, "other", aim->rows, aim->dim, EMBTIER_OPTIMIZER_NONE);
    m.bad = client_attach(&m.x, SLOT_BYTES);
    m.good = client_attach(&m.x, SLOT_BYTES);
    for (uint64_t id = 0; id < aim->rows; id++) {
        assert_int_equal(client_set_one(&m.good, m.shape.table, id, aim->dim, 1), EMBTIER_OK);
        assert_int_equal(client_set_one(&m.good, m.other, id, aim->dim, 2), EMBTIER_OK);
    }
    assert_int_equal(cached_rows(&m), 2 * aim->rows);
    canary = client_rows(&m.good, FIXTURE_SLOTS - 1, COUNT);
    memset(canary, CANARY, SLOT_BYTES / 2);
    m.shared =
        mmap(NULL, sizeof(*m.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m.shared != MAP_FAILED);
    m.fields = m.shared->fields;
    make_request(&m);

    child = other_process(mutate, &m);
    submit_until_enough(&m);
    other_process_end(child);

    for (uint32_t i = 0; i < SLOT_BYTES / 2; i++)
        assert_int_equal(canary[i], CANARY);
    assert_int_equal(cached_rows(&m), 2 * aim->rows);
    check_table(&m, m.shape.table, 1);
    check_table(&m, m.other, 2);
    munmap(m.shared, sizeof(*m.shared));
    client_detach(&m.bad);
    client_detach(&m.good);
    lanes_stop(&m.x);
}

#define FORM(name, ...)                                                                            \
    static void test_what_changes_behind_a_check_of_##name##_is_not_used(void **state)             \
    {                                                                                              \
        const struct aim aim = aim_of(OP_FORM_##name);                                             \
                                                                                                   \
        for (uint32_t s = 0; s < aim.shapes; s++)                                                  \
            mutate_requests(*state, &shapes[s], &aim);                                             \
    }
OP_FORMS(FORM)
#undef FORM

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define FORM(name, ...)                                                                            \
    cmocka_unit_test_setup_teardown(test_what_changes_behind_a_check_of_##name##_is_not_used,      \
                                    fixture_setup, fixture_teardown),
        OP_FORMS(FORM)
#undef FORM
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
