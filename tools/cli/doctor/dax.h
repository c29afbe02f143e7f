/* SPDX-License-Identifier: Apache-2.0 */
/* dax.h: DAX devices, which are persistent or CXL memory. Thread: any. */
#ifndef EMBTIER_TOOLS_CLI_DOCTOR_DAX_H
#define EMBTIER_TOOLS_CLI_DOCTOR_DAX_H

#include "base/host/host.h"

struct dax_device {
    struct host_line name; /* "dax0.0" */
    uint64_t bytes;
    bool is_system_memory; /* by the driver kmem: memory of a NUMA node */
    uint64_t node;         /* that its memory is, or would be, of; UINT64_MAX: not known */
};

struct dax_devices {
    struct dax_device *devices;
    size_t count;
};

/* Devices that make no sense are left out. */
void dax_devices_read(const struct host *host, struct dax_devices *ret_devices);
void dax_devices_clear(struct dax_devices *devices);

#endif
