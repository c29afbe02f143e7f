/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_record.h: what a job that moves buckets is to do, in the first data directory, so that a
 * start goes on with it. The map says how far it is. Thread: one. */
#ifndef EMBTIER_STORE_RESHARDING_RESHARD_RECORD_H
#define EMBTIER_STORE_RESHARDING_RESHARD_RECORD_H

#include <stdint.h>

#include "base/err.h"

#define RESHARD_RECORD_FILE "reshard.json"

struct reshard_record {
    uint32_t shards; /* 0: there is no job */
    uint64_t rate_bytes;
};

/* A missing file is no job. CORRUPT: it is damaged; the caller logs that, and may remove it. */
MUST_CHECK enum embtier_err
reshard_record_read(const char *directory, struct reshard_record *ret_record, struct err_msg *msg);
MUST_CHECK enum embtier_err reshard_record_write(const char *directory,
                                                 const struct reshard_record *record,
                                                 struct err_msg *msg);
MUST_CHECK enum embtier_err reshard_record_remove(const char *directory, struct err_msg *msg);

#endif
