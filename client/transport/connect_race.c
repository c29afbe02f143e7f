/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/connect_race.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_MS     UINT64_C(1000000)
#define HEAD_START_NS (250 * NS_PER_MS) /* as RFC 8305 recommends */

struct attempt {
    const struct addrinfo *to;
    int error; /* 0: it has not failed */
};

struct race {
    struct attempt attempts[CONNECT_RACE_MAX];
    struct pollfd fds[CONNECT_RACE_MAX]; /* of the attempts; -1: not under way */
    uint32_t count, begun;
    uint64_t next_ns; /* when the next one may begin */
    uint64_t deadline_ns;
    int winner; /* descriptor; -1: none yet */
};

/* ---- The order ---- */

static const struct addrinfo *next_of(const struct addrinfo *at, int family, bool is_of_it)
{
    while (at && (at->ai_family == family) != is_of_it)
        at = at->ai_next;
    return at;
}

/* Lets the first address's family and the others take turns. */
static void line_up(struct race *race, const struct addrinfo *found)
{
    const struct addrinfo *next[2] = { found, next_of(found, found->ai_family, false) };

    while (race->count < CONNECT_RACE_MAX && (next[0] || next[1])) {
        const uint32_t turn = next[race->count % 2] ? race->count % 2 : 1 - race->count % 2;

        race->fds[race->count].fd = -1;
        race->fds[race->count].events = POLLOUT;
        race->attempts[race->count++].to = next[turn];
        next[turn] = next_of(next[turn]->ai_next, found->ai_family, turn == 0);
    }
}

/* ---- Attempts ---- */

static void fail(struct race *race, uint32_t i, int error)
{
    race->attempts[i].error = error;
    closep(&race->fds[i].fd);
    race->fds[i].fd = -1;
    race->next_ns = 0;
}

static void win(struct race *race, uint32_t i)
{
    race->winner = TAKE_FD(race->fds[i].fd);
}

static void begin(struct race *race, uint64_t now_ns)
{
    const uint32_t i = race->begun++;
    const struct addrinfo *const to = race->attempts[i].to;
    int rc;

    race->next_ns = now_ns + HEAD_START_NS;
    race->fds[i].fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (race->fds[i].fd < 0) {
        fail(race, i, errno);
        return;
    }
    do
        rc = connect(race->fds[i].fd, to->ai_addr, to->ai_addrlen);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EISCONN)
        win(race, i);
    else if (errno != EINPROGRESS && errno != EALREADY)
        fail(race, i, errno);
}

static void look_at(struct race *race, uint32_t i)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);

    if (race->fds[i].fd < 0 || race->fds[i].revents == 0)
        return;
    if (getsockopt(race->fds[i].fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
        error = errno;
    if (error != 0)
        fail(race, i, error);
    else if (race->winner < 0)
        win(race, i);
}

static bool is_any_under_way(const struct race *race)
{
    for (uint32_t i = 0; i < race->begun; i++)
        if (race->fds[i].fd >= 0)
            return true;
    return false;
}

/* Waits until an attempt ends, or the next may begin. */
static enum embtier_err await(struct race *race, uint64_t now_ns, struct err_msg *msg)
{
    const uint64_t next_ns = race->begun < race->count ? race->next_ns : UINT64_MAX;
    const uint64_t until_ns = MIN(next_ns, race->deadline_ns);
    const uint64_t left_ms = div_round_up(until_ns - MIN(until_ns, now_ns), NS_PER_MS);
    const int wait_ms = until_ns == UINT64_MAX ? -1 : (int)MIN(left_ms, (uint64_t)INT32_MAX);

    if (poll(race->fds, race->begun, wait_ms) < 0)
        return errno == EINTR ? EMBTIER_OK
                              : err_set_errno(msg, errno, "cannot wait for the server");
    for (uint32_t i = 0; i < race->begun; i++)
        look_at(race, i);
    return EMBTIER_OK;
}

/* Runs until an attempt has won, all have failed, or the time is over. */
static enum embtier_err run(struct race *race, struct err_msg *msg)
{
    for (;;) {
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (race->begun < race->count && (now_ns >= race->next_ns || !is_any_under_way(race)))
            begin(race, now_ns);
        else if (!is_any_under_way(race) || now_ns >= race->deadline_ns)
            return EMBTIER_OK;
        else
            TRY(await(race, now_ns, msg));
        if (race->winner >= 0)
            return EMBTIER_OK;
    }
}

/* ---- The end ---- */

static const char *reason(const struct attempt *attempt)
{
    if (attempt->error == 0)
        return "has not accepted the connection in time";
    return strerror(attempt->error); // NOLINT(concurrency-mt-unsafe)
}

static void add_reason(const struct race *race, uint32_t i, struct err_msg *msg)
{
    const struct addrinfo *const to = race->attempts[i].to;
    char number[NI_MAXHOST];

    if (race->count == 1)
        err_append(msg, ": %s", reason(&race->attempts[i]));
    else if (getnameinfo(to->ai_addr, to->ai_addrlen, number, sizeof(number), NULL, 0,
                         NI_NUMERICHOST) == 0)
        err_append(msg, "%s %s: %s", i == 0 ? ":" : ";", number, reason(&race->attempts[i]));
}

static enum embtier_err lost(const struct race *race, const char *text, struct err_msg *msg)
{
    const bool is_late = is_any_under_way(race);

    err_write(msg, "no embtierd answers at %s", text);
    for (uint32_t i = 0; i < race->begun; i++)
        add_reason(race, i, msg);
    return is_late ? EMBTIER_TIMEOUT : EMBTIER_UNREACHABLE;
}

enum embtier_err connect_race(const struct addrinfo *found, const char *text, uint64_t deadline_ns,
                              int *ret_fd, struct err_msg *msg)
{
    struct race race = { .deadline_ns = deadline_ns, .winner = -1 };
    enum embtier_err err;

    line_up(&race, found);
    err = run(&race, msg);
    if (err == EMBTIER_OK && race.winner < 0)
        err = lost(&race, text, msg);
    for (uint32_t i = 0; i < race.begun; i++)
        closep(&race.fds[i].fd);
    if (err == EMBTIER_OK)
        *ret_fd = race.winner;
    return err;
}
