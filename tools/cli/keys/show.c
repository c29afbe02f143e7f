/* SPDX-License-Identifier: Apache-2.0 */
/* embtier keys show: tells of files with certificates, keys and tokens all but their secrets. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/crypto.h>
#include <openssl/err.h>

#include "base/text/text_escape.h"
#include "base/tls/secret_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/keys/facts.h"

/* A file that is shown. */
struct shown {
    const char *path;
    struct pem_items items;
    json_t *list; /* of the facts of each item */
};

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* ---- The other half of a pair ---- */

/* "server.crt" and ".key": "server.key". NULL: out of memory. */
static char *with_ending(const char *path, const char *ending)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    const char *const dot = strrchr(name, '.');
    const size_t bytes = dot && dot > name ? (size_t)(dot - path) : strlen(path);
    char *other;

    return asprintf(&other, "%.*s%s", (int)bytes, path, ending) < 0 ? NULL : other;
}

static const char *compare(X509 *certificate, EVP_PKEY *key)
{
    const bool matches = X509_check_private_key(certificate, key) == 1;

    ERR_clear_error();
    return matches ? "matches" : "differs";
}

/* Compares a certificate or key with the other half, which @other has if it is there. */
static const char *state_of_pair(const struct pem_item *item, const struct pem_items *other)
{
    X509 *const certificate = item->certificate ? item->certificate : pem_items_certificate(other);
    EVP_PKEY *const key = item->certificate ? pem_items_key(other) : item->key;

    if (certificate && key)
        return compare(certificate, key);
    return "unreadable";
}

static bool add_pair(json_t *facts, const struct pem_item *item, const char *path,
                     const char *state)
{
    const char *const word = item->certificate ? "key" : "certificate";
    json_t *const pair = json_pack("{s:o, s:s}", "file", cli_json_text(path), "state", state);

    if (json_object_set_new(facts, word, pair) != 0)
        return false;
    return strcmp(state, "differs") != 0 ||
           facts_warn(facts, "the %s in %s belongs to another %s", word, path,
                      item->certificate ? "certificate" : "key");
}

/* Looks for the other half in the file itself, then beside it. */
static enum embtier_err pair_up(const struct shown *shown, const struct pem_item *item,
                                json_t *facts, struct err_msg *msg)
{
    _cleanup_(pem_items_clear) struct pem_items beside = { NULL };
    _cleanup_(freep) char *path = with_ending(shown->path, item->certificate ? ".key" : ".crt");
    const bool is_here = item->certificate ? pem_items_key(&shown->items) != NULL
                                           : pem_items_certificate(&shown->items) != NULL;
    const char *state = "missing";
    struct err_msg ignored;
    enum embtier_err err;

    if (!path)
        return no_memory(msg);
    if (is_here) {
        state = state_of_pair(item, &shown->items);
    } else if (strcmp(path, shown->path) != 0) {
        err = pem_items_read(path, &beside, &ignored);
        if (err != EMBTIER_NOT_FOUND)
            state = err == EMBTIER_OK ? state_of_pair(item, &beside) : "unreadable";
    }
    return add_pair(facts, item, is_here ? shown->path : path, state) ? EMBTIER_OK : no_memory(msg);
}

/* ---- Files ---- */

/* The owner's group may be the server's. */
static bool warn_of_mode(json_t *facts, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || !(info.st_mode & S_IRWXO))
        return true;
    return facts_warn(facts,
                      "every user of this machine may read or change it (mode %04o): chmod "
                      "600 it",
                      (unsigned)info.st_mode & 07777);
}

static enum embtier_err take(struct shown *shown, json_t *facts, struct err_msg *msg)
{
    return json_array_append_new(shown->list, facts) == 0 ? EMBTIER_OK : no_memory(msg);
}

/* Only the first certificate of a chain has its key beside it. */
static enum embtier_err describe_item(struct shown *shown, const struct pem_item *item,
                                      struct err_msg *msg)
{
    const bool is_first =
        item->certificate && item->certificate == pem_items_certificate(&shown->items);
    json_t *const facts =
        item->certificate ? certificate_facts(item->certificate, time(NULL)) : pem_item_facts(item);

    TRY(take(shown, facts, msg));
    if (is_first || item->key)
        TRY(pair_up(shown, item, facts, msg));
    if ((item->key || pem_item_is_locked(item)) && !warn_of_mode(facts, shown->path))
        return no_memory(msg);
    return EMBTIER_OK;
}

static enum embtier_err describe_token(struct shown *shown, struct token *token,
                                       struct err_msg *msg)
{
    struct token_hash hash;
    const enum embtier_err err = token_hash(token, &hash, msg);
    json_t *facts;

    OPENSSL_cleanse(token, sizeof(*token));
    TRY(err);
    facts = token_facts(&hash);
    TRY(take(shown, facts, msg));
    return warn_of_mode(facts, shown->path) ? EMBTIER_OK : no_memory(msg);
}

static enum embtier_err describe(struct shown *shown, struct err_msg *msg)
{
    _cleanup_(secret_file_clear) struct secret_file file = { NULL };
    struct token token;

    TRY(secret_file_read(shown->path, PEM_FILE_BYTES_MAX, &file, msg));
    if (token_parse(file.text, file.bytes, &token))
        return describe_token(shown, &token, msg);
    TRY(pem_items_parse(shown->path, file.text, file.bytes, &shown->items, msg));
    for (size_t i = 0; i < shown->items.count; i++)
        TRY(describe_item(shown, &shown->items.all[i], msg));
    return EMBTIER_OK;
}

static bool print_file(const struct shown *shown)
{
    const json_t *facts;
    size_t i;

    text_print(stdout, "%s\n", shown->path);
    json_array_foreach(shown->list, i, facts) if (!facts_print(facts, stdout)) return false;
    return true;
}

/* Adds the file to @files, or prints it. Returns an exit code. */
static int show_file(const struct cli *cli, const char *path, json_t *files)
{
    struct shown shown = { .path = path, .list = json_array() };
    struct err_msg msg = { { 0 } };
    enum embtier_err err = shown.list ? describe(&shown, &msg) : no_memory(&msg);

    if (err == EMBTIER_OK && !cli->json && !print_file(&shown))
        err = no_memory(&msg);
    if (cli->json &&
        json_array_append_new(
            files, err == EMBTIER_OK
                       ? json_pack("{s:o, s:O}", "file", cli_json_text(path), "items", shown.list)
                       : json_pack("{s:o, s:o}", "file", cli_json_text(path), "error",
                                   cli_json_text(msg.text))) != 0)
        err = no_memory(&msg);
    json_decref(shown.list);
    pem_items_clear(&shown.items);
    return err == EMBTIER_OK ? EXIT_DONE : cli_fail(err, msg.text);
}

int command_keys_show(struct cli *cli, int argc, char **argv)
{
    int exit_code = cli_arguments(cli, argc, argv, 1, argc);
    json_t *files;

    if (exit_code >= 0)
        return exit_code;
    files = json_array();
    exit_code = files ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
    for (int i = optind; files && i < argc; i++)
        if (show_file(cli, argv[i], files) != EXIT_DONE)
            exit_code = EXIT_FAILED;
    if (cli->json && files && cli_print_json(json_incref(files), JSON_DOUBLE_DIGITS) != EXIT_DONE)
        exit_code = EXIT_FAILED;
    json_decref(files);
    return exit_code;
}
