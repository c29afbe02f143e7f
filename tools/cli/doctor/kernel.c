/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's version, and whether it lets this process use io_uring. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/doctor/checks.h"

#define OSRELEASE "/proc/sys/kernel/osrelease"

/* ---- Version ---- */

struct version {
    unsigned major, minor;
};

/* Versions from which on the server gets more of the kernel, newest first. */
static const struct {
    struct version from;
    enum finding_state older; /* state of a kernel that is older */
    const char *gain;
} versions[] = {
    { { 6, 12 }, FINDING_NOTE, "short turns for the threads that requests wait for (6.12)" },
    { { 6, 1 }, FINDING_NOTE, "rings that interrupt no thread (6.1)" },
    { { 5, 15 }, FINDING_BAD, "all that embtierd is tested with (5.15)" },
};

static bool is_older(struct version a, struct version b)
{
    return a.major != b.major ? a.major < b.major : a.minor < b.minor;
}

static bool parse_version(const char *release, struct version *ret_version)
{
    char *end;
    const unsigned long major = strtoul(release, &end, 10);
    unsigned long minor;

    if (end == release || *end != '.' || end[1] < '0' || end[1] > '9')
        return false;
    minor = strtoul(end + 1, &end, 10);
    if (major == 0 || major > 1000 || minor > 1000)
        return false;
    *ret_version = (struct version){ (unsigned)major, (unsigned)minor };
    return true;
}

void check_kernel(const struct examination *e)
{
    struct host_line release;
    struct version version;
    enum finding_state state = FINDING_GOOD;
    struct finding_line missing = { "" };

    if (!host_line(e->host, &release, OSRELEASE) || !parse_version(release.text, &version)) {
        findings_add_unknown(e->findings, "kernel", OSRELEASE);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (is_older(version, versions[i].from)) {
            const size_t used = strlen(missing.text);

            state = MAX(state, versions[i].older);
            snprintf(missing.text + used, sizeof(missing.text) - used, "%s%s",
                     used > 0 ? "; " : ". It lacks: ", versions[i].gain);
        }
    findings_add(e->findings,
                 (struct finding){
                     .name = "kernel",
                     .state = state,
                     .value = json_string(TEXT_SHOWN(release.text)),
                     .text = SAY("Linux %s%s", TEXT_SHOWN(release.text), missing.text),
                     .advice = state == FINDING_BAD
                                   ? "install Linux 5.15 or newer; Debian 12 has 6.1"
                                   : "nothing has to be done; Linux 6.12 (Debian 13, or backports "
                                     "of Debian 12) is faster when cores are few",
                 });
}

/* ---- io_uring ---- */

#define DISABLED "/proc/sys/kernel/io_uring_disabled"

enum { RINGS_FOR_ALL, RINGS_FOR_GROUP, RINGS_FOR_NOBODY };

static bool is_filtered(const struct host *host)
{
    uint64_t mode;

    return host_field(host, "Seccomp", &mode, "/proc/self/status") && mode == 2;
}

/* A start is refused only where the configuration insists on rings. */
static enum finding_state state_without_ring(const struct config *config)
{
    if (!config)
        return FINDING_WARN;
    if (config->rocksdb.io_uring == SWITCH_ON ||
        (config->rpc.listen_count > 0 && config->rpc.io_uring == SWITCH_ON))
        return FINDING_BAD;
    return config->rocksdb.io_uring == SWITCH_OFF && config->rpc.io_uring == SWITCH_OFF
               ? FINDING_NOTE
               : FINDING_WARN;
}

static const char *ring_advice(const struct host *host, int errnum, uint64_t disabled)
{
    if (errnum == EPERM && disabled == RINGS_FOR_NOBODY)
        return "sysctl -w kernel.io_uring_disabled=0, and the same in /etc/sysctl.d/";
    if (errnum == EPERM && disabled == RINGS_FOR_GROUP)
        return "sysctl -w kernel.io_uring_group=GID, a group of embtierd's user, and the same in "
               "/etc/sysctl.d/";
    if ((errnum == EPERM || errnum == ENOSYS || errnum == EACCES) && is_filtered(host))
        return "a seccomp filter forbids it: allow io_uring_setup, io_uring_enter and "
               "io_uring_register (docker run --security-opt seccomp=FILE, SystemCallFilter= of "
               "the unit)";
    if (errnum == EPERM || errnum == EACCES)
        return "a security module forbids it, such as SELinux: look into its log (ausearch -m avc)";
    if (errnum == ENOSYS)
        return "use a kernel that is built with CONFIG_IO_URING";
    if (errnum == ENOMEM)
        return "raise the limit of locked memory (ulimit -l, LimitMEMLOCK= of the unit)";
    if (errnum == EMFILE || errnum == ENFILE)
        return "raise the limit of descriptors (ulimit -n, sysctl fs.file-max)";
    return "install a newer kernel; or set rocksdb.io_uring and rpc.io_uring to off";
}

static void ring_works(const struct examination *e, uint64_t disabled)
{
    const bool is_limited = disabled != RINGS_FOR_ALL;

    findings_add(e->findings,
                 (struct finding){
                     .name = "io_uring",
                     .state = is_limited ? FINDING_NOTE : FINDING_GOOD,
                     .value = json_true(),
                     .text = is_limited ? SAY("a ring was set up, but kernel.io_uring_disabled is "
                                              "%" PRIu64 ": other users may get none",
                                              disabled)
                                        : "a ring was set up",
                     .advice = "run this command as embtierd's user",
                 });
}

void check_io_uring(const struct examination *e)
{
    uint64_t disabled = RINGS_FOR_ALL; /* kernels before 6.6 have no such file */
    const int errnum = e->host->try_ring();

    if (!host_number(e->host, &disabled, DISABLED))
        disabled = RINGS_FOR_ALL;
    if (errnum == 0) {
        ring_works(e, disabled);
        return;
    }
    findings_add(
        e->findings,
        (struct finding){
            .name = "io_uring",
            .state = state_without_ring(e->config),
            .value = json_false(),
            .text = SAY("no ring: %s%s. The store then reads by pread and clients over TCP are "
                        "served by epoll, which is slower",
                        errnum == EOPNOTSUPP ? "it lacks what Linux 5.15 has"
                                             : strerror(errnum), // NOLINT(concurrency-mt-unsafe)
                        disabled != RINGS_FOR_ALL
                            ? SAY(" (kernel.io_uring_disabled is %" PRIu64 ")", disabled)
                            : ""),
            .advice = ring_advice(e->host, errnum, disabled),
        });
}
