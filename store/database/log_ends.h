/* SPDX-License-Identifier: Apache-2.0 */
/* log_ends.h: what a crash has left at the ends of a database's logs, before RocksDB reads them.
 *
 * RocksDB takes a log that was cut off for one with a torn end, and refuses one with a hole. But
 * where power failed, what was appended since the last sync may be there in part: sectors are
 * missing, and others behind them are there. Nothing of it was promised. So the log is cut where
 * the first record is not whole, if that lies behind all that is known to have been synced
 * (log_marks.h). Where it lies before that, acknowledged rows are gone, and the start is refused.
 *
 * Behind it wrong bytes, in place of missing ones, are the work of a loss of power only if the
 * machine has been started since: else they are damage of rows that were safe from the death of the
 * process. */
#ifndef EMBTIER_STORE_DATABASE_LOG_ENDS_H
#define EMBTIER_STORE_DATABASE_LOG_ENDS_H

#include "base/err.h"
#include "store/database/log_marks.h"

/* Those of all logs of the database at @path, which nobody has open. Those of earlier versions,
 * without marks, are checked as log_damage_find() does. CORRUPT names the file. */
MUST_CHECK enum embtier_err log_ends_mend(const char *path, const struct log_marks *marks,
                                          struct err_msg *msg);

/* The number in the name of a log, such as "000012.log"; false: it is none. */
bool log_number(const char *name, uint64_t *ret_number);

#endif
