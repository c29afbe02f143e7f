/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_scheduler_impl.h: declarations shared by the files of the scheduler.
 *
 * compaction_scheduler.c has the thread that gives out slots, compaction_operators.c what operators
 * ask for and are told, compaction_progress.c how far compactions are, compaction_rewrite.c the
 * rewriting of all files. */
#ifndef EMBTIER_STORE_DATABASE_COMPACTION_SCHEDULER_IMPL_H
#define EMBTIER_STORE_DATABASE_COMPACTION_SCHEDULER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "store/database/compaction_pace.h"
#include "store/database/compaction_scheduler.h"

enum slot_state { SLOT_OFF, SLOT_ON, SLOT_DRAINING };

/* Something to retry until it works. The time between tries doubles, since each one writes to a
 * disk that is probably still full. */
struct retry {
    uint64_t at_ns; /* time of the next try; 0: nothing to try */
    uint64_t wait_ns;
};

/* The scheduler thread's view of a database. */
struct entry {
    struct database *database;
    uint32_t device;
    enum slot_state state;
    struct database_debt debt;
    struct compaction_view progress; /* the fields of what runs */
    uint64_t idle_since_ns; /* since when it is ON and due, could run, and does not; 0: it is not */
    uint64_t sits_out_until_ns;
    bool found_nothing;  /* it sits out since RocksDB found nothing to compact; else it failed */
    struct retry resume; /* while it has failed */
    struct retry off;    /* while off is owed */
    bool has_failed;     /* it has failed, and RocksDB has not counted since */
    bool trouble_logged; /* the log says that it cannot be turned on or off */
    bool is_wanted;      /* an operator has asked for it; it counts as urgent */
    uint64_t next_log_ns;
};

struct compaction_scheduler {
    struct entry *entries;                /* scheduler thread only */
    _Atomic uint32_t count, device_count; /* only grow */
    uint32_t room;                        /* of entries and views */
    uint64_t hold_patience_ns;
    _Atomic bool busy;
    _Atomic bool paused;
    _Atomic bool deferred;
    bool put_off, in_hours; /* in this round; scheduler thread only */
    bool threads_are_busy;  /* the same: a compaction waits for a thread */
    const rocksdb_options_t *options;
    uint64_t measure_at_ns; /* next look at the space of blob files; scheduler thread only */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a slot was given back, or the thread shall end */
    pthread_cond_t seen;    /* a round has ended */
    /* Under the mutex. */
    bool stop;
    uint32_t parallel;
    struct slots {
        uint32_t used;     /* by databases ON or DRAINING and by holders; may exceed @parallel */
        bool urgent_waits; /* an urgent database has no slot, as of the last round */
        uint32_t waiting;  /* callers of compaction_scheduler_hold() without a slot */
    } slots[COMPACTION_DEVICES_MAX];
    uint64_t limit_bytes;     /* a second that compactions may write; 0: no limit */
    uint64_t limit_now_bytes; /* in force */
    struct compaction_pace pace;
    struct compaction_strain strain; /* of the last round */
    enum compaction_pace_reason pace_reason;
    struct day_hours hours;
    bool catches_up;               /* every database that is due counts as urgent */
    uint64_t rounds;               /* that have ended */
    struct compaction_view *views; /* of the last round */
};

/* Fills in the progress of each entry's compactions. Scheduler thread. */
void compaction_look_at_progress(struct compaction_scheduler *scheduler);
/* Locked. Without hours the time of day is not asked for, which would read the time zone. */
uint32_t compaction_minutes_to_hours(const struct compaction_scheduler *scheduler);
/* Returns when a round that begins now is over. */
struct timespec compaction_period_end(void);

#endif
