/* hub.h - which commits revisions of Hugging Face's repositories are, told among the processes of a job. */
#ifndef SHARDRT_STORAGE_SERVICE_HUB_H
#define SHARDRT_STORAGE_SERVICE_HUB_H

enum { HUB_COMMIT = 40 };

/* *out: the repository and revision of an address, "datasets/OWNER/NAME@main"; NULL: it is another service's, or names
 * a commit. Owned by the caller. EINVAL: it names no repository; ENOMEM. */
int hub_revision(const char *address, char **out);
/* The commit that the revision of such an address is for this process, which asks the server for it once. EIO; ENOMEM.
 */
int hub_commit(const char *address, char out[HUB_COMMIT + 1]);
/* Has it be this one, if this process has not asked yet. EINVAL: it is none; ENOMEM. */
int hub_pin(const char *address, const char *commit);

#endif
