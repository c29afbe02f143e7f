/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_directory.h: what a job does beside waves to add a data directory, or to remove one.
 *
 * Adding: the directory joins before there are shards in it (store/members/join_leave.h). It gets
 * as many as the others have on average.
 * Removing: its shards leave the map once they have no bucket. Then a checkpoint is made without
 * them, and those that need the directory are deleted: a crash and a restore must do without it.
 * Then it leaves. Its databases stay open, empty, until the server stops.
 *
 * Thread: the one that moves buckets. */
#ifndef EMBTIER_STORE_MEMBERS_RESHARD_DIRECTORY_H
#define EMBTIER_STORE_MEMBERS_RESHARD_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/buckets/bucket_map.h"
#include "store/resharding/reshard_record.h"

struct reshard_facts;
struct store;

/* Checks an order before anything is written, and sets @record->shards; if a directory is removed,
 * @record->directory has no links then. Adding: as
 * store_identity_check_new(); removing: NOT_FOUND: it is none of the store's; INVALID: it is the
 * first or the only one; EXISTS: a user's checkpoint needs it. NO_SPACE. */
MUST_CHECK enum embtier_err
reshard_directory_check(struct store *store, struct reshard_record *record, struct err_msg *msg);
/* Makes the directory the store's, unless it is already. */
MUST_CHECK enum embtier_err reshard_directory_join(struct store *store, const char *path,
                                                   void (*prepared)(void *context), void *context,
                                                   uint32_t *ret_place, struct err_msg *msg);

/* Chooses the shards that shall have buckets; there may be none if a directory is removed. Returns
 * how many. */
uint32_t reshard_directory_keep(const struct bucket_map *map, enum reshard_order order,
                                uint32_t place, bool *kept);
/* Returns how many shards lie in a directory; @with_buckets: only those that have some. */
uint32_t reshard_directory_shards(const struct bucket_map *map, uint32_t place, bool with_buckets);
/* NO_SPACE: the file systems of the targets have no room for the moves from @map to @after. */
MUST_CHECK enum embtier_err reshard_directory_check_room(struct store *store,
                                                         const struct bucket_map *map,
                                                         const struct bucket_map *after,
                                                         struct err_msg *msg);

/* Begins to remove a directory: it gets no more shards, and a start need not have it in its
 * configuration any more. DIRECTORY_NONE: it has left. */
MUST_CHECK enum embtier_err reshard_directory_part(struct store *store, const char *path,
                                                   uint32_t *ret_place, struct err_msg *msg);
/* Makes a checkpoint, and deletes those that need the directory. EXISTS: one is a user's. */
struct reshard_freeing {
    bool deletes_checkpoints; /* also a user's */
    enum embtier_err (*checkpoint)(void *context, struct err_msg *msg);
    enum embtier_err (*drop)(void *context, uint64_t id, struct err_msg *msg);
    void *context;
};
MUST_CHECK enum embtier_err reshard_directory_free(struct store *store,
                                                   const struct reshard_freeing *freeing,
                                                   uint32_t place, struct err_msg *msg);

/* Called when it has left: its space counts no more. */
void reshard_directory_left(struct store *store, uint32_t place);

/* Called at the end of a job, also of one that failed or was cancelled. The space of a directory
 * that has got buckets counts from now on. One that was to leave takes shards again, unless @done.
 */
void reshard_directory_end(struct store *store, enum reshard_order order, uint32_t place,
                           bool done);

/* Sets the message for an order that comes while another one runs; returns BUSY. */
enum embtier_err reshard_refuse(const struct reshard_facts *facts, struct err_msg *msg);

#endif
