/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log_writer.h"

/* The one process-wide setting: which lines are wanted. Set once at start, read from any thread. */
static atomic_int log_threshold = LOG_LEVEL_INFO;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
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

/* Bytes of the UTF-8 character at @in; 0: it is none. What a damaged file says may be anything, and
 * who reads the log wants text. */
static size_t utf8_bytes(const unsigned char *in)
{
    const size_t bytes = *in < 0x80 ? 1 : *in < 0xc2 ? 0 : *in < 0xe0 ? 2 : *in < 0xf0 ? 3 : 4;

    if (*in > 0xf4 || (*in == 0xe0 && in[1] < 0xa0) || (*in == 0xed && in[1] > 0x9f) ||
        (*in == 0xf0 && in[1] < 0x90) || (*in == 0xf4 && in[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((in[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

const char *log_quote(struct log_quoted *buffer, const char *value)
{
    char *out = buffer->text;
    const char *const end = buffer->text + sizeof(buffer->text) - 3;

    *out++ = '"';
    for (const unsigned char *in = (const unsigned char *)value; *in && out < end; in++) {
        const size_t bytes = utf8_bytes(in);

        if (*in == '"' || *in == '\\') {
            *out++ = '\\';
            *out++ = (char)*in;
        } else if (*in < 0x20 || *in == 0x7f || bytes == 0) {
            *out++ = '?'; /* a control character must not forge a second line */
        } else if ((size_t)(end - out) < bytes) {
            break;
        } else {
            memcpy(out, in, bytes);
            out += bytes;
            in += bytes - 1;
        }
    }
    *out++ = '"';
    *out = '\0';
    return buffer->text;
}

/* Time, level and message; returns how long that is. */
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
    char line[LOG_LINE_BYTES];
    size_t used;
    va_list args;

    if ((int)level > atomic_load_explicit(&log_threshold, memory_order_relaxed))
        return;
    used = begin_line(line, level, message);
    va_start(args, pairs);
    vsnprintf(line + used, sizeof(line) - used - 1, pairs, args);
    va_end(args);
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
