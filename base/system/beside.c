/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/beside.h"

#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

void beside_find(const char *name, const char *installed, char ret_path[PATH_MAX])
{
    char self[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (bytes > 0) {
        self[bytes] = '\0';
        if (snprintf(ret_path, PATH_MAX, "%s/%s", dirname(self), name) < PATH_MAX &&
            access(ret_path, X_OK) == 0)
            return;
    }
    snprintf(ret_path, PATH_MAX, "%s", installed);
}
