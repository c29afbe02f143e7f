/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
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
/* Tables that are read at a time, under their lock. */
#define TABLES_PAGE 256

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

/* Control thread, or the one that ends it. */
static void take_answer(struct snapshot *snapshot, bool is_filled)
{
    struct http *const http = CONTAINER_OF(snapshot, struct http, snapshot);

    pthread_mutex_lock(&http->lock);
    http->is_asked = false;
    http->is_filled = is_filled;
    pthread_cond_signal(&http->changed);
    pthread_mutex_unlock(&http->lock);
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

/* The lock is held while tables are read, so http_stopping() waits for that. It is not held by the
 * control thread meanwhile, which has no snapshot then. */
static enum http_asked ask_locked(struct http *http, bool with_tables)
{
    const struct timespec until = clock_until(ANSWER_NS);

    if (http->state == HTTP_STARTING)
        return HTTP_IS_STARTING;
    /* The control thread may still have the snapshot of an earlier request. */
    if (http->state == HTTP_SERVING && !http->is_asked) {
        http->is_asked = true;
        http->is_filled = false;
        snapshot_send(http->control, &http->snapshot);
    }
    while (http->is_asked && http->state == HTTP_SERVING)
        if (pthread_cond_timedwait(&http->changed, &http->lock, &until) == ETIMEDOUT)
            break;
    if (http->state != HTTP_SERVING)
        return HTTP_IS_STOPPING;
    if (http->is_asked || !http->is_filled)
        return HTTP_UNANSWERED;
    if (with_tables && http->top && read_tables(http->top, http->tables) != EMBTIER_OK)
        return HTTP_UNANSWERED;
    return HTTP_ANSWERED;
}

enum http_asked http_ask(struct http *http, bool with_tables)
{
    enum http_asked asked;

    pthread_mutex_lock(&http->lock);
    asked = ask_locked(http, with_tables);
    pthread_mutex_unlock(&http->lock);
    return asked;
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
    clock_init_cond(&http->changed);
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
    pthread_cond_signal(&http->changed);
    pthread_mutex_unlock(&http->lock);
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
    pthread_cond_destroy(&http->changed);
    pthread_mutex_destroy(&http->lock);
    free(http);
}
