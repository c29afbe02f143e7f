/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: the parts that all commands of `embtier` share: their table, common options, the
 * connection, and the handling of failures. */
#ifndef EMBTIER_TOOLS_CLI_CLI_H
#define EMBTIER_TOOLS_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "client/include/embtier.h"
#include "tools/cli/json_values.h"

struct json_t;

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_SERVER = 3 };

struct command;

/* Takes the options of a command instead of a user's; see struct cli. */
typedef void (*take_options_fn)(const struct option *options, void *taker);

struct cli {
    const struct command *command;
    const char *socket_path; /* NULL: the default */
    bool json;
    uint32_t timeout_ms;
    bool has_timeout;             /* the user gave --timeout */
    struct embtier *server;       /* after cli_connect() */
    take_options_fn take_options; /* not NULL: the command is only asked for its options */
    void *taker;
};

struct command {
    const char *words;                                  /* "table create" */
    const char *arguments;                              /* "NAME --rows N --dim D [options]" */
    const char *summary;                                /* one line */
    const char *help;                                   /* options, lines; may be "" */
    const char *examples;                               /* lines */
    int (*run)(struct cli *cli, int argc, char **argv); /* returns an exit code */
    void (*more_help)(FILE *out); /* prints help made from tables, behind @help; may be NULL */
};

/* The commands, in the order of their help. NULL: @command is the last one. */
const struct command *command_first(void);
const struct command *command_next(const struct command *command);
/* Lines of help for CLI_LONG_OPTIONS. */
extern const char cli_common_help[];

int command_status(struct cli *cli, int argc, char **argv);
void help_status(FILE *out);
int command_clients(struct cli *cli, int argc, char **argv);
int command_clients_end(struct cli *cli, int argc, char **argv);
int command_stats(struct cli *cli, int argc, char **argv);
int command_top(struct cli *cli, int argc, char **argv);
void help_top(FILE *out);
int command_endurance(struct cli *cli, int argc, char **argv);
void help_endurance(FILE *out);
int command_endurance_forecast(struct cli *cli, int argc, char **argv);
void help_endurance_forecast(FILE *out);
int command_table_create(struct cli *cli, int argc, char **argv);
void help_table_create(FILE *out);
int command_table_list(struct cli *cli, int argc, char **argv);
int command_table_show(struct cli *cli, int argc, char **argv);
int command_table_drop(struct cli *cli, int argc, char **argv);
int command_table_move(struct cli *cli, int argc, char **argv);
int command_checkpoint_create(struct cli *cli, int argc, char **argv);
int command_checkpoint_list(struct cli *cli, int argc, char **argv);
int command_checkpoint_show(struct cli *cli, int argc, char **argv);
int command_checkpoint_verify(struct cli *cli, int argc, char **argv);
int command_checkpoint_restore(struct cli *cli, int argc, char **argv);
int command_checkpoint_delete(struct cli *cli, int argc, char **argv);
int command_compaction_status(struct cli *cli, int argc, char **argv);
int command_compaction_run(struct cli *cli, int argc, char **argv);
int command_compaction_pause(struct cli *cli, int argc, char **argv);
int command_compaction_resume(struct cli *cli, int argc, char **argv);
int command_compaction_schedule(struct cli *cli, int argc, char **argv);
int command_data_add(struct cli *cli, int argc, char **argv);
int command_data_list(struct cli *cli, int argc, char **argv);
int command_data_remove(struct cli *cli, int argc, char **argv);
int command_reshard(struct cli *cli, int argc, char **argv);
int command_jobs(struct cli *cli, int argc, char **argv);
int command_jobs_cancel(struct cli *cli, int argc, char **argv);
int command_export(struct cli *cli, int argc, char **argv);
int command_import(struct cli *cli, int argc, char **argv);
int command_get(struct cli *cli, int argc, char **argv);
int command_set(struct cli *cli, int argc, char **argv);
int command_config_check(struct cli *cli, int argc, char **argv);
int command_config_keys(struct cli *cli, int argc, char **argv);
int command_config_show(struct cli *cli, int argc, char **argv);
int command_config_diff(struct cli *cli, int argc, char **argv);
int command_knob_list(struct cli *cli, int argc, char **argv);
int command_knob_get(struct cli *cli, int argc, char **argv);
int command_knob_set(struct cli *cli, int argc, char **argv);
int command_size(struct cli *cli, int argc, char **argv);
void help_size(FILE *out);
int command_tune(struct cli *cli, int argc, char **argv);
void help_tune(FILE *out);
int command_doctor(struct cli *cli, int argc, char **argv);
void help_doctor(FILE *out);
int command_trace_generate(struct cli *cli, int argc, char **argv);
int command_trace_hottest(struct cli *cli, int argc, char **argv);
int command_profile_start(struct cli *cli, int argc, char **argv);
int command_profile_stop(struct cli *cli, int argc, char **argv);
int command_profile_save(struct cli *cli, int argc, char **argv);
int command_profile_record(struct cli *cli, int argc, char **argv);
int command_profile_show(struct cli *cli, int argc, char **argv);
int command_plan_make(struct cli *cli, int argc, char **argv);
int command_apply(struct cli *cli, int argc, char **argv);
int command_plan_check(struct cli *cli, int argc, char **argv);
int command_plan_show(struct cli *cli, int argc, char **argv);
int command_plan_diff(struct cli *cli, int argc, char **argv);
int command_plan_what_if(struct cli *cli, int argc, char **argv);
int command_keys_ca(struct cli *cli, int argc, char **argv);
int command_keys_server(struct cli *cli, int argc, char **argv);
int command_keys_client(struct cli *cli, int argc, char **argv);
int command_keys_token(struct cli *cli, int argc, char **argv);
int command_keys_hash(struct cli *cli, int argc, char **argv);
int command_keys_reload(struct cli *cli, int argc, char **argv);
int command_keys_show(struct cli *cli, int argc, char **argv);
int command_support_bundle(struct cli *cli, int argc, char **argv);
void help_support_bundle(FILE *out);
int command_completion(struct cli *cli, int argc, char **argv);

/* The options of every command, to be put after its own options. */
#define CLI_LONG_OPTIONS                                                                           \
    { "address", required_argument, NULL, 'a' }, { "socket", required_argument, NULL, 's' },       \
        { "output", required_argument, NULL, 'o' }, { "timeout", required_argument, NULL, 't' },   \
        { "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'V' },                 \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }

enum { CLI_OPTIONS_END = -1, CLI_OPTIONS_EXIT = -2 };

/* Returns the command's next option. @options has all of its options; those below UCHAR_MAX are
 * also letters. CLI_OPTIONS_END: there are no more. CLI_OPTIONS_EXIT: the program must end with
 * *ret_exit (after --help, or a mistake). A command calls it before it does anything else, as
 * completion runs each command to learn its options. */
int cli_next_option(struct cli *cli, int argc, char **argv, const struct option *options,
                    int *ret_exit);
/* Parses a command without own options, with @min to @max arguments. -1: continue; the
 * arguments begin at optind. Else the exit code. */
int cli_arguments(struct cli *cli, int argc, char **argv, int min, int max);

/* Parses the argument of the option --@name SECONDS, 0.1 to 86400, which was just taken. -1, or an
 * exit code. */
int cli_parse_seconds(const struct cli *cli, const char *name, double *ret_seconds);
/* Parses a command without arguments whose only option is --@name SECONDS (or -@letter), 0.1 to
 * 86400. -1: continue; without the option *@ret_seconds does not change. Else the exit code. */
int cli_seconds_option(struct cli *cli, int argc, char **argv, const char *name, char letter,
                       double *ret_seconds);

/* Parses a command whose only option is --yes (-y), with one argument, which messages call @what.
 * -1: continue; the argument is at optind, and without the option *@ret_yes does not change. Else
 * the exit code. */
int cli_yes_option(struct cli *cli, int argc, char **argv, const char *what, bool *ret_yes);
/* Reads the answer to a question that was just asked. */
bool cli_answer_is_yes(void);

/* Print "embtier: …" on standard error and return the exit code. */
int cli_usage(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
int cli_fail(enum embtier_err err, const char *message);
int cli_fail_server(const struct cli *cli, enum embtier_err err); /* with the server's message */

/* Connects. Returns 0 or the exit code. */
int cli_connect(struct cli *cli, uint64_t arena_bytes);
/* As cli_connect(), for long work that shows its progress and can be interrupted: no timeout,
 * unless --timeout is given. */
int cli_connect_patiently(struct cli *cli, uint64_t arena_bytes);

/* False if the server is reached over a network: its drives and files are then another machine's.
 */
bool cli_server_is_here(const struct cli *cli);

/* Messages for a user who interrupts the creation or drop of a table. The server finishes work that
 * it has begun, even without the client. Rows that it makes itself are the exception: up to the
 * last of them it checks that the client is still there. */
#define CLI_GOES_ON                                                                                \
    "the server finishes work that it has begun, and cancels work that still waits: see "          \
    "`embtier jobs` and `embtier table list`"
#define CLI_GIVEN_UP                                                                               \
    "the server undoes its work and makes no table, unless all rows were just written: see "       \
    "`embtier table list`"

/* Prints tables as `embtier table list` does. Returns an exit code. */
int cli_print_tables(const struct cli *cli, const struct embtier_table_list *list);

#define JSON_DOUBLE_DIGITS 17
/* Writes @value and a newline, with jansson's @flags, as ASCII without control characters. */
MUST_CHECK bool cli_write_json(const struct json_t *value, size_t flags);
/* Prints @value and frees it. Real numbers have @digits. Returns an exit code. */
int cli_print_json(struct json_t *value, int digits);

#endif
