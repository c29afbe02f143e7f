/* SPDX-License-Identifier: Apache-2.0 */
/* make_monitoring: writes what Prometheus and Grafana need, from the tables of the code.
 *
 *   make_monitoring rules >embtier.rules.yml
 *   make_monitoring dashboard >embtier-dashboard.json
 *
 * Each name of a metric in a query is looked up in the table of metrics. One that Prometheus would
 * not find is an error, so the files cannot fall behind the code. */
#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/control/metrics.h"
#include "daemon/health/health.h"
#include "daemon/health/health_alerts.h"
#include "docs/monitoring/panels.h"

#define PREFIX "embtier_"

/* ---- Names ---- */

static const struct {
    const char *name;
    enum metric_kind kind;
} metrics[] = {
#define COUNTER                                 METRIC_KIND_COUNTER
#define GAUGE                                   METRIC_KIND_GAUGE
#define HISTOGRAM                               METRIC_KIND_HISTOGRAM
#define METRIC(name, kind, help, label, source) { #name, kind },
    METRIC_TABLE(METRIC)
#undef METRIC
};

static bool is_name(const char *name, size_t bytes)
{
    static const char *const ends[][4] = {
        [METRIC_KIND_GAUGE] = { "" },
        [METRIC_KIND_COUNTER] = { "_total" },
        [METRIC_KIND_HISTOGRAM] = { "_bucket", "_sum", "_count" },
    };

    for (size_t m = 0; m < ARRAY_LEN(metrics); m++)
        for (size_t e = 0; e < ARRAY_LEN(ends[0]) && ends[metrics[m].kind][e]; e++) {
            char known[128];

            snprintf(known, sizeof(known), PREFIX "%s%s", metrics[m].name,
                     ends[metrics[m].kind][e]);
            if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
                return true;
        }
    return false;
}

/* Ends the program unless all names in @query are metrics. */
static void check_names(const char *query)
{
    for (const char *at = strstr(query, PREFIX); at; at = strstr(at + 1, PREFIX)) {
        const size_t bytes = strspn(at, "abcdefghijklmnopqrstuvwxyz_");

        if (is_name(at, bytes))
            continue;
        fprintf(stderr, "make_monitoring: `%.*s` is no metric\n", (int)bytes, at);
        exit(1);
    }
}

/* ---- Rules ---- */

static void print_quoted(const char *key, const char *text)
{
    printf("%s: \"", key);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    puts("\"");
}

/* Prints disk_full as EmbtierDiskFull. */
static void print_alert_name(const char *name)
{
    bool is_first = true;

    printf("      - alert: Embtier");
    for (; *name != '\0'; name++) {
        if (*name != '_')
            putchar(is_first ? toupper((unsigned char)*name) : *name);
        is_first = *name == '_';
    }
    putchar('\n');
}

static const struct health_rule *rule_named(const char *name)
{
    for (size_t i = 0; i < health_rule_count; i++)
        if (strcmp(health_rules[i].name, name) == 0)
            return &health_rules[i];
    fprintf(stderr, "make_monitoring: there is no rule `%s`\n", name);
    exit(1);
}

static void print_alert(const struct health_alert *alert)
{
    const struct health_rule own = { .name = alert->name,
                                     .health = HEALTH_BAD,
                                     .condition = alert->condition,
                                     .advice = alert->advice };
    const struct health_rule *const rule = alert->rule ? rule_named(alert->rule) : &own;

    check_names(alert->query);
    print_alert_name(rule->name);
    print_quoted("        expr", alert->query);
    printf("        for: %s\n        labels:\n          severity: %s\n        annotations:\n",
           alert->lasts, rule->health == HEALTH_BAD ? "critical" : "warning");
    print_quoted("          summary", rule->condition);
    print_quoted("          description", rule->advice);
}

/* Each rule of health has an alert. */
static void check_rules(void)
{
    for (size_t r = 0; r < health_rule_count; r++) {
        size_t a = 0;

        while (a < health_alert_count &&
               (!health_alerts[a].rule || strcmp(health_alerts[a].rule, health_rules[r].name) != 0))
            a++;
        if (a < health_alert_count)
            continue;
        fprintf(stderr, "make_monitoring: rule `%s` has no alert in health_alerts.c\n",
                health_rules[r].name);
        exit(1);
    }
}

static void print_rules(void)
{
    check_rules();
    puts("# Alerts about embtierd, for Prometheus: rule_files in prometheus.yml. Made by the build "
         "from the rules of `embtier status`.");
    puts("groups:\n  - name: embtier\n    rules:");
    for (size_t i = 0; i < health_alert_count; i++)
        print_alert(&health_alerts[i]);
}

/* ---- The dashboard ---- */

#define PANEL_WIDTH  12
#define PANEL_HEIGHT 8

static json_t *panel_json(const struct panel *panel, int number)
{
    check_names(panel->query);
    return json_pack("{s:i, s:s, s:s, s:{s:s, s:s}, s:{s:i, s:i, s:i, s:i}, s:{s:{s:s}, s:[]}, "
                     "s:[{s:s, s:s, s:s}]}",
                     "id", number + 1, "type", "timeseries", "title", panel->title, "datasource",
                     "type", "prometheus", "uid", "${datasource}", "gridPos", "x",
                     number % 2 * PANEL_WIDTH, "y", number / 2 * PANEL_HEIGHT, "w", PANEL_WIDTH,
                     "h", PANEL_HEIGHT, "fieldConfig", "defaults", "unit", panel->unit, "overrides",
                     "targets", "refId", "A", "expr", panel->query, "legendFormat", panel->legend);
}

static void print_dashboard(void)
{
    json_t *const list = json_array();
    json_t *dashboard;

    for (size_t i = 0; i < ARRAY_LEN(panels); i++)
        (void)json_array_append_new(list, panel_json(&panels[i], (int)i));
    dashboard = json_pack(
        "{s:s, s:s, s:i, s:s, s:[s], s:{s:s, s:s}, s:{s:[{s:s, s:s, s:s}, {s:s, s:s, s:{s:s, s:s}, "
        "s:s, s:i, s:b, s:b}]}, s:o}",
        "title", "embtier", "uid", "embtier", "schemaVersion", 36, "refresh", "30s", "tags",
        "embtier", "time", "from", "now-1h", "to", "now", "templating", "list", "name",
        "datasource", "type", "datasource", "query", "prometheus", "name", "instance", "type",
        "query", "datasource", "type", "prometheus", "uid", "${datasource}", "query",
        "label_values(embtier_ready, instance)", "refresh", 2, "includeAll", 1, "multi", 1,
        "panels", list);
    if (!dashboard || json_dumpf(dashboard, stdout, JSON_INDENT(2)) != 0)
        exit(1);
    putchar('\n');
    json_decref(dashboard);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "rules") == 0)
        print_rules();
    else if (argc == 2 && strcmp(argv[1], "dashboard") == 0)
        print_dashboard();
    else
        return 2;
    return fflush(stdout) == 0 ? 0 : 1;
}
