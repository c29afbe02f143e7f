/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log/log_writer.h"
#include "base/text/text_escape.h"

/* The only process-wide setting: the lowest severity that is written. Set once at start, read by
 * any thread. */
static atomic_int log_threshold = LOG_LEVEL_INFO;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

enum log_level log_level(void)
{
    return (enum log_level)atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

int log_level_parse(const char *word, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return -1;
}

const char *log_quote(struct log_quoted *buffer, const char *value)
{
    const size_t room = sizeof(buffer->text) - 1; /* leaves room for the closing quote */
    size_t used = 0;

    buffer->text[0] = '"';
    (void)text_escape(TEXT_QUOTED, value, strlen(value), buffer->text + 1, room - 1, &used);
    memcpy(buffer->text + 1 + used, "\"", 2);
    return buffer->text;
}

/* Writes time, level and message; returns their length. */
static size_t begin_line(char line[LOG_LINE_BYTES], enum log_level level, const char *message)
{
    struct timespec now;
    struct tm utc;
    size_t used;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    used = strftime(line, LOG_LINE_BYTES, "ts=%Y-%m-%dT%H:%M:%S", &utc);
    return used + (size_t)snprintf(line + used, LOG_LINE_BYTES - used,
                                   ".%03ldZ level=%s msg=\"%s\" ", now.tv_nsec / 1000000,
                                   level_names[level], message);
}

static size_t end_line(char line[LOG_LINE_BYTES])
{
    size_t used = strlen(line);

    while (used > 0 && (line[used - 1] == ' ' || line[used - 1] == '\n'))
        used--;
    line[used++] = '\n';
    return used;
}

void log_line(enum log_level level, const char *message, const char *pairs, ...)
{
    char values[LOG_LINE_BYTES];
    char line[LOG_LINE_BYTES];
    size_t used, more;
    va_list args;

    if ((int)level > atomic_load_explicit(&log_threshold, memory_order_relaxed))
        return;
    used = begin_line(line, level, message);
    va_start(args, pairs);
    vsnprintf(values, sizeof(values), pairs, args);
    va_end(args);
    /* A value that the caller forgot to quote cannot make a second line either. */
    (void)text_escape(TEXT_MIXED, values, strlen(values), line + used, sizeof(line) - used - 1,
                      &more);
    log_writer_put(line, end_line(line));
}

static size_t dropped_text(char *line, uint64_t count)
{
    const size_t used =
        begin_line(line, LOG_LEVEL_WARN,
                   "lines of this log were dropped: standard error was not read, or failed");

    snprintf(line + used, LOG_LINE_BYTES - used - 1, "count=%" PRIu64, count);
    return end_line(line);
}

int log_begin(void)
{
    return log_writer_begin(dropped_text);
}

void log_end(uint32_t wait_ms)
{
    log_writer_end(wait_ms);
}

uint64_t log_dropped_lines(void)
{
    return log_writer_dropped();
}
