/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the access file into rules. Each value is checked here, and each fault names its line. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embtier_types.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "daemon/access/access_rules.h"

/* ---- The schema ---- */

struct raw_list {
    char **items;
    uint32_t items_count;
};

/* Each value as it was written; NULL where it is missing. */
struct raw_quotas {
#define X(key, unit) char *key;
    QUOTA_TABLE(X)
#undef X
};

struct raw_user {
    char *name;
    char *role;
    struct raw_list tables;
    struct raw_list unix_users;
    struct raw_list unix_groups;
    struct raw_list certificates;
    struct raw_list tokens;
    struct raw_quotas *quotas;
};

struct raw_file {
    struct raw_user *users;
    uint32_t users_count;
};

#define FLAGS      (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER_NULL_STR)
#define LIST_FLAGS (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)
#define TEXT(key)  CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_user, key, 0, CYAML_UNLIMITED)
/* A list that is there has items: an empty `tables` could mean all of them or none.
 */
#define LIST(key, most)                                                                            \
    CYAML_FIELD_SEQUENCE(#key, LIST_FLAGS, struct raw_user, key.items, &text_schema, 1, most)

static const cyaml_schema_value_t text_schema = { CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0,
                                                                     CYAML_UNLIMITED) };
static const cyaml_schema_field_t quotas_fields[] = {
#define X(key, unit)                                                                               \
    CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_quotas, key, 0, CYAML_UNLIMITED),
    QUOTA_TABLE(X)
#undef X
        CYAML_FIELD_END
};
static const cyaml_schema_field_t user_fields[] = {
    TEXT(name),
    TEXT(role),
    LIST(tables, ACCESS_PATTERNS_MAX),
    LIST(unix_users, ACCESS_IDS_MAX),
    LIST(unix_groups, ACCESS_IDS_MAX),
    LIST(certificates, ACCESS_NAMES_MAX),
    LIST(tokens, ACCESS_TOKENS_MAX),
    CYAML_FIELD_MAPPING_PTR("quotas", LIST_FLAGS, struct raw_user, quotas, quotas_fields),
    CYAML_FIELD_END
};
static const cyaml_schema_value_t user_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_user, user_fields) };
static const cyaml_schema_field_t file_fields[] = {
    CYAML_FIELD_SEQUENCE("users", FLAGS, struct raw_file, users, &user_schema, 0, ACCESS_USERS_MAX),
    CYAML_FIELD_END
};
static const cyaml_schema_value_t file_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_POINTER, struct raw_file, file_fields) };

/* ---- Reading ---- */

static enum embtier_err check_writers(const char *path, const struct stat *info,
                                      struct err_msg *msg)
{
    const char *why = NULL;

    if (!S_ISREG(info->st_mode))
        return err_set(msg, EMBTIER_CONFIG, "%s: the access file must be a regular file", path);
    if (info->st_uid != 0 && info->st_uid != geteuid())
        why = "belongs to a user that is neither root nor the server's";
    else if (info->st_mode & S_IWOTH)
        why = "may be written by all users";
    else if ((info->st_mode & S_IWGRP) && info->st_gid != 0 && info->st_gid != getegid())
        why = "may be written by a group that is neither root's nor the server's";
    if (!why)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "%s %s, so others could give themselves any role; chown it to root and chmod it "
                   "to 0640",
                   path, why);
}

/* Reads at most one byte more than a document may have, so that the parser refuses a longer one. */
static enum embtier_err read_all(FILE *file, const char *path, char **ret_text, size_t *ret_bytes,
                                 struct err_msg *msg)
{
    _cleanup_(freep) char *text = malloc(YAML_DOC_BYTES_MAX + 1);

    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    *ret_bytes = fread(text, 1, YAML_DOC_BYTES_MAX + 1, file);
    if (ferror(file))
        return err_set_errno(msg, errno, "%s", path);
    *ret_text = TAKE(text);
    return EMBTIER_OK;
}

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

/* Looks at the file that it has opened, so that no other can take its place in between. Does not
 * wait for the other end of a pipe. */
static enum embtier_err read_file(const char *path, const struct yaml_doc *config, char **ret_text,
                                  size_t *ret_bytes, struct err_msg *msg)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    _cleanup_(close_file) FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    struct stat info;

    if (!file || fstat(fd, &info) != 0)
        return yaml_doc_mistake(config, "access.file", msg, "cannot read %s: %s", path,
                                strerrordesc_np(errno));
    TRY(check_writers(path, &info, msg));
    return read_all(file, path, ret_text, ret_bytes, msg);
}

/* ---- Values ---- */

/* The user that is being read. */
struct reading {
    struct access_rules *rules;
    struct access_user *user;
    const struct raw_user *raw;
    uint32_t number;
    struct err_msg *msg;
};

/* A key's path: "users[3].tokens[1]". */
struct key_text {
    char text[80];
};

static const char *key_of(const struct reading *r, const char *key, struct key_text *buffer)
{
    snprintf(buffer->text, sizeof(buffer->text), "users[%" PRIu32 "].%s", r->number, key);
    return buffer->text;
}

static const char *item_of(const struct reading *r, const char *key, uint32_t item,
                           struct key_text *buffer)
{
    snprintf(buffer->text, sizeof(buffer->text), "users[%" PRIu32 "].%s[%" PRIu32 "]", r->number,
             key, item);
    return buffer->text;
}

#define KEY(r, key)          key_of((r), (key), &(struct key_text){ { 0 } })
#define ITEM(r, key, item)   item_of((r), (key), (item), &(struct key_text){ { 0 } })
#define MISTAKE(r, key, ...) yaml_doc_mistake((r)->rules->doc, (key), (r)->msg, __VA_ARGS__)

/* For each user that was read before, and of which the condition holds. */
#define EARLIER(r, other, condition)                                                               \
    for (const struct access_user *other = (r)->rules->users; other < (r)->user; other++)          \
        if (condition)

static bool user_name_is_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@-";
    const size_t length = strnlen(name, ACCESS_NAME_MAX + 1);
    const char first = (char)(name[0] | 0x20); /* in lower case, if it is a letter */

    /* Not a digit first, so that no name looks like the number of a Unix user. */
    return length > 0 && length <= ACCESS_NAME_MAX && first >= 'a' && first <= 'z' &&
           strspn(name, allowed) == length;
}

static enum embtier_err take_name(struct reading *r)
{
    const char *const name = r->raw->name;

    if (!name)
        return MISTAKE(r, KEY(r, "name"), "is missing; allowed: a name that no other user has");
    if (!user_name_is_valid(name))
        return MISTAKE(r, KEY(r, "name"),
                       "`%s`; allowed: 1 to %d of A-Z a-z 0-9 _ . @ -, a letter first",
                       TEXT_SHOWN(name), ACCESS_NAME_MAX);
    EARLIER(r, other, other->name && strcmp(other->name, name) == 0)
    return MISTAKE(r, KEY(r, "name"), "`%s` is the name of an earlier user too", name);
    r->user->name = name;
    return EMBTIER_OK;
}

static enum embtier_err take_role(struct reading *r)
{
    if (!r->raw->role)
        return MISTAKE(r, KEY(r, "role"), "is missing; allowed: read, train, admin");
    if (!role_parse(r->raw->role, &r->user->role))
        return MISTAKE(r, KEY(r, "role"), "`%s`; allowed: read, train, admin",
                       TEXT_SHOWN(r->raw->role));
    return EMBTIER_OK;
}

/* Without the key a user has all tables. */
static enum embtier_err take_tables(struct reading *r)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-*?";
    const struct raw_list *const list = &r->raw->tables;

    r->user->patterns = list->items;
    r->user->pattern_count = list->items_count;
    r->user->has_all = list->items_count == 0;
    for (uint32_t i = 0; i < list->items_count; i++) {
        const char *const pattern = list->items[i];
        const size_t length = strlen(pattern);

        if (length == 0 || length > EMBTIER_TABLE_NAME_MAX || strspn(pattern, allowed) != length)
            return MISTAKE(
                r, ITEM(r, "tables", i),
                "`%s` matches no table; allowed: 1 to %d of A-Z a-z 0-9 _ . -, * for any "
                "characters, and ? for one",
                TEXT_SHOWN(pattern), EMBTIER_TABLE_NAME_MAX);
        r->user->has_all |= strcmp(pattern, "*") == 0;
    }
    return EMBTIER_OK;
}

/* Reads a number below 2^32 - 1, which stands for none. */
static bool parse_id(const char *text, uint32_t *ret_id)
{
    unsigned long long number;

    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    number = strtoull(text, NULL, 10);
    if (errno != 0 || number >= UINT32_MAX)
        return false;
    *ret_id = (uint32_t)number;
    return true;
}

/* Memory for the system's answers about a user or group with many members. */
#define LOOKUP_BYTES (256 * KIB)

/* Finds the user's number. Returns errno's number, or 0; the outcome is then in @ret_found. */
static int look_up_user(const char *name, char *memory, bool *ret_found, uint32_t *ret_id)
{
    struct passwd entry, *found = NULL;
    const int rc = getpwnam_r(name, &entry, memory, LOOKUP_BYTES, &found);

    *ret_found = found != NULL;
    *ret_id = found ? found->pw_uid : 0;
    return rc;
}

static int look_up_group(const char *name, char *memory, bool *ret_found, uint32_t *ret_id)
{
    struct group entry, *found = NULL;
    const int rc = getgrnam_r(name, &entry, memory, LOOKUP_BYTES, &found);

    *ret_found = found != NULL;
    *ret_id = found ? found->gr_gid : 0;
    return rc;
}

typedef int look_up_fn(const char *name, char *memory, bool *ret_found, uint32_t *ret_id);

/* Reads the item as a number, or as a name that this machine knows. */
static enum embtier_err take_id(const struct reading *r, const char *key, uint32_t item,
                                const char *text, look_up_fn *look_up, uint32_t *ret_id)
{
    _cleanup_(freep) char *memory = malloc(LOOKUP_BYTES);
    bool found = false;
    int rc;

    if (parse_id(text, ret_id))
        return EMBTIER_OK;
    if (!memory)
        return err_set(r->msg, EMBTIER_NO_MEMORY, "access file: out of memory");
    rc = look_up(text, memory, &found, ret_id);
    if (found)
        return EMBTIER_OK;
    return MISTAKE(r, ITEM(r, key, item),
                   "`%s` is no %s of this machine%s%s; allowed: a name or a number",
                   TEXT_SHOWN(text), look_up == look_up_user ? "user" : "group",
                   rc != 0 ? ": " : "", rc != 0 ? strerrordesc_np(rc) : "");
}

/* Reads a list of ids into a malloced array. */
static enum embtier_err take_ids(const struct reading *r, const char *key,
                                 const struct raw_list *list, look_up_fn *look_up,
                                 uint32_t **ret_ids, uint32_t *ret_count)
{
    if (list->items_count == 0)
        return EMBTIER_OK;
    *ret_ids = calloc(list->items_count, sizeof(**ret_ids)); /* the user's from here on */
    if (!*ret_ids)
        return err_set(r->msg, EMBTIER_NO_MEMORY, "access file: out of memory");
    for (uint32_t i = 0; i < list->items_count; i++)
        TRY(take_id(r, key, i, list->items[i], look_up, &(*ret_ids)[i]));
    *ret_count = list->items_count;
    return EMBTIER_OK;
}

_Static_assert(sizeof(uid_t) == sizeof(uint32_t) && sizeof(gid_t) == sizeof(uint32_t),
               "ids of users and groups are read alike");

static bool has_uid(const struct access_user *user, uid_t uid)
{
    for (uint32_t i = 0; i < user->uid_count; i++)
        if (user->uids[i] == uid)
            return true;
    return false;
}

/* A Unix user is one user here. A group may belong to several: the first in the file counts. */
static enum embtier_err take_unix(struct reading *r)
{
    struct access_user *const user = r->user;

    TRY(take_ids(r, "unix_users", &r->raw->unix_users, look_up_user, &user->uids,
                 &user->uid_count));
    for (uint32_t i = 0; i < user->uid_count; i++)
        EARLIER(r, other, has_uid(other, user->uids[i]))
    return MISTAKE(r, ITEM(r, "unix_users", i), "the user %" PRIu32 " is %s's already",
                   user->uids[i], other->name);
    return take_ids(r, "unix_groups", &r->raw->unix_groups, look_up_group, &user->gids,
                    &user->gid_count);
}

static bool certificate_is_valid(const char *name)
{
    static const char *const prefixes[] = { "CN=", "DNS:", "URI:", "EMAIL:" };

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return name[strlen(prefixes[i])] != '\0' && text_is_plain(name, strlen(name));
    return false;
}

static bool has_certificate(const struct access_user *user, const char *name)
{
    for (uint32_t i = 0; i < user->certificate_count; i++)
        if (strcmp(user->certificates[i], name) == 0)
            return true;
    return false;
}

static enum embtier_err take_certificates(struct reading *r)
{
    const struct raw_list *const list = &r->raw->certificates;

    for (uint32_t i = 0; i < list->items_count; i++) {
        const char *const name = list->items[i];

        if (!certificate_is_valid(name))
            return MISTAKE(r, ITEM(r, "certificates", i),
                           "`%s`; allowed: CN=NAME, DNS:NAME, URI:NAME, EMAIL:ADDRESS",
                           TEXT_SHOWN(name));
        EARLIER(r, other, has_certificate(other, name))
        return MISTAKE(r, ITEM(r, "certificates", i), "`%s` is %s's already", TEXT_SHOWN(name),
                       other->name);
    }
    r->user->certificates = list->items;
    r->user->certificate_count = list->items_count;
    return EMBTIER_OK;
}

static bool has_token(const struct access_user *user, const struct token_hash *hash)
{
    for (uint32_t i = 0; i < user->token_count; i++)
        if (token_hash_equal(&user->tokens[i], hash))
            return true;
    return false;
}

/* The value is not shown: it may be a token that was put here by mistake. */
static enum embtier_err take_tokens(struct reading *r)
{
    const struct raw_list *const list = &r->raw->tokens;

    for (uint32_t i = 0; i < list->items_count; i++) {
        struct token_hash hash;

        if (!token_hash_parse(list->items[i], &hash))
            return MISTAKE(r, ITEM(r, "tokens", i),
                           "this is no hash of a token; allowed: sha256: and 64 digits 0-9 a-f");
        EARLIER(r, other, has_token(other, &hash))
        return MISTAKE(r, ITEM(r, "tokens", i), "the same token is %s's already", other->name);
        r->user->tokens[r->user->token_count++] = hash;
    }
    return EMBTIER_OK;
}

/* Reads a number from 1 on, or bytes. */
static enum embtier_err take_quota(struct reading *r, enum quota quota, const char *name,
                                   bool is_bytes, const char *text)
{
    uint64_t *const most = &r->user->quotas[quota];
    uint32_t count = 0;
    char key[40];

    if (!text)
        return EMBTIER_OK;
    if (is_bytes && parse_bytes(text, most) == EMBTIER_OK && *most > 0)
        return EMBTIER_OK;
    if (!is_bytes && parse_id(text, &count) && count > 0) {
        *most = count;
        return EMBTIER_OK;
    }
    snprintf(key, sizeof(key), "quotas.%s", name);
    return MISTAKE(r, KEY(r, key), "`%s`; allowed: %s", TEXT_SHOWN(text),
                   is_bytes ? "a number of bytes, such as 64MiB" : "a number, at least 1");
}

static enum embtier_err take_quotas(struct reading *r)
{
    enum { COUNT, BYTES };

    if (!r->raw->quotas)
        return EMBTIER_OK;
#define X(key, unit) TRY(take_quota(r, QUOTA_##key, #key, (unit) == BYTES, r->raw->quotas->key));
    QUOTA_TABLE(X)
#undef X
    return EMBTIER_OK;
}

static enum embtier_err take_user(struct reading *r)
{
    TRY(take_name(r));
    TRY(take_role(r));
    TRY(take_tables(r));
    TRY(take_unix(r));
    TRY(take_certificates(r));
    TRY(take_tokens(r));
    return take_quotas(r);
}

enum embtier_err access_rules_parse(const char *path, const char *text, size_t bytes,
                                    struct access_rules **ret_rules, struct err_msg *msg)
{
    _cleanup_(access_rules_freep) struct access_rules *rules = calloc(1, sizeof(*rules));
    const struct raw_file *raw;

    if (!rules)
        return err_set(msg, EMBTIER_NO_MEMORY, "access file: out of memory");
    TRY(yaml_doc_parse(path, text, bytes, &file_schema, &rules->doc, msg));
    raw = yaml_doc_data(rules->doc);
    if (!raw || raw->users_count == 0)
        return yaml_doc_mistake(rules->doc, "users", msg,
                                "names no users; allowed: 1 to %d of them", ACCESS_USERS_MAX);
    rules->users = calloc(raw->users_count, sizeof(*rules->users));
    if (!rules->users)
        return err_set(msg, EMBTIER_NO_MEMORY, "access file: out of memory");
    while (rules->user_count < raw->users_count) {
        const uint32_t i = rules->user_count++; /* freed with the rules from here on */

        TRY(take_user(&(struct reading){ .rules = rules,
                                         .user = &rules->users[i],
                                         .raw = &raw->users[i],
                                         .number = i,
                                         .msg = msg }));
    }
    *ret_rules = TAKE(rules);
    return EMBTIER_OK;
}

enum embtier_err access_rules_load(const char *path, const struct yaml_doc *config,
                                   struct access_rules **ret_rules, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;

    TRY(read_file(path, config, &text, &bytes, msg));
    return access_rules_parse(path, text, bytes, ret_rules, msg);
}
