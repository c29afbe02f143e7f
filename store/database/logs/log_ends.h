/* SPDX-License-Identifier: Apache-2.0 */
/* log_ends.h: mends the ends of a database's logs after a crash, before RocksDB reads them.
 *
 * RocksDB accepts a log that was cut off, as one with a torn end, and refuses one with a hole. But
 * after a loss of power, bytes appended since the last sync may be on disk in part. Sectors may be
 * missing, with later ones there. None of these bytes was promised. So the log is cut at the first
 * record that is not whole, if that lies behind all bytes known to be synced (log_marks.h). If it
 * lies before that, acknowledged rows are gone, and the start is refused.
 *
 * Wrong bytes behind the synced part, instead of missing ones, come from a loss of power only if
 * the machine has restarted since. Otherwise they damage rows that were safe from the death of the
 * process. */
#ifndef EMBTIER_STORE_DATABASE_LOGS_LOG_ENDS_H
#define EMBTIER_STORE_DATABASE_LOGS_LOG_ENDS_H

#include "base/err.h"
#include "store/database/logs/log_marks.h"

/* Mends the ends of all logs of the database at @path, which no process has open. Logs of earlier
 * versions have no marks; log_damage_find() checks them. CORRUPT names the file. */
MUST_CHECK enum embtier_err log_ends_mend(const char *path, const struct log_marks *marks,
                                          struct err_msg *msg);

/* Returns the number in the name of a log, such as "000012.log"; false if @name is no log. */
bool log_number(const char *name, uint64_t *ret_number);

#endif
