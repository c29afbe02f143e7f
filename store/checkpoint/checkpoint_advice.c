/* SPDX-License-Identifier: Apache-2.0 */
#include "store/checkpoint/checkpoint_advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/checkpoint/checkpoint_shelf.h"
#include "store/store_identity.h"

#define NAMED_MOST 10
#define OLDER_MOST 5
#define QUOTES     2

static void add_name(const struct checkpoint_shelf *shelf, uint64_t id, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

    err_append(msg, "%" PRIu64, id);
    if (checkpoint_read(shelf, id, &record, NULL) != EMBTIER_OK)
        err_append(msg, " (cannot be read)");
    else if (record->info.has_step)
        err_append(msg, " (step %" PRIu64 ")", record->info.step);
}

static void add_names(const struct checkpoint_shelf *shelf, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    if (checkpoint_list(shelf, &ids, &count, NULL) != EMBTIER_OK)
        return;
    err_append(msg, count > NAMED_MOST ? ": the newest are "
                    : count > 1        ? ": there are "
                    : count == 1       ? ": there is only "
                                       : ": there is none");
    for (uint32_t i = 0; i < MIN(count, (uint32_t)NAMED_MOST); i++) {
        err_append(msg, i > 0 ? ", " : "");
        add_name(shelf, ids[count - 1 - i], msg);
    }
}

/* Names the checkpoints other than @id whose records can be read. */
static void add_others(const struct checkpoint_shelf *shelf, uint64_t id, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0, named = 0;

    if (!msg || checkpoint_list(shelf, &ids, &count, NULL) != EMBTIER_OK)
        return;
    while (count-- > 0 && named < NAMED_MOST) {
        _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;

        if (ids[count] == id || checkpoint_read(shelf, ids[count], &record, NULL) != EMBTIER_OK)
            continue;
        err_append(msg, named++ == 0 ? ": take another one, the newest first: " : ", ");
        add_name(shelf, ids[count], msg);
    }
    if (named == 0)
        err_append(msg, ": no other checkpoint can be read");
}

enum embtier_err checkpoint_read_named(const struct checkpoint_shelf *shelf, uint64_t id,
                                       struct checkpoint_record **ret_record, struct err_msg *msg)
{
    const enum embtier_err err = checkpoint_read(shelf, id, ret_record, msg);

    if (err == EMBTIER_CORRUPT || err == EMBTIER_UNSUPPORTED)
        add_others(shelf, id, msg);
    if (err != EMBTIER_NOT_FOUND)
        return err;
    err_write(msg, "there is no checkpoint %" PRIu64 " of the store in %s", id,
              store_identity_directory(shelf->identity, 0));
    if (msg)
        add_names(shelf, msg);
    return err;
}

/* Finds the newest checkpoint whose record can be read. --restore checks the rest before it changes
 * anything. */
static enum embtier_err find_whole(const struct checkpoint_shelf *shelf,
                                   struct checkpoint_record **ret_record)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0;

    TRY(checkpoint_list(shelf, &ids, &count, NULL));
    while (count-- > 0)
        if (checkpoint_read(shelf, ids[count], ret_record, NULL) == EMBTIER_OK)
            return EMBTIER_OK;
    return EMBTIER_NOT_FOUND;
}

/* Adds the whole advice, with room for a log's quotes. Without enough room it cuts the end of the
 * message: RocksDB names the same file several times. */
static void add_whole(struct err_msg *msg, const struct err_msg *advice)
{
    static const char cut[] = "...";
    const size_t room = sizeof(msg->text) - 1 - QUOTES - strlen(advice->text);

    if (strlen(msg->text) > room)
        memcpy(msg->text + room - strlen(cut), cut, sizeof(cut));
    err_append(msg, "%s", advice->text);
}

/* Names the newest checkpoints before @id. A checkpoint shares table files with the tables of now,
 * and an older one shares fewer. */
static void add_older(const struct checkpoint_shelf *shelf, uint64_t id, struct err_msg *advice)
{
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t count = 0, named = 0;

    if (checkpoint_list(shelf, &ids, &count, NULL) != EMBTIER_OK)
        return;
    while (count-- > 0 && named < OLDER_MOST)
        if (ids[count] < id)
            err_append(advice, "%s%" PRIu64,
                       named++ == 0 ? "; if it has the damaged file, too, try an older one: "
                                    : ", ",
                       ids[count]);
}

void checkpoint_advise(const struct checkpoint_shelf *shelf, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    struct err_msg advice;

    if (!msg || find_whole(shelf, &record) != EMBTIER_OK)
        return;
    err_write(&advice,
              " (`embtierd --restore %" PRIu64 "` restores all tables from the newest checkpoint",
              record->info.id);
    if (record->info.has_step)
        err_append(&advice, ", of step %" PRIu64, record->info.step);
    err_append(&advice, ", and loses all later updates");
    add_older(shelf, record->info.id, &advice);
    err_append(&advice, ")");
    add_whole(msg, &advice);
}

void checkpoint_advise_after_crash(struct err_msg *msg)
{
    err_append(
        msg,
        " (a start after a crash needs the newest checkpoint. `embtierd --restore ID` restores "
        "all tables from another one. If you move the newest one's folder out of "
        "checkpoints/, `replay` tables go back to the one before, and others lose nothing)");
}
