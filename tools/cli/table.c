/* SPDX-License-Identifier: Apache-2.0 */
/* embtier table …: creates, lists, describes and drops tables. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/table_options.h"
#include "tools/cli/text_table.h"

/* ---- table create ---- */

/* Returns -1, or an exit code. */
static int parse_create(struct cli *cli, int argc, char **argv, struct table_arguments *arguments)
{
    struct table_option_name names[HYPERPARAMETER_COUNT];
    const struct option long_options[] = {
        { "dim", required_argument, NULL, 'd' },
        { "dtype", required_argument, NULL, TABLE_OPTION_DTYPE },
        { "eager", no_argument, NULL, TABLE_OPTION_EAGER },
        { "if-not-exists", no_argument, NULL, TABLE_OPTION_EXISTS },
        TABLE_LONG_OPTIONS(names) CLI_LONG_OPTIONS,
    };
    int exit_code = -1;
    int option;

    while ((option = cli_next_option(cli, argc, argv, long_options, &exit_code)) >= 0) {
        exit_code = table_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "NAME is missing" : "more than one NAME");
    if (!arguments->has_rows)
        return cli_usage(cli, "--rows is missing");
    if (arguments->options.dim == 0)
        return cli_usage(cli, "--dim is missing");
    arguments->options.name = argv[optind];
    return -1;
}

/* ---- table show, table list ---- */

static bool init_to_json(const struct embtier_table_info *info, json_t *value)
{
    const double params[2] = { info->init_first, info->init_second };
    bool complete = true;

    for (unsigned i = 0; complete && i < 2; i++) {
        const char *name = init_param_name(info->init, i);
        char key[64];

        snprintf(key, sizeof(key), "init_%s", name);
        if (name[0])
            complete = json_object_set_new(value, key, json_real(params[i])) == 0;
    }
    return complete;
}

static bool hyperparameters_to_json(const struct embtier_table_info *info, json_t *value)
{
    bool complete = true;

#define X(name, field, lowest, highest, standard, text)                                            \
    if (complete && optimizer_has(info->optimizer, EMBTIER_##name))                                \
        complete = json_object_set_new(value, #field, json_real(info->field)) == 0;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    return complete;
}

static json_t *table_to_json(const struct embtier_table_info *info)
{
    json_t *value = json_pack(
        "{s:s, s:i, s:o, s:i, s:s, s:s, s:s, s:o, s:b, s:i, s:i, s:s, s:s, s:b, s:s, s:s, s:o, "
        "s:s, s:s, s:o, s:o, s:o, s:o, s:o}",
        "name", info->name, "table_id", (int)info->table_id, "rows",
        info->rows == EMBTIER_UNBOUNDED ? json_string("unbounded") : cli_json_u64(info->rows),
        "dim", (int)info->dim, "dtype", dtype_word(info->dtype), "optimizer",
        optimizer_word(info->optimizer), "init", init_word(info->init), "seed",
        cli_json_u64(info->seed), "eager", info->eager, "weight_bytes", (int)info->weight_bytes,
        "state_bytes", (int)info->state_bytes, "state", info->state, "rounding",
        rounding_word(info->rounds_to_nearest), "allow_nonfinite", info->allows_nonfinite,
        "durability", durability_word(info->durability), "uuid", info->uuid, "step",
        cli_json_u64(info->step), "home", home_word(info->home), "tier", info->home_tier,
        "hot_rows", cli_json_u64(info->hot_rows), "lookup_rows", cli_json_u64(info->lookup_rows),
        "missed_lookup_rows", cli_json_u64(info->missed_lookup_rows), "read_lookup_rows",
        cli_json_u64(info->read_lookup_rows), "lookup_ns", cli_json_u64(info->lookup_ns));

    if (value && init_to_json(info, value) && hyperparameters_to_json(info, value))
        return value;
    json_decref(value);
    return NULL;
}

static const char *hyperparameters_of(const struct embtier_table_info *info,
                                      struct hyperparameters_text *buffer)
{
    const double values[] = {
#define X(name, field, lowest, highest, standard, text) info->field,
        EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    };

    return hyperparameters_text(buffer, info->optimizer, values);
}

static const char *init_text(const struct embtier_table_info *info, char *buffer, size_t bytes)
{
    const char *first = init_param_name(info->init, 0);
    const char *second = init_param_name(info->init, 1);

    if (second[0])
        snprintf(buffer, bytes, "%s:%g,%g", init_word(info->init), info->init_first,
                 info->init_second);
    else if (first[0])
        snprintf(buffer, bytes, "%s:%g", init_word(info->init), info->init_first);
    else
        snprintf(buffer, bytes, "%s", init_word(info->init));
    return buffer;
}

static const char *rows_text(const struct embtier_table_info *info, struct number_text *buffer)
{
    return info->rows == EMBTIER_UNBOUNDED ? "unbounded" : number_count(buffer, (double)info->rows);
}

static int print_table(const struct cli *cli, const struct embtier_table_info *info)
{
    struct hyperparameters_text hyperparameters;
    struct number_text rows;
    char init[96];

    if (cli->json)
        return cli_print_json(table_to_json(info), JSON_DOUBLE_DIGITS);
    hyperparameters_of(info, &hyperparameters);
    text_print(stdout, "name       %s\n", info->name);
    printf("table id   %u\n", info->table_id);
    printf("rows       %s\n", rows_text(info, &rows));
    printf("dim        %u\n", info->dim);
    printf("dtype      %s\n", dtype_word(info->dtype));
    printf("optimizer  %s%s%s\n", optimizer_word(info->optimizer),
           hyperparameters.text[0] ? ", " : "", hyperparameters.text);
    if (info->optimizer != EMBTIER_OPTIMIZER_NONE) {
        printf("rounding   %s\n", rounding_word(info->rounds_to_nearest));
        printf("nonfinite  %s\n", info->allows_nonfinite ? "allowed" : "refused");
    }
    printf("init       %s\n", init_text(info, init, sizeof(init)));
    printf("seed       %" PRIu64 "\n", info->seed);
    printf("eager      %s\n", info->eager ? "yes" : "no");
    printf("row bytes  %u weights, %u optimizer state\n", info->weight_bytes, info->state_bytes);
    printf("durability %s\n", durability_word(info->durability));
    text_print(stdout, "home       %s%s%s\n", home_word(info->home),
               info->home_tier[0] ? ", tier " : "", info->home_tier);
    if (info->home == EMBTIER_HOME_SPLIT)
        printf("hot rows   %" PRIu64 "\n", info->hot_rows);
    text_print(stdout, "state      %s\n", info->state);
    printf("uuid       %s\n", info->uuid[0] ? info->uuid : "none");
    printf("step       %" PRIu64 "\n", info->step);
    return EXIT_DONE;
}

int command_table_create(struct cli *cli, int argc, char **argv)
{
    struct table_arguments arguments = TABLE_ARGUMENTS_INIT;
    struct embtier_table_options *const options = &arguments.options;
    int exit_code = parse_create(cli, argc, argv, &arguments);
    struct embtier_table *table = NULL;
    struct progress_bar bar;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = options->eager ? cli_connect_patiently(cli, 0) : cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    progress_bar_begin(&bar, "creating", options->eager ? CLI_GIVEN_UP : CLI_GOES_ON);
    options->progress = progress_bar_update;
    options->progress_context = &bar;
    err = embtier_table_create(cli->server, options, &table);
    progress_bar_end(&bar);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return print_table(cli, embtier_table_info(table));
    text_print(stdout, options->if_not_exists ? "table '%s' exists\n" : "created table '%s'\n",
               options->name);
    return EXIT_DONE;
}

/* "cache", "array:dram", or "split:dram:10k" with the number of hot rows. */
static bool add_home(struct text_table *text, const struct embtier_table_info *info)
{
    const bool is_split = info->home == EMBTIER_HOME_SPLIT;
    struct number_text hot = { { 0 } };

    if (is_split)
        number_count(&hot, (double)info->hot_rows);
    return text_table_add(text, "%s%s%s%s%s", home_word(info->home), info->home_tier[0] ? ":" : "",
                          info->home_tier, is_split ? ":" : "", is_split ? hot.text : "");
}

static int print_list(const struct embtier_table_list *list)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrlllrlll");
    static const char *const titles[] = { "NAME", "ROWS", "DIM",        "DTYPE", "OPTIMIZER",
                                          "INIT", "SEED", "DURABILITY", "HOME",  "STATE" };
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < embtier_table_list_count(list); i++) {
        const struct embtier_table_info *info = embtier_table_list_at(list, i);
        struct number_text rows;
        char init[96];

        ok = text_table_add(text, "%s", info->name) &&
             text_table_add(text, "%s", rows_text(info, &rows)) &&
             text_table_add(text, "%u", info->dim) &&
             text_table_add(text, "%s", dtype_word(info->dtype)) &&
             text_table_add(text, "%s", optimizer_word(info->optimizer)) &&
             text_table_add(text, "%s", init_text(info, init, sizeof(init))) &&
             text_table_add(text, "%" PRIu64, info->seed) &&
             text_table_add(text, "%s", durability_word(info->durability)) &&
             add_home(text, info) && text_table_add(text, "%s", info->state);
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

static json_t *list_to_json(const struct embtier_table_list *list)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < embtier_table_list_count(list); i++) {
        if (json_array_append_new(array, table_to_json(embtier_table_list_at(list, i))) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

int cli_print_tables(const struct cli *cli, const struct embtier_table_list *list)
{
    if (cli->json)
        return cli_print_json(list_to_json(list), JSON_DOUBLE_DIGITS);
    if (embtier_table_list_count(list) > 0)
        return print_list(list);
    puts("no tables");
    return EXIT_DONE;
}

int command_table_list(struct cli *cli, int argc, char **argv)
{
    struct embtier_table_list *list;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_table_list(cli->server, &list);
    if (err)
        return cli_fail_server(cli, err);
    exit_code = cli_print_tables(cli, list);
    embtier_table_list_free(list);
    return exit_code;
}

int command_table_show(struct cli *cli, int argc, char **argv)
{
    struct embtier_table *table;
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_table_open(cli->server, argv[optind], &table);
    return err ? cli_fail_server(cli, err) : print_table(cli, embtier_table_info(table));
}

/* Asks the user. True: the answer is yes. */
static bool confirm_drop(struct cli *cli, const char *name, enum embtier_err *ret_err)
{
    struct embtier_table *table;
    struct number_text rows;

    *ret_err = embtier_table_open(cli->server, name, &table);
    if (*ret_err)
        return false;
    text_print(stderr, "Drop table '%s' (%s rows, %u x %s)? Its rows cannot be recovered. [y/N] ",
               name, rows_text(embtier_table_info(table), &rows), embtier_table_info(table)->dim,
               dtype_word(embtier_table_info(table)->dtype));
    embtier_table_close(table);
    return cli_answer_is_yes();
}

int command_table_drop(struct cli *cli, int argc, char **argv)
{
    bool yes = !isatty(STDIN_FILENO);
    int exit_code = cli_yes_option(cli, argc, argv, "TABLE", &yes);
    enum embtier_err err = EMBTIER_OK;
    struct progress_bar bar;
    const char *name;

    if (exit_code >= 0)
        return exit_code;
    name = argv[optind];
    exit_code = cli_connect_patiently(cli, 0);
    if (exit_code)
        return exit_code;
    if (!yes && !confirm_drop(cli, name, &err))
        return err ? cli_fail_server(cli, err) : cli_fail(EMBTIER_OK, "nothing was dropped");
    progress_bar_begin(&bar, "dropping", CLI_GOES_ON);
    err = embtier_table_drop(cli->server, name, progress_bar_update, &bar);
    progress_bar_end(&bar);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o}", "dropped", cli_json_text(name)),
                              JSON_DOUBLE_DIGITS);
    text_print(stdout, "dropped table '%s'\n", name);
    return EXIT_DONE;
}
