/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/edit_distance.h"

#include <string.h>

#include "base/macros.h"

unsigned edit_distance(const char *a, const char *b)
{
    const size_t a_len = strnlen(a, 63);
    const size_t b_len = strnlen(b, 63);
    unsigned row[64];

    for (unsigned j = 0; j <= b_len; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            const unsigned above = row[j];
            const unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);

            row[j] = MIN(above, row[j - 1]) + 1;
            row[j] = MIN(row[j], replaced);
            diagonal = above;
        }
    }
    return row[b_len];
}
