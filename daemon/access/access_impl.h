/* SPDX-License-Identifier: Apache-2.0 */
/* access_impl.h: what is in force, for access.c and access_reload.c alone. Fields are guarded by
 * the lock, unless they say otherwise. */
#ifndef EMBTIER_DAEMON_ACCESS_ACCESS_IMPL_H
#define EMBTIER_DAEMON_ACCESS_ACCESS_IMPL_H

#include <pthread.h>

#include "daemon/access/access.h"
#include "daemon/access/rights.h"

struct access_member {
    struct rights rights;
    struct access_member *next;
    const struct access_user *user;     /* in the rules that are in force; NULL: none any more */
    const struct access_user *in_lanes; /* the user whose grants the rights have; during a reload
                                           that may be the one of the fresh rules */
    bool is_held;                       /* a reload has it, so it is not freed */
    uint64_t account;
    uint32_t sessions;
    uint64_t told_refusals; /* those of the rights that have been logged */
    char name[ACCESS_NAME_MAX + 1];
};

/* A member that a reload changes, and its user by the fresh rules, or NULL. */
struct change {
    struct access_member *member;
    const struct access_user *user;
};

/* Rules that are about to be taken. The reload's thread alone uses it, but for `granted` and
 * `named`, which are guarded by the access's lock. */
struct fresh {
    struct access_rules *rules;
    const struct access_user **sorted; /* the users, by name */
    struct access_member **members;    /* of the users, by number; new ones until they are taken */
    uint64_t (*granted)[RIGHTS_WORDS]; /* the tables of each user */
    uint64_t named[RIGHTS_WORDS];      /* tables whose bits in `granted` are newer than what the
                                          reload works out */
    struct change *changes;
    uint32_t change_count;
};

struct access {
    const char *path;              /* NULL: there are no users, and all may do all; constant */
    const struct yaml_doc *config; /* which names the file; constant */
    pthread_mutex_t lock;
    struct access_rules *rules;
    struct access_member **of_users; /* the members of the rules' users, by number */
    struct access_member *members;   /* all: those, and those with sessions */
    uint32_t member_count;
    struct fresh *fresh; /* while a reload prepares it and takes it; else NULL */
    char **tables;       /* their names, by index; of tables that were dropped too */
    uint64_t last_account;
    uint64_t taken;    /* files that were put in force */
    uint64_t refusals; /* without those in the members' rights */
};

/* Notes another holder of the rules (may be NULL). Locked. */
struct access_rules *access_hold_rules(struct access_rules *rules);
/* Frees members that neither rules nor sessions nor a reload need. Locked. */
void access_forget_members(struct access *access);
/* Returns the number of a user of the rules. */
static inline uint32_t access_user_number(const struct access_rules *rules,
                                          const struct access_user *user)
{
    return (uint32_t)(user - rules->users);
}

#endif
