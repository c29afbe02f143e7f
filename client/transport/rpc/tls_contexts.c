/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/rpc/tls_contexts.h"

#include <assert.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/net/address_list.h"
#include "base/tls/tls_context.h"

/* The files of a context. The system's authorities are a file and a folder. */
enum source { CERTIFICATE, KEY, AUTHORITY, AUTHORITIES, SOURCES };

/* Tells a file's contents from earlier ones. The inode's change counts, as programs can set back
 * the time of the last modification. All 0: there is no such file. */
struct stamp {
    uint64_t device, inode;
    int64_t bytes, changed_s, changed_ns;
};

struct stamps {
    struct stamp of[SOURCES];
};

/* A context, and the files as they were before it read them. */
struct entry {
    struct address_files files;
    struct stamps stamps;
    SSL_CTX *context;
};

/* Each address of a session has at most one set of files. */
struct tls_contexts {
    struct entry *entries[ADDRESS_LIST_MAX];
    uint32_t count;
};

enum embtier_err tls_contexts_new(struct tls_contexts **ret_contexts, struct err_msg *msg)
{
    struct tls_contexts *const contexts = calloc(1, sizeof(*contexts));

    if (!contexts)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *ret_contexts = contexts;
    return EMBTIER_OK;
}

static void entry_free(struct entry *entry)
{
    if (entry)
        tls_context_free(entry->context);
    free(entry);
}
DEFINE_CLEANUP(struct entry, entry_free)

void tls_contexts_free(struct tls_contexts *contexts)
{
    if (!contexts)
        return;
    for (uint32_t i = 0; i < contexts->count; i++)
        entry_free(contexts->entries[i]);
    free(contexts);
}

/* ---- Files ---- */

static struct stamp stamp_of(const char *path)
{
    struct stat at;

    if (path[0] == '\0' || stat(path, &at) != 0)
        return (struct stamp){ 0 };
    return (struct stamp){ .device = at.st_dev,
                           .inode = at.st_ino,
                           .bytes = at.st_size,
                           .changed_s = at.st_ctim.tv_sec,
                           .changed_ns = at.st_ctim.tv_nsec };
}

/* OpenSSL looks there, too. */
static const char *system_path(const char *variable, const char *otherwise)
{
    const char *const named = secure_getenv(variable);

    return named ? named : otherwise;
}

static struct stamps stamps_of(const struct address_files *files)
{
    struct stamps stamps = { { [CERTIFICATE] = stamp_of(files->certificate),
                               [KEY] = stamp_of(files->key),
                               [AUTHORITY] = stamp_of(files->authority) } };

    if (files->authority[0] != '\0')
        return stamps;
    stamps.of[AUTHORITY] =
        stamp_of(system_path(X509_get_default_cert_file_env(), X509_get_default_cert_file()));
    stamps.of[AUTHORITIES] =
        stamp_of(system_path(X509_get_default_cert_dir_env(), X509_get_default_cert_dir()));
    return stamps;
}

static bool is_same(const struct stamps *a, const struct stamps *b)
{
    static_assert(sizeof(struct stamp) == 5 * sizeof(uint64_t), "no padding is compared");
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- Contexts ---- */

static bool has_files(const struct entry *entry, const struct address_files *files)
{
    return strcmp(entry->files.authority, files->authority) == 0 &&
           strcmp(entry->files.certificate, files->certificate) == 0 &&
           strcmp(entry->files.key, files->key) == 0;
}

static struct entry **find(struct tls_contexts *contexts, const struct address_files *files)
{
    for (uint32_t i = 0; i < contexts->count; i++)
        if (has_files(contexts->entries[i], files))
            return &contexts->entries[i];
    assert(contexts->count < ARRAY_LEN(contexts->entries));
    return &contexts->entries[contexts->count];
}

/* A file that changes while it is read has another stamp the next time. */
static enum embtier_err make(const struct address_files *given, struct entry **ret_entry,
                             struct err_msg *msg)
{
    const struct tls_files files = { .certificate = given->certificate,
                                     .key = given->key,
                                     .authority = given->authority };
    _cleanup_(entry_freep) struct entry *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    entry->files = *given;
    entry->stamps = stamps_of(given);
    TRY(tls_context_client(&files, &entry->context, msg));
    *ret_entry = TAKE(entry);
    return EMBTIER_OK;
}

enum embtier_err tls_contexts_get(struct tls_contexts *contexts, const struct address_files *files,
                                  SSL_CTX **ret_context, struct err_msg *msg)
{
    struct entry **const at = find(contexts, files);
    const struct stamps now = stamps_of(files);

    if (!*at || !is_same(&(*at)->stamps, &now)) {
        struct entry *fresh;

        TRY(make(files, &fresh, msg));
        contexts->count += !*at;
        entry_free(*at);
        *at = fresh;
    }
    (void)SSL_CTX_up_ref((*at)->context);
    *ret_context = (*at)->context;
    return EMBTIER_OK;
}
