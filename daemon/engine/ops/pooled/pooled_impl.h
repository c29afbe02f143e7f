/* SPDX-License-Identifier: Apache-2.0 */
/* pooled_impl.h: functions of pooled.c (waves) for pooled_begin.c (beginning a lookup). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_IMPL_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_IMPL_H

#include "daemon/engine/ops/pooled/pooled.h"

/* Return the memory that a wave needs, and the wave laid out at @place. */
uint64_t wave_bytes(const struct request_rules *rules, const struct wave_shape *shape);
struct wave *wave_lay_out(const struct request_rules *rules, const struct wave_shape *shape,
                          void *place);

#endif
