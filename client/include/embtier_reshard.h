/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_reshard.h: the number of shards that a server keeps its rows in (embtier.h).
 *
 * A shard is a pair of RocksDB databases in one of the data directories. Each row belongs to a
 * bucket, and each bucket lies in a shard. Buckets move to more shards, or to fewer, while clients
 * read and write. Emptied shards go with the server's next start. */
#ifndef EMBTIER_RESHARD_H
#define EMBTIER_RESHARD_H

#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_reshard {
    uint32_t shards; /* that have rows */
    int runs;        /* nonzero: buckets move now */
    uint32_t wanted; /* shards that shall have rows; 0: there is nothing left to do */
    uint32_t moved;  /* buckets, of `total`; while they move */
    uint32_t total;
};

/* Tells how buckets lie. PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_reshard_show(struct embtier *server, struct embtier_reshard *ret_reshard);
/* Moves buckets until @shards shards have as many each, and waits for that. At most @rate_bytes a
 * second are read; 0: no limit. It is a job of the kind "reshard" (embtier_job.h), which goes on if
 * its client ends, and when the server starts again. Cancelled, it leaves each bucket where it is
 * by then. @progress may be NULL. BUSY: buckets are being moved already. CONFIG: memory or file
 * descriptors do not suffice for so many shards. NO_SPACE, IO, CANCELLED, PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_reshard_run(struct embtier *server, uint32_t shards, uint64_t rate_bytes,
                    embtier_progress_fn *progress, void *context,
                    struct embtier_reshard *ret_reshard);

#ifdef __cplusplus
}
#endif
#endif
