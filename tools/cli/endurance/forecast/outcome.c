/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/forecast/outcome.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/writes/writes.h"

#define DAY_S     86400.0
#define YEAR_DAYS 365.0
/* Key and head, which a row has in the store. */
#define STORED_HEAD_BYTES 24.0
/* Bytes of a flush, with indexes and filters, for each byte of rows: those of a new table come in
 * the order of its ids, and are not compacted. */
#define INITIAL_WRITES 1.02

/* NAN: the divisor is 0. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

/* ---- Predictions ---- */

static enum embtier_err predict(const struct basis *basis, const struct change_tiers *tiers,
                                struct table_writes *ret_writes, double *ret_hit_rate,
                                struct err_msg *msg)
{
    const struct writes_opts opts = { .profile = basis->profile,
                                      .row_bytes = basis->row_bytes,
                                      .cache_bytes = basis_room_bytes(basis, tiers),
                                      .checkpoint_lookups = basis->checkpoint_lookups };
    double lookups = 0, missed = 0;

    TRY(writes_predict(&opts, ret_writes, msg));
    for (uint32_t i = 0; i < basis->profile->table_count; i++) {
        const double all = (double)basis->profile->tables[i].summary.lookups;

        if (basis->row_bytes[i] == 0)
            continue;
        lookups += all;
        missed += all * ret_writes[i].missed;
    }
    *ret_hit_rate = 1 - ratio(missed, lookups);
    return EMBTIER_OK;
}

/* First values that the tables of now would have written, had they not been deferred. Nobody could
 * write all rows of an unbounded table. */
static double initial_bytes(const struct basis *basis)
{
    double bytes = 0;

    for (size_t i = 0; i < basis->table_count; i++) {
        const struct embtier_table_info *const info = basis->tables[i].info;

        if (!info->eager && info->rows != EMBTIER_UNBOUNDED)
            bytes += (double)info->rows *
                     ((double)info->weight_bytes + (double)info->state_bytes + STORED_HEAD_BYTES);
    }
    return bytes * INITIAL_WRITES;
}

enum embtier_err outcome_begin(struct outcome_opts *opts, struct table_writes *ret_now,
                               struct err_msg *msg)
{
    TRY(predict(opts->basis, &opts->basis->tiers, ret_now, &opts->now_hit_rate, msg));
    opts->now = ret_now;
    opts->initial_bytes = initial_bytes(opts->basis);
    return EMBTIER_OK;
}

/* ---- Bytes ---- */

/* @name: flush, compaction or blob, which each basis has. */
static double *cause_of(struct outcome *outcome, const char *name)
{
    size_t i = 0;

    while (strcmp(outcome->causes[i].name, name) != 0) {
        i++;
        assert(i < outcome->cause_count);
    }
    return &outcome->causes[i].bytes;
}

static double written(const struct table_writes *writes)
{
    return writes->evicted + writes->saved;
}

/* Returns the rows that a table writes, as a multiple of those of now. NAN: it writes none now. */
static double times_now(const struct outcome_opts *opts, const struct table_writes *writes,
                        const struct basis_table *table)
{
    const uint32_t i = table->profiled;

    if (i == UINT32_MAX || opts->basis->row_bytes[i] == 0)
        return 1;
    if (written(&writes[i]) == written(&opts->now[i]))
        return 1;
    return ratio(written(&writes[i]), written(&opts->now[i]));
}

static void scale(struct outcome *outcome, const struct outcome_opts *opts,
                  const struct table_writes *writes)
{
    const double flush_now = *cause_of(outcome, "flush");
    double times;

    for (size_t i = 0; i < opts->basis->table_count; i++) {
        const struct basis_table *const table = &opts->basis->tables[i];
        const double more = times_now(opts, writes, table) - 1;

        *cause_of(outcome, "flush") += more * table->flush_bytes;
        *cause_of(outcome, "compaction") += more * table->compaction_bytes;
    }
    times = ratio(*cause_of(outcome, "flush"), flush_now);
    *cause_of(outcome, "blob") *= times; /* belongs to no table */
    outcome->stored_row_bytes *= times;
}

/* The new layout's first writes are flushes, and its rewrites are compactions, wherever their bytes
 * lie. */
static void change_layout(struct outcome *outcome, const struct outcome_opts *opts)
{
    const double first = *cause_of(outcome, "flush") + *cause_of(outcome, "blob");
    const double now = first + *cause_of(outcome, "compaction");
    const double stored = outcome->stored_row_bytes;
    const double bytes = stored * layouts_amplification(&opts->layouts, opts->basis->layout,
                                                        now / stored, outcome->layout);

    *cause_of(outcome, "flush") = fmin(first, bytes);
    *cause_of(outcome, "blob") = 0;
    *cause_of(outcome, "compaction") = bytes - fmin(first, bytes);
}

static void add_initial(struct outcome *outcome, const struct outcome_opts *opts)
{
    if (outcome->cause_count < FORECAST_CAUSES_MAX)
        outcome->causes[outcome->cause_count++] =
            (struct forecast_cause){ "initialization", opts->initial_bytes * opts->basis->seconds /
                                                           (opts->table_days * DAY_S) };
}

static enum embtier_err set_tier(struct change_tiers *tiers, const struct change *change,
                                 struct err_msg *msg)
{
    size_t i = 0;

    while (i < tiers->count && strcmp(tiers->names[i], change->tier) != 0)
        i++;
    if (i == TIERS_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "--tier %s: the server has %d tiers, which is the most; allowed: the name "
                       "of one of them",
                       change->tier, TIERS_MAX);
    if (i == tiers->count) {
        snprintf(tiers->names[i], sizeof(tiers->names[i]), "%s", change->tier);
        tiers->count++;
    }
    tiers->bytes[i] = change->tier_bytes;
    return EMBTIER_OK;
}

static enum embtier_err apply(const struct outcome_opts *opts, const struct change *change,
                              struct table_writes *writes, struct outcome *outcome,
                              struct err_msg *msg)
{
    switch (change->kind) {
    case CHANGE_TIER:
        TRY(set_tier(&outcome->tiers, change, msg));
        TRY(predict(opts->basis, &outcome->tiers, writes, &outcome->hit_rate, msg));
        scale(outcome, opts, writes);
        break;
    case CHANGE_LAYOUT:
        outcome->layout = change->layout;
        change_layout(outcome, opts);
        break;
    case CHANGE_EAGER:
        add_initial(outcome, opts);
        break;
    case CHANGE_DRIVE:
        outcome->drive = change->drive;
        break;
    case CHANGE_NONE:
        break;
    }
    return EMBTIER_OK;
}

/* ---- What follows from them ---- */

static void derive(struct outcome *outcome, const struct basis *basis)
{
    const struct drive *const drive = &outcome->drive;
    const double stored = outcome->stored_row_bytes;

    outcome->bytes = outcome->server_bytes = 0;
    for (size_t i = 0; i < outcome->cause_count; i++) {
        outcome->bytes += outcome->causes[i].bytes;
        if (strcmp(outcome->causes[i].name, FORECAST_OTHERS) != 0)
            outcome->server_bytes += outcome->causes[i].bytes;
    }
    outcome->write_back = ratio(stored, basis->updated_bytes);
    outcome->first_writes = ratio(*cause_of(outcome, "flush") + *cause_of(outcome, "blob"), stored);
    outcome->rewrites = ratio(*cause_of(outcome, "compaction"), stored);
    outcome->amplification = ratio(outcome->server_bytes, basis->updated_bytes);
    outcome->daily_bytes = basis->has_rates ? outcome->bytes * DAY_S / basis->seconds : (double)NAN;
    outcome->drive_writes = ratio(outcome->daily_bytes, drive->capacity_bytes);
    outcome->rated_drive_writes = outcome->years = (double)NAN;
    if (drive->rated_bytes > 0) {
        outcome->rated_drive_writes =
            ratio(drive->rated_bytes, drive->capacity_bytes * drive->rated_years * YEAR_DAYS);
        outcome->years = ratio(drive->rated_bytes, outcome->daily_bytes * YEAR_DAYS);
    }
}

enum embtier_err outcome_make(const struct outcome_opts *opts, const struct change *change,
                              struct outcome *ret_outcome, struct err_msg *msg)
{
    const struct basis *const basis = opts->basis;
    _cleanup_(freep) struct table_writes *writes =
        calloc(basis->profile->table_count + 1, sizeof(*writes));
    struct outcome outcome = { .change = change,
                               .tiers = basis->tiers,
                               .layout = basis->layout,
                               .drive = basis->drive,
                               .hit_rate = opts->now_hit_rate,
                               .cause_count = basis->cause_count,
                               .stored_row_bytes = basis->stored_row_bytes };

    if (!writes)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    memcpy(outcome.causes, basis->causes, sizeof(outcome.causes));
    TRY(apply(opts, change, writes, &outcome, msg));
    derive(&outcome, basis);
    *ret_outcome = outcome;
    return EMBTIER_OK;
}
