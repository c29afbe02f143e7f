/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/reshard_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "config/config.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

static const char *const order_names[] = { [RESHARD_ADD] = "add", [RESHARD_REMOVE] = "remove" };

/* Records of servers that knew no directories have no order. */
static bool parse_order(const json_t *root, struct reshard_record *record)
{
    const char *const order = json_string_value(json_object_get(root, "order"));
    const char *const directory = json_string_value(json_object_get(root, "directory"));

    if (!json_object_get(root, "order"))
        return true;
    if (!order || !directory || directory[0] != '/' ||
        strlen(directory) >= sizeof(record->directory))
        return false;
    for (uint32_t i = RESHARD_ADD; i < ARRAY_LEN(order_names); i++)
        if (strcmp(order, order_names[i]) == 0)
            record->order = (enum reshard_order)i;
    record->deletes_checkpoints = json_is_true(json_object_get(root, "deletes_checkpoints"));
    memcpy(record->directory, directory, strlen(directory) + 1);
    return record->order != RESHARD_TO_SHARDS;
}

static bool record_parse(const json_t *root, struct reshard_record *ret_record)
{
    const json_t *const shards = json_object_get(root, "shards");
    const json_t *const rate = json_object_get(root, "rate_bytes");
    struct reshard_record record = { 0 };

    if (!json_is_integer(shards) || json_integer_value(shards) < 1 ||
        json_integer_value(shards) > CONFIG_SHARDS_MAX || !json_is_integer(rate) ||
        json_integer_value(rate) < 0)
        return false;
    record.shards = (uint32_t)json_integer_value(shards);
    record.rate_bytes = (uint64_t)json_integer_value(rate);
    if (!parse_order(root, &record))
        return false;
    *ret_record = record;
    return true;
}

enum embtier_err reshard_record_read(const char *directory, struct reshard_record *ret_record,
                                     struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *path = path_join(directory, RESHARD_RECORD_FILE);
    _cleanup_(freep) char *text = NULL;
    enum embtier_err err;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    err = durable_file_read(directory, RESHARD_RECORD_FILE, &text, msg);
    if (err == EMBTIER_NOT_FOUND) {
        *ret_record = (struct reshard_record){ 0 };
        return EMBTIER_OK;
    }
    TRY(err);
    TRY(summed_json_check(path, text, true, msg));
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!record_parse(root, ret_record))
        return err_set(msg, EMBTIER_CORRUPT, "%s: no record of a job that moves buckets", path);
    return EMBTIER_OK;
}

enum embtier_err reshard_record_write(const char *directory, const struct reshard_record *record,
                                      struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root =
        json_pack("{s:s, s:I, s:I}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "shards",
                  (json_int_t)record->shards, "rate_bytes", (json_int_t)record->rate_bytes);

    if (root && record->order != RESHARD_TO_SHARDS &&
        (json_object_set_new(root, "order", json_string(order_names[record->order])) != 0 ||
         json_object_set_new(root, "directory", json_string(record->directory)) != 0 ||
         json_object_set_new(root, "deletes_checkpoints",
                             json_boolean(record->deletes_checkpoints)) != 0))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return summed_json_write(directory, RESHARD_RECORD_FILE, root, msg);
}

enum embtier_err reshard_record_remove(const char *directory, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(directory, RESHARD_RECORD_FILE);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", directory);
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    return directory_sync(directory, msg);
}

bool reshard_record_put_back(const char *directory, const struct reshard_record *before)
{
    const enum embtier_err err = before->shards > 0 ? reshard_record_write(directory, before, NULL)
                                                    : reshard_record_remove(directory, NULL);

    return before->shards > 0 || err != EMBTIER_OK;
}
