/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_err.h: every error of embtier. Each has one number, the same in C, on the wire and in
 * Python.
 *
 * Installed beside embtier.h. Numbers are never changed or reused; new ones are added at the end. A
 * miss is a result, not an error. */
#ifndef EMBTIER_ERR_H
#define EMBTIER_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, meaning to a user) */
#define EMBTIER_ERR_TABLE(X)                                                                       \
    X(OK, 0, "no error")                                                                           \
    X(NO_MEMORY, 1, "out of memory")                                                               \
    X(INVALID, 2, "invalid argument")                                                              \
    X(IO, 3, "input/output error")                                                                 \
    X(NO_SPACE, 4, "no space left on device")                                                      \
    X(CORRUPT, 5, "stored data is damaged")                                                        \
    X(NOT_FOUND, 6, "not found")                                                                   \
    X(EXISTS, 7, "already exists")                                                                 \
    X(NO_TABLE, 8, "no such table")                                                                \
    X(ID_RANGE, 9, "row id out of range")                                                          \
    X(OFFSET_RANGE, 10, "offset past the end of the arena")                                        \
    X(TOO_LARGE, 11, "over a limit")                                                               \
    X(BUSY, 12, "busy, try again")                                                                 \
    X(TIMEOUT, 13, "timed out")                                                                    \
    X(DISCONNECTED, 14, "connection to the server lost")                                           \
    X(UNREACHABLE, 15, "server not reachable")                                                     \
    X(PERMISSION, 16, "permission denied")                                                         \
    X(PROTOCOL, 17, "protocol violation")                                                          \
    X(VERSION, 18, "version not supported")                                                        \
    X(CONFIG, 19, "configuration mistake")                                                         \
    X(LOCKED, 20, "in use by another process")                                                     \
    X(MISMATCH, 21, "does not match what is stored")                                               \
    X(SHUTDOWN, 22, "server is shutting down")                                                     \
    X(UNSUPPORTED, 23, "not supported here")                                                       \
    X(DROPPED, 24, "table was dropped")                                                            \
    X(INTERNAL, 25, "internal error")                                                              \
    X(ARENA_FULL, 26, "shared arena too small")                                                    \
    X(AGAIN, 27, "not done yet")                                                                   \
    X(BAG_RANGE, 28, "bag offsets decrease or do not end at the number of ids")                    \
    X(NO_TICKET, 29, "this client has no such ticket")                                             \
    X(TICKET_USED, 30, "the ticket has been used or released")                                     \
    X(TICKET_EXPIRED, 31, "the ticket has expired")                                                \
    X(TICKETS_FULL, 32, "the memory for tickets is used up")                                       \
    X(SHAPE, 33, "gradients have the wrong shape")                                                 \
    X(NONFINITE, 34, "a gradient is not finite")                                                   \
    X(PINS_FULL, 35, "no room in DRAM for prefetched rows")                                        \
    X(NO_GROUP, 36, "this client is in no such group")                                             \
    X(GROUP_FULL, 37, "the group already has all its members")                                     \
    X(GROUP_STEP, 38, "not the next step of the group")                                            \
    X(GROUP_REFUSED, 39, "another member's push of this step was refused")                         \
    X(GROUP_BROKEN, 40, "a member of the group has gone")                                          \
    X(CANCELLED, 41, "cancelled")

enum embtier_err {
#define X(name, number, text) EMBTIER_##name = number,
    EMBTIER_ERR_TABLE(X)
#undef X
};

#ifdef __cplusplus
}
#endif
#endif
