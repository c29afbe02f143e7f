/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_err.h: maps RocksDB's errors to embtier's, in one place. RocksDB's C API returns an error
 * as the text of its Status, which begins with the kind. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_ERR_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_ERR_H

#include "base/err.h"

/* Returns INTERNAL for a text that is not RocksDB's. */
enum embtier_err rocksdb_err(const char *text);

/* Takes @text (malloced by RocksDB, may be NULL: OK) and writes it behind "@where: " into @msg. */
MUST_CHECK enum embtier_err rocksdb_err_take(char *text, const char *where, struct err_msg *msg);

#endif
