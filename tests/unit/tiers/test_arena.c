/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c: tests that arenas give the memory they promise, and a clear error instead of a
 * signal. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"

/* Returns a node that this process may use: a cpuset may leave out node 0. */
static unsigned permitted_node(void)
{
    FILE *const file = fopen("/proc/self/status", "re");
    unsigned node = 0;
    char line[4096];

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "Mems_allowed_list: %u", &node);
    fclose(file);
    return node;
}

static struct tier_spec spec_of(enum tier_kind kind, const char *path)
{
    struct tier_spec spec = { .name = "warm", .kind = kind, .numa_node = (int)permitted_node() };

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
    assert_int_equal(rmdir(directory), 0); /* the directory is empty although the arena exists */
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
        skip(); /* mounting needs root */
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

/* Returns how many of the slab's pages have memory. */
static uint64_t pages_there(const struct arena *arena, uint64_t slab)
{
    static unsigned char there[ARENA_SLAB_BYTES / 4096];
    const uint64_t pages = ARENA_SLAB_BYTES / (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t count = 0;

    assert_int_equal(
        mincore((char *)arena_base(arena) + slab * ARENA_SLAB_BYTES, ARENA_SLAB_BYTES, there), 0);
    for (uint64_t i = 0; i < pages; i++)
        count += there[i] & 1;
    return count;
}

static void test_slabs_come_and_go(void **state)
{
    static const enum tier_kind kinds[] = { TIER_KIND_DRAM, TIER_KIND_FILE };
    const uint64_t pages = ARENA_SLAB_BYTES / (uint64_t)sysconf(_SC_PAGESIZE);
    struct err_msg msg = { "" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct tier_spec spec = spec_of(kinds[i], "/dev/shm");
        struct arena *arena = NULL;
        enum embtier_err err = arena_new_empty(&spec, UINT64_C(8) << 30, &arena, &msg);
        char *slab;

        if (err == EMBTIER_UNSUPPORTED)
            continue;
        assert_int_equal(err, EMBTIER_OK);
        assert_int_equal(arena_check_available(arena, 4 * MIB, &msg), EMBTIER_OK);
        slab = (char *)arena_base(arena) + 1000 * ARENA_SLAB_BYTES;
        for (uint32_t round = 0; round < 3; round++) {
            assert_int_equal(pages_there(arena, 1000), 0);
            assert_int_equal(arena_fill(arena, 1000, 2, &msg), EMBTIER_OK);
            assert_int_equal(pages_there(arena, 999), 0);
            assert_int_equal(pages_there(arena, 1000), pages);
            assert_int_equal(pages_there(arena, 1001), pages);
            assert_int_equal(slab[1], 0);
            slab[1] = 1;
            slab[ARENA_SLAB_BYTES] = 2;
            assert_int_equal(arena_empty(arena, 1000, 1, &msg), EMBTIER_OK);
            assert_int_equal(pages_there(arena, 1001), pages);
            assert_int_equal(slab[ARENA_SLAB_BYTES], 2);
            assert_int_equal(arena_empty(arena, 1001, 1, &msg), EMBTIER_OK);
        }
        arena_free(arena);
    }
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

/* Prints the set that has only @node as hwloc does: words of 32 bits, the highest first. */
static void print_nodeset(unsigned node, char ret_set[static 256])
{
    size_t length = (size_t)snprintf(ret_set, 256, "%#x", 1U << node % 32);

    for (unsigned word = node / 32; word > 0; word--)
        length += (size_t)snprintf(ret_set + length, 256 - length, ",0x0");
    assert_true(length < 256);
}

/* Makes hwloc see a machine whose only node is @node. Its memory is a DAX device if @is_dax. */
static void show_one_node(unsigned node, bool is_dax)
{
    char path[] = "/tmp/embtier-topology-XXXXXX", set[256];
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    print_nodeset(node, set);
    dprintf(fd,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<topology version=\"2.0\">"
            "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\""
            " allowed_cpuset=\"0x1\" nodeset=\"%s\" complete_nodeset=\"%s\""
            " allowed_nodeset=\"%s\" gp_index=\"1\">"
            "<object type=\"NUMANode\" os_index=\"%u\" cpuset=\"0x1\" complete_cpuset=\"0x1\""
            " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"2\">%s</object>"
            "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\""
            " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"3\"/></object></topology>\n",
            set, set, set, node, set, set,
            is_dax ? "<info name=\"DAXDevice\" value=\"dax0.0\"/>" : "", set, set);
    close(fd);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1); /* hwloc really binds memory */
}

static void show_the_machine(void)
{
    unlink(getenv("HWLOC_XMLFILE"));
    unsetenv("HWLOC_XMLFILE");
    unsetenv("HWLOC_THISSYSTEM");
}

static enum embtier_err new_on_one_node(const struct tier_spec *spec, unsigned node, bool is_dax,
                                        uint64_t bytes, struct arena **ret_arena,
                                        struct err_msg *msg)
{
    enum embtier_err err;

    show_one_node(node, is_dax);
    err = arena_new(spec, bytes, ret_arena, msg);
    show_the_machine();
    return err;
}

static bool binds_memory(void)
{
    struct tier_spec spec = spec_of(TIER_KIND_NUMA, "");
    struct err_msg msg = { "" };
    enum embtier_err err = arena_check(&spec, &msg);

    if (err == EMBTIER_OK)
        return true;
    printf("%s\n", msg.text);
    assert_true(err == EMBTIER_UNSUPPORTED || err == EMBTIER_PERMISSION);
    return false;
}

/* Checks that the kernel has a policy for the page at @base. A page of a library's heap has
 * none. */
static void check_bound(const void *base)
{
    const unsigned long of_address = 2; /* MPOL_F_ADDR of <linux/mempolicy.h> */
    int policy = -1;

    if (syscall(SYS_get_mempolicy, &policy, NULL, 0UL, base, of_address) == 0)
        assert_int_equal(policy, 2); /* MPOL_BIND */
}

/* A node that this process may use plays one of a DAX device. */
static void test_memory_of_dax_devices_is_found_and_usable(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_DAX_KMEM, "");
    struct arena *arena = NULL;
    struct err_msg msg = { "" };

    (void)state;
    if (!binds_memory())
        skip();
    if (new_on_one_node(&spec, permitted_node(), true, 3 * MIB, &arena, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    check_usable(arena, 4 * MIB);
    check_bound(arena_base(arena));
    arena_free(arena);
}

/* Forbids mbind() as the default profile of many containers does. */
static bool forbid_mbind(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { .len = ARRAY_LEN(filter), .filter = filter };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Runs in a child, so that the filter stays there. Exit status: 0 or 1, or 77 without a filter. */
static void check_without_mbind(int error, enum embtier_err expected)
{
    struct tier_spec spec = spec_of(TIER_KIND_NUMA, "");
    struct err_msg msg = { "" };

    if (!forbid_mbind(error))
        _exit(77);
    if (arena_check(&spec, &msg) == expected && strstr(msg.text, strerror(error)) &&
        strstr(msg.text, "container"))
        _exit(0);
    fprintf(stderr, "%s\n", msg.text);
    _exit(1);
}

static void test_a_container_without_mbind_is_told_of_it(void **state)
{
    static const struct {
        int error;
        enum embtier_err expected;
    } cases[] = { { EPERM, EMBTIER_PERMISSION }, { ENOSYS, EMBTIER_UNSUPPORTED } };

    (void)state;
    if (!binds_memory())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0)
            check_without_mbind(cases[i].error, cases[i].expected);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            skip();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void test_nodes_without_a_dax_device_are_none_of_its(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_DAX_KMEM, "");
    struct arena *arena = NULL;
    struct err_msg msg = { "" };

    (void)state;
    if (strcmp(arena_library(), "malloc") == 0)
        skip();
    assert_int_equal(new_on_one_node(&spec, permitted_node(), false, 4 * MIB, &arena, &msg),
                     EMBTIER_UNSUPPORTED);
    assert_non_null(strstr(msg.text, "system-ram mode"));
    assert_null(arena);
}

static void test_memory_that_cannot_be_bound_is_no_other_memory(void **state)
{
    struct tier_spec spec = spec_of(TIER_KIND_NUMA, "");
    struct arena *arena = NULL;
    struct err_msg msg = { "" };

    (void)state;
    if (!binds_memory())
        skip();
    if (access("/sys/devices/system/node/node30", F_OK) == 0)
        skip();
    spec.numa_node = 30;
    assert_int_equal(new_on_one_node(&spec, 30, true, 4 * MIB, &arena, &msg), EMBTIER_NOT_FOUND);
    if (!strstr(msg.text, "cannot bind") || !strstr(msg.text, "NUMA node 30: ") ||
        !strstr(msg.text, "cpuset"))
        fail_msg("%s", msg.text);
    assert_null(arena);
}

static void test_more_than_a_node_has_is_no_memory(void **state)
{
    static const enum tier_kind kinds[] = { TIER_KIND_NUMA, TIER_KIND_DAX_KMEM };

    const unsigned node = permitted_node();
    char path[64], expected[64];

    (void)state;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
    snprintf(expected, sizeof(expected), "NUMA node %u are available", node);
    if (!binds_memory() || access(path, R_OK) != 0)
        skip();
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct tier_spec spec = spec_of(kinds[i], "");
        struct arena *arena = NULL;
        struct err_msg msg = { "" };

        assert_int_equal(new_on_one_node(&spec, node, true, UINT64_C(1) << 45, &arena, &msg),
                         EMBTIER_NO_MEMORY);
        if (!strstr(msg.text, expected))
            fail_msg("%s", msg.text);
        assert_null(arena);
    }
}

static void test_memory_that_is_not_there_is_said_to_be(void **state)
{
    static const char *const kinds[] = {
#define X(name, word, text) word,
        TIER_KIND_TABLE(X)
#undef X
    };
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
    spec.numa_node = (int)permitted_node();
    for (spec.kind = 0; spec.kind < TIER_KIND_COUNT; spec.kind++) {
        if (spec.kind == TIER_KIND_FILE)
            continue;
        err = arena_new(&spec, 4 * MIB, &arena, &msg);
        printf("%s: %s\n", kinds[spec.kind], err == EMBTIER_OK ? "there" : msg.text);
        if (err == EMBTIER_OK) {
            check_usable(arena, 4 * MIB);
            arena_free(arena);
        } else if (err != EMBTIER_UNSUPPORTED) {
            assert_true(spec.kind == TIER_KIND_DRAM_HUGE ? err == EMBTIER_NO_MEMORY
                                                         : err == EMBTIER_PERMISSION);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_starts_on_and_is_whole_slabs),
        cmocka_unit_test(test_a_file_tier_is_mapped_and_leaves_no_name_behind),
        cmocka_unit_test(test_a_missing_directory_is_not_found),
        cmocka_unit_test(test_a_full_file_system_is_no_space_and_no_signal),
        cmocka_unit_test(test_slabs_come_and_go),
        cmocka_unit_test(test_more_than_the_machine_has_is_no_memory),
        cmocka_unit_test(test_memory_of_dax_devices_is_found_and_usable),
        cmocka_unit_test(test_a_container_without_mbind_is_told_of_it),
        cmocka_unit_test(test_nodes_without_a_dax_device_are_none_of_its),
        cmocka_unit_test(test_memory_that_cannot_be_bound_is_no_other_memory),
        cmocka_unit_test(test_more_than_a_node_has_is_no_memory),
        cmocka_unit_test(test_memory_that_is_not_there_is_said_to_be),
    };

    /* Removes the caller's settings: the tests show hwloc other machines, and then the real one. */
    unsetenv("HWLOC_XMLFILE");
    unsetenv("HWLOC_THISSYSTEM");
    unsetenv("HWLOC_SYNTHETIC");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
