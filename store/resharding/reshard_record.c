/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/reshard_record.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/paths.h"
#include "config/config.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

enum embtier_err reshard_record_read(const char *directory, struct reshard_record *ret_record,
                                     struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(freep) char *path = path_join(directory, RESHARD_RECORD_FILE);
    _cleanup_(freep) char *text = NULL;
    const json_t *shards, *rate;
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
    shards = json_object_get(root, "shards");
    rate = json_object_get(root, "rate_bytes");
    if (!json_is_integer(shards) || json_integer_value(shards) < 1 ||
        json_integer_value(shards) > CONFIG_SHARDS_MAX || !json_is_integer(rate) ||
        json_integer_value(rate) < 0)
        return err_set(msg, EMBTIER_CORRUPT, "%s: no record of a job that moves buckets", path);
    *ret_record = (struct reshard_record){ .shards = (uint32_t)json_integer_value(shards),
                                           .rate_bytes = (uint64_t)json_integer_value(rate) };
    return EMBTIER_OK;
}

enum embtier_err reshard_record_write(const char *directory, const struct reshard_record *record,
                                      struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root =
        json_pack("{s:s, s:I, s:I}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "shards",
                  (json_int_t)record->shards, "rate_bytes", (json_int_t)record->rate_bytes);

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
