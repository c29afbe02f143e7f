/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a start checks the things outside itself that its configuration names, and reports the
 * line of a missing one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "config/config_load.h"
#include "daemon/budget/budget.h"

/* Makes a directory for each test, which is removed after it. */
static int make_directory(void **state)
{
    char name[] = "/tmp/embtier-test-XXXXXX";

    if (!mkdtemp(name))
        return -1;
    *state = strdup(name);
    setenv("STATE_DIRECTORY", "/nonexistent/embtier", 1);
    setenv("EMBTIER_SOCKET", "/tmp/embtier-test.sock", 1);
    return *state ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[256];

    snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
    free(*state);
    return system(command); // NOLINT(cert-env33-c): our own mkdtemp name
}

/* The available memory of the machine that check() assumes. */
static uint64_t available_bytes;

/* Parses @format, with the test's directory for every "%s", and checks it against the machine. */
static enum embtier_err check(const char *directory, const char *format, struct err_msg *msg)
{
    const struct machine machine = { .memory_bytes = 8 * GIB,
                                     .available_bytes = available_bytes,
                                     .core_count = 2 };
    _cleanup_(config_freep) struct config *config = NULL;
    char text[2048];
    size_t used = 0;

    for (const char *at = format; *at; at++) {
        if (at[0] == '%' && at[1] == 's') {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", directory);
            at++;
        } else {
            text[used++] = *at;
        }
    }
    msg->text[0] = '\0';
    if (config_parse("e.yaml", text, used, &machine, budget_unbudgeted, &config, msg) != EMBTIER_OK)
        fail_msg("%s", msg->text);
    TRY(config_check_machine(config, msg));
    return config_check_available(config, msg);
}

static void assert_found(const char *directory, const char *format, const char *begins,
                         const char *holds)
{
    struct err_msg msg;

    assert_int_equal(check(directory, format, &msg), EMBTIER_CONFIG);
    if (strncmp(msg.text, begins, strlen(begins)) != 0 || !strstr(msg.text, holds))
        fail_msg("\n got: %s\nwant: %s ... %s", msg.text, begins, holds);
    assert_non_null(strstr(msg.text, "; allowed: "));
}

static void test_directories_that_are_there_pass(void **state)
{
    struct err_msg msg;

    assert_int_equal(check(*state, "data: {directories: ['%s']}\nsocket: {path: '%s/s'}\n", &msg),
                     EMBTIER_OK);
}

static void test_named_directory_must_exist(void **state)
{
    char path[128];
    FILE *file;

    assert_found(*state, "data:\n  directories:\n  - %s\n  - %s/b\n",
                 "e.yaml:4: data.directories[1]: `", "No such file or directory");
    snprintf(path, sizeof(path), "%s/file", (char *)*state);
    file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
    assert_found(*state, "data:\n  directories:\n  - %s/file\n", "e.yaml:3: data.directories[0]: `",
                 "Not a directory");
    assert_found(*state, "data: {directories: ['%s']}\nsocket: {path: %s/no/s}\n",
                 "e.yaml:2: socket.path: `", "No such file or directory");
    assert_found(*state, "data: {directories: ['%s']}\nsocket: {path: %s/file}\n",
                 "e.yaml:2: socket.path: `", "exists and is not a socket");
}

static void test_directory_must_be_writable(void **state)
{
    const uid_t before = geteuid();
    struct err_msg msg;
    enum embtier_err err;

    assert_int_equal(chmod(*state, 0555), 0);
    if (before == 0)
        assert_int_equal(seteuid(65534), 0); /* root may write anywhere */
    err = check(*state, "data: {directories: ['%s']}\n", &msg);
    if (before == 0)
        assert_int_equal(seteuid(before), 0);
    assert_int_equal(chmod(*state, 0755), 0);
    assert_int_equal(err, EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "Permission denied"));
}

static void test_one_directory_by_two_names_is_told(void **state)
{
    char link_path[128];

    snprintf(link_path, sizeof(link_path), "%s/link", (char *)*state);
    assert_int_equal(symlink(*state, link_path), 0);
    assert_found(*state, "data:\n  directories:\n  - %s\n  - %s/link\n",
                 "e.yaml:4: data.directories[1]: `",
                 "is the same directory as data.directories[0]");
}

static void test_default_directories_are_made(void **state)
{
    char path[128];
    struct err_msg msg;
    struct stat info;

    snprintf(path, sizeof(path), "%s/state/embtier", (char *)*state);
    setenv("STATE_DIRECTORY", path, 1);
    snprintf(path, sizeof(path), "%s/run/embtier/s", (char *)*state);
    setenv("EMBTIER_SOCKET", path, 1);
    if (check(*state, "", &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    snprintf(path, sizeof(path), "%s/state/embtier", (char *)*state);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    snprintf(path, sizeof(path), "%s/run/embtier", (char *)*state);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(check(*state, "", &msg), EMBTIER_OK); /* the directory may already exist */
}

/* A store in the default directory may have got others, which are nobody's to make. */
static void test_a_directory_that_was_added_to_the_default_is_not_made(void **state)
{
    const struct machine machine = { .memory_bytes = 8 * GIB, .core_count = 2 };
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    char path[128], **more;
    struct stat info;

    snprintf(path, sizeof(path), "%s/state/embtier", (char *)*state);
    setenv("STATE_DIRECTORY", path, 1);
    snprintf(path, sizeof(path), "%s/added", (char *)*state);
    assert_int_equal(config_parse("e.yaml", "", 0, &machine, budget_unbudgeted, &config, &msg),
                     EMBTIER_OK);
    more = realloc(config->data.directories, 2 * sizeof(*more));
    assert_non_null(more);
    config->data.directories = more;
    more[1] = strdup(path);
    config->data.directory_count = 2;
    assert_int_equal(config_check_machine(config, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "No such file or directory"));
    assert_int_not_equal(stat(path, &info), 0);
}

static void test_tier_path_must_be_there_and_hold_the_tier(void **state)
{
    assert_found(*state,
                 "data: {directories: ['%s']}\ncache:\n  tiers:\n  - {bytes: 8MiB}\n"
                 "  - kind: file\n    bytes: 8MiB\n    path: %s/no\n",
                 "e.yaml:7: cache.tiers[1].path: `", "No such file or directory");
    assert_found(*state,
                 "data: {directories: ['%s']}\ncache:\n  tiers:\n  - {bytes: 8MiB}\n"
                 "  - kind: file\n    bytes: 16000TiB\n    path: %s\n",
                 "e.yaml:7: cache.tiers[1].path: the file system of `", "its tiers are 16000TiB");
}

static void test_tier_on_tmpfs_counts_as_memory(void **state)
{
    struct statfs fs;

    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
        (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < 48 * MIB || access("/dev/shm", W_OK) != 0)
        skip();
    /* A machine of 8 GiB, all but 32 MiB of it given away. */
    assert_found(*state,
                 "data: {directories: ['%s']}\n"
                 "socket: {max_total_arena_bytes: 3GiB}\n"
                 "cache:\n  tiers:\n  - {bytes: 4136MiB}\n"
                 "  - {kind: file, bytes: 40MiB, path: /dev/shm}\n",
                 "e.yaml:5: cache.tiers[0].bytes: all memory together", "the machine's 8GiB");
}

static void test_numa_node_and_huge_pages_must_be_there(void **state)
{
    if (access("/sys/devices/system/node", F_OK) == 0)
        assert_found(*state,
                     "data: {directories: ['%s']}\ncache:\n  tiers:\n  - {bytes: 8MiB}\n"
                     "  - kind: numa\n    bytes: 8MiB\n    numa_node: 1023\n",
                     "e.yaml:7: cache.tiers[1].numa_node: there is no NUMA node 1023", "allowed");
    if (access("/sys/kernel/mm/hugepages", F_OK) == 0)
        assert_found(*state,
                     "data: {directories: ['%s']}\nsocket: {max_total_arena_bytes: 64KiB}\n"
                     "cache:\n  tiers:\n  - {kind: dram_huge, bytes: 7GiB}\n",
                     "e.yaml:5: cache.tiers[0].bytes: 7GiB of huge pages", "vm.nr_hugepages");
}

/* Returns the least available memory, in MiB, with which a start succeeds. */
static uint64_t wanted_mib(const char *directory, const char *format)
{
    struct err_msg msg;

    for (available_bytes = MIB; check(directory, format, &msg) != EMBTIER_OK;)
        available_bytes += MIB;
    available_bytes -= 1;
    assert_int_equal(check(directory, format, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "a start reserves "));
    return (available_bytes + 1) / MIB;
}

/* The sum counts all memory that a start touches before it serves: the kernel kills a process that
 * touches more than there is. */
static void test_what_a_start_reserves_must_be_available(void **state)
{
#define START(more, tiers, request, ticket, queue)                                                 \
    "data: {directories: ['%s']}\nlanes:\n  count: 2\n  request_bytes: " request                   \
    "\n  ticket_bytes: " ticket "\n  write_queue_bytes: " queue "\n" more                          \
    "socket: {max_total_arena_bytes: 64MiB}\ncache:\n  tiers:\n  - {bytes: 64MiB}\n" tiers
    static const char base[] = START("", "", "64MiB", "32MiB", "64MiB");
    const uint64_t least = wanted_mib(*state, base);

    assert_in_range(least, 64 + 64 + 32 + 64 + 12,
                    64 + 64 + 32 + 64 + 60); /* the lanes have the rest */
    assert_int_equal(wanted_mib(*state, START("", "", "364MiB", "32MiB", "64MiB")), least + 300);
    assert_int_equal(wanted_mib(*state, START("", "  - {name: b, kind: dram, bytes: 100MiB}\n",
                                              "64MiB", "32MiB", "64MiB")),
                     least + 100);
    assert_in_range(wanted_mib(*state, START("", "", "64MiB", "32MiB", "164MiB")), least + 100,
                    least + 110);
    /* The casters too: each has room for the largest ticket. */
    assert_in_range(wanted_mib(*state, START("", "", "64MiB", "48MiB", "64MiB")), least + 16,
                    least + 60);
    assert_in_range(
        wanted_mib(*state, START("  readers_per_lane: 60\n", "", "64MiB", "32MiB", "64MiB")),
        least + 20, least + 80);
    available_bytes = 0; /* unknown */
}

static void test_the_key_that_takes_most_is_named(void **state)
{
    available_bytes = 3 * GIB;
    assert_found(
        *state, START("", "", "4GiB", "32MiB", "64MiB"),
        "e.yaml:4: lanes.request_bytes: a start reserves 4310MiB (tiers 64MiB, requests 4GiB",
        "the 3GiB available now");
    available_bytes = 0;
}

int main(void)
{
#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        WITH_DIRECTORY(test_directories_that_are_there_pass),
        WITH_DIRECTORY(test_named_directory_must_exist),
        WITH_DIRECTORY(test_directory_must_be_writable),
        WITH_DIRECTORY(test_one_directory_by_two_names_is_told),
        WITH_DIRECTORY(test_default_directories_are_made),
        WITH_DIRECTORY(test_a_directory_that_was_added_to_the_default_is_not_made),
        WITH_DIRECTORY(test_tier_path_must_be_there_and_hold_the_tier),
        WITH_DIRECTORY(test_tier_on_tmpfs_counts_as_memory),
        WITH_DIRECTORY(test_what_a_start_reserves_must_be_available),
        WITH_DIRECTORY(test_the_key_that_takes_most_is_named),
        WITH_DIRECTORY(test_numa_node_and_huge_pages_must_be_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
