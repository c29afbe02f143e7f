/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h: the real daemon on a temporary directory, for tests and benchmarks in C.
 *
 * Environment: EMBTIERD and EMBTIER_CLI, the programs (set by meson); EMBTIER_TEST_LANES, the
 * daemon's lanes (default 1); EMBTIER_TEST_TRANSPORT, how clients connect: shm (default), rpc (a
 * Unix socket without shared memory), tls (TLS over TCP), rpc-epoll and tls-epoll (the same, served
 * without io_uring); EMBTIER_TEST_CONNECTIONS, how many connections each of their sessions has
 * (default 1); EMBTIER_SERVER_NETWORK and EMBTIER_SERVER_HOST, the network namespace of
 * servers and their address there (network_link.py). Failures of set-up end the test program, with
 * the daemon's log. */
#ifndef EMBTIER_TESTS_INTEGRATION_HARNESS_H
#define EMBTIER_TESTS_INTEGRATION_HARNESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/include/embtier.h"

struct harness {
    char directory[64]; /* the daemon's log, configuration and rows */
    char socket[160];   /* the address for clients */
    char rpc_yaml[512]; /* for its configuration; "" with shared memory */
    pid_t pid;          /* 0: not running */
};

void harness_new(struct harness *harness); /* makes the directory, and `rows` in it for data */
/* Sets a configuration other than the usual small one. The data directory must be
 * {directory}/rows, and the socket {directory}/socket; rpc_yaml goes to the end. */
void harness_configure(const struct harness *harness, const char *yaml);
void harness_start(struct harness *harness); /* waits until the daemon serves */
void harness_stop(struct harness *harness);  /* sends SIGTERM; the daemon must end well */
void harness_kill(struct harness *harness);  /* sends SIGKILL */
void harness_done(struct harness *harness);  /* kills, and removes the directory */

void harness_show_log(const struct harness *harness); /* prints the log's end on stderr */
unsigned harness_count_logged(const struct harness *harness, const char *text); /* lines with it */

/* Connects with a small arena. */
struct embtier *harness_connect(const struct harness *harness);

/* Makes an authority, ca.crt, and a certificate for a server at @host, server.crt and server.key,
 * in the directory. */
void harness_make_certificates(const struct harness *harness, const char *host);

/* The address at which servers listen over TCP: loopback, unless they have a network of their own.
 */
const char *harness_host(void);
/* Returns how many connections a session has. */
unsigned harness_connections(const struct harness *harness);
/* Takes a child process to the servers' network. False: it cannot go there. */
bool harness_join_servers(void);

/* Runs `embtier @arguments` against the daemon and returns its exit code. @ret_output gets its
 * output and its errors, cut to fit. */
int harness_cli(const struct harness *harness, const char *arguments, char *ret_output,
                size_t output_bytes);

#endif
