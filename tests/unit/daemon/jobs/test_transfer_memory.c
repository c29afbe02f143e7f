/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that exports and imports together stay within their memory, that each one's memory is
 * counted in full, and that a refused one learns why. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <string.h>

#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/engine/tables/tables_reserved.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "store/checkpoint/table_scan.h"
#include "store/database/row_format.h"
#include "store/store_reserved.h"

#define THREADS 4
#define TURNS   20000
#define UID     1000 /* most tests use this user only */
#define OTHER   1001

static struct accounts *accounts;

static int make_accounts(void **state)
{
    (void)state;
    return accounts_new(&accounts, NULL) == EMBTIER_OK ? 0 : -1;
}

static int free_accounts(void **state)
{
    (void)state;
    accounts_free(accounts);
    return 0;
}

static struct transfer_memory *memory_new(uint64_t bytes)
{
    struct transfer_memory *memory = NULL;

    assert_int_equal(transfer_memory_new(bytes, accounts, &memory, NULL), EMBTIER_OK);
    return memory;
}

static void test_a_transfer_that_does_not_fit_is_told_how_much_there_is(void **state)
{
    _cleanup_(transfer_memory_freep) struct transfer_memory *memory = memory_new(100 * MIB);
    struct transfer_share first = { 0 }, second = { 0 };
    struct err_msg msg;

    (void)state;
    assert_int_equal(transfer_memory_take(memory, UID, 59 * MIB + 1, "an export", &first, NULL),
                     EMBTIER_OK);
    assert_int_equal(first.bytes, 60 * MIB);
    assert_int_equal(transfer_memory_take(memory, OTHER, 41 * MIB, "an import", &second, &msg),
                     EMBTIER_BUSY);
    assert_int_equal(second.bytes, 0);
    assert_string_equal(
        msg.text, "an import needs 41MiB of memory, and exports and imports already have 60MiB of "
                  "the 100MiB of checkpoints.transfer_bytes: try again when one has ended");
    assert_int_equal(transfer_memory_take(memory, OTHER, 40 * MIB, "an import", &second, NULL),
                     EMBTIER_OK);
    assert_int_equal(transfer_memory_used(memory), 100 * MIB);
    transfer_memory_give(memory, &first);
    assert_int_equal(first.bytes, 0);
    transfer_memory_give(memory, &first); /* holds nothing */
    assert_int_equal(transfer_memory_used(memory), 40 * MIB);
    assert_int_equal(transfer_memory_take(memory, UID, 60 * MIB, "an export", &first, NULL),
                     EMBTIER_OK);
    transfer_memory_give(memory, &first);
    transfer_memory_give(memory, &second);
    assert_int_equal(transfer_memory_used(memory), 0);
}

static void test_what_never_fits_is_not_told_to_try_again(void **state)
{
    _cleanup_(transfer_memory_freep) struct transfer_memory *memory = memory_new(100 * MIB);
    struct transfer_share taken = { 0 };
    struct err_msg msg;

    (void)state;
    assert_int_equal(transfer_memory_take(memory, UID, 100 * MIB + 1, "an export", &taken, &msg),
                     EMBTIER_TOO_LARGE);
    assert_string_equal(msg.text, "an export needs 101MiB of memory, and all exports and imports "
                                  "together may have 100MiB: raise checkpoints.transfer_bytes");
    assert_int_equal(transfer_memory_take(memory, UID, UINT64_MAX, "an export", &taken, &msg),
                     EMBTIER_TOO_LARGE);
    assert_non_null(strstr(msg.text, "an export needs 16777216.00TiB of memory"));
    assert_int_equal(transfer_memory_used(memory), 0);
}

static void test_a_user_that_has_something_leaves_a_quarter_to_others(void **state)
{
    _cleanup_(transfer_memory_freep) struct transfer_memory *memory = memory_new(100 * MIB);
    struct transfer_share shares[4] = { { 0 } };
    struct err_msg msg;

    (void)state;
    assert_int_equal(transfer_memory_take(memory, UID, 50 * MIB, "an export", &shares[0], NULL),
                     EMBTIER_OK);
    assert_int_equal(transfer_memory_take(memory, UID, 26 * MIB, "an export", &shares[1], &msg),
                     EMBTIER_BUSY);
    assert_non_null(strstr(
        msg.text, "transfers of this user already have 50MiB: a user may have three quarters"));
    assert_int_equal(transfer_memory_probe(memory, UID, 26 * MIB, "an export", NULL), EMBTIER_BUSY);
    assert_int_equal(transfer_memory_probe(memory, OTHER, 26 * MIB, "an export", NULL), EMBTIER_OK);
    assert_int_equal(transfer_memory_used(memory), 50 * MIB);
    assert_int_equal(transfer_memory_take(memory, UID, 25 * MIB, "an export", &shares[1], NULL),
                     EMBTIER_OK);
    assert_int_equal(transfer_memory_take(memory, OTHER, 25 * MIB, "an import", &shares[2], NULL),
                     EMBTIER_OK);
    transfer_memory_give(memory, &shares[1]); /* the middle one */
    transfer_memory_give(memory, &shares[0]);
    transfer_memory_give(memory, &shares[2]);
    assert_int_equal(transfer_memory_used(memory), 0);
    /* A user that holds nothing may take everything. */
    assert_int_equal(transfer_memory_take(memory, UID, 100 * MIB, "an export", &shares[3], NULL),
                     EMBTIER_OK);
    transfer_memory_give(memory, &shares[3]);
}

static void *take_and_give(void *context)
{
    struct transfer_memory *const memory = context;
    uint64_t refused = 0;

    for (uint32_t i = 0; i < TURNS; i++) {
        struct transfer_share taken = { 0 };
        const enum embtier_err err =
            transfer_memory_take(memory, UID, (1 + i % 3) * MIB, "a thread", &taken, NULL);

        assert_true(err == EMBTIER_OK || err == EMBTIER_BUSY);
        assert_true(transfer_memory_used(memory) <= 5 * MIB);
        refused += err == EMBTIER_BUSY;
        transfer_memory_give(memory, &taken);
    }
    return (void *)(uintptr_t)refused;
}

static void test_threads_together_have_no_more_either(void **state)
{
    _cleanup_(transfer_memory_freep) struct transfer_memory *memory = memory_new(5 * MIB);
    pthread_t threads[THREADS];

    (void)state;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, memory), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(transfer_memory_used(memory), 0);
}

static void test_rows_that_wait_are_as_many_as_the_configuration_counts(void **state)
{
    const uint64_t longest = STORED_ROW_BYTES_MAX;

    (void)state;
    for (uint32_t shards = 1; shards <= CONFIG_SHARDS_MAX; shards += 1 + shards / 5)
        for (uint64_t row_bytes = 2; row_bytes <= longest; row_bytes += 1 + row_bytes / 7)
            assert_true(row_writer_bytes(shards, row_bytes) <=
                        MAX(ROW_WRITER_MOST, (shards + UINT64_C(3)) * (row_bytes + 64)));
    assert_in_range(row_writer_bytes(8, 2048), 16 * MIB, 24 * MIB);
}

/* A record of two shards, in which each database has a log. */
struct recorded {
    struct checkpoint_file files[4][3];
    struct checkpoint_database databases[4];
    struct checkpoint_record record;
};

static void make_record(struct recorded *r, uint64_t log_bytes)
{
    memset(r, 0, sizeof(*r));
    for (uint32_t i = 0; i < 4; i++) {
        strcpy(r->files[i][0].name, "000007.log");
        r->files[i][0].bytes = log_bytes;
        strcpy(r->files[i][1].name, "000008.sst");
        r->files[i][1].bytes = 99 * GIB;
        r->files[i][1].is_table = true;
        strcpy(r->files[i][2].name, "MANIFEST-000005");
        r->files[i][2].bytes = 99 * GIB;
        r->databases[i].shard = i / 2;
        r->databases[i].logged = i % 2;
        r->databases[i].files = r->files[i];
        r->databases[i].file_count = 3;
    }
    r->record.shard_count = 2;
    r->record.database_count = 4;
    r->record.databases = r->databases;
}

static void test_a_scan_takes_what_its_logs_hold(void **state)
{
    struct store_row like = { .weight_bytes = 256, .state_bytes = 256, .logged = true };
    struct recorded none, some;
    uint64_t bytes;

    (void)state;
    make_record(&none, 0);
    make_record(&some, 10 * MIB);
    bytes = table_scan_bytes(&none.record, &like);
    assert_in_range(bytes, SCAN_BYTES + 2 * SCAN_SHARD_BYTES,
                    SCAN_BYTES + 2 * SCAN_SHARD_BYTES + MIB);
    assert_int_equal(table_scan_bytes(&some.record, &like), bytes + 2 * 2 * 10 * MIB);
    like.logged = false; /* the logs are of other databases */
    make_record(&some, 0);
    some.files[1][0].bytes = some.files[3][0].bytes = 10 * MIB;
    assert_int_equal(table_scan_bytes(&some.record, &like), bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_transfer_that_does_not_fit_is_told_how_much_there_is),
        cmocka_unit_test(test_what_never_fits_is_not_told_to_try_again),
        cmocka_unit_test(test_a_user_that_has_something_leaves_a_quarter_to_others),
        cmocka_unit_test(test_threads_together_have_no_more_either),
        cmocka_unit_test(test_rows_that_wait_are_as_many_as_the_configuration_counts),
        cmocka_unit_test(test_a_scan_takes_what_its_logs_hold),
    };

    return cmocka_run_group_tests(tests, make_accounts, free_accounts);
}
