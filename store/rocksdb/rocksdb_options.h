/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_options.h: what a user's `rocksdb.options` may set.
 *
 * RocksDB has some 150 options, of which many would break what the store promises: a compaction
 * style that deletes the oldest rows, a table format that cannot be written, a log elsewhere. So
 * there is a list of those that change only how fast the store is and how much it writes, each with
 * the values that are possible. All else is refused, with the key that is for it if there is one.
 * Thread: any. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_OPTIONS_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_OPTIONS_H

#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "config/config.h"

/* What an option is for when it may be set; @least and @most of a number, both 0 of a word. */
struct rocksdb_option {
    const char *name;
    double least;
    double most;
    const char *what;
};
extern const struct rocksdb_option rocksdb_options_allowed[];
extern const uint32_t rocksdb_options_allowed_count;

/* Puts config->rocksdb.options over *@options, which it may replace. CONFIG: an option is not
 * known, not allowed, or has a value that it cannot have; the message names it. */
MUST_CHECK enum embtier_err rocksdb_options_apply(rocksdb_options_t **options,
                                                  const struct config *config, struct err_msg *msg);

/* Opens a database in memory with them, and writes and reads a row: what RocksDB refuses only then.
 */
MUST_CHECK enum embtier_err rocksdb_options_try(const rocksdb_options_t *options,
                                                const struct config *config, struct err_msg *msg);

#endif
