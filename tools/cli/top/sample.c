/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/sample.h"

#include "base/clock.h"

void sample_clear(struct sample *sample)
{
    reading_clear(&sample->reading);
    embtier_session_list_free(sample->sessions);
    embtier_compaction_list_free(sample->compactions);
    *sample = (struct sample){ 0 };
}

/* Returns OK for an error that only says that this server, or this user, has not this part. */
static enum embtier_err leave_out(enum embtier_err err, bool *part)
{
    switch (err) {
    case EMBTIER_UNSUPPORTED:
    case EMBTIER_PROTOCOL:
    case EMBTIER_PERMISSION:
        *part = false;
        return EMBTIER_OK;
    default:
        return err;
    }
}

static enum embtier_err get_rest(struct embtier *server, struct sample_parts *parts,
                                 struct sample *sample)
{
    sample->tables_ns = clock_now_ns(&clock_monotonic);
    if (parts->sessions)
        TRY(leave_out(embtier_session_list(server, &sample->sessions), &parts->sessions));
    if (parts->compactions)
        TRY(leave_out(embtier_compaction_show(server, &sample->compactions), &parts->compactions));
    return EMBTIER_OK;
}

enum embtier_err sample_get(struct embtier *server, struct sample_parts *parts,
                            struct sample *ret_sample)
{
    struct sample sample = { 0 };
    enum embtier_err err;

    /* Does nothing while the connection lives. */
    TRY(embtier_reconnect_within(server, 0));
    TRY(reading_get(server, &parts->reading, &sample.reading));
    err = get_rest(server, parts, &sample);
    if (err == EMBTIER_OK)
        *ret_sample = sample;
    else
        sample_clear(&sample);
    return err;
}
