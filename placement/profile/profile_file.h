/* SPDX-License-Identifier: Apache-2.0 */
/* profile_file.h: saves a measured profile, and loads it with every number checked.
 *
 * The file is JSON, a line for each object, so that neither side holds more than one table's text
 * in memory (docs/internals/placement/profile.md). Errors name file, line and key. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_PROFILE_FILE_H
#define EMBTIER_PLACEMENT_PROFILE_PROFILE_FILE_H

#include "placement/profile/measured_profile.h"

#define PROFILE_FILE_FORMAT  "embtier-profile"
#define PROFILE_FILE_VERSION 1
/* A longer line is refused, as a parsed one takes up to a hundred times its bytes. A table's line
 * with all bins of all segments has fewer. */
#define PROFILE_FILE_LINE_BYTES_MAX (512 * KIB)

/* Writes a new file, durable and whole or not at all. EXISTS: there is one. */
MUST_CHECK enum embtier_err profile_file_save(const struct measured_profile *measured,
                                              const char *path, struct err_msg *msg);
/* Makes line @line of the file, 0 up to the number of tables, as a malloced text with a newline at
 * its end. NO_MEMORY. */
MUST_CHECK enum embtier_err profile_file_line(const struct measured_profile *measured,
                                              uint32_t line, char **ret_text, size_t *ret_bytes);
/* CORRUPT: this is no profile, or it is damaged, cut short or contradicts itself. VERSION: it is of
 * a newer version of embtier. TOO_LARGE: too many tables. */
MUST_CHECK enum embtier_err
profile_file_load(const char *path, struct measured_profile **ret_measured, struct err_msg *msg);

#endif
