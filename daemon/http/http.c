/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/yaml/yaml_doc.h"
#include "config/config.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/http/http_impl.h"
#include "daemon/http/table_top.h"

/* The control thread answers in a millisecond. One that is silent for so long is not alive. */
#define ANSWER_NS (UINT64_C(5) * 1000000000)
/* Tables that are read at a time, under their lock: few, as this thread may be kept from running
 * while it has the lock. */
#define TABLES_PAGE 64

static enum embtier_err mistake(const struct config *config, const struct err_msg *why,
                                struct err_msg *msg)
{
    return yaml_doc_mistake(config->doc, "http.listen", msg, "%s", why->text);
}

enum embtier_err http_check(const struct config *config, bool may_live, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };

    if (config->http.listen &&
        listener_check(&config->http.address, config->http.insecure, may_live, &why) != EMBTIER_OK)
        return mistake(config, &why, msg);
    return EMBTIER_OK;
}

/* ---- The snapshot ---- */

/* Control thread, or the one that ends it. Takes no lock: the other thread has a lower priority. */
static void take_answer(struct snapshot *snapshot, bool is_filled)
{
    struct http *const http = CONTAINER_OF(snapshot, struct http, snapshot);

    http->is_filled = is_filled;
    atomic_store(&http->is_asked, false);
    (void)sem_post(&http->changed);
}

static enum embtier_err read_tables(struct table_top *top, struct tables *tables)
{
    uint32_t after = 0;
    bool more = true;

    table_top_begin(top);
    while (more) {
        struct table_info *infos = NULL;
        uint32_t count = 0;
        enum embtier_err err = tables_page(tables, after, TABLES_PAGE, &infos, &count, &more);

        if (err == EMBTIER_OK)
            err = table_top_add(top, infos, count);
        if (err == EMBTIER_OK && count > 0)
            after = infos[count - 1].table_id;
        free(infos);
        if (err != EMBTIER_OK)
            return err;
    }
    table_top_end(top);
    return EMBTIER_OK;
}

static enum http_asked state_asked(const struct http *http)
{
    switch (http->state) {
    case HTTP_STARTING:
        return HTTP_IS_STARTING;
    case HTTP_STOPPING:
        return HTTP_IS_STOPPING;
    default:
        return HTTP_ANSWERED;
    }
}

/* Sends the snapshot, unless the control thread still has it from an earlier request. */
static enum http_asked send_snapshot(struct http *http)
{
    enum http_asked asked;

    pthread_mutex_lock(&http->lock);
    asked = state_asked(http);
    if (asked == HTTP_ANSWERED && !atomic_exchange(&http->is_asked, true)) {
        http->asked_ns = clock_now_ns(&clock_monotonic);
        snapshot_send(http->control, &http->snapshot);
    }
    pthread_mutex_unlock(&http->lock);
    return asked;
}

/* The lock keeps the tables: http_stopping() waits while they are read. */
static enum http_asked finish_answer(struct http *http, bool with_tables)
{
    enum http_asked asked;

    pthread_mutex_lock(&http->lock);
    asked = state_asked(http);
    if (asked == HTTP_ANSWERED && (atomic_load(&http->is_asked) || !http->is_filled))
        asked = HTTP_UNANSWERED;
    if (asked == HTTP_ANSWERED && with_tables && http->top &&
        read_tables(http->top, http->tables) != EMBTIER_OK)
        asked = HTTP_NO_MEMORY;
    pthread_mutex_unlock(&http->lock);
    return asked;
}

enum http_asked http_ask(struct http *http, bool with_tables)
{
    struct timespec until;
    enum http_asked asked;

    while (sem_trywait(&http->changed) == 0) /* posts that no request waited for */
        ;
    asked = send_snapshot(http);
    if (asked != HTTP_ANSWERED)
        return asked;
    /* A thread that hangs is waited for once, not by each reader in turn. */
    until = clock_moment(http->asked_ns + ANSWER_NS);
    while (atomic_load(&http->is_asked) && !atomic_load(&http->is_stopping))
        if (sem_clockwait(&http->changed, CLOCK_MONOTONIC, &until) != 0 && errno == ETIMEDOUT)
            break;
    return finish_answer(http, with_tables);
}

/* ---- Life ---- */

static enum embtier_err make_parts(struct http *http, struct err_msg *msg)
{
    const struct config *const config = http->config;

    http->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->wake_fd < 0)
        return err_set_errno(msg, errno, "cannot make event descriptors");
    http->peers = calloc(config->http.max_connections, sizeof(*http->peers));
    if (!http->peers)
        return err_set(msg, EMBTIER_NO_MEMORY, "HTTP: out of memory");
    for (uint32_t i = 0; i < config->http.max_connections; i++)
        http->peers[i].fd = -1;
    if (config->http.tables > 0 && table_top_new(config->http.tables, &http->top) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "HTTP: out of memory");
    return EMBTIER_OK;
}

static enum embtier_err listen_at(struct http *http, struct err_msg *msg)
{
    const struct config *const config = http->config;
    struct err_msg why = { { 0 } };

    if (listener_open(&config->http.address, 0, config->http.insecure, &http->listener, &why) !=
        EMBTIER_OK)
        return mistake(config, &why, msg);
    log_info("listening", "address=%s", LOG_QUOTED(http->listener.text));
    if (config->http.insecure)
        log_warn("http.insecure: every host that reaches this address may read figures and names "
                 "of tables, and nothing is encrypted",
                 "address=%s", LOG_QUOTED(http->listener.text));
    return EMBTIER_OK;
}

enum embtier_err http_new(const struct config *config, struct http **ret_http, struct err_msg *msg)
{
    _cleanup_(http_freep) struct http *http = NULL;

    *ret_http = NULL;
    if (!config->http.listen)
        return EMBTIER_OK;
    http = calloc(1, sizeof(*http));
    if (!http)
        return err_set(msg, EMBTIER_NO_MEMORY, "HTTP: out of memory");
    http->config = config;
    http->wake_fd = http->listener.fd = -1;
    http->snapshot.done = take_answer;
    pthread_mutex_init(&http->lock, NULL);
    sem_init(&http->changed, 0, 0);
    TRY(make_parts(http, msg));
    TRY(listen_at(http, msg));
    TRY(http_loop_start(http, msg));
    *ret_http = TAKE(http);
    return EMBTIER_OK;
}

void http_serving(struct http *http, struct control *control, struct tables *tables)
{
    if (!http)
        return;
    pthread_mutex_lock(&http->lock);
    http->state = HTTP_SERVING;
    http->control = control;
    http->tables = tables;
    pthread_mutex_unlock(&http->lock);
}

void http_stopping(struct http *http)
{
    if (!http)
        return;
    pthread_mutex_lock(&http->lock);
    http->state = HTTP_STOPPING;
    http->control = NULL;
    http->tables = NULL;
    pthread_mutex_unlock(&http->lock);
    atomic_store(&http->is_stopping, true);
    (void)sem_post(&http->changed);
}

void http_free(struct http *http)
{
    if (!http)
        return;
    http_loop_end(http);
    listener_close(&http->listener);
    closep(&http->wake_fd);
    table_top_free(http->top);
    free(http->peers);
    sem_destroy(&http->changed);
    pthread_mutex_destroy(&http->lock);
    free(http);
}
