/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/source.h"

#include <assert.h>
#include <stdio.h>

static void lose(struct source *source, enum embtier_err err)
{
    source->is_lost = true;
    source->err = err;
    err_write(&source->why, "%s", embtier_message(source->server));
    /* Another process of the server begins its counters at 0. */
    sample_clear(&source->before);
    source->has_before = false;
}

enum embtier_err source_next(struct source *source)
{
    const uint64_t session = embtier_session_number(source->server);
    struct sample sample;
    const enum embtier_err err = sample_get(source->server, &source->parts, &sample);

    if (err == EMBTIER_NO_MEMORY)
        return err;
    if (err != EMBTIER_OK) {
        lose(source, err);
        return EMBTIER_OK;
    }
    sample_clear(&source->before);
    source->before = source->now;
    source->has_before =
        source->has_now && !source->is_lost && session == embtier_session_number(source->server);
    source->now = sample;
    source->has_now = true;
    source->is_lost = false;
    return EMBTIER_OK;
}

enum embtier_err source_frame(const struct source *source, struct frame *ret_frame)
{
    assert(source->has_now);
    return frame_make(source->has_before ? &source->before : NULL, &source->now, ret_frame);
}

const char *source_lost_text(struct lost_text *buffer, const struct source *source)
{
    (void)snprintf(buffer->text, sizeof(buffer->text), "no connection, trying again: %s",
                   source->why.text);
    return buffer->text;
}

void source_clear(struct source *source)
{
    sample_clear(&source->now);
    sample_clear(&source->before);
    source->has_now = false;
    source->has_before = false;
}
