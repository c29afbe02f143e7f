/* SPDX-License-Identifier: Apache-2.0 */
/* knob_file.h: writes one value into the server's configuration file, and keeps the rest as people
 * wrote it (base/yaml/yaml_edit.h).
 *
 * The new text is written beside the file, checked as a start would check it, and takes the file's
 * place in one step. It has the file's mode and owner. A symbolic link stays. Until
 * knob_file_finish() nothing has changed. Thread: one that may wait for SSD. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOB_FILE_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOB_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

struct knob_file;

struct knob_file_opts {
    const char *path;
    const char *checker; /* an embtierd, which checks the new file with --check; NULL: only this
                            program looks at the text */
    uint64_t check_ms;   /* that the check may take */
    const struct config *config; /* of the server, for its machine; borrowed */
};

/* Prepares the new file. PERMISSION: the file is read-only, or its owner would change. CONFIG: a
 * start would refuse it; the message has the file, line and key. NOT_FOUND, INVALID: the file's
 * text has no place for the key. TIMEOUT: the check took too long. */
MUST_CHECK enum embtier_err knob_file_new(const struct knob_file_opts *opts, const char *name,
                                          const char *value, struct knob_file **ret_file,
                                          struct err_msg *msg);
/* BUSY: the file was changed meanwhile. */
MUST_CHECK enum embtier_err knob_file_finish(struct knob_file *file, struct err_msg *msg);
/* Without knob_file_finish() the file stays as it was. NULL is allowed. */
void knob_file_free(struct knob_file *file);
DEFINE_CLEANUP(struct knob_file, knob_file_free)

#endif
