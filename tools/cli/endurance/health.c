/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/health.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/nvme/drive_name.h"
#include "tools/nvme/health_page.h"

#define SAID_BYTES 65536

/* The child's line, without its name. */
static enum embtier_err failure(const struct child_output *output, struct err_msg *msg)
{
    const char *line = output->said.text;

    if (strncmp(line, "embtier-nvme-health: ", 21) == 0)
        line += 21;
    if (line[0] == '\0')
        return err_set(msg, EMBTIER_IO, "embtier-nvme-health ended with status %d and no message",
                       output->exit_status);
    return err_set(msg, EMBTIER_IO, "%s", line);
}

static enum embtier_err take_answer(const struct child_output *output, json_t **ret_health,
                                    struct err_msg *msg)
{
    json_t *const health = json_loads(output->text, 0, NULL);

    if (!json_is_object(health)) {
        json_decref(health);
        return err_set(
            msg, EMBTIER_PROTOCOL,
            "embtier-nvme-health printed something else than JSON: is it of this version?");
    }
    *ret_health = health;
    return EMBTIER_OK;
}

enum embtier_err health_start(const char *program, const char *device, struct child *ret_child,
                              struct err_msg *msg)
{
    char path[64];
    const char *const arguments[] = { program, path, NULL };

    if (!drive_name_is_good(device, true) ||
        snprintf(path, sizeof(path), "/dev/%s", device) >= (int)sizeof(path))
        return err_set(msg, EMBTIER_UNSUPPORTED, "no NVMe drive, so its health is not read");
    return child_start(arguments, ret_child, msg);
}

enum embtier_err health_finish(struct child *child, uint64_t until_ns, struct json_t **ret_health,
                               struct err_msg *msg)
{
    _cleanup_(child_output_clear) struct child_output output = { 0 };
    const enum embtier_err err = child_finish(child, until_ns, SAID_BYTES, &output, msg);

    if (err == EMBTIER_TIMEOUT)
        return err_set(msg, EMBTIER_TIMEOUT, "the drive did not answer within %d s: see dmesg",
                       (int)(HEALTH_LIMIT_NS / 1000000000));
    TRY(err);
    return output.exit_status == 0 ? take_answer(&output, ret_health, msg) : failure(&output, msg);
}

/* ---- Warnings ---- */

void health_each_warning(const struct json_t *health,
                         void (*take)(const char *meaning, void *context), void *context)
{
    const json_int_t warnings = json_integer_value(json_object_get(health, "warnings"));

#define X(name, bit, word, meaning)                                                                \
    if (warnings & (bit))                                                                          \
        take(meaning, context);
    HEALTH_WARNING_TABLE(X)
#undef X
}
