/* SPDX-License-Identifier: Apache-2.0 */
/* abusers.h: clients that behave as no good client does, each in a process of its own.
 *
 * They run under SCHED_IDLE, so an abuser gets only processor time that no other process wants. Its
 * own computing is not the server's fault; the figures should show only the work that it
 * makes for the server. On a machine with cores to spare this changes nothing. Abusers in a
 * closed loop do not run under SCHED_IDLE: they sleep until they have their answers.
 *
 * Thread: one. Failures of set-up end the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_ABUSERS_H
#define EMBTIER_TESTS_BENCH_LIB_ABUSERS_H

#include <stdint.h>
#include <sys/types.h>

enum abuser_kind {
    ABUSER_MUTE,           /* 100 connections that say nothing, 100 with half a frame */
    ABUSER_GARBAGE,        /* random bytes, frames of random bodies, wrong lengths, descriptors */
    ABUSER_UNREAD,         /* asks for status and tables, never reads an answer */
    ABUSER_FLOOD,          /* 1,024 requests in flight, of one row and of very many in turn */
    ABUSER_STATUS,         /* asks for the status without pause, and reads the answers */
    ABUSER_CONNECTS,       /* connects and leaves, 1,000 times a second */
    ABUSER_CONNECTS_HELLO, /* connects, says hello and leaves, 1,000 times a second */
    ABUSER_SEGMENTS,       /* 20 sessions that ask for 16 rows 65,536 times in each request, … */
    ABUSER_SEGMENTS_100,   /* … and 100 such sessions, each with one request in flight */
    ABUSER_MILLION, /* one that asks for a million rows in each request, with two in flight */
};

struct abuser_place {
    const char *socket;
    uint64_t table; /* handle of one whose rows the abuser may use */
    uint32_t row_bytes;
    uint32_t huge_rows; /* ids of a large request; the table has them all */
};

struct abuser {
    pid_t pid;
    _Atomic uint64_t *acts; /* connections, requests or answers so far */
};

/* Returns when the abuser is at work. */
struct abuser abuser_start(enum abuser_kind kind, const struct abuser_place *place);
/* The same with a function of the caller's, which never returns. It counts its acts, and is at work
 * once it has done @least. */
struct abuser abuser_start_with(void (*run)(const void *context, _Atomic uint64_t *acts),
                                const void *context, uint64_t least);
/* From now on the calling process gets only time that no other process wants. */
void abuser_be_idle(void);
/* Kills it. Returns the number of its acts. The program ends if it did not live until now. */
uint64_t abuser_stop(struct abuser *abuser);

#endif
