/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/terminal.h"

#include <curses.h>
#include <term.h>
#include <unistd.h>

bool terminal_is_known(void)
{
    int found = 0;

    if (setupterm(NULL, STDOUT_FILENO, &found) != OK)
        return false;
    del_curterm(cur_term);
    return true;
}
