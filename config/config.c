/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <stdlib.h>

#include "base/yaml/yaml_doc.h"

void config_free(struct config *config)
{
    if (!config)
        return;
    for (uint32_t i = 0; i < config->data.directory_count; i++)
        free(config->data.directories[i]);
    free(config->data.directories);
    free(config->rocksdb.compaction_hours);
    free(config->rocksdb.options);
    free(config->socket.path);
    free(config->tls.certificate);
    free(config->tls.key);
    free(config->tls.client_ca);
    free(config->access.file);
    free(config->http.listen);
    free(config->source);
    yaml_doc_free(config->doc);
    free(config);
}
