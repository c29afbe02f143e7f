/* SPDX-License-Identifier: Apache-2.0 */
/* config_load.h: reads a configuration, and checks it by itself and against the machine. An error
 * names the file, the line and the key. Thread: any. */
#ifndef EMBTIER_CONFIG_CONFIG_LOAD_H
#define EMBTIER_CONFIG_CONFIG_LOAD_H

#include <stddef.h>

#include "config/config.h"

/* Reads @path, or takes the defaults if @path is NULL. Checks everything that the text alone shows:
 * keys, types, ranges, names, sums against the machine's memory, lanes against shards. @unbudgeted
 * goes into struct config; the server passes budget_unbudgeted(). */
MUST_CHECK enum embtier_err config_load(const char *path, config_unbudgeted_fn *unbudgeted,
                                        struct config **ret_config, struct err_msg *msg);
/* The same for a machine that the caller describes; config_load() takes the machine it runs on. */
MUST_CHECK enum embtier_err config_load_on(const char *path, const struct machine *machine,
                                           config_unbudgeted_fn *unbudgeted,
                                           struct config **ret_config, struct err_msg *msg);
/* The same for a text in memory; messages name it @source. */
MUST_CHECK enum embtier_err config_parse(const char *source, const char *text, size_t text_bytes,
                                         const struct machine *machine,
                                         config_unbudgeted_fn *unbudgeted,
                                         struct config **ret_config, struct err_msg *msg);
/* Checks the things that the text names. Directories and NUMA nodes exist; directories are
 * writable; tier paths lie on a file system with room for the tier. The socket's directory must be
 * writable. Creates only the default data and socket directories, where the config does not name
 * its own. */
MUST_CHECK enum embtier_err config_check_machine(const struct config *config, struct err_msg *msg);
/* Checks that the machine now has the memory available that a start reserves (config_memory.h). Not
 * for a running server's configuration, because that server has already reserved it. */
MUST_CHECK enum embtier_err config_check_available(const struct config *config,
                                                   struct err_msg *msg);

#endif
