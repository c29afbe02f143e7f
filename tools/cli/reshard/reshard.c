/* SPDX-License-Identifier: Apache-2.0 */
/* embtier reshard: shows in how many shards rows lie, and moves them to more or fewer. */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/text/text_escape.h"
#include "config/config.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"

#define RATE_MIB 64 /* unless another is given */

enum { OPTION_SHARDS = 256, OPTION_RATE };

struct arguments {
    uint32_t shards; /* 0: only show */
    bool has_rate;
    uint64_t rate_bytes;
};

/* -1: continue. Else the exit code. */
static int read_arguments(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "shards", required_argument, NULL, OPTION_SHARDS },
                                             { "rate", required_argument, NULL, OPTION_RATE },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    uint64_t shards = 0;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        if (option == OPTION_RATE && !number_parse_rate(optarg, &arguments->rate_bytes))
            return cli_usage(cli, "--rate %s: allowed: a number of MiB a second, or 0",
                             TEXT_SHOWN(optarg));
        arguments->has_rate |= option == OPTION_RATE;
        if (option == OPTION_SHARDS &&
            (!number_parse_u64(optarg, &shards) || shards == 0 || shards > CONFIG_SHARDS_MAX))
            return cli_usage(cli, "--shards %s: allowed: 1 to %d", TEXT_SHOWN(optarg),
                             CONFIG_SHARDS_MAX);
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    if (arguments->has_rate && shards == 0)
        return cli_usage(cli, "--rate is for --shards only");
    arguments->shards = (uint32_t)shards;
    return -1;
}

static int print(const struct cli *cli, const struct embtier_reshard *reshard)
{
    if (cli->json)
        return cli_print_json(
            json_pack("{s:I, s:b, s:I, s:I, s:I}", "shards", (json_int_t)reshard->shards, "runs",
                      reshard->runs, "wanted", (json_int_t)reshard->wanted, "moved",
                      (json_int_t)reshard->moved, "total", (json_int_t)reshard->total),
            JSON_DOUBLE_DIGITS);
    printf("%" PRIu32 " shard%s %s rows", reshard->shards, PLURAL(reshard->shards),
           reshard->shards == 1 ? "has" : "have");
    if (reshard->runs)
        printf("; rows move to %" PRIu32 " shard%s: %" PRIu32 " of %" PRIu32
               " buckets have moved (`embtier jobs` lists the job)",
               reshard->wanted, PLURAL(reshard->wanted), reshard->moved, reshard->total);
    else if (reshard->wanted > 0)
        printf("; a move to %" PRIu32 " shard%s did not come to its end: give the command again, "
               "or the next start goes on with it",
               reshard->wanted, PLURAL(reshard->wanted));
    putchar('\n');
    return EXIT_DONE;
}

static enum embtier_err run(struct cli *cli, const struct arguments *arguments,
                            struct embtier_reshard *ret_reshard)
{
    struct progress_bar bar;
    enum embtier_err err;

    progress_bar_begin(&bar, "moving", "the server goes on: see `embtier reshard`");
    err = embtier_reshard_run(cli->server, arguments->shards, arguments->rate_bytes,
                              progress_bar_update, &bar, ret_reshard);
    progress_bar_end(&bar);
    return err;
}

int command_reshard(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .rate_bytes = RATE_MIB * MIB };
    struct embtier_reshard reshard = { 0 };
    int exit_code = read_arguments(cli, argc, argv, &arguments);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = arguments.shards > 0 ? cli_connect_patiently(cli, 0) : cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = arguments.shards > 0 ? run(cli, &arguments, &reshard)
                               : embtier_reshard_show(cli->server, &reshard);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    return print(cli, &reshard);
}
