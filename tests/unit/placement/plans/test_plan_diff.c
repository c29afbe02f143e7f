/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_diff.c: are the moves between two plans those that looking at each row gives? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>

#include "placement/plan/plan_diff.h"
#include "tests/unit/placement/plans/plan_fixture.h"

#define NAMES 12
#define ROWS  30

/* Makes small tables whose parts end at random rows, so that each row can be looked at. A plan has
 * a part of the names. */
static struct plan *draw_small_plan(struct random *random)
{
    struct plan *const plan = draw_plan(random, 1 + (uint32_t)random_below(random, NAMES), 2,
                                        (uint32_t)random_below(random, 3));
    const uint32_t skip = (uint32_t)random_below(random, 3);

    for (uint32_t i = 0; i < plan->memory_count; i++)
        plan->memories[i].array_bytes = 0;
    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct plan_table *const table = &plan->tables[i];
        const bool is_unbounded = table->rows == EMBTIER_UNBOUNDED;

        snprintf(table->name, sizeof(table->name), "t%" PRIu32, i + skip);
        table->dim = (uint32_t)(1 + random_below(random, 16) / 15);
        table->dtype = EMBTIER_DTYPE_F32;
        table->optimizer = EMBTIER_OPTIMIZER_SGD;
        table->rows = 0;
        for (uint32_t k = 0; k < table->part_count; k++) {
            struct plan_part *const part = &table->parts[k];
            const bool is_last = k + 1 == table->part_count;

            part->rows = is_last ? ROWS - table->rows : 1 + random_below(random, 4);
            if (part->home != PLAN_CACHE)
                part->bytes = part->rows * plan_row_bytes(table);
            plan->memories[plan_memory_of(plan, part)].array_bytes += part->bytes;
            table->rows += part->rows;
        }
        if (is_unbounded)
            table->rows = table->parts[table->part_count - 1].rows = 0;
    }
    for (uint32_t i = 0; i < plan->memory_count; i++)
        plan->memories[i].capacity_bytes =
            plan->memories[i].array_bytes + plan->memories[i].cache_bytes;
    return plan;
}

/* The memory of row @row; the rest of an unbounded table is rows too. */
static const struct plan_memory *memory_of_row(const struct plan *plan,
                                               const struct plan_table *table, uint64_t row)
{
    uint32_t i = 0;

    while (table->parts[i].rows > 0 && row >= table->parts[i].rows)
        row -= table->parts[i++].rows;
    return &plan->memories[plan_memory_of(plan, &table->parts[i])];
}

static bool is_same_memory(const struct plan_memory *a, const struct plan_memory *b)
{
    return a->gpu == b->gpu && strcmp(a->name, b->name) == 0;
}

static const struct plan_table *find(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->table_count; i++)
        if (strcmp(plan->tables[i].name, name) == 0)
            return &plan->tables[i];
    return NULL;
}

static uint64_t rows_moved(const struct plan *before, const struct plan *after,
                           const struct plan_table *a, const struct plan_table *b)
{
    uint64_t rows = 0;

    for (uint64_t row = 0; row < ROWS; row++)
        rows += !is_same_memory(memory_of_row(before, a, row), memory_of_row(after, b, row));
    return rows;
}

static const struct plan_table_diff *find_diff(const struct plan_diff *diff, const char *name)
{
    for (uint32_t i = 0; i < diff->table_count; i++)
        if ((diff->tables[i].before && strcmp(diff->tables[i].before->name, name) == 0) ||
            (diff->tables[i].after && strcmp(diff->tables[i].after->name, name) == 0))
            return &diff->tables[i];
    return NULL;
}

/* Returns 1 if the table is the same in both plans. */
static uint32_t compare_table(const struct plan *before, const struct plan *after,
                              const struct plan_diff *diff, const char *name)
{
    const struct plan_table *const a = find(before, name), *const b = find(after, name);
    const struct plan_table_diff *const found = find_diff(diff, name);

    if (found) {
        assert_ptr_equal(found->before, a);
        assert_ptr_equal(found->after, b);
    }
    if (!a || !b) {
        assert_int_equal(found != NULL, a || b);
        if (found)
            assert_int_equal(found->change, a ? PLAN_DROPPED : PLAN_ADDED);
        return 0;
    }
    if (a->rows != b->rows || a->dim != b->dim) {
        assert_true(found && found->change == PLAN_ALTERED);
        return 0;
    }
    if (rows_moved(before, after, a, b) == 0 && a->gpu == b->gpu) {
        assert_null(found);
        return 1;
    }
    if (!found || found->change != PLAN_MOVED)
        fail_msg("%s did not move", name);
    else
        assert_int_equal(found->rows_moved, rows_moved(before, after, a, b));
    if (found)
        assert_int_equal(found->bytes_moved, found->rows_moved * a->dim * 4);
    return 0;
}

static uint64_t known_rows(const struct plan_table *table)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < table->part_count; i++)
        rows += table->parts[i].rows;
    return rows;
}

/* Bytes of @table's rows in @memory that are not there in @other's plan, or in another table. */
static uint64_t bytes_only_here(const struct plan *plan, const struct plan_table *table,
                                const struct plan *other_plan, const struct plan_memory *memory)
{
    const struct plan_table *const other = find(other_plan, table->name);
    const bool is_same = other && other->rows == table->rows && other->dim == table->dim;
    uint64_t rows = 0;

    for (uint64_t row = 0; row < (is_same ? ROWS : known_rows(table)); row++)
        rows += is_same_memory(memory_of_row(plan, table, row), memory) &&
                (!is_same || !is_same_memory(memory_of_row(other_plan, other, row), memory));
    return rows * table->dim * 4;
}

static uint64_t all_only_here(const struct plan *plan, const struct plan *other,
                              const struct plan_memory *memory)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        bytes += bytes_only_here(plan, &plan->tables[i], other, memory);
    return bytes;
}

static void compare_memories(const struct plan *before, const struct plan *after,
                             const struct plan_diff *diff)
{
    for (uint32_t i = 0; i < diff->memory_count; i++) {
        const struct plan_memory_diff *const memory = &diff->memories[i];
        const struct plan_memory *const any = memory->before ? memory->before : memory->after;

        if (memory->before && memory->after)
            assert_true(is_same_memory(memory->before, memory->after));
        assert_int_equal(memory->out_bytes, all_only_here(before, after, any));
        assert_int_equal(memory->in_bytes, all_only_here(after, before, any));
    }
}

static void test_is_what_each_row_says(void **state)
{
    struct random random = { 21 };

    (void)state;
    for (uint32_t i = 0; i < 500; i++) {
        struct plan *const before = draw_small_plan(&random), *const after =
                                                                  draw_small_plan(&random);
        struct plan_diff *diff = NULL;
        uint32_t same = 0;
        uint64_t rows = 0, bytes = 0;

        assert_int_equal(plan_diff_new(before, after, &diff), EMBTIER_OK);
        for (uint32_t k = 0; k < NAMES + 3; k++) {
            char name[16];

            snprintf(name, sizeof(name), "t%" PRIu32, k);
            same += compare_table(before, after, diff, name);
        }
        assert_int_equal(diff->same_count, same);
        for (uint32_t k = 0; k < diff->table_count; k++) {
            rows += diff->tables[k].rows_moved;
            bytes += diff->tables[k].bytes_moved;
            if (k > 0)
                assert_true(diff->tables[k - 1].bytes_moved >= diff->tables[k].bytes_moved);
        }
        assert_int_equal(diff->rows_moved, rows);
        assert_int_equal(diff->bytes_moved, bytes);
        compare_memories(before, after, diff);
        plan_diff_free(diff);
        plan_free(before);
        plan_free(after);
    }
}

static void test_the_same_plan_moves_nothing(void **state)
{
    struct random random = { 22 };
    _cleanup_(plan_freep) struct plan *plan = draw_plan(&random, 100, 3, 2);
    _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;

    (void)state;
    assert_int_equal(plan_diff_new(plan, plan, &diff), EMBTIER_OK);
    assert_int_equal(diff->table_count, 0);
    assert_int_equal(diff->same_count, 100);
    assert_int_equal(diff->memory_count, plan->memory_count);
    for (uint32_t i = 0; i < diff->memory_count; i++)
        assert_int_equal(diff->memories[i].in_bytes + diff->memories[i].out_bytes, 0);
}

/* A table that all 64-bit ids could fill has more bytes than 64 bits count. */
static void test_bytes_do_not_wrap(void **state)
{
    struct random random = { 23 };
    _cleanup_(plan_freep) struct plan *before = draw_plan(&random, 1, 0, 1);
    _cleanup_(plan_freep) struct plan *after = draw_plan(&random, 1, 0, 1);
    _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;
    struct plan_table table = { .name = "a", .rows = UINT64_MAX, .dim = 8, .part_count = 1 };

    (void)state;
    table.dtype = EMBTIER_DTYPE_F32;
    table.gpu = PLAN_NO_GPU;
    table.parts[0] =
        (struct plan_part){ .home = PLAN_CACHE, .gpu = PLAN_NO_GPU, .rows = UINT64_MAX };
    before->tables[0] = after->tables[0] = table;
    after->tables[0].parts[0].home = PLAN_ARRAY;
    snprintf(after->tables[0].parts[0].tier, sizeof(after->tables[0].parts[0].tier), "tier-0");
    assert_int_equal(plan_diff_new(before, after, &diff), EMBTIER_OK);
    assert_int_equal(diff->rows_moved, UINT64_MAX);
    assert_int_equal(diff->bytes_moved, UINT64_MAX);
    assert_int_equal(diff->memories[0].in_bytes, UINT64_MAX);
    assert_int_equal(diff->memories[1].out_bytes, UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_what_each_row_says),
        cmocka_unit_test(test_the_same_plan_moves_nothing),
        cmocka_unit_test(test_bytes_do_not_wrap),
    };

    return cmocka_run_group_tests_name("plan_diff", tests, NULL, NULL);
}
