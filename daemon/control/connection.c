/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/connection.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config_descriptors.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/job.h"
#include "daemon/transport/listen/peer_ids.h"
#include "daemon/transport/transport.h"

/* The client's socket and the descriptor of its process. */
_Static_assert(TRANSPORT_FDS_MAX + 2 <= SESSION_DESCRIPTORS, "the configuration counts them");

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* A stranger's reader keeps its first size. */
#define STRANGER_FRAME_BYTES_MAX (FRAME_READER_BYTES - FRAME_HEADER_BYTES)

DEFINE_CLEANUP(struct connection, connection_free)

/* Opens the client's process. Returns -1, with errno, if it cannot: the kernel is old, or the
 * process is in a namespace that the server does not see. Before SO_PEERPIDFD the process may have
 * ended and its number be another's by now; then only the socket tells that the client has gone. */
static int open_process(int fd, pid_t pid)
{
    int process_fd = -1;
    socklen_t bytes = sizeof(process_fd);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process_fd, &bytes) == 0)
        return process_fd;
    if (pid <= 0) {
        errno = ESRCH;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The process is for the log. The user is for limits, and for the access file, if there is one. The
 * socket file's mode decides whether they may connect. */
static void find_user(struct connection *connection, int fd, struct transport_peer *peer)
{
    struct peer_ids ids;

    if (peer)
        ids = (struct peer_ids){ .uid = peer->uid,
                                 .pid = peer->pid,
                                 .gids = TAKE(peer->gids),
                                 .gid_count = peer->gid_count };
    else
        peer_ids_of(fd, &ids);
    connection->peer_pid = ids.pid;
    connection->peer_uid = connection->user = ids.uid;
    connection->peer_gids = ids.gids;
    connection->peer_gid_count = ids.gid_count;
}

/* All clients over TCP have one user id, which says nothing of them. */
static bool is_known_by_hello(const struct connection *connection,
                              const struct transport_peer *peer)
{
    return peer && connection->peer_uid == (uid_t)-1;
}

static enum embtier_err begin_to_count(struct connection *connection, struct accounts *accounts)
{
    connection->account = account_open(accounts, connection->user);
    if (!connection->account)
        return EMBTIER_NO_MEMORY;
    if (account_take(connection->account, ACCOUNT_SESSIONS, 1) != ACCOUNT_TAKEN)
        return EMBTIER_BUSY;
    connection->counts_session = true;
    return EMBTIER_OK;
}

enum embtier_err connection_new(int fd, struct transport_peer *peer, struct accounts *accounts,
                                struct connection **ret_connection, uid_t *ret_uid)
{
    _cleanup_(connection_freep) struct connection *connection = calloc(1, sizeof(*connection));

    *ret_uid = (uid_t)-1;
    if (!connection)
        return EMBTIER_NO_MEMORY;
    connection->fd = connection->lent_fd = connection->unread_fd = connection->process_fd = -1;
    find_user(connection, fd, peer);
    *ret_uid = connection->peer_uid;
    frame_reader_init(&connection->reader, FRAME_REQUEST_BYTES_MAX);
    if (is_known_by_hello(connection, peer))
        connection->reader.limit = STRANGER_FRAME_BYTES_MAX;
    else
        TRY(begin_to_count(connection, accounts));
    /* Bytes in the kernel's buffer are charged to no account, so the buffer is small. */
    (void)!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ CONNECTION_SOCKET_BYTES }, sizeof(int));
    /* A closed connection is enough for a peer: its transport holds the other end. */
    if (!peer)
        connection->process_fd = open_process(fd, connection->peer_pid);
    connection->fd = fd;
    connection->peer = peer;
    *ret_connection = TAKE(connection);
    return EMBTIER_OK;
}

const char *connection_origin(const struct connection *connection, struct peer_origin *buffer)
{
    const struct transport_peer *const peer = connection->peer;

    return peer_origin_write(buffer, peer ? peer->address.text : "", connection->peer_pid,
                             connection->peer_uid);
}

static void count_in(struct connection *connection, struct account *account)
{
    connection->account = account;
    connection->counts_session = true;
    account_add(account, ACCOUNT_SESSIONS, 1);
    account_add(account, ACCOUNT_ANSWER_BYTES, connection->reader_room + connection->unsent_room);
}

/* Returns the account; NULL: it was a stranger. */
static struct account *count_out(struct connection *connection)
{
    if (connection_is_stranger(connection))
        return NULL;
    connection->counts_session = false;
    account_give(connection->account, ACCOUNT_SESSIONS, 1);
    account_give(connection->account, ACCOUNT_ANSWER_BYTES,
                 connection->reader_room + connection->unsent_room);
    return TAKE(connection->account);
}

/* The bytes of a hello and its answer are few, and another user's part of memory is no reason to
 * refuse them. */
enum embtier_err connection_count_for(struct connection *connection, struct accounts *accounts,
                                      uint64_t user, struct err_msg *msg)
{
    struct account *account, *old;

    if (user == connection->user && !connection_is_stranger(connection))
        return EMBTIER_OK;
    account = account_open(accounts, user);
    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    old = count_out(connection);
    if (account_ask(account, ACCOUNT_SESSIONS, 1) != ACCOUNT_TAKEN) {
        (void)err_set(msg, EMBTIER_BUSY,
                      "your user may have at most %" PRIu64
                      " sessions now (%s): close some, or try again when "
                      "others have ended",
                      account_part(account, ACCOUNT_SESSIONS),
                      account_key(account, ACCOUNT_SESSIONS, "socket.max_user_sessions"));
        if (old)
            count_in(connection, old);
        account_close(account);
        return EMBTIER_BUSY;
    }
    count_in(connection, account);
    connection->user = user;
    connection->reader.limit = FRAME_REQUEST_BYTES_MAX;
    account_close(old);
    return EMBTIER_OK;
}

void connection_be_stranger(struct connection *connection)
{
    if (!is_known_by_hello(connection, connection->peer))
        return;
    account_close(count_out(connection));
    connection->reader.limit = STRANGER_FRAME_BYTES_MAX;
}

/* Counts the reader's memory. It is taken already, so the connection ends if it
 * cannot be counted. */
static enum embtier_err count_reader(struct connection *connection, struct err_msg *msg)
{
    const size_t room =
        connection->reader.capacity - MIN(connection->reader.capacity, (size_t)FRAME_READER_BYTES);
    enum account_answer answer;
    size_t more;

    assert(room >= connection->reader_room); /* it only grows */
    more = room - connection->reader_room;
    if (connection_is_stranger(connection)) /* its reader never grows */
        return more == 0 ? EMBTIER_OK : EMBTIER_TOO_LARGE;
    answer = account_ask(connection->account, ACCOUNT_ANSWER_BYTES, more);
    if (answer != ACCOUNT_TAKEN)
        return account_refuse(connection->account, ACCOUNT_ANSWER_BYTES, more, answer,
                              "requests must be short", msg);
    account_add(connection->account, ACCOUNT_ANSWER_BYTES, more);
    connection->reader_room = room;
    return EMBTIER_OK;
}

static void forget_received(struct connection *connection)
{
    if (connection->reader_room > 0 && !connection_is_stranger(connection))
        account_give(connection->account, ACCOUNT_ANSWER_BYTES, connection->reader_room);
    connection->reader_room = 0;
    frame_reader_done(&connection->reader);
}

void connection_received(struct connection *connection)
{
    if (connection->reader.used == 0)
        forget_received(connection);
}

static void forget_unsent(struct connection *connection)
{
    if (connection->unsent_room > 0 && !connection_is_stranger(connection))
        account_give(connection->account, ACCOUNT_ANSWER_BYTES, connection->unsent_room);
    free(connection->unsent);
    connection->unsent = NULL;
    connection->unsent_room = connection->unsent_at = connection->unsent_bytes = 0;
}

void connection_free(struct connection *connection)
{
    if (!connection)
        return;
    assert(!connection->session && !connection->making && !connection->job);
    assert(!connection->counts_scan && !connection->counts_load && !connection->member);
    closep(&connection->fd);
    closep(&connection->lent_fd);
    closep(&connection->unread_fd);
    closep(&connection->process_fd);
    connection_forget(connection);
    if (connection->counts_session)
        account_give(connection->account, ACCOUNT_SESSIONS, 1);
    account_close(connection->account);
    job_free(connection->scan_final_job); /* they have no transfer yet */
    job_free(connection->load_final_job);
    free(connection->peer_gids);
    if (connection->peer)
        transport_forget(connection->peer);
    free(connection);
}

enum embtier_err connection_receive(struct connection *connection, struct err_msg *msg)
{
    uint8_t *space;
    size_t bytes;
    ssize_t got;

    TRY(frame_reader_space(&connection->reader, &space, &bytes));
    if (connection->reader_room + FRAME_READER_BYTES < connection->reader.capacity)
        TRY(count_reader(connection, msg));
    got = recv(connection->fd, space, bytes, MSG_DONTWAIT);
    if (got > 0) {
        frame_reader_added(&connection->reader, (size_t)got);
        return EMBTIER_OK;
    }
    if (got == 0)
        return err_set(msg, EMBTIER_DISCONNECTED, "closed by the client");
    if (errno == EAGAIN || errno == EINTR)
        return EMBTIER_OK;
    return err_set_errno(msg, errno, "cannot receive from the client");
}

static enum embtier_err ask_for_unsent(const struct connection *connection, size_t needed,
                                       struct err_msg *msg)
{
    enum account_answer answer;

    if (connection_is_stranger(connection))
        return EMBTIER_OK;
    answer = account_ask(connection->account, ACCOUNT_ANSWER_BYTES,
                         needed - MIN(needed, connection->unsent_room));
    if (answer == ACCOUNT_TAKEN)
        return EMBTIER_OK;
    return account_refuse(connection->account, ACCOUNT_ANSWER_BYTES, needed, answer,
                          "clients must read them", msg);
}

static enum embtier_err keep(struct connection *connection, const uint8_t *bytes, size_t count,
                             struct err_msg *msg)
{
    const size_t needed = connection->unsent_bytes + count;
    const size_t most = connection_is_stranger(connection) ? CONNECTION_STRANGER_UNSENT
                                                           : (size_t)CONNECTION_UNSENT_MAX;
    uint8_t *larger;

    if (needed > most)
        return err_set(msg, EMBTIER_TOO_LARGE, "the client does not read its replies");
    if (connection->unsent_at > 0) {
        memmove(connection->unsent, connection->unsent + connection->unsent_at,
                connection->unsent_bytes);
        connection->unsent_at = 0;
    }
    TRY(ask_for_unsent(connection, needed, msg));
    larger = realloc(connection->unsent, needed);
    if (!larger)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (!connection_is_stranger(connection))
        account_add(connection->account, ACCOUNT_ANSWER_BYTES, needed - connection->unsent_room);
    connection->unsent_room = needed;
    connection->unsent = larger;
    if (connection->unsent_bytes == 0)
        connection->sent_ns = clock_now_ns(&clock_monotonic);
    memcpy(connection->unsent + connection->unsent_bytes, bytes, count);
    connection->unsent_bytes += count;
    return EMBTIER_OK;
}

/* Returns the number of bytes sent, 0 if none could be now, or -1 with errno. */
static ssize_t send_some(struct connection *connection, const uint8_t *bytes, size_t count,
                         const int *fds, uint32_t fd_count)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(TRANSPORT_FDS_MAX * sizeof(int))];
    } control = { { 0 } };
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = count };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t sent;

    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
    }
    sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return sent;
}

enum embtier_err connection_reply(struct connection *connection, const struct Embtier__Reply *reply,
                                  const int *fds, uint32_t fd_count, struct err_msg *msg)
{
    _cleanup_(freep) uint8_t *bytes = NULL;
    size_t count;
    ssize_t sent = 0;

    if (connection->fd < 0)
        return EMBTIER_OK;
    TRY(frame_encode_reply(reply, &bytes, &count));
    if (!connection_has_unsent(connection)) {
        sent = send_some(connection, bytes, count, fds, fd_count);
        if (sent < 0)
            return err_set_errno(msg, errno, "cannot send to the client");
    }
    if (fd_count > 0 && sent == 0)
        return err_set(msg, EMBTIER_PROTOCOL, "the client does not read its replies");
    connection->sent_fds = connection->sent_fds || fd_count > 0;
    if ((size_t)sent == count)
        return EMBTIER_OK;
    return keep(connection, bytes + sent, count - (size_t)sent, msg);
}

bool connection_may_have_fds(const struct connection *connection, int fd)
{
    int bytes = 0; /* sent and not received, with the system's overhead */

    return connection->sent_fds && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/* The client may have sent a descriptor of its own socket, which would be open as long as this one.
 * So its bytes are received, without descriptors, and nothing more comes. */
void connection_shut_down(int fd)
{
    char bytes[4096];

    (void)shutdown(fd, SHUT_RDWR);
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
}

void connection_forget(struct connection *connection)
{
    forget_received(connection);
    forget_unsent(connection);
}

enum embtier_err connection_flush(struct connection *connection, struct err_msg *msg)
{
    while (connection->unsent_bytes > 0) {
        const ssize_t sent = send_some(connection, connection->unsent + connection->unsent_at,
                                       connection->unsent_bytes, NULL, 0);

        if (sent < 0)
            return err_set_errno(msg, errno, "cannot send to the client");
        if (sent == 0)
            return EMBTIER_OK;
        connection->unsent_at += (size_t)sent;
        connection->unsent_bytes -= (size_t)sent;
        connection->sent_ns = clock_now_ns(&clock_monotonic);
    }
    forget_unsent(connection);
    return EMBTIER_OK;
}
