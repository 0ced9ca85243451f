/* azure_blocks.c - parts of a blob are its blocks (https://learn.microsoft.com/rest/api/storageservices/put-block).
 * What makes the blob of them is their list (put-block-list); blocks that no list has are seen by nobody, and vanish
 * within a week. So nothing has to be begun at the server, or ended. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/exchange/percent.h"
#include "storage/exchange/signature.h"
#include "storage/service/ask.h"
#include "storage/upload/multipart_kind.h"

/* Names of blocks must be as long as all others of the blob, also those that other programs left: 48 bytes, as Azure's
 * own libraries mostly have them. The upload's mark keeps them apart from other uploads'. */
enum { NAME = 48 };

static int begin(const char *address, struct multipart *upload) {
  (void)address;
  memcpy(upload->id, upload->mark, sizeof upload->mark);
  return SHARDRT_OK;
}

/* In base64. */
static int name_block(const char *id, int32_t number, char tag[MULTIPART_TAG]) {
  char name[NAME + 1];
  snprintf(name, sizeof name, "shardrt-%s-%07d", id, (int)number);
  char *coded = signature_bytes((const uint8_t *)name, NAME);
  if (coded != NULL) snprintf(tag, MULTIPART_TAG, "%s", coded);
  alloc_free(coded);
  return coded != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int put(const char *address, const char *id, int32_t number, const void *data, size_t bytes,
               const atomic_bool *is_given_up, char tag[MULTIPART_TAG]) {
  struct exchange_answer answer = {0};
  int code = name_block(id, number, tag);
  char *coded = code == SHARDRT_OK ? percent_encoded(tag, "") : NULL;
  char *query = coded != NULL ? alloc_text("blockid=%s&comp=block", coded) : NULL;
  const struct ask ask = {
      .method = "PUT", .address = address, .query = query, .body = data, .bytes = bytes, .is_given_up = is_given_up};
  code = query != NULL ? ask_server(&ask, &answer) : ALLOC_FAILED;
  exchange_free(&answer);
  alloc_free(query);
  alloc_free(coded);
  return code;
}

/* <Latest> means the block of that name whether it is in the blob already or not: a list that came once, and whose
 * answer was lost, may come again. */
static char *list_of_blocks(int32_t count, const char (*tags)[MULTIPART_TAG]) {
  static const char begins[] = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>", ends[] = "</BlockList>";
  static const char row[] = "<Latest>%s</Latest>";
  const size_t room = sizeof begins + sizeof ends + (size_t)count * (sizeof row + MULTIPART_TAG);
  char *text = alloc_array(room, 1);
  if (text == NULL) return NULL;
  size_t used = (size_t)snprintf(text, room, "%s", begins);
  for (int32_t i = 0; i < count; i++) used += (size_t)snprintf(text + used, room - used, row, tags[i]);
  snprintf(text + used, room - used, "%s", ends);
  return text;
}

static int complete(const char *address, const struct multipart *upload, int32_t count,
                    const char (*tags)[MULTIPART_TAG]) {
  struct exchange_answer answer = {0};
  char *list = list_of_blocks(count, tags);
  (void)upload;
  const struct ask ask = {.method = "PUT",
                          .address = address,
                          .query = "comp=blocklist",
                          .body = list,
                          .bytes = list != NULL ? strlen(list) : 0,
                          .more_seconds = (double)count / MULTIPART_PER_SECOND};
  int code = list != NULL ? ask_server(&ask, &answer) : ALLOC_FAILED;
  exchange_free(&answer);
  alloc_free(list);
  return code;
}

const struct multipart_kind azure_blocks = {.begin = begin, .put = put, .complete = complete};
