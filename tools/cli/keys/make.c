/* SPDX-License-Identifier: Apache-2.0 */
/* embtier keys ca, server, client: make a CA, and certificates by it. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/bio.h>
#include <openssl/pem.h>

#include "base/paths.h"
#include "base/text/text_escape.h"
#include "base/tls/openssl_err.h"
#include "tools/cli/cli.h"
#include "tools/cli/keys/certificate_make.h"
#include "tools/cli/keys/facts.h"
#include "tools/cli/keys/host_names.h"
#include "tools/cli/keys/key_files.h"
#include "tools/cli/number.h"

#define DAY_S           86400
#define DAYS_MAX        36500
#define CA_DAYS_DEFAULT 3650
#define DAYS_DEFAULT    365
#define CLOCK_SLACK_S   300 /* by which a peer's clock may be slow when the certificate is new */
#define CA_NAME_DEFAULT "embtier CA"
#define SERVER_FILES    "server"
#define FILE_NAME_MAX   200 /* bytes; the partial file needs some more */

enum { OPTION_NAME = UCHAR_MAX + 1, OPTION_DAYS, OPTION_FORCE, OPTION_OUT, OPTION_SAN };

struct making {
    struct certificate_order order;
    const char *folder;
    const char *common_name; /* NULL: not given */
    const char *out;         /* name of the files; NULL: not given */
    uint64_t days;           /* 0: not given */
    GENERAL_NAMES *names;
    struct authority authority;
    bool force;
};

static void making_clear(struct making *making)
{
    GENERAL_NAMES_free(making->names);
    authority_clear(&making->authority);
}

/* ---- Options ---- */

/* Returns -1 or the exit code. */
static int take_option(struct cli *cli, int option, struct making *making)
{
    struct err_msg msg;

    switch (option) {
    case OPTION_NAME:
        making->common_name = optarg;
        return -1;
    case OPTION_OUT:
        making->out = optarg;
        return -1;
    case OPTION_FORCE:
        making->force = true;
        return -1;
    case OPTION_DAYS:
        if (number_parse_u64(optarg, &making->days) && making->days >= 1 &&
            making->days <= DAYS_MAX)
            return -1;
        return cli_usage(cli, "--days %s: allowed: 1 to %d", TEXT_SHOWN(optarg), DAYS_MAX);
    case OPTION_SAN:
        if (typed_name_add(optarg, making->names, &msg) == EMBTIER_OK)
            return -1;
        return cli_usage(cli, "--san %s", msg.text);
    default:
        return EXIT_USAGE;
    }
}

/* Parses the command, whose first argument is the folder. The others begin at optind. Returns -1 or
 * the exit code. */
static int take_arguments(struct cli *cli, int argc, char **argv, const struct option *options,
                          int min, int max, struct making *making)
{
    int exit_code = EXIT_USAGE;
    int option;

    making->names = GENERAL_NAMES_new();
    if (!making->names)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        exit_code = take_option(cli, option, making);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind < min)
        return cli_usage(cli, "an argument is missing: %s", cli->command->arguments);
    if (argc - optind > max)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind + max]));
    making->folder = argv[optind++];
    return making->folder[0] != '\0' ? -1 : cli_usage(cli, "DIR is empty");
}

static size_t count_characters(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

/* Returns -1 or the exit code. */
static int check_common_name(const struct cli *cli, const char *name)
{
    if (name[0] != '\0' && text_is_plain(name, strlen(name)) &&
        count_characters(name) <= COMMON_NAME_CHARACTERS_MAX)
        return -1;
    return cli_usage(cli, "name '%s': allowed: 1 to %d visible characters of UTF-8",
                     TEXT_SHOWN(name), COMMON_NAME_CHARACTERS_MAX);
}

/* The files of the CA must not be taken for others, even by --force or by a file system that does
 * not tell capital letters apart. */
static int check_out(const struct cli *cli, const char *out)
{
    if (strcasecmp(out, AUTHORITY_NAME) == 0)
        return cli_usage(cli, "the files '%s' are those of the CA; give --out NAME", out);
    if (out[0] != '\0' && out[0] != '.' && !strchr(out, '/') && strlen(out) <= FILE_NAME_MAX &&
        text_is_plain(out, strlen(out)))
        return -1;
    return cli_usage(cli,
                     "'%s' cannot be the name of files: allowed: 1 to %d bytes, without / and "
                     "without . at the start; give --out NAME",
                     TEXT_SHOWN(out), FILE_NAME_MAX);
}

/* ---- Dates ---- */

/* The certificate may not outlive the CA. */
static enum embtier_err limit_days(struct making *making, time_t now, struct err_msg *msg)
{
    const time_t end = making->authority.not_after;
    const uint64_t left = (uint64_t)(end - now) / DAY_S;

    if (making->order.not_after <= end)
        return EMBTIER_OK;
    if (making->days > 0)
        return err_set(msg, EMBTIER_INVALID,
                       "--days %" PRIu64 " is too long: the CA in %s expires in %" PRIu64
                       " day%s; give less, or make a new CA",
                       making->days, making->folder, left, PLURAL(left));
    making->order.not_after = end;
    return EMBTIER_OK;
}

static enum embtier_err set_dates(struct making *making, struct err_msg *msg)
{
    const bool is_ca = making->order.use == CERTIFICATE_AUTHORITY;
    const uint64_t days = making->days > 0 ? making->days : is_ca ? CA_DAYS_DEFAULT : DAYS_DEFAULT;
    const time_t now = time(NULL);

    making->order.not_before = now - CLOCK_SLACK_S;
    making->order.not_after = now + (time_t)days * DAY_S;
    if (is_ca)
        return EMBTIER_OK;
    making->order.not_before = MAX(making->order.not_before, making->authority.not_before);
    return limit_days(making, now, msg);
}

/* ---- Files ---- */

static struct key_file file_of(const char *path, mode_t mode, BIO *bio)
{
    struct key_file file = { .path = path, .mode = mode };
    char *text = NULL;

    file.bytes = (size_t)BIO_get_mem_data(bio, &text);
    file.text = text;
    return file;
}

/* Peers have the CA's certificate, but if another CA has signed that, they may have only the other
 * one's. */
static bool write_chain(BIO *bio, X509 *certificate, const struct authority *authority)
{
    if (PEM_write_bio_X509(bio, certificate) != 1)
        return false;
    return !authority || X509_self_signed(authority->certificate, 0) == 1 ||
           PEM_write_bio_X509(bio, authority->certificate) == 1;
}

/* The files of a new certificate. */
struct paths {
    char *key, *certificate;
};

static void paths_clear(struct paths *paths)
{
    free(paths->key);
    free(paths->certificate);
}

/* A BIO in memory overwrites its bytes when it is freed. */
static enum embtier_err write_pem(const struct making *making, const struct paths *paths,
                                  const struct certified_key *made, struct err_msg *msg)
{
    BIO *const key = BIO_new(BIO_s_mem()), *const certificate = BIO_new(BIO_s_mem());
    enum embtier_err err;

    if (key && certificate &&
        PEM_write_bio_PKCS8PrivateKey(key, made->key, NULL, NULL, 0, NULL, NULL) == 1 &&
        write_chain(certificate, made->certificate, making->order.authority)) {
        const struct key_file files[] = { file_of(paths->key, KEY_MODE, key),
                                          file_of(paths->certificate, PUBLIC_MODE, certificate) };

        err = key_files_write(files, ARRAY_LEN(files), making->force, msg);
    } else {
        err = openssl_failed(msg, EMBTIER_INTERNAL, "OpenSSL cannot write a key and certificate");
    }
    BIO_free(key);
    BIO_free(certificate);
    return err;
}

static int print_made(const struct cli *cli, const struct paths *paths,
                      const struct certified_key *made)
{
    json_t *const facts = certificate_facts(made->certificate, time(NULL));
    bool done;

    if (!facts)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (cli->json) {
        (void)json_object_set_new(facts, "certificate_file", cli_json_text(paths->certificate));
        (void)json_object_set_new(facts, "key_file", cli_json_text(paths->key));
        return cli_print_json(facts, JSON_DOUBLE_DIGITS);
    }
    text_print(stdout, "made %s and %s\n", paths->certificate, paths->key);
    done = facts_print(facts, stdout);
    json_decref(facts);
    return done ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

static enum embtier_err make_paths(const struct making *making, struct paths *paths,
                                   struct err_msg *msg)
{
    if (asprintf(&paths->key, "%s/%s.key", making->folder, making->out) < 0)
        paths->key = NULL;
    if (asprintf(&paths->certificate, "%s/%s.crt", making->folder, making->out) < 0)
        paths->certificate = NULL;
    if (paths->key && paths->certificate)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static enum embtier_err prepare(struct making *making, struct err_msg *msg)
{
    if (making->order.use != CERTIFICATE_AUTHORITY) {
        TRY(authority_load(making->folder, &making->authority, msg));
        making->order.authority = &making->authority;
    }
    making->order.names = making->names;
    return set_dates(making, msg);
}

/* Returns the exit code. */
static int make(const struct cli *cli, struct making *making)
{
    _cleanup_(certified_key_clear) struct certified_key made = { NULL };
    _cleanup_(paths_clear) struct paths paths = { NULL };
    struct err_msg msg = { { 0 } };
    enum embtier_err err = prepare(making, &msg);

    if (err == EMBTIER_OK)
        err = make_paths(making, &paths, &msg);
    if (err == EMBTIER_OK)
        err = certificate_make(&making->order, &made, &msg);
    if (err == EMBTIER_OK)
        err = write_pem(making, &paths, &made, &msg);
    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    return print_made(cli, &paths, &made);
}

/* ---- Commands ---- */

int command_keys_ca(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "name", required_argument, NULL, OPTION_NAME },
                                             { "days", required_argument, NULL, OPTION_DAYS },
                                             { "force", no_argument, NULL, OPTION_FORCE },
                                             CLI_LONG_OPTIONS };
    _cleanup_(making_clear) struct making making = { .order.use = CERTIFICATE_AUTHORITY,
                                                     .common_name = CA_NAME_DEFAULT,
                                                     .out = AUTHORITY_NAME };
    int exit_code = take_arguments(cli, argc, argv, options, 1, 1, &making);

    if (exit_code < 0)
        exit_code = check_common_name(cli, making.common_name);
    if (exit_code >= 0)
        return exit_code;
    making.order.common_name = making.common_name;
    return make(cli, &making);
}

/* The first name is also the subject, for programs that show only that. */
static const char *subject_of_server(const char *name)
{
    return strlen(name) <= COMMON_NAME_CHARACTERS_MAX ? name : "";
}

int command_keys_server(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "days", required_argument, NULL, OPTION_DAYS },
                                             { "out", required_argument, NULL, OPTION_OUT },
                                             { "force", no_argument, NULL, OPTION_FORCE },
                                             CLI_LONG_OPTIONS };
    _cleanup_(making_clear) struct making making = { .order.use = CERTIFICATE_SERVER,
                                                     .out = SERVER_FILES };
    int exit_code = take_arguments(cli, argc, argv, options, 2, INT_MAX, &making);
    struct err_msg msg;

    if (exit_code < 0)
        exit_code = check_out(cli, making.out);
    if (exit_code >= 0)
        return exit_code;
    for (int i = optind; i < argc; i++)
        if (host_name_add(argv[i], making.names, &msg) != EMBTIER_OK)
            return cli_usage(cli, "%s", msg.text);
    making.order.common_name = subject_of_server(argv[optind]);
    return make(cli, &making);
}

int command_keys_client(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "days", required_argument, NULL, OPTION_DAYS },
                                             { "out", required_argument, NULL, OPTION_OUT },
                                             { "san", required_argument, NULL, OPTION_SAN },
                                             { "force", no_argument, NULL, OPTION_FORCE },
                                             CLI_LONG_OPTIONS };
    _cleanup_(making_clear) struct making making = { .order.use = CERTIFICATE_CLIENT };
    int exit_code = take_arguments(cli, argc, argv, options, 2, 2, &making);

    if (exit_code < 0)
        exit_code = check_common_name(cli, argv[optind]);
    if (exit_code >= 0)
        return exit_code;
    making.order.common_name = argv[optind];
    if (!making.out)
        making.out = argv[optind];
    exit_code = check_out(cli, making.out);
    return exit_code >= 0 ? exit_code : make(cli, &making);
}
