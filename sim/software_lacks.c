/*
 * software_lacks.c - what a scenario does that its stack cannot do (parallel.lacks of its file).
 *
 * It is predicted all the same: the words are for who asks.  What plan leaves out for that reason
 * is planner_lacks.c.
 */
#include "sim/software.h"
#include "sim/texts.h"

const char *software_lacks_text(const Software *sw, const Parallel *p, char *text)
{
    char sharded[32];
    TextList l = { .text = text, .cap = SOFTWARE_LACKS_CAP };
    bool alone = sw->lacks_strategy[p->strategy];
    text[0] = '\0';
    for (int d = 0; d < DIM_N; d++)
        text_list_add(&l, sw->lacks_dim[d] && parallel_degree(p, (Dim)d) > 1, dim_names[d]);
    text_list_add(&l, sw->lacks_sequence_parallel && p->sequence_parallel, "sequence_parallel");
    text_list_add(&l, sw->lacks_interleaved && p->schedule == SCHEDULE_INTERLEAVED,
                  "interleaved");
    text_list_add(&l, alone, strategy_names[p->strategy]);
    snprintf(sharded, sizeof sharded, "%s with pp", strategy_names[p->strategy]);
    text_list_add(
        &l, !alone && sw->lacks_fsdp_with_pp && p->pp > 1 && strategy_shards_grads(p->strategy),
        sharded);
    return text;
}
