/* SPDX-License-Identifier: Apache-2.0 */
/* edit_distance.h: how far two words are apart, for "did you mean". Thread: any. */
#ifndef EMBTIER_BASE_TEXT_EDIT_DISTANCE_H
#define EMBTIER_BASE_TEXT_EDIT_DISTANCE_H

/* Returns the number of edits (insert, delete or replace a letter) from @a to @b; both are cut at
 * 63 bytes. */
unsigned edit_distance(const char *a, const char *b);

#endif
