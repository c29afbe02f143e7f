/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes, their processors and memory. */
#include <jansson.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/doctor/checks.h"
#include "tools/cli/doctor/nodes.h"

static void describe(const struct node *node, struct finding_line *line)
{
    const size_t used = strlen(line->text);
    const bool has_processors = node->processors.text[0] != '\0';

    snprintf(line->text + used, sizeof(line->text) - used, "%snode %u: %s%s, %s", used ? "; " : "",
             node->number, has_processors ? "processors " : "no processors",
             has_processors ? TEXT_SHOWN(node->processors.text) : "", BYTES_TEXT(node->bytes));
    if (node->available_bytes != UINT64_MAX && strlen(line->text) < sizeof(line->text) - 1)
        snprintf(line->text + strlen(line->text), sizeof(line->text) - strlen(line->text),
                 " (%s available)", BYTES_TEXT(node->available_bytes));
}

/* Arenas of DRAM lie on the node of the thread that touches them first, which is the main one's. */
static void add(const struct examination *e, const struct nodes *nodes)
{
    struct finding_line line = { "" };
    size_t with_processors = 0;

    for (size_t i = 0; i < nodes->count; i++) {
        describe(&nodes->nodes[i], &line);
        with_processors += nodes->nodes[i].processors.text[0] != '\0';
    }
    findings_add(e->findings,
                 (struct finding){
                     .name = "numa",
                     .state = with_processors > 1 ? FINDING_NOTE : FINDING_GOOD,
                     .value = json_integer((json_int_t)nodes->count),
                     .text = line.text,
                     .advice = "if one node's memory is enough, bind embtierd to it: numactl "
                               "--cpunodebind=0 --membind=0 embtierd; else spread its memory: "
                               "numactl --interleave=all embtierd",
                 });
}

void check_numa(const struct examination *e)
{
    struct nodes nodes;

    nodes_read(e->host, &nodes);
    if (nodes.count == 0 || nodes.is_damaged)
        findings_add_unknown(e->findings, "numa", "/sys/devices/system/node");
    else
        add(e, &nodes);
    nodes_clear(&nodes);
}
