/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/profile_file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/new_file.h"
#include "base/text/text_escape.h"
#include "placement/trace/table_names.h"
#include "placement/trace/trace_format.h"

#define DIGITS 9
/* The longest numbers with a comma: -1.23456789e-308, and the time of the last bin. */
#define REAL_BYTES_MAX 18
#define TIME_BYTES_MAX 17
/* All that is neither a point nor a bin: keys, name, other figures. */
#define LINE_REST_BYTES_MAX 2048
_Static_assert(REUSE_SEGMENTS_MAX *TIME_HISTOGRAM_BINS *(TIME_BYTES_MAX + REAL_BYTES_MAX) +
                       (2 * ACCESS_CDF_POINTS_MAX + REUSE_SEGMENTS_MAX) * REAL_BYTES_MAX +
                       LINE_REST_BYTES_MAX <
                   PROFILE_FILE_LINE_BYTES_MAX,
               "a table's line is not refused");
/* Sums of rounded numbers may differ by this much. */
#define ROUNDING 1e-6
/* A number of DIGITS digits differs by less than this part of it. */
#define DIGITS_ROUNDING 1e-8
/* A threshold that only the hash 0 passes samples so many rows (table_profile.c). */
#define RATE_LEAST (0x1p-64 * (1 - DIGITS_ROUNDING))
/* No point has fewer rows: that is less than the distance of two doubles from 1 on, divided among
 * all rows of a sample. With fewer, a row's lookups could be more than a double holds. */
#define CDF_ROWS_LEAST 0x1p-70
#define KEY_SHOWN      32 /* bytes of a key in a message; all keys are shorter */

static void json_freep(json_t **json)
{
    json_decref(*json);
}

static void file_closep(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

/* ---- Saving ---- */

/* JSON has no unsigned numbers of 64 bits; more rows than a signed one holds are a string. */
static json_t *rows_to_json(uint64_t rows)
{
    char text[32];

    if (rows == 0)
        return json_null();
    if (rows <= INT64_MAX)
        return json_integer((json_int_t)rows);
    snprintf(text, sizeof(text), "%" PRIu64, rows);
    return json_string(text);
}

static bool append(json_t *array, double number)
{
    return json_array_append_new(array, json_real(number)) == 0;
}

static json_t *numbers_to_json(const double *numbers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; array && i < count; i++)
        if (!append(array, numbers[i])) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Makes arrays of times and lookups in turn, one for each segment. */
static json_t *reuse_to_json(const struct measured_table *table, uint32_t segment_count)
{
    json_t *segments = json_array();
    uint32_t next = 0;

    for (uint32_t i = 0; segments && i < segment_count; i++) {
        json_t *const pairs = json_array();
        bool ok = pairs && json_array_append_new(segments, pairs) == 0;

        for (; ok && next < table->bin_count && table->bins[next].segment == i; next++)
            ok = json_array_append_new(pairs, json_integer((json_int_t)time_histogram_begin(
                                                  table->bins[next].bin))) == 0 &&
                 append(pairs, table->bins[next].lookups);
        if (!ok) {
            json_decref(segments);
            return NULL;
        }
    }
    return segments;
}

static json_t *table_to_json(const struct measured_table *table, uint32_t segment_count)
{
    const struct table_summary *const summary = &table->summary;

    return json_pack(
        "{s:s, s:o, s:i, s:s, s:s*, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "name",
        table->table.name, "rows", rows_to_json(table->table.rows), "dim", (int)table->table.dim,
        "dtype", dtype_word(table->table.dtype), "optimizer",
        table->has_optimizer ? optimizer_word((int)table->optimizer) : NULL, "lookups",
        (json_int_t)summary->lookups, "batches", (json_int_t)summary->batches, "pooling_factor",
        table->pooling_factor, "distinct_rows", summary->rows, "batch_rows", summary->batch_rows,
        "updated_batch_rows", summary->updated_batch_rows, "sampling_rate", summary->sampling_rate,
        "cdf_rows", numbers_to_json(table->cdf.rows, table->cdf.point_count), "cdf_shares",
        numbers_to_json(table->cdf.shares, table->cdf.point_count), "first",
        numbers_to_json(table->first, segment_count), "reuse", reuse_to_json(table, segment_count));
}

static json_t *line_to_json(const struct measured_profile *measured, uint32_t line)
{
    if (line > 0)
        return table_to_json(&measured->tables[line - 1], measured->segment_count);
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "format", PROFILE_FILE_FORMAT,
                     "version", PROFILE_FILE_VERSION, "tables", (json_int_t)measured->table_count,
                     "lookups", (json_int_t)measured->lookups, "batches",
                     (json_int_t)measured->batches, "segments", (json_int_t)measured->segment_count,
                     "segment_length", (json_int_t)measured->segment_length);
}

static bool dump_line(const json_t *json, FILE *file)
{
    return json_dumpf(json, file, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS)) == 0 &&
           fputc('\n', file) != EOF;
}

enum embtier_err profile_file_line(const struct measured_profile *measured, uint32_t line,
                                   char **ret_text, size_t *ret_bytes)
{
    _cleanup_(json_freep) json_t *json = line_to_json(measured, line);
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;
    FILE *const file = json ? open_memstream(&text, &bytes) : NULL;
    const bool written = file && dump_line(json, file);

    if (file && fclose(file) != 0)
        return EMBTIER_NO_MEMORY;
    if (!written)
        return EMBTIER_NO_MEMORY;
    *ret_text = TAKE(text);
    *ret_bytes = bytes;
    return EMBTIER_OK;
}

static enum embtier_err write_lines(const struct measured_profile *measured, FILE *file,
                                    const char *path, struct err_msg *msg)
{
    for (uint32_t line = 0; line <= measured->table_count; line++) {
        _cleanup_(json_freep) json_t *json = line_to_json(measured, line);

        if (!json)
            return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
        errno = 0;
        if (!dump_line(json, file))
            return err_set_errno(msg, errno ? errno : EIO, "%s", path);
    }
    return EMBTIER_OK;
}

enum embtier_err profile_file_save(const struct measured_profile *measured, const char *path,
                                   struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *file = NULL;

    TRY(new_file_open(path, &file, msg));
    TRY(write_lines(measured, new_file_stream(file), path, msg));
    return new_file_finish(file, msg);
}

/* ---- Loading ---- */

struct loader {
    const char *path;
    FILE *file;
    uint32_t line;
    struct err_msg *msg;
    struct measured_profile *measured;
};

/* Ends a function with a CORRUPT that names the place. */
#define wrong(loader, ...)                                                                         \
    (err_write((loader)->msg, "%s:%" PRIu32 ": ", (loader)->path, (loader)->line),                 \
     err_append((loader)->msg, __VA_ARGS__), EMBTIER_CORRUPT)

/* Reads a line without its end into @text, which has room for the longest. */
static enum embtier_err read_line(struct loader *loader, char *text, size_t *ret_bytes)
{
    size_t used = 0;
    int letter;

    loader->line++;
    while ((letter = getc_unlocked(loader->file)) != EOF && letter != '\n') {
        if (used == PROFILE_FILE_LINE_BYTES_MAX)
            return wrong(loader, "the line is too long: this is no profile");
        text[used++] = (char)letter;
    }
    if (ferror(loader->file))
        return err_set_errno(loader->msg, errno, "%s", loader->path);
    if (letter == EOF)
        return wrong(loader, "the file was cut short");
    *ret_bytes = used;
    return EMBTIER_OK;
}

/* Is the string that ends before @at a key? JSON allows white space before its colon. */
static bool is_colon_next(const char *text, size_t bytes, size_t at)
{
    while (at < bytes && (text[at] == ' ' || text[at] == '\t'))
        at++;
    return at < bytes && text[at] == ':';
}

/* Finds the last key of the object @text that begins before @bytes: a parser stopped there, in its
 * value. Returns its length without quotes; 0: there is none. */
static size_t find_last_key(const char *text, size_t bytes, const char **ret_key)
{
    size_t begin = 0, length = 0, depth = 0;
    bool is_string = false;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') {
            if (is_string && depth == 1 && text[0] == '{' && is_colon_next(text, bytes, i + 1)) {
                *ret_key = text + begin;
                length = i - begin;
            }
            begin = i + 1;
            is_string = !is_string;
        } else if (is_string) {
            i += text[i] == '\\'; /* the letter behind it may be a quote */
        } else {
            depth += text[i] == '{' || text[i] == '[';
            depth -= depth > 0 && (text[i] == '}' || text[i] == ']');
        }
    }
    return length;
}

/* JSON has no NaN and no infinity, so the parser refuses these without their key. */
static enum embtier_err refuse_text(const struct loader *loader, const char *text, size_t bytes,
                                    const json_error_t *error)
{
    const char *key = "";
    const size_t key_bytes = find_last_key(text, MIN((size_t)MAX(error->position, 0), bytes), &key);
    char shown[KEY_SHOWN + 1];

    snprintf(shown, sizeof(shown), "%.*s", (int)MIN(key_bytes, (size_t)KEY_SHOWN), key);
    return wrong(loader, "%s%scharacter %d: %s", TEXT_SHOWN(shown), key_bytes > 0 ? ": " : "",
                 error->column, TEXT_SHOWN(error->text));
}

static enum embtier_err read_object(struct loader *loader, char *text, json_t **ret_json)
{
    json_error_t error;
    size_t bytes = 0;
    json_t *json;

    TRY(read_line(loader, text, &bytes));
    if (loader->line == 1 && bytes >= strlen(TRACE_MAGIC) &&
        memcmp(text, TRACE_MAGIC, strlen(TRACE_MAGIC)) == 0)
        return wrong(loader, "this is a trace: `embtier profile show TRACE --save FILE` makes a "
                             "profile of it");
    json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return refuse_text(loader, text, bytes, &error);
    if (!json_is_object(json)) {
        json_decref(json);
        return wrong(loader, "not an object");
    }
    *ret_json = json;
    return EMBTIER_OK;
}

/* Takes a number of @key that lies within the limits. */
static enum embtier_err take_number(const struct loader *loader, const char *key,
                                    const json_t *json, double least, double most,
                                    double *ret_number)
{
    if (!json_is_number(json))
        return wrong(loader, "%s: not a number", key);
    if (!(json_number_value(json) >= least && json_number_value(json) <= most))
        return wrong(loader, "%s: %.9g; allowed: %.9g to %.9g", key, json_number_value(json), least,
                     most);
    *ret_number = json_number_value(json);
    return EMBTIER_OK;
}

static enum embtier_err get_number(const struct loader *loader, const json_t *object,
                                   const char *key, double least, double most, double *ret_number)
{
    return take_number(loader, key, json_object_get(object, key), least, most, ret_number);
}

static enum embtier_err get_count(const struct loader *loader, const json_t *object,
                                  const char *key, uint64_t least, uint64_t most,
                                  uint64_t *ret_count)
{
    const json_t *const json = json_object_get(object, key);

    if (!json_is_integer(json))
        return wrong(loader, "%s: not a whole number", key);
    if (json_integer_value(json) < (json_int_t)least || (uint64_t)json_integer_value(json) > most)
        return wrong(loader, "%s: %" JSON_INTEGER_FORMAT "; allowed: %" PRIu64 " to %" PRIu64, key,
                     json_integer_value(json), least, most);
    *ret_count = (uint64_t)json_integer_value(json);
    return EMBTIER_OK;
}

static enum embtier_err get_array(const struct loader *loader, const json_t *object,
                                  const char *key, size_t most, const json_t **ret_array)
{
    *ret_array = json_object_get(object, key);
    if (!json_is_array(*ret_array))
        return wrong(loader, "%s: not an array", key);
    if (json_array_size(*ret_array) > most)
        return wrong(loader, "%s: %zu elements; allowed: at most %zu", key,
                     json_array_size(*ret_array), most);
    return EMBTIER_OK;
}

static enum embtier_err load_header(struct loader *loader, const json_t *object)
{
    struct measured_profile *const measured = loader->measured;
    const char *const format = json_string_value(json_object_get(object, "format"));
    uint64_t version = 0, tables = 0, segments = 0;

    if (!format || strcmp(format, PROFILE_FILE_FORMAT) != 0)
        return wrong(loader, "format: not " PROFILE_FILE_FORMAT ", so this is no profile");
    TRY(get_count(loader, object, "version", 1, INT64_MAX, &version));
    if (version > PROFILE_FILE_VERSION)
        return err_set(loader->msg, EMBTIER_VERSION,
                       "%s:1: version: %" PRIu64
                       " is newer than %d, which this embtier reads: update it",
                       loader->path, version, PROFILE_FILE_VERSION);
    TRY(get_count(loader, object, "tables", 1, INT64_MAX, &tables));
    if (tables > PROFILE_TABLES_MAX)
        return err_set(loader->msg, EMBTIER_TOO_LARGE,
                       "%s:1: tables: %" PRIu64 "; allowed: at most %d", loader->path, tables,
                       PROFILE_TABLES_MAX);
    TRY(get_count(loader, object, "lookups", 0, INT64_MAX, &measured->lookups));
    TRY(get_count(loader, object, "batches", MIN(measured->lookups, UINT64_C(1)), INT64_MAX,
                  &measured->batches));
    TRY(get_count(loader, object, "segments", 1, REUSE_SEGMENTS_MAX, &segments));
    TRY(get_count(loader, object, "segment_length", 1, (UINT64_C(1) << 63) / segments,
                  &measured->segment_length));
    if (measured->segment_length < div_round_up(measured->lookups, segments))
        return wrong(loader,
                     "segment_length: %" PRIu64 " segments of %" PRIu64 " do not hold %" PRIu64
                     " lookups",
                     segments, measured->segment_length, measured->lookups);
    measured->segment_count = (uint32_t)segments;
    measured->tables = calloc(tables, sizeof(*measured->tables));
    if (!measured->tables)
        return err_set(loader->msg, EMBTIER_NO_MEMORY, "%s: out of memory", loader->path);
    measured->table_count = (uint32_t)tables;
    return EMBTIER_OK;
}

static enum embtier_err load_rows(const struct loader *loader, const json_t *object,
                                  uint64_t *ret_rows)
{
    const json_t *const json = json_object_get(object, "rows");
    const char *const text = json_string_value(json);
    char *end = NULL;

    *ret_rows = 0;
    if (json_is_null(json))
        return EMBTIER_OK;
    if (!text)
        return get_count(loader, object, "rows", 1, INT64_MAX, ret_rows);
    if (text[0] < '0' || text[0] > '9') /* strtoull() takes signs and spaces */
        return wrong(loader, "rows: not a number of rows");
    errno = 0;
    *ret_rows = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || *ret_rows <= INT64_MAX)
        return wrong(loader, "rows: not a number of rows");
    return EMBTIER_OK;
}

static enum embtier_err load_description(const struct loader *loader, const json_t *object,
                                         struct trace_table *table)
{
    const char *const name = json_string_value(json_object_get(object, "name"));
    const char *const dtype = json_string_value(json_object_get(object, "dtype"));
    uint64_t dim = 0;

    if (!name || !table_name_is_valid(name))
        return wrong(loader, "name: not the name of a table");
    if (!dtype || dtype_parse(dtype) < 0)
        return wrong(loader, "dtype: allowed: f32, f16, bf16");
    snprintf(table->name, sizeof(table->name), "%s", name);
    table->dtype = (enum embtier_dtype)dtype_parse(dtype);
    TRY(get_count(loader, object, "dim", 1, EMBTIER_DIM_MAX, &dim));
    table->dim = (uint32_t)dim;
    return load_rows(loader, object, &table->rows);
}

/* Only the profile of a server has it. */
static enum embtier_err load_optimizer(const struct loader *loader, const json_t *object,
                                       struct measured_table *table)
{
    const json_t *const json = json_object_get(object, "optimizer");
    const char *const word = json_string_value(json);

    if (!json)
        return EMBTIER_OK;
    if (!word || optimizer_parse(word) < 0)
        return wrong(loader, "optimizer: not the name of an optimizer");
    table->has_optimizer = true;
    table->optimizer = (enum embtier_optimizer)optimizer_parse(word);
    return EMBTIER_OK;
}

/* Bags are a count as the others. A server has none for a bag that began before the profile. */
static enum embtier_err load_pooling(const struct loader *loader, const json_t *object,
                                     struct measured_table *table)
{
    const double lookups = (double)table->summary.lookups;
    const double least = lookups / (double)INT64_MAX;

    TRY(get_number(loader, object, "pooling_factor", 0, lookups * (1 + ROUNDING),
                   &table->pooling_factor));
    if (table->pooling_factor > 0 && table->pooling_factor < least * (1 - ROUNDING))
        return wrong(loader, "pooling_factor: %.9g; allowed: 0, or %.9g to %.9g",
                     table->pooling_factor, least, lookups);
    return EMBTIER_OK;
}

/* A lookup has a row and a batch. A batch that is counted has a lookup. */
static enum embtier_err load_summary(const struct loader *loader, const json_t *object,
                                     struct measured_table *table)
{
    struct table_summary *const summary = &table->summary;
    const double rows = table->table.rows > 0 ? (double)table->table.rows : INFINITY;
    uint64_t least;
    double lookups, a_batch;

    TRY(get_count(loader, object, "lookups", 0, loader->measured->lookups, &summary->lookups));
    least = MIN(summary->lookups, UINT64_C(1));
    TRY(get_count(loader, object, "batches", least,
                  MIN(loader->measured->batches, summary->lookups), &summary->batches));
    lookups = (double)summary->lookups;
    a_batch = lookups / (double)MAX(summary->batches, UINT64_C(1));
    TRY(load_pooling(loader, object, table));
    TRY(get_number(loader, object, "distinct_rows", (double)least,
                   MIN(lookups, rows) * (1 + ROUNDING), &summary->rows));
    TRY(get_number(loader, object, "batch_rows", 0, MIN(a_batch, summary->rows) * (1 + ROUNDING),
                   &summary->batch_rows));
    TRY(get_number(loader, object, "updated_batch_rows", 0, summary->batch_rows * (1 + ROUNDING),
                   &summary->updated_batch_rows));
    return get_number(loader, object, "sampling_rate", RATE_LEAST, 1, &summary->sampling_rate);
}

struct cdf_point {
    double rows, share;
};

/* True unless the curve through three points becomes steeper, by more than rounded numbers do. */
static bool is_concave(struct cdf_point a, struct cdf_point b, struct cdf_point c)
{
    const double rows = b.rows - a.rows, share = b.share - a.share;
    const double next_rows = c.rows - b.rows, next_share = c.share - b.share;
    const double rounding =
        b.share * next_rows + c.rows * share + c.share * rows + b.rows * next_share;

    return next_share * rows <= share * next_rows + rounding * DIGITS_ROUNDING;
}

/* Rows are sorted by hotness, and all rows take all lookups. */
static enum embtier_err check_cdf(const struct loader *loader, const struct table_summary *summary,
                                  const struct access_cdf *cdf)
{
    struct cdf_point before = { 0 }, last = { 0 };

    if ((cdf->point_count == 0) != (summary->lookups == 0))
        return wrong(loader, "cdf_rows: %" PRIu32 " points for %" PRIu64 " lookups",
                     cdf->point_count, summary->lookups);
    for (uint32_t i = 0; i < cdf->point_count; i++) {
        const struct cdf_point point = { cdf->rows[i], cdf->shares[i] };

        if (point.rows <= last.rows)
            return wrong(loader, "cdf_rows: %.9g comes after %.9g; allowed: rising numbers",
                         point.rows, last.rows);
        if (point.rows < CDF_ROWS_LEAST)
            return wrong(loader, "cdf_rows: %.9g; allowed: at least %.9g", point.rows,
                         CDF_ROWS_LEAST);
        if (i > 0 && !is_concave(before, last, point))
            return wrong(loader,
                         "cdf_shares: the rows after the %.9g hottest ones are hotter than these",
                         last.rows);
        before = last;
        last = point;
    }
    if (fabs(last.rows - summary->rows) > summary->rows * ROUNDING)
        return wrong(loader, "cdf_rows: the last one is %.9g; allowed: distinct_rows, %.9g",
                     last.rows, summary->rows);
    if (cdf->point_count > 0 && last.share != 1)
        return wrong(loader, "cdf_shares: the last one is %.9g; allowed: 1", last.share);
    return EMBTIER_OK;
}

static enum embtier_err load_cdf(const struct loader *loader, const json_t *object,
                                 const struct table_summary *summary, struct access_cdf *cdf)
{
    const json_t *rows, *shares;
    double last_share = 0;

    TRY(get_array(loader, object, "cdf_rows", ACCESS_CDF_POINTS_MAX, &rows));
    TRY(get_array(loader, object, "cdf_shares", ACCESS_CDF_POINTS_MAX, &shares));
    if (json_array_size(rows) != json_array_size(shares))
        return wrong(loader, "cdf_shares: not as many as cdf_rows");
    cdf->point_count = (uint32_t)json_array_size(rows);
    for (uint32_t i = 0; i < cdf->point_count; i++) {
        TRY(take_number(loader, "cdf_rows", json_array_get(rows, i), 0,
                        summary->rows * (1 + ROUNDING), &cdf->rows[i]));
        TRY(take_number(loader, "cdf_shares", json_array_get(shares, i), last_share, 1,
                        &cdf->shares[i]));
        last_share = cdf->shares[i];
    }
    return check_cdf(loader, summary, cdf);
}

/* Loads one segment's times and lookups, and adds these to *@sum. No time is longer than all
 * segments. */
static enum embtier_err load_segment(const struct loader *loader, const json_t *pairs,
                                     uint32_t segment, struct measured_table *table, double *sum)
{
    const struct measured_profile *const measured = loader->measured;
    const uint64_t all = measured->segment_length * measured->segment_count;
    const double longest = (double)MIN(all, UINT64_C(1) << 48);
    const size_t count = json_array_size(pairs);
    double last_time = -1, time, lookups;

    if (!json_is_array(pairs) || count % 2 != 0 || count > 2 * (size_t)TIME_HISTOGRAM_BINS)
        return wrong(loader, "reuse: segment %" PRIu32 " is no array of times and lookups",
                     segment);
    for (size_t i = 0; i < count; i += 2) {
        uint32_t bin;

        TRY(take_number(loader, "reuse", json_array_get(pairs, i), last_time + 1, longest, &time));
        TRY(take_number(loader, "reuse", json_array_get(pairs, i + 1), 0,
                        (double)table->summary.lookups * (1 + ROUNDING), &lookups));
        bin = time_histogram_bin((uint64_t)time);
        if ((double)time_histogram_begin(bin) != time)
            return wrong(loader, "reuse: no bin begins at time %.15g", time);
        last_time = time;
        *sum += lookups;
        table->bins[table->bin_count++] =
            (struct measured_bin){ (uint16_t)segment, (uint16_t)bin, (float)lookups };
    }
    return EMBTIER_OK;
}

/* Each row has one first lookup, except in a model of lookups that go on for ever, which has none:
 * all of its lookups have times. While all rows are sampled, each other lookup has a time; a server
 * may have lost all of a table's later samples, and then no time is known. A sample of some rows
 * may have missed any part of the other lookups. */
static enum embtier_err check_reuse(const struct loader *loader, const struct measured_table *table,
                                    double firsts, double reuses)
{
    const struct table_summary *const summary = &table->summary;
    const bool is_partial = summary->sampling_rate < 1 || (table->has_optimizer && reuses == 0);
    const bool is_endless =
        firsts == 0 && reuses > 0 &&
        fabs(reuses - (double)summary->lookups) <= (double)summary->lookups * ROUNDING;

    if (!is_endless && fabs(firsts - summary->rows) > summary->rows * ROUNDING)
        return wrong(loader, "first: %.9g lookups; allowed: distinct_rows, %.9g", firsts,
                     summary->rows);
    if (firsts + reuses > (double)summary->lookups * (1 + ROUNDING))
        return wrong(loader, "reuse: with first %.9g lookups, more than lookups: %" PRIu64,
                     firsts + reuses, summary->lookups);
    if (!is_partial && firsts + reuses < (double)summary->lookups * (1 - ROUNDING))
        return wrong(loader,
                     "reuse: with first %.9g lookups; allowed: lookups, %" PRIu64
                     ", as sampling_rate is 1",
                     firsts + reuses, summary->lookups);
    return EMBTIER_OK;
}

static enum embtier_err load_reuse(const struct loader *loader, const json_t *object,
                                   struct measured_table *table)
{
    const uint32_t segments = loader->measured->segment_count;
    const json_t *first, *reuse;
    double firsts = 0, reuses = 0;
    size_t most = 0;

    TRY(get_array(loader, object, "first", segments, &first));
    TRY(get_array(loader, object, "reuse", segments, &reuse));
    if (json_array_size(first) != segments || json_array_size(reuse) != segments)
        return wrong(loader, "first, reuse: allowed: one element for each of %" PRIu32 " segments",
                     segments);
    for (uint32_t i = 0; i < segments; i++) {
        TRY(take_number(loader, "first", json_array_get(first, i), 0,
                        (double)table->summary.lookups * (1 + ROUNDING), &table->first[i]));
        firsts += table->first[i];
        most += json_array_size(json_array_get(reuse, i)) / 2;
    }
    table->bins = calloc(most + 1, sizeof(*table->bins));
    if (!table->bins)
        return err_set(loader->msg, EMBTIER_NO_MEMORY, "%s: out of memory", loader->path);
    for (uint32_t i = 0; i < segments; i++)
        TRY(load_segment(loader, json_array_get(reuse, i), i, table, &reuses));
    return check_reuse(loader, table, firsts, reuses);
}

static enum embtier_err check_names(struct loader *loader)
{
    const struct measured_profile *const measured = loader->measured;
    uint32_t repeated = 0;

    if (table_names_find_repeated(&measured->tables->table, sizeof(*measured->tables),
                                  measured->table_count, &repeated) != EMBTIER_OK)
        return err_set(loader->msg, EMBTIER_NO_MEMORY, "%s: out of memory", loader->path);
    if (repeated == measured->table_count)
        return EMBTIER_OK;
    loader->line = repeated + 2; /* one line for each table, after the header's */
    return wrong(loader, "name: a table before has the name '%s' too",
                 measured->tables[repeated].table.name);
}

static enum embtier_err load_tables(struct loader *loader, char *text)
{
    uint64_t lookups_left = loader->measured->lookups;

    for (uint32_t i = 0; i < loader->measured->table_count; i++) {
        struct measured_table *const table = &loader->measured->tables[i];
        _cleanup_(json_freep) json_t *object = NULL;

        TRY(read_object(loader, text, &object));
        TRY(load_description(loader, object, &table->table));
        TRY(load_optimizer(loader, object, table));
        TRY(load_summary(loader, object, table));
        if (table->summary.lookups > lookups_left)
            return wrong(loader, "lookups: with the tables before, more than line 1's %" PRIu64,
                         loader->measured->lookups);
        lookups_left -= table->summary.lookups;
        TRY(load_cdf(loader, object, &table->summary, &table->cdf));
        TRY(load_reuse(loader, object, table));
    }
    if (lookups_left > 0)
        return wrong(loader, "lookups: of all tables, %" PRIu64 " fewer than line 1's %" PRIu64,
                     lookups_left, loader->measured->lookups);
    loader->line++;
    if (getc_unlocked(loader->file) != EOF)
        return wrong(loader, "lines follow the last table");
    return check_names(loader);
}

enum embtier_err profile_file_load(const char *path, struct measured_profile **ret_measured,
                                   struct err_msg *msg)
{
    _cleanup_(file_closep) FILE *file = fopen(path, "re");
    _cleanup_(measured_profile_freep) struct measured_profile *measured =
        calloc(1, sizeof(*measured));
    _cleanup_(freep) char *text = malloc(PROFILE_FILE_LINE_BYTES_MAX);
    _cleanup_(json_freep) json_t *header = NULL;
    struct loader loader = { .path = path, .file = file, .msg = msg, .measured = measured };

    if (!file)
        return err_set_errno(msg, errno, "%s", path);
    if (!measured || !text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    TRY(read_object(&loader, text, &header));
    TRY(load_header(&loader, header));
    TRY(load_tables(&loader, text));
    *ret_measured = TAKE(measured);
    return EMBTIER_OK;
}
