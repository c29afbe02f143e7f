/* SPDX-License-Identifier: Apache-2.0 */
/* embtier support-bundle: one archive with what a person elsewhere needs to understand a server. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/text_after.h"
#include "base/text/text_escape.h"
#include "config/config_items.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "tools/cli/child/child_output.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/support/bundle_files.h"
#include "tools/cli/support/bundle_logs.h"
#include "tools/cli/support/store_list.h"

#define CHILD_LIMIT_MS  60000
#define PART_BYTES_MAX  (16 * MIB)
#define ARGUMENTS_MAX   16
#define DIRECTORY_KEY   "data.directories["
#define JOURNAL_LINES   "--lines=5000"
#define JOURNAL_PROGRAM "journalctl"

struct bundle {
    struct cli *cli;
    const char *out_path;
    const char *config_path; /* NULL: none is known */
    const char *log_path;    /* NULL: the journal */
    struct bundle_files *files;
    json_t *directories;    /* of data: of the server, or of the file and the store's list */
    struct err_msg silence; /* why the server cannot be asked; "" if it can */
};

/* ---- Parts that other commands print ---- */

enum need { NEEDS_SERVER, NEEDS_NOTHING, TAKES_CONFIG };

static const struct part {
    const char *name;
    enum need need;
    int worst_exit; /* a greater status is a failure; 1 of some commands is a finding */
    const char *arguments[5];
} parts[] = {
    { "doctor.json", TAKES_CONFIG, EXIT_FAILED, { "-o", "json", "doctor" } },
    { "status.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "status" } },
    { "status.txt", NEEDS_SERVER, EXIT_DONE, { "status", "--all" } },
    { "stats.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "stats" } },
    { "config.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "config", "show" } },
    { "config-diff.json", NEEDS_SERVER, EXIT_FAILED, { "-o", "json", "config", "diff" } },
    { "knobs.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "knob", "list" } },
    { "tables.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "table", "list" } },
    { "clients.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "clients" } },
    { "jobs.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "jobs" } },
    { "checkpoints.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "checkpoint", "list" } },
    { "compaction.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "compaction", "status" } },
    { "endurance.json", NEEDS_SERVER, EXIT_DONE, { "-o", "json", "endurance" } },
};

/* Fills in a call of this program. */
static void make_call(const struct bundle *bundle, const struct part *part, const char *timeout,
                      const char *ret_arguments[ARGUMENTS_MAX])
{
    size_t count = 0;

    ret_arguments[count++] = "/proc/self/exe";
    if (bundle->cli->socket_path) {
        ret_arguments[count++] = "--address";
        ret_arguments[count++] = bundle->cli->socket_path;
    }
    if (bundle->cli->has_timeout) {
        ret_arguments[count++] = "--timeout";
        ret_arguments[count++] = timeout;
    }
    for (size_t i = 0; i < ARRAY_LEN(part->arguments) && part->arguments[i]; i++)
        ret_arguments[count++] = part->arguments[i];
    if (part->need == TAKES_CONFIG && bundle->config_path) {
        ret_arguments[count++] = "--config";
        ret_arguments[count++] = bundle->config_path;
    }
    ret_arguments[count] = NULL;
}

/* Takes the paths of data directories from the output of `config show`. */
static void take_directories(struct bundle *bundle, const char *text)
{
    json_t *const root = json_loads(text, 0, NULL);
    json_t *const keys = json_object_get(root, "keys");
    json_t *key;
    size_t i;

    json_array_foreach(keys, i, key)
    {
        const char *const name = json_string_value(json_object_get(key, "name"));
        json_t *const value = json_object_get(key, "value");

        if (name && text_after(name, DIRECTORY_KEY) && json_is_string(value))
            (void)json_array_append(bundle->directories, value);
    }
    json_decref(root);
}

static void add_output(struct bundle *bundle, const struct part *part, struct child_output *output)
{
    struct err_msg why;

    if (output->exit_status >= 0 && output->exit_status <= part->worst_exit && output->bytes > 0) {
        if (strcmp(part->name, "config.json") == 0)
            take_directories(bundle, output->text);
        bundle_files_add(bundle->files, part->name, output->text, output->bytes);
        return;
    }
    err_write(&why, "%s", output->said.text[0] ? output->said.text : "it printed nothing");
    if (output->exit_status == EXIT_NO_SERVER)
        bundle->silence = why;
    bundle_files_lack(bundle->files, part->name, why.text);
}

static void add_part(struct bundle *bundle, const struct part *part)
{
    _cleanup_(child_output_clear) struct child_output output = { 0 };
    const char *arguments[ARGUMENTS_MAX];
    struct err_msg msg;
    char timeout[32];

    /* One wait for a server that does not answer is enough. */
    if (part->need == NEEDS_SERVER && bundle->silence.text[0]) {
        bundle_files_lack(bundle->files, part->name, bundle->silence.text);
        return;
    }
    snprintf(timeout, sizeof(timeout), "%.3f", bundle->cli->timeout_ms / 1000.0);
    make_call(bundle, part, timeout, arguments);
    if (child_output_take(arguments, CHILD_LIMIT_MS, PART_BYTES_MAX, &output, &msg) != EMBTIER_OK)
        bundle_files_lack(bundle->files, part->name, msg.text);
    else
        add_output(bundle, part, &output);
}

/* ---- Parts of this program's own ---- */

static void add_json(struct bundle *bundle, const char *name, json_t *value)
{
    char *const text = value ? json_dumps(value, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;

    if (text)
        bundle_files_add(bundle->files, name, text, strlen(text));
    else
        bundle_files_lack(bundle->files, name, err_text(EMBTIER_NO_MEMORY));
    free(text);
    json_decref(value);
}

/* The name of the system, such as "Debian GNU/Linux 12 (bookworm)". */
static void read_system_name(char *ret_name, size_t room)
{
    FILE *const file = fopen("/etc/os-release", "re");
    char line[256];

    snprintf(ret_name, room, "?");
    while (file && fgets(line, sizeof(line), file)) {
        const char *const name = text_after(line, "PRETTY_NAME=\"");

        if (name)
            snprintf(ret_name, room, "%.*s", (int)strcspn(name, "\"\n"), name);
    }
    if (file)
        (void)fclose(file);
}

static void add_versions(struct bundle *bundle)
{
    struct utsname kernel = { 0 };
    struct number_text date;
    char name[256];

    (void)uname(&kernel);
    read_system_name(name, sizeof(name));
    add_json(bundle, "versions.json",
             json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "embtier", embtier_version(), "kernel",
                       kernel.release, "kernel_version", kernel.version, "machine", kernel.machine,
                       "system", cli_json_text(name), "made",
                       json_string(number_date(&date, clock_wall_ms()))));
}

static enum embtier_err add_item(void *context, const struct config_item *item)
{
    json_t *const keys = context;

    return json_array_append_new(keys, json_pack("{s:s, s:o, s:s}", "name", item->name, "value",
                                                 cli_json_text(item->value), "source",
                                                 item->in_file ? "file" : "default")) == 0
               ? EMBTIER_OK
               : EMBTIER_NO_MEMORY;
}

/* Adds the values that a start with the file would have. Comments are left out. */
static void add_config_file(struct bundle *bundle)
{
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    json_t *keys;

    if (!bundle->config_path) {
        bundle_files_lack(bundle->files, "config-file.json",
                          "there is no " EMBTIER_CONFIG_FILE "; --config names another file");
        return;
    }
    if (config_load(bundle->config_path, budget_unbudgeted, &config, &msg) != EMBTIER_OK) {
        bundle_files_lack(bundle->files, "config-file.json", msg.text);
        return;
    }
    keys = json_array();
    if (keys && config_each_item(config, add_item, keys) != EMBTIER_OK) {
        json_decref(keys);
        keys = NULL;
    }
    add_json(bundle, "config-file.json", keys ? json_pack("{s:o}", "keys", keys) : NULL);
    if (json_array_size(bundle->directories) > 0)
        return;
    for (size_t i = 0; i < config->data.directory_count; i++)
        (void)json_array_append_new(bundle->directories, json_string(config->data.directories[i]));
    store_list_follow(bundle->directories);
}

static void add_journal(struct bundle *bundle)
{
    static const char *const arguments[] = { JOURNAL_PROGRAM, "--unit=embtierd",    JOURNAL_LINES,
                                             "--no-pager",    "--output=short-iso", NULL };
    _cleanup_(child_output_clear) struct child_output output = { 0 };
    struct err_msg msg;

    if (child_output_take(arguments, CHILD_LIMIT_MS, PART_BYTES_MAX, &output, &msg) != EMBTIER_OK)
        bundle_files_lack(bundle->files, "log.txt", msg.text);
    else if (output.exit_status != 0)
        bundle_files_lack(bundle->files, "log.txt", output.said.text);
    else
        bundle_files_add(bundle->files, "log.txt", output.text, output.bytes);
}

static void add_logs(struct bundle *bundle)
{
    unsigned count = 0;
    json_t *directory;
    size_t i;

    if (bundle->log_path)
        bundle_logs_add(bundle->files, bundle->log_path, "log.txt");
    else
        add_journal(bundle);
    json_array_foreach(bundle->directories, i, directory)
        bundle_logs_add_rocksdb(bundle->files, json_string_value(directory), (unsigned)i, &count);
    if (count == 0)
        bundle_files_lack(
            bundle->files, "rocksdb",
            "no LOG in the data directories that are known here; RocksDB makes one when it "
            "has something to say");
}

/* ---- The command ---- */

enum { OPTION_LOG = 256 };

/* Returns -1, or the exit code. */
static int parse(struct cli *cli, int argc, char **argv, struct bundle *bundle)
{
    static const struct option options[] = { { "file", required_argument, NULL, 'f' },
                                             { "config", required_argument, NULL, 'c' },
                                             { "log", required_argument, NULL, OPTION_LOG },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        if (option == 'f')
            bundle->out_path = optarg;
        else if (option == 'c')
            bundle->config_path = optarg;
        else
            bundle->log_path = optarg;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

static void collect(struct bundle *bundle)
{
    add_versions(bundle);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        add_part(bundle, &parts[i]);
    /* Files here are not those of a server elsewhere. */
    if (!cli_server_is_here(bundle->cli))
        return;
    add_config_file(bundle);
    add_logs(bundle);
}

static int report(const struct bundle *bundle, uint64_t bytes)
{
    const json_t *const all = bundle_files_parts(bundle->files);
    struct number_text size;
    const json_t *part;
    size_t missing = 0;
    size_t i;

    if (bundle->cli->json)
        return cli_print_json(json_pack("{s:o, s:I, s:O}", "file", cli_json_text(bundle->out_path),
                                        "bytes", (json_int_t)bytes, "parts", all),
                              JSON_DOUBLE_DIGITS);
    json_array_foreach(all, i, part)
    {
        const char *const why = json_string_value(json_object_get(part, "missing"));

        if (!why)
            continue;
        missing++;
        text_print(stdout, "without %s: %s\n", json_string_value(json_object_get(part, "name")),
                   why);
    }
    text_print(stdout, "%s: %zu parts, %s\n", bundle->out_path, json_array_size(all) - missing,
               number_bytes(&size, (double)bytes));
    puts("It has names of tables, users, clients, hosts and paths. Look through it before you "
         "send it.");
    return EXIT_DONE;
}

static int make_bundle(struct bundle *bundle, const char *name)
{
    struct err_msg msg = { { 0 } };
    uint64_t bytes = 0;
    enum embtier_err err = bundle_files_new(name, &bundle->files, &msg);

    if (err == EMBTIER_OK) {
        collect(bundle);
        err = bundle_files_pack(bundle->files, bundle->out_path, &bytes, &msg);
    }
    return err == EMBTIER_OK ? report(bundle, bytes) : cli_fail(err, msg.text);
}

void help_support_bundle(FILE *out)
{
    fputs(
        "\n"
        "It has the output of doctor, status, stats, config show and diff, knob list, table list,\n"
        "clients, jobs, checkpoint list, compaction status and endurance. Beside it are versions,\n"
        "the values of the configuration's file, the log, and the last 256 KiB of each LOG of\n"
        "RocksDB in all data directories, added ones too. manifest.json lists all parts. A part\n"
        "that cannot be had is left out and named, so the command also works while the server is\n"
        "down. Run it as the server's user, or as root.\n"
        "\n"
        "Rows, keys, tokens, certificates and the access file are not in it. A private key, a "
        "token\n"
        "or the hash of one is written over in logs, too. Names of tables, users, clients, hosts\n"
        "and paths are in it: look through it before you send it.\n"
        "\n"
        "With -o json: {file, bytes, parts: [{name, bytes, hidden_secrets} or {name, missing}]}.\n",
        out);
}

int command_support_bundle(struct cli *cli, int argc, char **argv)
{
    struct bundle bundle = { .cli = cli };
    int exit_code = parse(cli, argc, argv, &bundle);
    const time_t now = time(NULL);
    char name[64], path[80];
    struct tm date;

    if (exit_code >= 0)
        return exit_code;
    gmtime_r(&now, &date);
    strftime(name, sizeof(name), "embtier-support-%Y%m%dT%H%M%SZ", &date);
    snprintf(path, sizeof(path), "%s.tar.gz", name);
    if (!bundle.out_path)
        bundle.out_path = path;
    if (!bundle.config_path && access(EMBTIER_CONFIG_FILE, R_OK) == 0)
        bundle.config_path = EMBTIER_CONFIG_FILE;
    bundle.directories = json_array();
    exit_code = bundle.directories ? make_bundle(&bundle, name) : cli_fail(EMBTIER_NO_MEMORY, "");
    bundle_files_free(bundle.files);
    json_decref(bundle.directories);
    return exit_code;
}
