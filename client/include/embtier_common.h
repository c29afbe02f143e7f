/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_common.h: handles, errors, progress and sizes of options, which all headers of embtier.h
 * share. */
#ifndef EMBTIER_COMMON_H
#define EMBTIER_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_err.h"
#include "embtier_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef EMBTIER_PUBLIC
#define EMBTIER_PUBLIC __attribute__((visibility("default")))
#endif
#define EMBTIER_MUST_CHECK __attribute__((warn_unused_result))

struct embtier;
struct embtier_table;
struct embtier_scan;
struct embtier_load;
struct embtier_batch;
struct embtier_group;

/* Called now and then during a long call: @done of @total @unit, such as "rows"; a total of 0 is
 * unknown. A call takes the function and its context together; both may be NULL. The function must
 * not call back into its connection. */
typedef void embtier_progress_fn(void *context, uint64_t done, uint64_t total, const char *unit);

/* ---- Options ----
 *
 * Structs of options start with struct_bytes: the struct's size in the version that the program was
 * compiled with. EMBTIER_..._OPTIONS_INIT sets it along with the defaults. The structs grow at
 * their end only. The library fills in defaults behind an older version's end. It refuses an
 * unknown size, such as a newer version's, with INVALID.
 *
 * Structs that the library fills in have no such field. While the version is 0.x they may grow:
 * compile programs anew with each version. */

/* ---- Errors ---- */

EMBTIER_PUBLIC const char *embtier_err_name(enum embtier_err err); /* "NO_TABLE" */
EMBTIER_PUBLIC const char *embtier_err_text(enum embtier_err err); /* "no such table" */
/* Returns one line about the last failed call on @server, valid until the next failure. With NULL,
 * it is about the last embtier_connect() of this thread. Never NULL. The line is plain text: quoted
 * characters that move a terminal's cursor, are invisible or are not UTF-8 are escaped, and long
 * text is cut. */
EMBTIER_PUBLIC const char *embtier_message(const struct embtier *server);
EMBTIER_PUBLIC const char *embtier_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
