/* SPDX-License-Identifier: Apache-2.0 */
/* rights.h: what one user may do now, in the form that a lane reads for each request.
 *
 * There is one bit for each table and use. A lane looks it up by the index of the table that it has
 * entered, so a guessed handle is of no use. The role and the grant were compared with the needs
 * when the bit was set. So one load decides, also while the rights change.
 *
 * Thread: access.c changes them under its lock; any thread reads them. */
#ifndef EMBTIER_DAEMON_ACCESS_RIGHTS_H
#define EMBTIER_DAEMON_ACCESS_RIGHTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/role.h"

#define RIGHTS_TABLES 65536 /* a table's index has 16 bits */
#define RIGHTS_WORDS  (RIGHTS_TABLES / 64)

/* Uses of a table, and the least role for each. */
enum rights_use { RIGHTS_READ, RIGHTS_CHANGE, RIGHTS_USES };

struct rights {
    _Atomic uint32_t role;     /* enum role */
    _Atomic uint64_t refusals; /* of requests, by lanes */
    /* Requests for rows in a second: the time that each takes of it, 0: there is no limit; and when
     * those that have begun have had their time. */
    _Atomic uint64_t interval_ns;
    _Atomic uint64_t due_ns;
    /* Bytes of requests under way: the most that there may be, 0: there is no limit; and those of
     * the requests that began while there was one. */
    _Atomic uint64_t most_bytes;
    _Atomic uint64_t bytes;
    _Atomic uint64_t tables[RIGHTS_USES][RIGHTS_WORDS];
};

/* Returns the rights of a client that may do all. */
struct rights *rights_everything(void);

static inline enum role rights_role(const struct rights *rights)
{
    return (enum role)atomic_load_explicit(&rights->role, memory_order_relaxed);
}

static inline enum rights_use rights_use_of(enum role role)
{
    return role > ROLE_READ ? RIGHTS_CHANGE : RIGHTS_READ;
}

/* True if table number @index may be used so. The caller has entered the table. */
static inline bool rights_allow(const struct rights *rights, uint16_t index, enum rights_use use)
{
    return atomic_load_explicit(&rights->tables[use][index / 64], memory_order_relaxed) >>
               (index % 64) &
           1;
}

/* True if another request may begin at @now_ns. After a pause as many may begin at once as a second
 * has. */
bool rights_begin(struct rights *rights, uint64_t now_ns);
static inline bool rights_are_paced(const struct rights *rights)
{
    return atomic_load_explicit(&rights->interval_ns, memory_order_relaxed) != 0;
}
/* Returns the limit. */
uint64_t rights_per_second(const struct rights *rights);
/* Sets it; 0: none. */
void rights_pace(struct rights *rights, uint64_t per_second);

/* Returns how many bytes of requests may be under way; 0: there is no limit. */
static inline uint64_t rights_most_bytes(const struct rights *rights)
{
    return atomic_load_explicit(&rights->most_bytes, memory_order_relaxed);
}
/* Sets it. Requests that are under way, and were not counted, are not counted later either. */
void rights_limit_bytes(struct rights *rights, uint64_t most);
/* False: there would be too many. */
MUST_CHECK bool rights_take_bytes(struct rights *rights, uint64_t bytes);
void rights_give_bytes(struct rights *rights, uint64_t bytes);
/* Returns how many are under way. */
static inline uint64_t rights_bytes(const struct rights *rights)
{
    return atomic_load_explicit(&rights->bytes, memory_order_relaxed);
}

/* Counts a refusal. */
static inline void rights_note_refusal(struct rights *rights)
{
    atomic_fetch_add_explicit(&rights->refusals, 1, memory_order_relaxed);
}

/* Sets or clears the bits of table number @index, for the role that the rights have. */
void rights_set(struct rights *rights, uint16_t index, bool is_granted);
/* Takes another role, and the grants whose words are at @granted. NULL: none. */
void rights_replace(struct rights *rights, enum role role, const uint64_t *granted);

#endif
