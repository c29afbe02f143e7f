/* SPDX-License-Identifier: Apache-2.0 */
/* dead_link.h: lets the system end a TCP connection whose other side is gone without a word: a host
 * that lost power, a cable, a firewall that forgot the connection. Thread: any. */
#ifndef EMBTIER_BASE_NET_DEAD_LINK_H
#define EMBTIER_BASE_NET_DEAD_LINK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that the other side has not acknowledged for so long end the connection (TCP_USER_TIMEOUT).
 * So does silence, which the system breaks by probes: these are answered by the other side's
 * system, so a busy or stopped process does not count as gone. */
#define DEAD_LINK_SECONDS 30

/* @fd: a socket of any kind; does nothing unless it is TCP. A system that refuses only finds out
 * later that the other side is gone. */
void dead_link_notice(int fd);

#ifdef __cplusplus
}
#endif
#endif
