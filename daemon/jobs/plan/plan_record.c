/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/plan/plan_record.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

#define VERSION 1

struct plan_record {
    char *directory;
    pthread_mutex_t lock; /* protects @state */
    struct plan_state state;
};

/* ---- The file ---- */

/* Numbers above 2^63 - 1 do not fit into JSON's integers, so they are hex digits. */
static bool read_hex(const json_t *root, const char *key, uint64_t *ret_value)
{
    const char *const text = json_string_value(json_object_get(root, key));

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *ret_value = strtoull(text, NULL, 16);
    return true;
}

static json_t *hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return json_string(text);
}

#define WAY_OUT "remove the file; then no plan is in force, and all tables stay where they are"

static enum embtier_err parse(const char *path, const char *text, struct plan_state *ret_state,
                              struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    enum embtier_err err;
    json_error_t error;
    json_t *root;

    err = summed_json_check(path, text, true, &why);
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s: " WAY_OUT, why.text);
    root = json_loads(text, 0, &error);
    if (json_integer_value(json_object_get(root, "version")) > VERSION)
        err = err_set(msg, EMBTIER_VERSION, "%s: a newer version of embtier wrote it", path);
    else if (!read_hex(root, "generation", &ret_state->generation) ||
             !read_hex(root, "hash", &ret_state->hash) ||
             !read_hex(root, "applied_ms", &ret_state->applied_ms))
        err = err_set(msg, EMBTIER_CORRUPT,
                      "%s: damaged: it lacks generation, hash or applied_ms: " WAY_OUT, path);
    ret_state->tables = (uint32_t)json_integer_value(json_object_get(root, "tables"));
    json_decref(root);
    return err;
}

static enum embtier_err write_state(const char *directory, const struct plan_state *state,
                                    struct err_msg *msg)
{
    json_t *const root =
        json_pack("{s:s, s:i, s:o, s:o, s:o, s:I}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "version",
                  VERSION, "generation", hex(state->generation), "hash", hex(state->hash),
                  "applied_ms", hex(state->applied_ms), "tables", (json_int_t)state->tables);
    const enum embtier_err err = summed_json_write(directory, PLAN_RECORD_FILE, root, msg);

    json_decref(root);
    return err;
}

/* ---- The record ---- */

static enum embtier_err read_state(struct plan_record *record, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL, *path = NULL;
    const enum embtier_err err = durable_file_read(record->directory, PLAN_RECORD_FILE, &text, msg);

    if (err == EMBTIER_NOT_FOUND)
        return EMBTIER_OK;
    TRY(err);
    if (asprintf(&path, "%s/%s", record->directory, PLAN_RECORD_FILE) < 0)
        return err_set(msg, EMBTIER_NO_MEMORY, "plan: out of memory");
    return parse(path, text, &record->state, msg);
}

enum embtier_err plan_record_open(const char *directory, struct plan_record **ret_record,
                                  struct err_msg *msg)
{
    _cleanup_(plan_record_freep) struct plan_record *record = calloc(1, sizeof(*record));

    if (!record)
        return err_set(msg, EMBTIER_NO_MEMORY, "plan: out of memory");
    pthread_mutex_init(&record->lock, NULL);
    record->directory = strdup(directory);
    if (!record->directory)
        return err_set(msg, EMBTIER_NO_MEMORY, "plan: out of memory");
    TRY(read_state(record, msg));
    *ret_record = TAKE(record);
    return EMBTIER_OK;
}

void plan_record_free(struct plan_record *record)
{
    if (!record)
        return;
    pthread_mutex_destroy(&record->lock);
    free(record->directory);
    free(record);
}

struct plan_state plan_record_get(struct plan_record *record)
{
    struct plan_state state;

    pthread_mutex_lock(&record->lock);
    state = record->state;
    pthread_mutex_unlock(&record->lock);
    return state;
}

enum embtier_err plan_record_check(struct plan_record *record, uint64_t generation, uint64_t hash,
                                   struct err_msg *msg)
{
    const struct plan_state state = plan_record_get(record);

    if (generation < state.generation)
        return err_set(msg, EMBTIER_MISMATCH,
                       "the plan has generation %" PRIu64 ", and the one in force has %" PRIu64
                       ": make a new plan with `embtier plan make --previous` and that one, or "
                       "stop the server and remove %s/" PLAN_RECORD_FILE,
                       generation, state.generation, record->directory);
    if (generation == state.generation && hash != state.hash)
        return err_set(msg, EMBTIER_MISMATCH,
                       "another plan of generation %" PRIu64
                       " is in force: make a new plan with `embtier plan make --previous` and "
                       "that one",
                       generation);
    return EMBTIER_OK;
}

enum embtier_err plan_record_set(struct plan_record *record, const struct plan_state *state,
                                 struct err_msg *msg)
{
    TRY(write_state(record->directory, state, msg));
    pthread_mutex_lock(&record->lock);
    record->state = *state;
    pthread_mutex_unlock(&record->lock);
    return EMBTIER_OK;
}
