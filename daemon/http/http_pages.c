/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over HTTP and their answers. A path is compared with those of a table; it never names a
 * file. */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "daemon/http/console/console.h"
#include "daemon/http/exposition.h"
#include "daemon/http/http_impl.h"
#include "daemon/http/page.h"
#include "daemon/http/readers_host.h"
#include "daemon/http/status_json.h"

#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json"
#define HTML "text/html; charset=utf-8"

/* An answer; its text is malloced. */
struct answer {
    unsigned status;
    const char *type;
    struct page page;
};

struct request {
    struct http *http;
    struct MHD_Connection *connection;
};

static void say(struct answer *answer, unsigned status, const char *text)
{
    page_free(&answer->page);
    answer->status = status;
    answer->type = TEXT;
    page_printf(&answer->page, "%s\n", text);
}

/* The answer to a request that needs a snapshot, when there is none. */
static void say_unanswered(struct answer *answer, enum http_asked asked)
{
    static const char *const texts[] = {
        [HTTP_IS_STARTING] = "the server is starting",
        [HTTP_IS_STOPPING] = "the server is stopping",
        [HTTP_UNANSWERED] = "the control thread does not answer",
        [HTTP_NO_MEMORY] = "memory is short: try again",
    };

    say(answer, MHD_HTTP_SERVICE_UNAVAILABLE, texts[asked]);
}

static const char *header_of(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* ---- Pages ---- */

static void answer_metrics(const struct request *request, struct answer *answer)
{
    const enum exposition_format format =
        exposition_accepted(header_of(request, MHD_HTTP_HEADER_ACCEPT));
    struct http *const http = request->http;
    const enum http_asked asked = http_ask(http, true);

    if (asked != HTTP_ANSWERED) {
        say_unanswered(answer, asked);
        return;
    }
    answer->type = exposition_type(format);
    exposition_write(&answer->page, format, http->snapshot.figures, http->snapshot.count,
                     &http->snapshot.latencies, http->top);
}

static void answer_status(const struct request *request, struct answer *answer)
{
    struct http *const http = request->http;
    const enum http_asked asked = http_ask(http, true);
    char *text;

    if (asked != HTTP_ANSWERED) {
        say_unanswered(answer, asked);
        return;
    }
    text = status_json(&http->snapshot, http->top);
    answer->type = JSON;
    if (text)
        page_add(&answer->page, text, strlen(text));
    answer->page.is_cut |= !text;
    free(text);
}

static void answer_history(const struct request *request, struct answer *answer)
{
    struct http *const http = request->http;
    const enum http_asked asked = http_ask(http, false);

    if (asked != HTTP_ANSWERED) {
        say_unanswered(answer, asked);
        return;
    }
    answer->type = JSON;
    history_write(&http->history, http->snapshot.uptime_ms, &answer->page);
}

static void answer_console(const struct request *request, struct answer *answer)
{
    (void)request;
    answer->type = HTML;
    page_add(&answer->page, console_html, console_html_bytes);
}

/* A server that starts or stops is alive: the log says how far it is. */
static void answer_live(const struct request *request, struct answer *answer)
{
    static const char *const texts[] = {
        [HTTP_ANSWERED] = "serving",
        [HTTP_IS_STARTING] = "starting",
        [HTTP_IS_STOPPING] = "stopping",
    };
    const enum http_asked asked = http_ask(request->http, false);

    if (asked == HTTP_UNANSWERED)
        say_unanswered(answer, asked);
    else
        say(answer, MHD_HTTP_OK, texts[asked]);
}

static void answer_ready(const struct request *request, struct answer *answer)
{
    const struct snapshot *const snapshot = &request->http->snapshot;
    const enum http_asked asked = http_ask(request->http, false);

    if (asked != HTTP_ANSWERED) {
        say_unanswered(answer, asked);
        return;
    }
    if (snapshot->reason_count == 0) {
        say(answer, MHD_HTTP_OK, "ready");
        return;
    }
    answer->status = MHD_HTTP_SERVICE_UNAVAILABLE;
    for (uint32_t i = 0; i < snapshot->reason_count; i++)
        page_printf(&answer->page, "%s\n", snapshot->reasons[i].text);
}

static const struct {
    const char *path;
    void (*answer)(const struct request *request, struct answer *answer);
} pages[] = {
    { "/metrics", answer_metrics },      { "/livez", answer_live },
    { "/readyz", answer_ready },         { "/status.json", answer_status },
    { "/history.json", answer_history }, { "/", answer_console },
};

/* ---- Requests ---- */

/* Another method has no body that is worth reading. */
static bool is_read(const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

static void find_answer(const struct request *request, const char *url, const char *method,
                        struct answer *answer)
{
    if (!is_read(method)) {
        say(answer, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are allowed");
        return;
    }
    if (!request->http->config->http.insecure &&
        !readers_host_is_local(header_of(request, MHD_HTTP_HEADER_HOST),
                               request->http->config->http.address.host)) {
        say(answer, MHD_HTTP_FORBIDDEN,
            "the request's Host is not this server's address: use localhost, a number, or the name "
            "in http.listen");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(url, pages[i].path) != 0)
            continue;
        pages[i].answer(request, answer);
        if (answer->page.is_cut)
            say(answer, MHD_HTTP_INTERNAL_SERVER_ERROR,
                "the answer is longer than 256KiB, or memory is short: lower http.tables");
        return;
    }
    say(answer, MHD_HTTP_NOT_FOUND,
        "not found; there are /, /metrics, /livez, /readyz, /status.json and /history.json");
}

/* Takes the text. */
static enum MHD_Result send_answer(struct MHD_Connection *connection, struct answer *answer)
{
    static const struct {
        const char *name, *value;
    } headers[] = {
        { MHD_HTTP_HEADER_CACHE_CONTROL, "no-store" },
        { "X-Content-Type-Options", "nosniff" },
        { "X-Frame-Options", "DENY" },
        { "Referrer-Policy", "no-referrer" },
        { "Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
    };
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        answer->page.bytes, answer->page.text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (!response) {
        page_free(&answer->page);
        return MHD_NO; /* closes the connection */
    }
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        (void)MHD_add_response_header(response, headers[i].name, headers[i].value);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (answer->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    result = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return result;
}

/* Called with the headers, with each piece of a body, and at the end. A body is thrown away. The
 * library closes the connection if the answer comes before that. */
enum MHD_Result http_answer(void *context, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_bytes, void **request_place)
{
    static char seen; /* its address marks a request whose headers were seen */
    const struct request request = { .http = context, .connection = connection };
    struct answer answer = { .status = MHD_HTTP_OK, .type = TEXT };

    (void)version;
    (void)upload;
    if (!*request_place && is_read(method)) {
        *request_place = &seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    find_answer(&request, url, method, &answer);
    return send_answer(connection, &answer);
}
