/* SPDX-License-Identifier: Apache-2.0 */
/* control_limits.h: how long texts of control messages may be, beside those of embtier_types.h. */
#ifndef EMBTIER_PROTO_CONTROL_LIMITS_H
#define EMBTIER_PROTO_CONTROL_LIMITS_H

#define CONFIG_FILE_BYTES_MAX 255 /* of HelloReply.config_file */

#endif
