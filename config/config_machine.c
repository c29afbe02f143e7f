/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the directories, file systems, huge pages and NUMA nodes that a configuration names.
 * All of these can change later; the checks tell the user now, with the line, that a start would
 * fail. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "config/config_load.h"
#include "config/config_memory.h"

#define DATA_DIRECTORY_MODE   0700
#define SOCKET_DIRECTORY_MODE 0755

struct key_text {
    char text[64];
};

/* A file on tmpfs is memory, whatever the tier's kind says. */
static bool tier_is_memory(const struct tier_spec *tier)
{
    struct statfs fs;

    if (tier->kind != TIER_KIND_FILE)
        return config_tier_kind_is_memory(tier);
    if (statfs(tier->path, &fs) != 0)
        return false;
    return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
}

static enum embtier_err mistake_errno(const struct config *config, const char *key, int errnum,
                                      const char *path, struct err_msg *msg)
{
    return yaml_doc_mistake(config->doc, key, msg,
                            "`%s`: %s; allowed: a directory that exists and can be written to",
                            TEXT_SHOWN(path), strerror(errnum)); // NOLINT(concurrency-mt-unsafe)
}

static enum embtier_err check_directory(const struct config *config, const char *key,
                                        const char *path, struct err_msg *msg)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return mistake_errno(config, key, errno, path, msg);
    if (!S_ISDIR(info.st_mode))
        return mistake_errno(config, key, ENOTDIR, path, msg);
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
        return mistake_errno(config, key, errno, path, msg);
    return EMBTIER_OK;
}

/* Works like mkdir -p; all users may read the parents. Leaves existing directories as they are. */
static int make_directory(const char *path, mode_t mode)
{
    char part[PATH_MAX];
    const size_t length = strlen(path);

    if (length == 0 || length >= sizeof(part))
        return ENAMETOOLONG;
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (part[i] != '/')
            continue;
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return errno;
        part[i] = '/';
    }
    return mkdir(part, mode) != 0 && errno != EEXIST ? errno : 0;
}

/* Makes a default directory. It may lie in /tmp, where another user could have made it first. */
static enum embtier_err make_default(const struct config *config, const char *key, const char *path,
                                     mode_t mode, struct err_msg *msg)
{
    const int errnum = make_directory(path, mode);
    struct stat info;

    if (errnum != 0)
        return mistake_errno(config, key, errnum, path, msg);
    if (stat(path, &info) != 0)
        return mistake_errno(config, key, errno, path, msg);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return yaml_doc_mistake(
            config->doc, key, msg,
            "`%s` belongs to user %u; allowed: a directory of the server's own user",
            TEXT_SHOWN(path), (unsigned)info.st_uid);
    return EMBTIER_OK;
}

static enum embtier_err check_data(const struct config *config, struct err_msg *msg)
{
    struct stat seen[CONFIG_DIRECTORIES_MAX];

    for (uint32_t i = 0; i < config->data.directory_count; i++) {
        const char *path = config->data.directories[i];
        struct key_text key;

        snprintf(key.text, sizeof(key.text), "data.directories[%u]", i);
        if (config->data.is_default && i == 0) /* others were added to the store */
            TRY(make_default(config, key.text, path, DATA_DIRECTORY_MODE, msg));
        TRY(check_directory(config, key.text, path, msg));
        if (stat(path, &seen[i]) != 0)
            return mistake_errno(config, key.text, errno, path, msg);
        /* Compares inodes, because links and other spellings name the same directory. */
        for (uint32_t j = 0; j < i; j++)
            if (seen[i].st_dev == seen[j].st_dev && seen[i].st_ino == seen[j].st_ino)
                return yaml_doc_mistake(
                    config->doc, key.text, msg,
                    "`%s` is the same directory as data.directories[%u]; allowed: each once",
                    TEXT_SHOWN(path), j);
    }
    return EMBTIER_OK;
}

static enum embtier_err check_socket(const struct config *config, struct err_msg *msg)
{
    _cleanup_(freep) char *directory = NULL;
    struct err_msg why = { { 0 } };
    struct stat info;

    TRY(path_directory(config->socket.path, &directory, msg));
    if (config->socket.is_default)
        TRY(make_default(config, "socket.path", directory, SOCKET_DIRECTORY_MODE, msg));
    if (config->socket.is_users && users_directory_check(directory, &why) != EMBTIER_OK)
        return yaml_doc_mistake(config->doc, "socket.path", msg, "%s", why.text);
    TRY(check_directory(config, "socket.path", directory, msg));
    if (lstat(config->socket.path, &info) == 0 && !S_ISSOCK(info.st_mode))
        return yaml_doc_mistake(config->doc, "socket.path", msg,
                                "`%s` exists and is not a socket; allowed: a new name",
                                TEXT_SHOWN(config->socket.path));
    return EMBTIER_OK;
}

/* Tiers on one file system share its free space. */
static enum embtier_err check_file_tier(const struct config *config, uint32_t t, const char *key,
                                        struct err_msg *msg)
{
    const struct tier_spec *tiers = config->cache.tiers;
    const char *path = tiers[t].path;
    uint64_t wanted = tiers[t].bytes;
    uint64_t free_bytes;
    struct statfs fs;
    struct stat info;
    struct stat other;

    TRY(check_directory(config, key, path, msg));
    if (stat(path, &info) != 0 || statfs(path, &fs) != 0)
        return mistake_errno(config, key, errno, path, msg);
    for (uint32_t i = 0; i < t; i++)
        if (tiers[i].kind == TIER_KIND_FILE && stat(tiers[i].path, &other) == 0 &&
            other.st_dev == info.st_dev)
            wanted += tiers[i].bytes;
    free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    if (wanted > free_bytes)
        return yaml_doc_mistake(config->doc, key, msg,
                                "the file system of `%s` has %s free, its tiers are %s; allowed: "
                                "tiers that fit",
                                TEXT_SHOWN(path), BYTES_TEXT(free_bytes), BYTES_TEXT(wanted));
    return EMBTIER_OK;
}

static enum embtier_err check_huge_tier(const struct config *config, uint32_t t,
                                        struct err_msg *msg)
{
    uint64_t pages = 0;
    uint64_t page_kib = 0;
    struct key_text key;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");

    if (!file)
        return EMBTIER_OK; /* the arena will report it */
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "HugePages_Total: %" SCNu64, &pages) != 1)  // NOLINT(cert-err34-c)
            (void)sscanf(line, "Hugepagesize: %" SCNu64, &page_kib); // NOLINT(cert-err34-c)
    }
    fclose(file);
    if (config->cache.tiers[t].bytes <= pages * page_kib * KIB)
        return EMBTIER_OK;
    snprintf(key.text, sizeof(key.text), "cache.tiers[%u].bytes", t);
    return yaml_doc_mistake(config->doc, key.text, msg,
                            "%s of huge pages are wanted, but %s are reserved (sysctl "
                            "vm.nr_hugepages); allowed: at most what is reserved",
                            BYTES_TEXT(config->cache.tiers[t].bytes),
                            BYTES_TEXT(pages * page_kib * KIB));
}

static enum embtier_err check_numa_tier(const struct config *config, uint32_t t, const char *key,
                                        struct err_msg *msg)
{
    const int node = config->cache.tiers[t].numa_node;
    char path[64];

    if (access("/sys/devices/system/node", F_OK) != 0)
        return EMBTIER_OK;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
    if (access(path, F_OK) == 0)
        return EMBTIER_OK;
    return yaml_doc_mistake(config->doc, key, msg,
                            "there is no NUMA node %d; allowed: those that numactl -H lists", node);
}

static enum embtier_err check_tiers(const struct config *config, struct err_msg *msg)
{
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        struct key_text key;

        switch (config->cache.tiers[t].kind) {
        case TIER_KIND_FILE:
            snprintf(key.text, sizeof(key.text), "cache.tiers[%u].path", t);
            TRY(check_file_tier(config, t, key.text, msg));
            break;
        case TIER_KIND_DRAM_HUGE:
            TRY(check_huge_tier(config, t, msg));
            break;
        case TIER_KIND_NUMA:
            snprintf(key.text, sizeof(key.text), "cache.tiers[%u].numa_node", t);
            TRY(check_numa_tier(config, t, key.text, msg));
            break;
        case TIER_KIND_DRAM:
        case TIER_KIND_DAX_KMEM:
        case TIER_KIND_COUNT:
            break;
        }
    }
    return EMBTIER_OK;
}

enum embtier_err config_check_machine(const struct config *config, struct err_msg *msg)
{
    TRY(check_data(config, msg));
    TRY(check_tiers(config, msg));
    TRY(check_socket(config, msg));
    return config_memory_check(config, tier_is_memory, msg);
}

enum embtier_err config_check_available(const struct config *config, struct err_msg *msg)
{
    return config_memory_check_start(config, tier_is_memory, msg);
}
