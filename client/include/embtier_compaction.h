/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_compaction.h: compaction of the server's shards (embtier.h).
 *
 * RocksDB merges the files of a shard in the background. That takes bandwidth of the drives from
 * lookups, so few shards do it at a time. An operator can look at it, put it off, give it hours,
 * and have all shards catch up now. */
#ifndef EMBTIER_COMPACTION_H
#define EMBTIER_COMPACTION_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The server as a whole. */
struct embtier_compaction {
    uint32_t databases;
    uint32_t parallel; /* shards of each device that may compact at the same time */
    int is_put_off;    /* nonzero: by embtier_compaction_put_off() */
    int is_busy;       /* nonzero: lookups wait for the drives, so compaction waits */
    int lacks_space;   /* nonzero: a disk is full, so nothing compacts */
    int is_in_hours;   /* zero: compaction waits for its hours */
    uint32_t minutes_to_hours;
    const char *hours;        /* local time, such as "22:00-06:00"; "": all day */
    uint64_t limit_bytes;     /* a second that compactions may write; 0: no limit */
    uint64_t limit_now_bytes; /* the limit in force; 0: none */
    const char *limit_state;  /* "none", "holds", "raised", "suspended" */
    const char *limit_why;    /* what the state means */
};
/* One database. A shard has two: for tables whose changes are logged, and for others. */
struct embtier_compaction_database {
    const char *path;
    const char *state;     /* "idle", "runs", "paused", … */
    const char *why;       /* what the state means */
    int is_urgent;         /* nonzero: near the limit at which it takes no more updates; it compacts
                              even if compaction is put off */
    uint32_t level0_files; /* files that are not merged yet */
    uint64_t pending_bytes; /* still to be compacted; RocksDB's estimate */
    uint64_t running;       /* compactions that run now */
    /* Progress of the compactions that run; an older server does not report it: */
    uint64_t done_bytes;   /* of their files', read so far */
    uint64_t total_bytes;  /* of their files'; 0: not known */
    uint64_t elapsed_ms;   /* of the oldest */
    int has_remaining;     /* zero: the next one is not known yet */
    uint64_t remaining_ms; /* of the slowest, at its speed so far */
};
struct embtier_compaction_list;
/* Describes the server as a whole and each database, in the order of shards. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_compaction_show(struct embtier *server, struct embtier_compaction_list **ret_list);
/* The whole; borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_compaction *
embtier_compaction_facts(const struct embtier_compaction_list *list);
EMBTIER_PUBLIC size_t embtier_compaction_list_count(const struct embtier_compaction_list *list);
/* Borrowed from the list. NULL: there is no such database. */
EMBTIER_PUBLIC const struct embtier_compaction_database *
embtier_compaction_list_at(const struct embtier_compaction_list *list, size_t index);
EMBTIER_PUBLIC void embtier_compaction_list_free(struct embtier_compaction_list *list);

/* Puts compaction off (nonzero), or lets it go on (0), until the server's next start. Compactions
 * that run go on to their end. PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_compaction_put_off(struct embtier *server, int put_off);
/* Sets the hours of compaction until the server's next start: local time, such as "22:00-06:00" or
 * "12:00-13:00,20:00-24:00"; "": all day. INVALID, PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_compaction_set_hours(struct embtier *server, const char *hours);
/* Has all databases that are due compact now, although compaction may be put off, and waits until
 * they have. It is a job of the kind "compaction run" (embtier_job.h). @progress may be NULL.
 * NO_SPACE: a disk is full. IO: a database's background work fails. CANCELLED, PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_compaction_run(struct embtier *server, embtier_progress_fn *progress, void *context);
/* Rewrites all files of all databases, one after the other, while clients read and write. It gives
 * back space of old versions, and applies another rocksdb.layout at once. It is a job as above,
 * with the same errors. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_compaction_rewrite(struct embtier *server, embtier_progress_fn *progress, void *context);

#ifdef __cplusplus
}
#endif
#endif
