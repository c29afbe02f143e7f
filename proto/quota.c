/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/quota.h"

const char *quota_key(enum quota quota)
{
    static const char *const keys[] = {
#define X(key, unit) #key,
        QUOTA_TABLE(X)
#undef X
    };

    return quota < QUOTAS ? keys[quota] : "unknown";
}
