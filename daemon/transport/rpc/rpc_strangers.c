/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc_strangers.h"

#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/macros.h"

void rpc_strangers_init(struct rpc_strangers *strangers, struct strangers *all, uint32_t most,
                        uint32_t loop_count)
{
    *strangers = (struct rpc_strangers){ .all = all,
                                         .most = most,
                                         .share = MAX(most / loop_count, (uint32_t)1) };
    /* Without it, lines are as good for all but those who know this code. */
    (void)!getrandom(&strangers->secret, sizeof(strangers->secret), GRND_NONBLOCK);
    for (uint32_t i = 0; i < RPC_STRANGER_LINES; i++)
        strangers->lines[i].end = &strangers->lines[i].oldest;
}

/* ---- Addresses ---- */

/* Returns what all addresses have in common that one host may have. */
static uint64_t host_of(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *const v4 = (const struct sockaddr_in *)address;
    const struct in6_addr *const v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    uint64_t host = 0;

    if (address->ss_family == AF_INET)
        memcpy(&host, &v4->sin_addr, sizeof(v4->sin_addr));
    else if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        memcpy(&host, &v6->s6_addr[12], 4);
    else if (address->ss_family == AF_INET6)
        memcpy(&host, v6->s6_addr, sizeof(host));
    return host;
}

/* Clients of a Unix socket have their users. */
static uint64_t origin_of(int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t bytes = sizeof(address);
    struct ucred user = { 0 };
    socklen_t user_bytes = sizeof(user);

    if (getpeername(fd, (struct sockaddr *)&address, &bytes) != 0)
        return 0;
    if (address.ss_family == AF_UNIX &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &user_bytes) == 0)
        return user.uid;
    return host_of(&address);
}

/* The finalizer of splitmix64: each bit of the origin and of the secret changes the line. */
static uint32_t line_of(const struct rpc_strangers *strangers, uint64_t origin)
{
    uint64_t bits = origin ^ strangers->secret;

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((bits ^ bits >> 31) % RPC_STRANGER_LINES);
}

/* ---- Lines ---- */

void rpc_strangers_add(struct rpc_strangers *strangers, struct rpc_stranger *stranger, int fd)
{
    struct rpc_stranger_line *line;

    assert(!stranger->link);
    stranger->line = line_of(strangers, origin_of(fd));
    stranger->number = ++strangers->last_number;
    line = &strangers->lines[stranger->line];
    stranger->next = NULL;
    stranger->link = line->end;
    *line->end = stranger;
    line->end = &stranger->next;
    line->count++;
    strangers->count++;
    atomic_fetch_add(&strangers->all->now, 1);
}

void rpc_strangers_remove(struct rpc_strangers *strangers, struct rpc_stranger *stranger)
{
    struct rpc_stranger_line *const line = &strangers->lines[stranger->line];

    if (!stranger->link)
        return;
    *stranger->link = stranger->next;
    if (stranger->next)
        stranger->next->link = stranger->link;
    else
        line->end = stranger->link;
    stranger->link = NULL;
    assert(line->count > 0 && strangers->count > 0);
    line->count--;
    strangers->count--;
    atomic_fetch_sub(&strangers->all->now, 1);
}

bool rpc_strangers_are_full(const struct rpc_strangers *strangers)
{
    return strangers->count >= strangers->share &&
           atomic_load(&strangers->all->now) >= strangers->most;
}

/* True if @a is to go rather than @b. */
static bool goes_first(const struct rpc_strangers *strangers, const struct rpc_stranger *a,
                       const struct rpc_stranger *b)
{
    const uint32_t a_count = strangers->lines[a->line].count;
    const uint32_t b_count = strangers->lines[b->line].count;

    return a_count > b_count || (a_count == b_count && a->number < b->number);
}

struct rpc_stranger *rpc_strangers_first(const struct rpc_strangers *strangers)
{
    struct rpc_stranger *first = NULL;

    for (uint32_t i = 0; i < RPC_STRANGER_LINES; i++) {
        struct rpc_stranger *const oldest = strangers->lines[i].oldest;

        if (oldest && (!first || goes_first(strangers, oldest, first)))
            first = oldest;
    }
    assert(first);
    return first;
}
