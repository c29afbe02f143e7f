/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_after.h"

static enum embtier_err take_path(const char *path, size_t bytes, struct address *address,
                                  struct err_msg *msg)
{
    if (bytes == 0 || bytes > ADDRESS_PATH_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "socket path of %zu bytes, allowed: 1 to %d (the system's limit): %s", bytes,
                       ADDRESS_PATH_MAX, path);
    memcpy(address->path, path, bytes);
    address->path[bytes] = '\0';
    return EMBTIER_OK;
}

static enum embtier_err take_port(const char *text, const char *port, const char *stop,
                                  struct address *address, struct err_msg *msg)
{
    const size_t bytes = (size_t)(stop - port);

    if (strspn(port, "0123456789") < bytes || bytes >= sizeof(address->port) ||
        strtoul(port, NULL, 10) > UINT16_MAX)
        return err_set(msg, EMBTIER_INVALID, "address %s has the port %.*s; allowed: 0 to %d", text,
                       (int)bytes, port, UINT16_MAX);
    snprintf(address->port, sizeof(address->port), "%.*s", (int)bytes, port);
    return EMBTIER_OK;
}

/* Takes "HOST:PORT" or "[IPV6]:PORT", up to @stop. */
static enum embtier_err take_host(const char *text, const char *rest, const char *stop,
                                  struct address *address, struct err_msg *msg)
{
    const bool is_bracketed = rest[0] == '[';
    const char *const host = rest + is_bracketed;
    const char *const end =
        is_bracketed ? strchr(host, ']') : memchr(host, ':', (size_t)(stop - host));
    const char *const colon = end && is_bracketed ? end + 1 : end;
    size_t bytes;

    if (!is_bracketed && colon && memchr(colon + 1, ':', (size_t)(stop - colon - 1)))
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has more than one colon; an IPv6 address needs brackets: "
                       "%s://[IPV6]:PORT",
                       text, address_scheme(address));
    if (!colon || colon[0] != ':' || colon + 1 == stop)
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has no port; expected %s://HOST:PORT or %s://[IPV6]:PORT, with "
                       "a port of 0 to 65535",
                       text, address_scheme(address), address_scheme(address));
    bytes = (size_t)(end - host);
    if (bytes == 0 || bytes > ADDRESS_HOST_MAX)
        return err_set(msg, EMBTIER_INVALID, "address %s has a host of %zu bytes, allowed: 1 to %d",
                       text, bytes, ADDRESS_HOST_MAX);
    memcpy(address->host, host, bytes);
    address->host[bytes] = '\0';
    return take_port(text, colon + 1, stop, address, msg);
}

/* ---- Files ---- */

static char *file_of(struct address *address, const char *name, size_t bytes)
{
    struct address_files *const files = &address->files;
    const struct {
        const char *name;
        char *file;
        bool is_of_tls;
    } all[] = {
        { "ca", files->authority, true },
        { "cert", files->certificate, true },
        { "key", files->key, true },
        { "token", files->token, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strlen(all[i].name) == bytes && strncmp(all[i].name, name, bytes) == 0)
            return all[i].is_of_tls && address->kind != ADDRESS_TLS ? NULL : all[i].file;
    return NULL;
}

static enum embtier_err take_file(const char *text, const char *item, size_t bytes,
                                  struct address *address, struct err_msg *msg)
{
    const char *const equals = memchr(item, '=', bytes);
    char *const file = equals ? file_of(address, item, (size_t)(equals - item)) : NULL;
    const size_t name_bytes = equals ? bytes - (size_t)(equals + 1 - item) : 0;

    if (!file)
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has `%.*s`; allowed: token=FILE, connections=N, and for tls:// "
                       "ca=FILE, cert=FILE, key=FILE",
                       text, (int)bytes, item);
    if (file[0] != '\0')
        return err_set(msg, EMBTIER_INVALID, "address %s names the file of `%.*s` twice", text,
                       (int)(equals - item), item);
    if (name_bytes == 0 || name_bytes > ADDRESS_FILE_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has a file name of %zu bytes, allowed: 1 to %d", text,
                       name_bytes, ADDRESS_FILE_MAX);
    memcpy(file, equals + 1, name_bytes);
    file[name_bytes] = '\0';
    return EMBTIER_OK;
}

static enum embtier_err take_connections(const char *text, const char *number, size_t bytes,
                                         struct address *address, struct err_msg *msg)
{
    const size_t digits = strspn(number, "0123456789");
    const unsigned long value = strtoul(number, NULL, 10);

    if (digits != bytes || digits > 2 || value < 1 || value > ADDRESS_CONNECTIONS_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "address %s has connections=%.*s; allowed: a number of 1 to %d", text,
                       (int)bytes, number, ADDRESS_CONNECTIONS_MAX);
    if (address->connections > 0)
        return err_set(msg, EMBTIER_INVALID, "address %s has `connections` twice", text);
    address->connections = (uint32_t)value;
    return EMBTIER_OK;
}

static enum embtier_err take_option(const char *text, const char *item, size_t bytes,
                                    struct address *address, struct err_msg *msg)
{
    static const char connections[] = "connections=";
    const size_t name_bytes = sizeof(connections) - 1;

    if (bytes < name_bytes || strncmp(item, connections, name_bytes) != 0)
        return take_file(text, item, bytes, address, msg);
    return take_connections(text, item + name_bytes, bytes - name_bytes, address, msg);
}

/* Takes "NAME=VALUE&NAME=VALUE". */
static enum embtier_err take_options(const char *text, const char *rest, struct address *address,
                                     struct err_msg *msg)
{
    const struct address_files *const files = &address->files;

    for (const char *end; rest; rest = *end ? end + 1 : NULL) {
        end = strchrnul(rest, '&');
        TRY(take_option(text, rest, (size_t)(end - rest), address, msg));
    }
    if ((files->certificate[0] == '\0') != (files->key[0] == '\0'))
        return err_set(msg, EMBTIER_INVALID, "address %s names one of cert and key; give both",
                       text);
    return EMBTIER_OK;
}

static const struct {
    const char *prefix;
    enum address_kind kind;
} prefixes[] = {
    { "tcp://", ADDRESS_TCP },
    { "tls://", ADDRESS_TLS },
    { "unix+rpc:", ADDRESS_UNIX_RPC },
    { "unix:", ADDRESS_UNIX },
};

/* Returns what is behind the prefix, and sets the kind. */
static const char *take_kind(const char *text, struct address *address)
{
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        const char *const rest = text_after(text, prefixes[i].prefix);

        if (!rest)
            continue;
        address->kind = prefixes[i].kind;
        return rest;
    }
    return text;
}

const char *address_show(struct address_shown *buffer, const struct address *address)
{
    const bool is_v6 = strchr(address->host, ':') != NULL;

    (void)snprintf(buffer->text, sizeof(buffer->text), "%s://%s%s%s:%s", address_scheme(address),
                   is_v6 ? "[" : "", address->host, is_v6 ? "]" : "", address->port);
    return buffer->text;
}

enum embtier_err address_parse(const char *text, struct address *ret_address, struct err_msg *msg)
{
    struct address address = { .kind = ADDRESS_UNIX };
    const char *const rest = take_kind(text, &address);
    const bool may_have_options = address.kind != ADDRESS_UNIX;
    const char *const stop = may_have_options ? strchrnul(rest, '?') : rest + strlen(rest);

    if (rest == text && strstr(text, "://"))
        return err_set(msg, EMBTIER_INVALID,
                       "address %s is of no known kind; expected a path, unix:PATH, "
                       "unix+rpc:PATH, tcp://HOST:PORT or tls://HOST:PORT",
                       text);
    if (address_is_tcp(&address))
        TRY(take_host(text, rest, stop, &address, msg));
    else
        TRY(take_path(rest, (size_t)(stop - rest), &address, msg));
    if (*stop)
        TRY(take_options(text, stop + 1, &address, msg));
    *ret_address = address;
    return EMBTIER_OK;
}

enum embtier_err address_parse_http(const char *text, struct address *ret_address,
                                    struct err_msg *msg)
{
    struct address address = { .kind = ADDRESS_HTTP };
    const char *const rest = text_after(text, "http://");
    const char *const host = rest ? rest : text;

    if (strstr(host, "://"))
        return err_set(msg, EMBTIER_INVALID,
                       "address %s is not of HTTP; expected HOST:PORT or [IPV6]:PORT", text);
    TRY(take_host(text, host, host + strlen(host), &address, msg));
    *ret_address = address;
    return EMBTIER_OK;
}
