/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rocksdb/rocksdb_layout.h"

#include "base/text/bytes.h"
#include "store/rocksdb/table_size.h"

#define BLOB_FILE_BYTES (256 * MIB)
#define BLOB_READ_AHEAD (256 * KIB)
/* Compactions rewrite the rows of the older half of files, and begin once half of the oldest are
 * old versions. */
#define BLOB_AGE_CUTOFF 0.5
#define BLOB_GARBAGE    0.5

static void apply_universal(rocksdb_options_t *options)
{
    rocksdb_universal_compaction_options_t *const universal =
        rocksdb_universal_compaction_options_create();

    rocksdb_options_set_compaction_style(options, rocksdb_universal_compaction);
    rocksdb_options_set_universal_compaction_options(options, universal);
    rocksdb_universal_compaction_options_destroy(universal);
}

static void apply_blob(rocksdb_options_t *options)
{
    rocksdb_options_set_enable_blob_files(options, 1);
    rocksdb_options_set_min_blob_size(options, TABLE_BLOB_VALUE_BYTES);
    rocksdb_options_set_blob_file_size(options, BLOB_FILE_BYTES);
    rocksdb_options_set_blob_compaction_readahead_size(options, BLOB_READ_AHEAD);
    rocksdb_options_set_blob_gc_age_cutoff(options, BLOB_AGE_CUTOFF);
    rocksdb_options_set_blob_gc_force_threshold(options, BLOB_GARBAGE);
}

void rocksdb_layout_apply(rocksdb_options_t *options, enum config_layout layout)
{
    /* In the other layouts, compactions bring back values that lie apart. */
    rocksdb_options_set_enable_blob_gc(options, 1);
    rocksdb_options_set_blob_gc_age_cutoff(options, 1.0);
    switch (layout) {
    case LAYOUT_UNIVERSAL:
        apply_universal(options);
        break;
    case LAYOUT_BLOB:
        apply_blob(options);
        break;
    case LAYOUT_LEVELED:
    case LAYOUT_COUNT:
        break;
    }
}
