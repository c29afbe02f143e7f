/* SPDX-License-Identifier: Apache-2.0 */
/* trial_wire.h: what `embtier tune` and embtier-layout-trial both know. embtier_layout_trial.c says
 * what they tell each other. */
#ifndef EMBTIER_TOOLS_TRIAL_TRIAL_WIRE_H
#define EMBTIER_TOOLS_TRIAL_TRIAL_WIRE_H

#include "config/config.h"

/* The layouts' names, by enum config_layout, as in rocksdb.layout. */
#define TRIAL_LAYOUT_WORDS                                                                         \
    {                                                                                              \
        [LAYOUT_LEVELED] = "leveled", [LAYOUT_UNIVERSAL] = "universal", [LAYOUT_BLOB] = "blob",    \
    }

/* Bytes of rows for each second of the trial, all layouts together: at ten bytes written for each,
 * a drive of 150 MB/s loads them, overwrites them twice, and has two thirds of the time left. */
#define TRIAL_BYTES_PER_SECOND (400 * KIB)
#define TRIAL_ROWS_LEAST       1000 /* unless one shard has fewer */
/* Space that a layout takes while it merges, times the bytes of the rows; and of all together. */
#define TRIAL_SPACE_FACTOR 5
#define TRIAL_SPACE_BYTES  (64 * MIB)

#endif
