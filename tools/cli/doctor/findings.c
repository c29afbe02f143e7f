/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/doctor/findings.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/json_values.h"

static const char *const state_words[] = {
#define X(name, word, text) word,
    FINDING_STATE_TABLE(X)
#undef X
};

const char *finding_state_word(enum finding_state state)
{
    return state_words[state];
}

void findings_init(struct findings *ret_findings)
{
    *ret_findings = (struct findings){ .list = json_array() };
    ret_findings->is_incomplete = !ret_findings->list;
}

void findings_clear(struct findings *findings)
{
    json_decref(findings->list);
    *findings = (struct findings){ 0 };
}

void findings_add(struct findings *findings, struct finding finding)
{
    const bool has_advice = finding.state != FINDING_GOOD && finding.advice;
    json_t *const object =
        json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", cli_json_text(finding.name), "state",
                  finding_state_word(finding.state), "value",
                  finding.value ? finding.value : json_null(), "text", cli_json_text(finding.text),
                  "advice", has_advice ? cli_json_text(finding.advice) : json_null());

    if (!object || json_array_append_new(findings->list, object) != 0)
        findings->is_incomplete = true;
    findings->worst = MAX(findings->worst, finding.state);
    findings->counts[finding.state]++;
}

void findings_add_unknown(struct findings *findings, const char *name, const char *source)
{
    findings_add(findings, (struct finding){
                               .name = name,
                               .state = FINDING_NOTE,
                               .text = SAY("unknown: %s cannot be read, or makes no sense here",
                                           TEXT_SHOWN(source)),
                               .advice = "run this command where embtierd will run, with /proc and "
                                         "/sys mounted, or look by hand",
                           });
}

const char *finding_line(struct finding_line *buffer, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(buffer->text, sizeof(buffer->text), format, args);
    va_end(args);
    return buffer->text;
}

#define PATH_SHOWN_BYTES 1000

const char *finding_path(struct finding_line *buffer, const char *path)
{
    const size_t bytes = strlen(path);
    size_t written;

    if (text_escape(TEXT_PLAIN, path, bytes, buffer->text, PATH_SHOWN_BYTES, &written) < bytes)
        memcpy(buffer->text + written, "...", sizeof("..."));
    return buffer->text;
}
