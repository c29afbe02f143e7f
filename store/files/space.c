/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/space.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/paths.h"
#include "store/files/space_reserved.h"

#define LOOK_NS      50000000L
#define RESERVE_PART 16 /* at most this part of a file system */
#define OPEN_PART    4  /* at most this part of a file system, for all databases */
/* Bytes that stay free in addition to those for rows: for manifests and RocksDB's logs. */
#define FLOOR_BYTES (16 * MIB)
#define FLOOR_PART  32
#define PROBE_BYTES ((uint64_t)MIB)
/* A compaction may have this much on disk twice. */
#define COMPACTION_BYTES (2 * GIB)
#define COMPACTION_PART  4 /* at most this part of a file system */
#define REFILL_LEAST     ((uint64_t)(64 * KIB))
#define LOG_NS           (UINT64_C(60) * 1000000000)
#define REFUSING_NS      (UINT64_C(60) * 1000000000)

struct directory {
    char *path;
    int fd; /* of the reserve */
    dev_t device;
    uint32_t sharers; /* directories on the same file system, itself included */
    uint64_t reserve_bytes;
    bool is_reserve_set; /* by the configuration, not by the write buffers */
    uint64_t capacity_bytes;
    uint64_t
        start_bytes; /* of these, for starts only; other work may run out of the reserve early */
    uint64_t held_bytes;
    uint64_t floor_bytes;
    bool cannot_hold; /* its file system cannot preallocate files: as much is kept free instead */
};

struct space {
    struct directory *directories;
    uint32_t directory_count;
    uint32_t database_count;
    uint64_t plenty_bytes;
    uint64_t (*buffer_bytes)(const void *context);
    const void *context;

    pthread_mutex_t lock; /* guards all changing members above, and: */
    uint32_t users;
    bool is_used; /* by work under way: directories that become short give up their reserves, too */
    uint64_t unwritten_bytes;
    uint64_t marks[2]; /* @admitted at the last two reports, oldest first: later bytes are counted
                          twice rather than not at all */
    int64_t spare_bytes;
    uint32_t fullest;    /* the directory that has the least */
    uint64_t told_ns[2]; /* of a short lack of space, and of a full disk */

    sem_t wake;
    pthread_t thread;
    bool has_thread;
    _Atomic bool stopping;
    _Atomic bool woken;

    /* Read by lanes, seldom written. */
    _Alignas(64) _Atomic bool plenty;
    _Atomic uint64_t limit; /* of @admitted */
    _Alignas(64) _Atomic uint64_t admitted;
    _Atomic uint64_t refusals;
    _Atomic uint64_t refused_bytes; /* of the last one */
    _Atomic uint64_t refused_ns;
};

/* ---- The reserve of a directory ---- */

static bool is_full(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

static bool free_of(const struct directory *directory, uint64_t *ret_bytes, uint64_t *ret_capacity)
{
    struct statvfs info;

    if (statvfs(directory->path, &info) != 0)
        return false;
    *ret_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    *ret_capacity = (uint64_t)info.f_blocks * info.f_frsize;
    return true;
}

/* Takes blocks for @bytes more. Returns 0, or an errno. */
static int hold_more(struct directory *directory, uint64_t bytes)
{
    int errnum = 0;

    if (fallocate(directory->fd, 0, (off_t)directory->held_bytes, (off_t)bytes) != 0)
        errnum = errno;
    if (errnum == 0)
        directory->held_bytes += bytes;
    else if (ftruncate(directory->fd, (off_t)directory->held_bytes) != 0)
        errnum = errno;
    if (errnum == EOPNOTSUPP || errnum == ENOSYS || errnum == EINVAL || errnum == EFBIG)
        directory->cannot_hold = true;
    return errnum;
}

static void hold_less(struct directory *directory, uint64_t bytes)
{
    if (ftruncate(directory->fd, (off_t)bytes) == 0)
        directory->held_bytes = bytes;
}

static bool has_little(const struct directory *directory)
{
    uint64_t bytes, capacity;

    return free_of(directory, &bytes, &capacity) && bytes < directory->reserve_bytes;
}

/* True if running compactions could take all free space but the reserve, or have taken it and will
 * give it back when they fail. */
static bool may_have_little(const struct directory *directory)
{
    uint64_t bytes, capacity;

    return free_of(directory, &bytes, &capacity) &&
           bytes < directory->reserve_bytes +
                       MIN(COMPACTION_BYTES, capacity / COMPACTION_PART / directory->sharers);
}

/* True if the disk is nearly full or a quota is used up. A file system does not report a quota
 * beforehand, so this tries. */
static bool is_short(struct directory *directory)
{
    const uint64_t before = directory->held_bytes;
    int errnum;

    if (has_little(directory))
        return true;
    errnum = hold_more(directory, PROBE_BYTES);
    if (errnum == 0)
        hold_less(directory, before);
    return is_full(errnum);
}

static uint64_t missing_of(const struct directory *directory)
{
    return directory->reserve_bytes - MIN(directory->held_bytes, directory->reserve_bytes);
}

static void release(struct directory *directory, bool for_start)
{
    const uint64_t kept = for_start ? 0 : directory->start_bytes;
    const uint64_t before = directory->held_bytes;

    if (before <= kept || !is_short(directory))
        return;
    hold_less(directory, kept);
    log_info("the disk is nearly full: the reserve is released for the work that needs it",
             "directory=%s given_bytes=%" PRIu64 " kept_bytes=%" PRIu64,
             LOG_QUOTED(directory->path), before - directory->held_bytes, directory->held_bytes);
}

static enum embtier_err directory_open(struct directory *directory, const char *path,
                                       struct err_msg *msg)
{
    _cleanup_(freep) char *file = path_join(path, SPACE_RESERVE_FILE);
    struct stat info;

    directory->path = strdup(path);
    if (!file || !directory->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    directory->fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (directory->fd < 0 || fstat(directory->fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", file);
    directory->device = info.st_dev;
    /* A file that was made by others, or copied, may have no blocks. */
    directory->held_bytes = MIN((uint64_t)info.st_size, (uint64_t)info.st_blocks * 512);
    return EMBTIER_OK;
}

/* Returns the reserve of a directory without what only starts use. */
static uint64_t reserve_for(const struct space *space, const struct directory *directory,
                            uint64_t memtable_bytes)
{
    const uint64_t databases = space->database_count / space->directory_count;

    return MIN(space_reserve_wanted_bytes(memtable_bytes, space->directory_count, databases),
               directory->capacity_bytes / RESERVE_PART / directory->sharers);
}

static uint64_t opening_bytes(const struct space *space, const struct directory *directory)
{
    const uint64_t databases = space->database_count / space->directory_count;

    return MIN(space_opening_bytes(databases),
               directory->capacity_bytes / OPEN_PART / directory->sharers);
}

/* The caller has set the devices of all directories. */
static enum embtier_err directory_measure(struct space *space, uint32_t index,
                                          const struct space_opts *opts, struct err_msg *msg)
{
    struct directory *const directory = &space->directories[index];
    uint64_t bytes, opening;

    if (!free_of(directory, &bytes, &directory->capacity_bytes))
        return err_set_errno(msg, errno, "%s", directory->path);
    for (uint32_t i = 0; i < space->directory_count; i++)
        directory->sharers += space->directories[i].device == directory->device;
    opening = opening_bytes(space, directory);
    directory->is_reserve_set = opts->reserve_bytes > 0;
    directory->reserve_bytes = directory->is_reserve_set
                                   ? opts->reserve_bytes
                                   : reserve_for(space, directory, opts->memtable_bytes) + opening;
    directory->start_bytes = MIN(opening, directory->reserve_bytes / 2);
    directory->floor_bytes = MIN((uint64_t)FLOOR_BYTES, directory->capacity_bytes / FLOOR_PART);
    if (directory->held_bytes > directory->reserve_bytes)
        hold_less(directory, directory->reserve_bytes);
    return EMBTIER_OK;
}

/* ---- Looking ---- */

/* Returns one directory's share of all bytes in memory. The caller holds the lock. */
static uint64_t share_of(const struct space *space)
{
    const uint64_t buffers = space->buffer_bytes ? space->buffer_bytes(space->context) : 0;
    const uint64_t all = space->unwritten_bytes + buffers + buffers / 4;

    assert(space->directory_count > 0);               /* the first one stays */
    return (all + all / 16) / space->directory_count; /* rows are spread, but not quite evenly */
}

/* Returns the bytes left for rows on a directory's file system, without the reserve. Negative: the
 * bytes that are lacking. False if that is unknown. The caller holds the lock. */
static bool spare_of(const struct directory *directory, uint64_t share, int64_t *ret_bytes)
{
    uint64_t bytes, capacity;

    if (!free_of(directory, &bytes, &capacity))
        return false;
    *ret_bytes = (int64_t)bytes - (int64_t)(share * directory->sharers + directory->floor_bytes);
    return true;
}

/* The caller holds the lock. */
static void refill(struct space *space, uint64_t share)
{
    for (uint32_t i = 0; i < space->directory_count; i++) {
        struct directory *const directory = &space->directories[i];
        const uint64_t missing = missing_of(directory);
        int64_t spare;

        if (missing == 0 || directory->cannot_hold || !spare_of(directory, share, &spare) ||
            spare < (int64_t)MIN(missing, REFILL_LEAST))
            continue;
        (void)hold_more(directory, MIN(missing, (uint64_t)spare)); /* else a later look does */
    }
}

/* Finds out how much is left for rows of all directories together, which rows fill evenly. The
 * caller holds the lock. */
static void look(struct space *space)
{
    const uint64_t share = share_of(space);
    int64_t least = INT64_MAX;

    if (space->users == 0)
        refill(space, share);
    for (uint32_t i = 0; space->is_used && i < space->directory_count; i++)
        if (has_little(&space->directories[i]))
            release(&space->directories[i], false);
    for (uint32_t i = 0; i < space->directory_count; i++) {
        const struct directory *const directory = &space->directories[i];
        int64_t spare;

        if (!spare_of(directory, share, &spare))
            continue;
        for (uint32_t j = 0; j < space->directory_count; j++)
            if (space->directories[j].device == directory->device)
                spare -= (int64_t)missing_of(&space->directories[j]);
        spare /= (int64_t)directory->sharers;
        if (spare < least) {
            least = spare;
            space->fullest = i;
        }
    }
    if (least == INT64_MAX) /* nothing is known of any: a failed write will tell */
        least = INT64_MAX / 2 / space->directory_count;
    space->spare_bytes = least * (int64_t)space->directory_count;
    atomic_store(&space->limit, space->marks[0] + (uint64_t)MAX(space->spare_bytes, (int64_t)0));
    atomic_store(&space->plenty, space->spare_bytes > (int64_t)space->plenty_bytes);
}

static void tell(struct space *space, uint64_t *refusals)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    const uint64_t now = atomic_load(&space->refusals);
    const bool is_lasting = space->spare_bytes < (int64_t)atomic_load(&space->refused_bytes);
    uint64_t *const told_ns = &space->told_ns[is_lasting];

    if (now == *refusals || (*told_ns > 0 && now_ns - *told_ns < LOG_NS))
        return;
    *refusals = now;
    *told_ns = now_ns;
    log_warn(
        is_lasting
            ? "the disk is full except for the reserve: updates that need more than is free are "
              "refused until a table is dropped, a checkpoint is deleted, or other programs "
              "free space"
            : "updates were refused, as the disk was full except for the reserve for a "
              "moment, and has room again: compactions need space for a while; drop tables "
              "or delete checkpoints soon",
        "free_bytes_for_rows=%" PRId64 " fullest_directory=%s", space->spare_bytes,
        LOG_QUOTED(space->directories[space->fullest].path));
}

static void *space_main(void *argument)
{
    struct space *const space = argument;
    uint64_t refusals = 0;

    while (!atomic_load(&space->stopping)) {
        struct timespec until;

        atomic_store(&space->woken, false);
        pthread_mutex_lock(&space->lock);
        look(space);
        tell(space, &refusals);
        pthread_mutex_unlock(&space->lock);
        until = clock_until(LOOK_NS);
        while (sem_clockwait(&space->wake, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
            continue;
    }
    return NULL;
}

static void wake(struct space *space)
{
    if (!atomic_exchange(&space->woken, true))
        sem_post(&space->wake);
}

/* ---- From outside ---- */

enum embtier_err space_new(const struct space_opts *opts, struct space **ret_space,
                           struct err_msg *msg)
{
    _cleanup_(space_freep) struct space *space = aligned_alloc(64, align_up(sizeof(*space), 64));

    if (!space)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    memset(space, 0, sizeof(*space));
    pthread_mutex_init(&space->lock, NULL);
    sem_init(&space->wake, 0, 0);
    space->plenty_bytes = opts->plenty_bytes;
    space->database_count = opts->database_count;
    space->users = 1;
    atomic_store(&space->plenty, true); /* before the first look */
    space->directories = calloc(opts->directory_count, sizeof(*space->directories));
    if (!space->directories)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (; space->directory_count < opts->directory_count; space->directory_count++)
        space->directories[space->directory_count].fd = -1;
    for (uint32_t i = 0; i < opts->directory_count; i++)
        TRY(directory_open(&space->directories[i], opts->directories[i], msg));
    for (uint32_t i = 0; i < opts->directory_count; i++) {
        TRY(directory_measure(space, i, opts, msg));
        release(&space->directories[i], true);
    }
    *ret_space = TAKE(space);
    return EMBTIER_OK;
}

enum embtier_err space_start(struct space *space, uint64_t (*buffer_bytes)(const void *context),
                             const void *context, struct err_msg *msg)
{
    int errnum;

    pthread_mutex_lock(&space->lock);
    space->buffer_bytes = buffer_bytes;
    space->context = context;
    look(space);
    pthread_mutex_unlock(&space->lock);
    errnum = pthread_create(&space->thread, NULL, space_main, space);
    if (errnum != 0)
        return err_set_errno(msg, errnum, "starting the thread that watches the space on disk");
    pthread_setname_np(space->thread, "space");
    space->has_thread = true;
    return EMBTIER_OK;
}

void space_free(struct space *space)
{
    if (!space)
        return;
    if (space->has_thread) {
        atomic_store(&space->stopping, true);
        sem_post(&space->wake);
        pthread_join(space->thread, NULL);
    }
    for (uint32_t i = 0; i < space->directory_count; i++) {
        closep(&space->directories[i].fd);
        free(space->directories[i].path);
    }
    free(space->directories);
    sem_destroy(&space->wake);
    pthread_mutex_destroy(&space->lock);
    free(space);
}

/* Directories of one file system share it. */
static void count_sharers(struct space *space)
{
    for (uint32_t i = 0; i < space->directory_count; i++) {
        space->directories[i].sharers = 0;
        for (uint32_t j = 0; j < space->directory_count; j++)
            space->directories[i].sharers +=
                space->directories[j].device == space->directories[i].device;
    }
}

/* The reserve is as large as those of the others. The caller holds the lock. */
static enum embtier_err add(struct space *space, struct directory *fresh, struct err_msg *msg)
{
    struct directory *const more =
        realloc(space->directories, (space->directory_count + 1) * sizeof(*more));
    struct directory *last;
    uint64_t bytes;

    if (!more)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    space->directories = more;
    last = &more[space->directory_count];
    if (!free_of(fresh, &bytes, &fresh->capacity_bytes))
        return err_set_errno(msg, errno, "%s", fresh->path);
    *last = *fresh;
    *fresh = (struct directory){ .fd = -1 };
    space->directory_count++;
    count_sharers(space);
    last->is_reserve_set = more[0].is_reserve_set;
    last->reserve_bytes = more[0].reserve_bytes;
    if (!last->is_reserve_set)
        last->reserve_bytes =
            MIN(last->reserve_bytes, last->capacity_bytes / RESERVE_PART / last->sharers);
    last->start_bytes = MIN(more[0].start_bytes, last->reserve_bytes / 2);
    last->floor_bytes = MIN((uint64_t)FLOOR_BYTES, last->capacity_bytes / FLOOR_PART);
    look(space);
    return EMBTIER_OK;
}

enum embtier_err space_add(struct space *space, const char *directory, struct err_msg *msg)
{
    struct directory fresh = { .fd = -1 };
    enum embtier_err err = directory_open(&fresh, directory, msg);

    if (err == EMBTIER_OK) {
        pthread_mutex_lock(&space->lock);
        err = add(space, &fresh, msg);
        pthread_mutex_unlock(&space->lock);
    }
    closep(&fresh.fd);
    free(fresh.path);
    return err;
}

/* The caller holds the lock. */
static void remove_at(struct space *space, uint32_t index)
{
    struct directory *const directory = &space->directories[index];

    hold_less(directory, 0);
    closep(&directory->fd);
    free(directory->path);
    space->directory_count--;
    memmove(directory, directory + 1, (space->directory_count - index) * sizeof(*directory));
    space->fullest = 0;
    count_sharers(space);
    look(space);
}

void space_remove(struct space *space, const char *directory)
{
    pthread_mutex_lock(&space->lock);
    for (uint32_t i = 0; i < space->directory_count; i++) {
        if (strcmp(space->directories[i].path, directory) != 0)
            continue;
        assert(space->directory_count > 1);
        remove_at(space, i);
        break;
    }
    pthread_mutex_unlock(&space->lock);
}

void space_set_memtables(struct space *space, uint64_t memtable_bytes, uint32_t database_count)
{
    pthread_mutex_lock(&space->lock);
    space->database_count = database_count;
    for (uint32_t i = 0; i < space->directory_count; i++) {
        struct directory *const directory = &space->directories[i];

        if (directory->is_reserve_set)
            continue;
        directory->reserve_bytes =
            reserve_for(space, directory, memtable_bytes) + opening_bytes(space, directory);
        directory->start_bytes = MIN(opening_bytes(space, directory), directory->reserve_bytes / 2);
        if (directory->held_bytes > directory->reserve_bytes)
            hold_less(directory, directory->reserve_bytes);
    }
    look(space);
    pthread_mutex_unlock(&space->lock);
}

bool space_begin_use(struct space *space)
{
    bool any = false;

    pthread_mutex_lock(&space->lock);
    space->users++;
    for (uint32_t i = 0; i < space->directory_count; i++)
        any = any || may_have_little(&space->directories[i]) || is_short(&space->directories[i]);
    pthread_mutex_unlock(&space->lock);
    return any;
}

bool space_use(struct space *space)
{
    bool is_given_up = false;

    pthread_mutex_lock(&space->lock);
    assert(space->users > 0);
    space->is_used = true;
    for (uint32_t i = 0; i < space->directory_count; i++) {
        release(&space->directories[i], false);
        is_given_up = is_given_up || (missing_of(&space->directories[i]) > 0 &&
                                      !space->directories[i].cannot_hold);
    }
    look(space);
    pthread_mutex_unlock(&space->lock);
    return is_given_up;
}

bool space_end_use(struct space *space)
{
    bool is_last;

    pthread_mutex_lock(&space->lock);
    assert(space->users > 0);
    space->users--;
    is_last = space->users == 0;
    space->is_used = space->is_used && !is_last;
    look(space);
    pthread_mutex_unlock(&space->lock);
    return is_last;
}

void space_report(struct space *space, uint64_t unwritten_bytes)
{
    pthread_mutex_lock(&space->lock);
    space->unwritten_bytes = unwritten_bytes;
    space->marks[0] = space->marks[1];
    space->marks[1] = atomic_load(&space->admitted);
    pthread_mutex_unlock(&space->lock);
}

enum embtier_err space_admit(struct space *space, uint64_t bytes, uint64_t *ret_room_bytes)
{
    uint64_t admitted, limit;

    if (LIKELY(atomic_load_explicit(&space->plenty, memory_order_relaxed)))
        return EMBTIER_OK;
    if (atomic_fetch_add(&space->admitted, bytes) + bytes <= atomic_load(&space->limit))
        return EMBTIER_OK;
    admitted = atomic_fetch_sub(&space->admitted, bytes) - bytes;
    limit = atomic_load(&space->limit);
    *ret_room_bytes = limit > admitted ? limit - admitted : 0;
    wake(space);
    return EMBTIER_NO_SPACE;
}

void space_note_refusal(struct space *space, uint64_t bytes)
{
    atomic_store(&space->refused_bytes, bytes);
    atomic_store(&space->refused_ns, clock_now_ns(&clock_monotonic));
    atomic_fetch_add(&space->refusals, 1);
    wake(space);
}

enum embtier_err space_check(struct space *space, uint64_t bytes, const char *what,
                             struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;
    int64_t spare;

    pthread_mutex_lock(&space->lock);
    look(space);
    spare = space->spare_bytes;
    if (spare < 0 || (uint64_t)spare < bytes)
        err = err_set(
            msg, EMBTIER_NO_SPACE,
            "%s: %" PRIu64 " MiB are needed, and %" PRIu64
            " MiB are free in the data directories, without the reserve and unwritten rows; "
            "%s has the least: drop tables, delete checkpoints, or free space there",
            what, div_round_up(bytes, MIB), (uint64_t)MAX(spare, (int64_t)0) / MIB,
            space->directories[space->fullest].path);
    pthread_mutex_unlock(&space->lock);
    return err;
}

void space_stats(struct space *space, struct space_stats *ret_stats)
{
    struct space_stats stats = { .refusals = atomic_load(&space->refusals) };
    const uint64_t refused_ns = atomic_load(&space->refused_ns);

    stats.is_refusing =
        stats.refusals > 0 && clock_now_ns(&clock_monotonic) - refused_ns < REFUSING_NS;
    pthread_mutex_lock(&space->lock);
    for (uint32_t i = 0; i < space->directory_count; i++) {
        const uint64_t bytes = space->directories[i].reserve_bytes;

        stats.reserve_bytes += bytes;
        stats.least_bytes = i == 0 ? bytes : MIN(stats.least_bytes, bytes);
        stats.held_bytes += space->directories[i].held_bytes;
    }
    stats.free_bytes = (uint64_t)MAX(space->spare_bytes, (int64_t)0);
    pthread_mutex_unlock(&space->lock);
    *ret_stats = stats;
}
