/* SPDX-License-Identifier: Apache-2.0 */
/* In a build without libmicrohttpd. */
#include "base/yaml/yaml_doc.h"
#include "config/config.h"
#include "daemon/http/http.h"

enum embtier_err http_check(const struct config *config, bool may_live, struct err_msg *msg)
{
    (void)may_live;
    if (!config->http.listen)
        return EMBTIER_OK;
    return yaml_doc_mistake(config->doc, "http.listen", msg,
                            "this embtierd was built without HTTP; build it with libmicrohttpd "
                            "(Debian: libmicrohttpd-dev), or leave the key out");
}

enum embtier_err http_new(const struct config *config, struct http **ret_http, struct err_msg *msg)
{
    *ret_http = NULL;
    return http_check(config, false, msg);
}

void http_serving(struct http *http, struct control *control, struct tables *tables)
{
    (void)http;
    (void)control;
    (void)tables;
}

void http_stopping(struct http *http)
{
    (void)http;
}

void http_free(struct http *http)
{
    (void)http;
}
