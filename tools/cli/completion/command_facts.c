/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/completion/command_facts.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embtier_types.h"
#include "tools/cli/cli.h"

/* ---- Values ---- */

#define OR_DTYPE(name, number, word, bytes)     "|" word
#define OR_DURABILITY(name, number, word, text) "|" word
#define OR_OPTIMIZER(name, number, word, ...)   "|" word

/* Values that the help describes in sentences. Values with | in the help need no row. */
static const struct {
    const char *option;
    const char *words; /* a | before each but the first */
} choices[] = {
    { "dtype", EMBTIER_DTYPE_TABLE(OR_DTYPE) },
    { "durability", EMBTIER_DURABILITY_TABLE(OR_DURABILITY) },
    { "format", "safetensors|npy" },
    { "home", "cache|array" },
    { "init", "zeros|constant:|uniform:|normal:" },
    { "like", "meta-2021|meta-2022" },
    { "locality", "meta-2021|meta-2022" },
    { "optimizer", EMBTIER_OPTIMIZER_TABLE(OR_OPTIMIZER) },
    { "rounding", "stochastic|nearest" },
    { "solver", "auto|none" },
};

static const struct {
    const char *name;
    enum value_kind kind;
} kinds[] = {
    { "ADDRESS", VALUE_ADDRESS }, { "DIR", VALUE_FOLDER },   { "FILE", VALUE_FILE },
    { "FILE.svg", VALUE_FILE },   { "MACHINE", VALUE_FILE }, { "NEW", VALUE_FILE },
    { "OLD", VALUE_FILE },        { "PATH", VALUE_FILE },    { "PLAN", VALUE_FILE },
    { "TABLE", VALUE_TABLE },     { "TRACE", VALUE_FILE },
};

/* Takes the words of "N|unbounded" that are to be typed as they are: these are in lower case. */
static void take_words(struct value_facts *value, const char *text, size_t bytes)
{
    const char *const end = text + bytes;
    size_t length = 0;

    while (text < end) {
        const char *const bar = memchr(text, '|', (size_t)(end - text));
        const size_t word_bytes = (size_t)((bar ? bar : end) - text);

        if (word_bytes > 0 && !isupper((unsigned char)*text)) {
            assert(length + word_bytes + 2 <= sizeof(value->words));
            length += (size_t)snprintf(value->words + length, sizeof(value->words) - length,
                                       "%s%.*s", length ? " " : "", (int)word_bytes, text);
        }
        text += word_bytes + 1;
    }
    if (length > 0)
        value->kind = VALUE_WORDS;
}

/* @name: as in the help. */
static void take_value(struct value_facts *value, const char *name, size_t bytes)
{
    value->kind = VALUE_ANY;
    snprintf(value->name, sizeof(value->name), "%.*s", (int)bytes, name);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, value->name) == 0)
            value->kind = kinds[i].kind;
    if (memchr(name, '|', bytes))
        take_words(value, name, bytes);
}

static void take_choices(struct option_facts *option)
{
    for (size_t i = 0; option->value.kind == VALUE_ANY && i < ARRAY_LEN(choices); i++)
        if (strcmp(choices[i].option, option->name) == 0)
            take_words(&option->value, choices[i].words, strlen(choices[i].words));
}

/* ---- Lines of help ---- */

/* Returns the bytes of the first statement that @text begins with. Brackets belong to it, unless
 * they hold more than one. */
static size_t statement_bytes(const char *text)
{
    size_t open = 0; /* where brackets begin, or 0 */
    size_t i;

    for (i = 0; text[i]; i++) {
        const bool is_last = text[i + 1] == '\0' || text[i + 1] == ' ';

        if (text[i] == '(' && i > 0)
            open = i;
        if (text[i] == ';' || (is_last && strchr(":.", text[i])))
            return open ? open - 1 : i;
        if (text[i] == ')')
            open = 0;
    }
    return i;
}

/* Takes the text at @at and in the deeper lines that follow it, up to the end of its first
 * statement. */
static void take_text(struct option_facts *option, const char *at)
{
    char text[512];
    size_t length = 0;
    bool goes_on = true;

    while (goes_on) {
        at += strspn(at, " ");
        for (; *at != '\0' && *at != '\n' && length + 2 < sizeof(text); at++)
            if (*at != ' ' || at[1] != ' ')
                text[length++] = *at;
        at += strcspn(at, "\n");
        goes_on = *at == '\n' && strspn(at + 1, " ") > 8 && at[1 + strspn(at + 1, " ")] != '-';
        if (goes_on && length > 0)
            text[length++] = ' ';
        at += goes_on;
    }
    text[length] = '\0';
    snprintf(option->text, sizeof(option->text), "%.*s", (int)statement_bytes(text), text);
}

/* Reads a line of options: "  -w, --watch SECONDS  repeat at this interval". False: it is no such
 * line, or lacks @option. */
static bool take_line(struct option_facts *option, const char *line)
{
    const char *at = line + strspn(line, " ");
    bool found = false;

    while (at > line && *at == '-') {
        const size_t bytes = strcspn(at, " ,\n");
        const bool is_it = bytes == strlen(option->name) + 2 && strncmp(at, "--", 2) == 0 &&
                           strncmp(at + 2, option->name, bytes - 2) == 0;

        at += bytes;
        if (at[0] == ' ' && at[1] != ' ') {
            const size_t value_bytes = strcspn(at + 1, " ,\n");

            if (is_it && option->value.kind != VALUE_NONE)
                take_value(&option->value, at + 1, value_bytes);
            at += 1 + value_bytes;
        }
        found = found || is_it;
        if (strncmp(at, ", ", 2) != 0)
            break;
        at += 2;
    }
    if (found)
        take_text(option, at);
    return found;
}

/* Returns the help with what is made from tables. The caller frees it. NULL: out of memory. */
static char *whole_help(const struct command *command)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const memory = open_memstream(&text, &bytes);

    if (!memory)
        return NULL;
    fputs(command ? command->help : cli_common_help, memory);
    if (command && command->more_help)
        command->more_help(memory);
    if (fclose(memory) == 0)
        return text;
    free(text);
    return NULL;
}

/* Reads what @help says of @option. False: nothing, or "as for" another command. */
static bool take_help(struct option_facts *option, const char *help)
{
    for (const char *line = help; line[0]; line++) {
        if (take_line(option, line))
            return strncmp(option->text, "as for ", strlen("as for ")) != 0;
        line = strchr(line, '\n');
        if (!line)
            break;
    }
    return false;
}

/* Returns the text behind @option in a line of usage: "cache|array|split] …". NULL: it is not
 * there. */
static const char *find_in_usage(const char *usage, const char *option)
{
    const size_t bytes = strlen(option);

    for (const char *at = usage; (at = strstr(at, "--")) != NULL; at += 2)
        if (strncmp(at + 2, option, bytes) == 0 && at[2 + bytes] == ' ')
            return at + 2 + bytes + 1;
    return NULL;
}

/* ---- Options ---- */

static void take_usage(struct option_facts *option, const char *usage)
{
    const char *const at = find_in_usage(usage, option->name);
    const size_t bytes = at ? strcspn(at, " ]") : 0;

    if (!at || option->value.kind == VALUE_NONE)
        return;
    option->repeats = strncmp(at + bytes, "]...", 4) == 0;
    if (memchr(at, '|', bytes))
        take_words(&option->value, at, bytes);
}

/* Says what an option's value is, and what the option is for. */
static bool describe(struct option_facts *option, const struct command *command)
{
    const struct command *other = command_first();
    bool is_done;

    {
        _cleanup_(freep) char *help = whole_help(command);

        if (!help)
            return false;
        is_done = take_help(option, help);
    }
    for (; command && !is_done && other; other = command_next(other)) {
        _cleanup_(freep) char *help = whole_help(other);

        if (!help)
            return false;
        is_done = take_help(option, help);
    }
    if (command)
        take_usage(option, command->arguments);
    take_choices(option);
    return true;
}

static bool is_common(const struct option *option)
{
    static const struct option common[] = { CLI_LONG_OPTIONS };

    for (size_t i = 0; common[i].name; i++)
        if (strcmp(common[i].name, option->name) == 0)
            return true;
    return false;
}

/* Takes the names that a command gives to getopt. They may be gone when this returns. */
static void take_options(const struct option *options, void *context)
{
    struct command_facts *const facts = context;

    for (; options->name; options++) {
        struct option_facts *const option = &facts->options[facts->option_count];

        if (facts->command && is_common(options))
            continue;
        assert(facts->option_count < FACTS_OPTIONS_MAX);
        facts->option_count++;
        snprintf(option->name, sizeof(option->name), "%s", options->name);
        option->letter = options->val <= UCHAR_MAX ? (char)options->val : '\0';
        if (options->has_arg == required_argument)
            take_value(&option->value, "VALUE", strlen("VALUE"));
    }
}

static void ask_options(struct command_facts *facts)
{
    static const struct option common[] = { CLI_LONG_OPTIONS };
    struct cli cli = { .command = facts->command, .take_options = take_options, .taker = facts };
    char name[] = "embtier";
    char *argv[] = { name, NULL };
    int exit_code;

    if (!facts->command) {
        take_options(common, facts);
        return;
    }
    exit_code = facts->command->run(&cli, 1, argv);
    assert(exit_code == EXIT_DONE); /* it parses its options before it does anything else */
}

/* ---- Arguments ---- */

static bool has_value(const struct command_facts *facts, const char *word, size_t bytes)
{
    for (size_t i = 0; i < facts->option_count; i++)
        if (facts->options[i].value.kind != VALUE_NONE &&
            strlen(facts->options[i].name) + 2 == bytes &&
            strncmp(facts->options[i].name, word + 2, bytes - 2) == 0)
            return true;
    return false;
}

/* Takes "ID" or "TABLE...". */
static void take_argument(struct command_facts *facts, const char *word, size_t bytes)
{
    const bool repeats = bytes >= 3 && strncmp(word + bytes - 3, "...", 3) == 0;
    struct argument_facts *const argument = &facts->arguments[facts->argument_count];

    assert(facts->argument_count < FACTS_ARGUMENTS_MAX);
    facts->argument_count++;
    argument->repeats = repeats;
    take_value(&argument->value, word, bytes - (repeats ? 3 : 0));
}

static void take_arguments(struct command_facts *facts)
{
    const char *at = facts->command->arguments;

    while (*(at += strspn(at, " [")) != '\0') {
        const size_t bytes = strcspn(at, " ]");

        if (strncmp(at, "--", 2) == 0 && has_value(facts, at, bytes))
            at += bytes + 1 + strcspn(at + bytes + 1, " ");
        else if (*at != '-' && *at != '.' && strncmp(at, "options]", 8) != 0)
            take_argument(facts, at, bytes);
        at += strcspn(at, " ");
    }
}

struct command_facts *command_facts_new(const struct command *command)
{
    struct command_facts *const facts = calloc(1, sizeof(*facts));

    if (!facts)
        return NULL;
    facts->command = command;
    ask_options(facts);
    for (size_t i = 0; i < facts->option_count; i++) {
        if (!describe(&facts->options[i], command)) {
            command_facts_free(facts);
            return NULL;
        }
    }
    if (command)
        take_arguments(facts);
    return facts;
}

void command_facts_free(struct command_facts *facts)
{
    free(facts);
}
