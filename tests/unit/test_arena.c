/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c: do arenas give the memory they promise, and a clear error instead of a signal? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/macros.h"
#include "tiers/arena.h"

static struct tier_spec spec_of(enum tier_kind kind, const char *path)
{
    struct tier_spec spec = { .name = "warm", .kind = kind };

    snprintf(spec.path, sizeof(spec.path), "%s", path);
    return spec;
}

static void check_usable(struct arena *arena, uint64_t bytes)
{
    char *base = arena_base(arena);
    char row[1000];

    assert_int_equal(arena_bytes(arena), bytes);
    assert_int_equal((uintptr_t)base % ARENA_SLAB_BYTES, 0);
    for (uint64_t i = 0; i < sizeof(row); i++)
        row[i] = (char)i;
    arena_copy_in(arena, base + 3, row, sizeof(row));
    arena_copy_in(arena, base + bytes - sizeof(row), row, sizeof(row));
    arena_drain(arena);
    assert_memory_equal(base + 3, row, sizeof(row));
    assert_memory_equal(base + bytes - sizeof(row), row, sizeof(row));
}

static void test_memory_starts_on_and_is_whole_slabs(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_DRAM, "");
    struct arena *arena;

    (void)state;
    assert_int_equal(arena_new(&spec, 3 * MIB, &arena, NULL), EMBTIER_OK);
    check_usable(arena, 4 * MIB);
    arena_free(arena);
}

static void skip_without_pmem(enum embtier_err err)
{
    if (err == EMBTIER_UNSUPPORTED)
        skip();
}

static void test_a_file_tier_is_mapped_and_leaves_no_name_behind(void **state)
{
    char directory[] = "/tmp/embtier-arena-XXXXXX";
    struct err_msg msg = { "" };
    struct tier_spec spec;
    struct arena *arena;
    enum embtier_err err;

    (void)state;
    assert_non_null(mkdtemp(directory));
    spec = spec_of(TIER_KIND_FILE, directory);
    err = arena_new(&spec, 6 * MIB, &arena, &msg);
    if (err == EMBTIER_UNSUPPORTED)
        rmdir(directory);
    skip_without_pmem(err);
    assert_int_equal(err, EMBTIER_OK);
    check_usable(arena, 6 * MIB);
    arena_free(arena);
    assert_int_equal(arena_new(&spec, 2 * MIB, &arena, &msg), EMBTIER_OK);
    check_usable(arena, 2 * MIB);
    assert_int_equal(rmdir(directory), 0); /* it is empty, with the arena still there */
    arena_free(arena);
}

static void test_a_missing_directory_is_not_found(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_FILE, "/nowhere/at/all");
    struct arena *arena = NULL;
    struct err_msg msg;
    enum embtier_err err = arena_new(&spec, 4 * MIB, &arena, &msg);

    (void)state;
    skip_without_pmem(err);
    assert_int_equal(err, EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, "/nowhere/at/all"));
    assert_non_null(strstr(msg.text, "warm"));
    assert_null(arena);
}

static void test_a_full_file_system_is_no_space_and_no_signal(void **state)
{
    char directory[] = "/tmp/embtier-arena-XXXXXX";
    enum embtier_err fits, too_large;
    struct tier_spec spec;
    struct arena *arena = NULL, *large = NULL;
    struct err_msg msg = { "" };

    (void)state;
    assert_non_null(mkdtemp(directory));
    if (mount("tmpfs", directory, "tmpfs", 0, "size=16m")) {
        rmdir(directory);
        skip(); /* needs root */
    }
    spec = spec_of(TIER_KIND_FILE, directory);
    too_large = arena_new(&spec, 24 * MIB, &large, &msg);
    fits = arena_new(&spec, 8 * MIB, &arena, NULL);
    if (fits == EMBTIER_OK) {
        check_usable(arena, 8 * MIB);
        arena_free(arena);
    }
    umount(directory);
    rmdir(directory);
    skip_without_pmem(too_large);
    assert_int_equal(too_large, EMBTIER_NO_SPACE);
    assert_non_null(strstr(msg.text, directory));
    assert_null(large);
    assert_int_equal(fits, EMBTIER_OK);
}

static void test_more_than_the_machine_has_is_no_memory(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_DRAM, "");
    struct arena *arena = NULL;
    struct err_msg msg;

    (void)state;
    assert_int_equal(arena_new(&spec, UINT64_C(1) << 45, &arena, &msg), EMBTIER_NO_MEMORY);
    assert_null(arena);
}

static void test_memory_that_is_not_there_is_said_to_be(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_NUMA, "");
    struct arena *arena = NULL;
    struct err_msg msg = { "" };
    enum embtier_err err;

    (void)state;
    spec.numa_node = 1023;
    err = arena_new(&spec, 4 * MIB, &arena, &msg);
    skip_without_pmem(err);
    assert_int_equal(err, EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, "1023"));
    spec.numa_node = 0;
    if (arena_new(&spec, 4 * MIB, &arena, &msg) == EMBTIER_OK) {
        check_usable(arena, 4 * MIB);
        arena_free(arena);
    }
    spec.kind = TIER_KIND_DAX_KMEM;
    err = arena_new(&spec, 4 * MIB, &arena, &msg);
    if (err == EMBTIER_OK)
        arena_free(arena);
    else
        assert_int_equal(err, EMBTIER_UNSUPPORTED);
    spec.kind = TIER_KIND_DRAM_HUGE;
    err = arena_new(&spec, 4 * MIB, &arena, &msg);
    if (err == EMBTIER_OK)
        arena_free(arena);
    else
        assert_true(err == EMBTIER_UNSUPPORTED || err == EMBTIER_NO_MEMORY);
    printf("huge pages: %s\n", err == EMBTIER_OK ? "there" : msg.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_starts_on_and_is_whole_slabs),
        cmocka_unit_test(test_a_file_tier_is_mapped_and_leaves_no_name_behind),
        cmocka_unit_test(test_a_missing_directory_is_not_found),
        cmocka_unit_test(test_a_full_file_system_is_no_space_and_no_signal),
        cmocka_unit_test(test_more_than_the_machine_has_is_no_memory),
        cmocka_unit_test(test_memory_that_is_not_there_is_said_to_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
