/* SPDX-License-Identifier: Apache-2.0 */
/* table_spec_wire.h: converts the description of a table between messages and struct table_spec.
 * Thread: any. */
#ifndef EMBTIER_PROTO_TABLE_SPEC_WIRE_H
#define EMBTIER_PROTO_TABLE_SPEC_WIRE_H

#include "base/err.h"
#include "base/macros.h"
#include "base/spec/table_spec.h"

struct Embtier__TableSpec;

/* From the wire: runs table_spec_check(), gives missing hyperparameters their defaults, and sets
 * parameters that the distribution lacks to 0. To the wire: borrows the texts from @spec. */
MUST_CHECK enum embtier_err table_spec_from_wire(const struct Embtier__TableSpec *wire,
                                                 struct table_spec *ret_spec, struct err_msg *msg);
void table_spec_to_wire(const struct table_spec *spec, struct Embtier__TableSpec *ret_wire);

#endif
