/* SPDX-License-Identifier: Apache-2.0 */
/* profiles.h: the profile of the running server: starts and stops it, and keeps its results.
 *
 * There is one at a time. While it runs, lanes sample (sampler.h) and a thread of its own takes the
 * samples (profiler.h). Its memory is counted among that of exports and imports
 * (transfer_memory.h), and given back when it stops. The results stay until the next start. A
 * restart of the server forgets them.
 *
 * Thread: one that may wait for lanes, unless it says otherwise. */
#ifndef EMBTIER_DAEMON_JOBS_PROFILE_PROFILES_H
#define EMBTIER_DAEMON_JOBS_PROFILE_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct lane;
struct profiles;
struct tables;
struct transfer_memory;

/* Borrowed for the profiles' life. */
struct profiles_opts {
    struct tables *tables;
    struct transfer_memory *memory;
    uint64_t memory_bytes; /* of all exports, imports and profiles: checkpoints.transfer_bytes */
    struct lane *const *lanes;
    uint32_t lane_count;
    uint32_t core_count; /* that the server may run on */
};

MUST_CHECK enum embtier_err profiles_new(const struct profiles_opts *opts,
                                         struct profiles **ret_profiles, struct err_msg *msg);
/* Ends the profile that runs, without results. Lanes still run. */
void profiles_end(struct profiles *profiles);
/* No profile runs. */
void profiles_free(struct profiles *profiles);
DEFINE_CLEANUP(struct profiles, profiles_free)

struct profile_state {
    bool runs;
    bool is_exact; /* so far all rows of all tables are sampled */
    uid_t uid;     /* of the user that started it */
    uint64_t age_ms;
    uint64_t memory_bytes;
    uint64_t lookups;
    uint64_t samples;
    uint64_t lost_samples;
    uint32_t tables;
};

/* @memory_bytes 0: as much as is of use, but at most a quarter of all. BUSY: one runs, or there is
 * no memory now. TOO_LARGE: the memory is too little for the tables, or more than there is. */
MUST_CHECK enum embtier_err profiles_start(struct profiles *profiles, uid_t uid,
                                           uint64_t memory_bytes, struct profile_state *ret_state,
                                           struct err_msg *msg);
/* NOT_FOUND: none runs. PERMISSION: another user started it, unless @uid is root or the server's.
 */
MUST_CHECK enum embtier_err profiles_stop(struct profiles *profiles, uid_t uid,
                                          struct profile_state *ret_state, struct err_msg *msg);

/* A piece of the saved profile (placement/profile/profile_file.h). */
struct profile_piece {
    uint64_t snapshot; /* numbers the results; 0 asks for new ones */
    uint32_t line;     /* of the file, from 0 */
    uint64_t offset;   /* in the line */
    uint32_t lines;
    uint64_t line_bytes; /* with its newline */
    char *text;          /* malloced: the rest of the line, at most PROFILE_PIECE_BYTES */
    size_t bytes;
};
#define PROFILE_PIECE_BYTES (32 * KIB)

/* Reads a piece; @piece says which, and gets the rest. The results of a profile that runs are made
 * when the first piece is read. NOT_FOUND: there is no profile, it has no lookups, or it has no
 * such piece. BUSY: meanwhile other results took the place of these. */
MUST_CHECK enum embtier_err profiles_read(struct profiles *profiles, struct profile_piece *piece,
                                          struct err_msg *msg);

/* Zeros if no profile runs. Any thread; waits for nothing. */
void profiles_state(struct profiles *profiles, struct profile_state *ret_state);

#endif
