/* SPDX-License-Identifier: Apache-2.0 */
/* The clock: dates of checkpoints and certificates, and the price of reading the time. */
#include <jansson.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/doctor/checks.h"

#define SOURCES "/sys/devices/system/clocksource/clocksource0/"

static void check_synchronised(const struct examination *e)
{
    const bool has_tls = e->config && config_has_tls(e->config);
    bool is_synchronised = false;
    bool is_bad;

    if (e->host->clock_is_synchronised(&is_synchronised) != 0) {
        findings_add_unknown(e->findings, "clock.synchronised", "adjtimex()");
        return;
    }
    is_bad = !is_synchronised;
    findings_add(e->findings,
                 (struct finding){
                     .name = "clock.synchronised",
                     .state = !is_bad   ? FINDING_GOOD
                              : has_tls ? FINDING_WARN
                                        : FINDING_NOTE,
                     .value = json_boolean(is_synchronised),
                     .text = is_bad ? "the clock is not synchronised: dates of checkpoints and of "
                                      "the log, and the validity of certificates, may be wrong"
                                    : "the clock is synchronised",
                     .advice = "apt-get install chrony, or timedatectl set-ntp true; in a virtual "
                               "machine or container, do so on its host",
                 });
}

/* Those that a program reads without a system call. */
static bool is_fast(const char *source)
{
    static const char *const fast[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                        "arch_sys_counter", "riscv_clocksource" };

    for (size_t i = 0; i < ARRAY_LEN(fast); i++)
        if (strcmp(source, fast[i]) == 0)
            return true;
    return false;
}

static bool has_tsc(const struct host *host)
{
    struct host_line line;

    return host_line(host, &line, SOURCES "available_clocksource") && strstr(line.text, "tsc");
}

static void check_source(const struct examination *e)
{
    struct host_line source;

    if (!host_line(e->host, &source, SOURCES "current_clocksource")) {
        findings_add_unknown(e->findings, "clock.source", SOURCES "current_clocksource");
        return;
    }
    findings_add(
        e->findings,
        (struct finding){
            .name = "clock.source",
            .state = is_fast(source.text) ? FINDING_GOOD : FINDING_WARN,
            .value = json_string(TEXT_SHOWN(source.text)),
            .text = SAY("source %s%s", TEXT_SHOWN(source.text),
                        is_fast(source.text) ? "" : ": each look at the time is a system call"),
            .advice = has_tsc(e->host) ? "echo tsc >" SOURCES "current_clocksource"
                                       : "boot with tsc=reliable if the processor's counter is "
                                         "constant (constant_tsc and nonstop_tsc in /proc/cpuinfo)",
        });
}

void check_clock(const struct examination *e)
{
    check_synchronised(e);
    check_source(e);
}
