/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_plan, fuzz_profile and fuzz_trace, written by the placement's own code. */
#include "tests/unit/placement/plans/plan_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "placement/plan/plan_file.h"
#include "placement/profile/profile_file.h"
#include "placement/trace/trace_writer.h"
#include "tests/fuzz/seeds/seeds.h"

#define TABLES  2
#define BATCH   20
#define BATCHES 3

static const struct trace_table tables[TABLES] = {
    { "users", UINT64_MAX, 64, EMBTIER_DTYPE_F32 },
    { "items", 0, 16, EMBTIER_DTYPE_BF16 },
};

static char *path_of_file(void)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/file", seed_folder());
    return path;
}

static void seeds_of_plans(void)
{
    struct random random = { 5 };
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < 8; i++) {
        struct plan *const plan = draw_plan(&random, 1 + i % 4, i / 4, 1 + i % 3);
        char name[40];

        snprintf(name, sizeof(name), "plan-%u", i);
        if (plan_file_save(plan, path_of_file(), &msg) != EMBTIER_OK)
            fail_msg("%s", msg.text);
        seed_write_file("fuzz_plan", name, -1, path_of_file());
        plan_free(plan);
    }
}

static void seed_of_profile(void)
{
    struct measured_profile *measured = NULL;
    struct profile *profile = NULL;
    struct random random = { 2 };
    struct err_msg msg = { { 0 } };
    uint64_t ids[BATCH];

    assert_int_equal(profile_new(tables, TABLES, TABLES * MIB, &profile, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < TABLES * BATCHES; i++) {
        const uint32_t bag_ends[] = { BATCH };
        const struct trace_lookups lookups = { .batch = i / TABLES,
                                               .table = i % TABLES,
                                               .is_update = true,
                                               .bag_count = 1,
                                               .id_count = BATCH,
                                               .bag_ends = bag_ends,
                                               .ids = ids };

        for (uint32_t k = 0; k < BATCH; k++)
            ids[k] = random_below(&random, 50 + (uint64_t)i * 10);
        assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
    }
    assert_int_equal(measured_profile_make(profile, tables, &measured), EMBTIER_OK);
    assert_int_equal(profile_file_save(measured, path_of_file(), &msg), EMBTIER_OK);
    seed_write_file("fuzz_profile", "measured", -1, path_of_file());
    measured_profile_free(measured);
    profile_free(profile);
}

/* Puts the second number of the first @numbers in @bytes below the first. The fuzz target mends the
 * checksum. */
static void spoil(uint8_t *bytes, size_t count, const uint32_t numbers[3])
{
    const uint32_t falling[] = { numbers[0], numbers[1] - 1, numbers[2] };
    void *const place = memmem(bytes, count, numbers, sizeof(falling));

    assert_non_null(place);
    memcpy(place, falling, sizeof(falling));
}

/* A trace, and one with a bag that ends before it begins. */
static void write_trace(const uint32_t bag_ends[3])
{
    uint8_t bytes[4096];
    FILE *const file = fopen(path_of_file(), "re");
    const size_t count = file ? fread(bytes, 1, sizeof(bytes), file) : 0;
    struct seed spoiled = { .bytes = NULL };

    assert_true(count > 0 && count < sizeof(bytes));
    fclose(file);
    seed_write_file("fuzz_trace", "two-tables", -1, path_of_file());
    spoil(bytes, count, bag_ends);
    seed_add(&spoiled, bytes, count);
    seed_write(&spoiled, "fuzz_trace", "falling-bags");
}

static void seed_of_trace(void)
{
    static const uint32_t bag_ends[] = { 2, 2, 5 };
    static const uint64_t ids[] = { 1, 2, 3, 1, 9 };
    struct trace_writer *writer = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(trace_writer_new(path_of_file(), tables, TABLES, &writer, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < 4; i++) {
        const struct trace_lookups lookups = { .batch = i / 2,
                                               .table = i % 2,
                                               .is_update = i > 1,
                                               .bag_count = 3,
                                               .id_count = 5,
                                               .bag_ends = bag_ends,
                                               .ids = ids };

        assert_int_equal(trace_writer_add(writer, &lookups, &msg), EMBTIER_OK);
    }
    assert_int_equal(trace_writer_finish(writer, &msg), EMBTIER_OK);
    trace_writer_free(writer);
    write_trace(bag_ends);
}

void seeds_of_placement_files(void)
{
    seeds_of_plans();
    seed_of_profile();
    seed_of_trace();
}
