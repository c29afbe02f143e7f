/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/plan_inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/text/text_escape.h"
#include "tools/cli/number.h"

#define NUMBER_MAX 1e12
#define HASH_BYTES (64 * KIB)

static uint32_t find_table(const struct measured_profile *profile, const char *name)
{
    uint32_t i = 0;

    while (i < profile->table_count && strcmp(profile->tables[i].table.name, name) != 0)
        i++;
    return i;
}

/* Sets one table's optimizer, or that of all if @table is NULL. */
static enum embtier_err set_optimizer(const struct measured_profile *profile,
                                      enum embtier_optimizer *optimizers, const char *table,
                                      const char *word, struct err_msg *msg)
{
    const int optimizer = optimizer_parse(word);
    uint32_t first = 0, end = profile->table_count;

    if (optimizer < 0)
        return err_set(msg, EMBTIER_INVALID,
                       "--optimizer: there is no optimizer '%s'; see `embtier table create --help`",
                       TEXT_SHOWN(word));
    if (table) {
        first = find_table(profile, table);
        if (first == end)
            return err_set(msg, EMBTIER_NO_TABLE,
                           "--optimizer: the profile has no table '%s'; allowed: one of its tables",
                           TEXT_SHOWN(table));
        end = first + 1;
    }
    for (uint32_t i = first; i < end; i++)
        optimizers[i] = (enum embtier_optimizer)optimizer;
    return EMBTIER_OK;
}

enum embtier_err plan_inputs_optimizers(const struct measured_profile *profile, const char *text,
                                        enum embtier_optimizer **ret_optimizers,
                                        struct err_msg *msg)
{
    _cleanup_(freep) enum embtier_optimizer *optimizers =
        calloc(profile->table_count, sizeof(*optimizers));
    _cleanup_(freep) char *copy = text ? strdup(text) : NULL;
    char *rest = copy;

    if ((text && !copy) || !optimizers)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < profile->table_count; i++)
        optimizers[i] = profile->tables[i].optimizer;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        char *const equals = strchr(word, '=');

        if (equals)
            *equals = '\0';
        TRY(set_optimizer(profile, optimizers, equals ? word : NULL, equals ? equals + 1 : word,
                          msg));
    }
    *ret_optimizers = TAKE(optimizers);
    return EMBTIER_OK;
}

void plan_inputs_tell_state(const struct measured_profile *profile, const char *text)
{
    for (uint32_t i = 0; i < profile->table_count; i++)
        if (profile->tables[i].has_optimizer)
            return;
    if (!text)
        puts("\nno optimizer is known, so rows are planned without optimizer state (--optimizer)");
}

/* Opens a file that will be read more than once. The open of a pipe does not wait. */
static enum embtier_err open_regular(const char *path, int *ret_fd, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "%s: cannot be opened", path);
    if (!S_ISREG(info.st_mode))
        return err_set(msg, EMBTIER_INVALID,
                       "%s: is no regular file; allowed: a file that can be read more than once, "
                       "so save it first",
                       path);
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

static enum embtier_err hash_all(int fd, const char *path, XXH3_state_t *state, struct err_msg *msg)
{
    _cleanup_(freep) char *buffer = malloc(HASH_BYTES);
    ssize_t got;

    if (!buffer)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    (void)XXH3_64bits_reset(state);
    while ((got = read(fd, buffer, HASH_BYTES)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(msg, errno, "%s: cannot be read", path);
        (void)XXH3_64bits_update(state, buffer, (size_t)got);
    }
    return EMBTIER_OK;
}

enum embtier_err plan_inputs_hash(const char *path, uint64_t *ret_hash, struct err_msg *msg)
{
    _cleanup_(closep) int fd = -1;
    XXH3_state_t *state;
    enum embtier_err err;

    TRY(open_regular(path, &fd, msg));
    state = XXH3_createState();
    if (!state)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    err = hash_all(fd, path, state, msg);
    if (err == EMBTIER_OK)
        *ret_hash = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
    return err;
}

enum embtier_err plan_inputs_rules(const struct measured_profile *profile,
                                   const struct machine *machine, const char *path,
                                   struct rules **ret_rules, struct err_msg *msg)
{
    _cleanup_(freep) const char **names = NULL;
    _cleanup_(closep) int fd = -1;

    if (!path)
        return rules_new(ret_rules);
    TRY(open_regular(path, &fd, msg)); /* each machine of a comparison reads it again */
    names = calloc(profile->table_count, sizeof(*names));
    if (!names)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < profile->table_count; i++)
        names[i] = profile->tables[i].table.name;
    return rules_file_load(path, machine, names, profile->table_count, ret_rules, msg);
}

int plan_inputs_number(const struct cli *cli, const char *name, const char *text,
                       double *ret_number)
{
    double number;

    if (!number_is_double(text, &number) || number <= 0 || number > NUMBER_MAX)
        return cli_usage(cli, "--%s %s: allowed: a number above 0, up to %g", name,
                         TEXT_SHOWN(text), NUMBER_MAX);
    *ret_number = number;
    return -1;
}
