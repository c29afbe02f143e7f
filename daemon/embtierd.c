/* SPDX-License-Identifier: Apache-2.0 */
/* embtierd: the embedding server's main program. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log/log.h"
#include "base/system/standard_fds.h"
#include "base/text/option_mistake.h"
#include "base/text/text_escape.h"
#include "base/version.h"
#include "config/config_keys.h"
#include "config/config_load.h"
#include "config/config_shards.h"
#include "daemon/budget/budget.h"
#include "daemon/control/process/signals.h"
#include "daemon/server.h"
#include "daemon/server_check.h"
#include "store/members/join_leave.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage[] =
    "Usage: embtierd [--config FILE] [--log-level LEVEL] [--restore ID]\n"
    "                [--restore-from DIR,DIR...] [--without-directory DIR]\n"
    "                [--init] [--check]\n"
    "\n"
    "Serves embedding tables. Rows live in RocksDB on SSD, with a row cache in DRAM and\n"
    "persistent memory. Runs in the foreground and logs to standard error. SIGTERM, SIGINT\n"
    "and SIGQUIT stop it after it has written every changed row back.\n"
    "\n"
    "  -c, --config FILE      configuration (YAML); without it, the defaults\n"
    "  -l, --log-level LEVEL  error, warn, info or debug; overrides the configuration\n"
    "      --init             make a new store if the configured directories are empty.\n"
    "                         Without it such a start is refused, because a disk may not be\n"
    "                         mounted. An existing store is not changed. The default\n"
    "                         directory needs no --init\n"
    "      --restore ID       first restore all tables, of every durability, from this\n"
    "                         checkpoint; `embtier checkpoint list` shows the ids. Later\n"
    "                         changes and later tables are lost\n"
    "      --restore-from DIR,DIR...\n"
    "                         first copy all tables from a checkpoint of another store: the\n"
    "                         newest one, or the one that --restore ID names. Name all data\n"
    "                         directories of that store; no server may have it open. The\n"
    "                         numbers of shards, directories and lanes may differ\n"
    "      --without-directory DIR\n"
    "                         first remove this data directory from the store: its drive is\n"
    "                         dead. Refused if it has rows, and if it is there\n"
    "      --check            check that a start would accept the configuration, and exit:\n"
    "                         code 0, or 1 and a line that says what is wrong. Prints\n"
    "                         warnings about certificates and users; they change no code\n"
    "      --help-config      list the keys of the configuration and their defaults\n"
    "  -h, --help             print this help\n"
    "  -V, --version          print the version\n"
    "\n"
    "`embtier config check FILE` finds mistakes in a configuration without a start.\n"
    "See embtierd(8), embtierd.yaml(5), embtier(1).\n";

struct arguments {
    const char *config_path;
    bool has_level;
    enum log_level level;
    bool check;
    bool may_init;       /* a store, if there is none */
    const char *without; /* the directory of a dead drive; NULL: none is left out */
    struct server_restore restore;
    char *directories[CONFIG_DIRECTORIES_MAX]; /* of --restore-from; parts of the argument */
};

/* Raises a limit as far as the process is allowed to. The limit then decides how descriptors are
 * shared out (config_descriptors.h). */
static void raise_limit(int resource)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(resource, &limit);
    }
}

/* RocksDB keeps all table files open, and we open each a second time: that takes as many
 * descriptors as we may have. Shared memory and files may be as long as the system allows. */
static void raise_limits(void)
{
    raise_limit(RLIMIT_NOFILE);
    raise_limit(RLIMIT_FSIZE);
    raise_limit(RLIMIT_NPROC);
}

/* SIGXFSZ is ignored: a file that would become longer is refused as if there were no space. */
static void tell_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        log_warn("this process has a limit of file length (ulimit -f, LimitFSIZE=): files and "
                 "shared memory above it are refused as if there were no space",
                 "bytes=%" PRIu64, (uint64_t)limit.rlim_cur);
}

static bool parse_id(const char *text, uint64_t *ret_id)
{
    char *end;

    errno = 0;
    *ret_id = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *ret_id > 0;
}

/* Cuts @text up. False: it is wrong, and a message says so. */
static bool parse_directories(char *text, struct arguments *arguments)
{
    struct server_restore *const restore = &arguments->restore;
    const size_t length = strlen(text);
    uint32_t count = 1;

    for (const char *at = text; (at = strchr(at, ',')); at++)
        count++;
    if (length == 0 || text[0] == ',' || text[length - 1] == ',' || strstr(text, ",,")) {
        fprintf(stderr, "embtierd: --restore-from %s: a directory is missing%s\n", TEXT_SHOWN(text),
                length > 0 ? " before or after a comma" : "");
        return false;
    }
    if (count > CONFIG_DIRECTORIES_MAX) {
        fprintf(stderr, "embtierd: --restore-from: %u directories, a store has at most %d\n", count,
                CONFIG_DIRECTORIES_MAX);
        return false;
    }
    restore->directories = arguments->directories;
    restore->directory_count = 0;
    for (char *at = text; at;)
        arguments->directories[restore->directory_count++] = strsep(&at, ",");
    return true;
}

/* Returns -1 to go on, else the exit code. */
static int parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' },
        { "log-level", required_argument, NULL, 'l' },
        { "init", no_argument, NULL, 'i' },
        { "restore", required_argument, NULL, 'r' },
        { "restore-from", required_argument, NULL, 'f' },
        { "without-directory", required_argument, NULL, 'w' },
        { "check", no_argument, NULL, 'n' },
        { "help-config", no_argument, NULL, 'k' },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { NULL, 0, NULL, 0 },
    };
    struct err_msg msg;
    int option;

    while ((option = option_next(argc, argv, ":c:l:hV", options, &msg)) != -1) {
        switch (option) {
        case 'c':
            arguments->config_path = optarg;
            break;
        case 'l':
            if (log_level_parse(optarg, &arguments->level) != 0) {
                fprintf(stderr, "embtierd: --log-level %s: allowed: error, warn, info, debug\n",
                        TEXT_SHOWN(optarg));
                return EXIT_USAGE;
            }
            arguments->has_level = true;
            break;
        case 'i':
            arguments->may_init = true;
            break;
        case 'r':
            if (!parse_id(optarg, &arguments->restore.id)) {
                fprintf(stderr, "embtierd: --restore %s: the number of a checkpoint, from 1\n",
                        TEXT_SHOWN(optarg));
                return EXIT_USAGE;
            }
            break;
        case 'f':
            if (!parse_directories(optarg, arguments))
                return EXIT_USAGE;
            break;
        case 'w':
            if (optarg[0] != '/') {
                fprintf(stderr, "embtierd: --without-directory %s: an absolute path\n",
                        TEXT_SHOWN(optarg));
                return EXIT_USAGE;
            }
            arguments->without = optarg;
            break;
        case 'n':
            arguments->check = true;
            break;
        case 'k':
            config_print_keys(stdout);
            return EXIT_DONE;
        case 'h':
            fputs(usage, stdout);
            return EXIT_DONE;
        case 'V':
            printf("embtierd %s\n", EMBTIER_PROJECT_VERSION);
            return EXIT_DONE;
        default:
            fprintf(stderr, "embtierd: %s\nTry 'embtierd --help'.\n", msg.text);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "embtierd: unexpected argument '%s'. Try 'embtierd --help'.\n",
                TEXT_SHOWN(argv[optind]));
        return EXIT_USAGE;
    }
    return -1;
}

/* Takes the store's word for its directories. */
static enum embtier_err settle(struct config *config, const char *without, struct err_msg *msg)
{
    const uint32_t named = config->data.directory_count;

    config->data.without = without;
    TRY(store_settle_directories(config, msg));
    return config->data.directory_count == named ? EMBTIER_OK : config_fit_directories(config, msg);
}

static enum embtier_err serve(const struct arguments *arguments, struct err_msg *msg)
{
    _cleanup_(config_freep) struct config *config = NULL;
    _cleanup_(server_freep) struct server *server = NULL;
    enum embtier_err err;
    enum embtier_err stop_err;
    struct err_msg stop_msg = { { 0 } };

    TRY(config_load(arguments->config_path, budget_unbudgeted, &config, msg));
    if (arguments->may_init)
        config->data.must_exist = false;
    if (arguments->has_level) {
        config->log.level = arguments->level;
        config->log.is_option = true;
    }
    log_set_level(config->log.level);
    TRY(settle(config, arguments->without, msg));
    TRY(config_check_machine(config, msg));
    log_info("embtierd starts", "version=%s config=%s lanes=%u", EMBTIER_PROJECT_VERSION,
             LOG_QUOTED(config->source ? config->source : "(defaults)"), config->lanes.count);
    tell_limits();
    TRY(server_new(config, &arguments->restore, &server, msg));
    err = server_run(server, msg);
    stop_err = server_stop(server, &stop_msg);
    if (err == EMBTIER_OK && stop_err != EMBTIER_OK)
        err = err_set(msg, stop_err, "%s", stop_msg.text);
    return err;
}

static void print_warning(const char *place, const char *what, const char *why)
{
    text_print(stderr, "embtierd: warning: %s: %s: %s\n", place, what, why);
}

static int check(const struct arguments *arguments)
{
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    enum embtier_err err = config_load(arguments->config_path, budget_unbudgeted, &config, &msg);

    if (err == EMBTIER_OK) {
        config->data.must_exist = false; /* the store may be made later */
        err = settle(config, arguments->without, &msg);
    }
    if (err == EMBTIER_OK)
        err = config_check_machine(config, &msg);
    if (err == EMBTIER_OK)
        err = server_check(config, print_warning, print_warning, &msg);
    if (err == EMBTIER_OK)
        return EXIT_DONE;
    fprintf(stderr, "embtierd: %s\n", msg.text[0] ? msg.text : err_text(err));
    return EXIT_FAILED;
}

/* Writes out the rest of the text that --help and the like have printed. Returns the exit code. */
static int print_rest(int code)
{
    if (standard_fds_flush() == 0 || code != EXIT_DONE)
        return code;
    fprintf(stderr, "embtierd: standard output: %s\n", strerror(errno));
    return EXIT_FAILED;
}

static enum embtier_err begin_log(struct err_msg *msg)
{
    const int rc = log_begin();

    return rc == 0 ? EMBTIER_OK : err_set_errno(msg, rc, "cannot start the thread of the log");
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    int code;

    if (standard_fds_open() != 0)
        return EXIT_FAILED; /* there is nowhere to say why */
    signals_begin();
    code = parse_arguments(argc, argv, &arguments);
    if (code >= 0)
        return print_rest(code);
    raise_limits();
    if (arguments.check)
        return check(&arguments);
    err = begin_log(&msg);
    if (err == EMBTIER_OK)
        err = serve(&arguments, &msg);
    if (err != EMBTIER_OK)
        log_error("embtierd ends", "err=%s why=%s", err_name(err),
                  LOG_QUOTED(msg.text[0] ? msg.text : err_text(err)));
    log_end(LOG_END_WAIT_MS);
    return err == EMBTIER_OK ? EXIT_DONE : EXIT_FAILED;
}
