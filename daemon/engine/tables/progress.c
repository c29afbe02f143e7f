/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tables/progress.h"

#include <stddef.h>

#include "base/macros.h"

enum embtier_err progress_look(const struct progress_sink *sink, struct err_msg *msg)
{
    const uint32_t why = sink && sink->stop ? atomic_load(sink->stop) : EMBTIER_OK;

    if (why == EMBTIER_OK)
        return EMBTIER_OK;
    return err_set(msg, (enum embtier_err)why, "%s",
                   (sink->words ? sink->words : err_text)((enum embtier_err)why));
}

enum embtier_err progress_tell(const struct progress_sink *sink, uint64_t done, uint64_t total,
                               const char *unit, struct err_msg *msg)
{
    if (!sink)
        return EMBTIER_OK;
    TRY(progress_look(sink, msg));
    sink->report(sink->context, done, total, unit);
    return EMBTIER_OK;
}
