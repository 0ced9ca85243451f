/* aws_credentials.h - who one is for S3, found where AWS's own tools look, in their order:
 *
 * 1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN;
 * 2. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, by which STS gives credentials (as in EKS);
 * 3. the profile ($AWS_PROFILE, "default") of ~/.aws/credentials ($AWS_SHARED_CREDENTIALS_FILE), then of ~/.aws/config
 *    ($AWS_CONFIG_FILE);
 * 4. a container's (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI with _AUTHORIZATION_TOKEN or its file);
 * 5. the instance's role (IMDSv2), unless AWS_EC2_METADATA_DISABLED is "true".
 *
 * (https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html.) None at all: requests are not
 * signed, as public buckets want it. What expires is asked for anew before it does. */
#ifndef SHARDRT_STORAGE_EXCHANGE_AWS_CREDENTIALS_H
#define SHARDRT_STORAGE_EXCHANGE_AWS_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

struct aws_credentials {
  char *key, *secret, *token; /* NULL: none; owned */
  time_t expires;             /* 0: never */
};

/* A copy for the caller, of this process's. From any thread. EINVAL: half of them is there, or a profile is not. EIO:
 * a place that is configured does not give any. ENOMEM. */
int aws_credentials_get(struct aws_credentials *out);
void aws_credentials_free(struct aws_credentials *self); /* any that is zeroed or was got */

/* The next call looks for them anew: a server said that these have expired. */
void aws_credentials_forget(void);

/* What the profile in ~/.aws/config said when the credentials were got last. Owned; NULL: it does not say, or memory is
 * exhausted. */
char *aws_region(void);
char *aws_endpoint(void);

#endif
