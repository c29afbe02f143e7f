/* SPDX-License-Identifier: Apache-2.0 */
/* handshakes.h: threads that do the handshakes of TLS, which take a processor long, beside the
 * loops.
 *
 * A loop hands a connection over, and has it back by mail when the handshake is over or waits for
 * the client. Meanwhile it does not touch the connection. So the queue is no longer than there are
 * connections. The threads step back behind those that serve requests, so a flood of handshakes
 * delays handshakes.
 *
 * Thread: loops add; the owner makes and frees. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_NET_HANDSHAKES_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_NET_HANDSHAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "daemon/engine/mail/mailbox.h"

struct handshakes;
struct tls_stream;

struct handshake {
    struct tls_stream *tls;
    struct mailbox *mailbox; /* of the loop */
    struct message message;  /* to it */
    /* AGAIN: send tls_out(), wait for bytes of the client, and add it again. Else the end. */
    enum embtier_err err;
    struct err_msg msg;
    char *names; /* of the client's certificate (certificate_names.h), malloced; NULL: none */
    bool has_bad_names; /* they cannot be used; msg says why */

    struct handshake *next;
};

MUST_CHECK enum embtier_err handshakes_new(uint32_t thread_count,
                                           struct handshakes **ret_handshakes, struct err_msg *msg);
/* None is under way any more. */
void handshakes_free(struct handshakes *handshakes);
DEFINE_CLEANUP(struct handshakes, handshakes_free)

/* Borrows @handshake until its message arrives. */
void handshakes_add(struct handshakes *handshakes, struct handshake *handshake);

#endif
