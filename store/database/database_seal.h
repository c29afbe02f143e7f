/* SPDX-License-Identifier: Apache-2.0 */
/* database_seal.h: detects losses in a database's MANIFEST while it was closed.
 *
 * RocksDB must accept a MANIFEST that ends in the middle of a record, as a crash may have cut it
 * off. So a MANIFEST cut short by anything else, or with a wrong record length, would silently take
 * back whole flushes. A clean close therefore writes a seal beside the database (replay.seal beside
 * replay/): the MANIFEST's name, length and checksum. The seal is removed before the database is
 * opened again. After a crash there is no seal, and RocksDB's rule holds, within the limits of
 * log_damage.h. Thread: the one that opens and closes. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_SEAL_H
#define EMBTIER_STORE_DATABASE_DATABASE_SEAL_H

#include <stdbool.h>

#include "base/err.h"

/* Returns the name, such as MANIFEST-000005, of the file that a closed database's CURRENT names:
 * malloced. CORRUPT if CURRENT is missing or damaged. */
MUST_CHECK enum embtier_err database_manifest(const char *path, char **ret_name,
                                              struct err_msg *msg);

/* Checks and removes the seal. @path is the database's; *@ret_sealed: there was a seal, so the last
 * close was clean. CORRUPT if the seal does not fit; it then stays. */
MUST_CHECK enum embtier_err database_seal_break(const char *path, bool *ret_sealed,
                                                struct err_msg *msg);
/* Finds out if there is a seal. */
MUST_CHECK enum embtier_err database_is_sealed(const char *path, bool *ret_sealed,
                                               struct err_msg *msg);
/* Removes the seal without a check: the database's files have been replaced. */
MUST_CHECK enum embtier_err database_seal_remove(const char *path, struct err_msg *msg);
MUST_CHECK enum embtier_err database_seal_write(const char *path, struct err_msg *msg);

#endif
