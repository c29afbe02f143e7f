/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/reload/reload.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/log/log.h"

struct reloads {
    pthread_mutex_t running; /* held by the reload that runs */
    pthread_mutex_t lock;    /* guards the counts */
    struct reload_part parts[RELOAD_PARTS_MAX];
    uint32_t part_count;
    void (*look)(void *context); /* NULL: none */
    void *look_context;
    struct reload_stats stats;
};

enum embtier_err reloads_new(struct reloads **ret_reloads, struct err_msg *msg)
{
    struct reloads *const reloads = calloc(1, sizeof(*reloads));

    if (!reloads)
        return err_set(msg, EMBTIER_NO_MEMORY, "reloads: out of memory");
    pthread_mutex_init(&reloads->running, NULL);
    pthread_mutex_init(&reloads->lock, NULL);
    *ret_reloads = reloads;
    return EMBTIER_OK;
}

void reloads_free(struct reloads *reloads)
{
    if (!reloads)
        return;
    pthread_mutex_destroy(&reloads->running);
    pthread_mutex_destroy(&reloads->lock);
    free(reloads);
}

void reloads_add(struct reloads *reloads, const struct reload_part *part)
{
    assert(reloads->part_count < RELOAD_PARTS_MAX);
    reloads->parts[reloads->part_count++] = *part;
}

void reloads_look(struct reloads *reloads, void (*look)(void *context), void *context)
{
    reloads->look = look;
    reloads->look_context = context;
}

/* Returns with all parts read, or with none. */
static enum embtier_err read_parts(const struct reloads *reloads, void **ret_fresh,
                                   struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;
    uint32_t count = 0;

    while (err == EMBTIER_OK && count < reloads->part_count) {
        const struct reload_part *const part = &reloads->parts[count];

        err = part->read(part->context, &ret_fresh[count], msg);
        count += err == EMBTIER_OK;
    }
    while (err != EMBTIER_OK && count > 0) {
        const struct reload_part *const part = &reloads->parts[--count];

        part->drop(part->context, ret_fresh[count]);
    }
    return err;
}

static enum embtier_err run(const struct reloads *reloads, struct err_msg *msg)
{
    void *fresh[RELOAD_PARTS_MAX] = { NULL };

    TRY(read_parts(reloads, fresh, msg));
    for (uint32_t i = 0; i < reloads->part_count; i++)
        reloads->parts[i].take(reloads->parts[i].context, fresh[i]);
    if (reloads->look)
        reloads->look(reloads->look_context);
    return EMBTIER_OK;
}

enum embtier_err reloads_run(struct reloads *reloads, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    pthread_mutex_lock(&reloads->running);
    err = run(reloads, &why);
    pthread_mutex_unlock(&reloads->running);
    pthread_mutex_lock(&reloads->lock);
    (*(err == EMBTIER_OK ? &reloads->stats.reloads : &reloads->stats.failures))++;
    reloads->stats.last_failed = err != EMBTIER_OK;
    pthread_mutex_unlock(&reloads->lock);
    if (err == EMBTIER_OK && reloads->part_count == 0)
        log_info("nothing was reloaded: the configuration names no file that can change while the "
                 "server runs",
                 "files=0");
    else if (err == EMBTIER_OK)
        log_info("reloaded", "files=%u", reloads->part_count);
    if (err == EMBTIER_OK)
        return EMBTIER_OK;
    log_error("not reloaded: what was in force before stays", "err=%s why=%s", err_name(err),
              LOG_QUOTED(why.text));
    return err_set(msg, err, "not reloaded, so what was in force before stays: %s", why.text);
}

void reloads_stats(struct reloads *reloads, struct reload_stats *ret_stats)
{
    pthread_mutex_lock(&reloads->lock);
    *ret_stats = reloads->stats;
    pthread_mutex_unlock(&reloads->lock);
}
