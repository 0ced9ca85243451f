/* secret.h - what a message must not show. */
#ifndef SHARDRT_BASE_SECRET_H
#define SHARDRT_BASE_SECRET_H

/* Takes out of all addresses in a text, in place, the user's name and password, and what stands behind a "?", which may
 * be a signature ("http://me:secret@host/x?sig=abc" becomes "http://host/x?…"). Never makes it longer. */
void secret_hide(char *text);

#endif
