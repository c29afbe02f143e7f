/* SPDX-License-Identifier: Apache-2.0 */
/* The data directories of the configuration, and what lies beneath each. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/text/text_escape.h"
#include "tools/cli/doctor/directory.h"
#include "tools/cli/json_values.h"

/* With less, updates are refused, as work that frees space needs it. */
#define LEAST_BYTES (64 * MIB)
/* With less than this part of a file system free, compactions soon lack space. */
#define ENOUGH_PART 10
/* Files of each data directory, the second one only after directories changed. */
#define STORE_FILE   "embtier.json"
#define MEMBERS_FILE "directories.json"

static uint64_t enough_bytes(const struct examination *e, const char *path)
{
    struct statvfs room;

    if (e->host->room(path, &room) != 0)
        return LEAST_BYTES;
    return MAX((uint64_t)room.f_blocks * room.f_frsize / ENOUGH_PART, LEAST_BYTES);
}

static bool is_same(const struct directory *a, const struct directory *b)
{
    return a->info.stx_ino == b->info.stx_ino && a->info.stx_dev_major == b->info.stx_dev_major &&
           a->info.stx_dev_minor == b->info.stx_dev_minor;
}

static void add_sharing(const struct examination *e, const struct directory *directories,
                        const struct directory *directory)
{
    const struct directory *other = directories;

    while (other < directory &&
           !(other->is_usable && place_is_shared(&other->place, &directory->place)))
        other++;
    if (other == directory)
        findings_add(e->findings, (struct finding){
                                      .name = SAY("%s.shared_device", directory->key),
                                      .text = "no directory before it is on its device",
                                  });
    else
        findings_add(
            e->findings,
            (struct finding){
                .name = SAY("%s.shared_device", directory->key),
                .state = is_same(directory, other) ? FINDING_BAD : FINDING_WARN,
                .value = cli_json_text(other->key),
                .text = SAY("%s as %s: %s",
                            is_same(directory, other) ? "the same directory" : "on the same device",
                            other->key, PATH_SHOWN(other->path)),
                .advice = "name one directory of each device in data.directories; for "
                          "more databases on one device raise "
                          "data.shards_per_directory",
            });
}

static void look_beneath(const struct examination *e, const struct directory *directory)
{
    directory_add_file_system(e, directory);
    directory_add_device(e, directory);
    directory_add_scheduler(e, directory);
    directory_add_direct_io(e, directory, e->config->rocksdb.direct_io);
    directory_add_space(e, directory, LEAST_BYTES, enough_bytes(e, directory->path), "");
}

/* ---- Stores ---- */

static bool has_store(const struct examination *e, const struct directory *directory)
{
    return host_exists(e->host, "%s/" STORE_FILE, directory->path);
}

static void add_refused(const struct examination *e, const struct directory *directory,
                        const char *text, const char *advice)
{
    findings_add(e->findings, (struct finding){
                                  .name = SAY("%s.store", directory->key),
                                  .state = FINDING_BAD,
                                  .value = cli_json_text(directory->path),
                                  .text = text,
                                  .advice = advice,
                              });
}

/* Returns a file that a new store would not find there; NULL: there is none. */
static const char *foreign_of(const struct host_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i], "lost+found") != 0 && strcmp(names->names[i], "LOCK") != 0 &&
            strncmp(names->names[i], STORE_FILE, strlen(STORE_FILE)) != 0)
            return names->names[i];
    return NULL;
}

static void look_at_new(const struct examination *e, const struct directory *directory,
                        const struct directory *with_store)
{
    struct host_names names;
    const char *foreign;

    host_names_read(e->host, "", &names, "%s", directory->path);
    foreign = foreign_of(&names);
    if (foreign)
        add_refused(e, directory,
                    SAY("%s: no " STORE_FILE " and not empty (%s), so a start refuses it",
                        PATH_SHOWN(directory->path), TEXT_SHOWN(foreign)),
                    "name an empty directory, or the store's own");
    else if (with_store)
        add_refused(e, directory,
                    SAY("%s: no " STORE_FILE ", but %s belongs to a store, so a start refuses it",
                        PATH_SHOWN(directory->path), PATH_SHOWN(with_store->path)),
                    "mount its disk; a new directory joins with `embtier data add`");
    host_names_clear(&names);
}

/* Looks at the store's own file, which tells of how many directories it was made. Returns whether a
 * start refuses a directory beside it that is none of the store. A store whose directories changed
 * has a list: a start opens those that the configuration lacks, and ignores those that have left.
 */
static bool look_at_store(const struct examination *e, const struct directory *directory)
{
    FILE *const file = host_open(e->host, "%s/" STORE_FILE, directory->path);
    json_t *const root = file ? json_loadf(file, 0, NULL) : NULL;
    const json_int_t made_of = json_integer_value(json_object_get(root, "directory_count"));
    const char *const state = json_string_value(json_object_get(root, "state"));
    const bool is_ready = state && strcmp(state, "ready") == 0 &&
                          !host_exists(e->host, "%s/" MEMBERS_FILE, directory->path);

    if (file)
        (void)fclose(file);
    if (is_ready && made_of > (json_int_t)e->config->data.directory_count)
        add_refused(e, directory,
                    SAY("%s: its store has %lld directories, and data.directories has %u, so a "
                        "start refuses it",
                        PATH_SHOWN(directory->path), (long long)made_of,
                        e->config->data.directory_count),
                    "name all directories of the store in data.directories");
    json_decref(root);
    return is_ready;
}

static void check_stores(const struct examination *e, const struct directory *directories)
{
    const struct directory *with_store = NULL;
    const uint32_t count = e->config->data.directory_count;
    bool has_list;

    for (uint32_t i = 0; i < count && !with_store; i++)
        if (directories[i].is_usable && has_store(e, &directories[i]))
            with_store = &directories[i];
    has_list = with_store && host_exists(e->host, "%s/" MEMBERS_FILE, with_store->path);
    if (with_store && !look_at_store(e, with_store))
        with_store = NULL;
    for (uint32_t i = 0; i < count && !has_list; i++) /* its list says which are none of its own */
        if (directories[i].is_usable && !has_store(e, &directories[i]))
            look_at_new(e, &directories[i], with_store);
}

void check_directories(const struct examination *e)
{
    const struct config *const config = e->config;
    _cleanup_(freep) struct directory *directories =
        config ? calloc(config->data.directory_count, sizeof(*directories)) : NULL;
    struct finding_line keys[CONFIG_DIRECTORIES_MAX];

    for (uint32_t i = 0; directories && i < config->data.directory_count; i++) {
        const char *const key = finding_line(&keys[i], "data.directories[%u]", i);

        directory_examine(e, key, config->data.directories[i], config->data.is_default,
                          &directories[i]);
        if (!directories[i].is_usable)
            continue;
        look_beneath(e, &directories[i]);
        if (config->data.directory_count > 1)
            add_sharing(e, directories, &directories[i]);
    }
    if (directories)
        check_stores(e, directories);
}
