/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/knobs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "base/text/text_escape.h"
#include "config/config_load.h"
#include "config/config_shards.h"
#include "daemon/jobs/knobs/knob_file.h"
#include "daemon/jobs/knobs/knobs_live.h"
#include "store/store.h"

enum changed { CHANGED_NOT, CHANGED_SET, CHANGED_IN_FILE };

struct knobs {
    struct knobs_live live;
    const struct config *config; /* of the start */
    char *path;                  /* of its file, absolute; NULL: none */
    pthread_mutex_t set_lock;    /* held while a knob is set; taken first */
    pthread_mutex_t lock;        /* of the values in force, but those that take long to change */
    _Atomic uint8_t *changed;    /* enum changed of each key and each tier's key, since the start */
};

/* ---- Making ---- */

static enum embtier_err absolute_path(const char *path, char **ret_path)
{
    _cleanup_(freep) char *folder = path[0] == '/' ? strdup("") : getcwd(NULL, 0);

    if (!folder)
        return err_from_errno(errno);
    *ret_path = path[0] == '/' ? strdup(path) : path_join(folder, path);
    return *ret_path ? EMBTIER_OK : EMBTIER_NO_MEMORY;
}

enum embtier_err knobs_new(const struct knobs_opts *opts, struct knobs **ret_knobs,
                           struct err_msg *msg)
{
    _cleanup_(knobs_freep) struct knobs *knobs = calloc(1, sizeof(*knobs));
    enum embtier_err err;

    if (!knobs)
        return err_set(msg, EMBTIER_NO_MEMORY, "knobs: out of memory");
    pthread_mutex_init(&knobs->set_lock, NULL);
    pthread_mutex_init(&knobs->lock, NULL);
    knobs->live.opts = *opts;
    knobs->config = opts->config;
    for (uint32_t i = 0; i < KNOB_LIMIT_COUNT; i++)
        knobs_live_set_limit(&knobs->live, (enum knob_limit)i, opts->config);
    snprintf(knobs->live.hours, sizeof(knobs->live.hours), "%s",
             opts->config->rocksdb.compaction_hours ? opts->config->rocksdb.compaction_hours : "");
    knobs->changed =
        calloc(config_key_count + TIERS_MAX * config_tier_key_count, sizeof(*knobs->changed));
    if (!knobs->changed)
        return err_set(msg, EMBTIER_NO_MEMORY, "knobs: out of memory");
    if (opts->config->source) {
        err = absolute_path(opts->config->source, &knobs->path);
        if (err != EMBTIER_OK)
            return err_set(msg, err, "the folder of %s: %s", opts->config->source, err_text(err));
    }
    *ret_knobs = TAKE(knobs);
    return EMBTIER_OK;
}

void knobs_free(struct knobs *knobs)
{
    if (!knobs)
        return;
    pthread_mutex_destroy(&knobs->set_lock);
    pthread_mutex_destroy(&knobs->lock);
    free(knobs->changed);
    free(knobs->path);
    free(knobs);
}

uint64_t knobs_limit(const struct knobs *knobs, enum knob_limit limit)
{
    return atomic_load_explicit(&knobs->live.limits[limit], memory_order_relaxed);
}

const char *knobs_file(const struct knobs *knobs)
{
    return knobs->path;
}

/* ---- Reading ---- */

struct items {
    struct config_item *items; /* malloced */
    size_t count;
    size_t capacity;
};

static void items_clear(struct items *items)
{
    free(items->items);
}

static enum embtier_err add_item(void *context, const struct config_item *item)
{
    struct items *const items = context;

    if (items->count == items->capacity) {
        const size_t capacity = items->capacity * 2 + 64;
        struct config_item *const more =
            reallocarray(items->items, capacity, sizeof(*items->items));

        if (!more)
            return EMBTIER_NO_MEMORY;
        items->items = more;
        items->capacity = capacity;
    }
    items->items[items->count++] = *item;
    return EMBTIER_OK;
}

static const struct config_item *find(const struct items *items, const char *name)
{
    for (size_t i = 0; i < items->count; i++)
        if (strcmp(items->items[i].name, name) == 0)
            return &items->items[i];
    return NULL;
}

static bool has_path(const char *const *paths, uint32_t count, const char *path)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(paths[i], path) == 0)
            return true;
    return false;
}

/* Puts the data directories in force into @now: those of the start that are left, in their order,
 * then those that were added. @paths is room for them. */
static void read_directories(const struct knobs *knobs, const char *paths[CONFIG_DIRECTORIES_MAX],
                             struct config *now)
{
    const char *all[CONFIG_DIRECTORIES_MAX];
    const uint32_t count = store_directories(knobs->live.opts.store, all);
    uint32_t taken = 0;

    for (uint32_t i = 0; i < now->data.directory_count; i++)
        if (has_path(all, count, now->data.directories[i]))
            paths[taken++] = now->data.directories[i];
    for (uint32_t i = 0; i < count; i++)
        if (!has_path(paths, taken, all[i]))
            paths[taken++] = all[i];
    now->data.directories = (char **)(uintptr_t)paths; /* only read */
    now->data.directory_count = taken;
}

/* Returns the place of the item's mark. */
static _Atomic uint8_t *mark_of(const struct knobs *knobs, const struct config_item *item)
{
    const char *const bracket = strchr(item->name, '[');
    const unsigned long tier = bracket ? strtoul(bracket + 1, NULL, 10) : 0;

    if (item->key >= config_keys && item->key < config_keys + config_key_count)
        return &knobs->changed[item->key - config_keys];
    assert(tier < TIERS_MAX);
    return &knobs->changed[config_key_count + tier * config_tier_key_count +
                           (uint32_t)(item->key - config_tier_keys)];
}

static enum knob_source source_of(const struct knobs *knobs, const struct config_item *item)
{
    const uint8_t mark = *mark_of(knobs, item);

    if (mark != CHANGED_NOT)
        return mark == CHANGED_SET ? KNOB_SET : KNOB_FILE;
    if (knobs->config->log.is_option && strcmp(item->name, "log.level") == 0)
        return KNOB_OPTION;
    if (item->key->type == CONFIG_PATHS && item->value[0] != '\0' && !item->in_file)
        return knobs->config->data.is_default &&
                       strcmp(item->value, knobs->config->data.directories[0]) == 0
                   ? KNOB_DEFAULT
                   : KNOB_SET;
    return item->in_file ? KNOB_FILE : KNOB_DEFAULT;
}

/* True for a default that is computed from other values, by the settings @now and in the file: it
 * differs only as these do. */
static bool is_computed(const struct config *now, const struct config_item *running,
                        const struct config_item *other)
{
    struct config_item item;

    return other->value[0] == '\0' &&
           config_find_item(now, running->name, &item, NULL) == EMBTIER_OK && item.value[0] == '\0';
}

/* @now and @other are NULL where no comparison is wanted. */
static void describe(const struct knobs *knobs, const struct config *now,
                     const struct config_item *item, const struct config_item *other,
                     struct knob *ret_knob)
{
    ret_knob->item = *item;
    ret_knob->source = source_of(knobs, item);
    ret_knob->is_running = true;
    if (other &&
        ((!other->in_file && ret_knob->source == KNOB_DEFAULT) || is_computed(now, item, other)))
        other = item;
    ret_knob->in_other = other != NULL;
    memcpy(ret_knob->other_value, other ? other->value : "", other ? sizeof(other->value) : 1);
}

static enum embtier_err give(const struct knobs *knobs, const struct config *now,
                             const struct items *running, const struct items *other, knob_fn *each,
                             void *context)
{
    struct knob knob;

    for (size_t i = 0; i < running->count; i++) {
        describe(knobs, now, &running->items[i], find(other, running->items[i].name), &knob);
        TRY(each(context, &knob));
    }
    for (size_t i = 0; i < other->count; i++) {
        if (find(running, other->items[i].name))
            continue;
        describe(knobs, now, &other->items[i], &other->items[i], &knob);
        knob.is_running = false;
        knob.item.value[0] = '\0';
        TRY(each(context, &knob));
    }
    return EMBTIER_OK;
}

enum embtier_err knobs_each(struct knobs *knobs, const struct config *other, knob_fn *each,
                            void *context)
{
    _cleanup_(items_clear) struct items running = { 0 };
    _cleanup_(items_clear) struct items others = { 0 };
    struct config settings;
    enum embtier_err err;

    pthread_mutex_lock(&knobs->lock);
    settings = knobs_live_read(&knobs->live, knobs->config);
    {
        struct config now = settings;
        const char *paths[CONFIG_DIRECTORIES_MAX];

        read_directories(knobs, paths, &now);
        knobs_live_show(&knobs->live, &now);
        err = config_each_item(&now, add_item, &running);
        if (err == EMBTIER_OK && other) {
            struct config like = *other;

            knobs_live_match_tiers(&knobs->live, &now, &like);
            err = config_each_item(&like, add_item, &others);
        }
    }
    if (err == EMBTIER_OK)
        err = give(knobs, &settings, &running, &others, each, context);
    pthread_mutex_unlock(&knobs->lock);
    return err;
}

/* Finds an item of the settings @now, with the data directories in force. */
static enum embtier_err find_item(const struct knobs *knobs, const struct config *now,
                                  const char *name, struct config_item *ret_item,
                                  struct err_msg *msg)
{
    const char *paths[CONFIG_DIRECTORIES_MAX];
    struct config with = *now;

    read_directories(knobs, paths, &with);
    return config_find_item(&with, name, ret_item, msg);
}

enum embtier_err knobs_name_nearest(const struct knobs *knobs, const char *name,
                                    struct err_msg *msg)
{
    struct config_item item;

    return find_item(knobs, knobs->config, name, &item, msg);
}

static enum embtier_err refuse_no_file(const char *what, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_INVALID,
                   "the server runs without a configuration file, so %s: start it with --config "
                   "FILE",
                   what);
}

enum embtier_err knobs_read_file(const struct knobs *knobs, struct config **ret_config,
                                 struct err_msg *msg)
{
    if (!knobs->path)
        return refuse_no_file("there is none to compare with", msg);
    return config_load_on(knobs->path, &knobs->config->machine, knobs->config->unbudgeted,
                          ret_config, msg);
}

enum embtier_err knobs_read_text(const struct knobs *knobs, const char *name, const char *text,
                                 size_t bytes, struct config **ret_config, struct err_msg *msg)
{
    return config_parse(name, text, bytes, &knobs->config->machine, knobs->config->unbudgeted,
                        ret_config, msg);
}

enum embtier_err knobs_fit_shards(struct knobs *knobs, uint32_t shards, bool applies,
                                  struct err_msg *msg)
{
    struct config next;
    enum embtier_err err;

    pthread_mutex_lock(&knobs->lock);
    {
        const struct config now = knobs_live_read(&knobs->live, knobs->config);

        err = config_for_shards(&now, shards, &next, msg);
        if (err == EMBTIER_OK)
            err = store_check_memtables(&next, shards, msg);
        if (err == EMBTIER_OK && applies)
            err = store_set_memtables(knobs->live.opts.store, &next, msg);
        if (err == EMBTIER_OK && applies)
            err = store_share_files(knobs->live.opts.store, &next, msg);
    }
    pthread_mutex_unlock(&knobs->lock);
    return err;
}

/* ---- Setting ---- */

static enum embtier_err refuse_start_only(const struct config_item *item, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_INVALID,
                   "%s needs a restart; --persist writes it into the file, for the next start",
                   item->name);
}

/* Puts the knob @name in force, and all others of the table whose values differ: a value may change
 * what follows from it. A change that failed half-way is repaired by one to the same value. */
static enum embtier_err apply(struct knobs *knobs, const char *name, const struct config *now,
                              const struct config *next, struct err_msg *msg)
{
    struct config_item before, after;

    for (uint32_t i = 0; i < knobs_live_count; i++) {
        const struct knob_live *const row = &knobs_live_table[i];
        enum embtier_err err;

        if (config_find_item(now, row->name, &before, NULL) != EMBTIER_OK)
            continue; /* of a tier that there is not */
        TRY(config_find_item(next, row->name, &after, msg));
        if (strcmp(before.value, after.value) == 0 && strcmp(row->name, name) != 0)
            continue;
        if (!knobs_live_is_long(row))
            pthread_mutex_lock(&knobs->lock);
        err = row->apply(&knobs->live, next, msg);
        if (!knobs_live_is_long(row))
            pthread_mutex_unlock(&knobs->lock);
        if (err == EMBTIER_CONFIG) { /* a check that only the part itself makes */
            config_cut_place(msg);
            return EMBTIER_INVALID;
        }
        TRY(err);
    }
    return EMBTIER_OK;
}

/* Reads the values in force. @hours is room for a text of theirs. */
static void read_now(struct knobs *knobs, struct config *ret_now,
                     char hours[sizeof(knobs->live.hours)])
{
    pthread_mutex_lock(&knobs->lock);
    *ret_now = knobs_live_read(&knobs->live, knobs->config);
    memcpy(hours, knobs->live.hours, sizeof(knobs->live.hours));
    ret_now->rocksdb.compaction_hours = hours; /* the other one changes with the value */
    pthread_mutex_unlock(&knobs->lock);
}

/* Finds an item with the value that follows from the settings @now. */
static enum embtier_err shown_item(const struct knobs *knobs, const struct config *now,
                                   const char *name, struct config_item *ret_item,
                                   struct err_msg *msg)
{
    struct config shown = *now;

    knobs_live_show(&knobs->live, &shown);
    return config_find_item(&shown, name, ret_item, msg);
}

/* Reads the value back, and compares it with the one that was wanted; @next is NULL for a knob that
 * was not put in force. */
static enum embtier_err read_back(struct knobs *knobs, const char *name, const struct config *next,
                                  struct knob_change *ret_change, struct err_msg *msg)
{
    char hours[sizeof(knobs->live.hours)];
    struct config_item wanted, found;
    struct config now;

    read_now(knobs, &now, hours);
    TRY(shown_item(knobs, &now, name, &found, msg));
    describe(knobs, NULL, &found, NULL, &ret_change->knob);
    if (!next)
        return EMBTIER_OK;
    TRY(config_find_item(&now, name, &found, msg));
    TRY(config_find_item(next, name, &wanted, msg));
    if (strcmp(wanted.value, found.value) != 0)
        return err_set(msg, EMBTIER_INTERNAL, "%s was set to %s, but %s is in force", name,
                       wanted.value, found.value);
    return EMBTIER_OK;
}

static enum embtier_err check_order(const struct knobs *knobs, const struct knob_order *order,
                                    const struct config_item *item, struct err_msg *msg)
{
    if (item->key->type == CONFIG_PATHS && !strchr(item->name, '['))
        return err_set(msg, EMBTIER_INVALID, "%s is a list: change it in the file", item->name);
    TRY(config_check_value(item, order->value, msg));
    if (item->key->when == CONFIG_HAND)
        return err_set(msg, EMBTIER_INVALID,
                       "%s says where the server is or whom it lets in, so no client sets it: "
                       "change it in the file by hand, then restart the server",
                       item->name);
    if (item->key->when != CONFIG_LIVE && !order->persist)
        return refuse_start_only(item, msg);
    if (order->persist && !knobs->path)
        return refuse_no_file("--persist has no place to write to", msg);
    return EMBTIER_OK;
}

/* Puts the values of @before in force again, after an error that *@msg has. */
static enum embtier_err take_back(struct knobs *knobs, const char *name,
                                  const struct config *before, enum embtier_err err,
                                  struct err_msg *msg)
{
    char hours[sizeof(knobs->live.hours)];
    struct err_msg why = { { 0 } };
    enum embtier_err back_err;
    struct config now;

    read_now(knobs, &now, hours);
    back_err = apply(knobs, name, &now, before, &why);
    if (!msg || (err == EMBTIER_INVALID && back_err == EMBTIER_OK)) /* was refused, not tried */
        return err;
    if (back_err == EMBTIER_OK)
        err_append(msg, "; %s is in force as before", name);
    else
        err_append(msg, "; %s could not be put back either (%s): set it again", name,
                   why.text[0] ? why.text : err_text(back_err));
    return err;
}

/* Puts @next in force and finishes @file (NULL: none), or neither. */
static enum embtier_err carry_out(struct knobs *knobs, const char *name,
                                  const struct config *before, const struct config *next,
                                  struct knob_file *file, struct err_msg *msg)
{
    enum embtier_err err = next ? apply(knobs, name, before, next, msg) : EMBTIER_OK;

    if (err == EMBTIER_OK && file)
        err = knob_file_finish(file, msg);
    if (err == EMBTIER_OK || err == EMBTIER_SHUTDOWN || !next)
        return err; /* a server that stops needs no values back */
    return take_back(knobs, name, before, err, msg);
}

static enum embtier_err set(struct knobs *knobs, const struct knob_order *order,
                            struct knob_change *ret_change, struct err_msg *msg)
{
    const struct knob_file_opts opts = { .path = knobs->path,
                                         .checker = knobs->live.opts.checker,
                                         .check_ms = knobs->live.opts.check_ms,
                                         .config = knobs->config };
    struct config now;
    _cleanup_(knob_file_freep) struct knob_file *file = NULL;
    _cleanup_(config_freep) struct config *next = NULL;
    char hours[sizeof(knobs->live.hours)];
    struct config_item item;

    read_now(knobs, &now, hours);
    TRY(find_item(knobs, &now, order->name, &item, msg));
    TRY(check_order(knobs, order, &item, msg));
    ret_change->applied = item.key->when == CONFIG_LIVE;
    TRY(shown_item(knobs, &now, order->name, &item, msg));
    memcpy(ret_change->old_value, item.value, sizeof(ret_change->old_value));
    if (ret_change->applied)
        TRY(config_change(&now, order->name, order->value, &next, msg));
    if (order->persist)
        TRY(knob_file_new(&opts, order->name, order->value, &file, msg));
    TRY(carry_out(knobs, order->name, &now, next, file, msg));
    if (ret_change->applied)
        *mark_of(knobs, &item) = file ? CHANGED_IN_FILE : CHANGED_SET;
    return read_back(knobs, order->name, next, ret_change, msg);
}

void knobs_note_set(struct knobs *knobs, const char *name)
{
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *const key = &config_keys[i];
        const size_t section = strlen(key->section);

        if (strncmp(name, key->section, section) == 0 && name[section] == '.' &&
            strcmp(name + section + 1, key->name) == 0)
            knobs->changed[i] = CHANGED_SET;
    }
}

enum embtier_err knobs_set(struct knobs *knobs, const struct knob_order *order,
                           struct knob_change *ret_change, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_mutex_lock(&knobs->set_lock);
    err = set(knobs, order, ret_change, msg);
    pthread_mutex_unlock(&knobs->set_lock);
    if (err == EMBTIER_OK)
        log_info(ret_change->applied ? "knob set"
                                     : "knob written into the file, for the next start",
                 "name=%s old=%s new=%s file=%s", order->name, LOG_QUOTED(ret_change->old_value),
                 LOG_QUOTED(ret_change->applied ? ret_change->knob.item.value : order->value),
                 order->persist ? "yes" : "no");
    return err;
}
