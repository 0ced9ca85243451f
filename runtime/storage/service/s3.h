/* s3.h - how Amazon S3 and its like are asked for an object
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html).
 *
 * With AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or a profile's endpoint_url, the bucket stands in the path, as MinIO,
 * Ceph and tests want it. Else its host is BUCKET.s3.REGION.amazonaws.com; of a bucket with points in its name, which
 * no certificate covers, s3.REGION.amazonaws.com. The region is AWS_REGION's, AWS_DEFAULT_REGION's or the profile's,
 * and us-east-1 where nothing says; a server that names another one is asked again there. */
#ifndef SHARDRT_STORAGE_SERVICE_S3_H
#define SHARDRT_STORAGE_SERVICE_S3_H

#include "storage/service/service.h"

int s3_request_make(const char *address, const char *query, const char *payload, struct service_request *out);
bool s3_learn(const char *address, const struct refusal *refusal);
/* Begins with ";" or "". Static, or of `room`. */
const char *s3_advice(const struct refusal *refusal, char *room, size_t bytes);

#endif
