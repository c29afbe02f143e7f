/* SPDX-License-Identifier: Apache-2.0 */
/* control_impl.h: private state of the control thread. These share it: control.c (loop, messages),
 * control_listen.c, control_clients.c, control_traffic.c, control_access.c, control_requests.c
 * (handling of requests), control_submit.c (requests that are jobs), control_sessions.c (hello),
 * control_replace.c (a client that comes back), control_joins.c (further connections of a session),
 * control_lists.c, control_session_list.c, control_jobs.c, control_plan.c and control_transfers.c
 * (scans and loads). */
#ifndef EMBTIER_DAEMON_CONTROL_CONTROL_IMPL_H
#define EMBTIER_DAEMON_CONTROL_CONTROL_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "config/config_descriptors.h"
#include "daemon/control/control.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/sessions/latencies.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/plan/plan_record.h"
#include "daemon/transport/listen/listener.h"
#include "proto/control.pb-c.h"

/* Most tables that are imported at a time, if there is memory for that (transfer_memory.h). One
 * user has at most three quarters of what others leave. */
#define CONTROL_LOADS_MAX 8
/* Most tables that are exported at a time: as many as there are descriptors for. */
static inline uint32_t control_scans_most(const struct config *config)
{
    return config->descriptors.scans > 0 ? config->descriptors.scans : CONFIG_SCANS_MAX;
}

struct connection;
struct job;
struct session;
struct session_maker;
struct session_order;
struct table_info;
struct transport_channel;
struct transport_peer;
struct worker;

struct control {
    const struct server_parts *parts;
    struct job_parts job_parts; /* those of them that jobs work on */
    struct worker *worker;
    struct session_maker *maker;
    void (*send)(void *control, struct message *message); /* any thread */
    struct inbox inbox;
    char *config_file; /* absolute, for clients' messages; "": none */
    int epoll_fd;
    struct listener listener;
    int mail_fd;
    char signal_mark; /* its address marks the signal's event */
    bool listen_paused;
    bool stop_wanted;
    bool stopping;
    bool has_ended;      /* some connection's process has ended */
    bool told_unwatched; /* logged, once, that processes cannot be watched */
    bool sweep;          /* some connection is closed and may be freed */
    struct connection *connections;
    struct connection *ready; /* those with something received and not yet looked at */
    /* Channels of sessions that have ended, until their memory is freed: they have descriptors. */
    struct transport_channel *released;
    uint32_t released_count;
    uint64_t last_number;
    uint64_t reader_waits;       /* of all lanes, at the last tick (struct lane_pulse) */
    uint64_t access_taken;       /* reloads after which clients were looked at */
    uint32_t warnings;           /* about clients, since the last tick */
    uint32_t warnings_kept;      /* those not logged */
    struct connection *applying; /* the one that applies a plan; NULL: none does */
    struct plan_state plan;      /* that it applies */
    struct job *plan_job;        /* puts it in force; NULL: not yet */
    uint32_t reloads;            /* of signals, under way or waiting */
    uint64_t watchdog_ns;        /* of the service manager; 0: none */
    uint64_t alive_told_ns;
};

/* ---- control_listen.c ---- */

/* Listens on the configured socket, or takes it from the service manager. */
MUST_CHECK enum embtier_err control_listen(struct control *control, struct err_msg *msg);
/* Leaves the file if it is another server's by now. */
void control_stop_listening(struct control *control);
void control_listen_again(struct control *control); /* if it paused for lack of room */
void control_on_listen_event(struct control *control);
/* Returns how many sessions there are, with those whose memory is being freed. Strangers are none.
 */
uint64_t control_sessions(const struct control *control);
/* BUSY: there are as many as may be. */
MUST_CHECK enum embtier_err control_check_sessions(const struct control *control,
                                                   struct err_msg *msg);
/* A transport's thread has accepted a client. */
void control_peer_arrived(struct control *control, struct transport_peer *peer);

/* ---- control_clients.c ---- */

void control_link(struct control *control, struct connection *connection);
/* Frees the closed connections that no session or job needs any more. Call only between rounds of
 * the loop: within one, code may still hold a pointer to a connection and see that it is closed. */
void control_sweep(struct control *control);
/* Drops the client, or notes that it has gone. */
void control_close(struct control *control, struct connection *connection, enum embtier_err err,
                   const char *why);
/* The client has another connection now. Ends this one, if it is open, and begins nothing more of
 * it. A client may still read its arena until it closes the socket. */
void control_close_left(struct control *control, struct connection *connection);
/* Gives back all that a closed connection has. */
void control_let_go(struct control *control, struct connection *connection);
/* Ends the lending of an arena: the dropped client has hung up too, or the server stops. */
void control_end_lending(struct control *control, struct connection *connection);
/* Closes a socket that was kept until the client received its descriptors, or until
 * they are gone. */
void control_end_unread(struct control *control, struct connection *connection);
/* Watches the client's process. When that ends, the client loses all that it had, even if a child
 * that it forked keeps the socket open. */
void control_watch_process(struct control *control, struct connection *connection);
/* True if @tag is an event of a process: these have an odd address in place of the connection's. */
bool control_is_process_mark(const void *tag);
struct connection *control_process_owner(void *mark);
/* Drops clients whose processes have ended. Requests that they sent before are served first; all
 * have been received by now. */
void control_close_ended(struct control *control);
/* True if a line about a client may be logged: clients must not fill the log. */
bool control_may_warn(struct control *control);
void control_tell_warnings(struct control *control);

/* ---- control_traffic.c ---- */

/* Each sends an answer. False: it could not, and the client was dropped. */
bool control_reply(struct control *control, struct connection *connection,
                   const Embtier__Reply *message);
bool control_reply_fds(struct control *control, struct connection *connection,
                       const Embtier__Reply *message, const int *fds, uint32_t fd_count);
bool control_reply_error(struct control *control, struct connection *connection, uint32_t id,
                         enum embtier_err err, const struct err_msg *msg);
/* Call after any change of pending replies, or of whether a request may be handled. */
void control_watch(struct control *control, struct connection *connection);
/* Notes that the connection may have a request at hand. */
void control_add_ready(struct control *control, struct connection *connection);
/* Handles one request of each connection that has some: a client that sends many at a time gets no
 * more than one that sends one. */
void control_serve_ready(struct control *control);
void control_on_client_event(struct control *control, struct connection *connection,
                             uint32_t events);

/* ---- control_access.c ---- */

/* Finds out which user says hello, and counts the connection in that user's account. PERMISSION:
 * none; BUSY; NO_MEMORY. */
MUST_CHECK enum embtier_err control_identify(struct control *control, struct connection *connection,
                                             const Embtier__Hello *hello, struct err_msg *msg);
/* Has accounts follow the quotas of the file in force. */
void control_limit_members(struct control *control);
/* After a reload: ends the clients, all but @spared (may be NULL), whose credential does not lead
 * to their user any more. */
void control_end_revoked(struct control *control, const struct connection *spared);
/* The connection ends. */
void control_leave(struct control *control, struct connection *connection);
/* PERMISSION: the client may not do that operation as a whole. */
MUST_CHECK enum embtier_err control_check_role(struct control *control,
                                               const struct connection *connection,
                                               const Embtier__Request *request,
                                               struct err_msg *msg);
/* False: it may not, and was told. */
bool control_may(struct control *control, struct connection *connection,
                 const Embtier__Request *request);
/* True if the client may also end what others have begun. */
bool control_may_all(struct control *control, const struct connection *connection);
/* True if lists show what others have. */
bool control_sees_all(struct control *control, const struct connection *connection);
/* Leaves out the tables that the client may not know of. Returns how many are left. */
uint32_t control_granted_tables(struct control *control, const struct connection *connection,
                                struct table_info *infos, uint32_t count);
/* Logs that lanes have refused requests. */
void control_tell_refusals(struct control *control);

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
/* Makes a job from @request and submits it. False: requests of its kind are not jobs. */
bool control_request_job(struct control *control, struct connection *connection,
                         const Embtier__Request *request);
/* @connection is NULL for the server's own job. */
void control_submit_job(struct control *control, struct connection *connection, uint32_t id,
                        struct job *job);
/* Tells the client how far its job is, whether there is news or not. */
void control_tell_progress(struct control *control, struct connection *connection);
void control_job_progress(struct control *control, struct job *job);
/* Submits a job that makes one of the server's own checkpoints. */
void control_checkpoint(struct control *control);
/* Goes on with a job that moved buckets when the server stopped. */
void control_reshard(struct control *control);
/* Answers the client and frees the job; the connection has none afterwards. */
void control_job_done(struct control *control, struct job *job);

/* ---- control_sessions.c ---- */

void control_handle_hello(struct control *control, struct connection *connection, uint32_t id,
                          const Embtier__Hello *hello);
/* Tells the client that the answer to its hello @id will take longer. */
void control_tell_making(struct control *control, struct connection *connection, uint32_t id);
/* Messages to the control thread. control.c */
extern const struct message_kind message_session_made, message_session_gone, message_session_broken;
extern const struct message_kind message_channel_freed, message_job_progress, message_job_done;

/* Answers the hello, and frees the order. */
void control_session_made(struct control *control, struct session_order *order);
/* Has the session's memory freed, once no job and no dropped client uses it. */
void control_session_gone(struct control *control, struct session *session);
void control_channel_freed(struct control *control, struct transport_channel *channel);

/* ---- control_replace.c ---- */

/* Returns the connection with this session, or NULL. Its client is the one that knows the key. */
struct connection *control_find_session(struct control *control, const Embtier__SessionKey *key);
/* Ends the session that a hello names as its client's old one. True: lanes still have requests of
 * it, or its user's room is not given back, so @request is to be looked at again after
 * control_end_waits(). */
bool control_must_wait(struct control *control, struct connection *connection,
                       const Embtier__Request *request);
/* Lanes have nothing of the session of connection @number any more. Its memory and its place have
 * been given back, or are its client's for a while. */
void control_end_waits(struct control *control, uint64_t number);

/* ---- control_joins.c ---- */

/* Most connections of a session. */
#define CONTROL_CONNECTIONS_MAX 16
/* Makes the connection a further one of the session that the hello names. PERMISSION: that is no
 * session of this client. BUSY: it has as many as it may. */
MUST_CHECK enum embtier_err control_join(struct control *control, struct connection *connection,
                                         const Embtier__SessionKey *key, struct err_msg *msg);
/* Ends the other connections of a session as one of them has ended. */
void control_close_joined(struct control *control, struct connection *connection,
                          enum embtier_err err, const char *why);
/* True while the connection must stay because of others of its session. */
static inline bool control_is_joined(const struct connection *connection)
{
    return connection->further > 0 || (connection->first && connection->first->session);
}
/* The connection is freed. */
void control_leave_session(struct connection *connection);

/* ---- control_lists.c ---- */

/* Returns how many items a page has if the client wants @most; 0: it does not say. */
uint32_t control_page(uint32_t most);
/* Fills in the rates of a table, which the tables do not know. */
void control_add_rates(struct control *control, struct table_info *info);
/* Calls page_new(). NULL: an error was answered. */
void **control_new_page(struct control *control, struct connection *connection, uint32_t id,
                        const struct page *page);
void control_handle_table_list(struct control *control, struct connection *connection, uint32_t id,
                               const Embtier__TableList *wire);
void control_handle_accounts(struct control *control, struct connection *connection, uint32_t id,
                             const Embtier__AccountList *wire);
/* ---- control_session_list.c ---- */

/* SessionList, SessionEnd. */
void control_handle_sessions(struct control *control, struct connection *connection,
                             const Embtier__Request *request);
/* Counts the listed sessions of each transport. */
void control_count_transports(const struct control *control, uint32_t ret_counts[TRANSPORT_KINDS]);
struct snapshot_session;
/* Describes up to @most listed sessions, those that moved most rows. Returns how many. */
uint32_t control_take_sessions(const struct control *control, struct snapshot_session *ret_sessions,
                               uint32_t most);
enum transport_kind control_transport_of(const struct connection *connection);

/* ---- control_jobs.c ---- */

/* JobList, JobCancel. */
void control_handle_jobs(struct control *control, struct connection *connection,
                         const Embtier__Request *request);

/* ---- control_compaction.c ---- */

/* CompactionShow, CompactionSet. */
void control_handle_compaction(struct control *control, struct connection *connection,
                               const Embtier__Request *request);

/* ---- control_plan.c ---- */

/* PlanBegin, PlanEnd, PlanShow. */
void control_handle_plan(struct control *control, struct connection *connection,
                         const Embtier__Request *request);
/* Lets another client apply a plan, if this one did and has not ended its plan. */
void control_end_applying(struct control *control, const struct connection *connection);
/* Lets another client apply a plan, if this job has put one in force, or failed to. */
void control_plan_job_done(struct control *control, const struct job *job);

/* ---- control_transfers.c ---- */

void control_handle_transfer(struct control *control, struct connection *connection,
                             const Embtier__Request *request);
/* Frees the job. Keeps it if it was withdrawn before it ended its transfer. */
void control_job_over(struct connection *connection, struct job *job);
/* Gives the connection back the scan or load that the job has, if there is one. */
void control_transfer_done(struct connection *connection, struct job *job);
/* Ends transfers whose client has said nothing for too long. */
void control_expire_transfers(struct control *control, struct connection *connection,
                              uint64_t now_ns);
/* Has the connection's transfers closed; a table that was not published is gone. */
void control_close_transfers(struct control *control, struct connection *connection);
/* Does the same for cancelled transfers, unless a job has them. */
void control_close_cancelled(struct control *control, struct connection *connection);

#endif
