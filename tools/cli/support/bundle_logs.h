/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_logs.h: the ends of log files, for a bundle. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_SUPPORT_BUNDLE_LOGS_H
#define EMBTIER_TOOLS_CLI_SUPPORT_BUNDLE_LOGS_H

struct bundle_files;

#define BUNDLE_LOG_BYTES     (4 * MIB)   /* of the server's log */
#define BUNDLE_ROCKSDB_BYTES (256 * KIB) /* of one LOG of RocksDB */
#define BUNDLE_ROCKSDB_COUNT 64          /* of these files */

/* Adds the last BUNDLE_LOG_BYTES of the file at @path as @name. */
void bundle_logs_add(struct bundle_files *files, const char *path, const char *name);
/* Adds the ends of RocksDB's current logs in a data directory, the @index-th. Counts them in
 * *@count, and stops at BUNDLE_ROCKSDB_COUNT. A directory that cannot be read is named as missing.
 */
void bundle_logs_add_rocksdb(struct bundle_files *files, const char *directory, unsigned index,
                             unsigned *count);

#endif
