/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_options.h: the options that a user's `rocksdb.options` may set.
 *
 * RocksDB has some 150 options, many of which would break the store's promises. Examples are a
 * compaction style that deletes the oldest rows, a table format that cannot be written, a log
 * elsewhere. So a list names the options that change only the store's speed and how much it writes,
 * with their possible values. All others are refused; the error names the key to set instead, if
 * there is one. Thread: any. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_OPTIONS_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_OPTIONS_H

#include <stdint.h>

#include <rocksdb/c.h>

#include "base/err.h"
#include "config/config.h"

/* An option that may be set, and its purpose; @least and @most of a number, both 0 for a word. */
struct rocksdb_option {
    const char *name;
    double least;
    double most;
    const char *what;
};
extern const struct rocksdb_option rocksdb_options_allowed[];
extern const uint32_t rocksdb_options_allowed_count;

/* Applies config->rocksdb.options to *@options, which it may replace. CONFIG: an option is not
 * known, not allowed, or has an impossible value; the message names it. */
MUST_CHECK enum embtier_err rocksdb_options_apply(rocksdb_options_t **options,
                                                  const struct config *config, struct err_msg *msg);

/* Opens a database in memory with @options, and writes and reads a row. RocksDB refuses some
 * options only then. */
MUST_CHECK enum embtier_err rocksdb_options_try(const rocksdb_options_t *options,
                                                const struct config *config, struct err_msg *msg);

#endif
