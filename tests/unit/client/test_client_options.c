/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every struct of options tells its version, and that the library reads no more of one
 * than it has. */
#include "tests/unit/client/client_fixture.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection.h"

#define BEHIND 16 /* extra bytes of a newer version */

struct call {
    const char *name;
    const char *init;  /* the macro that the message names */
    size_t least;      /* size in the first version */
    size_t bytes;      /* size in this version */
    const void *valid; /* defaults with the size and the required fields only */
    void (*make)(struct fixture *fixture, const void *options);
};

static void make_connect(struct fixture *fixture, const void *options)
{
    struct embtier *server = NULL;

    (void)fixture;
    (void)!embtier_connect(options, &server);
    embtier_disconnect(server);
}

static void make_table(struct fixture *fixture, const void *options)
{
    struct embtier_table *table = NULL;

    (void)!embtier_table_create(fixture->server, options, &table);
    embtier_table_close(table);
}

static void make_load(struct fixture *fixture, const void *options)
{
    struct embtier_load *load = NULL;

    (void)!embtier_load_open(fixture->server, options, 0, UINT64_MAX, &load); /* no such buffer */
    embtier_load_close(load);
}

static void make_checkpoint(struct fixture *fixture, const void *options)
{
    struct embtier_checkpoint_list *list = NULL;

    (void)!embtier_checkpoint_create(fixture->server, options, NULL, NULL, &list);
    embtier_checkpoint_list_free(list);
}

static void make_scan(struct fixture *fixture, const void *options)
{
    struct embtier_scan *scan = NULL;

    (void)!embtier_scan_open(fixture->server, "", options, &scan); /* no such name */
    embtier_scan_close(scan);
}

static void make_export(struct fixture *fixture, const void *options)
{
    (void)!embtier_export(fixture->server, "", "", options, NULL, NULL, NULL);
}

static void make_import(struct fixture *fixture, const void *options)
{
    (void)!embtier_import(fixture->server, NULL, "/nowhere", options, NULL, NULL, NULL);
}

static void make_push(struct fixture *fixture, const void *options)
{
    const struct embtier_part part = { fixture->users, 1 };
    struct embtier_batch *batch = NULL;

    assert_int_equal(embtier_batch_new_push(fixture->server, &part, 1, &batch), EMBTIER_OK);
    (void)!embtier_push(batch, options);
    assert_int_equal(embtier_batch_free(batch), EMBTIER_OK);
}

static void make_group(struct fixture *fixture, const void *options)
{
    struct embtier_group *group = NULL;

    (void)!embtier_group_join(fixture->server, options, &group);
    embtier_group_free(group);
}

static const struct embtier_connect_options connect_options = EMBTIER_CONNECT_OPTIONS_INIT;
static const struct embtier_table_options table_options = EMBTIER_TABLE_OPTIONS_INIT;
static const struct embtier_checkpoint_options checkpoint_options = EMBTIER_CHECKPOINT_OPTIONS_INIT;
static const struct embtier_scan_options scan_options = EMBTIER_SCAN_OPTIONS_INIT;
static const struct embtier_export_options export_options = EMBTIER_EXPORT_OPTIONS_INIT;
static const struct embtier_import_options import_options = EMBTIER_IMPORT_OPTIONS_INIT;
static const struct embtier_push_options push_options = EMBTIER_PUSH_OPTIONS_INIT;
static const struct embtier_group_options group_options = EMBTIER_GROUP_OPTIONS_INIT;

#define CALL(word, WORD, first_bytes, function)                                                    \
    {                                                                                              \
#word, "EMBTIER_" #WORD "_OPTIONS_INIT", first_bytes, sizeof(word##_options),              \
            &word##_options, function                                                              \
    }

static const struct call calls[] = {
    CALL(connect, CONNECT, offsetof(struct embtier_connect_options, client_name), make_connect),
    CALL(table, TABLE, offsetof(struct embtier_table_options, progress), make_table),
    CALL(table, TABLE, offsetof(struct embtier_table_options, progress), make_load),
    CALL(checkpoint, CHECKPOINT, sizeof(checkpoint_options), make_checkpoint),
    CALL(scan, SCAN, sizeof(scan_options), make_scan),
    CALL(export, EXPORT, sizeof(export_options), make_export),
    CALL(import, IMPORT, sizeof(import_options), make_import),
    CALL(push, PUSH, offsetof(struct embtier_push_options, weight_gradients), make_push),
    CALL(group, GROUP, sizeof(group_options), make_group),
};

/* Gives the call options of @bytes bytes, in memory that ends with them, for the address
 * sanitizer. */
static bool is_refused(struct fixture *fixture, const struct call *call, size_t bytes)
{
    const size_t room = MAX(bytes, sizeof(size_t));
    char *const options = calloc(1, room);
    char expected[128];
    const char *message;
    bool refused;

    assert_non_null(options);
    memcpy(options, call->valid, MIN(room, call->bytes));
    memcpy(options, &bytes, sizeof(bytes));
    fixture->server->message = (struct err_msg){ { 0 } };
    call->make(fixture, options);
    message = embtier_message(call->make == make_connect ? NULL : fixture->server);
    snprintf(
        expected, sizeof(expected),
        "%s options: struct_bytes matches no version that this library knows; initialise with %s",
        call->name, call->init);
    refused = strcmp(message, expected) == 0;
    if (!refused)
        assert_null(strstr(message, "struct_bytes"));
    free(options);
    return refused;
}

static void test_options_of_other_versions_are_refused(void **state)
{
    struct fixture *const fixture = *state;

    assert_int_equal(setenv("EMBTIER_SOCKET", "/nowhere/socket", 1), 0);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (size_t bytes = 0; bytes <= calls[i].bytes + BEHIND; bytes++) {
            /* No version ends within a pointer or number. */
            const bool is_known =
                bytes >= calls[i].least && bytes <= calls[i].bytes && bytes % sizeof(uint64_t) == 0;

            if (is_refused(fixture, &calls[i], bytes) == is_known)
                fail_msg("%s, %zu bytes: %s", calls[i].name, bytes, is_known ? "refused" : "taken");
        }
}

/* Each macro sets the size of its own struct, and no version ends with padding. */
static void test_the_macros_tell_the_sizes_of_their_structs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        size_t struct_bytes = 0;

        memcpy(&struct_bytes, calls[i].valid, sizeof(struct_bytes));
        assert_int_equal(struct_bytes, calls[i].bytes);
        assert_int_equal(calls[i].bytes % sizeof(uint64_t), 0);
    }
}

static void test_options_that_may_be_left_out_have_their_defaults(void **state)
{
    struct fixture *const fixture = *state;
    struct embtier_checkpoint_list *list = NULL;

    assert_int_equal(embtier_checkpoint_create(fixture->server, NULL, NULL, NULL, &list),
                     EMBTIER_OK);
    embtier_checkpoint_list_free(list);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        const bool may_be_null = calls[i].make == make_scan || calls[i].make == make_export ||
                                 calls[i].make == make_import || calls[i].make == make_checkpoint ||
                                 calls[i].make == make_connect;

        fixture->server->message = (struct err_msg){ { 0 } };
        calls[i].make(fixture, NULL);
        if (!may_be_null)
            assert_non_null(strstr(embtier_message(fixture->server), calls[i].init));
        else if (calls[i].make != make_connect)
            assert_null(strstr(embtier_message(fixture->server), "struct_bytes"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_options_of_other_versions_are_refused, setup,
                                        teardown),
        cmocka_unit_test(test_the_macros_tell_the_sizes_of_their_structs),
        cmocka_unit_test_setup_teardown(test_options_that_may_be_left_out_have_their_defaults,
                                        setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
