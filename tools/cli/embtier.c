/* SPDX-License-Identifier: Apache-2.0 */
/* embtier: inspects an embedding server and changes its tables, from the command line. */
#include "tools/cli/cli.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/paths.h"
#include "base/system/standard_fds.h"
#include "base/text/option_mistake.h"
#include "base/text/text_escape.h"
#include "tools/cli/number.h"

#define TIMEOUT_MS_DEFAULT  10000
#define TIMEOUT_SECONDS_MAX 4000000 /* in milliseconds they fit into the library's 32 bits */

const char cli_common_help[] =
    "Options of every command, before or after its name:\n"
    "  -a, --address ADDRESS   the server: a path, unix+rpc:PATH, tcp://HOST:PORT or\n"
    "                          tls://HOST:PORT?ca=FILE; or several, with commas between, of which\n"
    "                          the first that answers is taken\n"
    "  -s, --socket ADDRESS    the same, an older name\n"
    "  -o, --output text|json  for people (default) or for programs; errors are lines on standard\n"
    "                          error with both\n"
    "  -t, --timeout SECONDS   give up when the server is silent for this long (0: never; the\n"
    "                          default is 10, and 0 for work of the server that shows its\n"
    "                          progress)\n"
    "  -h, --help              print help, also for one command\n"
    "  -V, --version           print the version\n";

static void print_help(FILE *out)
{
    _cleanup_(freep) char *path = default_socket_path();

    fputs("Usage: embtier [options] COMMAND [arguments]\n\nCommands:\n", out);
    for (const struct command *command = command_first(); command; command = command_next(command))
        fprintf(out, "  %-18s  %s\n", command->words, command->summary);
    fprintf(out, "\n%s\n", cli_common_help);
    text_print(out, "The socket is %s", path ? path : "?");
    fprintf(out, " unless --address or EMBTIER_SOCKET says otherwise.\n"
                 "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no server answers.\n\n"
                 "  embtier status\n"
                 "  embtier table create users --rows 1000000 --dim 64 --init uniform:-0.1,0.1\n"
                 "  embtier get users 7 9\n"
                 "  embtier COMMAND --help\n");
}

static void print_command_help(const struct command *command)
{
    printf("Usage: embtier %s%s%s\n\n%c%s.\n\n%s", command->words, command->arguments[0] ? " " : "",
           command->arguments, command->summary[0] - 'a' + 'A', command->summary + 1,
           command->help);
    if (command->more_help)
        command->more_help(stdout);
    printf("%s%s\n%s", command->help[0] ? "\n" : "", command->examples, cli_common_help);
}

static int try_help(const struct cli *cli)
{
    const char *words = cli->command ? cli->command->words : NULL;

    fprintf(stderr, "Try 'embtier%s%s --help'.\n", words ? " " : "", words ? words : "");
    return EXIT_USAGE;
}

int cli_usage(const struct cli *cli, const char *format, ...)
{
    const char *words = cli->command ? cli->command->words : NULL;
    _cleanup_(freep) char *text = NULL;
    struct err_msg shown;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    err_write(&shown, "%s", text ? text : format);
    fprintf(stderr, "embtier%s%s: %s\n", words ? " " : "", words ? words : "", shown.text);
    return try_help(cli);
}

int cli_fail(enum embtier_err err, const char *message)
{
    struct err_msg shown;

    err_write(&shown, "%s", message[0] ? message : err_text(err));
    fprintf(stderr, "embtier: %s\n", shown.text);
    return err == EMBTIER_UNREACHABLE ? EXIT_NO_SERVER : EXIT_FAILED;
}

int cli_fail_server(const struct cli *cli, enum embtier_err err)
{
    return cli_fail(err, embtier_message(cli->server));
}

int cli_connect(struct cli *cli, uint64_t arena_bytes)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    enum embtier_err err;

    options.socket_path = cli->socket_path;
    options.arena_bytes = arena_bytes;
    options.max_in_flight = 1;
    options.timeout_ms = cli->timeout_ms;
    options.client_name = "embtier";
    err = embtier_connect(&options, &cli->server);
    return err ? cli_fail(err, embtier_message(NULL)) : 0;
}

int cli_connect_patiently(struct cli *cli, uint64_t arena_bytes)
{
    if (!cli->has_timeout)
        cli->timeout_ms = 0;
    return cli_connect(cli, arena_bytes);
}

bool cli_server_is_here(const struct cli *cli)
{
    const char *const given =
        cli->socket_path ? cli->socket_path : getenv("EMBTIER_SOCKET"); // NOLINT

    return !given || (!strstr(given, "tcp://") && !strstr(given, "tls://"));
}

/* JSON_ENSURE_ASCII leaves one character that is no plain text: DEL, which occurs only in
 * strings. */
static int write_json(const char *text, size_t bytes, void *file)
{
    while (bytes > 0) {
        const char *const del = memchr(text, 0x7f, bytes);
        const size_t plain = del ? (size_t)(del - text) : bytes;

        if (fwrite(text, 1, plain, file) != plain || (del && fputs("\\u007f", file) == EOF))
            return -1;
        text += plain + (del != NULL);
        bytes -= plain + (del != NULL);
    }
    return 0;
}

bool cli_write_json(const json_t *value, size_t flags)
{
    return json_dump_callback(value, write_json, stdout, flags | JSON_ENSURE_ASCII) == 0 &&
           putchar('\n') != EOF;
}

int cli_print_json(struct json_t *value, int digits)
{
    bool written;

    if (!value)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    written = cli_write_json(value, JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits));
    json_decref(value);
    return written ? EXIT_DONE : cli_fail(EMBTIER_IO, "cannot write the output");
}

/* Returns 1 if @option is common to all commands. *ret_exit is set if the option ends the
 * program. */
static int common_option(struct cli *cli, int option, int *ret_exit)
{
    double seconds;

    switch (option) {
    case 'a':
    case 's':
        cli->socket_path = optarg;
        return 1;
    case 'o':
        cli->json = strcmp(optarg, "json") == 0;
        if (!cli->json && strcmp(optarg, "text") != 0)
            *ret_exit = cli_usage(cli, "--output %s: allowed: text, json", TEXT_SHOWN(optarg));
        return 1;
    case 't':
        if (!number_is_double(optarg, &seconds) || seconds < 0 || seconds > TIMEOUT_SECONDS_MAX) {
            *ret_exit = cli_usage(cli, "--timeout %s: allowed: seconds, 0 to %d",
                                  TEXT_SHOWN(optarg), TIMEOUT_SECONDS_MAX);
            return 1;
        }
        cli->timeout_ms = (uint32_t)ceil(seconds * 1000); /* 0 means never */
        cli->has_timeout = true;
        return 1;
    case 'h':
        if (cli->command)
            print_command_help(cli->command);
        else
            print_help(stdout);
        *ret_exit = EXIT_DONE;
        return 1;
    case 'V':
        printf("embtier %s\n", embtier_version());
        *ret_exit = EXIT_DONE;
        return 1;
    default:
        return 0;
    }
}

struct short_options {
    char text[32];
};

static int refuse_option(const struct cli *cli, const struct err_msg *mistake)
{
    fprintf(stderr, "embtier: %s\n", mistake->text);
    return try_help(cli);
}

/* Writes @how and the letters of @options for option_next(). Other letters are unknown. */
static void short_options(struct short_options *letters, const char *how,
                          const struct option *options)
{
    char *at = stpcpy(stpcpy(letters->text, how), ":");

    for (; options->name; options++) {
        if (options->val > UCHAR_MAX)
            continue;
        *at++ = (char)options->val;
        if (options->has_arg == required_argument)
            *at++ = ':';
    }
    *at = '\0';
}

/* Says that a word such as "-1" is no number here: no id and no count is negative. */
static int refuse_digit(const struct cli *cli, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] == (char)optopt)
            return cli_usage(cli,
                             "'%s': a word that begins with - is an option, and there is none of "
                             "this name; ids and counts are never negative",
                             TEXT_SHOWN(argv[i]));
    return try_help(cli);
}

int cli_next_option(struct cli *cli, int argc, char **argv, const struct option *options,
                    int *ret_exit)
{
    struct short_options letters;
    struct err_msg mistake;

    if (cli->take_options) {
        cli->take_options(options, cli->taker);
        *ret_exit = EXIT_DONE;
        return CLI_OPTIONS_EXIT;
    }
    short_options(&letters, "", options);
    for (;;) {
        const int option = option_next(argc, argv, letters.text, options, &mistake);

        if (option == -1)
            return CLI_OPTIONS_END;
        *ret_exit = -1;
        if (option == '?' && isdigit(optopt)) {
            *ret_exit = refuse_digit(cli, argc, argv);
        } else if (option == '?' || option == ':') {
            *ret_exit = refuse_option(cli, &mistake);
        } else if (!common_option(cli, option, ret_exit)) {
            return option;
        }
        if (*ret_exit >= 0)
            return CLI_OPTIONS_EXIT;
    }
}

int cli_parse_seconds(const struct cli *cli, const char *name, double *ret_seconds)
{
    if (number_is_double(optarg, ret_seconds) && *ret_seconds >= 0.1 && *ret_seconds <= 86400)
        return -1;
    return cli_usage(cli, "--%s %s: allowed: seconds, 0.1 to 86400", name, TEXT_SHOWN(optarg));
}

int cli_seconds_option(struct cli *cli, int argc, char **argv, const char *name, char letter,
                       double *ret_seconds)
{
    const struct option options[] = { { name, required_argument, NULL, letter }, CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == letter) {
        exit_code = cli_parse_seconds(cli, name, ret_seconds);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

int cli_yes_option(struct cli *cli, int argc, char **argv, const char *what, bool *ret_yes)
{
    static const struct option options[] = { { "yes", no_argument, NULL, 'y' }, CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == 'y')
        *ret_yes = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "%s is missing" : "more than one %s", what);
    return -1;
}

bool cli_answer_is_yes(void)
{
    char answer[16];

    return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int cli_arguments(struct cli *cli, int argc, char **argv, int min, int max)
{
    static const struct option options[] = { CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    const int option = cli_next_option(cli, argc, argv, options, &exit_code);

    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind < min)
        return cli_usage(cli, "an argument is missing: %s", cli->command->arguments);
    if (argc - optind > max)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind + max]));
    return -1;
}

/* Finds the command whose words begin @argv, and their number. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    for (const struct command *command = command_first(); command;
         command = command_next(command)) {
        const char *second = strchr(command->words, ' ');
        const size_t first_bytes = strcspn(command->words, " ");

        if (argc < (second ? 2 : 1) || strlen(argv[0]) != first_bytes ||
            strncmp(argv[0], command->words, first_bytes) != 0)
            continue;
        if (second && strcmp(argv[1], second + 1) != 0)
            continue;
        *ret_words = second ? 2 : 1;
        return command;
    }
    return NULL;
}

/* Handles words such as "embtier table": lists those that may follow. */
static int refuse_words(const struct cli *cli, int argc, char **argv)
{
    const size_t bytes = strlen(argv[0]);
    const bool is_help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    FILE *const out = is_help ? stdout : stderr;
    bool known = false;

    for (const struct command *command = command_first(); command;
         command = command_next(command)) {
        if (strncmp(command->words, argv[0], bytes) != 0 || command->words[bytes] != ' ')
            continue;
        if (!known && argc > 1 && argv[1][0] != '-')
            fprintf(stderr, "embtier: '%s %s' is not a command\n", argv[0], TEXT_SHOWN(argv[1]));
        known = true;
        fprintf(out, "  embtier %-18s  %s\n", command->words, command->summary);
    }
    if (known)
        return is_help ? EXIT_DONE : EXIT_USAGE;
    return cli_usage(cli, "'%s' is not a command", TEXT_SHOWN(argv[0]));
}

/* Flushes the output. Scripts rely on the exit code, so output that could not be written is a
 * failure. */
static int print_rest(int exit_code)
{
    if (standard_fds_flush() == 0 || exit_code != EXIT_DONE)
        return exit_code;
    return cli_fail(EMBTIER_IO, "cannot write the output");
}

int main(int argc, char **argv)
{
    static const struct option options[] = { CLI_LONG_OPTIONS };
    struct cli cli = { .timeout_ms = TIMEOUT_MS_DEFAULT };
    struct short_options letters;
    struct err_msg mistake;
    int exit_code = -1;
    int words = 0;
    int option;

    if (standard_fds_open() != 0)
        return EXIT_FAILURE; /* no descriptor is left for a message */
    short_options(&letters, "+", options);
    while ((option = option_next(argc, argv, letters.text, options, &mistake)) != -1) {
        if (!common_option(&cli, option, &exit_code))
            return refuse_option(&cli, &mistake);
        if (exit_code >= 0)
            return print_rest(exit_code);
    }
    argc -= optind;
    argv += optind;
    if (argc == 0) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    cli.command = find_command(argc, argv, &words);
    if (!cli.command)
        return print_rest(refuse_words(&cli, argc, argv));
    optind = 0; /* restarts getopt_long() */
    exit_code = cli.command->run(&cli, argc - words + 1, argv + words - 1);
    embtier_disconnect(cli.server);
    return print_rest(exit_code);
}
