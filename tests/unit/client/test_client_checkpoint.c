/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the client library reports checkpoints as the server does, and refuses what would cost
 * the session. */
#include "tests/unit/client/client_fixture.h"

#include <string.h>

#include "base/macros.h"

static void count_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    assert_int_equal(done, 4);
    assert_int_equal(total, 8);
    assert_string_equal(unit, "bytes");
    ++*(int *)context;
}

static void assert_alive(struct fixture *fixture)
{
    struct embtier_checkpoint_list *list = NULL;

    assert_int_equal(embtier_checkpoint_list(fixture->server, &list), EMBTIER_OK);
    embtier_checkpoint_list_free(list);
}

static void test_what_is_given_arrives_and_comes_back(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_checkpoint_options options = { .struct_bytes = sizeof(options),
                                                  .has_step = 1,
                                                  .step = UINT64_MAX,
                                                  .metadata = "{\"epoch\":3}",
                                                  .keep = 5 };
    struct embtier_checkpoint_list *list = NULL;
    const struct embtier_checkpoint *checkpoint;
    int reports = 0;

    assert_int_equal(
        embtier_checkpoint_create(fixture->server, &options, count_progress, &reports, &list),
        EMBTIER_OK);
    assert_int_equal(reports, 1);
    assert_int_equal(fixture->fake.keep, 5);
    assert_int_equal(embtier_checkpoint_list_count(list), 1);
    assert_null(embtier_checkpoint_list_at(list, 1));
    checkpoint = embtier_checkpoint_list_at(list, 0);
    assert_int_equal(checkpoint->id, FAKE_CHECKPOINT);
    assert_int_equal(checkpoint->created_ms, 1000 * FAKE_CHECKPOINT + 1);
    assert_false(checkpoint->automatic);
    assert_true(checkpoint->has_step);
    assert_true(checkpoint->step == UINT64_MAX);
    assert_string_equal(checkpoint->metadata, "{\"epoch\":3}");
    assert_int_equal(checkpoint->table_count, 2);
    assert_string_equal(checkpoint->tables[0], "users");
    assert_string_equal(checkpoint->tables[1], "words");
    assert_int_equal(checkpoint->bytes, 2000);
    assert_int_equal(checkpoint->new_bytes, 1000);
    assert_int_equal(checkpoint->pause_us, 250);
    assert_int_equal(checkpoint->tries, 5);
    assert_int_equal(checkpoint->cut_updates, 6);
    assert_int_equal(checkpoint->held_rows, 3);
    assert_int_equal(checkpoint->spent_ms, 40);
    embtier_checkpoint_list_free(list);
}

static void test_what_is_not_given_is_none(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_checkpoint_options options = { .struct_bytes = sizeof(options), .metadata = "" };
    struct embtier_checkpoint_list *list = NULL;

    for (int given = 0; given < 2; given++) {
        assert_int_equal(
            embtier_checkpoint_create(fixture->server, given ? &options : NULL, NULL, NULL, &list),
            EMBTIER_OK);
        assert_false(embtier_checkpoint_list_at(list, 0)->has_step);
        assert_null(embtier_checkpoint_list_at(list, 0)->metadata);
        assert_int_equal(fixture->fake.keep, 0);
        embtier_checkpoint_list_free(list);
    }
    options.has_step = 1; /* step 0 is valid too */
    assert_int_equal(embtier_checkpoint_create(fixture->server, &options, NULL, NULL, &list),
                     EMBTIER_OK);
    assert_true(embtier_checkpoint_list_at(list, 0)->has_step);
    assert_int_equal(embtier_checkpoint_list_at(list, 0)->step, 0);
    embtier_checkpoint_list_free(list);
    embtier_checkpoint_list_free(NULL);
}

static void test_a_list_has_all_without_names_of_tables(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_checkpoint_list *list = NULL;

    assert_int_equal(embtier_checkpoint_list(fixture->server, &list), EMBTIER_OK);
    assert_int_equal(embtier_checkpoint_list_count(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const struct embtier_checkpoint *checkpoint = embtier_checkpoint_list_at(list, i);

        assert_int_equal(checkpoint->id, FAKE_CHECKPOINT - 1 + i);
        assert_int_equal(checkpoint->automatic, i == 0);
        assert_int_equal(checkpoint->table_count, 2);
        assert_null(checkpoint->tables);
    }
    embtier_checkpoint_list_free(list);
}

static void test_one_is_shown_verified_and_deleted_and_others_are_not_found(void **state)
{
    struct fixture *fixture = *state;
    struct embtier *server = fixture->server;
    struct embtier_checkpoint_list *list = NULL;
    int reports = 0;

    assert_int_equal(embtier_checkpoint_show(server, FAKE_CHECKPOINT, &list), EMBTIER_OK);
    assert_string_equal(embtier_checkpoint_list_at(list, 0)->tables[1], "words");
    embtier_checkpoint_list_free(list);
    list = NULL;
    assert_int_equal(embtier_checkpoint_verify(server, FAKE_CHECKPOINT, count_progress, &reports),
                     EMBTIER_OK);
    assert_int_equal(reports, 1);
    assert_int_equal(embtier_checkpoint_delete(server, FAKE_CHECKPOINT), EMBTIER_OK);
    assert_int_equal(fixture->fake.deleted, 1);
    for (uint64_t id = 0; id < 2; id++) {
        assert_int_equal(embtier_checkpoint_show(server, id, &list), EMBTIER_NOT_FOUND);
        assert_int_equal(embtier_checkpoint_verify(server, id, NULL, NULL), EMBTIER_NOT_FOUND);
        assert_int_equal(embtier_checkpoint_delete(server, id), EMBTIER_NOT_FOUND);
        assert_non_null(strstr(embtier_message(server), "there is no "));
    }
    assert_null(list);
    assert_alive(fixture);
}

static void test_metadata_that_would_cost_the_session_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_checkpoint_options options = EMBTIER_CHECKPOINT_OPTIONS_INIT;
    struct embtier_checkpoint_list *list = NULL;
    char metadata[EMBTIER_METADATA_MAX + 2];

    memset(metadata, '1', sizeof(metadata));
    metadata[EMBTIER_METADATA_MAX + 1] = '\0';
    options.metadata = metadata;
    assert_int_equal(embtier_checkpoint_create(fixture->server, &options, NULL, NULL, &list),
                     EMBTIER_INVALID);
    assert_string_equal(embtier_message(fixture->server),
                        "metadata is 4097 bytes long, at most 4096 are allowed");
    options.metadata = "{\n}";
    assert_int_equal(embtier_checkpoint_create(fixture->server, &options, NULL, NULL, &list),
                     EMBTIER_INVALID);
    assert_non_null(strstr(embtier_message(fixture->server), "control character 0x0a"));
    options.metadata = "\"\x7f\"";
    assert_int_equal(embtier_checkpoint_create(fixture->server, &options, NULL, NULL, &list),
                     EMBTIER_INVALID);
    assert_null(list);
    metadata[EMBTIER_METADATA_MAX] = '\0';
    options.metadata = metadata;
    assert_int_equal(embtier_checkpoint_create(fixture->server, &options, NULL, NULL, &list),
                     EMBTIER_OK);
    assert_string_equal(embtier_checkpoint_list_at(list, 0)->metadata, metadata);
    embtier_checkpoint_list_free(list);
}

static void test_restored_tables_come_back_as_a_list_of_tables(void **state)
{
    static const char *const tables[] = { "words", "users" };
    struct fixture *fixture = *state;
    struct embtier *server = fixture->server;
    struct embtier_table_list *list = NULL;
    int reports = 0;

    assert_int_equal(embtier_checkpoint_restore(server, FAKE_CHECKPOINT, NULL, 0, NULL,
                                                count_progress, &reports, &list),
                     EMBTIER_OK);
    assert_int_equal(reports, 1);
    assert_int_equal(embtier_table_list_count(list), 2);
    assert_string_equal(embtier_table_list_at(list, 0)->name, "users");
    assert_string_equal(embtier_table_list_at(list, 1)->name, "words");
    assert_null(embtier_table_list_at(list, 2));
    embtier_table_list_free(list);
    assert_int_equal(
        embtier_checkpoint_restore(server, FAKE_CHECKPOINT, tables, 2, NULL, NULL, NULL, &list),
        EMBTIER_OK);
    assert_int_equal(embtier_table_list_count(list), 2);
    assert_string_equal(embtier_table_list_at(list, 0)->name, "words");
    embtier_table_list_free(list);
    assert_int_equal(embtier_checkpoint_restore(server, FAKE_CHECKPOINT, tables, 1, "words.old",
                                                NULL, NULL, &list),
                     EMBTIER_OK);
    assert_int_equal(embtier_table_list_count(list), 1);
    assert_string_equal(embtier_table_list_at(list, 0)->name, "words.old");
    assert_true(embtier_table_list_at(list, 0)->rows == EMBTIER_UNBOUNDED);
    assert_int_equal(embtier_table_list_at(list, 0)->dim, 2);
    assert_string_equal(embtier_table_list_at(list, 0)->state, "live");
    embtier_table_list_free(list);
    assert_int_equal(fixture->fake.restores, 3);
}

static void test_all_restored_tables_are_told_though_the_checkpoint_is_deleted_then(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_list *list = NULL;

    fixture->fake.gone_restored = true;
    assert_int_equal(embtier_checkpoint_restore(fixture->server, FAKE_CHECKPOINT, NULL, 0, NULL,
                                                NULL, NULL, &list),
                     EMBTIER_OK);
    assert_true(embtier_table_list_count(list) >= 2);
    assert_string_equal(embtier_table_list_at(list, 0)->name, "users");
    embtier_table_list_free(list);
    assert_int_equal(fixture->fake.restores, 1);
    assert_alive(fixture);
}

static void test_what_cannot_be_restored_makes_no_list(void **state)
{
    static const char *const unknown[] = { "users", "none" };
    struct fixture *fixture = *state;
    struct embtier *server = fixture->server;
    struct embtier_table_list *list = NULL;

    for (uint64_t id = 0; id < 2; id++) {
        assert_int_equal(embtier_checkpoint_restore(server, id, NULL, 0, NULL, NULL, NULL, &list),
                         EMBTIER_NOT_FOUND);
        assert_non_null(strstr(embtier_message(server), "there is no "));
    }
    assert_int_equal(
        embtier_checkpoint_restore(server, FAKE_CHECKPOINT, unknown, 2, NULL, NULL, NULL, &list),
        EMBTIER_NO_TABLE);
    assert_null(list);
    assert_alive(fixture);
}

static void test_names_to_restore_that_would_cost_the_session_are_refused(void **state)
{
    static const char *const two[] = { "users", "words" };
    static const char *const wrong[] = { "", "a b", ".hidden", "line\nbreak", NULL };
    struct fixture *fixture = *state;
    struct embtier *server = fixture->server;
    struct embtier_table_list *list = NULL;

    assert_int_equal(
        embtier_checkpoint_restore(server, FAKE_CHECKPOINT, two, 2, "both", NULL, NULL, &list),
        EMBTIER_INVALID);
    assert_string_equal(embtier_message(server), "a new name needs exactly one named table, not 2");
    assert_int_equal(
        embtier_checkpoint_restore(server, FAKE_CHECKPOINT, NULL, 0, "all", NULL, NULL, &list),
        EMBTIER_INVALID);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(embtier_checkpoint_restore(server, FAKE_CHECKPOINT, &wrong[i], 1, NULL,
                                                    NULL, NULL, &list),
                         EMBTIER_INVALID);
    for (size_t i = 0; wrong[i]; i++) /* NULL keeps the old name */
        assert_int_equal(embtier_checkpoint_restore(server, FAKE_CHECKPOINT, two, 1, wrong[i], NULL,
                                                    NULL, &list),
                         EMBTIER_INVALID);
    assert_null(list);
    assert_int_equal(fixture->fake.restores, 0);
    assert_alive(fixture);
}

static void test_a_server_that_answers_something_else_is_found_out(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_list *tables = NULL;
    struct embtier_checkpoint_list *list = NULL;

    fixture->fake.unnamed_tables = true;
    assert_int_equal(embtier_checkpoint_show(fixture->server, FAKE_CHECKPOINT, &list),
                     EMBTIER_PROTOCOL);
    assert_string_equal(embtier_message(fixture->server),
                        "the server named 0 tables of a checkpoint that has 2");
    fixture->fake.wrong_reply = true;
    assert_int_equal(embtier_checkpoint_show(fixture->server, FAKE_CHECKPOINT, &list),
                     EMBTIER_PROTOCOL);
    assert_int_equal(embtier_checkpoint_create(fixture->server, NULL, NULL, NULL, &list),
                     EMBTIER_PROTOCOL);
    assert_int_equal(embtier_checkpoint_list(fixture->server, &list), EMBTIER_PROTOCOL);
    assert_null(list);
    assert_int_equal(embtier_checkpoint_restore(fixture->server, FAKE_CHECKPOINT, NULL, 0, NULL,
                                                NULL, NULL, &tables),
                     EMBTIER_PROTOCOL);
    assert_null(tables);
}

static void test_a_list_without_an_end_is_found_out(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_table_list *tables = NULL;
    struct embtier_checkpoint_list *list = NULL;

    fixture->fake.endless_lists = true;
    assert_int_equal(embtier_checkpoint_list(fixture->server, &list), EMBTIER_PROTOCOL);
    assert_non_null(strstr(embtier_message(fixture->server), "sent none of it"));
    assert_null(list);
    assert_int_not_equal(embtier_checkpoint_restore(fixture->server, FAKE_CHECKPOINT, NULL, 0, NULL,
                                                    NULL, NULL, &tables),
                         EMBTIER_OK);
    assert_null(tables);
    fixture->fake.endless_lists = false;
    assert_int_equal(embtier_checkpoint_list(fixture->server, &list), EMBTIER_OK);
    assert_int_equal(embtier_checkpoint_list_count(list), 2);
    embtier_checkpoint_list_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_given_arrives_and_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_given_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_list_has_all_without_names_of_tables, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_one_is_shown_verified_and_deleted_and_others_are_not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metadata_that_would_cost_the_session_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_restored_tables_come_back_as_a_list_of_tables, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_all_restored_tables_are_told_though_the_checkpoint_is_deleted_then, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_restored_makes_no_list, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_names_to_restore_that_would_cost_the_session_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_server_that_answers_something_else_is_found_out,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_list_without_an_end_is_found_out, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
