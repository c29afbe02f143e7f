/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_record.h: what a job that moves buckets is to do, in the first data directory, so that a
 * start goes on with it. The map says how far it is. Thread: one. */
#ifndef EMBTIER_STORE_RESHARDING_RESHARD_RECORD_H
#define EMBTIER_STORE_RESHARDING_RESHARD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define RESHARD_RECORD_FILE "reshard.json"

#define RESHARD_DIRECTORY_MAX 4096

enum reshard_order { RESHARD_TO_SHARDS, RESHARD_ADD, RESHARD_REMOVE };

struct reshard_record {
    /* Shards that shall have buckets; or that the added directory gets, or that stay without the
     * removed one. 0: there is no job. */
    uint32_t shards;
    uint64_t rate_bytes;
    enum reshard_order order;
    bool deletes_checkpoints; /* also a user's, if they need the directory that is removed */
    char directory[RESHARD_DIRECTORY_MAX]; /* added or removed; "": none is */
};

/* A missing file is no job. CORRUPT: it is damaged; the caller logs that, and may remove it. */
MUST_CHECK enum embtier_err
reshard_record_read(const char *directory, struct reshard_record *ret_record, struct err_msg *msg);
MUST_CHECK enum embtier_err reshard_record_write(const char *directory,
                                                 const struct reshard_record *record,
                                                 struct err_msg *msg);
MUST_CHECK enum embtier_err reshard_record_remove(const char *directory, struct err_msg *msg);
/* Replaces an order that has changed nothing by the one before; shards 0: there was none. True if
 * an order is on disk now. */
bool reshard_record_put_back(const char *directory, const struct reshard_record *before);

#endif
