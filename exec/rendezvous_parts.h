/* rendezvous_parts.h - what the two halves of the rendezvous share. */
#ifndef LOCKSTEP_EXEC_RENDEZVOUS_PARTS_H
#define LOCKSTEP_EXEC_RENDEZVOUS_PARTS_H

#include "exec/net.h"
#include "exec/rendezvous.h"

#define HELLO_MAGIC     UINT64_C(0x706574736b636f6c) /* "lockstep" */
#define EXCUSE_MAGIC    UINT64_C(0x657375636578736c) /* "lsexcuse": the card is of who has ended */
#define MEET_FILE_TITLE "lockstep rendezvous 1"

enum { MEET_VERSION = 2 };

typedef struct Hello {
    uint64_t magic;
    RankCard card;
} Hello;

/* A rendezvous taken apart: a path, or host and port. */
typedef struct Spot {
    const char *text; /* as given, for messages */
    const char *path;
    char host[NET_HOST_MAX], port[NET_PORT_MAX];
} Spot;

/* Was rank 0's listener there before this process was? */
bool hub_was_there(const Spot *spot);
/* Rank 0 will not take over the listener that it inherited. */
void hub_leaves(void);
/* Rank 0's side: everybody's control connection and card, or one sentence for all. */
bool hub_meet(Meeting *m, const RankPlace *place, const RankCard *mine, const Spot *spot,
              int64_t deadline_ns, Err *err);

#endif
