/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/knob_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/text/text_escape.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/knobs/knobs.h"
#include "proto/control.pb-c.h"
#include "proto/control_check.h"
#include "proto/control_limits.h"

/* A page ends behind the knob with which it has this many bytes, or so many knobs. */
#define PAGE_BYTES (32 * KIB)
#define PAGE_KNOBS 64

/* ---- A knob on the wire ---- */

/* Sets a text, escaped where it is not plain. False: out of memory. */
static bool put_text(char **field, uint32_t tag, const char *text)
{
    char *const copy = control_clean_string(&embtier__knob__descriptor, tag, text);

    if (copy)
        *field = copy;
    return copy != NULL;
}

static bool fill(Embtier__Knob *wire, const struct knob *knob)
{
    const struct config_item *const item = &knob->item;
    struct config_allowed allowed;

    wire->source = (uint32_t)knob->source;
    wire->live = item->key->when == CONFIG_LIVE;
    wire->by_hand = item->key->when == CONFIG_HAND;
    wire->is_running = knob->is_running;
    wire->in_other = knob->in_other;
    return put_text(&wire->name, 1, item->name) && put_text(&wire->value, 2, item->value) &&
           put_text(&wire->allowed, 5, config_item_allowed(&allowed, item)) &&
           put_text(&wire->default_text, 6, item->key->default_text) &&
           put_text(&wire->text, 7, item->key->text) &&
           put_text(&wire->other_value, 10, knob->in_other ? knob->other_value : "");
}

/* Returns a malloced message of malloced texts, or NULL. */
static Embtier__Knob *wire_of(const struct knob *knob)
{
    Embtier__Knob *const wire = malloc(sizeof(*wire));

    if (!wire)
        return NULL;
    embtier__knob__init(wire);
    if (fill(wire, knob))
        return wire;
    embtier__knob__free_unpacked(wire, NULL);
    return NULL;
}

/* ---- Listing ---- */

struct list_job {
    struct job job;
    uint64_t after;
    char *name; /* "": all */
    bool with_file;
    char *text; /* of a file to compare with; NULL: none was sent */
    size_t text_bytes;
    char *text_name;
    /* The result. */
    uint64_t seen;
    size_t bytes;
    Embtier__Knob *knobs[PAGE_KNOBS];
    uint32_t count;
    bool more;
};

static struct list_job *list_of(const struct job *job)
{
    return CONTAINER_OF(job, struct list_job, job);
}

static enum embtier_err take(void *context, const struct knob *knob)
{
    struct list_job *const list = context;
    Embtier__Knob *wire;

    if (list->name[0] != '\0' && strcmp(list->name, knob->item.name) != 0)
        return EMBTIER_OK;
    if (list->seen++ < list->after || list->more)
        return EMBTIER_OK;
    if (list->count == PAGE_KNOBS || list->bytes >= PAGE_BYTES) {
        list->more = true;
        return EMBTIER_OK;
    }
    wire = wire_of(knob);
    if (!wire)
        return EMBTIER_NO_MEMORY;
    list->knobs[list->count++] = wire;
    list->bytes += embtier__knob__get_packed_size(wire);
    return EMBTIER_OK;
}

static enum embtier_err list_run(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    struct list_job *const list = list_of(job);
    _cleanup_(config_freep) struct config *other = NULL;

    (void)progress;
    if (list->text)
        TRY(knobs_read_text(parts->knobs, list->text_name, list->text, list->text_bytes, &other,
                            msg));
    else if (list->with_file)
        TRY(knobs_read_file(parts->knobs, &other, msg));
    TRY(knobs_each(parts->knobs, other, take, list));
    if (list->name[0] == '\0' || list->seen > 0)
        return EMBTIER_OK;
    TRY(knobs_name_nearest(parts->knobs, list->name, msg));
    return knobs_each(parts->knobs, other, take, list); /* it has just come */
}

static enum embtier_err list_reply(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    struct list_job *const list = list_of(job);
    Embtier__KnobListReply body = EMBTIER__KNOB_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    body.n_knobs = list->count;
    body.knobs = list->knobs;
    body.more = list->more;
    message.body_case = EMBTIER__REPLY__BODY_KNOB_LIST;
    message.knob_list = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void list_free(struct job *job)
{
    struct list_job *const list = list_of(job);

    for (uint32_t i = 0; i < list->count; i++)
        embtier__knob__free_unpacked(list->knobs[i], NULL);
    free(list->name);
    free(list->text);
    free(list->text_name);
    free(list);
}

static const struct job_kind list_kind = {
    .word = "knob list",
    .line = LINE_LOOKS,
    .run = list_run,
    .reply = list_reply,
    .free = list_free,
};

static bool take_list(struct list_job *list, const Embtier__KnobList *wire)
{
    const bool has_text = wire->text_given_case == EMBTIER__KNOB_LIST__TEXT_GIVEN_TEXT;

    list->after = wire->after;
    list->with_file = wire->with_file;
    list->name = strdup(wire->name);
    list->text_name = strdup(wire->file_name[0] ? wire->file_name : "the file");
    if (has_text) {
        list->text_bytes = wire->text.len;
        list->text = malloc(wire->text.len + 1);
        if (list->text && wire->text.len > 0)
            memcpy(list->text, wire->text.data, wire->text.len);
    }
    return list->name && list->text_name && (list->text || !has_text);
}

enum embtier_err knob_list_job_new(const struct job_request *request, struct job **ret_job,
                                   struct err_msg *msg)
{
    struct list_job *const list = calloc(1, sizeof(*list));

    (void)msg;
    if (!list)
        return EMBTIER_NO_MEMORY;
    list->job.kind = &list_kind;
    if (!take_list(list, request->wire->knob_list)) {
        list_free(&list->job);
        return EMBTIER_NO_MEMORY;
    }
    *ret_job = &list->job;
    return EMBTIER_OK;
}

/* ---- Setting ---- */

struct set_job {
    struct job job;
    struct knob_order order; /* texts malloced */
    struct knob_change change;
    const char *file;
};

static struct set_job *set_of(const struct job *job)
{
    return CONTAINER_OF(job, struct set_job, job);
}

static enum embtier_err set_run(struct job *job, const struct job_parts *parts,
                                const struct progress_sink *progress, struct err_msg *msg)
{
    struct set_job *const set = set_of(job);

    (void)progress;
    set->file = knobs_file(parts->knobs);
    return knobs_set(parts->knobs, &set->order, &set->change, msg);
}

static enum embtier_err set_reply(struct job *job, const struct job_client *client,
                                  struct err_msg *msg)
{
    struct set_job *const set = set_of(job);
    Embtier__KnobChange body = EMBTIER__KNOB_CHANGE__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    Embtier__Knob *const knob = wire_of(&set->change.knob);
    char *old = control_clean_string(&embtier__knob__descriptor, 2, set->change.old_value);
    const bool has_memory = knob && old;

    (void)msg;
    if (has_memory) {
        body.knob = knob;
        body.old_value = old;
        body.applied = set->change.applied;
        body.persisted = set->order.persist;
        if (set->order.persist && set->file && strlen(set->file) <= CONFIG_FILE_BYTES_MAX &&
            text_is_plain(set->file, strlen(set->file)))
            body.file = (char *)(uintptr_t)set->file;
        message.body_case = EMBTIER__REPLY__BODY_KNOB_CHANGE;
        message.knob_change = &body;
        answer(client, &message);
    }
    embtier__knob__free_unpacked(knob, NULL);
    free(old);
    return has_memory ? EMBTIER_OK : EMBTIER_NO_MEMORY;
}

static void set_free(struct job *job)
{
    struct set_job *const set = set_of(job);

    free((char *)(uintptr_t)set->order.name);
    free((char *)(uintptr_t)set->order.value);
    free(set);
}

static const struct job_kind set_kind = {
    .word = "knob set",
    .line = LINE_KNOBS,
    .run = set_run,
    .reply = set_reply,
    .free = set_free,
};

enum embtier_err knob_set_job_new(const struct job_request *request, struct job **ret_job,
                                  struct err_msg *msg)
{
    const Embtier__KnobSet *const wire = request->wire->knob_set;
    struct set_job *const set = calloc(1, sizeof(*set));

    (void)msg;
    if (!set)
        return EMBTIER_NO_MEMORY;
    set->job.kind = &set_kind;
    set->order = (struct knob_order){ .name = strdup(wire->name),
                                      .value = strdup(wire->value),
                                      .persist = wire->persist };
    if (!set->order.name || !set->order.value) {
        set_free(&set->job);
        return EMBTIER_NO_MEMORY;
    }
    *ret_job = &set->job;
    return EMBTIER_OK;
}
