/* SPDX-License-Identifier: Apache-2.0 */
/* The script for bash: a table of the commands, and functions that read it. It needs bash 4.4, and
 * not the package bash-completion. */
#include "tools/cli/cli.h"
#include "tools/cli/completion/command_facts.h"
#include "tools/cli/completion/scripts.h"

static const char head[] =
    "# shellcheck shell=bash\n"
    "# Completion of embtier for bash. `embtier completion bash` makes it from its own commands.\n"
    "\n"
    "# Sets the options and arguments of the command $1, or of every command if it is empty. A\n"
    "# value stands behind a =: words with | between them, or @ and its kind.\n"
    "_embtier_describe()\n"
    "{\n"
    "    options=()\n"
    "    arguments=()\n"
    "    case $1 in\n";

static const char middle[] = "    esac\n"
                             "}\n"
                             "\n"
                             "_embtier_commands=(\n";

static const char tail[] =
    ")\n"
    "\n"
    "# Says whether $1 is a command, or begins one.\n"
    "_embtier_is_command()\n"
    "{\n"
    "    local one\n"
    "    for one in \"${_embtier_commands[@]}\"; do\n"
    "        [[ $one != \"$1\" && $one != \"$1 \"* ]] || return 0\n"
    "    done\n"
    "    return 1\n"
    "}\n"
    "\n"
    "# Sets value to the value that option $1 takes; empty if it takes none.\n"
    "_embtier_find_value()\n"
    "{\n"
    "    local one\n"
    "    value=\n"
    "    for one in \"${options[@]}\" \"${common[@]}\"; do\n"
    "        [[ $one != \"$1=\"* ]] || value=${one#*=}\n"
    "    done\n"
    "}\n"
    "\n"
    "_embtier_tables()\n"
    "{\n"
    "    \"$program\" ${address:+--address \"$address\"} --timeout 1 --output json table list "
    "2>/dev/null </dev/null |\n"
    "        sed -n 's/^ *\"name\": \"\\([^\"\\\\]*\\)\",*$/\\1/p'\n"
    "}\n"
    "\n"
    "# Adds those of the words $1, with blanks between, that begin with $2.\n"
    "_embtier_add_words()\n"
    "{\n"
    "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$1\" -- \"$2\")\n"
    "}\n"
    "\n"
    "# Adds paths that begin with $2. $1: -f, or -d for folders alone.\n"
    "_embtier_add_paths()\n"
    "{\n"
    "    compopt -o filenames 2>/dev/null # fails outside of a completion\n"
    "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen \"$1\" -- \"$2\")\n"
    "}\n"
    "\n"
    "# Adds values as $1 describes them that begin with $2.\n"
    "_embtier_add_values()\n"
    "{\n"
    "    case $1 in\n"
    "    '' | @any) ;;\n"
    "    @file | @address) _embtier_add_paths -f \"$2\" ;;\n"
    "    @folder) _embtier_add_paths -d \"$2\" ;;\n"
    "    @table) _embtier_add_words \"$(_embtier_tables)\" \"$2\" ;;\n"
    "    *) _embtier_add_words \"${1//|/ }\" \"$2\" ;;\n"
    "    esac\n"
    "    [[ ${COMPREPLY[0]-} != *: ]] || compopt -o nospace 2>/dev/null\n"
    "}\n"
    "\n"
    "# Adds what may follow the command as an argument, or as its next word.\n"
    "_embtier_add_arguments()\n"
    "{\n"
    "    local one last=$((${#arguments[@]} - 1))\n"
    "    if ((place == 0)); then\n"
    "        for one in \"${_embtier_commands[@]}\"; do\n"
    "            [[ -n $command && $one != \"$command \"* ]] && continue\n"
    "            one=${one#\"${command:+$command }\"}\n"
    "            [[ \" ${COMPREPLY[*]} \" == *\" ${one%% *} \"* ]] || _embtier_add_words \"${one%% "
    "*}\" \"$1\"\n"
    "        done\n"
    "    fi\n"
    "    if ((place <= last)); then\n"
    "        _embtier_add_values \"${arguments[place]%...}\" \"$1\"\n"
    "    elif ((last >= 0)) && [[ ${arguments[last]} == *... ]]; then\n"
    "        _embtier_add_values \"${arguments[last]%...}\" \"$1\"\n"
    "    fi\n"
    "}\n"
    "\n"
    "# Sets words to those in front of the cursor. Bash has split them at = and :.\n"
    "_embtier_join_words()\n"
    "{\n"
    "    local i word glue=\n"
    "    words=()\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((${#words[@]} > 0)) && [[ -n $word && -z ${word//[:=]/} ]]; then\n"
    "            words[-1]+=$word glue=1\n"
    "        elif [[ -n $glue ]]; then\n"
    "            words[-1]+=$word glue=\n"
    "        else\n"
    "            words+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "# Takes one word in front of the current one.\n"
    "_embtier_take_word()\n"
    "{\n"
    "    if [[ -n $pending ]]; then\n"
    "        [[ $pending != @address ]] || address=$1\n"
    "        pending=\n"
    "    elif [[ -z $plain && $1 == -- ]]; then\n"
    "        plain=1\n"
    "    elif [[ -z $plain && $1 == --*=* ]]; then\n"
    "        _embtier_find_value \"${1%%=*}\"\n"
    "        [[ $value != @address ]] || address=${1#*=}\n"
    "    elif [[ -z $plain && $1 == -?* ]]; then\n"
    "        _embtier_find_value \"$1\"\n"
    "        pending=$value\n"
    "    elif ((place == 0)) && _embtier_is_command \"${command:+$command }$1\"; then\n"
    "        command+=${command:+ }$1\n"
    "        _embtier_describe \"$command\"\n"
    "    else\n"
    "        place=$((place + 1))\n"
    "    fi\n"
    "}\n"
    "\n"
    "_embtier()\n"
    "{\n"
    "    local program=$1 IFS=$' \\t\\n'\n"
    "    local word current value command='' pending='' plain='' address='' place=0 breaks\n"
    "    local -a words options arguments common\n"
    "\n"
    "    COMPREPLY=()\n"
    "    _embtier_join_words\n"
    "    current=${words[-1]}\n"
    "    _embtier_describe ''\n"
    "    common=(\"${options[@]}\")\n"
    "    options=()\n"
    "    for word in \"${words[@]::${#words[@]}-1}\"; do\n"
    "        _embtier_take_word \"$word\"\n"
    "    done\n"
    "    if [[ -n $pending ]]; then\n"
    "        _embtier_add_values \"$pending\" \"$current\"\n"
    "    elif [[ -z $plain && $current == --*=* ]]; then\n"
    "        _embtier_find_value \"${current%%=*}\"\n"
    "        word=${current%%=*}=\n"
    "        current=${current#*=}\n"
    "        _embtier_add_values \"$value\" \"$current\"\n"
    "        if [[ $COMP_WORDBREAKS != *=* ]]; then\n"
    "            COMPREPLY=(\"${COMPREPLY[@]/#/$word}\")\n"
    "            current=$word$current\n"
    "        fi\n"
    "    elif [[ -z $plain && $current == -* ]]; then\n"
    "        options+=(\"${common[@]}\")\n"
    "        _embtier_add_words \"${options[*]%%=*}\" \"$current\"\n"
    "    else\n"
    "        _embtier_add_arguments \"$current\"\n"
    "    fi\n"
    "    breaks=${COMP_WORDBREAKS//[^:=]/} # bash replaces only what follows the last of these\n"
    "    [[ -z $breaks ]] || "
    "COMPREPLY=(\"${COMPREPLY[@]#\"${current%\"${current##*[\"$breaks\"]}\"}\"}\")\n"
    "}\n"
    "\n"
    "complete -F _embtier embtier\n";

static void print_value(FILE *out, const struct value_facts *value)
{
    static const char *const kinds[] = { [VALUE_ANY] = "@any",
                                         [VALUE_ADDRESS] = "@address",
                                         [VALUE_FILE] = "@file",
                                         [VALUE_FOLDER] = "@folder",
                                         [VALUE_TABLE] = "@table" };

    if (value->kind == VALUE_WORDS)
        for (const char *at = value->words; *at; at++)
            fputc(*at == ' ' ? '|' : *at, out);
    else
        fputs(kinds[value->kind], out);
}

static void print_option(FILE *out, const char *dashes, const char *name,
                         const struct value_facts *value)
{
    fprintf(out, " '%s%s", dashes, name);
    if (value->kind != VALUE_NONE) {
        fputc('=', out);
        print_value(out, value);
    }
    fputc('\'', out);
}

static bool print_command(FILE *out, const struct command *command)
{
    _cleanup_(command_facts_freep) struct command_facts *facts = command_facts_new(command);

    if (!facts)
        return false;
    fprintf(out, "    '%s')\n        options=(", command ? command->words : "");
    for (size_t i = 0; i < facts->option_count; i++) {
        const struct option_facts *const option = &facts->options[i];
        const char letter[] = { option->letter, '\0' };

        print_option(out, "--", option->name, &option->value);
        if (option->letter)
            print_option(out, "-", letter, &option->value);
    }
    fputs(" )\n        arguments=(", out);
    for (size_t i = 0; i < facts->argument_count; i++) {
        fputs(" '", out);
        print_value(out, &facts->arguments[i].value);
        fputs(facts->arguments[i].repeats ? "...'" : "'", out);
    }
    fputs(" ) ;;\n", out);
    return true;
}

bool script_print_bash(FILE *out)
{
    bool is_complete;

    fputs(head, out);
    is_complete = print_command(out, NULL);
    for (const struct command *command = command_first(); is_complete && command;
         command = command_next(command))
        is_complete = print_command(out, command);
    fputs(middle, out);
    for (const struct command *command = command_first(); command; command = command_next(command))
        fprintf(out, "    '%s'\n", command->words);
    fputs(tail, out);
    return is_complete;
}
