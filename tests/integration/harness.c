/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/harness.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/unit/base/authority.h"

#define READY_NS        UINT64_C(60000000000)
#define LOG_SHOWN_BYTES 100000
#define LONGEST_FOLDER  40 /* of $TMPDIR, so that the names of sockets fit */

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value ? value : otherwise;
}

static FILE *open_log(const struct harness *harness)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/log", harness->directory);
    return fopen(path, "r");
}

void harness_show_log(const struct harness *harness)
{
    FILE *const log = open_log(harness);
    char line[4096];

    if (log && fseek(log, -(long)LOG_SHOWN_BYTES, SEEK_END) != 0)
        rewind(log);
    while (log && fgets(line, sizeof(line), log))
        fputs(line, stderr);
    if (log)
        fclose(log);
}

unsigned harness_count_logged(const struct harness *harness, const char *text)
{
    FILE *const log = open_log(harness);
    unsigned count = 0;
    char line[4096];

    while (log && fgets(line, sizeof(line), log))
        count += strstr(line, text) != NULL;
    if (log)
        fclose(log);
    return count;
}

/* Ends the test program, whose results would mean nothing. */
PRINTF_LIKE(2, 3) static void die(const struct harness *harness, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
    harness_show_log(harness);
    if (harness->pid > 0)
        kill(harness->pid, SIGKILL);
    exit(1);
}

void harness_configure(const struct harness *harness, const char *yaml)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/embtierd.yaml", harness->directory);
    file = fopen(path, "w");
    if (!file)
        die(harness, "cannot write %s", path);
    fputs(yaml, file);
    if (fclose(file) != 0)
        die(harness, "cannot write %s", path);
}

static void write_usual_config(const struct harness *harness)
{
    const unsigned long lanes = strtoul(environment("EMBTIER_TEST_LANES", "1"), NULL, 10);
    char yaml[1024];

    snprintf(yaml, sizeof(yaml),
             "data:\n  directories: [%s/rows]\n  shards_per_directory: 8\n"
             "lanes:\n  count: %lu\n  readers_per_lane: 2\n  write_queue_bytes: 16MiB\n"
             "cache:\n  tiers:\n    - {name: dram, kind: dram, bytes: %luMiB}\n"
             "rocksdb:\n  memtable_bytes: 16MiB\n  metadata_cache_bytes: 8MiB\n"
             "socket:\n  path: %s/socket\n"
             "%s",
             harness->directory, lanes, 4 * lanes, harness->directory, harness->rpc_yaml);
    harness_configure(harness, yaml);
}

void harness_make_certificates(const struct harness *harness, const char *host)
{
    struct holder authority, server;
    char alternative[64], path[128];

    snprintf(alternative, sizeof(alternative), "IP:%s", host);
    authority = holder_make("authority", NULL, NULL, 0, 86400);
    server = holder_make("server", &authority, alternative, 0, 86400);
    snprintf(path, sizeof(path), "%s/ca.crt", harness->directory);
    write_certificates(path, &authority, NULL);
    snprintf(path, sizeof(path), "%s/server.crt", harness->directory);
    write_certificates(path, &server, NULL);
    snprintf(path, sizeof(path), "%s/server.key", harness->directory);
    write_key(path, &server);
    holder_free(&authority);
    holder_free(&server);
}

/* TLS over TCP. No other process on this host listens at the number, which has the process's in it.
 */
static void choose_tls(struct harness *harness, bool io_uring)
{
    const unsigned pid = (unsigned)getpid(), port = 20000 + pid % 10000;
    char host[32];

    snprintf(host, sizeof(host), "127.%u.%u.%u", pid >> 16 & 127, pid >> 8 & 255, (pid & 255) | 1);
    harness_make_certificates(harness, host);
    snprintf(harness->socket, sizeof(harness->socket), "tls://%s:%u?ca=%s/ca.crt", host, port,
             harness->directory);
    snprintf(harness->rpc_yaml, sizeof(harness->rpc_yaml),
             "rpc:\n  listen: [\"tls://%s:%u\"]\n  io_uring: %s\n"
             "tls:\n  certificate: %s/server.crt\n  key: %s/server.key\n",
             host, port, io_uring ? "auto" : "off", harness->directory, harness->directory);
}

static void choose_kind(struct harness *harness)
{
    const char *const transport = environment("EMBTIER_TEST_TRANSPORT", "shm");

    if (strcmp(transport, "shm") == 0) {
        snprintf(harness->socket, sizeof(harness->socket), "%s/socket", harness->directory);
        return;
    }
    if (strncmp(transport, "tls", 3) == 0) {
        choose_tls(harness, strcmp(transport, "tls-epoll") != 0);
        return;
    }
    snprintf(harness->socket, sizeof(harness->socket), "unix+rpc:%s/rpc", harness->directory);
    snprintf(harness->rpc_yaml, sizeof(harness->rpc_yaml),
             "rpc:\n  listen: [\"unix+rpc:%s/rpc\"]\n  io_uring: %s\n", harness->directory,
             strcmp(transport, "rpc-epoll") == 0 ? "off" : "auto");
}

static void choose_transport(struct harness *harness)
{
    const char *const connections = getenv("EMBTIER_TEST_CONNECTIONS");
    size_t used;

    choose_kind(harness);
    used = strlen(harness->socket);
    if (connections && harness->rpc_yaml[0])
        snprintf(harness->socket + used, sizeof(harness->socket) - used, "%cconnections=%s",
                 strchr(harness->socket, '?') ? '&' : '?', connections);
}

void harness_new(struct harness *harness)
{
    const char *const given = getenv("TMPDIR");
    char path[128];

    *harness = (struct harness){ 0 };
    snprintf(harness->directory, sizeof(harness->directory), "%s/embtier-test-XXXXXX",
             given && strlen(given) <= LONGEST_FOLDER ? given : "/tmp");
    if (!mkdtemp(harness->directory))
        die(harness, "cannot make %s", harness->directory);
    choose_transport(harness);
    snprintf(path, sizeof(path), "%s/rows", harness->directory);
    if (mkdir(path, 0700) != 0)
        die(harness, "cannot make %s", path);
    write_usual_config(harness);
}

unsigned harness_connections(const struct harness *harness)
{
    const char *const found = strstr(harness->socket, "connections=");

    return found ? (unsigned)strtoul(strchr(found, '=') + 1, NULL, 10) : 1;
}

const char *harness_host(void)
{
    return environment("EMBTIER_SERVER_HOST", "127.0.0.1");
}

bool harness_join_servers(void)
{
    const char *const network = getenv("EMBTIER_SERVER_NETWORK");
    bool has_joined;
    int fd;

    if (!network)
        return true;
    fd = open(network, O_RDONLY | O_CLOEXEC);
    has_joined = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0)
        close(fd);
    return has_joined;
}

static void run_daemon(const struct harness *harness)
{
    const char *program = environment("EMBTIERD", "build/daemon/embtierd");
    char config[128];
    char path[128];
    int log;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(config, sizeof(config), "%s/embtierd.yaml", harness->directory);
    snprintf(path, sizeof(path), "%s/log", harness->directory);
    log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0 || dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0)
        _exit(126);
    if (!harness_join_servers())
        _exit(125);
    execl(program, program, "--init", "--config", config, (char *)NULL);
    _exit(127);
}

void harness_start(struct harness *harness)
{
    const uint64_t begin_ns = clock_now_ns(&clock_monotonic);
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server;

    harness->pid = fork();
    if (harness->pid < 0)
        die(harness, "fork failed");
    if (harness->pid == 0)
        run_daemon(harness);
    options.socket_path = harness->socket;
    options.arena_bytes = 0;
    while (embtier_connect(&options, &server) != EMBTIER_OK) {
        int status;

        if (waitpid(harness->pid, &status, WNOHANG) == harness->pid) {
            harness->pid = 0;
            die(harness, "the daemon ended while starting, status %d", status);
        }
        if (clock_now_ns(&clock_monotonic) - begin_ns > READY_NS)
            die(harness, "the daemon is not ready: %s", embtier_message(NULL));
        usleep(20000);
    }
    embtier_disconnect(server);
}

static int end_daemon(struct harness *harness, int signal_number)
{
    int status = 0;

    if (harness->pid <= 0)
        return 0;
    kill(harness->pid, signal_number);
    if (waitpid(harness->pid, &status, 0) != harness->pid)
        die(harness, "cannot wait for the daemon");
    harness->pid = 0;
    return status;
}

void harness_stop(struct harness *harness)
{
    const int status = end_daemon(harness, SIGTERM);

    if (status != 0)
        die(harness, "the daemon did not end well, status %d", status);
}

void harness_kill(struct harness *harness)
{
    (void)end_daemon(harness, SIGKILL);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

void harness_done(struct harness *harness)
{
    harness_kill(harness);
    nftw(harness->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

struct embtier *harness_connect(const struct harness *harness)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;

    options.socket_path = harness->socket;
    options.arena_bytes = 16 << 20;
    options.timeout_ms = 0; /* no timeout, since a busy machine may need any time */
    if (embtier_connect(&options, &server) != EMBTIER_OK)
        die(harness, "cannot connect: %s", embtier_message(NULL));
    return server;
}

int harness_cli(const struct harness *harness, const char *arguments, char *ret_output,
                size_t output_bytes)
{
    char command[4096];
    size_t used = 0;
    size_t count;
    FILE *pipe;
    int status;

    snprintf(command, sizeof(command),
             "EMBTIER_SOCKET='%s' EMBTIER_CLI=%s; export EMBTIER_SOCKET EMBTIER_CLI;"
             " \"$EMBTIER_CLI\" -t 0 %s 2>&1", /* no timeout, as in harness_connect() */
             harness->socket, environment("EMBTIER_CLI", "build/tools/embtier"), arguments);
    pipe = popen(command, "r"); // NOLINT(cert-env33-c): the test's own words
    if (!pipe)
        die(harness, "cannot run %s", command);
    while ((count = fread(ret_output + used, 1, output_bytes - 1 - used, pipe)) > 0)
        used += count;
    ret_output[used] = '\0';
    status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
