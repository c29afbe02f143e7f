/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: structured log lines (logfmt) on standard error: time, level, message, then key=value
 * pairs.
 *
 *     log_info("table created", "table=%s rows=%" PRIu64, name, rows);
 *     ts=2026-11-21T10:15:00.123Z level=info msg="table created" table=clicks rows=1000
 *
 * Only the daemon and the tools log; libraries return errors. Values that may hold spaces or come
 * from outside go through LOG_QUOTED. Thread: any; one line is one write.
 *
 * A reader of standard error may stop reading for any length of time (a pager, Ctrl-S, a
 * container's log driver). So between log_begin() and log_end() no caller writes: lines go into a
 * buffer of fixed size, and the log's own thread writes them. A line that finds no room is dropped
 * and counted; a later line gives the count as soon as there is room. A file has no reader to wait
 * for, so callers write to it themselves. Its lines are there before later events. */
#ifndef EMBTIER_BASE_LOG_LOG_H
#define EMBTIER_BASE_LOG_LOG_H

#include <stdint.h>

#include "base/macros.h"

#define LOG_END_WAIT_MS 5000

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_level(void);
/* "error", "warn", "info", "debug"; returns 0, or -1 for another word. */
MUST_CHECK int log_level_parse(const char *word, enum log_level *ret_level);

/* Starts the log's thread. Returns 0, or an errno; without the thread, callers go on writing
 * themselves. */
MUST_CHECK int log_begin(void);
/* Writes the lines in the buffer. Waits at most @wait_ms for a reader, and drops the rest. */
void log_end(uint32_t wait_ms);
/* Lines lost since the program began, because the buffer was full or standard error failed. */
uint64_t log_dropped_lines(void);

/* @pairs is a printf format of space-separated key=value pairs, or "". */
void log_line(enum log_level level, const char *message, const char *pairs, ...) PRINTF_LIKE(3, 4);

/* Returns @value quoted and escaped for logfmt (base/text/text_escape.h), in a buffer that lives as
 * long as the caller's block: LOG_QUOTED(path). */
struct log_quoted {
    char text[512];
};
const char *log_quote(struct log_quoted *buffer, const char *value);
#define LOG_QUOTED(value) log_quote(&(struct log_quoted){ { 0 } }, (value))

#define log_error(message, ...) log_line(LOG_LEVEL_ERROR, message, __VA_ARGS__)
#define log_warn(message, ...)  log_line(LOG_LEVEL_WARN, message, __VA_ARGS__)
#define log_info(message, ...)  log_line(LOG_LEVEL_INFO, message, __VA_ARGS__)
#define log_debug(message, ...) log_line(LOG_LEVEL_DEBUG, message, __VA_ARGS__)

#endif
