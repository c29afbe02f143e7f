/* SPDX-License-Identifier: Apache-2.0 */
/* export_manifest.h: an export's table.json, which describes the table and the rows of each file.
 * It is written last, so a folder without one is no export. Content that is read is hostile until
 * export_manifest_read() has checked it. */
#ifndef EMBTIER_CLIENT_FILES_EXPORT_MANIFEST_H
#define EMBTIER_CLIENT_FILES_EXPORT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "client/files/tensor_file.h"

#define EXPORT_MANIFEST_FILE "table.json"
#define EXPORT_PARTS_MAX     16384
/* Minimum number of digits of a part's number in file names: TABLE-00001.safetensors */
#define EXPORT_PART_DIGITS 5

/* The tensors of a part, in this order; those that an export does not have are left out.
 * X(id, name): `weight` [rows, dim] in the table's dtype; `state` [rows, numbers of state in a row]
 * in f32, as a row keeps it (EMBTIER_OPTIMIZER_TABLE); `ids` [rows]. */
#define EXPORT_COLUMN_TABLE(X)                                                                     \
    X(WEIGHT, "weight")                                                                            \
    X(STATE, "state")                                                                              \
    X(IDS, "ids")

enum export_column {
#define X(id, name) EXPORT_##id,
    EXPORT_COLUMN_TABLE(X)
#undef X
        EXPORT_COLUMNS
};
const char *export_column_name(enum export_column column);

struct export_part {
    uint64_t first_id; /* in exports of all rows; ids follow each other */
    uint64_t rows;
    char *files[EXPORT_COLUMNS];   /* names in the folder; NULL: there is no such tensor; owned */
    uint64_t sums[EXPORT_COLUMNS]; /* XXH3, 64 bits, of the tensor's data */
};

struct export_manifest {
    struct table_spec spec;
    bool with_state;
    bool all_rows; /* else only written rows, with their ids */
    enum tensor_format format;
    uint64_t rows;
    uint64_t checkpoint;
    bool has_step;
    uint64_t step;
    struct export_part *parts; /* owned */
    uint32_t part_room;        /* parts that @parts has memory for; 0 if the manifest was read */
    uint32_t part_count;
};
void export_manifest_clear(struct export_manifest *manifest);

/* True if the export's parts have this tensor. */
bool export_manifest_has(const struct export_manifest *manifest, enum export_column column);
/* Appends a part that has been written. Its first id follows from the rows before. */
MUST_CHECK enum embtier_err export_manifest_add(struct export_manifest *manifest,
                                                const struct tensor_written *written,
                                                struct err_msg *msg);
/* Writes the manifest to @folder and syncs it. EXISTS. */
MUST_CHECK enum embtier_err export_manifest_write(const struct export_manifest *manifest,
                                                  int folder, struct err_msg *msg);
/* Reads the manifest of the folder @path. NOT_FOUND: it has none, so it is no export; CORRUPT;
 * VERSION: a newer one. */
MUST_CHECK enum embtier_err
export_manifest_read(const char *path, struct export_manifest *ret_manifest, struct err_msg *msg);

#endif
