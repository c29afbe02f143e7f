/* SPDX-License-Identifier: Apache-2.0 */
/* Reads checkpoints: lists, shows and verifies them. A thread that may wait for SSD runs this. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/checkpoint/checkpoints_state.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/store.h"

enum embtier_err checkpoints_read_info(const struct checkpoints *c, uint64_t id,
                                       struct checkpoint_info *ret_info, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    struct err_msg why = { { 0 } };
    const enum embtier_err err = checkpoint_read(store_shelf(c->opts.store), id, &record, &why);

    if (err == EMBTIER_OK)
        *ret_info = record->info;
    if (err == EMBTIER_OK || err == EMBTIER_NO_MEMORY) /* an existing one must not seem gone */
        return err == EMBTIER_OK ? err : err_set(msg, err, "%s", why.text);
    if (err != EMBTIER_NOT_FOUND)
        log_warn("a checkpoint cannot be read", "id=%" PRIu64 " why=%s", id, LOG_QUOTED(why.text));
    return EMBTIER_AGAIN;
}

enum embtier_err checkpoints_list(struct checkpoints *c, uint64_t after, uint32_t most,
                                  struct checkpoint_page *ret_page, struct err_msg *msg)
{
    struct checkpoint_page page = { .infos = calloc(CHECKPOINTS_PAGE, sizeof(*page.infos)) };
    _cleanup_(freep) struct checkpoint_info *infos = page.infos;
    _cleanup_(freep) uint64_t *ids = NULL;
    uint32_t all = 0, bytes = 0;

    if (!infos)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    if (most == 0 || most > CHECKPOINTS_PAGE)
        most = CHECKPOINTS_PAGE;
    TRY(checkpoint_list(store_shelf(c->opts.store), &ids, &all, msg));
    for (uint32_t i = 0; i < all && !page.more; i++) {
        enum embtier_err err;

        if (ids[i] <= after)
            continue;
        page.more = page.count == most || bytes + EMBTIER_METADATA_MAX > CHECKPOINTS_PAGE_BYTES;
        if (page.more)
            break;
        err = checkpoints_read_info(c, ids[i], &page.infos[page.count], msg);
        if (err == EMBTIER_AGAIN)
            continue;
        TRY(err);
        bytes += (uint32_t)strlen(page.infos[page.count++].metadata);
    }
    infos = NULL;
    *ret_page = page;
    return EMBTIER_OK;
}

void checkpoint_tables_clear(struct checkpoint_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++)
        free(tables->names[i]);
    free(tables->names);
    *tables = (struct checkpoint_tables){ 0 };
}

static enum embtier_err copy_names(const struct catalog *catalog, uint32_t from,
                                   struct checkpoint_tables *tables, struct err_msg *msg)
{
    uint32_t live = 0, bytes = 0;

    tables->names = calloc((size_t)catalog_count(catalog) + 1, sizeof(*tables->names));
    for (uint32_t i = 0; tables->names && i < catalog_count(catalog); i++) {
        const struct catalog_table *const table = catalog_at(catalog, i);

        if (table->state != CATALOG_LIVE || live++ < from)
            continue;
        bytes += EMBTIER_TABLE_NAME_MAX / 8 + (uint32_t)strlen(table->spec.name);
        tables->more = bytes > CHECKPOINTS_PAGE_BYTES;
        if (tables->more)
            break;
        tables->names[tables->count] = strdup(table->spec.name);
        if (!tables->names[tables->count++])
            return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    }
    return tables->names ? EMBTIER_OK
                         : err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
}

enum embtier_err checkpoints_show(struct checkpoints *c, uint64_t id, uint32_t from,
                                  struct checkpoint_info *ret_info,
                                  struct checkpoint_tables *ret_tables, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    enum embtier_err err;

    *ret_tables = (struct checkpoint_tables){ 0 };
    TRY(checkpoints_begin_use(c, id, msg));
    err = checkpoint_read(store_shelf(c->opts.store), id, &record, msg);
    if (err == EMBTIER_OK)
        err = checkpoint_catalog(store_shelf(c->opts.store), record, &catalog, msg);
    checkpoints_end_use(c, id);
    TRY(err);
    TRY(copy_names(catalog, from, ret_tables, msg));
    *ret_info = record->info;
    return EMBTIER_OK;
}

struct verifying {
    const struct checkpoints *checkpoints;
    const struct progress_sink *progress;
    _Atomic bool give_up;
};

static void verified_bytes(void *context, uint64_t done, uint64_t total)
{
    struct verifying *const verifying = context;

    if (progress_tell(verifying->progress, done, total, "bytes", NULL) != EMBTIER_OK ||
        atomic_load(&verifying->checkpoints->stopping))
        atomic_store(&verifying->give_up, true);
}

enum embtier_err checkpoints_verify(struct checkpoints *c, uint64_t id,
                                    const struct progress_sink *progress,
                                    struct checkpoint_info *ret_info, struct err_msg *msg)
{
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    struct verifying verifying = { .checkpoints = c, .progress = progress };
    enum embtier_err err;

    TRY(checkpoints_begin_use(c, id, msg));
    err = checkpoint_read(store_shelf(c->opts.store), id, &record, msg);
    if (err == EMBTIER_OK)
        err = checkpoint_verify(store_shelf(c->opts.store), record, verified_bytes, &verifying,
                                &verifying.give_up, msg);
    checkpoints_end_use(c, id);
    if (err == EMBTIER_SHUTDOWN)
        TRY(progress_look(progress, msg)); /* a cancelled job may be the reason */
    TRY(err);
    *ret_info = record->info;
    return EMBTIER_OK;
}
