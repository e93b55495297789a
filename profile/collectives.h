/*
 * collectives.h - which kernels of different ranks are one collective, and what
 * of their time was waiting.
 *
 *     rank 0   |~~~~~~~~~~~~~~~~~~~~~====|        ~ wait       for those that come later
 *     rank 1             |~~~~~~~~~~~====|        = transfer   the same for all: the
 *     rank 2                         |===|                     shortest kernel of the match
 *                                    ^ the last to arrive: the one who is waited for
 *
 * A transfer stands at the end of each kernel: collectives end together.  Where
 * the trace knows what was waiting (simulated, or our executor's) that is taken.
 *
 * MATCHING.  Kernels that can belong together form a channel, and within it are
 *
 *     by number   the channel is a process group (for sends and receives: a pair of
 *                 ranks in one direction), and its kernels are numbered
 *     by group    the same without numbers: the n-th of each rank
 *     by op       the n-th is not the same everywhere, as the channel's streams run one
 *                 ahead of the other: the n-th of each op, where the trace has op ids
 *     by group    the same without op ids: the n-th on the k-th stream of each rank
 *     and stream
 *     by stream   without groups: the n-th on the k-th stream that communicates
 *     by step     where counts differ, or order would take clocks to be far apart: the n-th of
 *                 each marked step that has as many on all ranks (collectives_step.c)
 *
 * A channel whose ranks disagree in how many they have, or in all orders in what the
 * n-th is, or that has more ranks than its group, is refused with a sentence; its kernels
 * count as unmatched; so is one without a group most of whose matches would end on one rank
 * before they begin on another (collectives_guess.c).  By number and by step not all need be
 * there: those with a partner are matched, the others counted.
 *
 * CLOCKS of the ranks are compared on the ends of matched collectives: the offset
 * of a rank is the median of what its ends are late, the residual what ends differ
 * by then.  Offsets below CLOCK_DIFFERS_NS are those of any collective on one
 * clock (measured: up to 49 us on eight GPUs of a node) and are not applied; nor are
 * those that leave the ends more than half as far apart as they were, by the median: of
 * ranks that take turns on one GPU collectives do not end together.
 */
#ifndef LOCKSTEP_PROFILE_COLLECTIVES_H
#define LOCKSTEP_PROFILE_COLLECTIVES_H

#include "core/arena.h"
#include "profile/metrics.h"

#define CLOCK_DIFFERS_NS ((int64_t)100 * 1000)

typedef enum MatchBy {
    MATCH_NONE, /* refused, or one rank only */
    MATCH_BY_NUMBER,
    MATCH_BY_GROUP,
    MATCH_BY_GROUP_STREAM,
    MATCH_BY_OP,
    MATCH_BY_STREAM,
    MATCH_BY_STEP,
    MATCH_BY_N
} MatchBy;

extern const char *const match_by_texts[MATCH_BY_N]; /* "sequence number", ... */

/*
 * One kernel that communicates; or those of one op of ours, as a rank of a loop copies piece by
 * piece: then the first one has the bytes, and times are from its start to the last one's end.
 */
typedef struct CollPart {
    uint64_t span;
    uint32_t rank; /* index into Covers.rank */
    uint32_t kernels_n;
    int64_t end_ns;
    int64_t wait_ns; /* -1 unknown: unmatched, and the trace does not say */
    int64_t exposed_ns;
} CollPart;

typedef struct CollChannel {
    uint32_t group, group_id; /* as in Comm; group NONE_U32: by stream */
    uint32_t from, to;        /* ranks of a pair; NONE_U32 for groups and streams */
    uint32_t stream;          /* k-th that communicates, from 0 */
    uint32_t ranks_n;         /* that have kernels here */
    bool loose; /* no group, and clocks are not to be had from it: see collectives_guess.c */
    MatchBy by;
    const char *refusal; /* a sentence, or NULL */
    uint64_t part_first, parts_n;
    uint64_t match_first, matches_n; /* unmatched parts stand behind the matched ones */
} CollChannel;

/* Parts of one collective, one a rank. */
typedef struct CollMatch {
    uint32_t channel;
    uint32_t parts_n;
    uint64_t part_first;
    int64_t transfer_ns;
    uint32_t last;     /* which of the parts came last, if others waited; NONE_U32 otherwise */
    int64_t waited_ns; /* mean wait of the others */
    uint32_t copies_n; /* collectives that it stands for (folded simulation), else 1 */
} CollMatch;

/* Collectives of one name, group and size; a rank counts as often as it stands for one. */
typedef struct CollRow {
    const char *name; /* the operation, or where unknown the kernel's name */
    const char *group;
    uint64_t bytes; /* of the rank with most; NONE_U64 unknown */
    uint32_t ranks_n;
    bool matched;   /* false: calls of single ranks; wait and transfer may be unknown */
    uint64_t count; /* collectives; where not matched, kernels */
    int64_t total_ns, wait_ns, transfer_ns, exposed_ns; /* sums over ranks; -1 unknown */
    int64_t transfer_median_ns;                         /* of one; -1 unknown */
    double algbw_GBps, busbw_GBps;                      /* of it, as nccl-tests; NaN unknown */
} CollRow;

/* What one rank had of it all. */
typedef struct CollRank {
    uint64_t kernels_n, matched_n;
    int64_t total_ns, wait_ns, transfer_ns; /* wait and transfer: where known */
    int64_t early_ns;       /* of matched: before the last rank began, on aligned clocks */
    uint64_t collectives_n; /* matched ones that it had a part in */
    uint64_t last_n;        /* in how many of these it was waited for */
    int64_t waited_ns;      /* for how long: means over the others in each, summed */
    int64_t waited_all_ns;  /* the same with the ranks that it stands for */
    Metrics late;           /* what its GPU did in that time */
    int64_t offset_ns;      /* its clock is ahead of that of the first rank by this */
    bool is_aligned;        /* offset is known */
} CollRank;

typedef struct Collectives {
    CollPart *parts;
    uint64_t parts_n;
    CollChannel *channels;
    uint32_t channels_n, channels_cap;
    CollMatch *matches;
    uint64_t matches_n, matches_cap;
    uint64_t unmatched_n;

    CollRow *rows; /* longest total first */
    uint32_t rows_n;
    CollRank *ranks; /* beside Covers.rank */
    uint32_t ranks_n;
    uint64_t among_alike_n; /* of these: kernels of collectives that a rank of a folded
                               simulation had with those it stands for, of which all is known */
    uint64_t collectives_n; /* those, and what the matches stand for */
    int64_t transfer_ns;    /* of these, each once */
    int64_t waited_ns;      /* for those who came last in them */

    bool clocks_compared, clocks_differ;  /* differ: offsets are applied */
    int64_t residual_ns, residual_max_ns; /* spread of ends: median and largest */

    Arena arena; /* texts */
} Collectives;

/* Part of the trace that is looked at; matching always sees all of it. */
typedef struct Selection {
    const bool *ranks; /* beside Covers.rank; NULL: all */
    const int64_t *from_ns,
        *to_ns; /* beside Covers.rank: kernels that start there; NULL: all */
} Selection;

static inline bool selection_has(const Selection *s, uint32_t rank, int64_t start_ns)
{
    return (!s->ranks || s->ranks[rank]) &&
           (!s->from_ns || (start_ns >= s->from_ns[rank] && start_ns < s->to_ns[rank]));
}

/*
 * Rows, sums, stragglers: of what is selected (NULL: everything).  t must be sealed
 * and checked.  O(n), but for kernels of a group that come out of order.
 */
void collectives_find(Collectives *c, const Timeline *t, const Covers *covers,
                      const Selection *selection);
void collectives_free(Collectives *c);

/* When a span of a rank begins or ends on the clock of the first rank. */
static inline int64_t collectives_aligned_ns(const Collectives *c, uint32_t rank, int64_t at_ns)
{
    return c->clocks_differ && c->ranks[rank].is_aligned ? at_ns - c->ranks[rank].offset_ns
                                                         : at_ns;
}

/* "group 'dp'", "rank 0 to rank 3", "stream 2 of those that communicate" */
char *collectives_channel_text(char *text, size_t cap, const Timeline *t, const CollChannel *c);

#endif
