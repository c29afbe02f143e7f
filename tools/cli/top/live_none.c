/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/cli.h"
#include "tools/cli/top/live.h"

int live_run(struct cli *cli, double delay_s, size_t panel)
{
    (void)cli;
    (void)delay_s;
    (void)panel;
    return cli_fail(EMBTIER_UNSUPPORTED,
                    "top: this build has no ncurses (Debian's package libncurses-dev), so it has "
                    "no live view; use `embtier top --batch` or `embtier status --watch 1`");
}
