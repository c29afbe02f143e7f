/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a load takes a bounded piece of a batch at a time, each row once, and nothing after it
 * was given up. The table and the writer are stubs. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/jobs/transfer/load.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "daemon/jobs/transfer/transfer_piece.h"

struct row_writer {
    uint64_t rows;
    uint64_t wrong; /* rows out of order, or with another row's bytes */
    uint32_t row_bytes;
};

static struct row_writer the_writer;

struct loading {
    struct accounts *accounts;
    struct transfer_memory *memory;
    struct load *load;
    struct load_batch batch;
    uint64_t *ids;
    uint8_t *rows;
};

enum embtier_err __wrap_tables_begin(struct tables *tables, const struct table_spec *spec,
                                     const struct table_owner *owner, enum table_placing placing,
                                     struct table_info *ret_info, struct err_msg *msg);
enum embtier_err __wrap_tables_writer(struct tables *tables, const struct table_info *info,
                                      const struct progress_sink *progress,
                                      struct row_writer **ret_writer, struct err_msg *msg);
uint64_t __wrap_tables_writer_bytes(const struct tables *tables, uint64_t row_bytes);
void __wrap_tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count);
enum embtier_err __wrap_row_writer_add(struct row_writer *writer, uint64_t id, const void *bytes,
                                       struct err_msg *msg);
void __wrap_row_writer_free(struct row_writer *writer);

enum embtier_err __wrap_tables_begin(struct tables *tables, const struct table_spec *spec,
                                     const struct table_owner *owner, enum table_placing placing,
                                     struct table_info *ret_info, struct err_msg *msg)
{
    (void)tables;
    (void)owner;
    (void)msg;
    assert_int_equal(placing, TABLE_PLACED_AS_ASKED);
    *ret_info = (struct table_info){ .spec = *spec };
    return EMBTIER_OK;
}

enum embtier_err __wrap_tables_writer(struct tables *tables, const struct table_info *info,
                                      const struct progress_sink *progress,
                                      struct row_writer **ret_writer, struct err_msg *msg)
{
    (void)tables;
    (void)progress;
    (void)msg;
    the_writer = (struct row_writer){ .row_bytes = table_spec_weight_bytes(&info->spec) };
    *ret_writer = &the_writer;
    return EMBTIER_OK;
}

uint64_t __wrap_tables_writer_bytes(const struct tables *tables, uint64_t row_bytes)
{
    (void)tables;
    return row_bytes;
}

void __wrap_tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count)
{
    (void)tables;
    (void)infos;
    (void)count;
}

static uint8_t byte_of(uint64_t id)
{
    return (uint8_t)(id * 37 % 251);
}

enum embtier_err __wrap_row_writer_add(struct row_writer *writer, uint64_t id, const void *bytes,
                                       struct err_msg *msg)
{
    const uint8_t *const row = bytes;

    (void)msg;
    writer->wrong +=
        id != writer->rows || row[0] != byte_of(id) || row[writer->row_bytes - 1] != byte_of(id);
    writer->rows++;
    return EMBTIER_OK;
}

void __wrap_row_writer_free(struct row_writer *writer)
{
    (void)writer;
}

/* Begins a load of @rows rows, each with its own bytes. */
static void begin(struct loading *l, uint32_t dim, uint32_t rows)
{
    struct load_order order = {
        .spec = { .name = "t",
                  .rows = rows,
                  .dim = dim,
                  .dtype = EMBTIER_DTYPE_F32,
                  .optimizer = EMBTIER_OPTIMIZER_SGD,
                  .init = EMBTIER_INIT_ZEROS },
    };
    struct err_msg msg = { { 0 } };
    size_t row_bytes;

    memset(l, 0, sizeof(*l));
    assert_int_equal(accounts_new(&l->accounts, NULL), EMBTIER_OK);
    assert_int_equal(transfer_memory_new(1 * GIB, l->accounts, &l->memory, NULL), EMBTIER_OK);
    if (load_open(NULL, l->memory, &order, &l->load, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    row_bytes = load_row_bytes(l->load);
    l->ids = malloc(rows * sizeof(*l->ids));
    l->rows = malloc(rows * row_bytes);
    assert_true(l->ids && l->rows);
    for (uint32_t i = 0; i < rows; i++) {
        l->ids[i] = i;
        memset(l->rows + i * row_bytes, byte_of(i), row_bytes);
    }
    l->batch = (struct load_batch){
        .ids = l->ids, .rows = l->rows, .row_bytes = row_bytes, .count = rows
    };
}

static void end(struct loading *l)
{
    load_free(l->load);
    transfer_memory_free(l->memory);
    accounts_free(l->accounts);
    free(l->ids);
    free(l->rows);
}

/* Takes the whole batch in pieces of at most @most rows. Returns the number of pieces. */
static uint32_t take_all(struct loading *l, uint64_t most)
{
    uint32_t pieces = 0;

    while (l->batch.count > 0) {
        const uint64_t before = the_writer.rows;

        assert_int_equal(load_add(l->load, &l->batch, NULL, NULL), EMBTIER_OK);
        assert_in_range(the_writer.rows - before, 1, most);
        assert_int_equal(load_rows(l->load), the_writer.rows);
        pieces++;
    }
    assert_int_equal(the_writer.wrong, 0);
    return pieces;
}

static void test_long_batches_are_taken_in_pieces(void **state)
{
    static const struct {
        uint32_t dim, rows, most, pieces;
    } cases[] = {
        { 1, 3 * TRANSFER_PIECE_ROWS + 1, TRANSFER_PIECE_ROWS, 4 },
        { 254, 20000, 8192, 3 }, /* 1 KiB each, including the id */
        { 254, 8192, 8192, 1 },
        { 1, 1, 1, 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct loading l;

        begin(&l, cases[i].dim, cases[i].rows);
        assert_int_equal(take_all(&l, cases[i].most), cases[i].pieces);
        assert_int_equal(the_writer.rows, cases[i].rows);
        end(&l);
    }
}

static void test_a_part_of_a_batch_is_no_load(void **state)
{
    _Atomic uint32_t stop = EMBTIER_OK;
    const struct progress_sink progress = { .stop = &stop };
    struct err_msg msg;
    struct loading l;

    (void)state;
    begin(&l, 1, 2 * TRANSFER_PIECE_ROWS);
    assert_int_equal(load_add(l.load, &l.batch, &progress, NULL), EMBTIER_OK);
    assert_int_equal(l.batch.count, TRANSFER_PIECE_ROWS);
    atomic_store(&stop, EMBTIER_CANCELLED);
    assert_int_equal(load_add(l.load, &l.batch, &progress, &msg), EMBTIER_CANCELLED);
    assert_non_null(strstr(msg.text, "cancelled"));
    assert_int_equal(the_writer.rows, TRANSFER_PIECE_ROWS);
    atomic_store(&stop, EMBTIER_OK);
    assert_int_equal(load_add(l.load, &l.batch, &progress, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "takes no more rows"));
    assert_int_equal(load_publish(l.load, NULL, NULL, NULL, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "cannot be published"));
    end(&l);
}

static void test_a_piece_has_at_least_a_row(void **state)
{
    (void)state;
    assert_int_equal(transfer_piece_rows(1), TRANSFER_PIECE_ROWS);
    assert_int_equal(transfer_piece_rows(TRANSFER_PIECE_BYTES), 1);
    assert_int_equal(transfer_piece_rows(TRANSFER_PIECE_BYTES + 1), 1);
    assert_int_equal(transfer_piece_rows(UINT64_MAX), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_batches_are_taken_in_pieces),
        cmocka_unit_test(test_a_part_of_a_batch_is_no_load),
        cmocka_unit_test(test_a_piece_has_at_least_a_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
