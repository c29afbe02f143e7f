/* SPDX-License-Identifier: Apache-2.0 */
/* The thread looks at all databases every PERIOD_MS. A database goes through three states:
 *
 *   OFF --(a slot is free, it needs one most)--> ON --(done, or others need it more)--> DRAINING
 *    ^---------------------------(no compaction is running any more)---------------------'
 *
 * DRAINING holds its slot, since compactions already begun go on. No new one can begin in it:
 * RocksDB reads `disable_auto_compactions` when it picks a compaction, under the lock that setting
 * the option takes. If RocksDB calls a database due but finds nothing to compact in it, the
 * database would keep its slot for ever. So after STUCK_NS it loses the slot and waits its turn.
 * That time does not pass while a compaction waits for a thread: slots are counted by device, and
 * all devices share RocksDB's threads.
 *
 * A database may also refuse to be turned off, as that writes to its disk, which may be full. It
 * must not keep its slot, since databases on healthy disks need it. So it goes on to DRAINING and
 * OFF like any other, and "off" is owed. The thread retries that, and gives the database no new
 * slot before. If the database compacts while off is owed, it takes a slot although none may be
 * free, and is DRAINING again. So with one slot, two databases compact at once only in one case. A
 * database on a failing disk begins to compact while another has the slot; this ends when the first
 * of the two is done. */
#include "store/database/compaction_scheduler_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"

#define PERIOD_MS           100
#define MEASURE_NS          (UINT64_C(1) * 1000000000)
#define STUCK_NS            (UINT64_C(2) * 1000000000)
#define SIT_OUT_NS          (UINT64_C(10) * 1000000000)
#define RETRY_NS_MIN        (UINT64_C(200) * 1000000)
#define RETRY_NS_MAX        (UINT64_C(2) * 1000000000)
#define STOP_PATIENCE_S     60
#define LOG_NS              (UINT64_C(60) * 1000000000)
#define URGENT_LEVEL0_FILES (DATABASE_LEVEL0_FILES_MAX * 2 / 3)
#define URGENT_BYTES        (DATABASE_PENDING_BYTES_MAX / 2)

static void set_state(struct entry *entry, enum slot_state to)
{
    switch (to) {
    case SLOT_OFF:
        assert(entry->state == SLOT_DRAINING);
        break;
    case SLOT_ON:
        assert(entry->state == SLOT_OFF && entry->off.at_ns == 0);
        break;
    case SLOT_DRAINING: /* from OFF: it compacts without permission */
        assert(entry->state != SLOT_DRAINING);
        break;
    }
    entry->state = to;
}

static void retry_later(struct retry *retry, uint64_t now_ns)
{
    retry->wait_ns =
        retry->at_ns == 0 ? RETRY_NS_MIN : MIN(retry->wait_ns * 2, (uint64_t)RETRY_NS_MAX);
    retry->at_ns = now_ns + retry->wait_ns;
}

static bool is_near_limit(const struct entry *entry)
{
    return entry->debt.level0_files >= URGENT_LEVEL0_FILES ||
           entry->debt.pending_bytes >= URGENT_BYTES;
}

static bool is_urgent(const struct entry *entry)
{
    return is_near_limit(entry) || entry->is_wanted;
}

/* Returns how near its limits a database is: 1 at the limit. */
static double debt_weight(const struct entry *entry)
{
    const double files = (double)entry->debt.level0_files / DATABASE_LEVEL0_FILES_MAX;
    const double bytes = (double)entry->debt.pending_bytes / (double)DATABASE_PENDING_BYTES_MAX;

    return MAX(files, bytes);
}

static bool slot_take(struct compaction_scheduler *scheduler, uint32_t device)
{
    struct slots *const slots = &scheduler->slots[device];
    bool taken;

    pthread_mutex_lock(&scheduler->mutex);
    /* Holders go first: they wake up by themselves when a slot is free. */
    taken = slots->waiting == 0 && slots->used < scheduler->parallel;
    slots->used += taken;
    pthread_mutex_unlock(&scheduler->mutex);
    return taken;
}

/* Takes a slot for a database that compacts without permission. */
static void slot_seize(struct compaction_scheduler *scheduler, uint32_t device)
{
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->slots[device].used++;
    pthread_mutex_unlock(&scheduler->mutex);
}

static void slot_give(struct compaction_scheduler *scheduler, uint32_t device)
{
    pthread_mutex_lock(&scheduler->mutex);
    assert(scheduler->slots[device].used > 0);
    scheduler->slots[device].used--;
    pthread_cond_broadcast(&scheduler->changed);
    pthread_mutex_unlock(&scheduler->mutex);
}

/* True if a holder or an urgent database waits for a slot of @device and none is free. */
static bool slots_are_wanted(struct compaction_scheduler *scheduler, uint32_t device,
                             bool urgent_database_waits)
{
    const struct slots *const slots = &scheduler->slots[device];
    bool wanted;

    pthread_mutex_lock(&scheduler->mutex);
    wanted = slots->used >= scheduler->parallel && (slots->waiting > 0 || urgent_database_waits);
    pthread_mutex_unlock(&scheduler->mutex);
    return wanted;
}

/* The log is the only place for a failure here. It gets one line when trouble begins and one when
 * it ends, and at most one warning per LOG_NS if trouble comes and goes. */
static bool entry_set_compacting(struct entry *entry, bool on, uint64_t now_ns)
{
    struct err_msg msg = { { 0 } };

    if (database_set_compacting(entry->database, on, &msg) == EMBTIER_OK) {
        if (entry->trouble_logged)
            log_info("compaction of a shard can be turned on and off again", "shard=%s",
                     LOG_QUOTED(database_path(entry->database)));
        entry->trouble_logged = false;
        return true;
    }
    if (!entry->trouble_logged && now_ns >= entry->next_log_ns) {
        log_warn(
            "compaction of a shard cannot be turned on or off; this is retried until it succeeds",
            "why=%s", LOG_QUOTED(msg.text));
        entry->trouble_logged = true;
        entry->next_log_ns = now_ns + LOG_NS;
    }
    return false;
}

static void entry_turn_off(struct entry *entry, uint64_t now_ns)
{
    if (entry_set_compacting(entry, false, now_ns))
        entry->off.at_ns = 0;
    else
        retry_later(&entry->off, now_ns);
    if (entry->state == SLOT_ON)
        set_state(entry, SLOT_DRAINING);
}

static void sit_out(struct entry *entry, bool found_nothing, uint64_t now_ns)
{
    entry->sits_out_until_ns = now_ns + SIT_OUT_NS;
    entry->found_nothing = found_nothing;
}

static bool entry_is_stuck(const struct compaction_scheduler *scheduler, struct entry *entry,
                           uint64_t now_ns)
{
    if (entry->debt.running > 0 || scheduler->threads_are_busy) {
        entry->idle_since_ns = 0;
        return false;
    }
    if (entry->idle_since_ns == 0)
        entry->idle_since_ns = now_ns;
    return now_ns - entry->idle_since_ns >= STUCK_NS;
}

/* Retries databases that still have to be turned off, and counts those that compact meanwhile. */
static void round_turn_off_owed(struct compaction_scheduler *scheduler, uint64_t now_ns)
{
    for (uint32_t i = 0; i < scheduler->count; i++) {
        struct entry *entry = &scheduler->entries[i];

        if (entry->off.at_ns == 0)
            continue;
        if (now_ns >= entry->off.at_ns)
            entry_turn_off(entry, now_ns);
        database_poll_debt(entry->database, &entry->debt);
        if (entry->state == SLOT_OFF && entry->debt.running > 0) {
            slot_seize(scheduler, entry->device);
            set_state(entry, SLOT_DRAINING);
        }
    }
}

/* Takes slots back from databases that are done, stuck or failed, and from all while paused. A
 * database that is not urgent also loses its slot while compaction is put off, or if a holder or an
 * urgent database waits. */
static void round_take_back(struct compaction_scheduler *scheduler, uint64_t now_ns)
{
    const bool paused = atomic_load(&scheduler->paused);
    bool urgent_waits[COMPACTION_DEVICES_MAX] = { false };

    for (uint32_t i = 0; i < scheduler->count; i++)
        if (scheduler->entries[i].state == SLOT_OFF && is_urgent(&scheduler->entries[i]))
            urgent_waits[scheduler->entries[i].device] = true;
    for (uint32_t i = 0; i < scheduler->count; i++) {
        struct entry *entry = &scheduler->entries[i];

        if (entry->state == SLOT_ON) {
            const bool done = !entry->debt.due && entry->debt.running == 0;
            const bool failed = entry->resume.at_ns != 0;
            const bool stuck = !done && (failed || entry_is_stuck(scheduler, entry, now_ns));

            if (stuck)
                sit_out(entry, !failed, now_ns);
            if (done || stuck || paused ||
                (!is_urgent(entry) &&
                 (scheduler->put_off ||
                  slots_are_wanted(scheduler, entry->device, urgent_waits[entry->device])))) {
                entry_turn_off(entry, now_ns);
                database_poll_debt(entry->database, &entry->debt);
            }
        }
        if (entry->state == SLOT_DRAINING && entry->debt.running == 0) {
            set_state(entry, SLOT_OFF);
            slot_give(scheduler, entry->device);
        }
    }
}

static struct entry *round_pick(struct compaction_scheduler *scheduler, uint32_t device,
                                uint64_t now_ns)
{
    struct entry *best = NULL;

    if (atomic_load(&scheduler->paused))
        return NULL;
    for (uint32_t i = 0; i < scheduler->count; i++) {
        struct entry *entry = &scheduler->entries[i];

        if (entry->device != device || entry->state != SLOT_OFF || !entry->debt.due ||
            (scheduler->put_off && !is_urgent(entry)) || entry->resume.at_ns != 0 ||
            entry->off.at_ns != 0 || now_ns < entry->sits_out_until_ns)
            continue;
        if (!best || debt_weight(entry) > debt_weight(best))
            best = entry;
    }
    return best;
}

static void give_out(struct compaction_scheduler *scheduler, uint32_t device, uint64_t now_ns)
{
    struct entry *entry;

    while ((entry = round_pick(scheduler, device, now_ns)) && slot_take(scheduler, device)) {
        entry->idle_since_ns = 0;
        set_state(entry, SLOT_ON);
        if (!entry_set_compacting(entry, true, now_ns)) {
            /* It may be on all the same, so the way back to OFF goes through DRAINING. */
            sit_out(entry, false, now_ns);
            entry_turn_off(entry, now_ns);
        }
    }
}

static void round_give_out(struct compaction_scheduler *scheduler, uint64_t now_ns)
{
    for (uint32_t d = 0; d < scheduler->device_count; d++)
        give_out(scheduler, d, now_ns);
}

/* Sets the limit of bytes in RocksDB, as it must be now. Locked. */
static void pace_now(struct compaction_scheduler *scheduler)
{
    scheduler->limit_now_bytes =
        compaction_pace(&scheduler->pace, scheduler->limit_bytes, &scheduler->strain,
                        clock_now_ns(&clock_monotonic), &scheduler->pace_reason);
    if (scheduler->options)
        rocksdb_ext_set_compaction_limit(scheduler->options, scheduler->limit_now_bytes);
}

static void round_pace(struct compaction_scheduler *scheduler)
{
    struct compaction_strain strain = { .is_paused = atomic_load(&scheduler->paused) };

    for (uint32_t i = 0; i < scheduler->count; i++) {
        const struct entry *const entry = &scheduler->entries[i];

        strain.nearest = MAX(strain.nearest, debt_weight(entry));
        strain.is_near = strain.is_near || is_near_limit(entry);
        strain.rows += database_rows_moved(entry->database);
    }
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->strain = strain;
    pace_now(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
}

static void round_measure(struct compaction_scheduler *scheduler, uint64_t now_ns)
{
    if (now_ns < scheduler->measure_at_ns)
        return;
    scheduler->measure_at_ns = now_ns + MEASURE_NS;
    for (uint32_t i = 0; i < scheduler->count; i++)
        database_measure_blobs(scheduler->entries[i].database);
}

static void entry_try_resume(struct entry *entry, uint64_t now_ns)
{
    if (!database_is_failed(entry->database)) {
        entry->resume.at_ns = 0;
        return;
    }
    entry->has_failed = true;
    if (entry->resume.at_ns == 0)
        retry_later(&entry->resume, now_ns);
    else if (now_ns >= entry->resume.at_ns && database_resume(entry->database, NULL) == EMBTIER_OK)
        entry->resume.at_ns = 0;
    else if (now_ns >= entry->resume.at_ns)
        retry_later(&entry->resume, now_ns);
}

/* RocksDB counts its compaction work when a new file appears, without the files being compacted
 * then. If that compaction fails, RocksDB does not count again. The files left out would wait for
 * the next new file, and a database that takes no more writes gets none. A change of options makes
 * RocksDB count. */
static void entry_recount(struct entry *entry, uint64_t now_ns)
{
    if (!entry->has_failed || entry->state != SLOT_OFF || entry->debt.running > 0 ||
        entry->resume.at_ns != 0)
        return;
    entry->has_failed = false;
    entry_turn_off(entry, now_ns);
    database_poll_debt(entry->database, &entry->debt);
}

uint32_t compaction_minutes_to_hours(const struct compaction_scheduler *scheduler)
{
    return scheduler->hours.count == 0 ? 0 : day_hours_wait(&scheduler->hours, day_hours_now());
}

/* ---- What others see ---- */

/* Why a database that is due and has no slot waits. */
static enum compaction_state why_it_waits(const struct compaction_scheduler *scheduler,
                                          const struct entry *entry, uint64_t now_ns)
{
    if (atomic_load(&scheduler->paused))
        return COMPACTION_NO_SPACE;
    if (now_ns < entry->sits_out_until_ns)
        return entry->found_nothing ? COMPACTION_SITS_OUT : COMPACTION_RECOVERS;
    if (is_urgent(entry))
        return COMPACTION_WAITS_TURN;
    if (atomic_load(&scheduler->deferred))
        return COMPACTION_PAUSED;
    if (!scheduler->in_hours)
        return COMPACTION_WAITS_HOURS;
    return atomic_load_explicit(&scheduler->busy, memory_order_relaxed) ? COMPACTION_WAITS_LANES
                                                                        : COMPACTION_WAITS_TURN;
}

static enum compaction_state state_of(const struct compaction_scheduler *scheduler,
                                      const struct entry *entry, uint64_t now_ns)
{
    if (entry->resume.at_ns != 0)
        return COMPACTION_FAILED;
    if (entry->debt.running > 0 || entry->state == SLOT_ON)
        return COMPACTION_RUNS;
    return entry->debt.due ? why_it_waits(scheduler, entry, now_ns) : COMPACTION_IDLE;
}

static struct compaction_view view_of(const struct compaction_scheduler *scheduler,
                                      const struct entry *entry, uint64_t now_ns)
{
    struct compaction_view view = entry->progress;

    view.state = state_of(scheduler, entry, now_ns);
    view.is_urgent = is_near_limit(entry);
    view.level0_files = entry->debt.level0_files;
    view.pending_bytes = entry->debt.pending_bytes;
    view.running = entry->debt.running;
    return view;
}

static void round_end(struct compaction_scheduler *scheduler, uint64_t now_ns)
{
    pthread_mutex_lock(&scheduler->mutex);
    for (uint32_t d = 0; d < scheduler->device_count; d++)
        scheduler->slots[d].urgent_waits = false;
    for (uint32_t i = 0; i < scheduler->count; i++) {
        const struct entry *const entry = &scheduler->entries[i];

        scheduler->views[i] = view_of(scheduler, entry, now_ns);
        if (entry->state == SLOT_OFF && scheduler->views[i].state == COMPACTION_WAITS_TURN &&
            is_urgent(entry))
            scheduler->slots[entry->device].urgent_waits = true;
    }
    scheduler->rounds++;
    pthread_cond_broadcast(&scheduler->seen);
    pthread_mutex_unlock(&scheduler->mutex);
}

/* Takes over what operators have set since the last round. */
static void round_begin(struct compaction_scheduler *scheduler)
{
    bool catches_up;

    pthread_mutex_lock(&scheduler->mutex);
    scheduler->in_hours = compaction_minutes_to_hours(scheduler) == 0;
    catches_up = scheduler->catches_up;
    pthread_mutex_unlock(&scheduler->mutex);
    scheduler->put_off = atomic_load_explicit(&scheduler->busy, memory_order_relaxed) ||
                         atomic_load(&scheduler->deferred) || !scheduler->in_hours;
    for (uint32_t i = 0; i < scheduler->count; i++)
        scheduler->entries[i].is_wanted = catches_up;
    scheduler->threads_are_busy =
        scheduler->options && rocksdb_ext_compactions_wait(scheduler->options);
}

static void scheduler_round(struct compaction_scheduler *scheduler)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    round_begin(scheduler);
    for (uint32_t i = 0; i < scheduler->count; i++) {
        entry_try_resume(&scheduler->entries[i], now_ns);
        database_poll_debt(scheduler->entries[i].database, &scheduler->entries[i].debt);
        entry_recount(&scheduler->entries[i], now_ns);
    }
    round_measure(scheduler, now_ns);
    round_pace(scheduler);
    round_turn_off_owed(scheduler, now_ns);
    round_take_back(scheduler, now_ns);
    round_give_out(scheduler, now_ns);
    compaction_look_at_progress(scheduler);
    round_end(scheduler, now_ns);
}

struct timespec compaction_period_end(void)
{
    return clock_until(PERIOD_MS * UINT64_C(1000000));
}

/* Waits until the next round; false at the end. */
static bool scheduler_wait(struct compaction_scheduler *scheduler)
{
    const struct timespec until = compaction_period_end();
    bool stop;

    pthread_mutex_lock(&scheduler->mutex);
    while (!scheduler->stop &&
           pthread_cond_timedwait(&scheduler->changed, &scheduler->mutex, &until) == 0)
        ;
    stop = scheduler->stop;
    pthread_mutex_unlock(&scheduler->mutex);
    return !stop;
}

static void *scheduler_main(void *argument)
{
    struct compaction_scheduler *scheduler = argument;

    do
        scheduler_round(scheduler);
    while (scheduler_wait(scheduler));
    for (uint32_t i = 0; i < scheduler->count; i++)
        if (scheduler->entries[i].state == SLOT_ON)
            entry_turn_off(&scheduler->entries[i], clock_now_ns(&clock_monotonic));
    return NULL;
}

/* The limit holds before the first round, too. */
static void limit_begin(struct compaction_scheduler *scheduler, uint64_t bytes_per_second)
{
    scheduler->limit_bytes = scheduler->limit_now_bytes = bytes_per_second;
    if (bytes_per_second > 0)
        scheduler->pace_reason = COMPACTION_PACE_HOLDS;
    if (scheduler->options)
        rocksdb_ext_set_compaction_limit(scheduler->options, bytes_per_second);
}

enum embtier_err compaction_scheduler_new(const struct compaction_scheduler_opts *opts,
                                          struct compaction_scheduler **ret_scheduler,
                                          struct err_msg *msg)
{
    struct compaction_scheduler *scheduler = calloc(1, sizeof(*scheduler));
    int errnum;

    if (!scheduler)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    scheduler->count = opts->database_count;
    scheduler->room = MAX(opts->database_room, opts->database_count);
    scheduler->options = opts->options;
    limit_begin(scheduler, opts->bytes_per_second);
    scheduler->device_count = 1;
    scheduler->parallel = MAX(opts->parallel, 1u);
    scheduler->hold_patience_ns = opts->hold_patience_ms * UINT64_C(1000000);
    pthread_mutex_init(&scheduler->mutex, NULL);
    clock_init_cond(&scheduler->changed);
    clock_init_cond(&scheduler->seen);
    scheduler->hours = opts->hours;
    scheduler->entries = calloc(MAX(scheduler->room, 1u), sizeof(*scheduler->entries));
    scheduler->views = calloc(MAX(scheduler->room, 1u), sizeof(*scheduler->views));
    if (!scheduler->entries || !scheduler->views) {
        compaction_scheduler_free(scheduler);
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < opts->database_count; i++) {
        const uint32_t device = opts->devices ? opts->devices[i] : 0;

        assert(device < COMPACTION_DEVICES_MAX);
        scheduler->entries[i].database = opts->databases[i];
        scheduler->entries[i].device = device;
        scheduler->device_count = MAX(scheduler->device_count, device + 1);
    }
    errnum = pthread_create(&scheduler->thread, NULL, scheduler_main, scheduler);
    if (errnum != 0) {
        compaction_scheduler_free(scheduler);
        return err_set_errno(msg, errnum, "starting the compaction scheduler");
    }
    pthread_setname_np(scheduler->thread, "compaction");
    scheduler->started = true;
    *ret_scheduler = scheduler;
    return EMBTIER_OK;
}

/* True if the thread ends in time, even if the system's clock is changed. The thread sanitizer
 * knows only joins by that clock. */
static bool is_joined(pthread_t thread)
{
#ifdef __SANITIZE_THREAD__
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_PATIENCE_S;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
#else
    const struct timespec until = clock_until(STOP_PATIENCE_S * UINT64_C(1000000000));

    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
#endif
}

/* RocksDB's recovery from an error may wait for ever. Then the database is closed without the rows
 * in its write buffers, which database_close() reports. */
static void join_thread(struct compaction_scheduler *scheduler)
{
    if (is_joined(scheduler->thread))
        return;
    for (uint32_t i = 0; i < scheduler->count; i++) {
        if (!database_is_failed(scheduler->entries[i].database))
            continue;
        log_error("recovery of a shard from an error did not end and was given up", "shard=%s",
                  LOG_QUOTED(database_path(scheduler->entries[i].database)));
        database_give_up(scheduler->entries[i].database);
    }
    pthread_join(scheduler->thread, NULL);
}

void compaction_scheduler_free(struct compaction_scheduler *scheduler)
{
    if (!scheduler)
        return;
    if (scheduler->started) {
        pthread_mutex_lock(&scheduler->mutex);
        scheduler->stop = true;
        pthread_cond_broadcast(&scheduler->changed);
        pthread_mutex_unlock(&scheduler->mutex);
        join_thread(scheduler);
        if (scheduler->options) /* a close waits for compactions */
            rocksdb_ext_set_compaction_limit(scheduler->options, 0);
    }
    for (uint32_t d = 0; d < COMPACTION_DEVICES_MAX; d++)
        assert(scheduler->slots[d].waiting == 0);
    pthread_cond_destroy(&scheduler->changed);
    pthread_cond_destroy(&scheduler->seen);
    pthread_mutex_destroy(&scheduler->mutex);
    free(scheduler->views);
    free(scheduler->entries);
    free(scheduler);
}

void compaction_scheduler_add(struct compaction_scheduler *scheduler, struct database *database,
                              uint32_t device)
{
    pthread_mutex_lock(&scheduler->mutex);
    assert(scheduler->count < scheduler->room && device < COMPACTION_DEVICES_MAX);
    scheduler->entries[scheduler->count].device = device;
    scheduler->device_count = MAX(scheduler->device_count, device + 1);
    scheduler->entries[scheduler->count].database = database;
    scheduler->count++;
    pthread_mutex_unlock(&scheduler->mutex);
}

void compaction_scheduler_set_busy(struct compaction_scheduler *scheduler, bool busy)
{
    atomic_store_explicit(&scheduler->busy, busy, memory_order_relaxed);
}

void compaction_scheduler_set_parallel(struct compaction_scheduler *scheduler, uint32_t parallel)
{
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->parallel = MAX(parallel, 1u);
    pthread_cond_broadcast(&scheduler->changed);
    pthread_mutex_unlock(&scheduler->mutex);
}

uint32_t compaction_scheduler_parallel(struct compaction_scheduler *scheduler)
{
    uint32_t parallel;

    pthread_mutex_lock(&scheduler->mutex);
    parallel = scheduler->parallel;
    pthread_mutex_unlock(&scheduler->mutex);
    return parallel;
}

void compaction_scheduler_set_bytes(struct compaction_scheduler *scheduler,
                                    uint64_t bytes_per_second)
{
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->limit_bytes = bytes_per_second;
    pace_now(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
}

/* While the limit gives way, RocksDB has another one for that time. */
uint64_t compaction_scheduler_bytes(struct compaction_scheduler *scheduler)
{
    uint64_t bytes;

    pthread_mutex_lock(&scheduler->mutex);
    bytes = scheduler->limit_bytes;
    if (scheduler->options && (scheduler->pace_reason == COMPACTION_PACE_NONE ||
                               scheduler->pace_reason == COMPACTION_PACE_HOLDS))
        bytes = rocksdb_ext_compaction_limit(scheduler->options);
    pthread_mutex_unlock(&scheduler->mutex);
    return bytes;
}

void compaction_scheduler_pause(struct compaction_scheduler *scheduler, bool paused)
{
    atomic_store(&scheduler->paused, paused);
}

bool compaction_scheduler_is_paused(const struct compaction_scheduler *scheduler)
{
    return atomic_load(&scheduler->paused);
}

enum embtier_err compaction_scheduler_hold(struct compaction_scheduler *scheduler, uint32_t device,
                                           const _Atomic bool *give_up, struct err_msg *msg)
{
    struct slots *const slots = &scheduler->slots[device];
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    enum embtier_err err = EMBTIER_OK;

    pthread_mutex_lock(&scheduler->mutex);
    slots->waiting++;
    for (;;) {
        struct timespec until;

        if (give_up && atomic_load(give_up)) {
            err = err_shutdown(msg);
            break;
        }
        if (slots->used < scheduler->parallel) {
            slots->used++;
            break;
        }
        if (clock_now_ns(&clock_monotonic) - began_ns >= scheduler->hold_patience_ns) {
            err = err_set(msg, EMBTIER_TIMEOUT,
                          "other shards have kept this one from compacting for %" PRIu64 " s",
                          scheduler->hold_patience_ns / 1000000000);
            break;
        }
        until = compaction_period_end();
        pthread_cond_timedwait(&scheduler->changed, &scheduler->mutex, &until);
    }
    assert(slots->waiting > 0);
    slots->waiting--;
    pthread_mutex_unlock(&scheduler->mutex);
    return err;
}

void compaction_scheduler_release(struct compaction_scheduler *scheduler, uint32_t device)
{
    slot_give(scheduler, device);
}
