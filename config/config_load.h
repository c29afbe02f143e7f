/* SPDX-License-Identifier: Apache-2.0 */
/* config_load.h: reads a configuration, and checks it: alone, and against the machine. An error
 * names the file, the line and the key. Thread: any. */
#ifndef EMBTIER_CONFIG_CONFIG_LOAD_H
#define EMBTIER_CONFIG_CONFIG_LOAD_H

#include <stddef.h>

#include "config/config.h"

/* Reads @path, or takes the defaults if @path is NULL. Checks all that can be told from the text
 * alone: keys, types, ranges, names, sums against the machine's memory, lanes against shards.
 * @beside: as struct config has it; the server's is budget_beside(). */
MUST_CHECK enum embtier_err config_load(const char *path, config_beside_fn *beside,
                                        struct config **ret_config, struct err_msg *msg);
/* The same on a machine that the caller describes; config_load takes the one it runs on. */
MUST_CHECK enum embtier_err config_load_on(const char *path, const struct machine *machine,
                                           config_beside_fn *beside, struct config **ret_config,
                                           struct err_msg *msg);
/* The same from memory: @source stands for the file's name. */
MUST_CHECK enum embtier_err config_parse(const char *source, const char *text, size_t text_bytes,
                                         const struct machine *machine, config_beside_fn *beside,
                                         struct config **ret_config, struct err_msg *msg);
/* Checks the things outside the text that it names: directories exist and are writable, tier paths
 * are on a file system that can hold the tier, NUMA nodes exist, the socket's directory is
 * writable. Creates nothing but the default data and socket directories when the config does not
 * name its own. */
MUST_CHECK enum embtier_err config_check_machine(const struct config *config, struct err_msg *msg);
/* Checks that the machine has the memory available now that a start reserves (config_memory.h). Not
 * for the configuration of a server that runs, which has reserved it. */
MUST_CHECK enum embtier_err config_check_available(const struct config *config,
                                                   struct err_msg *msg);

#endif
