/* SPDX-License-Identifier: Apache-2.0 */
/* table_histories.h: the histories of the bytes written for each table, kept over restarts.
 *
 * Bytes that belong to no table are "shared": catalogs, checkpoints, a tier's file, the logs' own
 * bytes. So are those of tables that are gone, and of tables beyond the most that have histories.
 * In each window, tables and shared bytes together are all bytes that the server wrote.
 *
 * The file is endurance-tables.json in the store's first directory, beside that of devices
 * (write_histories.h). Thread: any. */
#ifndef EMBTIER_DAEMON_ENDURANCE_TABLE_HISTORIES_H
#define EMBTIER_DAEMON_ENDURANCE_TABLE_HISTORIES_H

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "daemon/endurance/table_history.h"

#define TABLE_HISTORIES_FILE "endurance-tables.json"
#define TABLE_HISTORIES_MAX  4096

struct table_histories;

struct table_bytes {
    uint32_t table_id;
    char uuid[TABLE_UUID_CHARS + 1]; /* tells apart tables that had the same number in turn */
    uint64_t bytes;                  /* since the server's start */
};

/* Reads the file in @directory, which is borrowed. Without a file, or with a damaged one, there are
 * no histories. */
MUST_CHECK enum embtier_err table_histories_new(const char *directory, uint64_t now_ms,
                                                struct table_histories **ret_histories);
void table_histories_free(struct table_histories *histories);
DEFINE_CLEANUP(struct table_histories, table_histories_free)

/* A round: begin, all tables by ascending number in some calls of add, end. One thread. */
void table_histories_begin(struct table_histories *histories);
void table_histories_add(struct table_histories *histories, const struct table_bytes *tables,
                         uint32_t count, uint64_t now_ms);
/* @all_bytes: that the server wrote since its start, read after those of tables. @is_whole: all
 * tables were added, so that the others are gone. */
void table_histories_end(struct table_histories *histories, uint64_t all_bytes, bool is_whole,
                         uint64_t now_ms);

/* Tells how many bytes a save has written. They are in @all_bytes of the next round, and are no
 * reason to save again: an idle server writes nothing. */
void table_histories_note_own(struct table_histories *histories, uint64_t bytes);

/* Copies the history of a table. False: it has none. */
MUST_CHECK bool table_histories_get(struct table_histories *histories, uint32_t table_id,
                                    struct table_history *ret_history);
void table_histories_shared(struct table_histories *histories, struct table_history *ret_history);

/* Does nothing if nothing was written since the last time, or if the file could not be read. On
 * failure the file stays as it was. */
MUST_CHECK enum embtier_err table_histories_save(struct table_histories *histories,
                                                 struct err_msg *msg);

#endif
