/* SPDX-License-Identifier: Apache-2.0 */
/* embtier keys reload: has a server read its access file and its certificates again. */
#include <inttypes.h>
#include <jansson.h>

#include "base/macros.h"
#include "tools/cli/cli.h"

int command_keys_reload(struct cli *cli, int argc, char **argv)
{
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    uint32_t users = 0;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_reload(cli->server, &users);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:I}", "users", (json_int_t)users), JSON_DOUBLE_DIGITS);
    if (users > 0)
        printf("reloaded; the access file has %" PRIu32 " user%s\n", users, PLURAL(users));
    else
        puts("reloaded; there is no access file");
    return EXIT_DONE;
}
