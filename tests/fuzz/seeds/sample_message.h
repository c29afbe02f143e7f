/* SPDX-License-Identifier: Apache-2.0 */
/* sample_message.h: a message of any kind with every field set, made from its descriptor. So a
 * message that is added to a .proto file has a seed without further work. Pure. */
#ifndef EMBTIER_TESTS_FUZZ_SEEDS_SAMPLE_MESSAGE_H
#define EMBTIER_TESTS_FUZZ_SEEDS_SAMPLE_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/macros.h"
#include "tests/fuzz/seeds/seeds.h"

/* Returns a message of the kind @descriptor, malloced with all that it has. If it has a oneof of
 * messages, that is the field @body; NULL: none. */
ProtobufCMessage *sample_message(const ProtobufCMessageDescriptor *descriptor, const char *body);
void sample_free(ProtobufCMessage *message);
DEFINE_CLEANUP(ProtobufCMessage, sample_free)
/* Sets the number @name of a sample. */
void sample_set(ProtobufCMessage *message, const char *name, uint64_t value);
void sample_pack(struct seed *seed, const ProtobufCMessage *message);

#endif
