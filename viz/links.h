/*
 * links.h - from one event to those it belongs to: launch and kernel, the parts of a
 * collective, send and receive, the twin of the other side; and the longest exposed ones.
 */
#ifndef LOCKSTEP_VIZ_LINKS_H
#define LOCKSTEP_VIZ_LINKS_H

#include "viz/view.h"

/* The row that shows a span of a stream or thread; row NONE_U32: none does. */
ViewPlace view_place_of(const ViewData *d, uint32_t side, uint64_t span);

/*
 * What a span is linked to, in a ring: the parts of its collective by rank, of ranks shown; else
 * its launch, or its kernel, by correlation.  At most n; returns how many, the span itself not
 * among them.
 */
uint32_t view_links_of(const View *v, ViewPlace place, ViewPlace *to, uint32_t n);
/* The one after (or before) a span in its ring. */
ViewPlace view_link_next(const View *v, ViewPlace place, bool back);

/* The communication span whose exposed part is next shorter (back: longer) than the picked
 * one's; the longest when nothing is picked.  Over the ranks shown. */
ViewPlace view_exposed_next(const View *v, ViewPlace from, bool back);

/*
 * What launched a span of the GPU: the host span with its correlation id, and the innermost
 * host span around that one (the framework's op).  NONE_U64 each where unknown.
 */
typedef struct ViewLaunch {
    uint64_t launch, within;
} ViewLaunch;
ViewLaunch view_launch_of(ViewData *d, ViewPlace place);

/* The op of a span and the other side's that it is paired with; NULL: it is not. */
const ViewPair *view_pair_of(const View *v, ViewPlace place);
/* A kernel of that other op. */
ViewPlace view_twin(const View *v, ViewPlace place);

#endif
