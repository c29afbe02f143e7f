/* SPDX-License-Identifier: Apache-2.0 */
/* Rows move while the random walk's sessions read and write them: to other shards, to a data
 * directory that is added, and away from one that is removed. A restart may cut such a move short,
 * and the next start goes on with it.
 *
 * data.directories need not name a directory that was added, and may name one that was removed. */
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "config/config.h"
#include "tests/integration/walk.h"

#define TRIES           5
#define BUCKETS         16384
#define REMOVED_MAX     2          /* their databases take memory until the next start */
#define SLOW_RATE_BYTES (64 * MIB) /* so that a restart comes before the end, most often */

/* On a busy machine the server may give up, after a minute or more of tries. */
void walk_reshard(struct walk *walk, uint32_t shards)
{
    struct embtier_reshard done, shown;
    enum embtier_err err = EMBTIER_BUSY;

    for (uint32_t i = 0; i < TRIES && err == EMBTIER_BUSY; i++)
        err = embtier_reshard_run(walk->admin, shards, 0, NULL, NULL, &done);
    walk_expect(walk, walk->admin, err, EMBTIER_OK, "move rows to other shards");
    walk_expect(walk, walk->admin, embtier_reshard_show(walk->admin, &shown), EMBTIER_OK,
                "look at shards");
    WALK_CHECK(walk, done.shards == shards && shown.shards == shards && !shown.runs,
               "%" PRIu32 " shards have rows instead of %" PRIu32, shown.shards, shards);
    walk->directories.was_left = true;
}

/* ---- Names ---- */

/* That of the newest directory. */
static void path_of(const struct walk *walk, char *ret_path, size_t path_bytes)
{
    snprintf(ret_path, path_bytes, "%s/more.%" PRIu32, walk->harness.directory,
             walk->directories.added);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

/* The server is stopped, or was never started. The drive of a removed directory may be gone. */
void walk_name_directories(struct walk *walk, char *ret_list, size_t list_bytes)
{
    struct walk_directories *const directories = &walk->directories;
    const bool is_named = directories->added > 0 && walk_chance(walk, 50);
    char path[128];

    path_of(walk, path, sizeof(path));
    if (directories->added > 0 && !directories->is_there && !directories->is_gone &&
        walk_chance(walk, 50)) {
        (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        directories->is_gone = true;
    }
    directories->removed = 0;
    snprintf(ret_list, list_bytes, "%s/rows%s%s", walk->harness.directory, is_named ? ", " : "",
             is_named ? path : "");
}

/* ---- A move ---- */

struct move {
    struct walk *walk;
    char path[128];
    bool adds; /* or removes */
    bool deletes_checkpoints;
    uint64_t rate_bytes;
    _Atomic bool is_over;
    bool has_bad_progress;
    enum embtier_err err;
};

static void see_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct move *const move = context;

    if (done > total || !unit)
        move->has_bad_progress = true;
}

static enum embtier_err order(struct move *move)
{
    struct embtier *const server = move->walk->admin;
    struct embtier_data_list *list;
    const enum embtier_err err =
        move->adds
            ? embtier_data_add(server, move->path, move->rate_bytes, see_progress, move, &list)
            : embtier_data_remove(server, move->path, move->deletes_checkpoints, move->rate_bytes,
                                  see_progress, move, &list);

    if (err == EMBTIER_OK)
        embtier_data_list_free(list);
    return err;
}

/* A tried order that failed half-way begins again where it was. */
static void *move_main(void *context)
{
    struct move *const move = context;

    move->err = EMBTIER_BUSY;
    for (uint32_t i = 0; i < TRIES && move->err == EMBTIER_BUSY; i++)
        move->err = order(move);
    move->is_over = true;
    return NULL;
}

/* True if nothing was left to do when the order came again. */
static bool is_done(const struct move *move)
{
    return move->err == (move->adds ? EMBTIER_EXISTS : EMBTIER_NOT_FOUND);
}

/* Waits until rows move, or have moved. */
static void await_order(struct move *move, struct walk_session *session)
{
    bool runs = false;

    while (!runs && !move->is_over) {
        struct embtier_data_list *list;

        walk_expect(move->walk, session->server, embtier_data_list(session->server, &list),
                    EMBTIER_OK, "list data directories");
        runs = embtier_data_list_order(list)->runs;
        embtier_data_list_free(list);
    }
}

/* The start goes on with the order: it is given again until that has come to its end. */
static void cut_short(struct move *move, pthread_t thread)
{
    struct walk *const walk = move->walk;
    const uint64_t begin_ns = clock_now_ns(&clock_monotonic);

    await_order(move, &walk->sessions[0]);
    harness_stop(&walk->harness);
    pthread_join(thread, NULL);
    WALK_CHECK(walk,
               move->err == EMBTIER_OK || move->err == EMBTIER_SHUTDOWN ||
                   move->err == EMBTIER_DISCONNECTED || is_done(move),
               "a move that a restart cut short: error %d", (int)move->err);
    walk_restart(walk, walk->lanes_now);
    while ((move->err = order(move)) == EMBTIER_BUSY) {
        WALK_CHECK(walk,
                   clock_now_ns(&clock_monotonic) - begin_ns < WALK_TIMEOUT_MS * UINT64_C(1000000),
                   "a start does not come to the end of a move: %s", embtier_message(walk->admin));
        usleep(20000);
    }
    if (is_done(move))
        move->err = EMBTIER_OK;
}

static void run(struct move *move, bool is_cut_short)
{
    struct walk *const walk = move->walk;
    pthread_t thread;

    WALK_CHECK(walk, pthread_create(&thread, NULL, move_main, move) == 0, "no thread");
    for (uint32_t i = walk_pick(walk, 200); i > 0; i--)
        walk_submit(walk, &walk->sessions[walk_pick(walk, WALK_SESSIONS)], false);
    if (is_cut_short)
        cut_short(move, thread);
    else
        pthread_join(thread, NULL);
    walk_expect(walk, walk->admin, move->err, EMBTIER_OK,
                move->adds ? "add a data directory" : "remove a data directory");
    WALK_CHECK(walk, !move->has_bad_progress, "more buckets were moved than there are to move");
}

static void check_list(struct walk *walk)
{
    const struct walk_directories *const directories = &walk->directories;
    struct embtier_data_list *list;
    uint32_t buckets = 0;
    size_t count;

    walk_expect(walk, walk->admin, embtier_data_list(walk->admin, &list), EMBTIER_OK,
                "list data directories");
    count = embtier_data_list_count(list);
    WALK_CHECK(walk, count == (directories->is_there ? 2 : 1), "%zu data directories", count);
    for (size_t i = 0; i < count; i++) {
        const struct embtier_data_directory *const directory = embtier_data_list_at(list, i);

        WALK_CHECK(walk,
                   directory->number == (i == 0 ? 0 : directories->added) && directory->buckets > 0,
                   "data directory %" PRIu32 " has %" PRIu32 " buckets", directory->number,
                   directory->buckets);
        buckets += directory->buckets;
    }
    WALK_CHECK(walk, buckets == BUCKETS && !embtier_data_list_order(list)->runs,
               "data directories have %" PRIu32 " buckets", buckets);
    embtier_data_list_free(list);
}

/* ---- Steps ---- */

static void add(struct walk *walk)
{
    struct walk_directories *const directories = &walk->directories;
    const bool is_cut_short = walk_chance(walk, 25);
    struct move move = { .walk = walk, .adds = true };

    directories->added++;
    directories->is_gone = false;
    directories->is_there = true;
    directories->was_left = false;
    directories->checkpoint_before = walk->checkpoint;
    path_of(walk, move.path, sizeof(move.path));
    move.rate_bytes = is_cut_short ? SLOW_RATE_BYTES : 0;
    run(&move, is_cut_short);
}

/* A checkpoint of a user that has files in the directory stays unless the order says otherwise. It
 * has none there if rows had moved to shards of the first one. True: the directory was removed. */
static bool remove_without_checkpoints(struct walk *walk, struct move *move)
{
    enum embtier_err err;

    if (walk->checkpoint <= walk->directories.checkpoint_before)
        return false;
    err = order(move);
    WALK_CHECK(walk, err == EMBTIER_EXISTS || (err == EMBTIER_OK && walk->directories.was_left),
               "remove a data directory that a checkpoint needs: error %d: %s", (int)err,
               embtier_message(walk->admin));
    return err == EMBTIER_OK;
}

static void remove_newest(struct walk *walk)
{
    struct walk_directories *const directories = &walk->directories;
    const bool is_cut_short = walk_chance(walk, 25);
    struct move move = { .walk = walk };

    path_of(walk, move.path, sizeof(move.path));
    if (!remove_without_checkpoints(walk, &move)) {
        move.deletes_checkpoints = true;
        move.rate_bytes = is_cut_short ? SLOW_RATE_BYTES : 0;
        run(&move, is_cut_short);
    }
    directories->is_there = false;
    directories->removed++;
    if (walk->checkpoint > directories->checkpoint_before)
        walk->checkpoint = 0;
}

void walk_change_directories(struct walk *walk)
{
    const struct walk_directories *const directories = &walk->directories;

    if (directories->is_there)
        remove_newest(walk);
    else if (directories->added + 1 < CONFIG_DIRECTORIES_MAX)
        add(walk);
    check_list(walk);
    if (directories->removed == REMOVED_MAX)
        walk_restart(walk, walk->lanes_now);
}
