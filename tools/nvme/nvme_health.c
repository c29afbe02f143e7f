/* SPDX-License-Identifier: Apache-2.0 */
/* nvme_health.c: the program embtier-nvme-health, which prints the health of one NVMe drive as
 * JSON, and ends.
 *
 * It may have CAP_SYS_ADMIN by setcap, so that users without rights can run it. So it does no more
 * than this: it takes one path, opens it only if /sys says that it is an NVMe drive, and reads two
 * pages. It keeps no other capability than that one, and none once it has the pages. */
#include <jansson.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/nvme/health_json.h"
#include "tools/nvme/nvme_drive.h"

#define PROGRAM "embtier-nvme-health"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] = "Usage: " PROGRAM " DEVICE\n"
                           "Prints the health of an NVMe drive, such as /dev/nvme0n1, as JSON. "
                           "`embtier endurance` runs it.\n"
                           "It needs CAP_SYS_ADMIN, and the right to read DEVICE.\n";

/* Keeps of its capabilities at most those in @kept, for good. */
static enum embtier_err keep_capabilities(uint32_t kept, struct err_msg *msg)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

    if (syscall(SYS_capget, &header, data) != 0)
        return err_set(msg, EMBTIER_INTERNAL, "its capabilities are not known");
    data[0].permitted &= kept;
    data[0].effective = data[0].permitted;
    data[0].inheritable = 0;
    data[1] = (struct __user_cap_data_struct){ 0 };
    if (syscall(SYS_capset, &header, data) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return err_set(msg, EMBTIER_INTERNAL, "capabilities cannot be given up");
    return EMBTIER_OK;
}

/* A drive without the vendor's page is no error. */
static double read_media_bytes(int fd)
{
    uint8_t page[NVME_PAGE_BYTES] = { 0 };
    double bytes;

    if (nvme_drive_read(fd, MEDIA_PAGE, page, NULL) != EMBTIER_OK ||
        !media_page_decode(page, sizeof(page), &bytes))
        return 0;
    return bytes;
}

static enum embtier_err read_health(const char *path, json_t **ret_json, struct err_msg *msg)
{
    _cleanup_(closep) int fd = -1;
    uint8_t page[NVME_PAGE_BYTES] = { 0 };
    struct nvme_drive drive;
    struct health health;
    double media_bytes;

    TRY(keep_capabilities(1U << CAP_SYS_ADMIN, msg));
    TRY(nvme_drive_find(&host_files, path, &drive, msg));
    TRY(nvme_drive_open(&drive, path, &fd, msg));
    TRY(nvme_drive_read(fd, HEALTH_PAGE, page, msg));
    media_bytes = read_media_bytes(fd);
    TRY(keep_capabilities(0, msg));
    TRY(health_decode(page, sizeof(page), &health, msg));
    *ret_json = health_json(drive.name.text, &health, media_bytes);
    return *ret_json ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

int main(int argc, char **argv)
{
    struct err_msg msg = { { 0 } };
    json_t *json = NULL;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0 ? EXIT_FAILED : EXIT_SUCCESS;
    if (argc != 2 || argv[1][0] == '-') {
        fputs(help, stderr);
        return EXIT_USAGE;
    }
    if (read_health(argv[1], &json, &msg) != EMBTIER_OK) {
        text_print(stderr, PROGRAM ": %s\n", msg.text);
        return EXIT_FAILED;
    }
    rc = json_dumpf(json, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(json);
    return rc != 0 || putchar('\n') == EOF || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_SUCCESS;
}
