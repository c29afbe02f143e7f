/* SPDX-License-Identifier: Apache-2.0 */
/* access_rules.h: the users of the access file, and which of them a client is.
 *
 * Rules never change; a reload makes others. Thread: any. */
#ifndef EMBTIER_DAEMON_ACCESS_ACCESS_RULES_H
#define EMBTIER_DAEMON_ACCESS_ACCESS_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macros.h"
#include "daemon/access/token_hash.h"
#include "proto/quota.h"
#include "proto/role.h"

#define ACCESS_USERS_MAX    1024
#define ACCESS_NAME_MAX     64
#define ACCESS_TOKENS_MAX   2 /* of one user: the old one and the new one of a rotation */
#define ACCESS_PATTERNS_MAX 256
#define ACCESS_IDS_MAX      256
#define ACCESS_NAMES_MAX    256 /* of certificates, of one user */

struct yaml_doc;

/* Texts belong to the rules' document. */
struct access_user {
    const char *name;
    enum role role;
    bool has_all; /* no patterns: all tables */
    char **patterns;
    uint32_t pattern_count;
    uid_t *uids;
    uint32_t uid_count;
    gid_t *gids;
    uint32_t gid_count;
    char **certificates; /* "CN=…", "DNS:…", "URI:…", "EMAIL:…" */
    uint32_t certificate_count;
    struct token_hash tokens[ACCESS_TOKENS_MAX];
    uint32_t token_count;
    uint64_t quotas[QUOTAS]; /* 0: none */
};

struct access_rules {
    struct yaml_doc *doc;
    struct access_user *users;
    uint32_t user_count;
    uint32_t holders; /* access.c, under its lock */
};

/* Reads the access file, which @config names with the key access.file. CONFIG: it cannot be opened,
 * or has a mistake; the message has file, line and key. PERMISSION: users other than root and the
 * server's may write it. Else errno's error. It may wait for a disk, and for the system's lists of
 * users and groups. @config: NULL: none, for tests. */
MUST_CHECK enum embtier_err access_rules_load(const char *path, const struct yaml_doc *config,
                                              struct access_rules **ret_rules, struct err_msg *msg);
/* The same for a text that has been read from there. */
MUST_CHECK enum embtier_err access_rules_parse(const char *path, const char *text, size_t bytes,
                                               struct access_rules **ret_rules,
                                               struct err_msg *msg);
void access_rules_free(struct access_rules *rules);
DEFINE_CLEANUP(struct access_rules, access_rules_free)

/* A client, as far as it has shown who it is. */
struct access_client {
    bool is_local; /* over a Unix socket: the ids below are its process's */
    uid_t uid;
    const gid_t *gids;
    uint32_t gid_count;
    /* Each ended by NUL, the last followed by an empty one; NULL: none. */
    const char *certificate_names;
    bool is_unasked;   /* over TLS, to a server that asks for no certificate: it has no client_ca */
    const char *token; /* "": none */
};

/* The one fact for which a client is a user. */
enum credential_kind {
    CREDENTIAL_NONE,
    CREDENTIAL_TOKEN,
    CREDENTIAL_CERTIFICATE,
    CREDENTIAL_UNIX_USER,
    CREDENTIAL_UNIX_GROUP,
};

struct access_credential {
    enum credential_kind kind;
    struct token_hash token;
    const char *certificate; /* one of the client's names, borrowed */
    uint32_t id;             /* of the Unix user or group */
};

/* Finds the client's user: by its token, if it has one; else by certificate, else by Unix user,
 * else by Unix group, the first in the file. NULL: it is none. */
const struct access_user *access_rules_find(const struct access_rules *rules,
                                            const struct access_client *client,
                                            struct access_credential *ret_credential);
/* Returns the user to which a credential of earlier rules leads by these, or NULL. */
const struct access_user *access_rules_holder(const struct access_rules *rules,
                                              const struct access_credential *credential);
/* Returns words for the kind: "token", "certificate". */
const char *credential_word(enum credential_kind kind);
const struct access_user *access_rules_named(const struct access_rules *rules, const char *name);
/* True if one of the user's patterns matches the table's name. */
bool access_user_has(const struct access_user *user, const char *table);
/* True if @pattern matches: * stands for any characters, ? for one. */
bool access_pattern_matches(const char *pattern, const char *name);

#endif
