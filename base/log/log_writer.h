/* SPDX-License-Identifier: Apache-2.0 */
/* log_writer.h: brings the log's lines to standard error; log.h has the promises to callers.
 *
 * A ring of bytes under a lock that is held for the copy of a line, and a thread that may block in
 * write(2) for ever. O_NONBLOCK would spare the thread, but belongs to the open file, which other
 * processes share. Lines come out in the order in which they went in. */
#ifndef EMBTIER_BASE_LOG_LOG_WRITER_H
#define EMBTIER_BASE_LOG_LOG_WRITER_H

#include <stdint.h>

#include "base/macros.h"

#define LOG_LINE_BYTES   4096 /* the longest line; a pipe takes so much in one piece */
#define LOG_BUFFER_BYTES (256 << 10)

/* Makes the line that says how many were dropped; returns its bytes. */
typedef size_t (*log_dropped_text)(char *line, uint64_t count);

/* Returns 0 or an errno. Standard error that is a file needs no thread. Signals of faults wait a
 * moment for the buffer to be written from here on, unless somebody handles them already. */
MUST_CHECK int log_writer_begin(log_dropped_text dropped_text);
void log_writer_end(uint32_t wait_ms);
/* A whole line of at most LOG_LINE_BYTES. Blocks only if there is no thread. */
void log_writer_put(const char *line, size_t bytes);
uint64_t log_writer_dropped(void);

#endif
