/* SPDX-License-Identifier: Apache-2.0 */
/* embtier keys token, hash: make a token, and tell the hash by which a server knows it. */
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/text/text_escape.h"
#include "base/tls/secret_file.h"
#include "base/tls/token.h"
#include "tools/cli/cli.h"
#include "tools/cli/keys/key_files.h"

#define TOKEN_FILE_BYTES_MAX (TOKEN_BYTES + 2) /* and a line's end */

enum { OPTION_FORCE = UCHAR_MAX + 1 };

/* @path: NULL if no file has the token. Then, and only then, the token itself is printed. */
static int print_token(const struct cli *cli, const char *path, const struct token *token,
                       const struct token_hash *hash)
{
    if (cli->json)
        return cli_print_json(
            path ? json_pack("{s:o, s:s}", "file", cli_json_text(path), "hash", hash->text)
                 : json_pack("{s:s, s:s}", "token", token->text, "hash", hash->text),
            JSON_DOUBLE_DIGITS);
    if (path)
        printf("%s\n", hash->text);
    else
        printf("token  %s\nhash   %s\n", token->text, hash->text);
    return EXIT_DONE;
}

static enum embtier_err write_token(const char *path, const struct token *token, bool force,
                                    struct err_msg *msg)
{
    char line[TOKEN_BYTES + 1];
    const struct key_file file = { path, KEY_MODE, line, sizeof(line) };
    enum embtier_err err;

    memcpy(line, token->text, TOKEN_BYTES);
    line[TOKEN_BYTES] = '\n';
    err = key_files_write(&file, 1, force, msg);
    OPENSSL_cleanse(line, sizeof(line));
    return err;
}

static int make_token(const struct cli *cli, const char *path, bool force)
{
    struct token token = { "" };
    struct token_hash hash;
    struct err_msg msg;
    enum embtier_err err = token_make(&token, &msg);
    int exit_code;

    if (err == EMBTIER_OK)
        err = token_hash(&token, &hash, &msg);
    if (err == EMBTIER_OK && path)
        err = write_token(path, &token, force, &msg);
    exit_code = err == EMBTIER_OK ? print_token(cli, path, &token, &hash) : cli_fail(err, msg.text);
    OPENSSL_cleanse(&token, sizeof(token));
    return exit_code;
}

int command_keys_token(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "force", no_argument, NULL, OPTION_FORCE },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    bool force = false;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == OPTION_FORCE)
        force = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind > 1)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind + 1]));
    if (argc > optind && argv[optind][0] == '\0')
        return cli_usage(cli, "FILE is empty");
    return make_token(cli, argc > optind ? argv[optind] : NULL, force);
}

static enum embtier_err read_hash(const char *path, struct token_hash *ret_hash,
                                  struct err_msg *msg)
{
    _cleanup_(secret_file_clear) struct secret_file file = { NULL };
    struct token token;
    enum embtier_err err;

    TRY(secret_file_read(path, TOKEN_FILE_BYTES_MAX, &file, msg));
    if (!token_parse(file.text, file.bytes, &token))
        return err_set(msg, EMBTIER_INVALID,
                       "%s holds no token, which is %s and %zu characters in one line; `embtier "
                       "keys token FILE` makes one",
                       path, TOKEN_PREFIX, TOKEN_BYTES - strlen(TOKEN_PREFIX));
    err = token_hash(&token, ret_hash, msg);
    OPENSSL_cleanse(&token, sizeof(token));
    return err;
}

int command_keys_hash(struct cli *cli, int argc, char **argv)
{
    const int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    struct token_hash hash;
    struct err_msg msg;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = read_hash(argv[optind], &hash, &msg);
    return err == EMBTIER_OK ? print_token(cli, argv[optind], NULL, &hash)
                             : cli_fail(err, msg.text);
}
