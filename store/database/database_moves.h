/* SPDX-License-Identifier: Apache-2.0 */
/* database_moves.h: stored rows as they are, key and value, to move them to another database or to
 * delete those that have moved. Thread: any; a walk belongs to one. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_MOVES_H
#define EMBTIER_STORE_DATABASE_DATABASE_MOVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/database/row_format.h"

/* Rows of one call of database_find() at most. */
#define DATABASE_MOVE_ROWS_MAX 64

struct database;
struct rocksdb_pinnableslice_t;

struct stored_row {
    struct row_key key;
    const char *value; /* head, weights, state; NULL: the row is to be deleted */
    size_t value_bytes;
};

/* Walks over all rows from @from on, in order of keys, as they are at this call. Steps of tables
 * come before all rows, so a walk from STORED_ROWS_FIRST has none. It keeps files from being
 * deleted, so it should not last. */
#define STORED_ROWS_FIRST row_key_make(1, 0)
struct database_walk;
MUST_CHECK enum embtier_err database_walk_new(struct database *database, struct row_key from,
                                              struct database_walk **ret_walk, struct err_msg *msg);
void database_walk_free(struct database_walk *walk);
DEFINE_CLEANUP(struct database_walk, database_walk_free)
/* Returns the present row, borrowed until the next call. *@ret_row.value is NULL at the end. */
MUST_CHECK enum embtier_err database_walk_row(struct database_walk *walk,
                                              struct stored_row *ret_row, struct err_msg *msg);
void database_walk_next(struct database_walk *walk);

/* Finds out which rows there are. */
MUST_CHECK enum embtier_err database_find(struct database *database, const struct stored_row *rows,
                                          uint32_t count, bool *ret_found, struct err_msg *msg);
/* Writes and deletes rows as database_write() writes them: all or none, or BUSY. */
MUST_CHECK enum embtier_err database_store(struct database *database, const struct stored_row *rows,
                                           uint32_t count, struct err_msg *msg);
/* Values of rows that were read, borrowed by them. */
struct stored_values {
    struct rocksdb_pinnableslice_t *list[DATABASE_MOVE_ROWS_MAX];
    uint32_t count;
};
void stored_values_clear(struct stored_values *values);
/* Reads the values of rows, whose keys the caller has set, into empty @values. Rows that are not
 * there get none, so that database_store() deletes them elsewhere. */
MUST_CHECK enum embtier_err database_fetch(struct database *database, struct stored_row *rows,
                                           uint32_t count, struct stored_values *values,
                                           struct err_msg *msg);
/* Stores the step of a table. */
MUST_CHECK enum embtier_err database_store_step(struct database *database, uint32_t table_id,
                                                uint64_t step, struct err_msg *msg);

#endif
