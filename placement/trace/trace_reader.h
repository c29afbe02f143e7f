/* SPDX-License-Identifier: Apache-2.0 */
/* trace_reader.h: reads a trace file as a stream, and checks every byte. It holds the list of
 * tables and one block in memory, less than 3 MiB.
 *
 * Errors name the file and the offset of the part that is wrong. Thread: one. */
#ifndef EMBTIER_PLACEMENT_TRACE_TRACE_READER_H
#define EMBTIER_PLACEMENT_TRACE_TRACE_READER_H

#include "base/err.h"
#include "placement/trace/trace_format.h"

struct trace_reader;

/* Opens a trace and reads its header. VERSION: a newer version of embtier wrote it. CORRUPT: this
 * is no trace, or it is damaged or cut short. TOO_LARGE: it has too many tables. */
MUST_CHECK enum embtier_err trace_reader_open(const char *path, struct trace_reader **ret_reader,
                                              struct err_msg *msg);
void trace_reader_free(struct trace_reader *reader);
DEFINE_CLEANUP(struct trace_reader, trace_reader_free)

/* Returns the tables, in the order of their numbers; they live as long as the reader. */
const struct trace_table *trace_reader_tables(const struct trace_reader *reader,
                                              uint32_t *ret_count);
/* Reads the next block. Its arrays are valid until the next call. *@ret_end: there was none, and
 * the trace is complete. CORRUPT: the file is damaged or cut short. */
MUST_CHECK enum embtier_err trace_reader_next(struct trace_reader *reader,
                                              struct trace_lookups *ret_lookups, bool *ret_end,
                                              struct err_msg *msg);

/* Return the bytes read so far, and those of the file; 0: unknown, as of a pipe. */
uint64_t trace_reader_offset(const struct trace_reader *reader);
uint64_t trace_reader_file_bytes(const struct trace_reader *reader);

#endif
