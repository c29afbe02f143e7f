/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/lib/bench.h"
#include "tests/integration/harness.h"

#define BUFFER_BYTES (4 * MIB)
#define KEY_BYTES    24 /* of text, at most */
#define FILL_ROWS    512
#define START_S      30
/* More than two are slower on two cores. */
#define REDIS_IO_THREADS "2"

static bool is_redis(const struct peer *peer)
{
    return peer->kind != PEER_MEMCACHED;
}

/* ---- Processes ---- */

static _Noreturn void run(const struct peer *peer)
{
    char socket_path[128];
    char memory[32];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(socket_path, sizeof(socket_path), "%s/socket", peer->directory);
    if (!freopen("/dev/null", "w", stdout) || !harness_join_servers())
        _exit(126);
    if (peer->kind == PEER_REDIS_TCP) {
        char port[8];

        snprintf(port, sizeof(port), "%u", peer->port);
        execlp("redis-server", "redis-server", "--port", port, "--bind", harness_host(),
               "--protected-mode", "no", "--save", "", "--appendonly", "no", "--io-threads",
               REDIS_IO_THREADS, "--dir", peer->directory, (char *)NULL);
        _exit(127);
    }
    if (peer->kind == PEER_REDIS) {
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save",
               "", "--appendonly", "no", "--dir", peer->directory, (char *)NULL);
        _exit(127);
    }
    snprintf(memory, sizeof(memory), "%s", strstr(peer->options, "-m ") + 3);
    memory[strcspn(memory, " ")] = '\0';
    execlp("memcached", "memcached", "-u", "root", "-s", socket_path, "-m", memory, "-t", "4", "-R",
           "1000", (char *)NULL);
    _exit(127);
}

static int connect_tcp(const struct peer *peer)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons(peer->port),
                                         .sin_addr = { inet_addr(harness_host()) } };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_unix(const struct peer *peer)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", peer->directory);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_to(const struct peer *peer)
{
    return peer->port ? connect_tcp(peer) : connect_unix(peer);
}

void peer_start(struct peer *peer, enum peer_kind kind, uint32_t row_bytes, uint64_t memory_bytes)
{
    const double begin = bench_now();

    *peer = (struct peer){ .kind = kind, .row_bytes = row_bytes, .fd = -1 };
    snprintf(peer->directory, sizeof(peer->directory), "/tmp/embtier-peer-XXXXXX");
    if (!mkdtemp(peer->directory))
        bench_die("cannot make %s", peer->directory);
    if (kind == PEER_REDIS_TCP) {
        peer->port = bench_free_port();
        snprintf(peer->options, sizeof(peer->options),
                 "redis-server --port --save '' --appendonly no --io-threads " REDIS_IO_THREADS);
    } else if (kind == PEER_REDIS)
        snprintf(peer->options, sizeof(peer->options),
                 "redis-server --port 0 --unixsocket --save '' --appendonly no");
    else
        snprintf(peer->options, sizeof(peer->options),
                 "memcached -s -m %" PRIu64 " -t 4 -R 1000; one connection", memory_bytes / MIB);
    peer->buffer = bench_alloc(1, BUFFER_BYTES);
    peer->pid = fork();
    if (peer->pid < 0)
        bench_die("fork failed");
    if (peer->pid == 0)
        run(peer);
    while ((peer->fd = connect_to(peer)) < 0) {
        if (waitpid(peer->pid, NULL, WNOHANG) == peer->pid || bench_now() - begin > START_S)
            bench_die("%s does not start; is it installed?", peer->options);
        usleep(20000);
    }
}

void peer_connect(const struct peer *started, struct peer *ret_peer)
{
    *ret_peer = *started;
    ret_peer->buffer = bench_alloc(1, BUFFER_BYTES);
    ret_peer->first = ret_peer->end = 0;
    ret_peer->fd = connect_to(started);
    if (ret_peer->fd < 0)
        bench_die("%s: %s", started->options, strerror(errno));
}

void peer_disconnect(struct peer *peer)
{
    close(peer->fd);
    free(peer->buffer);
}

void peer_stop(struct peer *peer)
{
    char path[128];

    close(peer->fd);
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/socket", peer->directory);
    unlink(path);
    rmdir(peer->directory);
    free(peer->buffer);
}

/* ---- Bytes ---- */

static void send_all(const struct peer *peer, const char *bytes, uint64_t count)
{
    while (count > 0) {
        const ssize_t sent = send(peer->fd, bytes, count, MSG_NOSIGNAL);

        if (sent < 0 && errno != EINTR)
            bench_die("%s: %s", peer->options, strerror(errno));
        bytes += MAX(sent, 0);
        count -= (uint64_t)MAX(sent, 0);
    }
}

static void receive_more(struct peer *peer)
{
    ssize_t count;

    if (peer->first == peer->end) {
        peer->first = peer->end = 0;
    } else if (peer->end == BUFFER_BYTES) {
        memmove(peer->buffer, peer->buffer + peer->first, peer->end - peer->first);
        peer->end -= peer->first;
        peer->first = 0;
    }
    count = recv(peer->fd, peer->buffer + peer->end, BUFFER_BYTES - peer->end, 0);
    if (count <= 0)
        bench_die("%s: has closed", peer->options);
    peer->end += (uint64_t)count;
}

/* Returns the next @count bytes; waits until all are there. */
static const char *take(struct peer *peer, uint64_t count)
{
    const char *bytes;

    while (peer->end - peer->first < count)
        receive_more(peer);
    bytes = peer->buffer + peer->first;
    peer->first += count;
    return bytes;
}

/* Returns a line without its end. */
static const char *take_line(struct peer *peer, uint64_t *ret_count)
{
    for (;;) {
        const uint64_t there = peer->end - peer->first;
        const char *const begin = peer->buffer + peer->first;
        const char *const end = memchr(begin, '\n', there);

        if (end) {
            *ret_count = (uint64_t)(end - begin) - 1;
            peer->first += *ret_count + 2;
            return begin;
        }
        receive_more(peer);
    }
}

static void expect(struct peer *peer, const char *wanted)
{
    uint64_t count;
    const char *const line = take_line(peer, &count);

    if (count != strlen(wanted) || memcmp(line, wanted, count) != 0)
        bench_die("%s: says '%.*s', not '%s'", peer->options, (int)count, line, wanted);
}

/* ---- Commands ---- */

void peer_fill(struct peer *peer, uint64_t rows)
{
    const uint64_t most = FILL_ROWS * (UINT64_C(128) + peer->row_bytes);
    char *const bytes = bench_alloc(1, most);
    char *const row = bench_alloc(1, peer->row_bytes);

    memset(row, 1, peer->row_bytes);
    for (uint64_t first = 0; first < rows; first += FILL_ROWS) {
        const uint64_t count = MIN(rows - first, UINT64_C(0) + FILL_ROWS);
        char *at = bytes;

        if (is_redis(peer))
            at += sprintf(at, "*%" PRIu64 "\r\n$4\r\nMSET\r\n", 2 * count + 1);
        for (uint64_t id = first; id < first + count; id++) {
            char key[KEY_BYTES];
            const int key_bytes = sprintf(key, "%" PRIu64, id);

            memcpy(row, &id, sizeof(id));
            if (is_redis(peer))
                at += sprintf(at, "$%d\r\n%s\r\n$%u\r\n", key_bytes, key, peer->row_bytes);
            else
                at += sprintf(at, "set %s 0 0 %u\r\n", key, peer->row_bytes);
            memcpy(at, row, peer->row_bytes);
            at += peer->row_bytes;
            *at++ = '\r';
            *at++ = '\n';
        }
        send_all(peer, bytes, (uint64_t)(at - bytes));
        for (uint64_t i = 0; i < (is_redis(peer) ? 1 : count); i++)
            expect(peer, is_redis(peer) ? "+OK" : "STORED");
    }
    free(bytes);
    free(row);
}

struct peer_command peer_get_command(const struct peer *peer, const uint64_t *ids, uint32_t count)
{
    struct peer_command command = { .bytes = bench_alloc(count + 2ul, 2 * KEY_BYTES),
                                    .rows = count };
    char *at = command.bytes;

    if (is_redis(peer))
        at += sprintf(at, "*%u\r\n$4\r\nMGET\r\n", count + 1);
    else
        at += sprintf(at, "get");
    for (uint32_t i = 0; i < count; i++) {
        char key[KEY_BYTES];
        const int key_bytes = sprintf(key, "%" PRIu64, ids[i]);

        if (is_redis(peer))
            at += sprintf(at, "$%d\r\n%s\r\n", key_bytes, key);
        else
            at += sprintf(at, " %s", key);
    }
    if (peer->kind == PEER_MEMCACHED)
        at += sprintf(at, "\r\n");
    command.count = (uint64_t)(at - command.bytes);
    return command;
}

void peer_send(struct peer *peer, const struct peer_command *command)
{
    send_all(peer, command->bytes, command->count);
}

void peer_receive(struct peer *peer, const struct peer_command *command, char *dest)
{
    char wanted[64];
    uint64_t count;

    if (is_redis(peer)) {
        snprintf(wanted, sizeof(wanted), "*%u", command->rows);
        expect(peer, wanted);
    }
    snprintf(wanted, sizeof(wanted), "$%u", peer->row_bytes);
    for (uint32_t i = 0; i < command->rows; i++, dest += peer->row_bytes) {
        const char *const line = take_line(peer, &count);

        const char *const begins = is_redis(peer) ? wanted : "VALUE ";

        if (count < strlen(begins) || memcmp(line, begins, strlen(begins)) != 0)
            bench_die("%s: row %u of %u is not there", peer->options, i, command->rows);
        memcpy(dest, take(peer, peer->row_bytes + 2ul), peer->row_bytes);
    }
    if (peer->kind == PEER_MEMCACHED)
        expect(peer, "END");
}
