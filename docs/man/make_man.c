/* SPDX-License-Identifier: Apache-2.0 */
/* make_man: fills a man page's template with the tables that the code itself is made from.
 *
 *   make_man TEMPLATE >PAGE
 *
 * A template is mdoc. A line @NAME@ in it is replaced by the items of the table NAME, to stand in a
 * .Bl list; an unknown name is an error. So a page cannot fall behind the code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/embtier_err.h"
#include "base/embtier_types.h"
#include "base/macros.h"
#include "base/tier_spec.h"
#include "daemon/metrics.h"

/* Text as roff takes it literally. */
static void print_text(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

/* @text with its `code` in the font of literals: the macro .Ql takes a line of its own. */
static void print_sentence(const char *text)
{
    for (const char *tick = strchr(text, '`'); tick != NULL; tick = strchr(text, '`')) {
        const char *const end = strchr(tick + 1, '`');

        if (end == NULL)
            break;
        printf("%.*s\n.Ql %.*s", (int)(tick - text), text, (int)(end - tick - 1), tick + 1);
        text = end + 1;
        if (*text == ',' || *text == '.') /* punctuation belongs on the macro's line */
            printf(" %c", *text++);
        if (*text != '\0') {
            putchar('\n');
            text += strspn(text, " ");
        }
    }
    print_text(text);
    putchar('\n');
}

static void print_item(const char *macro, const char *word, const char *text)
{
    printf(".It %s ", macro);
    print_text(word);
    putchar('\n');
    print_sentence(text);
}

static void print_config_keys(void)
{
    char *keys = NULL;
    size_t keys_bytes = 0;
    FILE *const memory = open_memstream(&keys, &keys_bytes);
    char *rest;

    if (memory == NULL)
        exit(1);
    config_print_keys(memory);
    if (fclose(memory) != 0)
        exit(1);
    rest = keys;
    for (char *line = strsep(&rest, "\n"); line != NULL && *line != '\0';
         line = strsep(&rest, "\n")) {
        const char *const name = strsep(&line, "\t");
        const char *const type = strsep(&line, "\t");
        const char *const default_text = strsep(&line, "\t");

        if (line == NULL)
            exit(1);
        print_item("Ic", name, line);
        printf(".br\nValue: ");
        print_text(type);
        printf("\n.br\nDefault: ");
        print_text(default_text);
        printf("\n");
    }
    free(keys);
}

static void print_tier_kinds(void)
{
#define X(name, word, text) print_item("Cm", word, text);
    TIER_KIND_TABLE(X)
#undef X
}

static void print_dtypes(void)
{
#define X(name, number, word, bytes) print_item("Cm", word, #bytes " bytes for each number");
    EMBTIER_DTYPE_TABLE(X)
#undef X
}

static void print_optimizers(void)
{
#define X(name, number, word, state, text) print_item("Cm", word, text);
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
}

static void print_inits(void)
{
    static const struct {
        const char *word, *first, *second, *text;
    } inits[] = {
#define X(name, number, word, first, second, text) { word, first, second, text },
        EMBTIER_INIT_TABLE(X)
#undef X
    };

    for (size_t i = 0; i < ARRAY_LEN(inits); i++) {
        print_item("Cm", inits[i].word, inits[i].text);
        if (*inits[i].first != '\0')
            printf(".br\nParameters:\n.Ar %s %s\n", inits[i].first, inits[i].second);
    }
}

static void print_errors(void)
{
#define X(name, number, text) print_item("Dv", "EMBTIER_" #name " Pq " #number, text);
    EMBTIER_ERR_TABLE(X)
#undef X
}

static void print_metrics(void)
{
#define METRIC(name, kind, help, label)                                                            \
    print_item("Va", #name, help);                                                                 \
    if (*label != '\0')                                                                            \
        printf(".Pq by %s\n", label);
    METRIC_TABLE(METRIC)
#undef METRIC
}

static const struct {
    const char *name;
    void (*print)(void);
} tables[] = {
    { "CONFIG_KEYS", print_config_keys },
    { "TIER_KINDS", print_tier_kinds },
    { "DTYPES", print_dtypes },
    { "OPTIMIZERS", print_optimizers },
    { "INITS", print_inits },
    { "ERRORS", print_errors },
    { "METRICS", print_metrics },
};

/* Returns 0, or -1 if @line is a directive of no known table. */
static int print_line(const char *line)
{
    size_t length = strcspn(line, "\n");

    if (length < 3 || line[0] != '@' || line[length - 1] != '@')
        return fputs(line, stdout) < 0 ? -1 : 0;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        if (strlen(tables[i].name) == length - 2 &&
            strncmp(tables[i].name, line + 1, length - 2) == 0) {
            tables[i].print();
            return 0;
        }
    }
    fprintf(stderr, "make_man: no table %.*s\n", (int)length, line);
    return -1;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t line_room = 0;
    FILE *template;
    int status = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: make_man TEMPLATE >PAGE\n");
        return 2;
    }
    template = fopen(argv[1], "r");
    if (template == NULL) {
        perror(argv[1]);
        return 1;
    }
    while (status == 0 && getline(&line, &line_room, template) > 0)
        status = print_line(line);
    free(line);
    fclose(template);
    return status == 0 && fflush(stdout) == 0 ? 0 : 1;
}
