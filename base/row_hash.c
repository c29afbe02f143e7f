/* SPDX-License-Identifier: Apache-2.0 */
#include "base/row_hash.h"

#include <string.h>

void row_hasher_init(struct row_hasher *hasher, const unsigned char key[ROW_HASH_KEY_BYTES])
{
    unsigned char secret[XXH3_SECRET_DEFAULT_SIZE];

    /* xxHash 0.8.1 fills the whole default size, even if a smaller one is asked for. */
    XXH3_generateSecret(secret, sizeof(secret), key, ROW_HASH_KEY_BYTES);
    memcpy(hasher->secret, secret, sizeof(hasher->secret));
}
