/* folder.h - folders that `datasets` wrote by save_to_disk: state.json names their files, in order.
 * https://huggingface.co/docs/datasets/package_reference/main_classes#datasets.Dataset.save_to_disk */
#ifndef SHARDRT_DATASET_ARROW_FOLDER_H
#define SHARDRT_DATASET_ARROW_FOLDER_H

#include "storage/stored.h"

/* Paths of files, owned. */
struct arrow_paths {
  int32_t count;
  int64_t room;
  char **list;
};

/* Puts in each folder's place its files; an address that ends with "/" is a folder. EINVAL, EFORMAT: it is none of
 * those, or what it holds is not all in these files; the message says what would work. ENOMEM; EIO. */
int arrow_folder_expand(int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                        struct arrow_paths *out);
void arrow_paths_clear(struct arrow_paths *self); /* any that is zeroed or was filled */

#endif
