/* SPDX-License-Identifier: Apache-2.0 */
/* store_identity.h: which data directories make up one store; keeps other servers from opening it.
 *
 * Every directory holds embtier.json and LOCK. A store is made in three steps: each embtier.json
 * with state "making", then map, shards and catalog, then each embtier.json as "ready". No file
 * says "ready" before all shards exist. So after a crash the next open goes on where the first one
 * stopped; nothing was served yet that could be lost. Directories keep their place in the store in
 * whatever order the config names them. */
#ifndef EMBTIER_STORE_STORE_IDENTITY_H
#define EMBTIER_STORE_STORE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"

/* 2: each shard has two databases. 3: embtier.json has a checksum. 4: a map gives each row's shard
 * (bucket_map.h). 5: each table in the catalog has a checksum. Other versions are refused. */
#define STORE_FORMAT_VERSION 5
#define STORE_UUID_CHARS     32

struct store_identity;

/* Locks the directories of @config. Reads their embtier.json, or writes it with state "making".
 * Refuses as store_open() says. NOT_FOUND: one has none although @config requires it; nothing has
 * been changed then. */
MUST_CHECK enum embtier_err store_identity_open(const struct config *config,
                                                struct store_identity **ret_identity,
                                                struct err_msg *msg);
/* Checks as store_identity_open() does, even if a server has the directories open. It locks and
 * writes nothing, and new directories stay out of the store. */
MUST_CHECK enum embtier_err store_identity_look(const struct config *config,
                                                struct store_identity **ret_identity,
                                                struct err_msg *msg);
/* Opens the directories of another server's store that no server has open: locks them, changes
 * nothing else. @directories: in any order, as --restore-from has them. Those are enough in which
 * the checkpoint has rows, and the first one; checkpoint_read() refuses others. Refuses as
 * store_open() says. NOT_FOUND: one is no data directory. INVALID: one is named twice. */
MUST_CHECK enum embtier_err store_identity_open_other(char *const *directories, uint32_t count,
                                                      struct store_identity **ret_identity,
                                                      uint32_t *ret_shards_per_directory,
                                                      struct err_msg *msg);
/* Unlocks. */
void store_identity_free(struct store_identity *identity);
DEFINE_CLEANUP(struct store_identity, store_identity_free)

/* True if shards may still be missing and have to be made. */
bool store_identity_is_making(const struct store_identity *identity);
/* Writes state "ready" wherever it is not yet written. All shards are on disk. */
MUST_CHECK enum embtier_err store_identity_commit(struct store_identity *identity,
                                                  struct err_msg *msg);

/* Returns how many places were given out. Those of directories that were removed are empty. */
uint32_t store_identity_directory_count(const struct store_identity *identity);
/* True if there is a directory in this place. */
bool store_identity_has(const struct store_identity *identity, uint32_t index);
/* Returns the number of the directory that is missing, and that --without-directory names;
 * MEMBERS_NONE: there is none. */
uint32_t store_identity_left_out(const struct store_identity *identity);
/* True if another server's store was opened. */
bool store_identity_is_other(const struct store_identity *identity);
/* Returns how many directories the store was made with. */
uint32_t store_identity_made_count(const struct store_identity *identity);
/* @index: the place in the store, which has a directory, or had one since the start; borrowed. */
const char *store_identity_directory(const struct store_identity *identity, uint32_t index);
const char *store_identity_uuid(const struct store_identity *identity); /* STORE_UUID_CHARS */
const unsigned char *store_identity_hash_key(const struct store_identity *identity);

/* Refuses @file, which has another format than this program's: returns VERSION, and says what to
 * do. */
MUST_CHECK enum embtier_err store_other_format(const char *file, uint32_t version,
                                               uint32_t own_version, struct err_msg *msg);

/* True if a server has @directory open. */
bool store_identity_is_in_use(const char *directory);
/* True if @directory belongs to a store that was made completely. */
bool store_identity_is_ready(const char *directory);

#endif
