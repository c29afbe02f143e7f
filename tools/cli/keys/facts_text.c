/* SPDX-License-Identifier: Apache-2.0 */
/* Facts for people. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/keys/facts.h"
#include "tools/cli/text_table.h"

#define INDENT 2

static const char *text_of(const json_t *facts, const char *key)
{
    const char *const text = json_string_value(json_object_get(facts, key));

    return text ? text : "";
}

static bool add(struct text_table *table, const char *name, const char *text)
{
    return text[0] == '\0' ||
           (text_table_add(table, "%s", name) && text_table_add(table, "%s", text));
}

/* One line for each of a list's texts; the first has the list's name. */
static bool add_list(struct text_table *table, const json_t *facts, const char *key,
                     const char *name)
{
    const json_t *text;
    size_t i;

    json_array_foreach(
        json_object_get(facts, key), i,
        text) if (!text_table_add(table, "%s", i == 0 ? name : "") ||
                  !text_table_add(table, "%s", json_string_value(text))) return false;
    return true;
}

static bool has_use(const json_t *facts, const char *use)
{
    const json_t *text;
    size_t i;

    json_array_foreach(json_object_get(facts, "uses"), i,
                       text) if (strcmp(json_string_value(text), use) == 0) return true;
    return false;
}

static const char *use_of(const json_t *facts)
{
    const bool server = has_use(facts, "server"), client = has_use(facts, "client");

    if (has_use(facts, "ca"))
        return "of a CA";
    if (server && client)
        return "of a server or a client";
    if (server)
        return "of a server";
    return client ? "of a client" : "neither of a CA, nor of a server or client";
}

static bool add_validity(struct text_table *table, const json_t *facts)
{
    const json_t *const left = json_object_get(facts, "days_left");
    const bool has_expired = strcmp(text_of(facts, "state"), "expired") == 0;
    const int64_t days = has_expired ? -json_integer_value(left) : json_integer_value(left);

    if (!left)
        return true;
    return text_table_add(table, "valid") &&
           text_table_add(table, "%s to %s, %" PRId64 " day%s %s", text_of(facts, "not_before"),
                          text_of(facts, "not_after"), days, PLURAL(days),
                          has_expired ? "ago" : "left");
}

/* @key: that of the other half, the key or the certificate. */
static bool add_pair(struct text_table *table, const json_t *facts, const char *key)
{
    const json_t *const pair = json_object_get(facts, key);

    if (!pair)
        return true;
    return text_table_add(table, "%s", key) &&
           text_table_add(table, "%s: %s", text_of(pair, "file"), text_of(pair, "state"));
}

static bool add_certificate(struct text_table *table, const json_t *facts)
{
    return add(table, "certificate", use_of(facts)) &&
           add(table, "subject", text_of(facts, "subject")) &&
           add(table, "issuer", text_of(facts, "issuer")) &&
           add_list(table, facts, "names", "names") &&
           add_list(table, facts, "addresses", "addresses") && add_validity(table, facts) &&
           add(table, "serial", text_of(facts, "serial")) &&
           add(table, "SHA-256", text_of(facts, "sha256")) && add_pair(table, facts, "key");
}

static bool add_key(struct text_table *table, const json_t *facts)
{
    const bool is_locked = json_is_true(json_object_get(facts, "locked"));

    return add(table, "private key", is_locked ? "with a password" : text_of(facts, "algorithm")) &&
           add(table, "SHA-256 of public", text_of(facts, "public_sha256")) &&
           add_pair(table, facts, "certificate");
}

/* Not as cells of a table: messages are escaped already. */
static void print_warnings(const json_t *facts, FILE *out)
{
    const json_t *text;
    size_t i;

    json_array_foreach(json_object_get(facts, "warnings"), i, text)
        text_print(out, "%*sWARNING: %s\n", INDENT, "", json_string_value(text));
}

bool facts_print(const json_t *facts, FILE *out)
{
    _cleanup_(text_table_freep) struct text_table *table = text_table_new("ll");
    const char *const kind = text_of(facts, "kind");
    bool ok = table != NULL;

    if (ok && strcmp(kind, "certificate") == 0)
        ok = add_certificate(table, facts);
    else if (ok && strcmp(kind, "key") == 0)
        ok = add_key(table, facts);
    else if (ok && strcmp(kind, "token") == 0)
        ok = add(table, "token", text_of(facts, "hash"));
    else if (ok)
        ok = add(table, "other", text_of(facts, "label"));
    if (!ok)
        return false;
    text_table_print(table, INDENT, out);
    print_warnings(facts, out);
    return true;
}
