/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/database_moves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/database/database_impl.h"

#define READAHEAD_BYTES ((size_t)MIB)

struct database_walk {
    const char *path;
    rocksdb_readoptions_t *read;
    rocksdb_iterator_t *at;
};

enum embtier_err database_walk_new(struct database *database, struct row_key from,
                                   struct database_walk **ret_walk, struct err_msg *msg)
{
    struct database_walk *const walk = calloc(1, sizeof(*walk));

    if (!walk)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", database->path);
    walk->path = database->path;
    walk->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_fill_cache(walk->read, false);
    rocksdb_readoptions_set_readahead_size(walk->read, READAHEAD_BYTES);
    walk->at = rocksdb_create_iterator(database->db, walk->read);
    rocksdb_iter_seek(walk->at, (const char *)from.bytes, sizeof(from));
    *ret_walk = walk;
    return EMBTIER_OK;
}

void database_walk_free(struct database_walk *walk)
{
    if (!walk)
        return;
    rocksdb_iter_destroy(walk->at);
    rocksdb_readoptions_destroy(walk->read);
    free(walk);
}

enum embtier_err database_walk_row(struct database_walk *walk, struct stored_row *ret_row,
                                   struct err_msg *msg)
{
    size_t key_bytes;
    char *error = NULL;
    const char *key;

    if (!rocksdb_iter_valid(walk->at)) {
        rocksdb_iter_get_error(walk->at, &error);
        ret_row->value = NULL;
        return rocksdb_err_take(error, walk->path, msg);
    }
    key = rocksdb_iter_key(walk->at, &key_bytes);
    if (key_bytes != ROW_KEY_BYTES)
        return err_set(msg, EMBTIER_CORRUPT, "%s: a key of %zu bytes", walk->path, key_bytes);
    memcpy(ret_row->key.bytes, key, key_bytes);
    ret_row->value = rocksdb_iter_value(walk->at, &ret_row->value_bytes);
    return EMBTIER_OK;
}

void database_walk_next(struct database_walk *walk)
{
    rocksdb_iter_next(walk->at);
}

/* Gets the values of rows, in any order; NULL: there is none. The caller destroys those that it
 * got, also after an error. */
static enum embtier_err get(struct database *database, const struct stored_row *rows,
                            uint32_t count, rocksdb_pinnableslice_t **ret_values,
                            struct err_msg *msg)
{
    const char *keys[DATABASE_MOVE_ROWS_MAX] = { NULL };
    size_t key_bytes[DATABASE_MOVE_ROWS_MAX] = { 0 };
    char *errors[DATABASE_MOVE_ROWS_MAX];
    enum embtier_err first = EMBTIER_OK;

    assert(count <= DATABASE_MOVE_ROWS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = (const char *)rows[i].key.bytes;
        key_bytes[i] = ROW_KEY_BYTES;
    }
    rocksdb_batched_multi_get_cf(database->db, database->setup->read, database->family, count, keys,
                                 key_bytes, ret_values, errors, false);
    for (uint32_t i = 0; i < count; i++) {
        const enum embtier_err err =
            rocksdb_err_take(errors[i], database->path, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
    }
    return first;
}

static void release(rocksdb_pinnableslice_t **values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i])
            rocksdb_pinnableslice_destroy(values[i]);
}

void stored_values_clear(struct stored_values *values)
{
    release(values->list, values->count);
}

enum embtier_err database_find(struct database *database, const struct stored_row *rows,
                               uint32_t count, bool *ret_found, struct err_msg *msg)
{
    rocksdb_pinnableslice_t *values[DATABASE_MOVE_ROWS_MAX];
    const enum embtier_err err = get(database, rows, count, values, msg);

    for (uint32_t i = 0; i < count; i++)
        ret_found[i] = values[i] != NULL;
    release(values, count);
    return err;
}

enum embtier_err database_store(struct database *database, const struct stored_row *rows,
                                uint32_t count, struct err_msg *msg)
{
    rocksdb_writebatch_t *batch;
    enum embtier_err err;
    uint64_t bytes = 0;

    if (count == 0)
        return EMBTIER_OK;
    TRY(database_may_write(database, msg));
    batch = rocksdb_writebatch_create();
    for (uint32_t i = 0; i < count; i++) {
        const char *const key = (const char *)rows[i].key.bytes;

        if (rows[i].value)
            rocksdb_writebatch_put(batch, key, ROW_KEY_BYTES, rows[i].value, rows[i].value_bytes);
        else
            rocksdb_writebatch_delete(batch, key, ROW_KEY_BYTES);
        bytes += ROW_KEY_BYTES + (rows[i].value ? rows[i].value_bytes : 0);
    }
    err = database_write_batch(database, batch, msg);
    rocksdb_writebatch_destroy(batch);
    TRY(err);
    database_count_add(&database->row_bytes_written, bytes);
    return EMBTIER_OK;
}

enum embtier_err database_fetch(struct database *database, struct stored_row *rows, uint32_t count,
                                struct stored_values *values, struct err_msg *msg)
{
    const enum embtier_err err = get(database, rows, count, values->list, msg);

    values->count = count;
    TRY(err);
    for (uint32_t i = 0; i < count; i++)
        rows[i].value = values->list[i]
                            ? rocksdb_pinnableslice_value(values->list[i], &rows[i].value_bytes)
                            : NULL;
    return EMBTIER_OK;
}

enum embtier_err database_store_step(struct database *database, uint32_t table_id, uint64_t step,
                                     struct err_msg *msg)
{
    const uint64_t step_le = htole64(step);
    const struct stored_row row = { .key = step_key_make(table_id),
                                    .value = (const char *)&step_le,
                                    .value_bytes = sizeof(step_le) };

    return database_store(database, &row, 1, msg);
}
