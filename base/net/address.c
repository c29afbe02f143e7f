/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net/address.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *after(const char *text, const char *prefix)
{
    const size_t bytes = strlen(prefix);

    return strncmp(text, prefix, bytes) == 0 ? text + bytes : NULL;
}

static enum embtier_err take_path(const char *path, struct address *address, struct err_msg *msg)
{
    const size_t bytes = strlen(path);

    if (bytes == 0 || bytes > ADDRESS_PATH_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "socket path of %zu bytes, allowed: 1 to %d (the system's limit): %s", bytes,
                       ADDRESS_PATH_MAX, path);
    memcpy(address->path, path, bytes + 1);
    return EMBTIER_OK;
}

static bool is_port(const char *text)
{
    const size_t digits = strspn(text, "0123456789");

    return digits >= 1 && digits < sizeof(((struct address *)NULL)->port) && text[digits] == '\0' &&
           strtoul(text, NULL, 10) <= UINT16_MAX;
}

/* Takes "HOST:PORT" or "[IPV6]:PORT". */
static enum embtier_err take_host(const char *text, const char *rest, struct address *address,
                                  struct err_msg *msg)
{
    const bool is_bracketed = rest[0] == '[';
    const char *const host = rest + is_bracketed;
    const char *const end = is_bracketed ? strchr(host, ']') : strchr(host, ':');
    const char *const colon = end && is_bracketed ? end + 1 : end;
    size_t bytes;

    if (!colon || colon[0] != ':' || !is_port(colon + 1))
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has no port; expected tcp://HOST:PORT or tcp://[IPV6]:PORT, "
                       "with a port of 0 to 65535",
                       text);
    bytes = (size_t)(end - host);
    if (bytes == 0 || bytes > ADDRESS_HOST_MAX)
        return err_set(msg, EMBTIER_INVALID, "address %s has a host of %zu bytes, allowed: 1 to %d",
                       text, bytes, ADDRESS_HOST_MAX);
    memcpy(address->host, host, bytes);
    address->host[bytes] = '\0';
    snprintf(address->port, sizeof(address->port), "%s", colon + 1);
    return EMBTIER_OK;
}

enum embtier_err address_parse(const char *text, struct address *ret_address, struct err_msg *msg)
{
    const char *rest;

    *ret_address = (struct address){ .kind = ADDRESS_UNIX };
    if ((rest = after(text, "tcp://"))) {
        ret_address->kind = ADDRESS_TCP;
        return take_host(text, rest, ret_address, msg);
    }
    if ((rest = after(text, "unix+rpc:"))) {
        ret_address->kind = ADDRESS_UNIX_RPC;
        return take_path(rest, ret_address, msg);
    }
    if ((rest = after(text, "unix:")))
        return take_path(rest, ret_address, msg);
    if (strstr(text, "://"))
        return err_set(msg, EMBTIER_INVALID,
                       "address %s is of no known kind; expected a path, unix:PATH, unix+rpc:PATH "
                       "or tcp://HOST:PORT",
                       text);
    return take_path(text, ret_address, msg);
}
