/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: loads and scans for imports and exports. They have a table's whole spec, with the version
 * of its initial values, which the public header lacks. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_LOAD_H
#define EMBTIER_CLIENT_LIB_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "client/include/embtier.h"

DEFINE_CLEANUP(struct embtier_load, embtier_load_close)
DEFINE_CLEANUP(struct embtier_scan, embtier_scan_close)

/* Opens a load of @row_count rows; 0: unknown. NO_SPACE: the rows have no room on the server's
 * disk. */
MUST_CHECK enum embtier_err load_open_spec(struct embtier *server, const struct table_spec *spec,
                                           bool with_state, uint64_t row_count,
                                           uint64_t buffer_bytes, struct embtier_load **ret_load);
/* Borrowed from the scan. */
const struct table_spec *scan_table_spec(const struct embtier_scan *scan);

#endif
