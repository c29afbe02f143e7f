/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"
#include "proto/control_limits.h"

struct embtier_knob_list {
    struct reply_pages pages; /* strings point into them */
    size_t count;
    struct embtier_knob knobs[];
};

struct embtier_knob_change {
    Embtier__Reply *reply;
    struct embtier_knob knob;
};

static struct embtier_knob describe(const Embtier__Knob *wire)
{
    return (struct embtier_knob){
        .name = wire->name,
        .value = wire->value,
        .source = (int)wire->source,
        .is_live = wire->live,
        .is_by_hand = wire->by_hand,
        .allowed = wire->allowed,
        .default_text = wire->default_text,
        .text = wire->text,
        .is_running = wire->is_running,
        .in_other = wire->in_other,
        .other_value = wire->other_value,
    };
}

/* ---- Listing ---- */

static enum embtier_err fill(struct embtier *server, const struct embtier_knob_options *given,
                             Embtier__KnobList *body)
{
    struct embtier_knob_options own = EMBTIER_KNOB_OPTIONS_INIT;
    const struct embtier_knob_options *const options = &own;

    if (given)
        TRY(options_read(given, sizeof(own), &own, sizeof(own), "knob", "EMBTIER_KNOB_OPTIONS_INIT",
                         &server->message));
    body->name = (char *)(uintptr_t)(options->name ? options->name : "");
    body->with_file = options->with_file != 0;
    if (!options->text)
        return EMBTIER_OK;
    if (options->text_bytes > KNOB_FILE_BYTES_MAX)
        return err_set(&server->message, EMBTIER_TOO_LARGE,
                       "the text of a configuration has %zu bytes; at most %u can be compared",
                       options->text_bytes, KNOB_FILE_BYTES_MAX);
    body->text_given_case = EMBTIER__KNOB_LIST__TEXT_GIVEN_TEXT;
    body->text.data = (uint8_t *)(uintptr_t)options->text;
    body->text.len = options->text_bytes;
    /* A long name would be refused; it is only for messages. */
    if (options->text_name && strlen(options->text_name) <= CONFIG_FILE_BYTES_MAX)
        body->file_name = (char *)(uintptr_t)options->text_name;
    return EMBTIER_OK;
}

static enum embtier_err read_pages(struct embtier *server,
                                   const struct embtier_knob_options *options,
                                   struct reply_pages *pages, size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__KnobList body;
    const Embtier__KnobListReply *page;
    size_t count = 0;

    embtier__knob_list__init(&body);
    TRY(fill(server, options, &body));
    request.body_case = EMBTIER__REQUEST__BODY_KNOB_LIST;
    request.knob_list = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        if (pages->replies[pages->count - 1]->body_case != EMBTIER__REPLY__BODY_KNOB_LIST)
            return err_set(&server->message, EMBTIER_PROTOCOL,
                           "the server did not answer with knobs");
        page = pages->replies[pages->count - 1]->knob_list;
        count += page->n_knobs;
        if (page->more)
            TRY(reply_pages_go_on(server, count, &body.after));
    } while (page->more);
    *ret_count = count;
    return EMBTIER_OK;
}

enum embtier_err embtier_knob_list(struct embtier *server,
                                   const struct embtier_knob_options *options,
                                   struct embtier_knob_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_knob_list *list;
    size_t count = 0;

    TRY(read_pages(server, options, &pages, &count));
    list = calloc(1, sizeof(*list) + count * sizeof(list->knobs[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages.count; p++)
        for (size_t i = 0; i < pages.replies[p]->knob_list->n_knobs; i++)
            list->knobs[list->count++] = describe(pages.replies[p]->knob_list->knobs[i]);
    list->pages = pages;
    pages = (struct reply_pages){ 0 };
    *ret_list = list;
    return EMBTIER_OK;
}

size_t embtier_knob_list_count(const struct embtier_knob_list *list)
{
    return list->count;
}

const struct embtier_knob *embtier_knob_list_at(const struct embtier_knob_list *list, size_t index)
{
    return index < list->count ? &list->knobs[index] : NULL;
}

void embtier_knob_list_free(struct embtier_knob_list *list)
{
    if (!list)
        return;
    reply_pages_clear(&list->pages);
    free(list);
}

/* ---- Setting ---- */

enum embtier_err embtier_knob_set(struct embtier *server, const char *name, const char *value,
                                  int persist, struct embtier_knob_change **ret_change)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__KnobSet body = EMBTIER__KNOB_SET__INIT;
    struct embtier_knob_change *change;

    if (name[0] == '\0') /* the protocol does not have it */
        return err_set(&server->message, EMBTIER_NOT_FOUND, "a knob has a name");
    body.name = (char *)(uintptr_t)name;
    body.value = (char *)(uintptr_t)value;
    body.persist = persist != 0;
    request.body_case = EMBTIER__REQUEST__BODY_KNOB_SET;
    request.knob_set = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_KNOB_CHANGE)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with a knob");
    if (!ret_change)
        return EMBTIER_OK;
    change = malloc(sizeof(*change));
    if (!change)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    change->knob = describe(reply->knob_change->knob);
    change->reply = TAKE(reply);
    *ret_change = change;
    return EMBTIER_OK;
}

const struct embtier_knob *embtier_knob_change_knob(const struct embtier_knob_change *change)
{
    return &change->knob;
}

const char *embtier_knob_change_old(const struct embtier_knob_change *change)
{
    return change->reply->knob_change->old_value;
}

int embtier_knob_change_is_applied(const struct embtier_knob_change *change)
{
    return change->reply->knob_change->applied;
}

const char *embtier_knob_change_file(const struct embtier_knob_change *change)
{
    return change->reply->knob_change->file;
}

void embtier_knob_change_free(struct embtier_knob_change *change)
{
    if (!change)
        return;
    reply_free(change->reply);
    free(change);
}
