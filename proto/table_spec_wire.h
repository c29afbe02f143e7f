/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec_wire.h: the description of a table, as messages have it. Thread: any. */
#ifndef EMBTIER_PROTO_TABLE_SPEC_WIRE_H
#define EMBTIER_PROTO_TABLE_SPEC_WIRE_H

#include "base/err.h"
#include "base/macros.h"
#include "base/spec/table_spec.h"

struct Embtier__TableSpec;

/* Between the wire's spec and ours; from the wire it is checked by table_spec_check(),
 * hyperparameters that are not there get their defaults, and parameters that its distribution does
 * not have become 0. To the wire it borrows the name from @spec. */
MUST_CHECK enum embtier_err table_spec_from_wire(const struct Embtier__TableSpec *wire,
                                                 struct table_spec *ret_spec, struct err_msg *msg);
void table_spec_to_wire(const struct table_spec *spec, struct Embtier__TableSpec *ret_wire);

#endif
