/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a pooled lookup gives the sum, mean or maximum of its bags' rows, to the bit and in
 * the order of the ids. The number of lanes, the place of the rows and the cut into waves must not
 * matter. */
#include "tests/unit/engine/ops/pooled_fixture.h"

#include "kernels/cpu/cast/dtype.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Returns the weight that column @c of row @id is set to. Every third row is never set. */
static float weight_of(uint64_t id, uint32_t c)
{
    if (id % 3 == 0)
        return 0.5f;
    return (float)((int64_t)((id * 2654435761u + c * 40503u) % 20011) - 10005) * 1.37e-3f;
}

static void set_rows(struct pooling *p, uint64_t table)
{
    enum { BATCH = 2000 };

    for (uint64_t first = 0; first < ROWS; first += BATCH) {
        const uint32_t number = p->client.submitted;
        float *const rows = (float *)client_rows(&p->client, number, BATCH);
        uint32_t count = 0;

        for (uint64_t id = first; id < first + BATCH; id++) {
            if (id % 3 == 0)
                continue;
            client_ids(&p->client, number)[count] = id;
            for (uint32_t c = 0; c < DIM; c++)
                rows[(uint64_t)count * DIM + c] = weight_of(id, c);
            count++;
        }
        /* The rows lie right behind the ids. */
        memmove(client_rows(&p->client, number, count), rows, (size_t)count * DIM * sizeof(float));
        assert_int_equal(
            client_wait(&p->client, client_submit(&p->client, OP_SET, table, count))->err,
            EMBTIER_OK);
    }
}

/* ---- The model ---- */

static float pool(const struct bags *b, uint32_t bag, uint32_t c)
{
    const uint32_t first = b->offsets[bag];
    const uint32_t end = b->offsets[bag + 1];
    float value = 0;

    for (uint32_t i = first; i < end; i++) {
        const float weight = weight_of(b->ids[i], c);

        if (b->mode == EMBTIER_POOL_MAX)
            value = i == first || weight > value ? weight : value;
        else
            value += b->weighted ? b->weights[i] * weight : weight;
    }
    return b->mode == EMBTIER_POOL_MEAN && end > first ? value / (float)(end - first) : value;
}

static void assert_pooled(const struct bags *b, const float *bags)
{
    for (uint32_t bag = 0; bag < b->bag_count; bag++) {
        for (uint32_t c = 0; c < DIM; c++) {
            const float wanted = pool(b, bag, c);

            if (f32_bits(wanted) != f32_bits(bags[(size_t)bag * DIM + c]))
                fail_msg("bag %u column %u is %a, not %a", bag, c,
                         (double)bags[(size_t)bag * DIM + c], (double)wanted);
        }
    }
}

/* Makes bags of all lengths, including none and, now and then, thousands. */
static void make_bags(struct pooling *p, struct bags *b, uint64_t rows, uint32_t bag_count)
{
    b->mode = (enum embtier_pool)(EMBTIER_POOL_SUM + next_random(&p->seed) % 3);
    b->weighted = b->mode != EMBTIER_POOL_MAX && next_random(&p->seed) % 2;
    b->id_count = b->bag_count = 0;
    while (b->bag_count < bag_count) {
        const uint64_t dice = next_random(&p->seed) % 200;
        uint64_t length = dice < 40 ? 0 : dice == 199 ? 6000 : next_random(&p->seed) % 12;

        for (; length > 0 && b->id_count < IDS_MOST; length--) {
            b->weights[b->id_count] = (float)(next_random(&p->seed) % 1000) * 0.01f - 5;
            b->ids[b->id_count++] = next_random(&p->seed) % rows;
        }
        b->offsets[++b->bag_count] = b->id_count;
    }
}

/* ---- Tests ---- */

static void test_bags_are_pooled_in_the_order_of_their_ids(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pooling p;
        uint64_t unbounded; /* never has a map */

        pooling_start(&p, *state, &shapes[s]);
        unbounded =
            fixture_table(&p.x, "unbounded", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE);
        set_rows(&p, p.table);
        set_rows(&p, unbounded);
        lanes_write_back(&p.x); /* a read row is not cached when only dirty rows could make room */
        for (uint32_t i = 0; i < 40; i++) {
            /* With few rows, all are cached. With many, most are on SSD. */
            const uint64_t rows = i % 2 ? ROWS : 500;
            const struct op_pool_segment *segments;
            const struct op_completion *done;

            make_bags(&p, &p.bags[0], rows, i % 4 ? 1 + i * 10 : BAGS_MOST);
            make_bags(&p, &p.bags[1], rows, i % 5);
            p.bags[1].table = i % 3 ? unbounded : p.table;
            segments = lay_bags_out(&p, p.bags, 2);
            done = client_wait(&p.client, submit(&p));
            assert_int_equal(done->err, EMBTIER_OK);
            assert_pooled(&p.bags[0], bags_at(&p, &segments[0]));
            assert_pooled(&p.bags[1], bags_at(&p, &segments[1]));
            assert_true(done->hit_rows <= p.bags[0].id_count + p.bags[1].id_count);
            if (rows == 500 && i > 0)
                assert_true(done->hit_rows > 0);
        }
        pooling_stop(&p);
    }
}

/* A bag spans several waves. The first has rows that must be read; the others are all cached, and
 * must not be added up before it. Another session's lookup takes turns with this one, so the first
 * wave has been looked up when the next is taken. */
static void test_waves_that_share_a_bag_are_added_up_in_their_order(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        enum { HOT = 100, IDS = 2 * WAVE_IDS + 500 };
        struct pooling p, other;

        pooling_start(&p, *state, &shapes[s]);
        set_rows(&p, p.table);
        other = p;
        other.client = client_attach(&p.x, SLOT_BYTES);
        p.bags[1] = (struct bags){ .mode = EMBTIER_POOL_MAX, .id_count = IDS_MOST, .bag_count = 1 };
        p.bags[1].offsets[1] = IDS_MOST;
        for (uint32_t round = 0; round < rounds_of(100); round++) {
            struct bags *const b = &p.bags[0];
            const struct op_pool_segment *segments;
            uint32_t others;

            *b = (struct bags){ .mode = (enum embtier_pool)(EMBTIER_POOL_SUM + round % 3),
                                .id_count = IDS,
                                .bag_count = 2 };
            for (uint32_t i = 0; i < IDS; i++)
                b->ids[i] = i % HOT;
            for (uint32_t i = 0; i < 20; i++)
                b->ids[next_random(&p.seed) % WAVE_IDS] = next_random(&p.seed) % ROWS;
            b->offsets[1] = next_random(&p.seed) % 3;
            b->offsets[2] = IDS;
            lay_bags_out(&other, &p.bags[1], 1);
            others = submit(&other);
            segments = lay_bags_out(&p, b, 1);
            assert_int_equal(client_wait(&p.client, submit(&p))->err, EMBTIER_OK);
            assert_pooled(b, bags_at(&p, segments));
            assert_int_equal(client_wait(&other.client, others)->err, EMBTIER_OK);
        }
        client_detach(&other.client);
        pooling_stop(&p);
    }
}

static void test_a_lookup_sees_what_its_session_has_set_before(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pooling p;

        pooling_start(&p, *state, &shapes[s]);
        set_rows(&p, p.table);
        for (uint32_t round = 1; round <= 200; round++) {
            const uint64_t id = next_random(&p.seed) % ROWS;
            const uint32_t set = p.client.submitted;
            const struct op_pool_segment *segments;
            uint32_t get;

            client_ids(&p.client, set)[0] = id;
            for (uint32_t c = 0; c < DIM; c++)
                ((float *)client_rows(&p.client, set, 1))[c] = (float)round;
            client_submit(&p.client, OP_SET, p.table, 1);
            p.bags[0] = (struct bags){ .mode = EMBTIER_POOL_SUM, .id_count = 2, .bag_count = 1 };
            p.bags[0].ids[0] = p.bags[0].ids[1] = id;
            p.bags[0].offsets[1] = 2;
            segments = lay_bags_out(&p, p.bags, 1);
            get = submit(&p);
            assert_int_equal(client_wait(&p.client, get)->err, EMBTIER_OK);
            assert_true(bags_at(&p, segments)[DIM - 1] == 2 * (float)round);
            assert_int_equal(client_wait(&p.client, set)->err, EMBTIER_OK);
        }
        pooling_stop(&p);
    }
}

/* Submits up to four SETs of hot rows, as free slots allow, each with its own number. */
static void set_some(struct pooling *p, struct client *writer, uint32_t *done, uint32_t rows)
{
    while (*done != writer->submitted && client_is_done(writer, *done))
        (*done)++;
    for (uint32_t i = 0; i < 4 && writer->submitted - *done < FIXTURE_SLOTS; i++) {
        const uint32_t set = writer->submitted;

        *client_ids(writer, set) = next_random(&p->seed) % rows;
        for (uint32_t c = 0; c < DIM; c++)
            ((float *)client_rows(writer, set, 1))[c] = (float)set;
        client_submit(writer, OP_SET, p->table, 1);
    }
}

/* Every SET gives all numbers of a row one value. A row that changes or moves during a lookup must
 * still be one of its values. */
static void test_rows_that_change_meanwhile_are_whole(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        enum { HOT = 64, BAGS = 2000 };
        struct pooling p;
        struct client writer;
        uint32_t done;

        pooling_start(&p, *state, &shapes[s]);
        set_rows(&p, p.table);
        writer = client_attach(&p.x, 1 * MIB);
        for (uint32_t id = 0; id < HOT; id++)
            assert_int_equal(client_set_one(&writer, p.table, id, DIM, 0), EMBTIER_OK);
        done = writer.submitted;
        p.bags[0] = (struct bags){ .mode = EMBTIER_POOL_SUM, .id_count = BAGS, .bag_count = BAGS };
        for (uint32_t i = 0; i < BAGS; i++) {
            p.bags[0].ids[i] = next_random(&p.seed) % HOT;
            p.bags[0].offsets[i + 1] = i + 1;
        }
        for (uint32_t round = 0; round < rounds_of(500); round++) {
            const struct op_pool_segment *const segments = lay_bags_out(&p, p.bags, 1);
            uint32_t number;

            set_some(&p, &writer, &done, HOT);
            number = submit(&p);
            do
                set_some(&p, &writer, &done, HOT);
            while (!client_is_done(&p.client, number));
            for (uint32_t i = 0; i < BAGS; i++)
                for (uint32_t c = 1; c < DIM; c++)
                    assert_true(bags_at(&p, segments)[i * DIM + c] ==
                                bags_at(&p, segments)[i * DIM]);
        }
        for (; done != writer.submitted; done++)
            client_wait(&writer, done);
        client_detach(&writer);
        pooling_stop(&p);
    }
}

static void test_many_lookups_in_flight_and_a_client_that_leaves(void **state)
{
    for (size_t s = SHAPES_FIRST; s < ARRAY_LEN(shapes); s += SHAPES_STEP) {
        struct pooling p;

        pooling_start(&p, *state, &shapes[s]);
        set_rows(&p, p.table);
        make_bags(&p, &p.bags[0], ROWS, BAGS_MOST);
        for (uint32_t round = 0; round < 4; round++) {
            struct client client = client_attach(&p.x, SLOT_BYTES);
            struct client *const kept = &p.client;
            struct client old = *kept;

            *kept = client;
            for (uint32_t i = 0; i < FIXTURE_SLOTS; i++) {
                lay_bags_out(&p, p.bags, 1);
                submit(&p);
            }
            for (uint32_t i = 0; i < round * 5; i++)
                assert_int_equal(client_wait(kept, i)->err, EMBTIER_OK);
            atomic_store(&kept->session->gone, round % 2 == 0);
            client_detach(kept);
            *kept = old;
        }
        /* All memory has come back: otherwise so many lookups would not be served. */
        for (uint32_t i = 0; i < 20; i++) {
            const struct op_pool_segment *const segments = lay_bags_out(&p, p.bags, 1);

            assert_int_equal(client_wait(&p.client, submit(&p))->err, EMBTIER_OK);
            assert_pooled(&p.bags[0], bags_at(&p, segments));
        }
        pooling_stop(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
        T(test_bags_are_pooled_in_the_order_of_their_ids),
        T(test_waves_that_share_a_bag_are_added_up_in_their_order),
        T(test_a_lookup_sees_what_its_session_has_set_before),
        T(test_rows_that_change_meanwhile_are_whole),
        T(test_many_lookups_in_flight_and_a_client_that_leaves),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
