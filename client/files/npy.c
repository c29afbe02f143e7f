/* SPDX-License-Identifier: Apache-2.0 */
/* The parser accepts the headers that NumPy and people write: the three keys in any order, either
 * kind of quotes, and blanks between words. It accepts nothing else of Python. */
#include "client/files/npy.h"
#include "base/text/text_escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct cursor {
    const char *path;
    const char *begin;
    const char *at;
    const char *end;
    struct err_msg *msg;
};

/* The keys of the dict; each must occur once. */
enum {
    HAS_DESCR = 1,
    HAS_ORDER = 2,
    HAS_SHAPE = 4,
    HAS_ALL = 7,
};

void npy_make(enum tensor_dtype dtype, uint64_t rows, uint32_t columns,
              char ret_header[NPY_HEADER_BYTES])
{
    const size_t start = 10; /* of version 1.0 */
    char shape[40];
    int used;

    if (columns == 0)
        snprintf(shape, sizeof(shape), "(%" PRIu64 ",)", rows);
    else
        snprintf(shape, sizeof(shape), "(%" PRIu64 ", %" PRIu32 ")", rows, columns);
    memcpy(ret_header, NPY_MAGIC "\x01\x00", 8);
    ret_header[8] = (char)(NPY_HEADER_BYTES - start);
    ret_header[9] = 0;
    used = snprintf(ret_header + start, NPY_HEADER_BYTES - start,
                    "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                    tensor_dtype_numpy(dtype), shape);
    memset(ret_header + start + used, ' ', NPY_HEADER_BYTES - start - (size_t)used);
    ret_header[NPY_HEADER_BYTES - 1] = '\n';
}

enum embtier_err npy_find_header(const char *path, const unsigned char start[NPY_START_BYTES],
                                 uint64_t file_bytes, uint32_t *ret_offset, uint32_t *ret_bytes,
                                 struct err_msg *msg)
{
    const unsigned major = start[6], minor = start[7];
    const uint32_t offset = major == 1 ? 10 : 12;
    uint64_t bytes = 0;

    if (file_bytes < 8 || file_bytes < offset)
        return err_set(msg, EMBTIER_INVALID, "%s: ends within the header of a NumPy array", path);
    if (major < 1 || major > 3 || minor != 0)
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "%s: has version %u.%u of NumPy's format; allowed: 1.0, 2.0, 3.0", path,
                       major, minor);
    for (uint32_t i = offset; i-- > 8;)
        bytes = bytes << 8 | start[i];
    if (bytes > file_bytes - offset)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: its header claims to be %" PRIu64 " bytes long, the file has %" PRIu64
                       " after byte %" PRIu32,
                       path, bytes, file_bytes - offset, offset);
    if (bytes > NPY_HEADER_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: its header is %" PRIu64
                       " bytes long; an array of numbers needs no more than %d",
                       path, bytes, NPY_HEADER_MAX);
    *ret_offset = offset;
    *ret_bytes = (uint32_t)bytes;
    return EMBTIER_OK;
}

/* ---- Words of the dict ---- */

static enum embtier_err expected(const struct cursor *c, const char *what)
{
    return err_set(c->msg, EMBTIER_INVALID, "%s: the NumPy header: expected %s at its byte %zu",
                   c->path, what, (size_t)(c->at - c->begin));
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n'))
        c->at++;
}

static bool next_is(struct cursor *c, char mark)
{
    skip_blanks(c);
    return c->at < c->end && *c->at == mark;
}

static bool take(struct cursor *c, char mark)
{
    if (!next_is(c, mark))
        return false;
    c->at++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    const size_t bytes = strlen(word);

    skip_blanks(c);
    if ((size_t)(c->end - c->at) < bytes || memcmp(c->at, word, bytes) != 0)
        return false;
    c->at += bytes;
    return true;
}

/* Takes a string without escapes, which no key and no dtype of numbers has. @ret_text may be cut
 * short; it still differs from all texts that it is compared with. */
static enum embtier_err take_string(struct cursor *c, const char *what, struct text_shown *ret_text)
{
    const char *end;

    if (!next_is(c, '\'') && !next_is(c, '"'))
        return expected(c, what);
    end = memchr(c->at + 1, *c->at, (size_t)(c->end - c->at - 1));
    if (!end)
        return expected(c, what);
    text_show_bytes(ret_text, c->at + 1, (size_t)(end - c->at - 1));
    c->at = end + 1;
    return EMBTIER_OK;
}

/* ---- Values ---- */

static enum embtier_err refuse_dtype(const struct cursor *c, const char *word)
{
    if (word[0] == '>')
        return err_set(c->msg, EMBTIER_UNSUPPORTED,
                       "%s: holds big-endian numbers (dtype '%s'); save "
                       "array.astype(array.dtype.newbyteorder('<')) instead",
                       c->path, word);
    if (strcmp(word, "|O") == 0 || strcmp(word, "O") == 0)
        return err_set(c->msg, EMBTIER_UNSUPPORTED,
                       "%s: holds Python objects (dtype '%s'); allowed: an array of numbers",
                       c->path, word);
    return err_set(c->msg, EMBTIER_UNSUPPORTED,
                   "%s: dtype '%s' is not supported; allowed: little-endian integers of 8 to 64 "
                   "bits, floating point numbers of 16 to 64, booleans, complex64",
                   c->path, word);
}

static enum embtier_err take_descr(struct cursor *c, struct tensor_info *info)
{
    struct text_shown word = { "" };

    if (next_is(c, '[') || next_is(c, '('))
        return err_set(c->msg, EMBTIER_UNSUPPORTED,
                       "%s: holds records (a structured dtype); save each field as an array of its "
                       "own",
                       c->path);
    TRY(take_string(c, "dtype", &word));
    info->dtype = tensor_dtype_from_numpy(word.text);
    return info->dtype == TENSOR_DTYPE_NONE ? refuse_dtype(c, word.text) : EMBTIER_OK;
}

static enum embtier_err take_order(struct cursor *c)
{
    if (take_word(c, "False"))
        return EMBTIER_OK;
    if (take_word(c, "True"))
        return err_set(c->msg, EMBTIER_UNSUPPORTED,
                       "%s: holds columns, not rows (fortran_order is True); save "
                       "np.ascontiguousarray(array) instead",
                       c->path);
    return expected(c, "False or True");
}

static enum embtier_err take_number(struct cursor *c, uint64_t *ret_number)
{
    const char *begin;
    uint64_t number = 0;

    skip_blanks(c);
    begin = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*c->at - '0'), &number))
            return expected(c, "number of 64 bits");
    if (c->at == begin || (*begin == '0' && c->at - begin > 1))
        return expected(c, "number");
    *ret_number = number;
    return EMBTIER_OK;
}

/* Takes (), (3,), (3, 4) or (3, 4,). In Python (3) is no tuple. */
static enum embtier_err take_shape(struct cursor *c, struct tensor_info *info)
{
    bool comma = true; /* a comma came before the next number */

    if (!take(c, '('))
        return expected(c, "shape");
    info->rank = 0;
    while (comma && !next_is(c, ')')) {
        if (info->rank == TENSOR_RANK_MAX)
            return err_set(c->msg, EMBTIER_TOO_LARGE, "%s: has more than %d dimensions, the limit",
                           c->path, TENSOR_RANK_MAX);
        TRY(take_number(c, &info->shape[info->rank++]));
        comma = take(c, ',');
    }
    if ((info->rank == 1 && !comma) || !take(c, ')'))
        return expected(c, "comma or end of the shape");
    return EMBTIER_OK;
}

/* ---- The dict ---- */

static enum embtier_err take_pair(struct cursor *c, struct tensor_info *info, unsigned *has)
{
    struct text_shown key = { "" };
    unsigned is = 0;

    TRY(take_string(c, "key", &key));
    if (strcmp(key.text, "descr") == 0)
        is = HAS_DESCR;
    else if (strcmp(key.text, "fortran_order") == 0)
        is = HAS_ORDER;
    else if (strcmp(key.text, "shape") == 0)
        is = HAS_SHAPE;
    if (is == 0 || *has & is)
        return err_set(c->msg, EMBTIER_INVALID,
                       "%s: the NumPy header has the key '%s'%s; allowed: descr, fortran_order, "
                       "shape, once each",
                       c->path, key.text, is ? " twice" : "");
    *has |= is;
    if (!take(c, ':'))
        return expected(c, "colon");
    if (is == HAS_DESCR)
        return take_descr(c, info);
    return is == HAS_ORDER ? take_order(c) : take_shape(c, info);
}

static enum embtier_err take_dict(struct cursor *c, struct tensor_info *info)
{
    unsigned has = 0;
    bool comma = true;

    if (!take(c, '{'))
        return expected(c, "{");
    while (comma && !next_is(c, '}')) {
        TRY(take_pair(c, info, &has));
        comma = take(c, ',');
    }
    if (!take(c, '}'))
        return expected(c, "comma or }");
    skip_blanks(c);
    if (c->at != c->end)
        return expected(c, "end");
    if (has != HAS_ALL)
        return err_set(c->msg, EMBTIER_INVALID,
                       "%s: the NumPy header lacks one of descr, fortran_order and shape", c->path);
    return EMBTIER_OK;
}

enum embtier_err npy_parse(const char *path, const char *header, size_t bytes, uint64_t data_bytes,
                           struct tensor_place *ret_place, struct err_msg *msg)
{
    struct cursor c = {
        .path = path, .begin = header, .at = header, .end = header + bytes, .msg = msg
    };
    struct tensor_place place = { .info.name = "" };

    TRY(take_dict(&c, &place.info));
    if (!tensor_info_count(&place.info))
        return err_set(msg, EMBTIER_INVALID,
                       "%s: its shape needs more bytes than 64 bits can count", path);
    if (place.info.bytes != data_bytes)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: its shape needs %" PRIu64 " bytes of data, the file has %" PRIu64, path,
                       place.info.bytes, data_bytes);
    *ret_place = place;
    return EMBTIER_OK;
}
