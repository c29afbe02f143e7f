/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_data.h: the data directories of a server's store (embtier.h).
 *
 * Rows move to a directory that is added, and away from one that is removed, while clients read and
 * write. The store keeps the list of its directories. data.directories of the server's
 * configuration should name them by the next start, which goes by the list and warns otherwise. */
#ifndef EMBTIER_DATA_H
#define EMBTIER_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_data_directory {
    uint32_t number; /* in the store; the first one, 0, cannot be removed */
    const char *path;
    uint32_t shards;  /* in it that have rows */
    uint32_t buckets; /* of rows, of 16,384 */
    uint64_t stored_bytes;
    uint64_t free_bytes, capacity_bytes; /* of its file system; 0: unknown */
    uint32_t device;                     /* directories on one file system have the same */
};

/* An order that is being carried out, or that did not come to its end. */
struct embtier_data_order {
    const char *adds, *removes; /* a path; "": none */
    int runs;                   /* nonzero: rows move now */
    uint32_t moved;             /* buckets, of `total` */
    uint32_t total;
};

struct embtier_data_list;
/* Lists the directories, by number. PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_data_list(struct embtier *server, struct embtier_data_list **ret_list);
EMBTIER_PUBLIC size_t embtier_data_list_count(const struct embtier_data_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_data_directory *
embtier_data_list_at(const struct embtier_data_list *list, size_t index);
EMBTIER_PUBLIC const struct embtier_data_order *
embtier_data_list_order(const struct embtier_data_list *list);
EMBTIER_PUBLIC void embtier_data_list_free(struct embtier_data_list *list);

/* Adds the directory at @path, an absolute path on the server's machine, and waits until buckets
 * are spread evenly. The call is a job as embtier_reshard_run() is. The server makes the directory
 * if it is not there. EXISTS: it is a data directory already. INVALID: it is none, or lies in
 * another. MISMATCH: it is not empty. BUSY: rows are being moved already. NO_SPACE, IO, NOT_FOUND,
 * CONFIG, CANCELLED, PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_data_add(struct embtier *server, const char *path, uint64_t rate_bytes,
                 embtier_progress_fn *progress, void *context, struct embtier_data_list **ret_list);
/* Moves all rows out of the directory, and removes it from the store. The server keeps emptied
 * files open there until it stops. Checkpoints that have files there are deleted; those of users
 * only if @deletes_checkpoints is nonzero: EXISTS otherwise. NOT_FOUND: it is no data directory.
 * INVALID: it is the first or the only one. BUSY, NO_SPACE, IO, CANCELLED, PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_data_remove(struct embtier *server, const char *path, int deletes_checkpoints,
                    uint64_t rate_bytes, embtier_progress_fn *progress, void *context,
                    struct embtier_data_list **ret_list);

#ifdef __cplusplus
}
#endif
#endif
