/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/json_size.h"

#include <stdbool.h>

#include "base/macros.h"

struct json_size json_size_of(const char *text, size_t bytes, uint32_t most_depth)
{
    struct json_size size = { 0 };
    uint32_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];

        if (c == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += c == '\\'; /* also skips the escaped character */
        } else if (c == '{' || c == '[') {
            depth++;
            size.depth = MAX(size.depth, depth);
            if (depth > most_depth) {
                size.too_deep_at = i;
                return size;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == ',' || c == ':') {
            size.separators++;
        }
    }
    return size;
}
