/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h: the sessions of the random walk (test_random_walk.c), their requests in flight, and
 * the checks of the answers.
 *
 * One thread drives all sessions and seldom waits. So the server works on requests of all of
 * them at once, while the walk's decisions depend on its seed only. Any mismatch ends the test,
 * with the seed and the command that repeats the walk. */
#ifndef EMBTIER_TESTS_INTEGRATION_WALK_H
#define EMBTIER_TESTS_INTEGRATION_WALK_H

#include "tests/integration/harness.h"
#include "tests/integration/walk_model.h"

#define WALK_SESSIONS      MODEL_OWNERS
#define WALK_TABLES        8
#define WALK_LANES_MAX     8
#define WALK_PARTS         4
#define WALK_IN_FLIGHT     16
#define WALK_ARENA_BYTES   (UINT64_C(12) << 20)
#define WALK_BATCH_ROWS    6000 /* socket.max_batch_rows; more than one wave of a pooled lookup */
#define WALK_POISON        0xa5 /* fills memory that the server must overwrite, or leave alone */
#define WALK_PLACES        8
#define WALK_TRAINED_TABLE "walk.trained"
#define WALK_TRAINED_ROWS  500
#define WALK_STEPS         24 /* kinds of steps, at most */
#define WALK_TIMEOUT_MS    120000

/* In each tier. With seven arrays of two slabs anywhere in it, there is room for another one. */
#define WALK_ARRAY_MIB 56
_Static_assert(WALK_TABLES == 8, "WALK_ARRAY_MIB is for eight tables");

/* One row of a request in flight. */
struct walk_row {
    uint32_t row;
    uint32_t settled; /* not SET: the row's value of `settled` at the time of submission */
    uint32_t low;     /* not SET: the oldest version allowed; SET: its version */
    uint32_t high;    /* not SET: the newest version allowed; MODEL_NO_VERSION: the newest at the
                       * time of the answer */
};

struct walk_request {
    struct embtier_batch *batch;
    enum embtier_op op;
    uint64_t number; /* counts the session's requests */
    uint32_t part_count;
    struct model_table *tables[WALK_PARTS];
    uint32_t weight_bytes[WALK_PARTS];   /* of each part's rows */
    uint32_t bag_bytes[WALK_PARTS];      /* GET_POOLED: of each part's bags */
    enum embtier_pool modes[WALK_PARTS]; /* GET_POOLED only */
    bool refused;                        /* the server must refuse it, with `err` */
    enum embtier_err err;
    struct walk_row rows[]; /* the rows of all parts */
};

struct walk_session {
    uint32_t number;
    struct embtier *server;
    struct embtier_table *handles[WALK_TABLES];  /* as walk->tables; NULL: not open */
    struct embtier_table *stale;                 /* handle of a dropped table, or NULL */
    struct walk_request *flight[WALK_IN_FLIGHT]; /* oldest first */
    uint32_t flight_count;
    uint64_t submitted;
    uint32_t slots;             /* the connection's max_in_flight */
    uint32_t depth;             /* the number of requests that the walk keeps in flight */
    struct walk_request *spare; /* an answered request, whose batch is kept for another one */
    bool has_joined;            /* it is in a group */
    uint32_t left_groups;       /* a session may leave only a few groups */
};

/* The walk's counts of the figures that the server counts, since it started. */
struct walk_totals {
    uint64_t requests;
    uint64_t rows[EMBTIER_GET_POOLED + 1];       /* by enum embtier_op: answered */
    uint64_t maybe_rows[EMBTIER_GET_POOLED + 1]; /* without an answer, or refused half-way */
    uint64_t maybe_requests;
    uint64_t maybe_failed_rows; /* of prefetches without room for pins */
};

/* The last table of a number, to make it again. */
struct walk_last_table {
    struct table_spec spec;
    uint32_t row_count; /* 0: there was none */
};

/* Data directories besides the first one. One at a time is in the store. Each has a path of its
 * own, as the files of a removed one stay. */
struct walk_directories {
    uint32_t added;             /* so far */
    uint32_t removed;           /* since the server's start: their databases are still open */
    bool is_there;              /* the newest is in the store */
    bool was_left;              /* perhaps: rows have moved to other shards since it was added */
    bool is_gone;               /* the newest was removed, and its files, too */
    uint64_t checkpoint_before; /* the newest when it was added, which has no files there */
};

struct walk {
    struct harness harness;
    uint64_t seed;
    uint64_t random;
    uint64_t steps_wanted;
    uint64_t step;
    uint32_t lanes; /* EMBTIER_TEST_LANES; tables are sized for this number */
    uint32_t lanes_now;
    struct embtier *admin; /* without an arena, for tables and status only */
    struct walk_session sessions[WALK_SESSIONS];
    struct model_table *tables[WALK_TABLES]; /* NULL: no table of that number */
    struct model_table *doomed;              /* being dropped: requests to it may be refused */
    enum embtier_err drop_err;
    struct embtier_move_options move;
    struct embtier *mover;            /* the connection that asks for the move */
    const char *moved;                /* the name of the table that moves */
    const struct model_table *moving; /* it may be in its old home, or in its new one; or NULL */
    enum embtier_err move_err;
    bool bad_progress; /* a callback saw more done than there is to do */
    struct walk_last_table last[WALK_TABLES];
    uint32_t set_percent;  /* of all requests */
    uint32_t many_percent; /* of parts, those with many rows */
    uint64_t tables_made;
    uint32_t last_table_id;
    struct walk_totals totals;
    uint64_t counts[WALK_STEPS];
    uint64_t rows_checked;
    uint64_t bags_checked;
    uint64_t bags_unknown;                    /* others were setting some of their rows */
    uint64_t op_counts[EMBTIER_PREFETCH + 1]; /* requests, by enum embtier_op */
    float trained[WALK_TRAINED_ROWS]; /* each row of the trained table; all its columns are equal */
    uint64_t train_step;
    uint64_t controls;
    struct walk_directories directories;
    uint64_t tier_mib[2];                  /* sizes that the configuration has; 0: not read yet */
    uint64_t checkpoint;                   /* the newest; 0: there is none */
    float checkpointed[WALK_TRAINED_ROWS]; /* the trained table's rows in it */
    uint64_t place_rows[WALK_PLACES];      /* rows by place; names are in test_random_walk.c */
};

/* Ends the test with a message. */
PRINTF_LIKE(2, 3)
__attribute__((noreturn)) void walk_fail(struct walk *walk, const char *format, ...);
#define WALK_CHECK(walk, what, ...)                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            walk_fail(walk, __VA_ARGS__);                                                          \
    } while (0)
/* Checks that a call on @server returned @wanted. */
void walk_expect(struct walk *walk, const struct embtier *server, enum embtier_err err,
                 enum embtier_err wanted, const char *call);

uint32_t walk_pick(struct walk *walk, uint64_t below);
bool walk_chance(struct walk *walk, uint32_t percent);

void walk_connect(struct walk *walk, struct walk_session *session);
/* The session's handle of table number @t, opened if necessary. */
struct embtier_table *walk_handle(struct walk *walk, struct walk_session *session, uint32_t t);
uint32_t walk_pick_table(struct walk *walk); /* the number of an existing table */
void walk_check_info(struct walk *walk, const struct model_table *table,
                     const struct embtier_table_info *info);

struct embtier_table_options walk_table_options(const struct table_spec *spec);

/* Submits a request with random parts and ids of existing tables. With @bad it is wrong
 * somewhere and must be refused, if possible. */
void walk_submit(struct walk *walk, struct walk_session *session, bool bad);
/* Submits a pooled lookup of few bags with so many rows that most take several waves. */
void walk_submit_long_lookup(struct walk *walk, struct walk_session *session);
/* Reads all rows of table @t, with several GETs in flight. */
void walk_sweep(struct walk *walk, struct walk_session *session, uint32_t t);
/* Waits for request @at of those in flight and checks its answer. */
void walk_finish(struct walk *walk, struct walk_session *session, uint32_t at);
void walk_drain(struct walk *walk, struct walk_session *session);
/* Gives up the session's requests in flight, whose answers will never come. */
void walk_abandon(struct walk *walk, struct walk_session *session);
void walk_free_spare(struct walk *walk, struct walk_session *session);

/* Slots are used in turn: waits until the next slot's request is done. */
void walk_make_way(struct walk *walk, struct walk_session *session);

/* The place in the batch where the server puts the part's rows or bags, and their bytes. */
uint8_t *walk_answer(const struct walk_request *request, uint32_t p, size_t *ret_bytes);

/* ---- walk_bags.c: pooled lookups ---- */

/* Chooses bags for the part's ids. */
void walk_pick_bags(struct walk *walk, struct embtier_bag_part *part);
/* Deals the ids out to the bags, and sets weights. */
void walk_cut_bags(struct walk *walk, const struct walk_request *request, uint32_t p);
/* Makes the offsets of some part wrong. */
void walk_spoil_bags(struct walk *walk, struct walk_request *request);
/* Checks the bags of part @p; @rows are that part's. */
void walk_check_bags(struct walk *walk, const struct walk_session *session,
                     const struct walk_request *request, uint32_t p, const struct walk_row *rows);

/* ---- walk_training.c: prefetches, tickets and pushes ---- */

/* Makes the trained table. */
void walk_training_new(struct walk *walk, struct embtier *server);
/* Trains some rows: perhaps a prefetch, then a push of rows, or a lookup with a ticket and a
 * push or a release. Checks the result. */
void walk_train(struct walk *walk, struct walk_session *session);
/* Checks all rows of the trained table. */
void walk_check_trained(struct walk *walk, struct walk_session *session);
/* The same for another table of its kind: all columns of row i must be @wanted[i]. */
void walk_check_rows_of(struct walk *walk, struct walk_session *session, const char *name,
                        const float *wanted);
struct embtier_table_options walk_trained_options(const char *name);

/* ---- walk_control.c: checkpoints, scans, loads, groups, jobs, accounts, profiles and plans ----
 */

/* Makes one of these calls. */
void walk_control(struct walk *walk, struct walk_session *session);
/* Sets the lanes' readers, or the trigger of compaction, to another value. */
void walk_set_knob(struct walk *walk, struct walk_session *session);
/* Checks that each kind of request in control.proto was sent. */
void walk_check_requests(struct walk *walk);

/* ---- walk_server.c: configuration and restarts ---- */

void walk_configure(struct walk *walk, uint32_t lanes);
/* Stops the server and starts it with other lanes. Sessions come back with what is in flight. */
void walk_restart(struct walk *walk, uint32_t lanes);

/* ---- walk_shards.c: rows move to other shards and data directories ---- */

/* Moves rows until @shards shards have them. */
void walk_reshard(struct walk *walk, uint32_t shards);
/* Adds a data directory, or removes it, while sessions read and write. Now and then the server
 * restarts meanwhile, and goes on with it. */
void walk_change_directories(struct walk *walk);
/* Returns what data.directories has, in @ret_list, for the next start. */
void walk_name_directories(struct walk *walk, char *ret_list, size_t list_bytes);

/* Make calls on tables, and on batches, that must be refused; see walk_refusals.c. */
void walk_call_badly(struct walk *walk, struct walk_session *session);
void walk_batch_badly(struct walk *walk, struct walk_session *session);

#endif
