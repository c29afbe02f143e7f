/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h: the table of the checks of `embtier doctor`. A check looks at one subject, and adds a
 * finding for each thing that it looked at. It changes nothing. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_DOCTOR_CHECKS_H
#define EMBTIER_TOOLS_CLI_DOCTOR_CHECKS_H

#include <stdio.h>

#include "base/host/host.h"
#include "config/config.h"
#include "tools/cli/doctor/findings.h"

/* This machine, with all calls. */
extern const struct host host_this;

struct examination {
    const struct host *host;
    const struct config *config; /* NULL: it is wrong; findings that need it are left out */
    const char *config_path;     /* NULL: the defaults */
    const char *config_mistake;  /* if @config is NULL */
    struct findings *findings;
};

typedef void check_fn(const struct examination *e);

struct check {
    const char *name; /* findings have it as their name, or begin with it */
    check_fn *run;
    const char *about; /* for --help */
};

/* The last one has NULL as its name. */
extern const struct check checks[];

void checks_run(const struct examination *e);

check_fn check_config, check_kernel, check_io_uring, check_huge_pages, check_memory, check_limits,
    check_numa, check_memory_kinds, check_directories, check_tiers, check_clock;

#endif
