/* SPDX-License-Identifier: Apache-2.0 */
/* database_seal.h: notices what a database lost while it was closed.
 *
 * RocksDB must take a MANIFEST that ends in the middle of a record for one that a crash cut off; so
 * a MANIFEST cut short by anything else, or with a record whose length is wrong, would silently
 * take back whole flushes. A seal, written after a clean close beside the database (replay.seal
 * beside replay/), says which MANIFEST it had, how long that was, and its checksum. It is broken
 * before the database is opened again: after a crash there is no seal, and RocksDB's rule holds, as
 * far as log_damage.h lets it. Thread: the one that opens and closes. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_SEAL_H
#define EMBTIER_STORE_DATABASE_DATABASE_SEAL_H

#include <stdbool.h>

#include "base/err.h"

/* The name, such as MANIFEST-000005, of the file that a closed database's CURRENT names: malloced.
 * CORRUPT. */
MUST_CHECK enum embtier_err database_manifest(const char *path, char **ret_name,
                                              struct err_msg *msg);

/* @path is the database's; *@ret_sealed: there was a seal, so the last close was a clean one.
 * CORRUPT, and the seal stays, when it does not fit. */
MUST_CHECK enum embtier_err database_seal_break(const char *path, bool *ret_sealed,
                                                struct err_msg *msg);
/* Whether there is one. */
MUST_CHECK enum embtier_err database_is_sealed(const char *path, bool *ret_sealed,
                                               struct err_msg *msg);
/* The database is no more what it was when it was closed. */
MUST_CHECK enum embtier_err database_seal_remove(const char *path, struct err_msg *msg);
MUST_CHECK enum embtier_err database_seal_write(const char *path, struct err_msg *msg);

#endif
