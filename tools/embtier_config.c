/* SPDX-License-Identifier: Apache-2.0 */
/* embtier config …: embtierd's configuration, without embtierd. */
#include <jansson.h>
#include <stdio.h>

#include "base/config.h"
#include "tools/embtier_cli.h"

int command_config_check(struct cli *cli, int argc, char **argv)
{
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    int exit_code = cli_arguments(cli, argc, argv, 0, 1);
    const char *path;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    path = argc > optind ? argv[optind] : NULL;
    err = config_load(path, &config, &msg);
    if (!err)
        err = config_check_machine(config, &msg);
    if (err)
        exit_code = cli_fail(EMBTIER_CONFIG, msg.text[0] ? msg.text : err_text(err));
    else
        exit_code = EXIT_DONE;
    if (cli->json)
        (void)cli_print_json(
            err ? json_pack("{s:b, s:s}", "ok", 0, "error", msg.text[0] ? msg.text : err_text(err))
                : json_pack("{s:b}", "ok", 1),
            9);
    else if (!err)
        printf("%s: no mistakes found\n", path ? path : "the defaults");
    return exit_code;
}

int command_config_keys(struct cli *cli, int argc, char **argv)
{
    const int exit_code = cli_arguments(cli, argc, argv, 0, 0);

    if (exit_code >= 0)
        return exit_code;
    config_print_keys(stdout);
    return EXIT_DONE;
}
