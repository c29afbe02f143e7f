/* SPDX-License-Identifier: Apache-2.0 */
/* summed_json.h: small durable files of JSON that say their own checksum.
 *
 * One bit makes another number of a number, and what it says is believed: the seed of a table, the
 * key that spreads rows over shards, the checkpoint that is to be gone back to. So the first member
 * of the object is the CRC-32C of the whole text, in hex, made with zeros in its place. The file
 * stays JSON for others. */
#ifndef EMBTIER_STORE_FILES_SUMMED_JSON_H
#define EMBTIER_STORE_FILES_SUMMED_JSON_H

#include <stdbool.h>

#include <jansson.h>

#include "base/err.h"

#define SUMMED_JSON_KEY  "crc32c"
#define SUMMED_JSON_NONE "00000000"

/* The first member of @root is SUMMED_JSON_KEY: SUMMED_JSON_NONE. NULL: out of memory. */
MUST_CHECK enum embtier_err summed_json_write(const char *directory, const char *name,
                                              const json_t *root, struct err_msg *msg);
/* The same as one line of text, malloced and with its newline, for a file of such lines. */
MUST_CHECK enum embtier_err summed_json_line(const char *directory, const char *name,
                                             const json_t *root, char **ret_line,
                                             struct err_msg *msg);
/* Whether @text, without a line's newline, has its checksum. */
bool summed_json_is_whole(const char *text);
/* CORRUPT when the checksum of @text, what durable_file_read() gave, is not what it says, or when
 * it says none and @is_needed: files of earlier formats have none. @path is for the message. */
MUST_CHECK enum embtier_err summed_json_check(const char *path, const char *text, bool is_needed,
                                              struct err_msg *msg);

#endif
