/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/text/text_escape.h"
#include "config/config_memory.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/process/notify.h"
#include "daemon/control/process/signals.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/reload/reload_job.h"
#include "daemon/jobs/worker.h"
#include "daemon/transport/session_maker.h"
#include "daemon/transport/transport.h"
#include "store/store.h"

#define EVENTS_MAX 64
#define TICK_MS    1000

/* ---- Mail from lanes and the worker ---- */

void control_send(void *owner, struct message *message)
{
    struct control *const control = owner;
    const uint64_t one = 1;

    inbox_push(&control->inbox, message);
    if (write(control->mail_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_error("control thread cannot be woken", "why=%s", LOG_QUOTED(strerror(errno)));
}

/* ---- Messages ---- */

static void on_session_broken(struct control *control, struct session *session)
{
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->session == session) {
            control_close(control, c, EMBTIER_PROTOCOL, session->broken_why);
            return;
        }
    }
}

/* Goes on with requests that came in the meantime. */
static void go_on(struct control *control, struct connection *connection)
{
    control_add_ready(control, connection);
    control_watch(control, connection);
}

static void on_session_made(struct control *control, struct session_order *order)
{
    struct connection *const connection = order->owner;

    control_session_made(control, order);
    if (connection->fd >= 0)
        go_on(control, connection);
    else
        control->sweep = true;
}

static void on_job_done(struct control *control, struct job *job)
{
    struct connection *const connection = job->owner;

    control_end_revoked(control, connection);
    control_job_done(control, job);
    control_end_revoked(control, NULL);
    if (!connection) /* a job of the server's own */
        return;
    if (connection->fd < 0) {
        control_let_go(control, connection); /* of what the job had */
        if (connection->session_is_gone)
            control_session_gone(control, connection->session);
        control->sweep = true;
    } else {
        control_close_cancelled(control, connection);
        go_on(control, connection);
    }
}

static void drop_job(struct control *control, struct job *job)
{
    (void)control;
    job_free(job);
}

MESSAGE_KIND(message_session_made, on_session_made, control, struct session_order, made_message)
MESSAGE_KIND(message_session_gone, control_session_gone, control, struct session, gone_message)
MESSAGE_KIND(message_session_broken, on_session_broken, control, struct session, broken_message)
MESSAGE_KIND(message_job_progress, control_job_progress, control, struct job, progress_message)
MESSAGE_HANDLER(take_job_done, on_job_done, control, struct job, done_message)
MESSAGE_HANDLER(drop_job_done, drop_job, control, struct job, done_message)
MESSAGE_HANDLER(take_freed, control_channel_freed, control, struct transport_channel, freed_message)

/* No thread takes mail any more. */
static void drop_peer(struct control *control, struct transport_peer *peer)
{
    (void)control;
    close(peer->fd);
    transport_forget(peer);
}

MESSAGE_HANDLER(take_peer, control_peer_arrived, control, struct transport_peer, arrived_message)
MESSAGE_HANDLER(drop_peer_mail, drop_peer, control, struct transport_peer, arrived_message)
const struct message_kind message_peer_arrived = { .take = take_peer, .drop = drop_peer_mail };

/* The server's own jobs, and memory of sessions, may end when no thread takes mail any more. */
const struct message_kind message_job_done = { .take = take_job_done, .drop = drop_job_done };
const struct message_kind message_channel_freed = { .take = take_freed, .drop = take_freed };

static void on_mail(struct control *control)
{
    uint64_t count;
    struct message *message;

    if (read(control->mail_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        log_error("control thread's event descriptor failed", "why=%s",
                  LOG_QUOTED(strerror(errno)));
    message = inbox_take_all(&control->inbox);
    while (message) {
        struct message *const next = message->next;

        message->kind->take(&(struct receiver){ .control = control }, message);
        message = next;
    }
}

static void tell_broken_groups(struct control *control)
{
    struct group_news news;

    groups_take_news(control->parts->groups, &news);
    if (news.count > 0 && control_may_warn(control))
        log_warn("group broken", "group=%s member=%u step=%" PRIu64 " why=%s others=%u",
                 LOG_QUOTED(news.name), news.member, news.step, LOG_QUOTED(err_text(news.why)),
                 news.count - 1);
}

/* Twice in the time that the service manager's watchdog allows. */
static void tell_alive(struct control *control, uint64_t now_ns)
{
    if (control->watchdog_ns == 0 ||
        clock_since(now_ns, control->alive_told_ns) < control->watchdog_ns / 2)
        return;
    control->alive_told_ns = now_ns;
    notify_alive();
}

static void on_tick(struct control *control)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    struct lane_pulse all = { 0 };

    tell_alive(control, now_ns);
    for (uint32_t i = 0; i < control->parts->lane_count; i++) {
        struct lane_pulse one;

        lane_pulse(control->parts->lanes[i], &one);
        all.reader_waits += one.reader_waits;
        all.unwritten_rows += one.unwritten_rows;
        all.unwritten_bytes += one.unwritten_bytes;
    }
    store_set_busy(control->parts->store, all.reader_waits != control->reader_waits);
    control->reader_waits = all.reader_waits;
    store_report_unwritten(control->parts->store, all.unwritten_rows, all.unwritten_bytes);
    if (!control->stopping && checkpoints_due(control->parts->checkpoints, now_ns))
        control_checkpoint(control);
    groups_expire(control->parts->groups);
    tell_broken_groups(control);
    control_limit_members(control);
    control_tell_refusals(control);
    control_tell_warnings(control);
    control_listen_again(control);
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->unread_fd >= 0 && !connection_may_have_fds(c, c->unread_fd))
            control_end_unread(control, c);
        if (c->fd >= 0 && !c->said_hello && !c->making && c->awaited == 0 &&
            clock_since(now_ns, c->since_ns) > CONNECTION_HELLO_NS)
            control_close(control, c, EMBTIER_TIMEOUT, "it did not say hello");
        else if (c->fd >= 0 && connection_has_unsent(c) &&
                 clock_since(now_ns, c->sent_ns) > CONNECTION_UNREAD_NS)
            control_close(control, c, EMBTIER_TIMEOUT, "the client does not read its replies");
        else if (c->job) /* it may wait behind others: the client must not give up */
            control_tell_progress(control, c);
        else if (c->making)
            control_tell_making(control, c, c->making->request_id);
        else if (c->awaited > 0)
            control_tell_making(control, c, c->awaiting_id);
        else
            control_expire_transfers(control, c, now_ns);
    }
}

/* ---- The loop ---- */

static void begin_stop(struct control *control)
{
    control->stopping = true;
    control_stop_listening(control);
    tables_stop(control->parts->tables);
    checkpoints_stop(control->parts->checkpoints);
    groups_stop(control->parts->groups);
    for (struct connection *c = control->connections; c; c = c->next) {
        control_close(control, c, EMBTIER_SHUTDOWN, "");
        if (c->unread_fd >= 0)
            control_end_unread(control, c);
        if (c->lent_fd < 0)
            continue;
        c->closed_why = EMBTIER_SHUTDOWN;
        control_end_lending(control, c);
    }
}

/* Has the files reloaded that can change. */
static void begin_reload(struct control *control)
{
    struct job *const job = reload_job_own();

    if (!job) {
        log_error("not reloaded: out of memory; send the signal again", "signal=SIGHUP");
        return;
    }
    notify_reloading();
    control->reloads++;
    control_submit_job(control, NULL, 0, job);
}

/* Stops watching signals: the next one is for server_stop(). */
static bool take_stop(struct control *control, int signal_fd)
{
    bool reloads = false;

    if (control->stop_wanted)
        return false;
    if (!signals_take_stop(signal_fd, SIGNAL_STOPS, &reloads)) {
        if (reloads)
            begin_reload(control);
        return false;
    }
    epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, signal_fd, NULL);
    return true;
}

enum embtier_err control_run(struct control *control, int signal_fd, struct err_msg *msg)
{
    struct epoll_event events[EVENTS_MAX];
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &control->signal_mark };
    uint64_t ticked_ns = clock_now_ns(&clock_monotonic);

    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, signal_fd, &event) != 0)
        return err_set_errno(msg, errno, "signals cannot be watched");
    if (control->parts->moves_buckets)
        control_reshard(control);
    while (!control->stopping || control->connections) {
        const int count =
            epoll_wait(control->epoll_fd, events, EVENTS_MAX, control->ready ? 0 : TICK_MS);
        bool mail = false;

        for (int i = 0; i < count; i++) {
            void *const tag = events[i].data.ptr;

            if (tag == &control->listener)
                control_on_listen_event(control);
            else if (tag == &control->mail_fd)
                mail = true;
            else if (tag == &control->signal_mark)
                control->stop_wanted |= take_stop(control, signal_fd);
            else if (control_is_process_mark(tag))
                control_process_owner(tag)->process_ended = control->has_ended = true;
            else
                control_on_client_event(control, tag, events[i].events);
        }
        control_serve_ready(control);
        if (control->has_ended)
            control_close_ended(control);
        /* Mail may free sessions, so it is read when no event of this round is left. */
        if (mail)
            on_mail(control);
        if (control->stop_wanted && !control->stopping)
            begin_stop(control);
        if (clock_now_ns(&clock_monotonic) - ticked_ns > TICK_MS * UINT64_C(1000000)) {
            ticked_ns = clock_now_ns(&clock_monotonic);
            on_tick(control);
        }
        if (control->sweep)
            control_sweep(control);
    }
    return EMBTIER_OK;
}

/* ---- Making and ending ---- */

/* Limits the rows that this thread changes. */
static void limit_accounts(const struct server_parts *parts)
{
    const struct config *const config = parts->config;

    accounts_limit(parts->accounts, ACCOUNT_SESSIONS, config->socket.max_sessions,
                   config->socket.max_user_sessions);
    accounts_limit(parts->accounts, ACCOUNT_ARENA_BYTES, config->socket.max_total_arena_bytes,
                   config->socket.max_user_arena_bytes);
    accounts_limit(parts->accounts, ACCOUNT_ANSWER_BYTES, ANSWER_BYTES, 0);
    accounts_limit(parts->accounts, ACCOUNT_SCANS, control_scans_most(config), 0);
    accounts_limit(parts->accounts, ACCOUNT_LOADS, CONTROL_LOADS_MAX, 0);
}

/* Returns the configuration file's name as clients are told it, malloced; "": there is none, or it
 * cannot be told. NULL: out of memory. */
static char *config_file_of(const struct config *config)
{
    _cleanup_(freep) char *path = config->source ? realpath(config->source, NULL) : NULL;
    const bool can_be =
        path && strlen(path) <= CONFIG_FILE_BYTES_MAX && text_is_plain(path, strlen(path));

    return strdup(can_be ? path : "");
}

enum embtier_err control_new(const struct server_parts *parts, struct control **ret_control,
                             struct err_msg *msg)
{
    _cleanup_(control_freep) struct control *control = calloc(1, sizeof(*control));
    struct epoll_event event = { .events = EPOLLIN };

    if (!control)
        return err_set(msg, EMBTIER_NO_MEMORY, "control: out of memory");
    control->listener.fd = -1;
    control->parts = parts;
    control->send = control_send;
    control->watchdog_ns = notify_watchdog_ns();
    control->config_file = config_file_of(parts->config);
    if (!control->config_file)
        return err_set(msg, EMBTIER_NO_MEMORY, "control: out of memory");
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    control->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->epoll_fd < 0 || control->mail_fd < 0)
        return err_set_errno(msg, errno, "cannot make event descriptors");
    limit_accounts(parts);
    control->job_parts = (struct job_parts){ .tables = parts->tables,
                                             .checkpoints = parts->checkpoints,
                                             .profiles = parts->profiles,
                                             .access = parts->access,
                                             .reloads = parts->reloads,
                                             .store = parts->store,
                                             .knobs = parts->knobs };
    TRY(worker_new(&control->job_parts, control_send, control, &control->worker, msg));
    TRY(session_maker_new(control_send, control, &control->maker, msg));
    TRY(control_listen(control, msg));
    event.data.ptr = &control->mail_fd;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->mail_fd, &event) != 0)
        return err_set_errno(msg, errno, "cannot watch descriptors (epoll)");
    event.data.ptr = &control->listener;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listener.fd, &event) != 0)
        return err_set_errno(msg, errno, "cannot watch descriptors (epoll)");
    *ret_control = TAKE(control);
    return EMBTIER_OK;
}

/* Frees mail that came when no thread took it any more. */
static void free_rest(struct control *control)
{
    struct message *message = inbox_take_all(&control->inbox);

    while (message) {
        struct message *const next = message->next;

        if (message->kind->drop)
            message->kind->drop(&(struct receiver){ .control = control }, message);
        message = next;
    }
}

void control_end_jobs(struct control *control)
{
    if (!control)
        return;
    worker_free(TAKE(control->worker));
    session_maker_free(TAKE(control->maker));
    free_rest(control);
}

void control_free(struct control *control)
{
    if (!control)
        return;
    control_end_jobs(control);
    control_stop_listening(control);
    closep(&control->mail_fd);
    closep(&control->epoll_fd);
    free(control->config_file);
    free(control);
}
