/* SPDX-License-Identifier: Apache-2.0 */
/* rocksdb_layout.h: how RocksDB lays out rows (rocksdb.layout).
 *
 *   leveled    each level is sorted, and ten times the one before. A row is written again at each
 *              level. Old versions take about a tenth more space.
 *   universal  sorted runs of like size are merged, so a row is written again less often. A merge
 *              of all runs takes twice the space while it lasts.
 *   blob       levels hold keys only; rows lie in files of their own, which are rewritten once half
 *              of their oldest are old versions.
 *
 * A database of any layout opens with any other. Levels are sorted runs, and runs that leave level
 * 0 go to a level. Values come back from files of their own when the tables that name them compact.
 */
#ifndef EMBTIER_STORE_ROCKSDB_ROCKSDB_LAYOUT_H
#define EMBTIER_STORE_ROCKSDB_ROCKSDB_LAYOUT_H

#include <rocksdb/c.h>

#include "config/config.h"

void rocksdb_layout_apply(rocksdb_options_t *options, enum config_layout layout);

#endif
