/* SPDX-License-Identifier: Apache-2.0 */
/* certificate_life.h: when a certificate is to be made anew. Thread: any. */
#ifndef EMBTIER_BASE_TLS_CERTIFICATE_LIFE_H
#define EMBTIER_BASE_TLS_CERTIFICATE_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define CERTIFICATE_SOON_S (INT64_C(30) * 24 * 60 * 60)

/* True if a certificate that is valid for @life_s seconds in all, and for @left_s more, expires
 * soon: within CERTIFICATE_SOON_S, or within a third of its life if that is less. */
static inline bool certificate_expires_soon(int64_t life_s, int64_t left_s)
{
    return left_s < MIN(CERTIFICATE_SOON_S, life_s / 3);
}

#endif
