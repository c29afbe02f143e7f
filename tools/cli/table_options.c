/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/table_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/number.h"

/* Parses "uniform:-0.1,0.1" and similar. Returns NULL, or the mistake. */
static const char *parse_init(const char *text, struct embtier_table_options *options)
{
    const size_t word_bytes = strcspn(text, ":");
    const char *at = text + word_bytes;
    double params[2] = { 0, 0 };
    char word[32];
    int init;

    if (snprintf(word, sizeof(word), "%.*s", (int)word_bytes, text) >= (int)sizeof(word))
        return "not known";
    init = init_parse(word);
    if (init < 0)
        return "not known; allowed: zeros, constant:VALUE, uniform:LOW,HIGH, normal:MEAN,STDDEV";
    for (unsigned i = 0; i < 2 && init_param_name(init, i)[0]; i++) {
        if (*at != (i == 0 ? ':' : ','))
            return i == 0 ? "a number is missing behind ':'" : "a second number is missing";
        if (!number_parse_double(at + 1, &params[i], &at))
            return "that is not a number, or more than one holds";
    }
    if (*at != '\0')
        return "too much behind it";
    options->init = (enum embtier_init)init;
    options->init_first = params[0];
    options->init_second = params[1];
    return NULL;
}

static bool parse_rows(const char *text, uint64_t *ret_rows)
{
    if (strcmp(text, "unbounded") == 0) {
        *ret_rows = EMBTIER_UNBOUNDED;
        return true;
    }
    return number_parse_u64(text, ret_rows) && *ret_rows > 0;
}

const char *table_option_name(struct table_option_name *buffer, int hyperparameter)
{
    snprintf(buffer->text, sizeof(buffer->text), "%s", hyperparameter_word(hyperparameter));
    for (char *at = buffer->text; (at = strchr(at, '_')) != NULL;)
        *at = '-';
    return buffer->text;
}

static const char optimizer_words[] =
#define X(id, number, word, ...) ", " word
    EMBTIER_OPTIMIZER_TABLE(X);
#undef X

void help_table_create(FILE *out)
{
    struct hyperparameters_text defaults;
    struct table_option_name name;

    fputs("\nHyperparameters and their allowed values:\n", out);
#define X(id, field, lowest, highest, standard, what)                                              \
    fprintf(out, "      --%s N%*s%-14s %s\n", table_option_name(&name, EMBTIER_##id),              \
            (int)(14 - strlen(#field)), "", #lowest " to " #highest, what);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    fputs("\nHyperparameters of each optimizer, with their defaults:\n", out);
#define X(id, number, word, per_weight, per_row, hyperparameters, eps, decay, what)                \
    optimizer_defaults_text(&defaults, number);                                                    \
    fprintf(out, "  %-16s %s\n", word, defaults.text[0] ? defaults.text : "none");
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
}

/* Returns -1, or the exit code of a mistake. */
static int hyperparameter_option(const struct cli *cli, int hyperparameter,
                                 struct embtier_table_options *options)
{
    struct table_option_name name;
    double value = 0;
    const bool is_number = number_is_double(optarg, &value);

    table_option_name(&name, hyperparameter);
    switch (hyperparameter) {
#define X(id, field, lowest, highest, standard, what)                                              \
    case EMBTIER_##id:                                                                             \
        options->field = value;                                                                    \
        if (is_number && value >= (lowest) && value <= (highest))                                  \
            return -1;                                                                             \
        return cli_usage(cli, "--%s %s: allowed: %s to %s", name.text, TEXT_SHOWN(optarg),         \
                         #lowest, #highest);
        EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    }
    return cli_usage(cli, "--%s is not known here", name.text);
}

int table_option(const struct cli *cli, int option, struct table_arguments *arguments)
{
    struct embtier_table_options *const options = &arguments->options;
    const char *wrong;
    uint64_t number;
    int word;

    arguments->given += option != TABLE_OPTION_DURABILITY && option != TABLE_OPTION_HOME &&
                        option != TABLE_OPTION_TIER;
    switch (option) {
    case 'r':
        arguments->has_rows = true;
        if (!parse_rows(optarg, &options->rows))
            return cli_usage(cli, "--rows %s: allowed: a number from 1 on, unbounded",
                             TEXT_SHOWN(optarg));
        return -1;
    case 'd':
        if (!number_parse_u64(optarg, &number) || number < 1 || number > EMBTIER_DIM_MAX)
            return cli_usage(cli, "--dim %s: allowed: 1 to %d", TEXT_SHOWN(optarg),
                             EMBTIER_DIM_MAX);
        options->dim = (uint32_t)number;
        return -1;
    case TABLE_OPTION_DTYPE:
        word = dtype_parse(optarg);
        if (word < 0)
            return cli_usage(cli, "--dtype %s: allowed: f32, f16, bf16", TEXT_SHOWN(optarg));
        options->dtype = (enum embtier_dtype)word;
        return -1;
    case TABLE_OPTION_OPTIMIZER:
        word = optimizer_parse(optarg);
        if (word < 0)
            return cli_usage(cli, "--optimizer %s: allowed: %s", TEXT_SHOWN(optarg),
                             optimizer_words + strlen(", "));
        options->optimizer = (enum embtier_optimizer)word;
        return -1;
    case TABLE_OPTION_INIT:
        wrong = parse_init(optarg, options);
        return wrong ? cli_usage(cli, "--init %s: %s", TEXT_SHOWN(optarg), wrong) : -1;
    case TABLE_OPTION_SEED:
        if (!number_parse_u64(optarg, &options->seed))
            return cli_usage(cli, "--seed %s: allowed: 0 to %" PRIu64, TEXT_SHOWN(optarg),
                             UINT64_MAX);
        return -1;
    case TABLE_OPTION_EAGER:
        options->eager = 1;
        return -1;
    case TABLE_OPTION_EXISTS:
        options->if_not_exists = 1;
        return -1;
    case TABLE_OPTION_ROUNDING:
        options->rounds_to_nearest = rounding_parse(optarg);
        if (options->rounds_to_nearest < 0)
            return cli_usage(cli, "--rounding %s: allowed: stochastic, nearest",
                             TEXT_SHOWN(optarg));
        return -1;
    case TABLE_OPTION_NONFINITE:
        options->allows_nonfinite = 1;
        return -1;
    case TABLE_OPTION_DURABILITY:
        word = durability_parse(optarg);
        if (word < 0)
            return cli_usage(cli, "--durability %s: allowed: replay, async, sync",
                             TEXT_SHOWN(optarg));
        options->durability = (enum embtier_durability)word;
        arguments->has_durability = true;
        return -1;
    case TABLE_OPTION_HOME:
        word = home_parse(optarg);
        if (word < 0)
            return cli_usage(cli, "--home %s: allowed: cache, array", TEXT_SHOWN(optarg));
        options->home = (enum embtier_home)word;
        return -1;
    case TABLE_OPTION_TIER:
        options->home_tier = optarg;
        return -1;
    default:
        if (option >= TABLE_OPTION_HYPERPARAMETER)
            return hyperparameter_option(cli, option - TABLE_OPTION_HYPERPARAMETER, options);
        return cli_usage(cli, "option -%c is not known here", option);
    }
}
