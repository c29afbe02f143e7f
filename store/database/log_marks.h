/* SPDX-License-Identifier: Apache-2.0 */
/* log_marks.h: how far a database's logs were on disk, written down in the logs themselves.
 *
 * When power fails, the end of a log that was never synced may have holes: pages that did not reach
 * the disk, before others that did. That is a torn end. The same hole before that end is damage,
 * and costs rows that were acknowledged. So after each sync the next batch that is written to the
 * log carries a mark, as log data, which no memtable sees: all older logs that are still needed are
 * on disk as a whole, and this one is up to here. The mark itself reaches the disk with the next
 * sync.
 *
 * A mark is found by its first bytes, wherever it lies, since what lies around it may be damaged.
 * Clients choose the bytes of rows, which lie in the same log: so a mark has a keyed hash of what
 * it says, with the key of the store that no client knows.
 *
 * A small file beside the database, its note, says from which log on there are marks (logs of
 * earlier versions have none), and since which boot of the machine the database was open.
 * Thread: any. */
#ifndef EMBTIER_STORE_DATABASE_LOG_MARKS_H
#define EMBTIER_STORE_DATABASE_LOG_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"

#define LOG_MARK_BYTES 40

/* All logs from @first to the one before @log are on disk, and the first @bytes of that, which end
 * with a record. Those before @first are not needed any more: all of them has been flushed. If the
 * deletion of one did not come to the disk it is there again, in whatever state. */
struct log_position {
    uint64_t first;
    uint64_t log;
    uint64_t bytes;
};

/* Whose marks they are: those of other shards and stores are none. */
struct log_marks {
    struct row_hasher hasher;
    uint32_t shard;
};

void log_mark_make(const struct log_marks *marks, const struct log_position *position,
                   unsigned char ret_mark[static LOG_MARK_BYTES]);
/* The furthest of all marks in @bytes, if that is further than *@position. */
void log_marks_find(const struct log_marks *marks, const unsigned char *bytes, size_t count,
                    struct log_position *position);
/* Whether a record that begins at @at in log @log was on disk. */
bool log_position_covers(const struct log_position *position, uint64_t log, uint64_t at);

struct log_note {
    uint64_t first_log; /* logs with this number or a greater one have marks; UINT64_MAX: none */
    bool same_boot;     /* the machine has not been started since; also where nobody knows */
};
/* The note of the database at @path. One that is missing or damaged says that no log has marks. */
MUST_CHECK enum embtier_err log_note_read(const char *path, struct log_note *ret_note,
                                          struct err_msg *msg);
/* Has it say that all logs from @first_log on have marks, and that this is the boot. Only written
 * if it says something else: then it is on disk when this returns. */
MUST_CHECK enum embtier_err log_note_write(const char *path, uint64_t first_log,
                                           struct err_msg *msg);

#endif
