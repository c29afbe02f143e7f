/* SPDX-License-Identifier: Apache-2.0 */
/* make_man: fills a man page's template with the tables that the code itself is made from.
 *
 *   make_man TEMPLATE EMBTIER [EMULATOR] >PAGE     (of another processor's EMBTIER)
 *
 * A template is mdoc. A line @NAME@ in it is replaced by the items of the table NAME, to stand in a
 * .Bl list; an unknown name is an error. @COMMANDS@ is what the command line EMBTIER says of
 * itself. So a page cannot fall behind the code. */
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/embtier_err.h"
#include "base/embtier_types.h"
#include "base/macros.h"
#include "base/spec/table_spec.h"
#include "base/spec/tier_spec.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "daemon/control/metrics.h"

/* Text as roff takes it literally: backslashes and, by number, all that is not ASCII. */
static void print_text(const char *text)
{
    mbstate_t state = { 0 };
    wchar_t letter;

    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    while (*text != '\0') {
        const size_t bytes = mbrtowc(&letter, text, MB_CUR_MAX, &state);

        if (bytes == (size_t)-1 || bytes == (size_t)-2)
            exit(1);
        if (letter == '\\')
            fputs("\\e", stdout);
        else if (letter < 128)
            putchar((int)letter);
        else
            printf("\\[u%04X]", (unsigned)letter);
        text += bytes;
    }
}

/* @text with its `code` in the font of literals: the macro .Ql takes a whole line. */
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
        const char *const text = strsep(&line, "\t");

        if (line == NULL || text == NULL)
            exit(1);
        print_item("Ic", name, text);
        printf(".br\nValue: ");
        print_text(type);
        printf("\n.br\nDefault: ");
        print_text(default_text);
        printf("\n");
        if (strcmp(line, "live") == 0)
            printf(".br\nLive: a running server takes a new value.\n");
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

static void print_optimizer(int optimizer, const char *word, const char *what)
{
    struct hyperparameters_text defaults;

    print_item("Cm", word, what);
    optimizer_defaults_text(&defaults, optimizer);
    if (*defaults.text != '\0')
        printf(".br\nHyperparameters: %s\n", defaults.text);
}

static void print_optimizers(void)
{
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    print_optimizer(number, word, text);
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
}

static void print_hyperparameters(void)
{
#define X(name, field, lowest, highest, standard, text)                                            \
    print_item("Fa", #field, text);                                                                \
    printf(".br\nAllowed: %s to %s\n", #lowest, #highest);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
}

static void print_pools(void)
{
#define X(name, number, word, text) print_item("Cm", word, text);
    EMBTIER_POOL_TABLE(X)
#undef X
}

static void print_durabilities(void)
{
#define X(name, number, word, text) print_item("Cm", word, text);
    EMBTIER_DURABILITY_TABLE(X)
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
#define METRIC(name, kind, help, label, source)                                                    \
    print_item("Va", #name, help);                                                                 \
    if (*label != '\0')                                                                            \
        printf(".Pq by %s\n", label);
    METRIC_TABLE(METRIC)
#undef METRIC
}

static const char *embtier; /* the program */
static const char *emulator = "";

static FILE *run_embtier(const char *arguments)
{
    char command[4096];
    FILE *said;

    snprintf(command, sizeof(command), "%s '%s' %s", emulator, embtier, arguments);
    said = popen(command, "r");
    if (said == NULL)
        exit(1);
    return said;
}

static void close_embtier(FILE *said)
{
    if (pclose(said) != 0)
        exit(1);
}

/* The help of one command without the options that all have. */
static void print_command(const char *words)
{
    char arguments[640]; /* a line and an option */
    char line[512];
    bool common = false;
    FILE *said;

    snprintf(arguments, sizeof(arguments), "%s --help", words);
    printf(".Ss %s\n.Bd -literal\n", words);
    said = run_embtier(arguments);
    while (fgets(line, sizeof(line), said) != NULL) {
        common = common || strncmp(line, "Options of every command", 24) == 0;
        if (!common)
            print_text(line);
    }
    close_embtier(said);
    printf(".Ed\n");
}

/* One command a line stands in the help's part "Commands:": "  table create   make a table". */
static void print_commands(void)
{
    char line[512];
    bool inside = false;
    FILE *const said = run_embtier("--help");

    while (fgets(line, sizeof(line), said) != NULL) {
        char *end;

        if (strcmp(line, "Commands:\n") == 0) {
            inside = true;
        } else if (inside && strncmp(line, "  ", 2) == 0) {
            end = strstr(line + 2, "  ");
            if (end == NULL)
                end = line + strcspn(line, "\n");
            *end = '\0';
            print_command(line + 2);
        } else {
            inside = false;
        }
    }
    close_embtier(said);
}

static const struct {
    const char *name;
    void (*print)(void);
} tables[] = {
    { "CONFIG_KEYS", print_config_keys },
    { "TIER_KINDS", print_tier_kinds },
    { "DTYPES", print_dtypes },
    { "OPTIMIZERS", print_optimizers },
    { "HYPERPARAMETERS", print_hyperparameters },
    { "INITS", print_inits },
    { "POOLS", print_pools },
    { "DURABILITIES", print_durabilities },
    { "ERRORS", print_errors },
    { "METRICS", print_metrics },
    { "COMMANDS", print_commands },
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

    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: make_man TEMPLATE EMBTIER [EMULATOR] >PAGE\n");
        return 2;
    }
    embtier = argv[2];
    if (argc == 4)
        emulator = argv[3];
    setlocale(LC_CTYPE, "C.UTF-8");
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
