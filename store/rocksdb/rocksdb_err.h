/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_err.h: the one map from RocksDB's errors to embtier's. RocksDB's C API gives an error as
 * the text of its Status; the kind stands at its beginning. */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_ERR_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_ERR_H

#include "base/err.h"

/* INTERNAL for a text that is none of RocksDB's. */
enum embtier_err rocksdb_err(const char *text);

/* Takes @text (malloced by RocksDB, may be NULL: OK) and writes it behind "@where: " into @msg. */
MUST_CHECK enum embtier_err rocksdb_err_take(char *text, const char *where, struct err_msg *msg);

#endif
