/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: what a plan predicts beside what a server did in a window of time
 * (docs/internals/placement/check.md).
 *
 * A plan predicts for its own rate of batches. Clients have another one, so predicted rates are
 * those at the measured pace. The counts are values here; the caller asks the server.
 * Thread: one. */
#ifndef EMBTIER_PLACEMENT_CHECK_CHECK_H
#define EMBTIER_PLACEMENT_CHECK_CHECK_H

#include "placement/plan/plan.h"

/* Fewer events are not compared: their chance alone would exceed the bars. Lanes time one piece of
 * lookups in 64, and a piece has at most 512: a time has at least 12 pieces. */
#define CHECK_LOOKUPS_LEAST   10000
#define CHECK_TIMED_LEAST     400000 /* lookups */
#define CHECK_READS_LEAST     400
#define CHECK_WRITTEN_LEAST   (4 * MIB)
#define CHECK_HIT_POINTS      2.0 /* the default bars */
#define CHECK_TIME_PERCENT    15.0
#define CHECK_IOPS_PERCENT    15.0
#define CHECK_WRITTEN_PERCENT 10.0
/* A split of fewer hot rows than this share of the plan's is another one. */
#define CHECK_HOT_SHARE_LEAST 0.9

/* A table of the server: as it is at the end of the window, and its counts in the window. */
struct check_counts {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    uint64_t rows;
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    enum embtier_home home;
    char tier[TIER_NAME_MAX + 1]; /* of an array, or of a split's; else "" */
    uint64_t hot_rows;            /* of a split */
    bool has_changed;             /* it was made, or changed its home, in the window */
    double lookups, missed, read; /* rows */
    double lane_s;                /* the time of all lanes, without reads */
    double written_bytes;         /* to SSD */
};

struct check_window {
    double seconds;
    uint32_t lane_count;
    uint32_t table_count;
    struct check_counts *tables;
    char tiers[PLAN_TIERS_MAX][TIER_NAME_MAX + 1];
    double cache_hits[PLAN_TIERS_MAX]; /* lookups, of all cached tables */
    uint32_t tier_count;
    double reading_s;      /* for which SSD was read */
    double written_bytes;  /* to SSD, by all causes */
    double memtable_bytes; /* that wait in write buffers at the end */
};

enum check_kind { CHECK_HIT_RATE, CHECK_TIME, CHECK_IOPS, CHECK_WRITTEN, CHECK_KINDS };

/* By how much each kind may differ: points of hit rate; percent of the prediction. */
struct check_bars {
    double most[CHECK_KINDS];
};

enum check_state {
    CHECK_IDLE,     /* none is predicted, and none to speak of was measured */
    CHECK_UNKNOWN,  /* the server does not measure it, or not for planned tables alone */
    CHECK_TOO_FEW,  /* events in the window */
    CHECK_COMPARED, /* the members below are set; else they are as far as known */
};

/* A rate from 0 to 1; seconds a batch; rows' blocks a second; bytes an hour. */
struct check_figure {
    enum check_state state;
    double predicted, measured;
    double difference; /* points, or percent; infinite if 0 was predicted */
    bool is_beyond;
};

enum check_place {
    CHECK_AS_PLANNED,
    CHECK_ELSEWHERE, /* its home differs from the plan's */
    CHECK_ALTERED,   /* its rows, dim, dtype or optimizer differ */
    CHECK_CHANGED,   /* it was made, or changed its home, in the window */
    CHECK_MISSING,   /* the server does not have it */
    CHECK_UNPLANNED, /* the plan does not have it */
};

/* Where a table's rows are. */
struct check_home {
    const char *word;  /* "cache", a tier, "hbm", "split"; NULL: there is no such table */
    const char *tier;  /* of a split's hot rows: a tier or "hbm"; else NULL */
    uint64_t hot_rows; /* of a split */
};

struct check_line {
    const char *name;
    enum check_place place; /* of a table */
    struct check_home planned, actual;
    struct check_figure figures[CHECK_KINDS];
};

struct check {
    double lookups, batches_per_s; /* of planned tables */
    struct check_line *memories;   /* tiers, then SSD */
    uint32_t memory_count;
    struct check_line *tables; /* in the order of the plan, then the unplanned ones */
    uint32_t table_count;
    uint32_t compared_count;  /* figures */
    uint32_t beyond_count;    /* of these */
    uint32_t misplaced_count; /* tables of the plan that are not CHECK_AS_PLANNED */
};

/* @plan has passed plan_check(). Both are borrowed while the check lives. NO_MEMORY. */
MUST_CHECK enum embtier_err check_new(const struct plan *plan, const struct check_window *window,
                                      const struct check_bars *bars, struct check **ret_check);
void check_free(struct check *check);
DEFINE_CLEANUP(struct check, check_free)

/* True if something was compared, nothing is beyond its bar, and all tables are as planned. */
bool check_is_within(const struct check *check);

#endif
