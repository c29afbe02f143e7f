/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_index.h: a model in several safetensors files, with an index that maps tensors to files.
 * Hugging Face's libraries write it: NAME.safetensors.index.json, whose `weight_map` maps the name
 * of each tensor to that of a file. The content of an index is hostile until it is checked here. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_INDEX_H
#define EMBTIER_CLIENT_FILES_TENSOR_INDEX_H

#include "base/err.h"

/* Finds the file in @folder that has @tensor; the path is malloced, or NULL if the folder has no
 * index. @tensor may be NULL if the index has only one. INVALID: there are several indices, or
 * several tensors to choose from. NOT_FOUND: no such tensor. CORRUPT: the file is not an index. */
MUST_CHECK enum embtier_err tensor_index_find(const char *folder, const char *tensor,
                                              char **ret_path, struct err_msg *msg);

#endif
