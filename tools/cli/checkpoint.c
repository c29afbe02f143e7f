/* SPDX-License-Identifier: Apache-2.0 */
/* embtier checkpoint …: make, list, describe, verify, restore and delete checkpoints. */
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/text_table.h"

/* Everything that is JSON, also a number or a string alone, and \u0000 in a string. */
#define METADATA_FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL)

DEFINE_CLEANUP(struct embtier_checkpoint_list, embtier_checkpoint_list_free)
DEFINE_CLEANUP(struct embtier_table_list, embtier_table_list_free)

enum { OPTION_STEP = 256, OPTION_METADATA, OPTION_KEEP, OPTION_AS };

/* ---- Arguments ---- */

/* Returns a copy of @text, which is valid JSON, with no blanks outside of strings. Numbers stay as
 * they were written. The caller frees it. */
static char *without_blanks(const char *text)
{
    char *const compact = malloc(strlen(text) + 1);
    char *out = compact;
    bool in_string = false;

    if (!compact)
        return NULL;
    for (; *text; text++) {
        if (!in_string && isspace((unsigned char)*text))
            continue;
        *out++ = *text;
        if (in_string && *text == '\\')
            *out++ = *++text;
        else if (*text == '"')
            in_string = !in_string;
    }
    *out = '\0';
    return compact;
}

/* Returns -1, or the exit code of a mistake. */
static int parse_metadata(const struct cli *cli, const char *text, char **metadata)
{
    json_error_t error;
    json_t *value = json_loads(text, METADATA_FLAGS | JSON_DECODE_INT_AS_REAL, &error);

    if (!value)
        return cli_usage(cli, "--metadata: not JSON, at character %d: %s", error.position,
                         TEXT_SHOWN(error.text));
    json_decref(value);
    free(*metadata);
    *metadata = without_blanks(text);
    if (!*metadata)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (strlen(*metadata) > EMBTIER_METADATA_MAX)
        return cli_usage(cli, "--metadata: %zu bytes, allowed: %d", strlen(*metadata),
                         EMBTIER_METADATA_MAX);
    return -1;
}

/* Returns -1, or the exit code of a mistake. */
static int create_option(const struct cli *cli, int option,
                         struct embtier_checkpoint_options *options, char **metadata)
{
    uint64_t number;

    switch (option) {
    case OPTION_STEP:
        if (!number_parse_u64(optarg, &options->step))
            return cli_usage(cli, "--step %s: allowed: 0 to %" PRIu64, TEXT_SHOWN(optarg),
                             UINT64_MAX);
        options->has_step = 1;
        return -1;
    case OPTION_METADATA:
        return parse_metadata(cli, optarg, metadata);
    case OPTION_KEEP:
        if (!number_parse_u64(optarg, &number) || number < 1 || number > UINT32_MAX)
            return cli_usage(cli, "--keep %s: allowed: 1 to %" PRIu32, TEXT_SHOWN(optarg),
                             UINT32_MAX);
        options->keep = (uint32_t)number;
        return -1;
    default:
        return cli_usage(cli, "option -%c is not known here", option);
    }
}

/* Returns -1, or an exit code. The caller frees @metadata. */
static int parse_create(struct cli *cli, int argc, char **argv,
                        struct embtier_checkpoint_options *options, char **metadata)
{
    static const struct option long_options[] = {
        { "step", required_argument, NULL, OPTION_STEP },
        { "metadata", required_argument, NULL, OPTION_METADATA },
        { "keep", required_argument, NULL, OPTION_KEEP },
        CLI_LONG_OPTIONS,
    };
    int exit_code = -1;
    int option;

    while ((option = cli_next_option(cli, argc, argv, long_options, &exit_code)) >= 0) {
        exit_code = create_option(cli, option, options, metadata);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    options->metadata = *metadata;
    return -1;
}

/* Returns -1, or the exit code of a mistake. */
static int parse_id(const struct cli *cli, const char *text, uint64_t *ret_id)
{
    if (!number_parse_u64(text, ret_id) || *ret_id == 0)
        return cli_usage(cli, "ID %s: allowed: a number from 1 on; see 'embtier checkpoint list'",
                         TEXT_SHOWN(text));
    return -1;
}

/* Parses a command whose only argument is ID. Returns -1, or an exit code. */
static int parse_only_id(struct cli *cli, int argc, char **argv, uint64_t *ret_id)
{
    const int exit_code = cli_arguments(cli, argc, argv, 1, 1);

    return exit_code >= 0 ? exit_code : parse_id(cli, argv[optind], ret_id);
}

/* Returns -1, or an exit code. The names of tables begin at optind. *@ret_name is NULL without
 * --as. */
static int parse_restore(struct cli *cli, int argc, char **argv, uint64_t *ret_id,
                         const char **ret_name)
{
    static const struct option long_options[] = {
        { "as", required_argument, NULL, OPTION_AS },
        CLI_LONG_OPTIONS,
    };
    int exit_code = -1;
    int option;

    *ret_name = NULL;
    while ((option = cli_next_option(cli, argc, argv, long_options, &exit_code)) == OPTION_AS)
        *ret_name = optarg;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc == optind)
        return cli_usage(cli, "ID is missing");
    exit_code = parse_id(cli, argv[optind], ret_id);
    if (exit_code >= 0)
        return exit_code;
    optind++;
    if (*ret_name && argc - optind != 1)
        return cli_usage(cli, "--as %s needs exactly one named TABLE, not %d",
                         TEXT_SHOWN(*ret_name), argc - optind);
    return -1;
}

/* ---- Output ---- */

/* Formats "1.25 ms", because pauses are short. */
static const char *pause_text(struct number_text *buffer, uint64_t pause_us)
{
    if (pause_us < 1000000)
        snprintf(buffer->text, sizeof(buffer->text), "%.4g ms", (double)pause_us / 1e3);
    else
        snprintf(buffer->text, sizeof(buffer->text), "%.4g s", (double)pause_us / 1e6);
    return buffer->text;
}

static const char *step_text(struct number_text *buffer,
                             const struct embtier_checkpoint *checkpoint)
{
    if (checkpoint->has_step)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64, checkpoint->step);
    else
        snprintf(buffer->text, sizeof(buffer->text), "-");
    return buffer->text;
}

static const char *maker(const struct embtier_checkpoint *checkpoint)
{
    return checkpoint->automatic ? "server" : "user";
}

static json_t *metadata_to_json(const struct embtier_checkpoint *checkpoint)
{
    json_t *value;

    if (!checkpoint->metadata)
        return json_null();
    value = json_loads(checkpoint->metadata, METADATA_FLAGS, NULL);
    return value ? value : json_string(checkpoint->metadata); /* numbers beyond jansson's */
}

static bool tables_to_json(const struct embtier_checkpoint *checkpoint, json_t *value)
{
    json_t *names = json_array();
    bool complete = json_object_set_new(value, "tables", names) == 0;

    for (uint32_t i = 0; complete && i < checkpoint->table_count; i++)
        complete = json_array_append_new(names, json_string(checkpoint->tables[i])) == 0;
    return complete;
}

struct user_text {
    char text[80];
};

/* Names are no numbers. A user that comes over a network has no uid. */
static const char *user_text(struct user_text *buffer, const struct embtier_checkpoint *checkpoint)
{
    if (checkpoint->user[0] != '\0')
        (void)snprintf(buffer->text, sizeof(buffer->text), "%s", checkpoint->user);
    else if (checkpoint->uid == UINT32_MAX)
        return "-";
    else
        (void)snprintf(buffer->text, sizeof(buffer->text), "%" PRIu32, checkpoint->uid);
    return buffer->text;
}

static json_t *uid_to_json(const struct embtier_checkpoint *checkpoint)
{
    return checkpoint->uid == UINT32_MAX ? json_null() : cli_json_u64(checkpoint->uid);
}

static json_t *checkpoint_to_json(const struct embtier_checkpoint *checkpoint)
{
    struct number_text created;
    json_t *value = json_pack(
        "{s:o, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id",
        cli_json_u64(checkpoint->id), "created", number_date(&created, checkpoint->created_ms),
        "made_by", maker(checkpoint), "uid", uid_to_json(checkpoint), "user", checkpoint->user,
        "step", checkpoint->has_step ? cli_json_u64(checkpoint->step) : json_null(), "metadata",
        metadata_to_json(checkpoint), "table_count", cli_json_u64(checkpoint->table_count), "bytes",
        cli_json_u64(checkpoint->bytes), "new_bytes", cli_json_u64(checkpoint->new_bytes),
        "pause_us", cli_json_u64(checkpoint->pause_us), "held_rows",
        cli_json_u64(checkpoint->held_rows), "spent_ms", cli_json_u64(checkpoint->spent_ms),
        "tries", cli_json_u64(checkpoint->tries), "cut_updates",
        cli_json_u64(checkpoint->cut_updates));

    if (value && (!checkpoint->tables || tables_to_json(checkpoint, value)))
        return value;
    json_decref(value);
    return NULL;
}

static json_t *list_to_json(const struct embtier_checkpoint_list *list)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < embtier_checkpoint_list_count(list); i++) {
        json_t *value = checkpoint_to_json(embtier_checkpoint_list_at(list, i));

        if (json_array_append_new(array, value) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static int print_list(const struct embtier_checkpoint_list *list)
{
    static const char *const titles[] = { "ID",    "CREATED", "STEP", "TABLES",
                                          "BYTES", "NEW",     "USER", "MADE BY" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("rlrrrrrl");
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < embtier_checkpoint_list_count(list); i++) {
        const struct embtier_checkpoint *checkpoint = embtier_checkpoint_list_at(list, i);
        struct number_text number;
        struct user_text user;

        ok = text_table_add(text, "%" PRIu64, checkpoint->id) &&
             text_table_add(text, "%s", number_date(&number, checkpoint->created_ms)) &&
             text_table_add(text, "%s", step_text(&number, checkpoint)) &&
             text_table_add(text, "%" PRIu32, checkpoint->table_count) &&
             text_table_add(text, "%s", number_bytes(&number, (double)checkpoint->bytes)) &&
             text_table_add(text, "%s", number_bytes(&number, (double)checkpoint->new_bytes)) &&
             text_table_add(text, "%s", user_text(&user, checkpoint)) &&
             text_table_add(text, "%s", maker(checkpoint));
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

static void print_checkpoint(const struct embtier_checkpoint *checkpoint)
{
    struct number_text number;
    struct user_text user;

    printf("id         %" PRIu64 "\n", checkpoint->id);
    printf("created    %s\n", number_date(&number, checkpoint->created_ms));
    printf("made by    %s\n", maker(checkpoint));
    text_print(stdout, "user       %s\n", user_text(&user, checkpoint));
    printf("step       %s\n", step_text(&number, checkpoint));
    text_print(stdout, "metadata   %s\n", checkpoint->metadata ? checkpoint->metadata : "-");
    printf("bytes      %s\n", number_bytes(&number, (double)checkpoint->bytes));
    printf("new bytes  %s\n", number_bytes(&number, (double)checkpoint->new_bytes));
    printf("pause      %s\n", pause_text(&number, checkpoint->pause_us));
    printf("tries      %s\n", number_count(&number, (double)checkpoint->tries));
    printf("cut        %s\n", number_count(&number, (double)checkpoint->cut_updates));
    printf("held rows  %s\n", number_count(&number, (double)checkpoint->held_rows));
    printf("took       %.4g s\n", (double)checkpoint->spent_ms / 1e3);
    printf("tables     %" PRIu32 "\n", checkpoint->table_count);
    for (uint32_t i = 0; checkpoint->tables && i < checkpoint->table_count; i++)
        text_print(stdout, "           %s\n", checkpoint->tables[i]);
}

static void print_created(const struct embtier_checkpoint *checkpoint)
{
    struct number_text bytes;
    struct number_text new_bytes;
    struct number_text pause;

    printf("created checkpoint %" PRIu64 " in %.4g s: %" PRIu32 " table%s, %s, %s of them new; "
           "updates paused for %s\n",
           checkpoint->id, (double)checkpoint->spent_ms / 1e3, checkpoint->table_count,
           PLURAL(checkpoint->table_count), number_bytes(&bytes, (double)checkpoint->bytes),
           number_bytes(&new_bytes, (double)checkpoint->new_bytes),
           pause_text(&pause, checkpoint->pause_us));
}

/* ---- Commands ---- */

int command_checkpoint_create(struct cli *cli, int argc, char **argv)
{
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *list = NULL;
    _cleanup_(freep) char *metadata = NULL;
    struct embtier_checkpoint_options options = EMBTIER_CHECKPOINT_OPTIONS_INIT;
    int exit_code = parse_create(cli, argc, argv, &options, &metadata);
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "saving",
                       "the server finishes a checkpoint that has begun and drops a waiting one: "
                       "see `embtier jobs` and `embtier checkpoint list`");
    err = embtier_checkpoint_create(cli->server, &options, progress_bar_update, &bar, &list);
    progress_bar_end(&bar);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(checkpoint_to_json(embtier_checkpoint_list_at(list, 0)),
                              JSON_DOUBLE_DIGITS);
    print_created(embtier_checkpoint_list_at(list, 0));
    return EXIT_DONE;
}

int command_checkpoint_list(struct cli *cli, int argc, char **argv)
{
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *list = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_checkpoint_list(cli->server, &list);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(list_to_json(list), JSON_DOUBLE_DIGITS);
    if (embtier_checkpoint_list_count(list) > 0)
        return print_list(list);
    puts("no checkpoints");
    return EXIT_DONE;
}

int command_checkpoint_show(struct cli *cli, int argc, char **argv)
{
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *list = NULL;
    uint64_t id = 0;
    int exit_code = parse_only_id(cli, argc, argv, &id);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_checkpoint_show(cli->server, id, &list);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(checkpoint_to_json(embtier_checkpoint_list_at(list, 0)),
                              JSON_DOUBLE_DIGITS);
    print_checkpoint(embtier_checkpoint_list_at(list, 0));
    return EXIT_DONE;
}

int command_checkpoint_verify(struct cli *cli, int argc, char **argv)
{
    uint64_t id = 0;
    int exit_code = parse_only_id(cli, argc, argv, &id);
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "verifying", "the server stops reading");
    err = embtier_checkpoint_verify(cli->server, id, progress_bar_update, &bar);
    progress_bar_end(&bar);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o}", "verified", cli_json_u64(id)), JSON_DOUBLE_DIGITS);
    printf("checkpoint %" PRIu64 " is whole\n", id);
    return EXIT_DONE;
}

int command_checkpoint_restore(struct cli *cli, int argc, char **argv)
{
    _cleanup_(embtier_table_list_freep) struct embtier_table_list *list = NULL;
    const char *name = NULL;
    uint64_t id = 0;
    int exit_code = parse_restore(cli, argc, argv, &id, &name);
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "restoring", CLI_GIVEN_UP);
    err =
        embtier_checkpoint_restore(cli->server, id, (const char *const *)argv + optind,
                                   (size_t)(argc - optind), name, progress_bar_update, &bar, &list);
    progress_bar_end(&bar);
    return err ? cli_fail_server(cli, err) : cli_print_tables(cli, list);
}

/* Asks the user. True: the answer is yes. */
static bool confirm_delete(struct cli *cli, uint64_t id, enum embtier_err *ret_err)
{
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *list = NULL;
    const struct embtier_checkpoint *checkpoint;
    struct number_text created;

    *ret_err = embtier_checkpoint_show(cli->server, id, &list);
    if (*ret_err)
        return false;
    checkpoint = embtier_checkpoint_list_at(list, 0);
    fprintf(stderr, "Delete checkpoint %" PRIu64 " (made by %s, %s", id, maker(checkpoint),
            number_date(&created, checkpoint->created_ms));
    if (checkpoint->has_step)
        fprintf(stderr, ", step %" PRIu64, checkpoint->step);
    fputs(")? This cannot be undone. [y/N] ", stderr);
    return cli_answer_is_yes();
}

int command_checkpoint_delete(struct cli *cli, int argc, char **argv)
{
    bool yes = !isatty(STDIN_FILENO);
    int exit_code = cli_yes_option(cli, argc, argv, "ID", &yes);
    enum embtier_err err = EMBTIER_OK;
    uint64_t id = 0;

    if (exit_code >= 0)
        return exit_code;
    exit_code = parse_id(cli, argv[optind], &id);
    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    if (!yes && !confirm_delete(cli, id, &err))
        return err ? cli_fail_server(cli, err) : cli_fail(EMBTIER_OK, "nothing was deleted");
    err = embtier_checkpoint_delete(cli->server, id);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o}", "deleted", cli_json_u64(id)), JSON_DOUBLE_DIGITS);
    printf("deleted checkpoint %" PRIu64 "\n", id);
    return EXIT_DONE;
}
