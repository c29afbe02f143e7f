/* SPDX-License-Identifier: Apache-2.0 */
#include "base/option_mistake.h"

#include <string.h>

#include "base/text_escape.h"

/* Options that @word may be the beginning of. */
static int count_meant(const char *word, const struct option *options)
{
    const size_t bytes = strcspn(word, "=");
    int count = 0;

    for (; options->name; options++)
        count += strncmp(options->name, word, bytes) == 0;
    return count;
}

void option_mistake(int returned, char *const *argv, const struct option *options,
                    struct err_msg *ret_msg)
{
    const char *const word = argv[optind - 1];
    const char *const shown = TEXT_SHOWN(word);
    const bool is_long = strncmp(word, "--", 2) == 0;
    const char letter[] = { (char)optopt, '\0' };

    if (returned == ':')
        err_write(ret_msg, "option '%s' requires an argument", shown);
    else if (is_long && optopt != 0)
        err_write(ret_msg, "option '%s' doesn't allow an argument", shown);
    else if (is_long)
        err_write(ret_msg,
                  count_meant(word + 2, options) > 1 ? "option '%s' is ambiguous"
                                                     : "unrecognized option '%s'",
                  shown);
    else
        err_write(ret_msg, "invalid option -- '%s'", TEXT_SHOWN(letter));
}
