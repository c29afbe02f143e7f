/* SPDX-License-Identifier: Apache-2.0 */
/* control_limits.h: limits on texts and bytes of control messages, in addition to
 * those of embtier_types.h. */
#ifndef EMBTIER_PROTO_CONTROL_LIMITS_H
#define EMBTIER_PROTO_CONTROL_LIMITS_H

#define CONFIG_FILE_BYTES_MAX 255 /* of HelloReply.config_file */
#define SECRET_BYTES_MAX      64  /* of HelloReply.secret */

#endif
