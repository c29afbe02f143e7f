/* SPDX-License-Identifier: Apache-2.0 */
/* control_limits.h: limits on texts and bytes of control messages, in addition to
 * those of embtier_types.h. */
#ifndef EMBTIER_PROTO_CONTROL_LIMITS_H
#define EMBTIER_PROTO_CONTROL_LIMITS_H

#include <stdint.h>

#define DATA_DIRECTORY_BYTES_MAX 4096 /* of a path */
#define CONFIG_FILE_BYTES_MAX    255  /* of HelloReply.config_file */
#define SECRET_BYTES_MAX         64   /* of HelloReply.secret */

#define KNOB_VALUE_BYTES_MAX 4096
#define KNOB_FILE_BYTES_MAX  (UINT32_C(48) << 10) /* of KnobList.text */

#endif
