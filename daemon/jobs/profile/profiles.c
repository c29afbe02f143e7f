/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/profile/profiles.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/macros.h"
#include "base/system/thread_class.h"
#include "base/text/bytes.h"
#include "base/text/user_number.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/profile/profiler.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "placement/profile/profile_file.h"

/* How long the thread sleeps when the rings are empty. */
#define PAUSE_NS (10L * 1000 * 1000)
#define PACE_NS  (UINT64_C(100) * 1000 * 1000)
/* Records that are taken before another thread may have the profiler. */
#define DRAIN_RECORDS 1024
/* A profile has room for a quarter more tables than there are, and for these. */
#define MORE_TABLES  8
#define DEFAULT_PART 4

struct profiles {
    struct profiles_opts opts;
    pthread_mutex_t lock; /* of all below: one call at a time */

    /* The profile that runs. */
    pthread_mutex_t profiler_lock; /* the thread's, while it takes samples */
    struct profiler *profiler;
    struct transfer_share share;
    pthread_t thread;
    _Atomic bool stopping;

    /* The results. */
    struct measured_profile *measured; /* NULL: none */
    uint64_t snapshot;
    struct err_msg why_none; /* the last profile ended without results; empty: it had some */

    pthread_mutex_t state_lock; /* held for a moment; of what profiles_state() reads */
    struct sampler *sampler;    /* NULL: none runs */
    uid_t uid;
    uint64_t memory_bytes;
    uint64_t started_ns;
};

enum embtier_err profiles_new(const struct profiles_opts *opts, struct profiles **ret_profiles,
                              struct err_msg *msg)
{
    struct profiles *const profiles = calloc(1, sizeof(*profiles));

    if (!profiles)
        return err_set(msg, EMBTIER_NO_MEMORY, "profiles: out of memory");
    profiles->opts = *opts;
    pthread_mutex_init(&profiles->lock, NULL);
    pthread_mutex_init(&profiles->profiler_lock, NULL);
    pthread_mutex_init(&profiles->state_lock, NULL);
    *ret_profiles = profiles;
    return EMBTIER_OK;
}

void profiles_free(struct profiles *profiles)
{
    if (!profiles)
        return;
    measured_profile_free(profiles->measured);
    pthread_mutex_destroy(&profiles->lock);
    pthread_mutex_destroy(&profiles->profiler_lock);
    pthread_mutex_destroy(&profiles->state_lock);
    free(profiles);
}

void profiles_state(struct profiles *profiles, struct profile_state *ret_state)
{
    struct profile_state state = { 0 };
    struct profiler_stats stats;

    pthread_mutex_lock(&profiles->state_lock);
    if (profiles->sampler) {
        profiler_stats(profiles->sampler, &stats);
        state = (struct profile_state){
            .runs = true,
            .is_exact = stats.is_exact,
            .uid = profiles->uid,
            .age_ms = clock_since(clock_now_ns(&clock_monotonic), profiles->started_ns) / 1000000,
            .memory_bytes = profiles->memory_bytes,
            .lookups = stats.lookups,
            .samples = stats.samples,
            .lost_samples = stats.lost_samples,
            .tables = stats.tables,
        };
    }
    pthread_mutex_unlock(&profiles->state_lock);
    *ret_state = state;
}

/* Publishes the sampler of the profile that runs; NULL: none runs. Returns the one before. */
static struct sampler *swap_sampler(struct profiles *profiles, struct sampler *sampler)
{
    struct sampler *before;

    pthread_mutex_lock(&profiles->state_lock);
    before = profiles->sampler;
    profiles->sampler = sampler;
    profiles->started_ns = clock_now_ns(&clock_monotonic);
    pthread_mutex_unlock(&profiles->state_lock);
    return before;
}

/* ---- The thread ---- */

/* Takes some samples. Returns false if there were no more. */
static bool take_some(struct profiles *profiles, uint64_t *paced_ns)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    uint64_t taken;

    pthread_mutex_lock(&profiles->profiler_lock);
    taken = profiler_drain(profiles->profiler, DRAIN_RECORDS);
    if (now_ns - *paced_ns >= PACE_NS) {
        profiler_pace(profiles->profiler, now_ns - *paced_ns);
        *paced_ns = now_ns;
    }
    pthread_mutex_unlock(&profiles->profiler_lock);
    return taken == DRAIN_RECORDS;
}

static void *thread_main(void *context)
{
    struct profiles *const profiles = context;
    uint64_t paced_ns = clock_now_ns(&clock_monotonic);

    thread_class_upkeep();
    while (!atomic_load(&profiles->stopping))
        if (!take_some(profiles, &paced_ns))
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    return NULL;
}

static void sample_on_lanes(const struct profiles *profiles, struct sampler *sampler)
{
    for (uint32_t i = 0; i < profiles->opts.lane_count; i++)
        lane_sample(profiles->opts.lanes[i], sampler ? &sampler->lanes[i] : NULL);
}

/* ---- Starting ---- */

static uint32_t tables_wanted(const struct profiles *profiles)
{
    const uint32_t tables = tables_count(profiles->opts.tables);

    return MIN(tables + MAX(tables / 4, (uint32_t)MORE_TABLES), (uint32_t)SAMPLER_TABLES_MAX);
}

/* Counts the memory, then makes the profile. */
static enum embtier_err make(struct profiles *profiles, uid_t uid, uint64_t memory_bytes,
                             struct sampler **ret_sampler, struct err_msg *msg)
{
    const uint32_t tables = tables_wanted(profiles);
    const uint32_t lanes = profiles->opts.lane_count;
    const uint64_t most = profiler_bytes_most(tables, lanes);
    const uint64_t bytes =
        MIN(most, memory_bytes > 0 ? memory_bytes
                                   : MAX(profiles->opts.memory_bytes / DEFAULT_PART,
                                         profiler_bytes_least(tables, lanes)));
    _cleanup_(sampler_freep) struct sampler *sampler = NULL;

    if (bytes < profiler_bytes_least(tables, lanes))
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "a profile of %u table%s on %u lane%s needs at least %s of memory, not %s",
                       tables, PLURAL(tables), lanes, PLURAL(lanes),
                       BYTES_TEXT(profiler_bytes_least(tables, lanes)), BYTES_TEXT(bytes));
    TRY(transfer_memory_take(profiles->opts.memory, uid, bytes, "a profile", &profiles->share,
                             msg));
    if (sampler_new(tables, lanes, &sampler) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    TRY(profiler_new(sampler, bytes, profiles->opts.core_count, &profiles->profiler, msg));
    profiles->uid = uid;
    profiles->memory_bytes = profiles->share.bytes;
    *ret_sampler = TAKE(sampler);
    return EMBTIER_OK;
}

static enum embtier_err begin_thread(struct profiles *profiles, struct err_msg *msg)
{
    int rc;

    atomic_store(&profiles->stopping, false);
    rc = pthread_create(&profiles->thread, NULL, thread_main, profiles);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start the thread of the profile");
    pthread_setname_np(profiles->thread, "profile");
    return EMBTIER_OK;
}

static enum embtier_err start(struct profiles *profiles, uid_t uid, uint64_t memory_bytes,
                              struct err_msg *msg)
{
    struct sampler *sampler = NULL;
    enum embtier_err err;

    if (profiles->sampler)
        return err_set(msg, EMBTIER_BUSY,
                       "%s already makes a profile: stop it first (`embtier profile stop`)",
                       USER_NUMBER(profiles->uid));
    err = make(profiles, uid, memory_bytes, &sampler, msg);
    if (err == EMBTIER_OK)
        err = begin_thread(profiles, msg);
    if (err != EMBTIER_OK) {
        sampler_free(sampler);
        profiler_free(TAKE(profiles->profiler));
        transfer_memory_give(profiles->opts.memory, &profiles->share);
        return err;
    }
    measured_profile_free(TAKE(profiles->measured));
    (void)swap_sampler(profiles, sampler);
    sample_on_lanes(profiles, sampler);
    log_info("a profile of the lookups begins", "by=%s bytes=%" PRIu64,
             LOG_QUOTED(USER_NUMBER(uid)), profiles->memory_bytes);
    return EMBTIER_OK;
}

enum embtier_err profiles_start(struct profiles *profiles, uid_t uid, uint64_t memory_bytes,
                                struct profile_state *ret_state, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&profiles->lock);
    err = start(profiles, uid, memory_bytes, msg);
    if (err == EMBTIER_OK)
        profiles_state(profiles, ret_state);
    pthread_mutex_unlock(&profiles->lock);
    return err;
}

/* ---- Results ---- */

/* Makes results of all samples so far. */
static enum embtier_err measure(struct profiles *profiles, struct err_msg *msg)
{
    struct measured_profile *measured = NULL;
    enum embtier_err err;

    pthread_mutex_lock(&profiles->profiler_lock);
    while (profiler_drain(profiles->profiler, DRAIN_RECORDS) == DRAIN_RECORDS)
        ;
    err = profiler_measure(profiles->profiler, &measured, msg);
    pthread_mutex_unlock(&profiles->profiler_lock);
    if (err != EMBTIER_OK)
        return err;
    measured_profile_free(profiles->measured);
    profiles->measured = measured;
    profiles->snapshot++;
    return EMBTIER_OK;
}

static enum embtier_err read_piece(struct profiles *profiles, struct profile_piece *piece,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;

    if (piece->snapshot == 0 && profiles->sampler)
        TRY(measure(profiles, msg));
    if (!profiles->measured && profiles->why_none.text[0] != '\0')
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "the last profile has no results: %s; make another one while clients use "
                       "the server",
                       profiles->why_none.text);
    if (!profiles->measured)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "there is no profile: `embtier profile start` begins one");
    if (piece->snapshot != 0 && piece->snapshot != profiles->snapshot)
        return err_set(msg, EMBTIER_BUSY,
                       "another client had new results made while these were read: try again");
    if (piece->line > profiles->measured->table_count)
        return err_set(msg, EMBTIER_NOT_FOUND, "the profile has no line %u", piece->line);
    if (profile_file_line(profiles->measured, piece->line, &text, &bytes) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "profile: out of memory");
    if (piece->offset >= bytes)
        return err_set(msg, EMBTIER_NOT_FOUND, "line %u of the profile has %zu bytes", piece->line,
                       bytes);
    piece->snapshot = profiles->snapshot;
    piece->lines = profiles->measured->table_count + 1;
    piece->line_bytes = bytes;
    piece->bytes = MIN(bytes - piece->offset, (uint64_t)PROFILE_PIECE_BYTES);
    memmove(text, text + piece->offset, piece->bytes);
    piece->text = TAKE(text);
    return EMBTIER_OK;
}

enum embtier_err profiles_read(struct profiles *profiles, struct profile_piece *piece,
                               struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&profiles->lock);
    err = read_piece(profiles, piece, msg);
    pthread_mutex_unlock(&profiles->lock);
    return err;
}

/* ---- Stopping ---- */

/* Ends the sampling; what is in the rings can still be taken. */
static void end_sampling(struct profiles *profiles)
{
    sample_on_lanes(profiles, NULL);
    atomic_store(&profiles->stopping, true);
    pthread_join(profiles->thread, NULL);
}

static void clear(struct profiles *profiles)
{
    struct sampler *const sampler = swap_sampler(profiles, NULL);

    profiler_free(TAKE(profiles->profiler));
    sampler_free(sampler);
    transfer_memory_give(profiles->opts.memory, &profiles->share);
}

static enum embtier_err stop(struct profiles *profiles, uid_t uid, struct profile_state *ret_state,
                             struct err_msg *msg)
{
    const bool may = uid == 0 || uid == geteuid() || uid == profiles->uid;

    if (!profiles->sampler)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "no profile runs: `embtier profile start` begins one");
    if (!may)
        return err_set(msg, EMBTIER_PERMISSION,
                       "%s started the profile: only it, root and the server's user may stop "
                       "it",
                       USER_NUMBER(profiles->uid));
    end_sampling(profiles);
    profiles->why_none.text[0] = '\0';
    if (measure(profiles, &profiles->why_none) != EMBTIER_OK)
        log_warn("the profile has no results", "why=%s", LOG_QUOTED(profiles->why_none.text));
    profiles_state(profiles, ret_state);
    ret_state->runs = false;
    clear(profiles);
    log_info("the profile of the lookups ends",
             "lookups=%" PRIu64 " samples=%" PRIu64 " lost_samples=%" PRIu64, ret_state->lookups,
             ret_state->samples, ret_state->lost_samples);
    return EMBTIER_OK;
}

enum embtier_err profiles_stop(struct profiles *profiles, uid_t uid,
                               struct profile_state *ret_state, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&profiles->lock);
    err = stop(profiles, uid, ret_state, msg);
    pthread_mutex_unlock(&profiles->lock);
    return err;
}

void profiles_end(struct profiles *profiles)
{
    if (!profiles || !profiles->sampler)
        return;
    end_sampling(profiles);
    clear(profiles);
}
