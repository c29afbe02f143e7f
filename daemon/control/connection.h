/* SPDX-License-Identifier: Apache-2.0 */
/* connection.h: one client's socket: takes frames in and sends replies out, and never waits.
 *
 * While a reply is unread no further request is read, so that little more than one reply is kept.
 * Kept replies, and the received part of a long request, count in the user's account
 * (ACCOUNT_ANSWER_BYTES). A client is dropped if its user has as much as it may, or if it reads
 * nothing for a while. The system keeps little on the way to the client (CONNECTION_SOCKET_BYTES).
 * Thread: the control thread. */
#ifndef EMBTIER_DAEMON_CONTROL_CONNECTION_H
#define EMBTIER_DAEMON_CONTROL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/access/access_rules.h"
#include "daemon/engine/sessions/session_secret.h"
#include "daemon/transport/listen/peer_origin.h"
#include "proto/frame.h"

struct account;
struct accounts;
struct job;
struct load;
struct scan;
struct session;
struct session_order;
struct transport;
struct transport_channel;
struct transport_peer;
struct Embtier__Reply;

/* Room for the largest reply and the Progress in front of it. */
#define CONNECTION_UNSENT_MAX (2 * FRAME_BYTES_MAX)
/* How much of a reply the system takes and keeps; it makes about twice as much of this number. */
#define CONNECTION_SOCKET_BYTES (16 << 10)
/* A client that has something to read must read some of it within this time. */
#define CONNECTION_UNREAD_NS (UINT64_C(10) * 1000 * 1000 * 1000)
/* A client must say hello within this time. */
#define CONNECTION_HELLO_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* A scan or load as the list of jobs shows it, from its first job on. */
struct transfer {
    uint64_t job_id;
    const char *word; /* of its first job: a constant */
    uint64_t since_ns;
    uint64_t rows;          /* rows that will come; 0: not known */
    enum embtier_err ended; /* TIMEOUT: the client said nothing for too long; CANCELLED */
};

/* The name that a client gives itself, as lists show it. */
#define CONNECTION_CLIENT_BYTES 40

struct connection {
    struct connection *next;
    struct connection **link; /* points to the `next` of the one before, or to the list's head */
    int fd;                   /* -1: closed, waiting for session and job to let go */
    int lent_fd;   /* the socket of a dropped client that may still read its arena. It is lent until
                      the client closes its end or its process ends; else -1 */
    int unread_fd; /* the socket of a client that hung up in half, and has not received all that was
                      sent with its session's descriptors. It counts as a session until it has, or
                      closes; else -1 */
    bool sent_fds;
    uint64_t number;
    int process_fd; /* readable once the process that connected has ended, even if others have the
                       socket; -1: cannot be watched */
    bool process_ended;
    pid_t peer_pid;
    uid_t peer_uid;
    gid_t *peer_gids; /* until it has said hello */
    uint32_t peer_gid_count;
    /* The user of the access file that it is, from its hello on. NULL: it may do all. */
    struct access_member *member;
    struct access_credential credential; /* for which it is that member */
    uint64_t user; /* the number of its account: its uid, or its member's from the hello on */
    struct account *account; /* of that user; NULL: it is a stranger's */
    bool counts_session;     /* in the account */
    bool counts_scan;        /* a scan counts, from the moment it is asked for */
    bool counts_load;        /* a load, likewise */
    uint64_t since_ns;
    bool said_hello;
    char client[CONNECTION_CLIENT_BYTES]; /* what it calls itself, cut short; from the hello on */
    struct connection *first;     /* it is a further connection of this one's session; else NULL */
    uint32_t further;             /* such connections, of which this one is the first */
    struct session_secret secret; /* from the hello on */
    uint64_t awaited;     /* the number of the connection whose end its hello waits for; 0: none */
    uint32_t awaiting_id; /* of that hello */
    bool knows_pages;     /* of lists; older clients would take the first page for the whole list */
    uint32_t watched;     /* the events that epoll was asked for */
    bool is_ready;        /* it is in the list of connections with a request at hand */
    struct connection *next_ready;
    struct session_order *making; /* its session; no request is read before that is made */
    struct session *session;
    const struct transport *transport; /* its session's channel is one of these */
    struct transport_peer *peer;       /* NULL: this thread accepted it */
    struct transport_channel *channel; /* the session's; NULL: it has no session */
    uint64_t counted_bytes;            /* of the order or the channel, in the account */
    bool session_detached;
    bool session_is_gone; /* from the lanes; it waits for a job that uses its arena, or for the
                             client that may still read that (lent_fd) */
    enum embtier_err closed_why; /* once it is closed */
    struct scan *scan;           /* the open one; NULL while a job has it, as is load */
    struct load *load;
    struct job *scan_final_job; /* ends the scan; made before it, so that the end needs no memory */
    struct job *load_final_job; /* likewise */
    struct transfer scanning, loading;
    uint64_t heard_ns; /* when the client last sent something, or its last job ended */
    struct job *job;   /* under way; no request is read before it is answered */
    struct frame_reader reader;
    size_t reader_room; /* its bytes beyond FRAME_READER_BYTES; counted in the account */
    uint8_t *unsent;
    size_t unsent_at;
    size_t unsent_bytes;
    size_t unsent_room; /* counted in the account */
    uint64_t sent_ns;   /* when some of it was sent last, or there was none */
};

/* A client that is known by its hello alone is a stranger before. It counts in no account, and what
 * it has is short: a hello, and a reply or two that it has not read. */
#define CONNECTION_STRANGER_UNSENT (4 << 10)
static inline bool connection_is_stranger(const struct connection *connection)
{
    return !connection->account;
}

/* @peer: a transport's thread accepted it, and the connection has it from now on; NULL: this thread
 * did. NO_MEMORY; BUSY: the user has as many sessions as it may. After an error @fd and @peer are
 * the caller's. */
MUST_CHECK enum embtier_err connection_new(int fd, struct transport_peer *peer,
                                           struct accounts *accounts,
                                           struct connection **ret_connection, uid_t *ret_uid);
/* Says where its client comes from, as pairs of a log line (peer_origin.h). */
const char *connection_origin(const struct connection *connection, struct peer_origin *buffer);
#define CONNECTION_ORIGIN(connection)                                                              \
    connection_origin((connection), &(struct peer_origin){ { 0 } })
/* Counts what the connection has in the account of @user from now on; it is no stranger any more.
 * BUSY: that user has as many sessions as it may. NO_MEMORY. After an error nothing has changed. */
MUST_CHECK enum embtier_err connection_count_for(struct connection *connection,
                                                 struct accounts *accounts, uint64_t user,
                                                 struct err_msg *msg);
/* The hello of a client that is known by that alone was refused: it counts no more. */
void connection_be_stranger(struct connection *connection);
/* Closes the socket, if it is still open, and frees. The transport forgets the peer. The connection
 * is no member any more. */
void connection_free(struct connection *connection);

/* Receives once. DISCONNECTED: the client closed; BUSY: the user's part of memory for requests is
 * used up. */
MUST_CHECK enum embtier_err connection_receive(struct connection *connection, struct err_msg *msg);
/* Notes that a request is done. Gives back its memory if nothing has come behind it. */
void connection_received(struct connection *connection);
/* Sends a reply or keeps it. BUSY: there is no room to keep it, or the user's part of that is used
 * up. @fds (may be NULL) go along; the reply must then be the first thing to send. */
MUST_CHECK enum embtier_err connection_reply(struct connection *connection,
                                             const struct Embtier__Reply *reply, const int *fds,
                                             uint32_t fd_count, struct err_msg *msg);
/* Sends more of the kept replies. */
MUST_CHECK enum embtier_err connection_flush(struct connection *connection, struct err_msg *msg);
/* True if descriptors that went through @fd, its socket, may still be on their way: the client has
 * not received all that was sent. The system limits how many the server's user may have on the way
 * (RLIMIT_NOFILE). */
bool connection_may_have_fds(const struct connection *connection, int fd);
/* Shuts down a socket that is kept for that. Nothing more is sent; received bytes
 * are thrown away. */
void connection_shut_down(int fd);
/* Frees received requests and unsent replies. */
void connection_forget(struct connection *connection);
static inline bool connection_has_unsent(const struct connection *connection)
{
    return connection->unsent_bytes > 0;
}

#endif
