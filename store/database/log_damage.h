/* SPDX-License-Identifier: Apache-2.0 */
/* log_damage.h: tells a damaged record of a write-ahead log or MANIFEST from a torn end.
 *
 * RocksDB takes a log whose last block ends in the middle of a record for one that a crash cut off
 * there, and leaves out that record and all that come after it in the block: it cannot do otherwise
 * where the record was torn. But a wrong length of any record of the last block looks the same to
 * it, and so do, in any block, zeros in the place of a record's head, and one bit of its type,
 * which makes it a record that was there before the file was used again: updates that were
 * acknowledged, and whole flushes, would be gone, and nobody would hear of it.
 *
 * A record that was written whole gives itself away: there is a length at which its checksum, which
 * does not cover the length, is right. Zeros are an end only if nothing comes after them. And our
 * logs are never used again.
 * Whatever else can be wrong with a record RocksDB finds itself. What is left is an end that was
 * cut off or zeroed: that is what a crash does. */
#ifndef EMBTIER_STORE_DATABASE_LOG_DAMAGE_H
#define EMBTIER_STORE_DATABASE_LOG_DAMAGE_H

#include "base/err.h"
#include "store/database/log_marks.h"

/* CORRUPT, and the message names the file, if it is damaged so. Any thread; nobody writes it. */
MUST_CHECK enum embtier_err log_damage_find(const char *path, struct err_msg *msg);

enum log_end {
    LOG_IS_WHOLE,   /* it ends with a record */
    LOG_IS_TORN,    /* it ends within a record, or with zeros */
    LOG_HAS_HOLE,   /* bytes are missing: zeros up to the end of a sector, and more behind it */
    LOG_IS_DAMAGED, /* bytes are wrong */
};

struct log_scan {
    uint64_t bytes; /* of the file */
    uint64_t end;   /* of the last record before the first that is not whole */
    enum log_end how;
};

/* Reads a log that has marks as RocksDB will, up to its first record that is not whole, checksums
 * included. All marks in the file, also behind that, go into *@synced (log_marks.h). */
MUST_CHECK enum embtier_err log_scan(const char *path, const struct log_marks *marks,
                                     struct log_scan *ret_scan, struct log_position *synced,
                                     struct err_msg *msg);

#endif
