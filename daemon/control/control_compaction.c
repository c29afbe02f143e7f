/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction as operators see it: why each database compacts or does not; pause, resume, hours. */
#include <stdlib.h>

#include "base/log/log.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/jobs/knobs/knobs.h"
#include "store/database/compaction_scheduler.h"
#include "store/store.h"

static const struct {
    const char *word, *why;
} states[COMPACTION_STATE_COUNT] = {
#define X(name, word, why) [COMPACTION_##name] = { word, why },
    COMPACTION_STATES(X)
#undef X
};

static const struct {
    const char *word, *why;
} paces[COMPACTION_PACE_COUNT] = {
#define X(name, word, why) [COMPACTION_PACE_##name] = { word, why },
    COMPACTION_PACE_REASONS(X)
#undef X
};

/* A database, for the wire. */
struct item {
    struct compaction_view view;
    const char *path;
};

/* Borrows the item. */
static void fill_item(void *item, void *wire)
{
    const struct item *const from = item;
    Embtier__CompactionDatabase *const to = wire;

    embtier__compaction_database__init(to);
    to->path = (char *)(uintptr_t)from->path;
    to->state = (char *)(uintptr_t)states[from->view.state].word;
    to->why = (char *)(uintptr_t)states[from->view.state].why;
    to->is_urgent = from->view.is_urgent;
    to->level0_files = from->view.level0_files;
    to->pending_bytes = from->view.pending_bytes;
    to->running = from->view.running;
    to->done_bytes = from->view.done_bytes;
    to->total_bytes = from->view.total_bytes;
    to->elapsed_ms = from->view.elapsed_ms;
    to->has_remaining = from->view.has_remaining;
    to->remaining_ms = from->view.remaining_ms;
}

/* Returns up to @most databases from @first on, malloced, or NULL. */
static struct item *list_items(struct compaction_scheduler *scheduler, uint32_t first,
                               uint32_t most, uint32_t *ret_count)
{
    _cleanup_(freep) struct compaction_view *views = calloc((size_t)most + 1, sizeof(*views));
    struct item *const items = calloc((size_t)most + 1, sizeof(*items));

    if (!views || !items) {
        free(items);
        return NULL;
    }
    *ret_count = compaction_scheduler_list(scheduler, first, most, views);
    for (uint32_t i = 0; i < *ret_count; i++)
        items[i] = (struct item){ .view = views[i],
                                  .path = compaction_scheduler_path(scheduler, first + i) };
    return items;
}

/* Fills in all but the list. The hours are written to @text. */
static void fill_facts(struct compaction_scheduler *scheduler, Embtier__CompactionReply *body,
                       char text[DAY_HOURS_TEXT_BYTES])
{
    struct compaction_facts facts;

    compaction_scheduler_look(scheduler, &facts);
    day_hours_print(&facts.hours, text);
    body->databases = facts.databases;
    body->parallel = facts.parallel;
    body->is_deferred = facts.is_deferred;
    body->is_busy = facts.is_busy;
    body->lacks_space = facts.lacks_space;
    body->is_in_hours = facts.minutes_to_hours == 0;
    body->minutes_to_hours = facts.minutes_to_hours;
    body->hours = text;
    body->limit_bytes = facts.limit_bytes;
    body->limit_now_bytes = facts.limit_now_bytes;
    body->limit_state = (char *)(uintptr_t)paces[facts.pace].word;
    body->limit_why = (char *)(uintptr_t)paces[facts.pace].why;
}

static void reply_with(struct control *control, struct connection *connection, uint32_t id,
                       Embtier__CompactionReply *body)
{
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    char hours[DAY_HOURS_TEXT_BYTES];

    fill_facts(store_compaction(control->parts->store), body, hours);
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_COMPACTION;
    message.compaction = body;
    control_reply(control, connection, &message);
}

static void handle_show(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__CompactionShow *wire)
{
    struct compaction_scheduler *const scheduler = store_compaction(control->parts->store);
    const uint32_t first = wire ? (uint32_t)MIN(wire->first, (uint64_t)UINT32_MAX) : 0;
    const uint32_t most = control_page(wire ? wire->most : 0);
    Embtier__CompactionReply body = EMBTIER__COMPACTION_REPLY__INIT;
    _cleanup_(freep) void **pointers = NULL;
    _cleanup_(freep) struct item *items = NULL;
    struct compaction_facts facts;
    uint32_t count = 0;

    items = list_items(scheduler, first, most, &count);
    if (!items) {
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY,
                            &(struct err_msg){ "out of memory" });
        return;
    }
    compaction_scheduler_look(scheduler, &facts);
    body.more = first < facts.databases && facts.databases - first > count;
    pointers = control_new_page(control, connection, id,
                                &(struct page){ .items = items,
                                                .item_bytes = sizeof(*items),
                                                .wire_bytes = sizeof(Embtier__CompactionDatabase),
                                                .fill = fill_item,
                                                .count = count,
                                                .more = body.more });
    if (!pointers)
        return;
    body.n_list = count;
    body.list = (Embtier__CompactionDatabase **)pointers;
    reply_with(control, connection, id, &body);
}

static void set_deferral(struct compaction_scheduler *scheduler, uint32_t deferral)
{
    if (deferral == 0)
        return;
    compaction_scheduler_defer(scheduler, deferral == 1);
    log_info(deferral == 1 ? "compaction is put off" : "compaction goes on", "by=operator");
}

static void handle_set(struct control *control, struct connection *connection, uint32_t id,
                       const Embtier__CompactionSet *wire)
{
    struct compaction_scheduler *const scheduler = store_compaction(control->parts->store);
    Embtier__CompactionReply body = EMBTIER__COMPACTION_REPLY__INIT;
    struct err_msg msg = { { 0 } };
    struct day_hours hours;
    enum embtier_err err = EMBTIER_OK;

    if (wire->deferral > 2)
        err = err_set(&msg, EMBTIER_INVALID, "CompactionSet.deferral is %u; allowed: 0 to 2",
                      wire->deferral);
    else if (wire->hours[0] != '\0')
        err = day_hours_parse(wire->hours, &hours, &msg);
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    if (wire->hours[0] != '\0') {
        compaction_scheduler_set_hours(scheduler, &hours);
        knobs_note_set(control->parts->knobs, "rocksdb.compaction_hours");
        log_info("compaction has other hours until the next start", "hours=%s", wire->hours);
    }
    set_deferral(scheduler, wire->deferral);
    reply_with(control, connection, id, &body);
}

void control_handle_compaction(struct control *control, struct connection *connection,
                               const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_COMPACTION_SHOW)
        handle_show(control, connection, request->id, request->compaction_show);
    else
        handle_set(control, connection, request->id, request->compaction_set);
}
