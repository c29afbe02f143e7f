/* SPDX-License-Identifier: Apache-2.0 */
/* abusers.h: clients that do what no good client does, each a process of its own.
 *
 * They run under SCHED_IDLE: what an abuser computes for itself is no doing of the server's, so it
 * gets only the processor time that nobody else wants, and what is measured beside it is what the
 * server does on its behalf. On a machine with cores to spare that makes no difference. Those that
 * ask in a closed loop are no such: they sleep until they have their answers.
 *
 * Thread: one. What cannot be set up ends the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_ABUSERS_H
#define EMBTIER_TESTS_BENCH_LIB_ABUSERS_H

#include <stdint.h>
#include <sys/types.h>

enum abuser_kind {
    ABUSER_MUTE,           /* 100 connections that say nothing, 100 with half a frame */
    ABUSER_GARBAGE,        /* random bytes, frames of random bodies, wrong lengths, descriptors */
    ABUSER_UNREAD,         /* asks for status and tables, never reads an answer */
    ABUSER_FLOOD,          /* 1,024 requests in flight, of one row and of very many by turns */
    ABUSER_STATUS,         /* asks for the status without pause, and reads the answers */
    ABUSER_CONNECTS,       /* connects and leaves, 1,000 times a second */
    ABUSER_CONNECTS_HELLO, /* connects, says hello and leaves, 1,000 times a second */
    ABUSER_SEGMENTS,       /* 20 sessions that ask for 16 rows 65,536 times in each request, … */
    ABUSER_SEGMENTS_100,   /* … and 100, each the next one when the last is answered */
    ABUSER_MILLION, /* one that asks for a million rows in each, two of which are in flight */
};

struct abuser_place {
    const char *socket;
    uint64_t table; /* handle of one whose rows are the abuser's */
    uint32_t row_bytes;
    uint32_t huge_rows; /* of a large request; the table has them all */
};

struct abuser {
    pid_t pid;
    _Atomic uint64_t *acts; /* connections, requests or answers so far */
};

/* Returns when it is at work. */
struct abuser abuser_start(enum abuser_kind kind, const struct abuser_place *place);
/* Kills it. Returns what it did. It must have lived until now. */
uint64_t abuser_stop(struct abuser *abuser);

#endif
