/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/option_mistake.h"

#include <string.h>

#include "base/macros.h"
#include "base/text/text_escape.h"

/* Counts the options that @word, without its dashes, may abbreviate; 1 if it is exactly one of
 * them. */
static int count_meant(const char *word, const struct option *options)
{
    const size_t bytes = strcspn(word, "=");
    int count = 0;

    for (; options->name; options++) {
        if (strncmp(options->name, word, bytes) != 0)
            continue;
        if (strlen(options->name) == bytes)
            return 1;
        count++;
    }
    return count;
}

static void tell_word(int returned, const char *word, const struct option *options,
                      struct err_msg *ret_msg)
{
    const char *const shown = TEXT_SHOWN(word);
    const int meant = count_meant(word + 2, options);

    if (returned == ':')
        err_write(ret_msg, "option '%s' requires an argument", shown);
    else if (optopt != 0 || meant == 1)
        err_write(ret_msg, "option '%s' doesn't allow an argument", shown);
    else
        err_write(ret_msg, meant > 1 ? "option '%s' is ambiguous" : "unrecognized option '%s'",
                  shown);
}

static void tell_letter(int returned, struct err_msg *ret_msg)
{
    const char letter[] = { (char)optopt, '\0' };

    err_write(ret_msg,
              returned == ':' ? "option '-%s' requires an argument" : "invalid option -- '%s'",
              TEXT_SHOWN(letter));
}

int option_next(int argc, char *const *argv, const char *letters, const struct option *options,
                struct err_msg *ret_msg)
{
    const int before = MAX(optind, 1); /* 0: getopt starts anew */
    int option;

    opterr = 0;
    option = getopt_long(argc, argv, letters, options, NULL);
    if (option != '?' && option != ':')
        return option;
    /* getopt passes a word of letters only at its last letter. Until then, argv[optind - 1] is the
     * word before it, which was correct. */
    if (optind > before && strncmp(argv[optind - 1], "--", 2) == 0)
        tell_word(option, argv[optind - 1], options, ret_msg);
    else
        tell_letter(option, ret_msg);
    return option;
}
