/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on the wire, as the kernel counts them. Apart from the rest of bench_server.h, because
 * <netinet/tcp.h> has an older struct tcp_info, and excludes this one. */
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "tests/bench/lib/bench_server.h"

static bool is_connected_to(int fd, const struct bench_server *server)
{
    const char *const port = strrchr(server->address, ':');
    struct sockaddr_in peer = { 0 };
    socklen_t bytes = sizeof(peer);

    return port && getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 &&
           peer.sin_family == AF_INET && ntohs(peer.sin_port) == strtoul(port + 1, NULL, 10);
}

static uint64_t bytes_of(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received))
        bench_die("the kernel does not count the bytes of a connection (TCP_INFO)");
    return info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

uint64_t bench_server_wire_bytes(const struct bench_server *server)
{
    DIR *const all = opendir("/proc/self/fd");
    const struct dirent *entry;
    uint64_t sum = 0;

    if (!all)
        bench_die("cannot list the connections of this process (/proc/self/fd)");
    while ((entry = readdir(all))) {
        const int fd = (int)strtol(entry->d_name, NULL, 10);

        if (is_connected_to(fd, server))
            sum += bytes_of(fd);
    }
    closedir(all);
    return sum;
}
