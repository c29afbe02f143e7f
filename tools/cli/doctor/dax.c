/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/doctor/dax.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES "/sys/bus/dax/devices"

static bool read_device(const struct host *host, const char *name, struct dax_device *ret_device)
{
    struct host_line driver;

    *ret_device = (struct dax_device){ .node = UINT64_MAX };
    if (strlen(name) >= sizeof(ret_device->name.text) ||
        !host_number(host, &ret_device->bytes, DEVICES "/%s/size", name))
        return false;
    memcpy(ret_device->name.text, name, strlen(name) + 1);
    if (!host_number(host, &ret_device->node, DEVICES "/%s/target_node", name))
        ret_device->node = UINT64_MAX;
    ret_device->is_system_memory = host_link_name(host, &driver, DEVICES "/%s/driver", name) &&
                                   strcmp(driver.text, "kmem") == 0;
    return true;
}

void dax_devices_read(const struct host *host, struct dax_devices *ret_devices)
{
    struct host_names names;

    *ret_devices = (struct dax_devices){ 0 };
    host_names_read(host, "dax", &names, DEVICES);
    ret_devices->devices = calloc(names.count + 1, sizeof(*ret_devices->devices));
    for (size_t i = 0; ret_devices->devices && i < names.count; i++)
        ret_devices->count +=
            read_device(host, names.names[i], &ret_devices->devices[ret_devices->count]);
    host_names_clear(&names);
}

void dax_devices_clear(struct dax_devices *devices)
{
    free(devices->devices);
    *devices = (struct dax_devices){ 0 };
}
