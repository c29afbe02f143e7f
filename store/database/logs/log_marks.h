/* SPDX-License-Identifier: Apache-2.0 */
/* log_marks.h: records in a database's logs how far these logs have been synced.
 *
 * After a loss of power, the unsynced end of a log may have holes: pages that did not reach the
 * disk, before others that did. That is a torn end. The same hole before that end is damage, and
 * costs acknowledged rows. So after each sync the next batch written to the log carries a mark, as
 * log data, which no memtable sees. The mark says that all older logs still needed are on disk as a
 * whole, and this one is up to here. The mark itself reaches the disk with the next sync.
 *
 * A mark is found by its first bytes, wherever it lies, since the bytes around it may be damaged.
 * Clients choose the bytes of rows, which lie in the same log. So a mark has a keyed hash of its
 * contents, with the store's key, which no client knows.
 *
 * A small file beside the database, its note, says from which log on there are marks; logs of
 * earlier versions have none. It also says in which boot of the machine the database was opened.
 * Thread: any. */
#ifndef EMBTIER_STORE_DATABASE_LOGS_LOG_MARKS_H
#define EMBTIER_STORE_DATABASE_LOGS_LOG_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"

#define LOG_MARK_BYTES 40

/* All logs from @first up to the one before @log are on disk, and the first @bytes of @log, which
 * end with a record. Logs before @first are not needed: they have been flushed completely. If the
 * deletion of such a log did not reach the disk, it is back, in any state. */
struct log_position {
    uint64_t first;
    uint64_t log;
    uint64_t bytes;
};

/* Identifies a shard's marks: those of other shards and stores do not count. */
struct log_marks {
    struct row_hasher hasher;
    uint32_t shard;
};

void log_mark_make(const struct log_marks *marks, const struct log_position *position,
                   unsigned char ret_mark[static LOG_MARK_BYTES]);
/* Finds the furthest mark in @bytes, and stores it if it is further than *@position. */
void log_marks_find(const struct log_marks *marks, const unsigned char *bytes, size_t count,
                    struct log_position *position);
/* True if a record that begins at @at in log @log was on disk. */
bool log_position_covers(const struct log_position *position, uint64_t log, uint64_t at);

struct log_note {
    uint64_t first_log; /* logs with this number or a greater one have marks; UINT64_MAX: none */
    bool same_boot;     /* the machine has not restarted since; also true if that is unknown */
};
/* Reads the note of the database at @path. A missing or damaged note means that no log has
 * marks. */
MUST_CHECK enum embtier_err log_note_read(const char *path, struct log_note *ret_note,
                                          struct err_msg *msg);
/* Notes that all logs from @first_log on have marks, and the current boot. Writes only if the note
 * says otherwise; then it is on disk on return. */
MUST_CHECK enum embtier_err log_note_write(const char *path, uint64_t first_log,
                                           struct err_msg *msg);

#endif
