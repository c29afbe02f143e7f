/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/reading.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/cli/cli.h"
#include "tools/cli/progress_bar.h"

void reading_clear(struct reading *reading)
{
    embtier_status_free(reading->status);
    embtier_table_list_free(reading->tables);
    embtier_account_list_free(reading->accounts);
    *reading = (struct reading){ 0 };
}

static enum embtier_err get_tables(struct embtier *server, struct reading *reading)
{
    return embtier_table_list(server, &reading->tables);
}

static enum embtier_err get_accounts(struct embtier *server, struct reading *reading)
{
    return embtier_account_list(server, &reading->accounts);
}

static enum embtier_err get_plan(struct embtier *server, struct reading *reading)
{
    const enum embtier_err err = embtier_plan_show(server, &reading->plan);

    reading->has_plan = err == EMBTIER_OK;
    return err;
}

static const struct {
    enum reading_part part;
    enum embtier_err (*get)(struct embtier *server, struct reading *reading);
} parts_of_reading[] = {
    { READING_TABLES, get_tables },
    { READING_ACCOUNTS, get_accounts },
    { READING_PLAN, get_plan },
};

static enum embtier_err get_parts(struct embtier *server, unsigned *parts, struct reading *reading)
{
    for (size_t i = 0; i < ARRAY_LEN(parts_of_reading); i++) {
        const unsigned part = parts_of_reading[i].part;
        enum embtier_err err;

        if (!(*parts & part))
            continue;
        err = parts_of_reading[i].get(server, reading);
        if (err == EMBTIER_UNSUPPORTED || err == EMBTIER_PROTOCOL)
            *parts &= part - 1;
        else if (err != EMBTIER_OK)
            return err;
    }
    return EMBTIER_OK;
}

enum embtier_err reading_get(struct embtier *server, unsigned *parts, struct reading *ret_reading)
{
    struct reading reading = { 0 };
    enum embtier_err err = embtier_status(server, &reading.status);

    if (err == EMBTIER_OK)
        err = get_parts(server, parts, &reading);
    if (err == EMBTIER_OK)
        *ret_reading = reading;
    else
        reading_clear(&reading);
    return err;
}

/* Returns 0 if the server was restarted meanwhile. */
static double seconds_between(const struct reading *before, const struct reading *now)
{
    return (double)clock_since(embtier_status_uptime_ms(now->status),
                               embtier_status_uptime_ms(before->status)) /
           1000;
}

static int watch(struct cli *cli, unsigned parts, double seconds, reading_show_fn *show,
                 const void *context)
{
    const struct timespec pause = { .tv_sec = (time_t)seconds,
                                    .tv_nsec = (long)((seconds - floor(seconds)) * 1e9) };
    const unsigned wanted = parts;
    struct reading before = { 0 };
    int exit_code = EXIT_DONE;

    while (exit_code == EXIT_DONE) {
        struct reading now = { 0 };
        /* Does nothing unless the server closed the connection. */
        enum embtier_err err = parts == wanted ? EMBTIER_OK : embtier_reconnect(cli->server);

        if (err == EMBTIER_OK)
            err = reading_get(cli->server, &parts, &now);
        if (err != EMBTIER_OK) {
            exit_code = cli_fail_server(cli, err);
            break;
        }
        if (!cli->json && terminal_can_draw(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        exit_code = show(cli, context, &now, before.status ? &before : NULL,
                         before.status ? seconds_between(&before, &now) : 0);
        if (fflush(stdout) != 0 && exit_code == EXIT_DONE)
            exit_code = cli_fail(EMBTIER_IO, "cannot write the output");
        reading_clear(&before);
        before = now;
        if (exit_code == EXIT_DONE)
            nanosleep(&pause, NULL);
    }
    reading_clear(&before);
    return exit_code;
}

int readings_show(struct cli *cli, unsigned parts, double seconds, reading_show_fn *show,
                  const void *context)
{
    struct reading reading = { 0 };
    enum embtier_err err;
    int exit_code = cli_connect(cli, 0);

    if (exit_code)
        return exit_code;
    if (seconds > 0)
        return watch(cli, parts, seconds, show, context);
    err = reading_get(cli->server, &parts, &reading);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    exit_code = show(cli, context, &reading, NULL, 0);
    reading_clear(&reading);
    return exit_code;
}
