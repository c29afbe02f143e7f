/* SPDX-License-Identifier: Apache-2.0 */
/* embtier completion: prints a script for a shell. */
#include <stdio.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/completion/scripts.h"

int command_completion(struct cli *cli, int argc, char **argv)
{
    static const struct {
        const char *shell;
        bool (*print)(FILE *out);
    } scripts[] = { { "bash", script_print_bash }, { "zsh", script_print_zsh } };
    const int exit_code = cli_arguments(cli, argc, argv, 1, 1);

    if (exit_code >= 0)
        return exit_code;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++)
        if (strcmp(argv[optind], scripts[i].shell) == 0)
            return scripts[i].print(stdout) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
    return cli_usage(cli, "shell %s: allowed: bash, zsh", TEXT_SHOWN(argv[optind]));
}
