/* SPDX-License-Identifier: Apache-2.0 */
/* command_facts.h: the words that may follow a command: its options, their values, its arguments.
 *
 * The options are those that the command gives to getopt, so none can be missing. Their values and
 * texts come from the lines of the command's help, or from another command's help where this one
 * says "as for"; the arguments come from its line of usage. */
#ifndef EMBTIER_TOOLS_CLI_COMPLETION_COMMAND_FACTS_H
#define EMBTIER_TOOLS_CLI_COMPLETION_COMMAND_FACTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

#define FACTS_OPTIONS_MAX   64
#define FACTS_ARGUMENTS_MAX 8

struct command;

enum value_kind {
    VALUE_NONE,
    VALUE_ANY,
    VALUE_WORDS,
    VALUE_ADDRESS, /* of a server, often the path of its socket */
    VALUE_FILE,
    VALUE_FOLDER,
    VALUE_TABLE,
};

struct value_facts {
    enum value_kind kind;
    char name[64];   /* as in the help: "SECONDS" */
    char words[256]; /* of VALUE_WORDS: "text json" */
};

struct option_facts {
    char name[32];
    char letter; /* 0: none */
    bool repeats;
    char text[160];
    struct value_facts value;
};

struct argument_facts {
    bool repeats;
    struct value_facts value;
};

struct command_facts {
    const struct command *command; /* NULL: the options of every command */
    size_t option_count;
    struct option_facts options[FACTS_OPTIONS_MAX];
    size_t argument_count;
    struct argument_facts arguments[FACTS_ARGUMENTS_MAX];
};

/* Reads the facts of @command without the options of every command, or of these if it is NULL.
 * NULL: out of memory. */
MUST_CHECK struct command_facts *command_facts_new(const struct command *command);
void command_facts_free(struct command_facts *facts);
DEFINE_CLEANUP(struct command_facts, command_facts_free)

#endif
