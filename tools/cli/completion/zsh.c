/* SPDX-License-Identifier: Apache-2.0 */
/* The script for zsh: the specs of _arguments for each command. Its function takes the command's
 * words away before it calls _arguments, so that these specs see options and arguments alone. */
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/completion/command_facts.h"
#include "tools/cli/completion/scripts.h"

static const char head[] =
    "#compdef embtier\n"
    "# Completion of embtier for zsh. `embtier completion zsh` makes it from its own commands.\n"
    "\n"
    "_embtier_tables()\n"
    "{\n"
    "    local option address=\n"
    "    local -a tables\n"
    "    for option in $_embtier_addresses; do\n"
    "        address=${opt_args[$option]:-$address}\n"
    "    done\n"
    "    tables=(${(f)\"$($words[1] ${address:+--address} ${address:+\"${(Q)address}\"} \\\n"
    "        --timeout 1 --output json table list 2>/dev/null </dev/null |\n"
    "        sed -n 's/^ *\"name\": \"\\([^\"\\\\]*\\)\",*$/\\1/p')\"})\n"
    "    compadd \"$@\" -a tables\n"
    "}\n"
    "\n"
    "# Sets embtier_next to the words that may follow the words $1 of a command. (_arguments has "
    "a\n"
    "# variable next of its own.)\n"
    "_embtier_find_next()\n"
    "{\n"
    "    embtier_next=()\n"
    "    case $1 in\n";

static const char middle[] =
    "    esac\n"
    "}\n"
    "\n"
    "# Sets specs to those of the command $1, or of every command if it is empty.\n"
    "_embtier_describe()\n"
    "{\n"
    "    specs=()\n"
    "    case $1 in\n";

static const char tail[] = "\n"
                           "_embtier_next()\n"
                           "{\n"
                           "    _describe -t commands command embtier_next\n"
                           "}\n"
                           "\n"
                           "_embtier()\n"
                           "{\n"
                           "    local word command=\n"
                           "    local -a specs common embtier_next\n"
                           "    local -A opt_args\n"
                           "    integer i=2\n"
                           "\n"
                           "    _embtier_describe ''\n"
                           "    common=($specs)\n"
                           "    _embtier_find_next ''\n"
                           "    while ((i < CURRENT)); do\n"
                           "        word=${words[i]}\n"
                           "        if (($_embtier_valued[(Ie)$word])); then\n"
                           "            ((i += 2))\n"
                           "        elif [[ $word == -* ]]; then\n"
                           "            ((i += 1))\n"
                           "        elif (($embtier_next[(I)${(b)word}:*])); then\n"
                           "            command+=${command:+ }$word\n"
                           "            words[i]=()\n"
                           "            ((CURRENT -= 1))\n"
                           "            _embtier_find_next $command\n"
                           "        else\n"
                           "            break\n"
                           "        fi\n"
                           "    done\n"
                           "    _embtier_describe $command\n"
                           "    (($#embtier_next == 0)) || specs+=('1: :_embtier_next')\n"
                           "    _arguments -s -S : $common $specs\n"
                           "}\n"
                           "\n"
                           "_embtier \"$@\"\n";

/* Prints @text inside of single quotes. A \ stands before the characters that _arguments and
 * _describe read. */
static void print_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", out);
        else if (strchr(":[]\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

/* ---- Words of commands ---- */

/* Returns the bytes of the first of a command's two words, or of the only one. */
static size_t first_bytes(const struct command *command)
{
    return strcspn(command->words, " ");
}

static bool has_first(const struct command *command, const struct command *other)
{
    const size_t bytes = first_bytes(command);

    return first_bytes(other) == bytes && strncmp(command->words, other->words, bytes) == 0;
}

/* Says whether no command before @command has its first word. */
static bool is_first(const struct command *command)
{
    for (const struct command *other = command_first(); other != command;
         other = command_next(other))
        if (has_first(command, other))
            return false;
    return true;
}

static bool is_group(const struct command *command)
{
    for (const struct command *other = command_first(); other; other = command_next(other))
        if (has_first(command, other) && other->words[first_bytes(other)])
            return true;
    return false;
}

/* A group's text is the list of its commands, behind what its word does if it is a command too. */
static void print_first_word(FILE *out, const struct command *first)
{
    const size_t bytes = first_bytes(first);
    const char *before = "";

    fprintf(out, "        '%.*s:", (int)bytes, first->words);
    for (const struct command *other = first; other; other = command_next(other)) {
        if (has_first(first, other) && !other->words[bytes]) {
            print_text(out, other->summary);
            before = "; ";
        }
    }
    for (const struct command *other = first; other; other = command_next(other)) {
        if (has_first(first, other) && other->words[bytes]) {
            fprintf(out, "%s%s", before, other->words + bytes + 1);
            before = ", ";
        }
    }
    fputs("'\n", out);
}

static void print_words(FILE *out)
{
    fputs("    '') embtier_next=(\n", out);
    for (const struct command *command = command_first(); command; command = command_next(command))
        if (is_first(command))
            print_first_word(out, command);
    fputs("    ) ;;\n", out);
    for (const struct command *group = command_first(); group; group = command_next(group)) {
        if (!is_first(group) || !is_group(group))
            continue;
        fprintf(out, "    '%.*s') embtier_next=(\n", (int)first_bytes(group), group->words);
        for (const struct command *one = command_first(); one; one = command_next(one)) {
            if (!has_first(group, one) || !one->words[first_bytes(one)])
                continue;
            fprintf(out, "        '%s:", one->words + first_bytes(one) + 1);
            print_text(out, one->summary);
            fputs("'\n", out);
        }
        fputs("    ) ;;\n", out);
    }
}

/* ---- Specs ---- */

/* Prints ":MESSAGE:ACTION". */
static void print_value(FILE *out, const struct value_facts *value)
{
    static const char *const actions[] = { [VALUE_ANY] = " ",
                                           [VALUE_ADDRESS] = "_files",
                                           [VALUE_FILE] = "_files",
                                           [VALUE_FOLDER] = "_files -/",
                                           [VALUE_TABLE] = "_embtier_tables" };

    if (value->kind == VALUE_NONE)
        return;
    fputc(':', out);
    print_text(out, value->name);
    fputc(':', out);
    if (value->kind != VALUE_WORDS) {
        fputs(actions[value->kind], out);
        return;
    }
    fputc('(', out);
    print_text(out, value->words);
    fputc(')', out);
}

/* An option with a letter has two specs, which exclude each other. */
static void print_option(FILE *out, const struct option_facts *option)
{
    const bool has_value = option->value.kind != VALUE_NONE;

    for (int i = option->letter ? 0 : 1; i < 2; i++) {
        fputs("        '", out);
        if (option->repeats)
            fputc('*', out);
        else if (option->letter)
            fprintf(out, "(-%c --%s)", option->letter, option->name);
        if (i == 0)
            fprintf(out, "-%c%s[", option->letter, has_value ? "+" : "");
        else
            fprintf(out, "--%s%s[", option->name, has_value ? "=" : "");
        print_text(out, option->text);
        fputc(']', out);
        print_value(out, &option->value);
        fputs("'\n", out);
    }
}

static void print_argument(FILE *out, const struct argument_facts *argument, size_t place)
{
    if (argument->repeats)
        fputs("        '*", out);
    else
        fprintf(out, "        '%zu", place);
    print_value(out, &argument->value);
    fputs("'\n", out);
}

static void print_command(FILE *out, const struct command_facts *facts)
{
    fprintf(out, "    '%s') specs=(\n", facts->command ? facts->command->words : "");
    for (size_t i = 0; i < facts->option_count; i++)
        print_option(out, &facts->options[i]);
    for (size_t i = 0; i < facts->argument_count; i++)
        print_argument(out, &facts->arguments[i], i + 1);
    fputs("    ) ;;\n", out);
}

/* Prints the variables that tell of the options of every command: those that take a value, and
 * those of them whose value is a server's address. */
static void print_common(FILE *out, const struct command_facts *common)
{
    for (int i = 0; i < 2; i++) {
        fputs(i == 0 ? "typeset -ga _embtier_valued=(" : "typeset -ga _embtier_addresses=(", out);
        for (size_t j = 0; j < common->option_count; j++) {
            const struct option_facts *const option = &common->options[j];

            if (option->value.kind == VALUE_NONE || (i == 1 && option->value.kind != VALUE_ADDRESS))
                continue;
            fprintf(out, " --%s", option->name);
            if (option->letter)
                fprintf(out, " -%c", option->letter);
        }
        fputs(" )\n", out);
    }
}

bool script_print_zsh(FILE *out)
{
    _cleanup_(command_facts_freep) struct command_facts *common = command_facts_new(NULL);

    if (!common)
        return false;
    fputs(head, out);
    print_words(out);
    fputs(middle, out);
    print_command(out, common);
    for (const struct command *command = command_first(); command;
         command = command_next(command)) {
        _cleanup_(command_facts_freep) struct command_facts *facts = command_facts_new(command);

        if (!facts)
            return false;
        print_command(out, facts);
    }
    fputs("    esac\n}\n\n", out);
    print_common(out, common);
    fputs(tail, out);
    return true;
}
