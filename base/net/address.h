/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: addresses of servers, as users write them.
 *
 *     /run/embtier/embtier.sock, unix:PATH   Unix socket, then shared memory
 *     unix+rpc:PATH                          Unix socket, all over it
 *     tcp://HOST:PORT, tcp://[IPV6]:PORT
 *     tls://HOST:PORT, tls://[IPV6]:PORT
 *
 * A client may add options to each but the first kind, in the manner of a URL:
 *
 *     tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&token=FILE
 *
 * ca has the authority of the server's certificate, cert and key are the client's own, and token
 * has its token. ca, cert and key are for tls:// alone. A file's name cannot have a `&`.
 * connections=N, 1 to 16, gives the session that many connections.
 *
 * Thread: any. */
#ifndef EMBTIER_BASE_NET_ADDRESS_H
#define EMBTIER_BASE_NET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ADDRESS_HOST_MAX        255
#define ADDRESS_PATH_MAX        107 /* of a Unix socket, in bytes: the system's limit */
#define ADDRESS_FILE_MAX        255
#define ADDRESS_CONNECTIONS_MAX 16

enum address_kind {
    ADDRESS_UNIX,
    ADDRESS_UNIX_RPC,
    ADDRESS_TCP,
    ADDRESS_TLS,
    ADDRESS_HTTP, /* of address_parse_http() alone */
};

/* The client's files; "": none is named. */
struct address_files {
    char authority[ADDRESS_FILE_MAX + 1];
    char certificate[ADDRESS_FILE_MAX + 1];
    char key[ADDRESS_FILE_MAX + 1];
    char token[ADDRESS_FILE_MAX + 1];
};

struct address {
    enum address_kind kind;
    char path[ADDRESS_PATH_MAX + 1]; /* of a Unix socket; else "" */
    char host[ADDRESS_HOST_MAX + 1]; /* name or number, without brackets; else "" */
    char port[6];                    /* decimal, 0 to 65535; else "" */
    struct address_files files;
    uint32_t connections; /* 0: not given, so one */
};

static inline bool address_is_tcp(const struct address *address)
{
    return address->kind == ADDRESS_TCP || address->kind == ADDRESS_TLS ||
           address->kind == ADDRESS_HTTP;
}

/* Returns the part in front of "://" of an address over TCP. */
static inline const char *address_scheme(const struct address *address)
{
    switch (address->kind) {
    case ADDRESS_TLS:
        return "tls";
    case ADDRESS_HTTP:
        return "http";
    default:
        return "tcp";
    }
}

static inline bool address_has_options(const struct address *address)
{
    const struct address_files *const files = &address->files;

    return files->authority[0] || files->certificate[0] || files->key[0] || files->token[0] ||
           address->connections > 0;
}

/* Returns an address over TCP as a user writes it, without its options, in a buffer that lives as
 * long as the caller's block: ADDRESS_SHOWN(address). */
struct address_shown {
    char text[ADDRESS_HOST_MAX + 32];
};
const char *address_show(struct address_shown *buffer, const struct address *address);
#define ADDRESS_SHOWN(address) address_show(&(struct address_shown){ { 0 } }, (address))

/* INVALID: @text is no address; the message says what is allowed. */
MUST_CHECK enum embtier_err address_parse(const char *text, struct address *ret_address,
                                          struct err_msg *msg);
/* The same for an address of HTTP: HOST:PORT or [IPV6]:PORT, also with http:// in front. */
MUST_CHECK enum embtier_err address_parse_http(const char *text, struct address *ret_address,
                                               struct err_msg *msg);

#ifdef __cplusplus
}
#endif
#endif
