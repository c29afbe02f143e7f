/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the table of operations has a row for all that a client can ask for, and that a row
 * which names tables finds them in the message. */
#include "tests/unit/daemon/access/access_fixture.h"

#include "base/macros.h"
#include "daemon/access/operations.h"
#include "proto/control.pb-c.h"
#include "proto/ops.h"

static void test_each_control_message_has_a_row(void **state)
{
    const ProtobufCMessageDescriptor *const request = &embtier__request__descriptor;
    uint32_t bodies = 0;

    (void)state;
    for (unsigned i = 0; i < request->n_fields; i++) {
        const ProtobufCFieldDescriptor *const field = &request->fields[i];
        const struct operation *operation;

        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        operation = operation_of_body(field->id);
        if (!operation) {
            fail_msg("daemon/access/operations.c has no row for %s", field->name);
            return;
        }
        assert_non_null(operation->name);
        assert_true(operation->role < ROLE_COUNT);
        assert_true((operation->relation == RELATION_NAMED) == (operation->table != NULL));
        assert_true(operation->relation != RELATION_SEGMENTS);
        bodies++;
    }
    assert_true(bodies > 30);
    assert_null(operation_of_body(0));
    assert_null(operation_of_body(99999));
}

static void test_each_operation_on_rows_has_a_row(void **state)
{
    (void)state;
#define OP(name_, number)                                                                          \
    {                                                                                              \
        const struct operation *const operation = operation_of_op(number, 0);                      \
                                                                                                   \
        assert_non_null(operation);                                                                \
        assert_string_equal(operation->name, #name_);                                              \
    }
    OP_NUMBERS(OP)
#undef OP
    assert_null(operation_of_op(0, 0));
    assert_null(operation_of_op(OP_LAST + 1, 0));
    assert_null(operation_of_op(UINT32_MAX, 0));
    assert_int_equal(operation_of_op(OP_POOL, 0)->role, ROLE_READ);
    assert_int_equal(operation_of_op(OP_POOL, OP_FLAG_TICKET)->role, ROLE_TRAIN);
    assert_int_equal(operation_of_op(OP_POOL, UINT32_MAX)->role, ROLE_TRAIN);
    assert_int_equal(operation_of_op(OP_GET, OP_FLAG_TICKET)->role, ROLE_READ);
}

/* Only these may be asked for by a user that the file has no more: they end what it has. */
static void test_what_needs_no_role(void **state)
{
    static const uint32_t bodies[] = { EMBTIER__REQUEST__BODY_HELLO,
                                       EMBTIER__REQUEST__BODY_SCAN_CLOSE,
                                       EMBTIER__REQUEST__BODY_LOAD_CLOSE };
    const ProtobufCMessageDescriptor *const request = &embtier__request__descriptor;
    uint32_t found = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        assert_int_equal(operation_of_body(bodies[i])->role, ROLE_NONE);
    for (unsigned i = 0; i < request->n_fields; i++) {
        const struct operation *const operation = operation_of_body(request->fields[i].id);

        found += operation && operation->role == ROLE_NONE;
    }
    assert_int_equal(found, ARRAY_LEN(bodies));
    for (uint32_t op = 1; op <= OP_LAST; op++)
        assert_true((operation_of_op(op, 0)->role == ROLE_NONE) == (op == OP_RELEASE));
}

static const char *table_of(Embtier__Request *request, uint32_t body, uint32_t i)
{
    request->body_case = (Embtier__Request__BodyCase)body;
    return operation_of_body(body)->table(request, i);
}

static void test_names_are_found_in_messages(void **state)
{
    char name[] = "named", first[] = "first", second[] = "second", empty[] = "";
    char *tables[] = { first, second };
    Embtier__TableSpec spec = EMBTIER__TABLE_SPEC__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableCreate create = EMBTIER__TABLE_CREATE__INIT;
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;
    Embtier__TableDrop drop = EMBTIER__TABLE_DROP__INIT;
    Embtier__TableMove move = EMBTIER__TABLE_MOVE__INIT;
    Embtier__ScanOpen scan = EMBTIER__SCAN_OPEN__INIT;
    Embtier__LoadOpen load = EMBTIER__LOAD_OPEN__INIT;
    Embtier__CheckpointRestore restore = EMBTIER__CHECKPOINT_RESTORE__INIT;

    (void)state;
    spec.name = open.name = drop.name = move.name = scan.table = name;
    create.spec = load.spec = &spec;
    request.table_create = &create;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_TABLE_CREATE, 0), name);
    assert_null(table_of(&request, EMBTIER__REQUEST__BODY_TABLE_CREATE, 1));
    request.table_open = &open;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_TABLE_OPEN, 0), name);
    request.table_drop = &drop;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_TABLE_DROP, 0), name);
    request.table_move = &move;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_TABLE_MOVE, 0), name);
    request.scan_open = &scan;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_SCAN_OPEN, 0), name);
    request.load_open = &load;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_LOAD_OPEN, 0), name);
    request.checkpoint_restore = &restore;
    restore.name = empty;
    assert_null(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 0)); /* all */
    restore.n_tables = 2;
    restore.tables = tables;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 1), second);
    assert_null(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 2));
    restore.n_tables = 1;
    restore.name = name;
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 0), first);
    assert_string_equal(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 1), name);
    assert_null(table_of(&request, EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_control_message_has_a_row),
        cmocka_unit_test(test_each_operation_on_rows_has_a_row),
        cmocka_unit_test(test_what_needs_no_role),
        cmocka_unit_test(test_names_are_found_in_messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
