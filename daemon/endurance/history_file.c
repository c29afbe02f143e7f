/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/history_file.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

static enum embtier_err parse(const struct history_file *file, const char *text, void *context,
                              struct err_msg *msg)
{
    json_error_t error;
    json_t *root;
    bool is_good;

    TRY(summed_json_check(file->name, text, true, msg));
    root = json_loads(text, 0, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", file->name);
    is_good = root && json_integer_value(json_object_get(root, "version")) == file->version &&
              file->take(root, context);
    json_decref(root);
    return is_good ? EMBTIER_OK
                   : err_set(msg, EMBTIER_CORRUPT,
                             "%s: damaged, or another version of embtier wrote it", file->name);
}

static void set_aside(const struct history_file *file, const char *directory, const char *why)
{
    char name[NAME_MAX + 1];
    _cleanup_(freep) char *path = path_join(directory, file->name);
    _cleanup_(freep) char *damaged = NULL;
    bool is_renamed;

    snprintf(name, sizeof(name), "%s.damaged", file->name);
    damaged = path_join(directory, name);
    is_renamed = path && damaged && rename(path, damaged) == 0;
    log_warn("a history of bytes written could not be read; `embtier endurance` begins a new one",
             "of=%s why=%s kept_as=%s", LOG_QUOTED(file->what), LOG_QUOTED(why),
             LOG_QUOTED(is_renamed ? damaged : "nothing: it could not be renamed"));
}

enum embtier_err history_file_read(const struct history_file *file, const char *directory,
                                   void *context)
{
    _cleanup_(freep) char *text = NULL;
    struct err_msg msg = { { 0 } };
    enum embtier_err err = durable_file_read(directory, file->name, &text, &msg);

    if (err == EMBTIER_OK)
        err = parse(file, text, context, &msg);
    if (err == EMBTIER_CORRUPT)
        set_aside(file, directory, msg.text);
    else if (err != EMBTIER_OK && err != EMBTIER_NOT_FOUND)
        log_warn("a history of bytes written could not be read and stays as it is; until the next "
                 "start `embtier endurance` has a new one, which is not saved",
                 "of=%s why=%s", LOG_QUOTED(file->what), LOG_QUOTED(msg.text));
    return err;
}
