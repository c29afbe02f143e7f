/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_profile.h: a profile of how the running server's tables are looked up (embtier.h). */
#ifndef EMBTIER_PROFILE_H
#define EMBTIER_PROFILE_H

#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_profile_info {
    int runs;
    int is_exact; /* nonzero: every row was sampled so far, and no sample was lost */
    uint64_t age_ms;
    uint64_t memory_bytes; /* taken from checkpoints.transfer_bytes */
    uint64_t lookups;      /* of all clients, since it began */
    uint64_t samples;
    uint64_t lost_samples; /* samples that found no room: estimates may be wrong */
    uint32_t tables;       /* number of tables that were looked up */
};
/* Begins a profile of the lookups of all clients. The server makes one at a time, and forgets the
 * results of the last one. @memory_bytes: more than about 1.1 MiB for each table is of no use; 0:
 * the server chooses. @ret_info may be NULL. BUSY: a profile is being made, or there is no memory
 * now. TOO_LARGE: the memory is too little for the server's tables, or more than it has
 * (checkpoints.transfer_bytes). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_profile_start(struct embtier *server, uint64_t memory_bytes,
                      struct embtier_profile_info *ret_info);
/* Ends the profile. Its results stay until the next start, or the server's end. @ret_info has its
 * last figures, and may be NULL. NOT_FOUND: none is being made. PERMISSION: another user began it,
 * and this one is neither root nor the server's. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_profile_stop(struct embtier *server, struct embtier_profile_info *ret_info);
/* Writes the results, so far or of the last profile, into the new file @path, durable and whole or
 * not at all. `embtier profile show` reads it. EXISTS: there was one. NOT_FOUND: the server has
 * no results, no table was looked up, or there is no such folder. BUSY: another client had results
 * made meanwhile. IO, NO_SPACE, PERMISSION: the file cannot be written. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_profile_save(struct embtier *server,
                                                                        const char *path);

#ifdef __cplusplus
}
#endif
#endif
