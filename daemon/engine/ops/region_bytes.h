/* SPDX-License-Identifier: Apache-2.0 */
/* region_bytes.h: how many bytes of its client's region a request uses, for the quota of bytes
 * under way. These are the bytes that a client sends and receives for it over a network. Thread:
 * the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_REGION_BYTES_H
#define EMBTIER_DAEMON_ENGINE_OPS_REGION_BYTES_H

#include <stdint.h>

struct op_submission;
struct session;
struct table;

/* Returns the bytes of segment @segment, whose copy is at @copy, and of all that it leads to: ids,
 * rows, bags with their offsets and weights, gradients. The submission is of @form. The segment has
 * been checked against @table and its ticket. */
uint64_t region_bytes(const struct session *session, const struct op_submission *submission,
                      uint32_t form, uint32_t segment, const void *copy, const struct table *table);

#endif
