/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h: the sessions of the random walk (test_random_walk.c), their requests in flight, and what
 * the answers must be.
 *
 * All sessions are driven by one thread that seldom waits, so the server works on requests of all
 * of them at once while the walk's decisions depend on its seed only. Whatever is not as it must be
 * ends the test, with the seed and the command that walks the same way again. */
#ifndef EMBTIER_TESTS_INTEGRATION_WALK_H
#define EMBTIER_TESTS_INTEGRATION_WALK_H

#include "tests/integration/harness.h"
#include "tests/integration/walk_model.h"

#define WALK_SESSIONS      MODEL_OWNERS
#define WALK_TABLES        8
#define WALK_PARTS         4
#define WALK_IN_FLIGHT     16
#define WALK_ARENA_BYTES   (UINT64_C(12) << 20)
#define WALK_BATCH_ROWS    6000 /* socket.max_batch_rows; more than a wave of a pooled lookup has */
#define WALK_POISON        0xa5 /* in what the server is to fill, or must leave alone */
#define WALK_PLACES        8
#define WALK_TRAINED_TABLE "walk.trained"
#define WALK_TRAINED_ROWS  500
#define WALK_STEPS         24 /* kinds of steps, at most */
#define WALK_TIMEOUT_MS    120000

/* A row of a request in flight. */
struct walk_row {
    uint32_t row;
    uint32_t settled; /* not SET: when it was submitted */
    uint32_t low;     /* the oldest version that it may be; SET: its version */
    uint32_t high; /* not SET: the newest, MODEL_NO_VERSION: what is newest when it is answered */
};

struct walk_request {
    struct embtier_batch *batch;
    enum embtier_op op;
    uint64_t number; /* of the session's requests */
    uint32_t part_count;
    struct model_table *tables[WALK_PARTS];
    uint32_t weight_bytes[WALK_PARTS];   /* of the part's rows */
    uint32_t bag_bytes[WALK_PARTS];      /* GET_POOLED: of its bags */
    enum embtier_pool modes[WALK_PARTS]; /* GET_POOLED */
    bool refused;                        /* must be, with `err` */
    enum embtier_err err;
    struct walk_row rows[]; /* of all parts */
};

struct walk_session {
    uint32_t number;
    struct embtier *server;
    struct embtier_table *handles[WALK_TABLES];  /* of walk->tables; NULL: not open */
    struct embtier_table *stale;                 /* of a table that was dropped, or NULL */
    struct walk_request *flight[WALK_IN_FLIGHT]; /* oldest first */
    uint32_t flight_count;
    uint64_t submitted;
    uint32_t slots;             /* max_in_flight */
    uint32_t depth;             /* requests that are let be in flight */
    struct walk_request *spare; /* answered, its batch kept for another request */
    bool has_joined;            /* a group */
    uint32_t left_groups;       /* of which a session has so many at most */
};

/* Of what the server counts, since it started. */
struct walk_totals {
    uint64_t requests;
    uint64_t rows[EMBTIER_GET_POOLED + 1];       /* by enum embtier_op, answered for */
    uint64_t maybe_rows[EMBTIER_GET_POOLED + 1]; /* nobody heard, or refused on the way */
    uint64_t maybe_requests;
    uint64_t maybe_failed_rows; /* of prefetches that had no room for pins */
};

/* What the last table of a number was, to make it again. */
struct walk_last_table {
    struct table_spec spec;
    uint32_t row_count; /* 0: there was none */
};

struct walk {
    struct harness harness;
    uint64_t seed;
    uint64_t random;
    uint64_t steps_wanted;
    uint64_t step;
    uint32_t lanes; /* the most, and those that tables are measured by */
    uint32_t lanes_now;
    struct embtier *admin; /* without an arena: tables and status only */
    struct walk_session sessions[WALK_SESSIONS];
    struct model_table *tables[WALK_TABLES]; /* NULL: there is none of that number */
    struct model_table *doomed;              /* is being dropped: requests to it may be refused */
    enum embtier_err drop_err;
    bool bad_progress; /* was told of more done than there is */
    struct walk_last_table last[WALK_TABLES];
    uint32_t set_percent;  /* of the requests */
    uint32_t many_percent; /* with many rows */
    uint64_t tables_made;
    uint32_t last_table_id;
    struct walk_totals totals;
    uint64_t counts[WALK_STEPS];
    uint64_t rows_checked;
    uint64_t bags_checked;
    uint64_t bags_unknown;                    /* other sessions were setting some of their rows */
    uint64_t op_counts[EMBTIER_PREFETCH + 1]; /* requests, by enum embtier_op */
    float trained[WALK_TRAINED_ROWS]; /* all numbers of each row of the table that is trained */
    uint64_t train_step;
    uint64_t controls;
    uint64_t checkpoint;                   /* the newest; 0: none … */
    float checkpointed[WALK_TRAINED_ROWS]; /* … and what that table was then */
    uint64_t place_rows[WALK_PLACES];      /* served from there; test_random_walk.c has the names */
};

/* Ends the test. */
PRINTF_LIKE(2, 3)
__attribute__((noreturn)) void walk_fail(struct walk *walk, const char *format, ...);
#define WALK_CHECK(walk, what, ...)                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            walk_fail(walk, __VA_ARGS__);                                                          \
    } while (0)
/* @err, of a call on @server, must be @wanted. */
void walk_expect(struct walk *walk, const struct embtier *server, enum embtier_err err,
                 enum embtier_err wanted, const char *call);

uint32_t walk_pick(struct walk *walk, uint64_t below);
bool walk_chance(struct walk *walk, uint32_t percent);

void walk_connect(struct walk *walk, struct walk_session *session);
/* The session's handle of table number @t, opened if need be. */
struct embtier_table *walk_handle(struct walk *walk, struct walk_session *session, uint32_t t);
uint32_t walk_pick_table(struct walk *walk); /* one that there is */
void walk_check_info(struct walk *walk, const struct model_table *table,
                     const struct embtier_table_info *info);

struct embtier_table_options walk_table_options(const struct table_spec *spec);

/* Random parts and ids, of tables there are, submitted. With @bad, something is wrong with it, so
 * that it must be refused. */
void walk_submit(struct walk *walk, struct walk_session *session, bool bad);
/* A pooled lookup of few bags and so many rows that most take several waves. */
void walk_submit_long_lookup(struct walk *walk, struct walk_session *session);
/* GETs of all rows of table @t, several in flight. */
void walk_sweep(struct walk *walk, struct walk_session *session, uint32_t t);
/* Waits for request @at of those in flight and checks its answer. */
void walk_finish(struct walk *walk, struct walk_session *session, uint32_t at);
void walk_drain(struct walk *walk, struct walk_session *session);
/* The session's requests in flight are given up: nobody will hear of them. */
void walk_abandon(struct walk *walk, struct walk_session *session);
void walk_free_spare(struct walk *walk, struct walk_session *session);

/* Slots are used in turn: the request that had the next one must be done. */
void walk_make_way(struct walk *walk, struct walk_session *session);

/* Where the server puts rows, or bags, of a part, and how many bytes. */
uint8_t *walk_answer(const struct walk_request *request, uint32_t p, size_t *ret_bytes);

/* ---- walk_bags.c: pooled lookups ---- */

/* Bags for the part's ids. */
void walk_pick_bags(struct walk *walk, struct embtier_bag_part *part);
/* Deals the ids out to the bags; weights. */
void walk_cut_bags(struct walk *walk, const struct walk_request *request, uint32_t p);
/* The offsets of some part are no more what they must be. */
void walk_spoil_bags(struct walk *walk, struct walk_request *request);
/* @rows are those of part @p. */
void walk_check_bags(struct walk *walk, const struct walk_session *session,
                     const struct walk_request *request, uint32_t p, const struct walk_row *rows);

/* ---- walk_training.c: prefetches, tickets and pushes ---- */

/* Makes the table that is trained. */
void walk_training_new(struct walk *walk, struct embtier *server);
/* Some of its rows: perhaps a prefetch, then a push of rows, or a lookup with a ticket and a push
 * or a release; and a look at what came of it. */
void walk_train(struct walk *walk, struct walk_session *session);
/* A look at all of its rows. */
void walk_check_trained(struct walk *walk, struct walk_session *session);
/* The same of a table of its kind: all numbers of row i are @wanted[i]. */
void walk_check_rows_of(struct walk *walk, struct walk_session *session, const char *name,
                        const float *wanted);
struct embtier_table_options walk_trained_options(const char *name);

/* ---- walk_control.c: checkpoints, scans, loads, groups, jobs and accounts ---- */

/* One of them. */
void walk_control(struct walk *walk, struct walk_session *session);
/* Each kind of request that control.proto has was sent. */
void walk_check_requests(struct walk *walk);

/* Of tables and of batches what must be refused; see walk_refusals.c. */
void walk_call_badly(struct walk *walk, struct walk_session *session);
void walk_batch_badly(struct walk *walk, struct walk_session *session);

#endif
