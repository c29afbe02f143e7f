/* SPDX-License-Identifier: Apache-2.0 */
/* summed_json.h: small durable files of JSON that contain their own checksum.
 *
 * One wrong bit turns a number into another, and programs believe it. It may be a table's seed, the
 * key that spreads rows over shards, or the checkpoint to go back to. So the first member of the
 * object is the CRC-32C of the whole text, in hex, computed with zeros in its place. The file stays
 * JSON for other programs. */
#ifndef EMBTIER_STORE_FILES_SUMMED_JSON_H
#define EMBTIER_STORE_FILES_SUMMED_JSON_H

#include <stdbool.h>

#include <jansson.h>

#include "base/err.h"

#define SUMMED_JSON_KEY  "crc32c"
#define SUMMED_JSON_NONE "00000000"

/* Writes @root, whose first member is SUMMED_JSON_KEY: SUMMED_JSON_NONE. @root NULL: out of
 * memory. */
MUST_CHECK enum embtier_err summed_json_write(const char *directory, const char *name,
                                              const json_t *root, struct err_msg *msg);
/* Returns @root as one line of text, malloced and with its newline, for a file of such lines. */
MUST_CHECK enum embtier_err summed_json_line(const char *directory, const char *name,
                                             const json_t *root, char **ret_line,
                                             struct err_msg *msg);
/* True if @text, without a line's newline, has the right checksum. */
bool summed_json_is_whole(const char *text);
/* CORRUPT if the checksum in @text (from durable_file_read()) is wrong. Also if @text has none and
 * @is_needed: files of earlier formats have none. @path is for the message. */
MUST_CHECK enum embtier_err summed_json_check(const char *path, const char *text, bool is_needed,
                                              struct err_msg *msg);

/* A record within a file has its own checksum, so that a damaged file can say which record is not
 * as it was written. It is computed like that of a file, over the record as one line of text.
 *
 * Sets the checksum of @record, whose first member is SUMMED_JSON_KEY: SUMMED_JSON_NONE. False: out
 * of memory. */
MUST_CHECK bool summed_json_seal(json_t *record);
/* True if @record has the right checksum. */
bool summed_json_is_sealed(const json_t *record);

#endif
