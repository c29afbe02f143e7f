/* SPDX-License-Identifier: Apache-2.0 */
/* connection.h: one client's socket: frames in, replies out, never waiting for either.
 *
 * While a reply is not read no further request is, so that little more than one is kept. That, and
 * what has come of a long request, counts in the user's account (ACCOUNT_ANSWER_BYTES); a client
 * whose user has as much as it may is dropped, as is one that reads nothing for a while. What the
 * system keeps on the way to the client is little (CONNECTION_SOCKET_BYTES). Thread: the control
 * thread. */
#ifndef EMBTIER_DAEMON_CONTROL_CONNECTION_H
#define EMBTIER_DAEMON_CONTROL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "proto/frame.h"

struct account;
struct accounts;
struct job;
struct load;
struct scan;
struct session;
struct session_order;
struct Embtier__Reply;

/* The largest reply, and what of Progress was in front of it. */
#define CONNECTION_UNSENT_MAX (2 * FRAME_BYTES_MAX)
/* Of a reply, as much the system takes and keeps, of which it makes about twice as much. */
#define CONNECTION_SOCKET_BYTES (16 << 10)
/* A client that has something to read must read some of it within this time. */
#define CONNECTION_UNREAD_NS (UINT64_C(10) * 1000 * 1000 * 1000)
/* A client must say hello within this time. */
#define CONNECTION_HELLO_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* A scan or a load as the list of jobs has it, from its first job on. */
struct transfer {
    uint64_t job_id;
    uint64_t since_ns;
    uint64_t rows;          /* that will come; 0: not known */
    enum embtier_err ended; /* TIMEOUT, since the client said nothing for too long; CANCELLED */
};

struct connection {
    struct connection *next;
    struct connection **link; /* where `next` of the one before, or the list's head, points here */
    int fd;                   /* -1: closed, waiting for session and job to let go */
    int lent_fd;   /* the same, once the server dropped a client that may still read its arena: that
                      stays the client's until it closes its end or its process ends; else -1 */
    int unread_fd; /* the same, once the client hung up in half and has not received all that was
                      sent with its session's descriptors: until it has, or closes, it counts as a
                      session; else -1 */
    bool sent_fds;
    uint64_t number;
    int process_fd; /* readable once the process that connected has ended, whoever still has the
                       socket; -1: that cannot be told */
    bool process_ended;
    pid_t peer_pid;
    uid_t peer_uid;
    struct account *account; /* of that user */
    bool counts_session;     /* in the account, as do … */
    bool counts_scan;        /* … the scan, from the moment it is asked for, … */
    bool counts_load;        /* … and the load */
    uint64_t since_ns;
    bool said_hello;
    bool knows_pages; /* of lists: clients of before would take the first one for the whole */
    uint32_t watched; /* what epoll was asked for */
    bool is_ready;    /* in the list of those with a request at hand */
    struct connection *next_ready;
    struct session_order *making; /* its session: no further request is read before that is there */
    struct session *session;
    bool session_detached;
    bool session_is_gone;        /* from the lanes; it waits for a job that uses its arena, or for
                                    the client that has it lent */
    enum embtier_err closed_why; /* once it is closed */
    struct scan *scan;           /* which it has open; nobody's while a job has it; so is */
    struct load *load;
    struct job *scan_last, *load_last; /* the jobs that will end them, made before there is one:
                                          that must not fail */
    struct transfer scanning, loading;
    uint64_t heard_ns; /* of the client, or the last of its jobs was done */
    struct job *job;   /* under way: no further request is read before it is answered */
    struct frame_reader reader;
    size_t reader_room; /* counted in the account: what it has beyond its least */
    uint8_t *unsent;
    size_t unsent_at;
    size_t unsent_bytes;
    size_t unsent_room; /* counted in the account */
    uint64_t sent_ns;   /* some of it, or there was none */
};

/* NO_MEMORY; BUSY: the user has as many sessions as it may. @fd is closed by connection_free()
 * only.
 */
MUST_CHECK enum embtier_err connection_new(int fd, struct accounts *accounts,
                                           struct connection **ret_connection, uid_t *ret_uid);
/* Closes the socket, if it still is open, and frees. */
void connection_free(struct connection *connection);

/* Reads what there is, once. DISCONNECTED at its end; BUSY: the user has its part of memory for
 * that. */
MUST_CHECK enum embtier_err connection_receive(struct connection *connection, struct err_msg *msg);
/* A request is done with: what it took is given back, if nothing has come behind it. */
void connection_received(struct connection *connection);
/* Sends or keeps a reply, BUSY: there is no room to keep it, or the user has its part of that; @fds
 * (may be NULL) go along and need it to be the first thing to send. */
MUST_CHECK enum embtier_err connection_reply(struct connection *connection,
                                             const struct Embtier__Reply *reply, const int *fds,
                                             uint32_t fd_count, struct err_msg *msg);
/* Sends more of what is kept. */
MUST_CHECK enum embtier_err connection_flush(struct connection *connection, struct err_msg *msg);
/* True: descriptors that went through @fd, its socket, may be on their way to the client still:
 * it has not received all that was sent. The system lets the server's user have so many on the way
 * (RLIMIT_NOFILE). */
bool connection_may_have_fds(const struct connection *connection, int fd);
/* Shuts a socket that is kept for that: nothing more is sent, and nothing that came is kept. */
void connection_shut_down(int fd);
/* Frees what was received, and what was not sent: nothing of it is any more. */
void connection_forget(struct connection *connection);
static inline bool connection_has_unsent(const struct connection *connection)
{
    return connection->unsent_bytes > 0;
}

#endif
