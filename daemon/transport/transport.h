/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h: a way in which clients' requests arrive, as the control thread knows it.
 *
 * A transport is a constant table of functions. They make the channel on which a session runs
 * (channel.h), name the descriptors that its client gets, and free it. session_maker.h calls those
 * that take long. The control thread gives each connection the transport of the socket that
 * accepted it, and knows no other fact about the transport.
 *
 * Thread: one at a time has a channel. */
#ifndef EMBTIER_DAEMON_TRANSPORT_TRANSPORT_H
#define EMBTIER_DAEMON_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/sessions/channel.h"
#include "daemon/engine/sessions/session_secret.h"
#include "daemon/transport/listen/peer_origin.h"

struct account;
struct transport;

/* Most descriptors that a client gets with its channel. */
#define TRANSPORT_FDS_MAX 3

/* A client that a transport's own thread has accepted. The transport embeds this in its stream. The
 * control thread then has @fd, whose other end is the transport's: control messages come and go
 * there as on a Unix socket. */
struct transport_peer {
    struct message arrived_message;   /* to the control thread */
    struct message greeted_message;   /* back: it has said hello, and counts as a session */
    struct message forgotten_message; /* back: this thread has none of the peer any more */
    struct message bound_message;     /* back: it belongs to the session of `bound` */
    struct transport_channel *bound;  /* until that has come */
    struct mailbox *mailbox;          /* of the transport's thread */
    const struct transport *transport;
    int fd;      /* the control thread's from arrived_message on */
    uid_t uid;   /* -1: not known */
    pid_t pid;   /* 0: not known, or on another host */
    gid_t *gids; /* of the process, malloced; NULL: not known. The control thread may take them */
    uint32_t gid_count;
    struct peer_address address;
    bool is_encrypted;
    bool is_loopback; /* it came from this host, over TCP */
    bool is_left;     /* the control thread's, until forgotten_message: the client has another
                         connection now, and need not be told anything here */
    bool is_greeted;  /* the control thread's: greeted_message was sent */
    /* The names of the client's verified certificate, such as "CN=a", one after another, each with
     * its NUL, and an empty one behind the last; NULL: it has shown none. They live as long as
     * the peer. */
    const char *certificate_names;
};
extern const struct message_kind message_peer_arrived;

/* The channel that a client asks for. */
struct channel_spec {
    struct transport_peer *peer; /* NULL: the control thread accepted it */
    uint64_t region_bytes;       /* the channel may have more */
    uint32_t slot_count;
    uint32_t max_batch_rows;
};

/* A channel with its transport. Each transport embeds this in a struct of its own, which it finds
 * again with CONTAINER_OF. */
struct transport_channel {
    const struct transport *transport;
    struct channel channel; /* set once it is whole */

    /* The control thread's, while the channel is given back. */
    struct account *account; /* of its user, in which the bytes count until it is freed */
    uint64_t counted_bytes;
    uint64_t connection; /* the number of the one that had it */
    struct session_secret secret;
    struct transport_channel *next_released;

    /* session_maker.c's, likewise. */
    struct message freed_message; /* of a kind of the owner's */
    struct transport_channel *next_freed;
    bool is_abandoned;
};

struct transport {
    /* Returns the bytes of such a channel that count in its user's account
     * (ACCOUNT_ARENA_BYTES). */
    uint64_t (*counted_bytes)(const struct channel_spec *spec);
    /* Makes all of the channel except what takes long. NO_MEMORY, or the system's error. */
    enum embtier_err (*prepare)(const struct channel_spec *spec,
                                struct transport_channel **ret_channel, struct err_msg *msg);
    /* Makes at most @bytes more of the region. AGAIN: there is more to make. OK: the channel is
     * whole. Otherwise as prepare(). */
    enum embtier_err (*reserve)(struct transport_channel *channel, uint64_t bytes,
                                struct err_msg *msg);
    /* The client of a whole channel is about to get the answer to its hello. Returns how many
     * descriptors it gets with it, and which. They stay the channel's. */
    uint32_t (*announce)(struct transport_channel *channel, int ret_fds[TRANSPORT_FDS_MAX]);
    /* A further connection of the client is about to learn that it belongs to the channel's
     * session, and may then carry requests. Its peer stays until the session is gone. NULL: a
     * session has one connection. */
    void (*join)(struct transport_channel *channel, struct transport_peer *peer);
    /* Gives the memory of a channel without a session back to the system, which may take long. The
     * channel may be half made. @is_abandoned: no client reads the region any more, so its bytes
     * are freed even if a process has them mapped. */
    void (*release)(struct transport_channel *channel, bool is_abandoned);
    /* Frees the channel, and all that was not released. */
    void (*free)(struct transport_channel *channel);
};

/* The control thread counts the peer as a session from now on. It may be told twice. */
static inline void transport_greet(struct transport_peer *peer)
{
    if (!peer->is_greeted)
        mailbox_send(peer->mailbox, &peer->greeted_message);
    peer->is_greeted = true;
}

/* The control thread has freed all that it had for the peer. */
static inline void transport_forget(struct transport_peer *peer)
{
    mailbox_send(peer->mailbox, &peer->forgotten_message);
}

/* Frees a channel of any transport. */
static inline void transport_channel_free(struct transport_channel *channel)
{
    if (channel)
        channel->transport->free(channel);
}
DEFINE_CLEANUP(struct transport_channel, transport_channel_free)

#endif
