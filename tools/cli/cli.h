/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: what the commands of `embtier` share: the table they stand in, options that all of
 * them know, the connection, and how a failure ends. */
#ifndef EMBTIER_TOOLS_CLI_CLI_H
#define EMBTIER_TOOLS_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "client/include/embtier.h"

struct json_t;

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_SERVER = 3 };

struct command;

struct cli {
    const struct command *command;
    const char *socket_path; /* NULL: the default */
    bool json;
    uint32_t timeout_ms;
    bool has_timeout;       /* the user has said so */
    struct embtier *server; /* after cli_connect() */
};

struct command {
    const char *words;                                  /* "table create" */
    const char *arguments;                              /* "NAME --rows N --dim D [options]" */
    const char *summary;                                /* one line */
    const char *help;                                   /* options, lines; may be "" */
    const char *examples;                               /* lines */
    int (*run)(struct cli *cli, int argc, char **argv); /* returns an exit code */
    void (*more_help)(FILE *out); /* prints what is made from tables, behind @help; may be NULL */
};

/* Ends with one whose words are NULL. */
extern const struct command commands[];

int command_status(struct cli *cli, int argc, char **argv);
int command_endurance(struct cli *cli, int argc, char **argv);
int command_table_create(struct cli *cli, int argc, char **argv);
void help_table_create(FILE *out);
int command_table_list(struct cli *cli, int argc, char **argv);
int command_table_show(struct cli *cli, int argc, char **argv);
int command_table_drop(struct cli *cli, int argc, char **argv);
int command_checkpoint_create(struct cli *cli, int argc, char **argv);
int command_checkpoint_list(struct cli *cli, int argc, char **argv);
int command_checkpoint_show(struct cli *cli, int argc, char **argv);
int command_checkpoint_verify(struct cli *cli, int argc, char **argv);
int command_checkpoint_restore(struct cli *cli, int argc, char **argv);
int command_checkpoint_delete(struct cli *cli, int argc, char **argv);
int command_jobs(struct cli *cli, int argc, char **argv);
int command_jobs_cancel(struct cli *cli, int argc, char **argv);
int command_export(struct cli *cli, int argc, char **argv);
int command_import(struct cli *cli, int argc, char **argv);
int command_get(struct cli *cli, int argc, char **argv);
int command_set(struct cli *cli, int argc, char **argv);
int command_config_check(struct cli *cli, int argc, char **argv);
int command_config_keys(struct cli *cli, int argc, char **argv);

/* The options every command knows, to stand at the end of its own. */
#define CLI_LONG_OPTIONS                                                                           \
    { "socket", required_argument, NULL, 's' }, { "output", required_argument, NULL, 'o' },        \
        { "timeout", required_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' },           \
        { "version", no_argument, NULL, 'V' },                                                     \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }

enum { CLI_OPTIONS_END = -1, CLI_OPTIONS_EXIT = -2 };

/* The next option of the command's own, which are all of @options, those below UCHAR_MAX also as a
 * letter; CLI_OPTIONS_END, or CLI_OPTIONS_EXIT: then *ret_exit is the
 * exit code (--help, a mistake). */
int cli_next_option(struct cli *cli, int argc, char **argv, const struct option *options,
                    int *ret_exit);
/* A command without options of its own, with @min to @max arguments. -1: go on, they begin at
 * optind; else the exit code. */
int cli_arguments(struct cli *cli, int argc, char **argv, int min, int max);

/* A command whose only option is --@name SECONDS (or -@letter), 0.1 to 86400, without arguments.
 * -1: go on, *@ret_seconds stays as it was without the option; else the exit code. */
int cli_seconds_option(struct cli *cli, int argc, char **argv, const char *name, char letter,
                       double *ret_seconds);

/* A command whose only option is --yes (-y), with one argument that is called @what. -1: go on, it
 * stands at optind and *@ret_yes stays as it was without the option; else the exit code. */
int cli_yes_option(struct cli *cli, int argc, char **argv, const char *what, bool *ret_yes);
/* Of a question that was just asked. */
bool cli_answer_is_yes(void);

/* "embtier: …" on standard error; the exit code. */
int cli_usage(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
int cli_fail(enum embtier_err err, const char *message);
int cli_fail_server(const struct cli *cli, enum embtier_err err); /* the message is the server's */

/* 0, or the exit code. */
int cli_connect(struct cli *cli, uint64_t arena_bytes);
/* The same for long work, which the user sees going on and can interrupt: without a timeout, unless
 * there is --timeout. */
int cli_connect_patiently(struct cli *cli, uint64_t arena_bytes);

/* What is said of tables that are being made or dropped when the user goes. The server does without
 * him what it has begun, but for rows that it makes itself: then it looks whether he is there, up
 * to the last of them. */
#define CLI_GOES_ON                                                                                \
    "what the server has begun it finishes, and one that has not begun is not done: see "          \
    "`embtier jobs` and `embtier table list`"
#define CLI_GIVEN_UP                                                                               \
    "the server gives it up and makes no table, unless all rows were just written: see "           \
    "`embtier table list`"

/* As `embtier table list` does. Returns an exit code. */
int cli_print_tables(const struct cli *cli, const struct embtier_table_list *list);

/* A string; of what is not UTF-8, such as some paths, the escaped text. */
struct json_t *cli_json_text(const char *text);
/* An integer if it is one, null if it is infinite or none. */
struct json_t *cli_json_number(double value);
/* JSON has no unsigned 64-bit numbers: what is too large for a signed one is a string. */
struct json_t *cli_json_u64(uint64_t value);
#define JSON_DOUBLE_DIGITS 17
/* Writes @value and a newline, with @flags of jansson: ASCII, without control characters. */
MUST_CHECK bool cli_write_json(const struct json_t *value, size_t flags);
/* Prints @value and frees it; real numbers with @digits. Returns an exit code. */
int cli_print_json(struct json_t *value, int digits);

#endif
