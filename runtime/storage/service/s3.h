/* s3.h - how Amazon S3 and its like are asked for an object
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html).
 *
 * With AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or a profile's endpoint_url, the bucket stands in the path, as MinIO,
 * Ceph and tests want it. Else its host is BUCKET.s3.REGION.amazonaws.com; of a bucket with points in its name, which
 * no certificate covers, s3.REGION.amazonaws.com. The region is AWS_REGION's, AWS_DEFAULT_REGION's or the profile's,
 * and us-east-1 where nothing says; a server that names another one is asked again there. */
#ifndef SHARDRT_STORAGE_SERVICE_S3_H
#define SHARDRT_STORAGE_SERVICE_S3_H

#include "storage/service/services.h"

enum { S3_BUCKET = 64 }; /* names have 3 to 63 characters */

/* "s3://bucket/key" */
struct s3_address {
  char bucket[S3_BUCKET];
  const char *key; /* in the address */
};

/* For whatever speaks as S3 does. EINVAL: there is no such name. */
int s3_parse(const char *address, struct s3_address *out);
/* EINVAL: no object can have this key, or none can be asked for. */
int s3_check_key(const char *address, const char *key);
/* Signs what is asked, whose url stands in `out`, and the body's SHA-256. `token`: NULL where there is none. EINVAL:
 * this shardrt was built without OpenSSL; ENOMEM. */
int s3_sign(const struct service_call *call, const char *key, const char *secret, const char *token, const char *region,
            struct service_request *out);

extern const struct service_lists s3_lists;
extern const char *const s3_absent[];

#endif
