/* SPDX-License-Identifier: Apache-2.0 */
/* control_impl.h: the inside of the control thread, shared by control.c (loop, messages),
 * control_listen.c, control_clients.c, control_traffic.c, control_requests.c (what each request
 * does), control_submit.c (those that are jobs), control_sessions.c (hello), control_lists.c,
 * control_jobs.c and control_transfers.c (scans and loads). */
#ifndef EMBTIER_DAEMON_CONTROL_CONTROL_IMPL_H
#define EMBTIER_DAEMON_CONTROL_CONTROL_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "config/config_descriptors.h"
#include "daemon/control/control.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/jobs/answer.h"
#include "proto/control.pb-c.h"

/* So many tables can be imported at a time, by one thread, if there is memory for that
 * (transfer_memory.h). Of one user no more than half of them. */
#define CONTROL_LOADS_MAX 8
/* The same of tables that are read: as many as there are descriptors for. */
static inline uint32_t control_scans_most(const struct config *config)
{
    return config->descriptors.scans > 0 ? config->descriptors.scans : CONFIG_SCANS_MAX;
}

struct connection;
struct job;
struct session;
struct session_maker;
struct session_order;
struct shm_channel;
struct worker;

struct control {
    const struct server_parts *parts;
    struct worker *worker;
    struct session_maker *maker;
    void (*send)(void *control, struct message *message); /* any thread */
    struct inbox inbox;
    char *config_file; /* absolute, for messages of clients; "": none */
    int epoll_fd;
    int listen_fd;
    bool has_socket_file; /* made by us, … */
    dev_t socket_device;  /* … this one: the path may be another server's by now */
    ino_t socket_inode;
    int mail_fd;
    char signal_mark; /* its address marks the signal's event */
    bool listen_paused;
    bool stop_wanted;
    bool stopping;
    bool has_ended;      /* the process of some connection */
    bool told_unwatched; /* that processes cannot be watched, logged once */
    bool sweep;          /* some connection is closed and may be freed */
    struct connection *connections;
    struct connection *ready; /* those with a request received and not yet looked at */
    uint32_t connection_count;
    uint32_t
        releasing_count; /* sessions whose memory is being freed: they have descriptors still */
    uint64_t last_number;
    uint32_t warnings;      /* about clients, since the last tick */
    uint32_t warnings_kept; /* of them, not logged */
};

/* ---- control_listen.c ---- */

/* Listens on the configured socket. */
MUST_CHECK enum embtier_err control_listen(struct control *control, struct err_msg *msg);
/* A path that is another server's by now stays. */
void control_stop_listening(struct control *control);
void control_listen_again(struct control *control); /* if it paused, as there was no room */
void control_on_listen_event(struct control *control);

/* ---- control_clients.c ---- */

void control_link(struct control *control, struct connection *connection);
/* Frees the closed connections that neither a session nor a job needs any more. Only between rounds
 * of the loop: until then anybody may still hold a pointer to one, and sees that it is closed. */
void control_sweep(struct control *control);
/* Drops the client, or notes that it has gone. */
void control_close(struct control *control, struct connection *connection, enum embtier_err err,
                   const char *why);
/* What a closed connection has is given back. */
void control_let_go(struct control *control, struct connection *connection);
/* A client that was dropped hung up too, or the server stops. */
void control_end_lending(struct control *control, struct connection *connection);
/* What was sent with descriptors is received, or gone. */
void control_end_unread(struct control *control, struct connection *connection);
/* A child that the client forked keeps the socket open; what the client had is let go all the same.
 */
void control_watch_process(struct control *control, struct connection *connection);
/* Events of processes have an odd address in place of the connection's. */
bool control_is_process_mark(const void *who);
struct connection *control_process_owner(void *mark);
/* Drops the clients whose processes have ended. What they sent before has been received by now, and
 * is served first. */
void control_close_ended(struct control *control);
/* Whether a line about a client may be logged: clients are not to fill the log. */
bool control_may_warn(struct control *control);
void control_tell_warnings(struct control *control);

/* ---- control_traffic.c ---- */

/* Each answers, or drops the client if it cannot: false then. */
bool control_reply(struct control *control, struct connection *connection,
                   const Embtier__Reply *message);
bool control_reply_fds(struct control *control, struct connection *connection,
                       const Embtier__Reply *message, const int *fds, uint32_t fd_count);
bool control_reply_error(struct control *control, struct connection *connection, uint32_t id,
                         enum embtier_err err, const struct err_msg *msg);
/* After a change of what the connection has to send or may receive. */
void control_watch(struct control *control, struct connection *connection);
/* It has a request at hand. */
void control_add_ready(struct control *control, struct connection *connection);
/* One request of each that has some: a client that sends many at a time gets no more than one that
 * sends one. */
void control_serve_ready(struct control *control);
void control_on_client_event(struct control *control, struct connection *connection,
                             uint32_t events);

/* ---- control_requests.c ---- */

void control_handle(struct control *control, struct connection *connection,
                    const Embtier__Request *request);

/* ---- control_submit.c ---- */

/* A client as jobs know it (answer.h). */
struct control_client {
    struct job_client client;
    struct control *control;
    struct connection *connection;
};
struct control_client control_client(struct control *control, struct connection *connection,
                                     uint32_t id);
/* Makes a job of @request and submits it. False: requests of its kind are none. */
bool control_request_job(struct control *control, struct connection *connection,
                         const Embtier__Request *request);
/* @connection is NULL for one of the server's own. */
void control_submit_job(struct control *control, struct connection *connection, uint32_t id,
                        struct job *job);
/* How far the connection's job is, whether there is news or not. */
void control_tell_progress(struct control *control, struct connection *connection);
void control_job_progress(struct control *control, struct job *job);
/* Has the server make a checkpoint of its own. */
void control_checkpoint(struct control *control);
/* Answers and frees the job; its connection has none afterwards. */
void control_job_done(struct control *control, struct job *job);

/* ---- control_sessions.c ---- */

void control_handle_hello(struct control *control, struct connection *connection, uint32_t id,
                          const Embtier__Hello *hello);
/* That the connection's session is still being made. */
void control_tell_making(struct control *control, struct connection *connection);
/* Answers the hello, and frees the order. */
void control_session_made(struct control *control, struct session_order *order);
/* Has its memory freed, when no job uses it. */
void control_session_gone(struct control *control, struct session *session);
void control_channel_freed(struct control *control, struct shm_channel *channel);

/* ---- control_lists.c ---- */

/* As many as a page has of which a client wants @most; 0: it does not say. */
uint32_t control_page(uint32_t most);
/* page_new(). NULL: an error was answered. */
void **control_new_page(struct control *control, struct connection *connection, uint32_t id,
                        const struct page *page);
void control_handle_table_list(struct control *control, struct connection *connection, uint32_t id,
                               const Embtier__TableList *wire);
void control_handle_accounts(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__AccountList *wire);
/* ---- control_jobs.c ---- */

/* JobList, JobCancel. */
void control_handle_jobs(struct control *control, struct connection *connection,
                         const Embtier__Request *request);

/* ---- control_transfers.c ---- */

void control_handle_transfer(struct control *control, struct connection *connection,
                             const Embtier__Request *request);
/* Frees it, or keeps it for what was to be ended by it and was not. */
void control_job_over(struct connection *connection, struct job *job);
/* The connection has its scan and its load back, if there are any. */
void control_transfer_done(struct connection *connection, struct job *job);
/* Ends those whose client has said nothing for too long. */
void control_expire_transfers(struct control *control, struct connection *connection,
                              uint64_t now_ns);
/* Has them freed; what was not published is gone. */
void control_close_transfers(struct control *control, struct connection *connection);
/* The same of those that were cancelled, unless a job has them. */
void control_close_cancelled(struct control *control, struct connection *connection);

#endif
