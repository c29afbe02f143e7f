/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/group.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "client/lib/connection.h"

void group_hold(struct embtier_group *group)
{
    if (group)
        group->users++;
}

static void group_drop(struct embtier_group *group)
{
    if (!group->freed || group->users > 0)
        return;
    if (group->previous)
        group->previous->next = group->next;
    else
        group->server->groups = group->next;
    if (group->next)
        group->next->previous = group->previous;
    free(group);
}

void group_release(struct embtier_group *group)
{
    if (!group)
        return;
    group->users--;
    group_drop(group);
}

void groups_free(struct embtier *server)
{
    while (server->groups) {
        struct embtier_group *group = server->groups;

        server->groups = group->next;
        free(group);
    }
}

void groups_end(struct embtier *server)
{
    for (struct embtier_group *group = server->groups; group; group = group->next)
        group->handle = 0;
}

enum embtier_err group_check(const struct embtier *server, const struct embtier_group *group,
                             struct err_msg *msg)
{
    if (group->server != server)
        return err_set(msg, EMBTIER_INVALID, "group '%s' was joined by another connection",
                       group->name);
    if (group->handle == 0)
        return err_set(msg, EMBTIER_NO_GROUP,
                       "the membership in group '%s' ended with its session; join it again",
                       group->name);
    return EMBTIER_OK;
}

static enum embtier_err check_options(struct embtier *server,
                                      const struct embtier_group_options *options)
{
    const char *const name = options->name;
    struct err_msg *const msg = &server->message;

    if (!name)
        return err_set(msg, EMBTIER_INVALID, "group name is missing");
    if (!table_name_is_valid(name))
        return err_set(
            msg, EMBTIER_INVALID,
            "group name must be 1 to %d of A-Z a-z 0-9 _ . - and start with neither . nor -",
            EMBTIER_GROUP_NAME_MAX);
    if (options->size < 1 || options->size > EMBTIER_GROUP_MEMBERS_MAX)
        return err_set(msg, EMBTIER_INVALID, "a group of %u members, allowed: 1 to %d",
                       options->size, EMBTIER_GROUP_MEMBERS_MAX);
    if (options->member >= options->size)
        return err_set(msg, EMBTIER_INVALID, "member %u of a group of %u, numbered from 0",
                       options->member, options->size);
    if (options->step > EMBTIER_STEP_MAX)
        return err_set(msg, EMBTIER_INVALID, "step is %" PRIu64 ", allowed: 0 to %" PRIu64,
                       options->step, EMBTIER_STEP_MAX);
    return EMBTIER_OK;
}

enum embtier_err embtier_group_join(struct embtier *server,
                                    const struct embtier_group_options *given,
                                    struct embtier_group **ret_group)
{
    _cleanup_(freep) struct embtier_group *group = NULL;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__GroupJoin join = EMBTIER__GROUP_JOIN__INIT;
    struct embtier_group_options options = EMBTIER_GROUP_OPTIONS_INIT;

    TRY(options_read(given, sizeof(options), &options, sizeof(options), "group",
                     "EMBTIER_GROUP_OPTIONS_INIT", &server->message));
    TRY(check_options(server, &options));
    group = calloc(1, sizeof(*group));
    if (!group)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    join.name = (char *)options.name;
    join.size = options.size;
    join.member = options.member;
    join.step = options.step;
    request.body_case = EMBTIER__REQUEST__BODY_GROUP_JOIN;
    request.group_join = &join;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_GROUP)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a group");
    group->server = server;
    group->handle = reply->group->handle;
    group->step = reply->group->step;
    group->size = options.size;
    group->member = options.member;
    memcpy(group->name, options.name, strlen(options.name));
    group->next = server->groups;
    if (group->next)
        group->next->previous = group;
    server->groups = group;
    *ret_group = TAKE(group);
    return EMBTIER_OK;
}

enum embtier_err embtier_group_leave(struct embtier_group *group)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__GroupLeave leave = EMBTIER__GROUP_LEAVE__INIT;

    TRY(group_check(group->server, group, &group->server->message));
    leave.handle = group->handle;
    request.body_case = EMBTIER__REQUEST__BODY_GROUP_LEAVE;
    request.group_leave = &leave;
    return connection_call(group->server, &request, NULL, NULL, &reply);
}

void embtier_group_free(struct embtier_group *group)
{
    if (!group)
        return;
    group->freed = true;
    group_drop(group);
}

const char *embtier_group_name(const struct embtier_group *group)
{
    return group->name;
}

uint32_t embtier_group_size(const struct embtier_group *group)
{
    return group->size;
}

uint32_t embtier_group_member(const struct embtier_group *group)
{
    return group->member;
}

uint64_t embtier_group_step(const struct embtier_group *group)
{
    return group->step;
}
