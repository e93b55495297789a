/*
 * rendezvous.h - how the ranks of a job find each other.
 *
 *     rank 0   listens at tcp://HOST:PORT, or at any port that it writes to file:PATH
 *     others   connect, say hello with their card, and are welcomed or refused
 *     rank 0   when all have come, sends everybody the cards of all
 *
 * The connections stay open as control connections for the life of the job.  What
 * travels on them is notes: a header of four words and at most NOTE_BYTES_MAX
 * bytes, but for the table of cards.  All numbers are as the processor stores them;
 * a machine with the other byte order sees a wrong magic number and is refused.
 *
 * Whoever connects is a stranger until its hello is whole and right: reads are
 * bounded, a guest who dawdles is shown the door, ranks of another job are told so
 * and do no harm.  What ends the rendezvous (two ranks of one number, other world,
 * other digest, somebody missing, or excused by who started it) is said in one
 * sentence by every rank there.
 */
#ifndef LOCKSTEP_EXEC_RENDEZVOUS_H
#define LOCKSTEP_EXEC_RENDEZVOUS_H

#include "exec/fabric.h"

enum {
    MEET_TOKEN_BYTES = 16,
    MEET_NAME_MAX = 64,
    MEET_IDENTITY_MAX = 96,
    NOTE_BYTES_MAX = 1024,
    NOTE_MAGIC = 0x6b6c7331 /* "1slk" */
};

/* What a rank says about itself. */
typedef struct RankCard {
    uint32_t version, rank, world, pid;
    uint64_t job, digest[2];
    uint32_t data_port;               /* where peers of other hosts connect */
    char address[MEET_NAME_MAX];      /* filled in by rank 0: as it sees the rank */
    char host[MEET_NAME_MAX];         /* for people */
    char identity[MEET_IDENTITY_MAX]; /* equal: same kernel, network and process names */
    char unix_name[MEET_NAME_MAX];    /* abstract socket where memory is handed over */
} RankCard;

typedef enum NoteType {
    NOTE_WELCOME = 1, /* your hello is right; wait for the table */
    NOTE_REFUSED,     /* text: why the job cannot begin */
    NOTE_STRANGER,    /* text: this is another job */
    NOTE_TABLE,       /* token, cards in rank order */
    NOTE_BEAT,
    NOTE_FAIL, /* text: the job is over */
    NOTE_BYE   /* leaves in good order */
} NoteType;

typedef struct Note {
    uint32_t magic, type, from, bytes;
} Note;

typedef struct Meeting {
    RankCard *cards;                 /* [world] */
    uint8_t token[MEET_TOKEN_BYTES]; /* shared by the job, unknown to others */
    int *control;                    /* rank 0: [world], its own -1; others: [0] */
    uint32_t control_n;
} Meeting;

/* mine: all but address; world, rank, job, digest are taken from place. */
bool rendezvous_meet(Meeting *m, const RankPlace *place, const RankCard *mine, Err *err);
void meeting_free(Meeting *m); /* closes what is open */

/* Tells rank 0, where the ranks are still meeting, that a rank of this host has ended and will not
 * come: then they end, too.  False: rank 0 was not to be reached until then. */
bool rendezvous_excuse(const RankPlace *place, uint32_t rank, uint32_t pid, int64_t until_ns);

/* Fills host and identity of this process. */
void rendezvous_introduce(RankCard *card);

/* Checks the form "tcp://HOST:PORT" or "file:PATH". */
bool rendezvous_check(const char *rendezvous, Err *err);
/* Where copy 0, 1, 2 ... of a job meets: tcp://HOST:PORT + copy, file:PATH.copy; copy 0 at
 * `rendezvous` itself.  Malloc'd; NULL with err when there is no such port. */
char *rendezvous_of_copy(const char *rendezvous, uint32_t copy, Err *err);
/* Whether all ranks come over the loopback interface. */
bool rendezvous_is_local(const char *rendezvous);

/* A listening socket made before the ranks are, processes or threads: rank 0 uses it when the port
 * is the one asked for.  The others know by it that who is not there any more will not come.
 * -1, 0: there is none any more. */
void rendezvous_inherit(int listener, uint16_t port);

#endif
