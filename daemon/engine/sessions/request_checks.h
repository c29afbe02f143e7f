/* SPDX-License-Identifier: Apache-2.0 */
/* request_checks.h: the checks of a client's words, each named once.
 *
 * Tests must notice if a check is missing. tests/unit/engine/ops builds a copy of the source file
 * without it, by -DWITHOUT_CHECK=CHECK_..., and its test must fail. To add a check, add a row here
 * and its name to the table of mutants in that folder's meson.build. tests/structure refuses a
 * check that has no mutant. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_REQUEST_CHECKS_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_REQUEST_CHECKS_H

#include <stdbool.h>
#include <time.h>

/* A COPY_ is no check. A build without it reads the copied words once more behind the checks. */
#define REQUEST_CHECKS(X)                                                                          \
    X(CHECK_OP)                                                                                    \
    X(CHECK_RULE)                                                                                  \
    X(CHECK_ROLE)                                                                                  \
    X(CHECK_GRANT)                                                                                 \
    X(CHECK_PACE)                                                                                  \
    X(CHECK_BYTES_IN_FLIGHT)                                                                       \
    X(CHECK_FIELDS)                                                                                \
    X(CHECK_FLAGS)                                                                                 \
    X(CHECK_SEGMENT_COUNT)                                                                         \
    X(CHECK_SEGMENTS_IN_REGION)                                                                    \
    X(CHECK_SEGMENT_FIELDS)                                                                        \
    X(CHECK_ID_COUNT)                                                                              \
    X(CHECK_BAG_COUNT)                                                                             \
    X(CHECK_TABLE)                                                                                 \
    X(CHECK_IDS_IN_REGION)                                                                         \
    X(CHECK_ROWS_IN_REGION)                                                                        \
    X(CHECK_ID)                                                                                    \
    X(COPY_SUBMISSION)                                                                             \
    X(COPY_SEGMENTS)                                                                               \
    X(COPY_IDS)                                                                                    \
    X(CHECK_POOL_MODE)                                                                             \
    X(CHECK_POOL_WEIGHTS_OF_MAX)                                                                   \
    X(CHECK_POOL_BAGS_IN_REGION)                                                                   \
    X(CHECK_POOL_OFFSETS_IN_REGION)                                                                \
    X(CHECK_POOL_WEIGHTS_IN_REGION)                                                                \
    X(CHECK_POOL_FIRST_OFFSET)                                                                     \
    X(CHECK_POOL_OFFSETS_RISE)                                                                     \
    X(CHECK_POOL_OFFSETS_END)                                                                      \
    X(CHECK_POOL_LAST_OFFSET)                                                                      \
    X(CHECK_POOL_SEARCHED_ID)                                                                      \
    X(CHECK_PUSH_STEP)                                                                             \
    X(CHECK_PUSH_TICKET_SEGMENTS)                                                                  \
    X(CHECK_PUSH_LEARNING_RATE)                                                                    \
    X(CHECK_PUSH_TICKET_TABLE)                                                                     \
    X(CHECK_PUSH_TICKET_BAGS)                                                                      \
    X(CHECK_PUSH_WEIGHTS_OF_MAX)                                                                   \
    X(CHECK_PUSH_WEIGHTS_IN_REGION)                                                                \
    X(CHECK_PUSH_OPTIMIZER)                                                                        \
    X(CHECK_PUSH_DIM)                                                                              \
    X(CHECK_PUSH_GRADIENTS_IN_REGION)                                                              \
    X(CHECK_PUSH_SAME_RATE)                                                                        \
    X(CHECK_PUSH_ID)                                                                               \
    X(CHECK_PUSH_FINITE)                                                                           \
    X(CHECK_PUSH_WEIGHTS_FINITE)                                                                   \
    X(CHECK_PUSH_ROWS_FINITE)                                                                      \
    X(CHECK_PUSH_TICKET_KIND)                                                                      \
    X(COPY_PUSH_IDS)                                                                               \
    X(CHECK_GROUP)                                                                                 \
    X(CHECK_GROUP_STEP)                                                                            \
    X(CHECK_STEP_SAME_RATE)

#define REQUEST_CHECK_NAME(name) name,
enum request_check { CHECK_NONE, REQUEST_CHECKS(REQUEST_CHECK_NAME) };
#undef REQUEST_CHECK_NAME

#ifndef WITHOUT_CHECK
#define WITHOUT_CHECK CHECK_NONE
#endif
#define IS_BAD(check, condition) ((condition) && WITHOUT_CHECK != (check))
/* A build that reads again sleeps in between, so that its client can change the words even on a
 * machine with one processor. */
#define IS_COPIED(copy)                                                                            \
    (WITHOUT_CHECK != (copy) || (nanosleep(&(struct timespec){ .tv_nsec = 1 }, NULL), false))

#endif
