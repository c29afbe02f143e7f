/* SPDX-License-Identifier: Apache-2.0 */
/* log_damage.h: tells a damaged record of a write-ahead log or MANIFEST from a torn end.
 *
 * If the last block of a log ends in the middle of a record, RocksDB assumes that a crash cut it
 * off there. It ignores that record and all after it in the block; with a torn record it has no
 * choice. But some damage looks the same to RocksDB. In the last block it is a wrong length, and in
 * any block zeros in place of a record's head, or a flipped bit in its type. Such a bit makes the
 * record look like a leftover from before the file was reused. Acknowledged updates, and whole
 * flushes, would be lost silently.
 *
 * A record that was written whole can be recognized. Its checksum does not cover its length, so the
 * checksum is right with some length. Zeros are an end only if nothing comes after them. And our
 * logs are never reused. RocksDB itself finds all other faults of a record. An end that was cut off
 * or zeroed remains undetected, as a crash leaves the same. */
#ifndef EMBTIER_STORE_DATABASE_LOGS_LOG_DAMAGE_H
#define EMBTIER_STORE_DATABASE_LOGS_LOG_DAMAGE_H

#include "base/err.h"
#include "store/database/logs/log_marks.h"

/* Returns CORRUPT if the file is damaged in this way; the message names it. Any thread; no thread
 * writes the file meanwhile. */
MUST_CHECK enum embtier_err log_damage_find(const char *path, struct err_msg *msg);

enum log_end {
    LOG_IS_WHOLE, /* it ends with a record */
    LOG_IS_TORN,  /* it ends within a record, or with zeros */
    LOG_HAS_HOLE, /* bytes are missing: zeros up to the end of a sector, and more data behind it */
    LOG_IS_DAMAGED, /* bytes are wrong */
};

struct log_scan {
    uint64_t bytes; /* of the file */
    uint64_t end;   /* end of the last record before the first damaged or torn one */
    enum log_end how;
};

/* Reads a log with marks as RocksDB will, checksums included, up to the first record that is not
 * whole. The furthest mark anywhere in the file, also behind that record, goes into *@synced
 * (log_marks.h). */
MUST_CHECK enum embtier_err log_scan(const char *path, const struct log_marks *marks,
                                     struct log_scan *ret_scan, struct log_position *synced,
                                     struct err_msg *msg);

#endif
