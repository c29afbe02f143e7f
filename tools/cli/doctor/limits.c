/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of this process, which a program that it starts inherits. A unit of systemd has its
 * own. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/text/bytes.h"
#include "config/config_descriptors.h"
#include "tools/cli/doctor/checks.h"
#include "tools/cli/json_values.h"

#define LIMITS    "/proc/self/limits"
#define UNLIMITED UINT64_MAX

struct limit {
    uint64_t soft, hard;
};

static bool parse_limit(char **at, uint64_t *ret_limit)
{
    char *const word = strsep(at, " ");

    if (*at)
        *at += strspn(*at, " ");
    if (word && strcmp(word, "unlimited") == 0)
        *ret_limit = UNLIMITED;
    else if (!word || !host_parse_number(word, ret_limit))
        return false;
    return true;
}

/* @name is that of the file, such as "Max open files". */
static bool read_limit(const struct host *host, const char *name, struct limit *ret_limit)
{
    FILE *const file = host_open(host, LIMITS);
    struct host_line line;
    struct limit limit;
    bool found = false;

    while (file && !found && fgets(line.text, sizeof(line.text), file)) {
        char *at = line.text + strlen(name);

        if (strncmp(line.text, name, strlen(name)) != 0 || *at != ' ')
            continue;
        at += strspn(at, " ");
        found = parse_limit(&at, &limit.soft) && parse_limit(&at, &limit.hard);
        break;
    }
    if (file)
        fclose(file);
    if (found)
        *ret_limit = limit;
    return found;
}

#define LIMIT_TEXT(limit) ((limit) == UNLIMITED ? "unlimited" : SAY("%" PRIu64, (limit)))

/* ---- Descriptors ---- */

#define RAISE_DESCRIPTORS                                                                          \
    "raise the hard limit: LimitNOFILE=1048576 of the unit, `ulimit -Hn`, or nofile in "           \
    "/etc/security/limits.conf"

/* embtierd raises its soft limit to the hard one. */
static void check_descriptors(const struct examination *e)
{
    const struct config *const config = e->config;
    struct err_msg text;
    struct limit limit = { 0 };
    enum finding_state state = FINDING_GOOD;

    if (!read_limit(e->host, "Max open files", &limit)) {
        findings_add_unknown(e->findings, "limits.descriptors", LIMITS);
        return;
    }
    err_write(&text, "soft limit %s, hard limit %s", LIMIT_TEXT(limit.soft),
              LIMIT_TEXT(limit.hard));
    if (config && config_descriptors_check(config, limit.hard, &text) != EMBTIER_OK) {
        state = FINDING_BAD;
    } else if (config && config->descriptors.has_fewer_sessions) {
        state = FINDING_WARN;
        err_append(&text, ", which leaves descriptors for %u sessions, instead of %d",
                   config->socket.max_sessions, SESSIONS_DEFAULT);
    }
    findings_add(e->findings, (struct finding){ .name = "limits.descriptors",
                                                .state = state,
                                                .value = cli_json_u64(limit.hard),
                                                .text = text.text,
                                                .advice = RAISE_DESCRIPTORS });
}

/* ---- Other limits ---- */

static void check_file_length(const struct examination *e)
{
    struct limit limit;

    if (!read_limit(e->host, "Max file size", &limit)) {
        findings_add_unknown(e->findings, "limits.file_length", LIMITS);
        return;
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = "limits.file_length",
                     .state = limit.hard == UNLIMITED ? FINDING_GOOD : FINDING_WARN,
                     .value = limit.hard == UNLIMITED ? NULL : cli_json_u64(limit.hard),
                     .text = limit.hard == UNLIMITED
                                 ? "files may have any length"
                                 : SAY("files and shared memory above %s are refused as if there "
                                       "were no space",
                                       BYTES_TEXT(limit.hard)),
                     .advice = "LimitFSIZE=infinity of the unit, or `ulimit -Hf unlimited`",
                 });
}

/* The least that kernels take for rings whose memory they count as locked (before 5.12), and that a
 * container needs for rings with registered buffers. embtierd itself locks no memory. */
#define LOCKED_LEAST_BYTES (64 * KIB)

static void check_locked(const struct examination *e)
{
    struct limit limit;
    bool is_little;

    if (!read_limit(e->host, "Max locked memory", &limit)) {
        findings_add_unknown(e->findings, "limits.locked_memory", LIMITS);
        return;
    }
    is_little = limit.soft < LOCKED_LEAST_BYTES;
    findings_add(e->findings,
                 (struct finding){
                     .name = "limits.locked_memory",
                     .state = is_little ? FINDING_NOTE : FINDING_GOOD,
                     .value = limit.soft == UNLIMITED ? NULL : cli_json_u64(limit.soft),
                     .text = SAY("%s may be locked; embtierd locks none itself",
                                 limit.soft == UNLIMITED ? "any memory" : BYTES_TEXT(limit.soft)),
                     .advice = "nothing if io_uring works; else LimitMEMLOCK=8M of the unit, or "
                               "`ulimit -l 8192`",
                 });
}

void check_limits(const struct examination *e)
{
    check_descriptors(e);
    check_file_length(e);
    check_locked(e);
}
