/* SPDX-License-Identifier: Apache-2.0 */
/* Which user a client is, and whether it may do what it asks for (access.h). */
#include <assert.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/access/operations.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/transfer/load.h"
#include "daemon/jobs/transfer/scan.h"
#include "daemon/transport/transport.h"

/* A token is a secret, and whoever listens on the way may use it. */
static enum embtier_err check_token(const struct control *control,
                                    const struct connection *connection, const char *token,
                                    struct err_msg *msg)
{
    const bool is_local = connection->peer_uid != (uid_t)-1;

    if (token[0] == '\0' || is_local || connection->peer->is_encrypted ||
        connection->peer->is_loopback || control->parts->config->rpc.insecure)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "a token came over a network without encryption, where others can read it: "
                   "connect with tls://, and replace the token");
}

static struct access_client client_of(const struct control *control,
                                      const struct connection *connection, const char *token)
{
    const struct transport_peer *const peer = connection->peer;

    return (struct access_client){
        .is_local = connection->peer_uid != (uid_t)-1,
        .uid = connection->peer_uid,
        .gids = connection->peer_gids,
        .gid_count = connection->peer_gid_count,
        .certificate_names = peer ? peer->certificate_names : NULL,
        .is_unasked = peer && peer->is_encrypted && !control->parts->config->tls.client_ca,
        .token = token,
    };
}

/* Rows of accounts that a quota limits. */
static const struct {
    enum quota quota;
    enum account_row row;
} limited[] = {
    { QUOTA_connections, ACCOUNT_SESSIONS },
    { QUOTA_arena_bytes, ACCOUNT_ARENA_BYTES },
    { QUOTA_ticket_bytes, ACCOUNT_TICKET_BYTES },
    { QUOTA_pinned_bytes, ACCOUNT_PINNED_BYTES },
};

static void limit(struct control *control, const struct access_member *member,
                  struct account *account)
{
    uint64_t quotas[QUOTAS];

    access_member_quotas(control->parts->access, member, quotas);
    for (size_t i = 0; i < ARRAY_LEN(limited); i++)
        account_set_quota(account, limited[i].row, quotas[limited[i].quota]);
}

void control_limit_members(struct control *control)
{
    for (const struct connection *c = control->connections; c; c = c->next)
        if (c->member)
            limit(control, c->member, c->account);
}

/* Its quotas limit the account before the connection counts in it. */
static enum embtier_err count_for_member(struct control *control, struct connection *connection,
                                         struct err_msg *msg)
{
    const uint64_t user = access_member_account(connection->member);
    _cleanup_(account_closep) struct account *account =
        account_open(control->parts->accounts, user);

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    limit(control, connection->member, account);
    return connection_count_for(connection, control->parts->accounts, user, msg);
}

static enum embtier_err enter(struct control *control, struct connection *connection,
                              const Embtier__Hello *hello, struct err_msg *msg)
{
    const struct access_client client = client_of(control, connection, hello->token);

    TRY(check_token(control, connection, hello->token, msg));
    TRY(access_enter(control->parts->access, &client, &connection->member, &connection->credential,
                     msg));
    if (connection_is_stranger(connection))
        TRY(control_check_sessions(control, msg));
    if (connection->member)
        return count_for_member(control, connection, msg);
    /* An earlier hello of this connection may have been a member's. */
    return connection_count_for(connection, control->parts->accounts, connection->peer_uid, msg);
}

enum embtier_err control_identify(struct control *control, struct connection *connection,
                                  const Embtier__Hello *hello, struct err_msg *msg)
{
    enum embtier_err err;

    control_leave(control, connection); /* of a hello that was refused */
    err = enter(control, connection, hello, msg);
    if (err == EMBTIER_PERMISSION)
        access_note_refusal(control->parts->access);
    return err;
}

void control_leave(struct control *control, struct connection *connection)
{
    access_leave(control->parts->access, TAKE(connection->member));
}

/* A client that has asked for the reload gets its answer first. */
void control_end_revoked(struct control *control, const struct connection *spared)
{
    struct access *const access = control->parts->access;
    const uint64_t taken = access_taken(access);

    if (taken == control->access_taken)
        return;
    for (struct connection *c = control->connections; c; c = c->next) {
        struct err_msg msg = { { 0 } };

        if (c == spared || (spared && c->first == spared) || c->fd < 0 || !c->member ||
            access_check_credential(access, c->member, &c->credential, &msg) == EMBTIER_OK)
            continue;
        control_close(control, c, EMBTIER_PERMISSION, msg.text);
    }
    if (!spared)
        control->access_taken = taken;
}

bool control_may_all(struct control *control, const struct connection *connection)
{
    if (connection->member)
        return access_has_whole(control->parts->access, connection->member);
    return connection->peer_uid == 0 || connection->peer_uid == geteuid();
}

bool control_sees_all(struct control *control, const struct connection *connection)
{
    return access_has_whole(control->parts->access, connection->member);
}

/* Returns the table of the connection's transfer that the request goes on with, or NULL. */
static const char *opened_table(const struct connection *connection,
                                const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_SCAN_NEXT)
        return connection->scan ? scan_spec(connection->scan)->name : NULL;
    return connection->load ? load_table(connection->load)->spec.name : NULL;
}

enum embtier_err control_check_role(struct control *control, const struct connection *connection,
                                    const Embtier__Request *request, struct err_msg *msg)
{
    return access_check(control->parts->access, connection->member,
                        operation_of_body((uint32_t)request->body_case), request,
                        opened_table(connection, request), msg);
}

/* True if the request makes a table unless that is there, and it is, and the client may have it. */
static bool may_have_found_table(struct control *control, const struct connection *connection,
                                 const Embtier__Request *request)
{
    struct err_msg msg = { { 0 } };
    struct table_info info;

    return request->body_case == EMBTIER__REQUEST__BODY_TABLE_CREATE &&
           request->table_create->if_not_exists &&
           tables_find(control->parts->tables, request->table_create->spec->name, &info, &msg) ==
               EMBTIER_OK &&
           access_check(control->parts->access, connection->member, operation_of_found_table(),
                        request, NULL, &msg) == EMBTIER_OK;
}

bool control_may(struct control *control, struct connection *connection,
                 const Embtier__Request *request)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = control_check_role(control, connection, request, &msg);

    if (err == EMBTIER_OK || may_have_found_table(control, connection, request))
        return true;
    access_note_refusal(control->parts->access);
    if (control_may_warn(control))
        log_warn("request refused", "session=%" PRIu64 " %s user=%s why=%s", connection->number,
                 CONNECTION_ORIGIN(connection), access_member_name(connection->member),
                 LOG_QUOTED(msg.text));
    control_reply_error(control, connection, request->id, err, &msg);
    return false;
}

uint32_t control_granted_tables(struct control *control, const struct connection *connection,
                                struct table_info *infos, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (access_has_table(control->parts->access, connection->member, infos[i].spec.name))
            infos[kept++] = infos[i];
    return kept;
}

void control_tell_refusals(struct control *control)
{
    struct access_news news;

    access_take_news(control->parts->access, &news);
    if (news.refusals > 0 && control_may_warn(control))
        log_warn("requests for rows were refused: a user may not do that", "user=%s count=%" PRIu64,
                 news.name, news.refusals);
}
