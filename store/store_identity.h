/* SPDX-License-Identifier: Apache-2.0 */
/* store_identity.h: which data directories make up one store, and that nobody else has it open.
 *
 * Every directory holds embtier.json and LOCK. A store is made in three steps: all embtier.json
 * with state "making", then map, shards and catalog, then all embtier.json as "ready". After a
 * crash in between no file says "ready" before all shards are there, so the next open goes on where
 * the first one stopped; nothing was served yet that could be lost. Directories keep their place in
 * the store whatever order the config names them in. */
#ifndef EMBTIER_STORE_STORE_IDENTITY_H
#define EMBTIER_STORE_STORE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"

/* 2 since each shard has two databases; 3 since embtier.json has a checksum; 4 since a map says
 * which shard a row lies in (bucket_map.h). No other is read. */
#define STORE_FORMAT_VERSION 4
#define STORE_UUID_CHARS     32

struct store_identity;

/* Locks the directories of @config and reads, or writes with state "making", their embtier.json.
 * Refuses as store_open() says; NOT_FOUND: one has none, and @config says that it must. Then
 * nothing has been changed. */
MUST_CHECK enum embtier_err store_identity_open(const struct config *config,
                                                struct store_identity **ret_identity,
                                                struct err_msg *msg);
/* As store_identity_open() for directories as they are now, whoever has them open: locks and writes
 * nothing, and new directories stay out of the store. */
MUST_CHECK enum embtier_err store_identity_look(const struct config *config,
                                                struct store_identity **ret_identity,
                                                struct err_msg *msg);
/* Those of a store that another server has made, and no server has open: locks them, changes
 * nothing else. @directories: all of them, in any order, as --restore-from has them. Refuses as
 * store_open() says; NOT_FOUND: one is no data directory; INVALID: one is named twice. */
MUST_CHECK enum embtier_err store_identity_open_other(char *const *directories, uint32_t count,
                                                      struct store_identity **ret_identity,
                                                      uint32_t *ret_shards_per_directory,
                                                      struct err_msg *msg);
/* Unlocks. */
void store_identity_free(struct store_identity *identity);
DEFINE_CLEANUP(struct store_identity, store_identity_free)

/* Whether shards may still be missing, and are to be made. */
bool store_identity_is_making(const struct store_identity *identity);
/* All shards are on disk: writes state "ready" where it is not yet written. */
MUST_CHECK enum embtier_err store_identity_commit(struct store_identity *identity,
                                                  struct err_msg *msg);

uint32_t store_identity_directory_count(const struct store_identity *identity);
/* @index is the place in the store; borrowed. */
const char *store_identity_directory(const struct store_identity *identity, uint32_t index);
const char *store_identity_uuid(const struct store_identity *identity); /* STORE_UUID_CHARS */
const unsigned char *store_identity_hash_key(const struct store_identity *identity);

/* Whether a server has @directory open. */
bool store_identity_is_in_use(const char *directory);
/* Whether @directory is part of a store that was made to the end. */
bool store_identity_is_ready(const char *directory);

#endif
