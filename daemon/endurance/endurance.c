/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/endurance.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/system/thread_class.h"
#include "config/config.h"
#include "daemon/endurance/device_set.h"
#include "daemon/endurance/tier_writes.h"
#include "daemon/endurance/write_histories.h"
#include "daemon/endurance/write_hold.h"
#include "store/files/durable_file.h"
#include "store/files/written.h"

#define SAMPLE_NS UINT64_C(1000000000)
#define SAVE_MS   (5 * 60 * UINT64_C(1000))
#define TABLES_MS (10 * UINT64_C(1000))
/* Tables that are asked for at a time. */
#define TABLES_PAGE 128

/* A device of the set with the same number. */
struct device_figures {
    struct named_history *history;
    uint64_t directories;   /* bit i: data directory i lies on it, and only on it */
    uint64_t parts;         /* the same, if only a part lies on it; not of those that have left */
    uint64_t written_bytes; /* by all, since the device's figures began */
    uint64_t server_bytes;  /* of these directories and tiers' files, since the server's start */
    uint64_t begun_bytes;   /* of them, when the device's figures began */
    bool has_counter;       /* it has been read, and counts since */
    bool is_uncounted;      /* the kernel says so */
    bool is_over;
    struct write_hold hold;
    bool is_over_told, is_hold_told; /* the log says so */
    uint64_t row_bytes; /* that write-back may take until the next sample, if it is held */
};

/* Read by a sample before it takes the lock. */
struct readings {
    struct tier_counts tiers;
    bool has_tiers;
    uint64_t directories[CONFIG_DIRECTORIES_MAX];
    struct {
        uint64_t bytes;
        bool is_known, is_uncounted;
    } devices[DEVICE_SET_MAX];
};

struct endurance {
    const struct config *config;
    const struct host *host;
    void (*hold)(void *context, const char *directory, bool is_held, uint64_t bytes);
    void *hold_context;
    bool (*list_tables)(void *context, uint32_t after, uint32_t most,
                        struct table_bytes *ret_tables, uint32_t *ret_count);
    uint64_t (*store_bytes)(void *context);
    void *tables_context;
    struct table_histories *tables;
    uint64_t tables_ms; /* when tables were sampled last; the thread's */
    char *directory;
    bool may_save;             /* the file is ours, or damaged */
    struct device_set devices; /* changed by the thread, with the lock; the next three too */
    uint64_t tier_devices;     /* bit i: at least a part of a tier's file lies on device i */
    char *paths[CONFIG_DIRECTORIES_MAX]; /* of data directories, with the numbers of written.h */
    uint32_t path_count;
    pthread_mutex_t lock; /* guards all below but the thread's */
    double max_dwpd;
    bool is_limit_new; /* so the next sample judges devices anew */
    struct device_figures figures[DEVICE_SET_MAX];
    struct write_histories histories;
    struct named_history *server;
    uint64_t server_bytes; /* as sampled last, without tiers' files */
    struct tier_writes tiers;
    uint32_t tier_device; /* of all tiers' files; NO_DEVICE: they have several, or none known */
    bool has_tier_files;
    bool has_tier_figures;
    uint64_t held;    /* bit i: write-back to data directory i is held */
    bool is_released; /* nothing is held any more */
    uint64_t saved_ms;
    pthread_t thread;
    pthread_cond_t wake;
    bool has_thread, stopping;
};

/* ---- Devices ---- */

/* Notes what lies beneath data directory @i, which is in force. */
static void place_directory(struct endurance *endurance, uint32_t i,
                            const struct devices_beneath *beneath)
{
    if (beneath->device != NO_DEVICE)
        endurance->figures[beneath->device].directories |= UINT64_C(1) << i;
    for (uint32_t device = 0; device < endurance->devices.count; device++)
        if (beneath->devices & UINT64_C(1) << device)
            endurance->figures[device].parts |= UINT64_C(1) << i;
}

/* Adds the next data directory that is not known here. False: there is none, or no memory. */
static bool add_directory(struct endurance *endurance, struct device_set *devices,
                          struct devices_beneath *ret_beneath)
{
    char *path;

    if (endurance->path_count >= written_directory_count())
        return false;
    path = written_directory(endurance->path_count);
    if (!path)
        return false;
    *ret_beneath = device_set_add(devices, endurance->host, path);
    endurance->paths[endurance->path_count] = path;
    return true;
}

static void add_directories(struct endurance *endurance)
{
    struct devices_beneath beneath;

    while (add_directory(endurance, &endurance->devices, &beneath))
        place_directory(endurance, endurance->path_count++, &beneath);
}

/* Without one, the device is none of the server's any more. It may be taken away. */
static bool is_in_use(const struct endurance *endurance, uint32_t device)
{
    return endurance->figures[device].parts != 0 ||
           (endurance->tier_devices & UINT64_C(1) << device) != 0;
}

/* The bytes of tiers' files are known together only. */
static void share(struct endurance *endurance, uint32_t device)
{
    if (device != NO_DEVICE)
        endurance->devices.devices[device].has_shared = true;
}

/* Files of persistent memory bypass the page cache, and those in memory have no device. Neither has
 * bytes written back. */
static void add_tiers(struct endurance *endurance)
{
    const struct config *const config = endurance->config;

    endurance->tier_device = NO_DEVICE;
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        struct devices_beneath beneath;
        uint32_t device;

        if (config->cache.tiers[t].kind != TIER_KIND_FILE)
            continue;
        beneath = device_set_add(&endurance->devices, endurance->host, config->cache.tiers[t].path);
        endurance->tier_devices |= beneath.devices;
        if (beneath.is_dax || beneath.count == 0)
            continue;
        device = beneath.device;
        if (endurance->has_tier_files && endurance->tier_device != device) {
            share(endurance, endurance->tier_device);
            share(endurance, device);
            device = NO_DEVICE;
        }
        endurance->tier_device = device;
        endurance->has_tier_files = true;
    }
}

/* ---- Reading ---- */

/* The order keeps the bytes of others from being negative: the server counts a byte before it
 * writes it. So what the kernel counts for the process is read before the server's counts, and what
 * it counts for devices after them. */
static void read_counters(const struct endurance *endurance, struct readings *ret_readings)
{
    const struct host *const host = endurance->host;

    *ret_readings = (struct readings){ .has_tiers = false };
    ret_readings->has_tiers =
        endurance->has_tier_files && tier_counts_read(host, &ret_readings->tiers);
    for (uint32_t i = 0; i < endurance->path_count; i++)
        ret_readings->directories[i] = written_below(i);
    for (uint32_t i = 0; i < endurance->devices.count; i++) {
        const struct device *const device = &endurance->devices.devices[i];

        ret_readings->devices[i].is_uncounted = !device_is_counted(device, host);
        ret_readings->devices[i].is_known =
            !ret_readings->devices[i].is_uncounted &&
            device_written(device, host, &ret_readings->devices[i].bytes);
    }
}

static uint64_t directories_bytes(const struct endurance *endurance,
                                  const struct readings *readings, uint64_t which)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < endurance->path_count; i++)
        if (which & UINT64_C(1) << i)
            bytes += readings->directories[i];
    return bytes;
}

static void read_boot(struct endurance *endurance, struct host_line *ret_boot)
{
    if (!host_line(endurance->host, ret_boot, "/proc/sys/kernel/random/boot_id"))
        ret_boot->text[0] = '\0';
}

static uint64_t boot_ms(const struct endurance *endurance)
{
    uint64_t seconds;

    return host_field(endurance->host, "btime", &seconds, "/proc/stat") &&
                   seconds < UINT64_MAX / 1000
               ? seconds * 1000
               : 0;
}

/* ---- Beginning ---- */

/* Nothing is known of the time before: a new device, or one that the kernel did not count. */
static void begin_device(struct device_figures *figures, uint64_t counter, uint64_t now_ms)
{
    write_history_begin(&figures->history->history, now_ms);
    figures->history->counter = counter;
    figures->written_bytes = 0;
    figures->begun_bytes = figures->server_bytes;
    figures->has_counter = true;
}

/* A device that is a little below its limit is judged as before the restart. Another limit counts
 * at once. */
static void resume(struct device_figures *figures, uint64_t now_ms)
{
    figures->is_over = figures->history->is_over;
    figures->hold = (struct write_hold){ .is_held = figures->history->is_held, .seen_ms = now_ms };
}

/* Counters begin at 0 with each boot. In the boot of the file, bytes written while no server ran
 * count too; they may have been written at any time since the last sample, or since this boot. */
static void take_histories(struct endurance *endurance, const struct readings *readings,
                           uint64_t now_ms)
{
    const struct host_line server = { "server" };
    struct host_line boot;
    bool is_same, is_new;

    read_boot(endurance, &boot);
    is_same = boot.text[0] && strcmp(boot.text, endurance->histories.boot.text) == 0;
    endurance->histories.boot = boot;
    endurance->server = write_histories_get(&endurance->histories, &server, now_ms, &is_new);
    for (uint32_t i = 0; i < endurance->devices.count; i++) {
        struct named_history *const history = write_histories_get(
            &endurance->histories, &endurance->devices.devices[i].id, now_ms, &is_new);
        const uint64_t counter = readings->devices[i].bytes;
        const uint64_t seen_ms = history->history.past.seen_ms;

        endurance->figures[i].history = history;
        if (!readings->devices[i].is_known || is_new)
            continue;
        endurance->figures[i].has_counter = true;
        write_history_spread(&history->history,
                             is_same ? seen_ms : MAX(seen_ms, boot_ms(endurance)), now_ms,
                             is_same ? clock_since(counter, history->counter) : counter);
        history->counter = counter;
        if (endurance->histories.max_dwpd == endurance->max_dwpd)
            resume(&endurance->figures[i], now_ms);
    }
}

/* ---- Directories that are added and removed ---- */

/* Takes over @devices, which has those of before. The histories of new ones begin; other ids may
 * have got longer, to be told apart from theirs. */
static void take_devices(struct endurance *endurance, struct device_set *devices, uint64_t now_ms)
{
    const uint32_t before = endurance->devices.count;
    bool is_new;

    device_set_tell_apart(devices, endurance->host);
    endurance->devices = *devices;
    for (uint32_t i = 0; i < before; i++)
        endurance->figures[i].history->id = devices->devices[i].id;
    for (uint32_t i = before; i < devices->count; i++)
        endurance->figures[i].history =
            write_histories_get(&endurance->histories, &devices->devices[i].id, now_ms, &is_new);
}

static void add_new(struct endurance *endurance, uint64_t now_ms)
{
    struct device_set devices = endurance->devices;
    struct devices_beneath beneath;

    while (add_directory(endurance, &devices, &beneath)) {
        pthread_mutex_lock(&endurance->lock);
        take_devices(endurance, &devices, now_ms);
        place_directory(endurance, endurance->path_count++, &beneath);
        pthread_mutex_unlock(&endurance->lock);
    }
}

static bool is_in_force(const struct endurance *endurance, uint32_t directory)
{
    for (uint32_t i = 0; i < endurance->devices.count; i++)
        if (endurance->figures[i].parts & UINT64_C(1) << directory)
            return true;
    return false;
}

/* Its bytes still count, so that no figure falls. */
static void follow_removed(struct endurance *endurance)
{
    for (uint32_t d = 0; d < endurance->path_count; d++) {
        if (!written_has_left(d) || !is_in_force(endurance, d))
            continue;
        pthread_mutex_lock(&endurance->lock);
        for (uint32_t i = 0; i < endurance->devices.count; i++)
            endurance->figures[i].parts &= ~(UINT64_C(1) << d);
        pthread_mutex_unlock(&endurance->lock);
    }
}

/* ---- Sampling ---- */

static void sample_device(struct endurance *endurance, uint32_t i, const struct readings *readings,
                          uint64_t now_ms)
{
    struct device_figures *const figures = &endurance->figures[i];
    struct named_history *const history = figures->history;
    const bool has_tiers = endurance->has_tier_files && endurance->tier_device == i;
    const uint64_t counter = readings->devices[i].bytes;
    uint64_t bytes;

    figures->server_bytes = directories_bytes(endurance, readings, figures->directories) +
                            (has_tiers ? endurance->tiers.bytes : 0);
    figures->is_uncounted = readings->devices[i].is_uncounted;
    if (figures->is_uncounted)
        figures->has_counter = false;
    if (!readings->devices[i].is_known)
        return;
    if (!figures->has_counter) {
        begin_device(figures, counter, now_ms);
        return;
    }
    bytes = clock_since(counter, history->counter); /* one that was replaced begins anew */
    history->counter = counter;
    figures->written_bytes += bytes;
    write_history_add(&history->history, now_ms, bytes);
}

static void sample_server(struct endurance *endurance, const struct readings *readings,
                          uint64_t now_ms)
{
    const uint64_t before = endurance->server_bytes + endurance->tiers.bytes;

    endurance->server_bytes = directories_bytes(endurance, readings, UINT64_MAX);
    endurance->has_tier_figures = readings->has_tiers;
    if (readings->has_tiers)
        tier_writes_add(&endurance->tiers, &readings->tiers, endurance->server_bytes, now_ms);
    write_history_add(&endurance->server->history, now_ms,
                      clock_since(endurance->server_bytes + endurance->tiers.bytes, before));
}

/* ---- The limit ---- */

static struct write_rate last_day(const struct endurance *endurance, uint32_t i, uint64_t now_ms)
{
    return write_history_rate(&endurance->figures[i].history->history, WRITE_DAY, now_ms);
}

/* Returns drive writes a day, or 0 where nothing can be said yet. */
static double drive_writes(const struct endurance *endurance, uint32_t i, uint64_t now_ms)
{
    const uint64_t capacity_bytes = endurance->devices.devices[i].capacity_bytes;
    struct write_rate rate;

    if (capacity_bytes == 0 ||
        !write_history_is_judged(&endurance->figures[i].history->history, now_ms))
        return 0;
    rate = last_day(endurance, i, now_ms);
    return write_rate_daily(&rate) / (double)capacity_bytes;
}

/* Bytes that the device may take in a day; 0: no limit, or nothing is known. */
static double budget_bytes(const struct endurance *endurance, uint32_t i)
{
    return endurance->figures[i].has_counter
               ? endurance->max_dwpd * (double)endurance->devices.devices[i].capacity_bytes
               : 0;
}

static void judge(struct endurance *endurance, uint32_t i, uint64_t now_ms)
{
    const double most = endurance->max_dwpd;
    const double now = drive_writes(endurance, i, now_ms);
    struct device_figures *const figures = &endurance->figures[i];
    const bool stays = figures->is_over && !endurance->is_limit_new;
    const char *const name = endurance->devices.devices[i].name.text;

    figures->is_over = budget_bytes(endurance, i) > 0 &&
                       (now > (stays ? WRITE_HOLD_RELEASE * most : most) || figures->hold.is_held);
    if (figures->is_over && !figures->is_over_told)
        log_warn("a drive takes more writes a day than endurance.max_dwpd: see `embtier "
                 "endurance`; give the row cache more memory, or let fewer programs write there",
                 "device=%s dwpd=%.3g max_dwpd=%.3g", LOG_QUOTED(name), now, most);
    else if (figures->is_over_told && !figures->is_over)
        log_info("the drive takes fewer writes a day than endurance.max_dwpd again",
                 "device=%s dwpd=%.3g max_dwpd=%.3g", LOG_QUOTED(name), now, most);
    figures->is_over_told = figures->history->is_over = figures->is_over;
}

static void look_at_hold(struct endurance *endurance, uint32_t i, uint64_t bytes, uint64_t now_ms)
{
    struct device_figures *const figures = &endurance->figures[i];
    const struct device_look look = { .now_ms = now_ms,
                                      .budget_bytes = budget_bytes(endurance, i),
                                      .day_bytes = last_day(endurance, i, now_ms).bytes,
                                      .written_bytes = bytes };
    const char *const name = endurance->devices.devices[i].name.text;

    if (endurance->is_limit_new)
        figures->hold.is_held = false;
    figures->row_bytes = write_hold_look(&figures->hold, &look);
    if (figures->hold.is_held && !figures->is_hold_told)
        log_warn("a drive took a day's writes of endurance.max_dwpd: rows are written back at its "
                 "rate, and updates may wait; see `embtier endurance`",
                 "device=%s day_bytes=%" PRIu64 " bytes_per_second=%.0f", LOG_QUOTED(name),
                 look.day_bytes, look.budget_bytes / 86400);
    else if (figures->is_hold_told && !figures->hold.is_held)
        log_info("rows are written back to the drive as fast as it takes them again", "device=%s",
                 LOG_QUOTED(name));
    figures->is_hold_told = figures->history->is_held = figures->hold.is_held;
}

/* No limit holds for a device that the server does not use any more. */
static void let_go(struct device_figures *figures)
{
    figures->hold = (struct write_hold){ .is_held = false };
    figures->is_over = figures->is_over_told = figures->is_hold_told = false;
    figures->history->is_over = figures->history->is_held = false;
}

/* A directory on several devices is held if one of them is, and to the least of their bytes. */
static bool is_held(const struct endurance *endurance, uint32_t directory, uint64_t *ret_bytes)
{
    bool held = false;

    *ret_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < endurance->devices.count; i++) {
        const struct device_figures *const figures = &endurance->figures[i];

        if (!(figures->parts & UINT64_C(1) << directory) || !figures->hold.is_held)
            continue;
        held = true;
        *ret_bytes =
            MIN(*ret_bytes, figures->row_bytes / (uint64_t)__builtin_popcountll(figures->parts));
    }
    return held && !endurance->is_released;
}

static void hold_directories(struct endurance *endurance)
{
    for (uint32_t d = 0; endurance->hold && d < endurance->path_count; d++) {
        const uint64_t bit = UINT64_C(1) << d;
        uint64_t bytes;
        const bool held = is_held(endurance, d, &bytes);

        if (held || endurance->held & bit)
            endurance->hold(endurance->hold_context, endurance->paths[d], held, held ? bytes : 0);
        endurance->held = held ? endurance->held | bit : endurance->held & ~bit;
    }
}

static void take_sample(struct endurance *endurance, const struct readings *readings,
                        uint64_t now_ms)
{
    sample_server(endurance, readings, now_ms);
    for (uint32_t i = 0; i < endurance->devices.count; i++) {
        const uint64_t before = endurance->figures[i].written_bytes;

        sample_device(endurance, i, readings, now_ms);
        if (!is_in_use(endurance, i)) {
            let_go(&endurance->figures[i]);
            continue;
        }
        look_at_hold(endurance, i, clock_since(endurance->figures[i].written_bytes, before),
                     now_ms);
        judge(endurance, i, now_ms);
    }
    endurance->is_limit_new = false;
    endurance->histories.max_dwpd = endurance->max_dwpd;
    hold_directories(endurance);
}

/* Lists all tables once more. False: out of memory. */
static bool sample_each_table(struct endurance *endurance, uint64_t now_ms)
{
    struct table_bytes page[TABLES_PAGE];
    uint32_t after = 0, count;

    do {
        if (!endurance->list_tables(endurance->tables_context, after, TABLES_PAGE, page, &count))
            return false;
        table_histories_add(endurance->tables, page, count, now_ms);
        if (count > 0)
            after = page[count - 1].table_id;
    } while (count == TABLES_PAGE);
    return true;
}

static void sample_tables(struct endurance *endurance, uint64_t now_ms)
{
    uint64_t tier_bytes;
    bool is_whole;

    if (!endurance->list_tables)
        return;
    table_histories_begin(endurance->tables);
    is_whole = sample_each_table(endurance, now_ms);
    pthread_mutex_lock(&endurance->lock);
    tier_bytes = endurance->tiers.bytes;
    pthread_mutex_unlock(&endurance->lock);
    table_histories_end(endurance->tables,
                        endurance->store_bytes(endurance->tables_context) + tier_bytes, is_whole,
                        now_ms);
    endurance->tables_ms = now_ms;
}

static void sample(struct endurance *endurance, uint64_t now_ms)
{
    struct readings readings;

    if (endurance->path_count < written_directory_count())
        add_new(endurance, now_ms);
    follow_removed(endurance);
    read_counters(endurance, &readings);
    pthread_mutex_lock(&endurance->lock);
    take_sample(endurance, &readings, now_ms);
    pthread_mutex_unlock(&endurance->lock);
}

void endurance_release(struct endurance *endurance)
{
    if (!endurance)
        return;
    pthread_mutex_lock(&endurance->lock);
    endurance->is_released = true;
    hold_directories(endurance);
    pthread_mutex_unlock(&endurance->lock);
}

void endurance_set_max_dwpd(struct endurance *endurance, double max_dwpd)
{
    pthread_mutex_lock(&endurance->lock);
    endurance->is_limit_new = endurance->is_limit_new || max_dwpd != endurance->max_dwpd;
    endurance->max_dwpd = max_dwpd;
    pthread_mutex_unlock(&endurance->lock);
}

double endurance_max_dwpd(struct endurance *endurance)
{
    double max_dwpd;

    pthread_mutex_lock(&endurance->lock);
    max_dwpd = endurance->max_dwpd;
    pthread_mutex_unlock(&endurance->lock);
    return max_dwpd;
}

/* ---- Figures ---- */

static void get_history(const struct write_history *history, uint64_t now_ms,
                        struct written_figures *ret_figures)
{
    ret_figures->total_bytes = history->past.total_bytes;
    ret_figures->age_ms = clock_since(now_ms, history->past.since_ms);
    ret_figures->has_rates = write_history_is_judged(history, now_ms);
    for (uint32_t w = 0; w < WRITE_WINDOWS; w++)
        ret_figures->rates[w] = write_history_rate(history, (enum write_window)w, now_ms);
}

static void get_device(const struct endurance *endurance, uint32_t i, uint64_t now_ms,
                       struct endurance_device *ret_device)
{
    const struct device *const device = &endurance->devices.devices[i];
    const struct device_figures *const figures = &endurance->figures[i];
    const bool has_tiers = endurance->has_tier_files && endurance->tier_device == i;

    *ret_device = (struct endurance_device){
        .name = device->name,
        .capacity_bytes = device->capacity_bytes,
        .is_counted = !figures->is_uncounted,
        .written_bytes = figures->written_bytes,
        .has_server_bytes = !device->has_shared && (!has_tiers || endurance->has_tier_figures),
        .server_bytes = figures->server_bytes - figures->begun_bytes,
        .is_over = figures->is_over,
        .is_held = figures->hold.is_held && !endurance->is_released,
    };
    get_history(&figures->history->history, now_ms, &ret_device->history);
}

static void get_table_history(const struct table_history *history, uint64_t now_ms,
                              struct written_figures *ret_figures)
{
    ret_figures->total_bytes = history->past.total_bytes;
    ret_figures->age_ms = clock_since(now_ms, history->past.since_ms);
    ret_figures->has_rates = write_past_is_judged(&history->past, now_ms);
    for (uint32_t w = 0; w < WRITE_WINDOWS; w++)
        ret_figures->rates[w] = table_history_rate(history, (enum write_window)w, now_ms);
}

bool endurance_get_table(struct endurance *endurance, uint32_t table_id, uint64_t now_ms,
                         struct written_figures *ret_figures)
{
    struct table_history history;

    if (!table_histories_get(endurance->tables, table_id, &history))
        return false;
    get_table_history(&history, now_ms, ret_figures);
    return true;
}

void endurance_get(struct endurance *endurance, uint64_t now_ms, struct endurance_state *ret_state)
{
    struct table_history shared;

    table_histories_shared(endurance->tables, &shared);
    get_table_history(&shared, now_ms, &ret_state->shared);
    pthread_mutex_lock(&endurance->lock);
    ret_state->has_tier_files = endurance->has_tier_figures;
    ret_state->tier_file_bytes = endurance->tiers.bytes;
    get_history(&endurance->server->history, now_ms, &ret_state->server);
    ret_state->device_count = 0;
    for (uint32_t i = 0; i < endurance->devices.count; i++)
        if (is_in_use(endurance, i) &&
            (endurance->figures[i].has_counter || endurance->figures[i].is_uncounted))
            get_device(endurance, i, now_ms, &ret_state->devices[ret_state->device_count++]);
    pthread_mutex_unlock(&endurance->lock);
}

/* ---- Saving ---- */

enum embtier_err endurance_save(struct endurance *endurance, struct err_msg *msg)
{
    _cleanup_(freep) struct write_histories *copy = NULL;

    if (!endurance->may_save)
        return EMBTIER_OK; /* the file may be good */
    copy = malloc(sizeof(*copy));
    if (!copy)
        return err_set(msg, EMBTIER_NO_MEMORY, WRITE_HISTORIES_FILE ": out of memory");
    pthread_mutex_lock(&endurance->lock);
    *copy = endurance->histories;
    pthread_mutex_unlock(&endurance->lock);
    return write_histories_save(copy, endurance->directory, msg);
}

static void save(struct endurance *endurance)
{
    const uint64_t before = durable_file_written_bytes();
    struct err_msg msg = { { 0 } };
    enum embtier_err err = endurance_save(endurance, &msg);

    if (err == EMBTIER_OK)
        err = table_histories_save(endurance->tables, &msg);
    if (err != EMBTIER_OK)
        log_warn("the history of bytes written was not saved, and is tried again later", "why=%s",
                 LOG_QUOTED(msg.text));
    table_histories_note_own(endurance->tables, durable_file_written_bytes() - before);
}

/* ---- The thread ---- */

void endurance_turn(struct endurance *endurance, uint64_t now_ms)
{
    sample(endurance, now_ms);
    if (now_ms < endurance->tables_ms || now_ms - endurance->tables_ms >= TABLES_MS)
        sample_tables(endurance, now_ms);
    if (now_ms >= endurance->saved_ms && now_ms - endurance->saved_ms < SAVE_MS)
        return;
    save(endurance);
    endurance->saved_ms = now_ms;
}

/* Returns false if it is time to end. */
static bool wait_turn(struct endurance *endurance)
{
    const struct timespec until = clock_until(SAMPLE_NS);
    bool stopping;

    pthread_mutex_lock(&endurance->lock);
    while (!endurance->stopping &&
           pthread_cond_timedwait(&endurance->wake, &endurance->lock, &until) == 0)
        ;
    stopping = endurance->stopping;
    pthread_mutex_unlock(&endurance->lock);
    return !stopping;
}

static void *thread_main(void *argument)
{
    struct endurance *const endurance = argument;

    thread_class_background();
    while (wait_turn(endurance))
        endurance_turn(endurance, clock_wall_ms());
    return NULL;
}

enum embtier_err endurance_start(struct endurance *endurance, struct err_msg *msg)
{
    const int rc = pthread_create(&endurance->thread, NULL, thread_main, endurance);

    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start the thread that samples devices");
    pthread_setname_np(endurance->thread, "endurance");
    endurance->has_thread = true;
    return EMBTIER_OK;
}

static void join(struct endurance *endurance)
{
    if (!endurance->has_thread)
        return;
    pthread_mutex_lock(&endurance->lock);
    endurance->stopping = true;
    pthread_cond_signal(&endurance->wake);
    pthread_mutex_unlock(&endurance->lock);
    pthread_join(endurance->thread, NULL);
    endurance->has_thread = false;
}

void endurance_end(struct endurance *endurance)
{
    if (!endurance)
        return;
    join(endurance);
    sample(endurance, clock_wall_ms());
    sample_tables(endurance, clock_wall_ms());
    save(endurance);
}

/* ---- Life ---- */

enum embtier_err endurance_new(const struct endurance_opts *opts, uint64_t now_ms,
                               struct endurance **ret_endurance, struct err_msg *msg)
{
    _cleanup_(endurance_freep) struct endurance *endurance = calloc(1, sizeof(*endurance));
    struct readings readings;

    if (!endurance)
        return err_set(msg, EMBTIER_NO_MEMORY, "endurance: out of memory");
    pthread_mutex_init(&endurance->lock, NULL);
    clock_init_cond(&endurance->wake);
    endurance->config = opts->config;
    endurance->host = opts->host;
    endurance->hold = opts->hold;
    endurance->hold_context = opts->context;
    endurance->list_tables = opts->list_tables;
    endurance->store_bytes = opts->store_bytes;
    endurance->tables_context = opts->tables_context;
    endurance->max_dwpd = opts->config->endurance.max_dwpd;
    endurance->saved_ms = now_ms;
    endurance->directory = strdup(opts->directory);
    if (!endurance->directory)
        return err_set(msg, EMBTIER_NO_MEMORY, "endurance: out of memory");
    add_directories(endurance);
    add_tiers(endurance);
    device_set_tell_apart(&endurance->devices, endurance->host);
    if (table_histories_new(endurance->directory, now_ms, &endurance->tables) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "endurance: out of memory");
    endurance->may_save = write_histories_load(endurance->directory, now_ms, &endurance->histories);
    read_counters(endurance, &readings);
    take_histories(endurance, &readings, now_ms);
    take_sample(endurance, &readings, now_ms);
    for (uint32_t i = 0; i < endurance->devices.count; i++)
        endurance->figures[i].begun_bytes = endurance->figures[i].server_bytes;
    *ret_endurance = TAKE(endurance);
    return EMBTIER_OK;
}

void endurance_free(struct endurance *endurance)
{
    if (!endurance)
        return;
    join(endurance);
    pthread_cond_destroy(&endurance->wake);
    pthread_mutex_destroy(&endurance->lock);
    table_histories_free(endurance->tables);
    for (uint32_t i = 0; i < endurance->path_count; i++)
        free(endurance->paths[i]);
    free(endurance->directory);
    free(endurance);
}
