/* SPDX-License-Identifier: Apache-2.0 */
/* The data directories of the configuration, and what lies beneath each. */
#include <jansson.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/text/text_escape.h"
#include "tools/cli/doctor/directory.h"
#include "tools/cli/json_values.h"

/* With less, updates are refused, as work that frees space needs it. */
#define LEAST_BYTES (64 * MIB)
/* With less than this part of a file system free, compactions soon lack space. */
#define ENOUGH_PART 10

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
}
