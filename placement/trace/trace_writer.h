/* SPDX-License-Identifier: Apache-2.0 */
/* trace_writer.h: writes a trace file as a stream. It holds one block in memory, less than 1 MiB.
 * Thread: one. */
#ifndef EMBTIER_PLACEMENT_TRACE_TRACE_WRITER_H
#define EMBTIER_PLACEMENT_TRACE_TRACE_WRITER_H

#include "base/err.h"
#include "placement/trace/trace_format.h"

struct trace_writer;

/* Begins a file, which appears when it is finished (base/system/new_file.h). EXISTS: there is one
 * already. INVALID: a table cannot be described, or two have the same name. @tables is copied. */
MUST_CHECK enum embtier_err trace_writer_new(const char *path, const struct trace_table *tables,
                                             uint32_t table_count, struct trace_writer **ret_writer,
                                             struct err_msg *msg);
/* Leaves no file unless trace_writer_finish() has returned OK. */
void trace_writer_free(struct trace_writer *writer);
DEFINE_CLEANUP(struct trace_writer, trace_writer_free)

/* Adds lookups of any number of bags and ids; they may take several blocks. INVALID, ID_RANGE,
 * BAG_RANGE: they break a rule of struct trace_lookups or name a row that the table lacks, and
 * nothing was written. After IO or NO_SPACE the trace cannot be finished. */
MUST_CHECK enum embtier_err trace_writer_add(struct trace_writer *writer,
                                             const struct trace_lookups *lookups,
                                             struct err_msg *msg);
/* Writes the end block, syncs the file and gives it its name. EXISTS: there is one meanwhile. */
MUST_CHECK enum embtier_err trace_writer_finish(struct trace_writer *writer, struct err_msg *msg);

#endif
