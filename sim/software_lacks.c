/*
 * software_lacks.c - what a scenario does that its stack cannot do (parallel.lacks of its file).
 *
 * It is predicted all the same: the words are for who asks.  What plan leaves out for that reason
 * is planner_lacks.c.
 */
#include <stdio.h>

#include "sim/software.h"

typedef struct Words {
    size_t at;
    char *text;
} Words;

static void add(Words *w, bool lacks, const char *word)
{
    if (lacks && w->at < SOFTWARE_LACKS_CAP)
        w->at += (size_t)snprintf(w->text + w->at, SOFTWARE_LACKS_CAP - w->at, "%s%s",
                                  w->at > 0 ? ", " : "", word);
}

const char *software_lacks_text(const Software *sw, const Parallel *p, char *text)
{
    Words w = { .text = text };
    bool alone = sw->lacks_strategy[p->strategy];
    text[0] = '\0';
    for (int d = 0; d < DIM_N; d++)
        add(&w, sw->lacks_dim[d] && parallel_degree(p, (Dim)d) > 1, dim_names[d]);
    add(&w, sw->lacks_sequence_parallel && p->sequence_parallel, "sequence_parallel");
    add(&w, sw->lacks_interleaved && p->schedule == SCHEDULE_INTERLEAVED, "interleaved");
    add(&w, alone, strategy_names[p->strategy]);
    if (!alone && sw->lacks_fsdp_with_pp && p->pp > 1 && strategy_shards_grads(p->strategy)) {
        add(&w, true, strategy_names[p->strategy]);
        w.at += (size_t)snprintf(text + w.at, SOFTWARE_LACKS_CAP - w.at, " with pp");
    }
    return text;
}
