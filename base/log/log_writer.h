/* SPDX-License-Identifier: Apache-2.0 */
/* log_writer.h: writes the log's lines to standard error; log.h states the contract for callers.
 *
 * It is a ring of bytes under a lock, held for the copy of one line, and a thread that may block in
 * write(2) forever. O_NONBLOCK would make the thread unnecessary, but it belongs to the open file,
 * which other processes share. Lines are written in the order in which they were put. */
#ifndef EMBTIER_BASE_LOG_LOG_WRITER_H
#define EMBTIER_BASE_LOG_LOG_WRITER_H

#include <stdint.h>

#include "base/macros.h"

#define LOG_LINE_BYTES   4096 /* the longest line; a pipe takes this much in one piece */
#define LOG_BUFFER_BYTES (256 << 10)

/* Makes the line that reports @count dropped lines; returns its length in bytes. */
typedef size_t (*log_dropped_text)(char *line, uint64_t count);

/* Returns 0 or an errno. Starts no thread if standard error is a file. From here on, fatal signals
 * first wait a moment for the buffer to be written, unless a handler is installed already. */
MUST_CHECK int log_writer_begin(log_dropped_text dropped_text);
void log_writer_end(uint32_t wait_ms);
/* Takes a whole line of at most LOG_LINE_BYTES. Blocks only if there is no thread. */
void log_writer_put(const char *line, size_t bytes);
uint64_t log_writer_dropped(void);

#endif
