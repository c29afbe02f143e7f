/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/listen/handed_socket.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/text_escape.h"

#define FIRST_FD 3

/* Reads a variable of the manager. 0: it is not set, or makes no sense. */
static uint64_t variable(const char *name)
{
    const char *const text = getenv(name); // NOLINT(concurrency-mt-unsafe)
    char *end;
    unsigned long long value;

    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    value = strtoull(text, &end, 10);
    return *end == '\0' ? value : 0;
}

/* The variables are for one process; children inherit them. */
static uint64_t handed_count(void)
{
    return variable("LISTEN_PID") == (uint64_t)getpid() ? variable("LISTEN_FDS") : 0;
}

/* Writes the path of a Unix stream socket that listens. False: the descriptor is none. */
static bool path_of(int fd, char ret_path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1])
{
    struct sockaddr_un name = { 0 };
    socklen_t bytes = sizeof(name);
    socklen_t flag_bytes = sizeof(int);
    int listens = 0;
    int type = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_bytes) != 0 || !listens ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &flag_bytes) != 0 || type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || name.sun_family != AF_UNIX)
        return false;
    memcpy(ret_path, name.sun_path, sizeof(name.sun_path));
    ret_path[sizeof(name.sun_path)] = '\0';
    return true;
}

enum embtier_err handed_socket_find(const char *path, int *ret_fd, struct err_msg *msg)
{
    char handed[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];
    const uint64_t count = handed_count();

    if (count == 0) {
        *ret_fd = -1;
        return EMBTIER_OK;
    }
    if (count > 1)
        return err_set(msg, EMBTIER_INVALID,
                       "the service manager handed over %llu sockets; allowed: one, at %s "
                       "(ListenStream= of the socket unit, socket.path)",
                       (unsigned long long)count, path);
    if (!path_of(FIRST_FD, handed))
        return err_set(msg, EMBTIER_INVALID,
                       "the service manager handed over a descriptor that is no listening Unix "
                       "stream socket; allowed: one at %s (ListenStream=)",
                       path);
    if (strcmp(handed, path) != 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the service manager listens at %s, and socket.path is %s: make both the "
                       "same",
                       TEXT_SHOWN(handed), path);
    *ret_fd = FIRST_FD;
    return EMBTIER_OK;
}
