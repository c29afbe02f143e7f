/* SPDX-License-Identifier: Apache-2.0 */
/* embtier config …: checks embtierd's configuration, and lists its keys.
 *
 * The embtierd beside this program checks (config_asking.h). If there is none, this program checks
 * only the text against the machine, and reports that. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "config/config_asking.h"
#include "config/config_keys.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/cli.h"

/* Looks for embtierd beside this program, in the places of an installation and of a build
 * folder. */
static bool find_server(char path[PATH_MAX])
{
    static const char *const places[] = { "embtierd", "../sbin/embtierd", "../daemon/embtierd" };
    char self[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length <= 0)
        return false;
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const int written = snprintf(path, PATH_MAX, "%s/%s", self, places[i]);

        if (written > 0 && written < PATH_MAX && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void take_warning(void *context, const char *warning)
{
    (void)json_array_append_new(context, cli_json_text(warning));
}

static enum embtier_err check_here(const char *path, struct err_msg *msg)
{
    _cleanup_(config_freep) struct config *config = NULL;

    TRY(config_load(path, budget_unbudgeted, &config, msg));
    return config_check_machine(config, msg);
}

static int tell_mistake(const struct cli *cli, enum embtier_err err, const struct err_msg *msg)
{
    const char *const text = msg->text[0] ? msg->text : err_text(err);
    const int exit_code = cli_fail(EMBTIER_CONFIG, text);

    if (cli->json)
        (void)cli_print_json(json_pack("{s:b, s:s}", "ok", 0, "error", text), 9);
    return exit_code;
}

/* @path: NULL: none. @asked: embtierd has checked it. */
static void tell_good(const char *path, bool asked, const json_t *warnings)
{
    const size_t count = json_array_size(warnings);
    const json_t *warning;
    size_t i;

    json_array_foreach(warnings, i, warning)
        text_print(stderr, "embtier: warning: %s\n", json_string_value(warning));
    text_print(stdout, "%s: no mistakes found", path ? path : "the defaults");
    if (!asked)
        printf(" in the text; there is no embtierd beside this program, so certificates, users, "
               "data directories and rocksdb.options were not checked");
    else if (count > 0)
        printf(", %zu warning%s", count, PLURAL(count));
    printf("\n");
}

int command_config_check(struct cli *cli, int argc, char **argv)
{
    _cleanup_(json_decrefp) json_t *warnings = json_array();
    struct err_msg msg = { { 0 } };
    const int exit_code = cli_arguments(cli, argc, argv, 0, 1);
    const char *path;
    char server[PATH_MAX];
    enum embtier_err err;
    bool asked;

    if (exit_code >= 0)
        return exit_code;
    path = argc > optind ? argv[optind] : NULL;
    asked = find_server(server);
    err = asked ? config_ask(&(struct config_asking){ .server = server,
                                                      .path = path,
                                                      .fd = -1,
                                                      .warn = take_warning,
                                                      .context = warnings },
                             &msg)
                : check_here(path, &msg);
    if (err)
        return tell_mistake(cli, err, &msg);
    if (!cli->json)
        tell_good(path, asked, warnings);
    else
        return cli_print_json(
            json_pack("{s:b, s:b, s:O}", "ok", 1, "complete", asked, "warnings", warnings), 9);
    return EXIT_DONE;
}

/* As far as these go, an item is one of `embtier knob list`. */
static void add_key(void *array, const char *name, const struct config_key *key)
{
    struct config_allowed allowed;

    (void)json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", name,
                                                 "changes", config_when_word(key->when), "allowed",
                                                 config_allowed(&allowed, key), "default",
                                                 key->default_text, "text", key->text));
}

static json_t *keys_to_json(void)
{
    json_t *const array = json_array();

    if (array)
        config_each_key(add_key, array);
    return json_pack("{s:o}", "keys", array);
}

int command_config_keys(struct cli *cli, int argc, char **argv)
{
    const int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    if (cli->json)
        return cli_print_json(keys_to_json(), JSON_DOUBLE_DIGITS);
    config_print_keys(stdout);
    return EXIT_DONE;
}
