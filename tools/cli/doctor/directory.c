/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/doctor/directory.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/json_values.h"

/* ---- The directory itself ---- */

static void add_unusable(const struct examination *e, const struct directory *directory, int errnum,
                         const char *advice)
{
    const char *const reason = strerror(errnum); // NOLINT(concurrency-mt-unsafe)

    findings_add(e->findings, (struct finding){
                                  .name = directory->key,
                                  .state = FINDING_BAD,
                                  .value = cli_json_text(directory->path),
                                  .text = SAY("%s: %s", PATH_SHOWN(directory->path), reason),
                                  .advice = advice,
                              });
}

static void add_missing(const struct examination *e, const struct directory *directory,
                        bool is_default)
{
    if (!is_default) {
        add_unusable(e, directory, ENOENT,
                     SAY("mount its disk; or make it as embtierd's user, mkdir -p %s; or correct "
                         "%s",
                         PATH_SHOWN(directory->path), directory->key));
        return;
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = directory->key,
                     .state = FINDING_NOTE,
                     .value = cli_json_text(directory->path),
                     .text = SAY("%s: the default, which the first start makes",
                                 PATH_SHOWN(directory->path)),
                     .advice = "name a directory on the fastest SSD in data.directories, if this "
                               "one is on another disk",
                 });
}

static void add_usable(const struct examination *e, const struct directory *directory)
{
    findings_add(e->findings,
                 (struct finding){
                     .name = directory->key,
                     .value = cli_json_text(directory->path),
                     .text = SAY("%s: exists, and can be written to", PATH_SHOWN(directory->path)),
                 });
}

void directory_examine(const struct examination *e, const char *key, const char *path,
                       bool is_default, struct directory *ret_directory)
{
    int errnum;

    *ret_directory = (struct directory){ .key = key, .path = path };
    errnum = e->host->look(path, &ret_directory->info);
    if (errnum == ENOENT) {
        add_missing(e, ret_directory, is_default);
        return;
    }
    if (errnum == 0)
        errnum = S_ISDIR(ret_directory->info.stx_mode) ? e->host->may_write(path) : ENOTDIR;
    if (errnum == 0) {
        ret_directory->is_usable = true;
        place_read(e->host, &ret_directory->info, &ret_directory->place);
        add_usable(e, ret_directory);
    } else if (errnum == ENOTDIR) {
        add_unusable(e, ret_directory, errnum, SAY("name a directory in %s", key));
    } else {
        add_unusable(e, ret_directory, errnum,
                     SAY("run this command as embtierd's user; if that is the user, give it the "
                         "directory: chown USER %s",
                         PATH_SHOWN(path)));
    }
}

/* ---- File system ---- */

#define ON_SSD "name a directory on a local SSD with ext4 or XFS"

/* A name that ends with * stands for all that begin so. */
static const struct {
    const char *name;
    enum finding_state state;
    const char *text, *advice;
} file_systems[] = {
    { "ext4", FINDING_GOOD, "", NULL },
    { "xfs", FINDING_GOOD, "", NULL },
    { "btrfs", FINDING_NOTE, ", which writes more bytes, as it copies on write",
      "use ext4 or XFS; or chattr +C the empty directory before the first start" },
    { "zfs", FINDING_NOTE, ", which writes more bytes, as it copies on write",
      "use ext4 or XFS; or zfs set recordsize=16K compression=off primarycache=metadata" },
    { "tmpfs", FINDING_WARN, ", which is memory: its files end with this boot", ON_SSD },
    { "ramfs", FINDING_WARN, ", which is memory: its files end with this boot", ON_SSD },
    { "overlay", FINDING_WARN, ", a container's own: its files end with the container",
      "mount a volume of the host there (docker run -v)" },
    { "nfs*", FINDING_WARN, ", a network's: slow, and not tried", ON_SSD },
    { "cifs", FINDING_WARN, ", a network's: slow, and not tried", ON_SSD },
    { "smb3", FINDING_WARN, ", a network's: slow, and not tried", ON_SSD },
    { "ceph", FINDING_WARN, ", a network's: slow, and not tried", ON_SSD },
    { "9p", FINDING_WARN, ", another machine's: slow, and not tried", ON_SSD },
    { "virtiofs", FINDING_WARN, ", another machine's: slow, and not tried", ON_SSD },
    { "fuse*", FINDING_WARN, ", a program's: slow, and not tried", ON_SSD },
    { "*", FINDING_NOTE, ", which was not tried", "use ext4 or XFS" },
};

static size_t row_of(const char *name)
{
    size_t row = 0;

    for (; row < ARRAY_LEN(file_systems) - 1; row++) {
        const size_t length = strcspn(file_systems[row].name, "*");
        const bool is_prefix = file_systems[row].name[length] == '*';

        if (strncmp(file_systems[row].name, name, length) == 0 &&
            (is_prefix || name[length] == '\0'))
            break;
    }
    return row;
}

void directory_add_file_system(const struct examination *e, const struct directory *directory)
{
    const struct mount *const mount = &directory->place.mount;
    const char *const name = SAY("%s.file_system", directory->key);
    size_t row;

    if (!directory->place.has_mount) {
        findings_add_unknown(e->findings, name, "/proc/self/mountinfo");
        return;
    }
    row = row_of(mount->file_system.text);
    findings_add(e->findings,
                 (struct finding){
                     .name = name,
                     .state = file_systems[row].state,
                     .value = cli_json_text(mount->file_system.text),
                     .text = SAY("%s at %s, of %s%s", TEXT_SHOWN(mount->file_system.text),
                                 TEXT_SHOWN(mount->point.text), TEXT_SHOWN(mount->source.text),
                                 file_systems[row].text),
                     .advice = file_systems[row].advice,
                 });
}

/* ---- Devices ---- */

static json_t *disk_names(const struct place *place)
{
    json_t *const names = json_array();

    for (size_t i = 0; i < place->disk_count; i++)
        (void)json_array_append_new(names, cli_json_text(place->disks[i].name.text));
    return names;
}

static void describe_disk(const struct disk *disk, struct finding_line *line)
{
    const size_t used = strlen(line->text);
    const char *kind = "of an unknown kind";

    if (disk->has_queue)
        kind = disk->is_rotating ? "says that it rotates" : "does not rotate";
    snprintf(line->text + used, sizeof(line->text) - used, "%s%s %s%s%s", used ? "; " : "",
             TEXT_SHOWN(disk->name.text), kind, disk->bytes ? ", " : "",
             disk->bytes ? BYTES_TEXT(disk->bytes) : "");
}

static void add_disks(const struct examination *e, const struct directory *directory)
{
    const struct place *const place = &directory->place;
    struct finding_line line = { "" };
    const char *rotating = NULL;

    for (size_t i = 0; i < place->disk_count; i++) {
        describe_disk(&place->disks[i], &line);
        if (place->disks[i].is_rotating)
            rotating = place->disks[i].name.text;
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = SAY("%s.device", directory->key),
                     .state = rotating ? FINDING_WARN : FINDING_GOOD,
                     .value = disk_names(place),
                     .text = line.text,
                     .advice = SAY("name a directory on an SSD. A virtual disk may be an SSD all "
                                   "the same: then echo 0 >/sys/class/block/%s/queue/rotational",
                                   rotating ? TEXT_SHOWN(rotating) : ""),
                 });
}

void directory_add_device(const struct examination *e, const struct directory *directory)
{
    const char *const name = SAY("%s.device", directory->key);

    if (directory->place.disk_count > 0) {
        add_disks(e, directory);
        return;
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = name,
                     .state = FINDING_NOTE,
                     .text = "no disk is known beneath it: memory, a network, or a device that "
                             "/sys does not show",
                     .advice = "run this command outside the container, or see lsblk",
                 });
}

/* ---- Scheduler ---- */

/* Those that cost little, or keep no request of a read waiting for long. */
static bool is_light(const char *scheduler)
{
    static const char *const light[] = { "none", "noop", "mq-deadline", "deadline", "kyber" };

    for (size_t i = 0; i < ARRAY_LEN(light); i++)
        if (strcmp(scheduler, light[i]) == 0)
            return true;
    return false;
}

/* Returns the disk to name: the first with a heavy scheduler, or else the first with any. */
static const struct disk *scheduled_disk(const struct place *place)
{
    const struct disk *found = NULL;

    for (size_t i = 0; i < place->disk_count; i++) {
        const struct disk *const disk = &place->disks[i];

        if (disk->scheduler.text[0] != '\0' && !is_light(disk->scheduler.text))
            return disk;
        if (!found && disk->scheduler.text[0] != '\0')
            found = disk;
    }
    return found;
}

void directory_add_scheduler(const struct examination *e, const struct directory *directory)
{
    const struct disk *const disk = scheduled_disk(&directory->place);

    if (!disk) /* the device's finding has said that it is not known, or it has no choice */
        return;
    findings_add(e->findings,
                 (struct finding){
                     .name = SAY("%s.scheduler", directory->key),
                     .state = is_light(disk->scheduler.text) ? FINDING_GOOD : FINDING_WARN,
                     .value = cli_json_text(disk->scheduler.text),
                     .text = SAY("I/O scheduler of %s: %s", TEXT_SHOWN(disk->name.text),
                                 TEXT_SHOWN(disk->scheduler.text)),
                     .advice = SAY("echo none >/sys/class/block/%s/queue/scheduler, and a rule of "
                                   "udev for later boots",
                                   TEXT_SHOWN(disk->name.text)),
                 });
}

/* ---- Direct I/O and space ---- */

static enum finding_state state_without_direct_io(enum config_switch wanted)
{
    if (wanted == SWITCH_ON)
        return FINDING_BAD;
    return wanted == SWITCH_OFF ? FINDING_NOTE : FINDING_WARN;
}

void directory_add_direct_io(const struct examination *e, const struct directory *directory,
                             enum config_switch wanted)
{
    const char *const name = SAY("%s.direct_io", directory->key);
    const int errnum = e->host->try_direct_io(directory->path);

    if (errnum != 0 && errnum != EINVAL) {
        findings_add_unknown(e->findings, name, "a file without a name (O_TMPFILE)");
        return;
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = name,
                     .state = errnum == 0 ? FINDING_GOOD : state_without_direct_io(wanted),
                     .value = json_boolean(errnum == 0),
                     .text = errnum == 0 ? "direct I/O works"
                                         : "no direct I/O: the system keeps blocks in memory that "
                                           "no budget has",
                     .advice = ON_SSD "; or set rocksdb.direct_io to off",
                 });
}

void directory_add_space(const struct examination *e, const struct directory *directory,
                         uint64_t least_bytes, uint64_t enough_bytes, const char *exception)
{
    const char *const name = SAY("%s.space", directory->key);
    enum finding_state state = FINDING_GOOD;
    struct statvfs room;
    uint64_t free_bytes;

    if (e->host->room(directory->path, &room) != 0) {
        findings_add_unknown(e->findings, name, "statvfs()");
        return;
    }
    free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (free_bytes < least_bytes)
        state = FINDING_BAD;
    else if (free_bytes < enough_bytes)
        state = FINDING_WARN;
    findings_add(e->findings,
                 (struct finding){
                     .name = name,
                     .state = state,
                     .value = cli_json_u64(free_bytes),
                     .text = SAY("%s free of %s", BYTES_TEXT(free_bytes),
                                 BYTES_TEXT((uint64_t)room.f_blocks * room.f_frsize)),
                     .advice = SAY("%sfree %s, or name a directory on a larger disk", exception,
                                   BYTES_TEXT(enough_bytes - MIN(free_bytes, enough_bytes))),
                 });
}
