/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: structured log lines (logfmt) on standard error: time, level, message, then key=value
 * pairs.
 *
 *   log_info("table created", "table=%s rows=%" PRIu64, name, rows);
 *   ts=2026-11-21T10:15:00.123Z level=info msg="table created" table=clicks rows=1000
 *
 * Only the daemon and the tools log; libraries return errors. Values that may hold spaces or come
 * from outside go through LOG_QUOTED. Thread: any; one line is one write. */
#ifndef EMBTIER_BASE_LOG_H
#define EMBTIER_BASE_LOG_H

#include "base/macros.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
/* "error", "warn", "info", "debug"; returns 0, or -1 for another word. */
MUST_CHECK int log_level_parse(const char *word, enum log_level *ret_level);

/* @pairs is a printf format of space-separated key=value pairs, or "". */
void log_line(enum log_level level, const char *message, const char *pairs, ...) PRINTF_LIKE(3, 4);

/* A value quoted and escaped for logfmt, in a buffer of the caller's statement: LOG_QUOTED(path).
 */
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
