/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/readers_host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/net/address.h"

static bool is_number(const char *host)
{
    struct in6_addr number;

    return inet_pton(AF_INET, host, &number) == 1 || inet_pton(AF_INET6, host, &number) == 1;
}

bool readers_host_is_local(const char *host, const char *own)
{
    char name[ADDRESS_HOST_MAX + 1];
    size_t bytes;

    if (!host)
        return true;
    if (host[0] == '[') {
        host++;
        bytes = strcspn(host, "]");
    } else {
        bytes = strcspn(host, ":");
    }
    if (bytes == 0 || bytes >= sizeof(name))
        return false;
    memcpy(name, host, bytes);
    name[bytes] = '\0';
    return strcasecmp(name, "localhost") == 0 || strcasecmp(name, own) == 0 || is_number(name);
}
