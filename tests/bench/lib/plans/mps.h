/* SPDX-License-Identifier: Apache-2.0 */
/* mps.h: a placement model as a mixed-integer program in a file, for programs that solve such ones,
 * and their answers.
 *
 * The program is that of placement/solve/milp.h, without a known answer: all places are columns.
 * Each table has a row that says that its time bounds the largest. The format is free MPS. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_MPS_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_MPS_H

#include <stdbool.h>

#include "placement/model/instance.h"

/* Writes the model. Times are in units of @unit_s, and bytes in GB. Ends the program on failure. */
void mps_write(const char *path, const struct instance *x, double unit_s);
/* Reads the place of each item from a solution as HiGHS, CBC and glpsol print it: a column's name,
 * perhaps `*`, and its value. False: there is no file, or an item has no place. */
bool mps_read_places(const char *path, const struct instance *x, uint32_t *ret_places);

#endif
