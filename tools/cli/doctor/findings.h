/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h: the list of what `embtier doctor` found. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_DOCTOR_FINDINGS_H
#define EMBTIER_TOOLS_CLI_DOCTOR_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

struct json_t;

/* X(name, word, description): a later one is worse. */
#define FINDING_STATE_TABLE(X)                                                                     \
    X(GOOD, "good", "as embtierd needs it")                                                        \
    X(NOTE, "note", "good to know; it costs little, or it cannot be told")                         \
    X(WARN, "warn", "embtierd runs, but slower, with less, or at a risk")                          \
    X(BAD, "bad", "a start is refused, or updates are")

enum finding_state {
#define X(name, word, text) FINDING_##name,
    FINDING_STATE_TABLE(X)
#undef X
        FINDING_STATE_COUNT
};

struct finding {
    const char *name; /* stable, such as "io_uring"; those of a key of the configuration begin with
                         the key */
    enum finding_state state;
    struct json_t *value; /* taken; NULL: not known */
    const char *text;     /* one line with the value */
    const char *advice;   /* a command or a key; ignored if the state is GOOD */
};

struct findings {
    struct json_t *list; /* objects with name, state, value, text and advice */
    enum finding_state worst;
    size_t counts[FINDING_STATE_COUNT];
    bool is_incomplete; /* out of memory */
};

/* *@ret_findings is to be cleared even if it is incomplete. */
void findings_init(struct findings *ret_findings);
void findings_clear(struct findings *findings);
/* Copies the texts. */
void findings_add(struct findings *findings, struct finding finding);
/* Adds a NOTE: @source, a path or the name of a system call, cannot be read or makes no sense. */
void findings_add_unknown(struct findings *findings, const char *name, const char *source);

const char *finding_state_word(enum finding_state state);

/* Formats a line in a buffer that lives as long as the caller's block. Quote foreign text with
 * TEXT_SHOWN or PATH_SHOWN. */
struct finding_line {
    char text[2048];
};
const char *finding_line(struct finding_line *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
#define SAY(...) finding_line(&(struct finding_line){ { 0 } }, __VA_ARGS__)
/* Escapes a path, whole unless it is very long, so that it can be copied into a command. */
const char *finding_path(struct finding_line *buffer, const char *path);
#define PATH_SHOWN(path) finding_path(&(struct finding_line){ { 0 } }, (path))

#endif
