/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc_loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/system/thread_class.h"
#include "daemon/transport/rpc/rpc_stream.h"
#include "daemon/transport/transport.h"

#define TICK_NS (UINT64_C(1000) * 1000 * 1000)

struct rpc_listener {
    struct io_file file;
    struct rpc_loop *loop;
    bool is_tls;
    bool is_paused;  /* the system had no room; it goes on with the next tick */
    bool is_waiting; /* there is no place; it goes on when some streams have ended */
    bool is_closed;
};

struct rpc_loop {
    struct rpc_loop_opts opts;
    struct rpc_host host;
    struct rpc_listener listeners[RPC_LISTENERS_MAX];
    uint64_t ticked_ns, stopped_ns;
    struct message stop_listening_message, stop_message;
    bool is_stopping;
    pthread_t thread;

    /* The owner waits for these. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_started, is_deaf; /* is_deaf: no listener is open any more */
    enum embtier_err start_err;
    struct err_msg start_msg;
};

/* ---- Listening ---- */

static void accept_next(struct rpc_listener *listener);

/* True for the faults of one connection. After others, such as a lack of descriptors, the listener
 * would only fail again. */
static bool is_of_one(int err)
{
    return err == ECONNABORTED || err == EINTR || err == EAGAIN || err == EPROTO;
}

static void pause_accepting(struct rpc_listener *listener, int err)
{
    log_warn("clients cannot be accepted at the moment", "loop=%u why=%s",
             listener->loop->opts.index, LOG_QUOTED(strerror(err)));
    listener->is_paused = true;
}

static void on_accepted(struct io_file *file, int result)
{
    struct rpc_listener *const listener = CONTAINER_OF(file, struct rpc_listener, file);
    struct rpc_loop *const loop = listener->loop;

    if (result >= 0 && file->is_closing) {
        close(result);
    } else if (result >= 0) {
        rpc_stream_new(&loop->host, result, listener->is_tls);
    } else if (!file->is_closing && !is_of_one(-result)) {
        pause_accepting(listener, -result);
        return;
    }
    if (!file->is_closing)
        accept_next(listener);
}

/* Clients that would be too many wait in the system's queue. */
static void accept_next(struct rpc_listener *listener)
{
    listener->is_waiting = !rpc_streams_make_place(&listener->loop->host);
    if (listener->is_waiting)
        return;
    io_accept(listener->loop->host.io, &listener->file, on_accepted);
}

static bool is_deaf(const struct rpc_loop *loop)
{
    for (uint32_t i = 0; i < loop->opts.listener_count; i++)
        if (!loop->listeners[i].is_closed)
            return false;
    return true;
}

static void on_listener_closed(struct io_file *file)
{
    struct rpc_listener *const listener = CONTAINER_OF(file, struct rpc_listener, file);
    struct rpc_loop *const loop = listener->loop;

    listener->is_closed = true;
    pthread_mutex_lock(&loop->lock);
    loop->is_deaf = is_deaf(loop);
    pthread_cond_signal(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

static void stop_listening(struct rpc_loop *loop, struct message *message)
{
    (void)message;
    for (uint32_t i = 0; i < loop->opts.listener_count; i++)
        io_close(loop->host.io, &loop->listeners[i].file, on_listener_closed);
    rpc_streams_shut_out(&loop->host);
}

static void accept_waiting(struct rpc_loop *loop)
{
    for (uint32_t i = 0; i < loop->opts.listener_count; i++)
        if (loop->listeners[i].is_waiting && !loop->listeners[i].file.is_closing)
            accept_next(&loop->listeners[i]);
}

/* ---- The thread ---- */

static void stop(struct rpc_loop *loop, struct message *message)
{
    stop_listening(loop, message);
    loop->is_stopping = true;
    loop->stopped_ns = clock_now_ns(&clock_monotonic);
}

static struct rpc_loop *loop_of(const struct receiver *to)
{
    return CONTAINER_OF(to->rpc_host, struct rpc_loop, host);
}

static void take_stop_listening(const struct receiver *to, struct message *message)
{
    stop_listening(loop_of(to), message);
}

static void take_stop(const struct receiver *to, struct message *message)
{
    stop(loop_of(to), message);
}

static const struct message_kind message_stop_listening = { .take = take_stop_listening };
static const struct message_kind message_stop = { .take = take_stop };

static void take_mail(struct rpc_loop *loop)
{
    struct message *message = inbox_take_all(&loop->host.mailbox.inbox);

    while (message) {
        struct message *const next = message->next;

        message->kind->take(&(struct receiver){ .rpc_host = &loop->host }, message);
        message = next;
    }
}

static void tick(struct rpc_loop *loop)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (clock_since(now_ns, loop->ticked_ns) < TICK_NS)
        return;
    loop->ticked_ns = now_ns;
    for (uint32_t i = 0; i < loop->opts.listener_count; i++) {
        struct rpc_listener *const listener = &loop->listeners[i];

        if (listener->is_paused && !listener->file.is_closing) {
            listener->is_paused = false;
            accept_next(listener);
        }
    }
    rpc_streams_tick(&loop->host, now_ns);
}

static bool is_over(const struct rpc_loop *loop)
{
    return loop->is_stopping && !loop->host.streams && !loop->host.freed && is_deaf(loop);
}

static void tell_start(struct rpc_loop *loop, enum embtier_err err)
{
    pthread_mutex_lock(&loop->lock);
    loop->has_started = true;
    loop->start_err = err;
    pthread_cond_signal(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

static void *loop_main(void *context)
{
    struct rpc_loop *const loop = context;
    struct err_msg refusal;
    const enum embtier_err err = io_new(loop->opts.engine, loop->host.mailbox.wake_fd,
                                        &loop->host.io, &refusal, &loop->start_msg);

    if (err != EMBTIER_OK) {
        tell_start(loop, err);
        return NULL;
    }
    thread_class_answering();
    if (refusal.text[0] != '\0' && loop->opts.index == 0)
        log_warn("io_uring is not available; clients over RPC are served with epoll", "why=%s",
                 LOG_QUOTED(refusal.text));
    for (uint32_t i = 0; i < loop->opts.listener_count; i++) {
        struct rpc_listener *const listener = &loop->listeners[i];

        listener->loop = loop;
        listener->is_tls = loop->opts.listeners[i].is_tls;
        io_open(loop->host.io, &listener->file, loop->opts.listeners[i].fd);
        accept_next(listener);
    }
    tell_start(loop, EMBTIER_OK);
    while (!is_over(loop)) {
        const bool has_more = rpc_streams_free_some(&loop->host);

        mailbox_sleeps(&loop->host.mailbox);
        io_run(loop->host.io, inbox_is_empty(&loop->host.mailbox.inbox) && !has_more ? TICK_NS : 0);
        mailbox_wakes(&loop->host.mailbox);
        take_mail(loop);
        accept_waiting(loop);
        tick(loop);
        if (loop->is_stopping)
            rpc_streams_close(&loop->host, clock_since(clock_now_ns(&clock_monotonic),
                                                       loop->stopped_ns) > RPC_LINGER_NS);
    }
    io_free(TAKE(loop->host.io));
    return NULL;
}

/* ---- Making and freeing ---- */

/* The thread has ended, or there never was one. */
static void destroy(struct rpc_loop *loop)
{
    mailbox_destroy(&loop->host.mailbox);
    pthread_cond_destroy(&loop->changed);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

static enum embtier_err wait_for_start(struct rpc_loop *loop, struct err_msg *msg)
{
    pthread_mutex_lock(&loop->lock);
    while (!loop->has_started)
        pthread_cond_wait(&loop->changed, &loop->lock);
    pthread_mutex_unlock(&loop->lock);
    if (loop->start_err == EMBTIER_OK)
        return EMBTIER_OK;
    pthread_join(loop->thread, NULL);
    return err_set(msg, loop->start_err, "%s", loop->start_msg.text);
}

static enum embtier_err start(struct rpc_loop *loop, struct err_msg *msg)
{
    char name[16];
    int rc;

    TRY(mailbox_init(&loop->host.mailbox, "rpc", loop->opts.index, msg));
    rc = pthread_create(&loop->thread, NULL, loop_main, loop);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start a thread for clients over RPC");
    snprintf(name, sizeof(name), "rpc-%u", loop->opts.index);
    pthread_setname_np(loop->thread, name);
    return wait_for_start(loop, msg);
}

enum embtier_err rpc_loop_new(const struct rpc_loop_opts *opts, struct rpc_loop **ret_loop,
                              struct err_msg *msg)
{
    struct rpc_loop *const loop = aligned_alloc(CACHE_LINE, align_up(sizeof(*loop), CACHE_LINE));
    enum embtier_err err;

    if (!loop)
        return err_set(msg, EMBTIER_NO_MEMORY, "RPC: out of memory");
    memset(loop, 0, sizeof(*loop));
    loop->opts = *opts;
    loop->host.mailbox.wake_fd = -1;
    loop->host.count = opts->count;
    loop->host.most = opts->streams_most;
    rpc_strangers_init(&loop->host.strangers, opts->strangers, opts->strangers_most,
                       opts->loop_count);
    loop->host.certificates = opts->certificates;
    loop->host.handshakes = opts->handshakes;
    loop->host.send = opts->send;
    loop->host.owner = opts->owner;
    loop->stop_listening_message.kind = &message_stop_listening;
    loop->stop_message.kind = &message_stop;
    pthread_mutex_init(&loop->lock, NULL);
    pthread_cond_init(&loop->changed, NULL);
    err = start(loop, msg);
    if (err != EMBTIER_OK) {
        destroy(loop);
        return err;
    }
    *ret_loop = loop;
    return EMBTIER_OK;
}

const struct io_engine *rpc_loop_engine(const struct rpc_loop *loop)
{
    return loop->host.io->engine;
}

void rpc_loop_stop_listening(struct rpc_loop *loop)
{
    mailbox_send(&loop->host.mailbox, &loop->stop_listening_message);
    pthread_mutex_lock(&loop->lock);
    while (!loop->is_deaf)
        pthread_cond_wait(&loop->changed, &loop->lock);
    pthread_mutex_unlock(&loop->lock);
}

void rpc_loop_end(struct rpc_loop *loop)
{
    mailbox_send(&loop->host.mailbox, &loop->stop_message);
    pthread_join(loop->thread, NULL);
}

void rpc_loop_free(struct rpc_loop *loop)
{
    destroy(loop);
}
