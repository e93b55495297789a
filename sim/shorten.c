/* shorten.c - how many micro-batches show a steady state: rules of thumb, checked by the engine. */
#include "sim/shorten.h"

/* At most pp micro-batches are under way where chunks do not take turns, and not two rounds of pp
 * where they do.  One more, and a first, middle and last one that differ. */
enum { WEIGH_MORE = 3, WEIGH_ROUNDS = 3 };

/* What fills the pipeline, and strides in which it is full, so that the run can be taken back over
 * some of them (engine_rewind.c).  Rounds of pp micro-batches of chunks that take turns: one fills
 * the pipeline, one settles, one is a stride, one drains it. */
enum { STRIDES = 8, ROUNDS = 4 };

static uint32_t enough(const Parallel *p)
{
    return p->virtual_stages > 1 ? ROUNDS * p->pp : p->pp + STRIDES;
}

/* Forwards and backwards take turns, so that a micro-batch more is one more turn. */
static bool takes_turns(const Scenario *s)
{
    const Parallel *p = &s->parallel;
    bool alone = p->pp == 1 && p->virtual_stages == 1;
    return (alone || p->schedule == SCHEDULE_1F1B || p->schedule == SCHEDULE_INTERLEAVED) &&
           p->strategy != STRATEGY_DP && p->strategy != STRATEGY_MODEL_PARALLEL &&
           !(s->machine.jitter > 0);
}

uint32_t shorten_to_weigh(const Scenario *s)
{
    const Parallel *p = &s->parallel;
    uint32_t meant = s->training.micro_batches;
    bool taken =
        p->pp == 1 || p->schedule == SCHEDULE_1F1B || p->schedule == SCHEDULE_INTERLEAVED;
    if (!taken || p->strategy == STRATEGY_DP || p->strategy == STRATEGY_MODEL_PARALLEL)
        return meant;
    uint32_t least = p->virtual_stages > 1 ? WEIGH_ROUNDS * p->pp : p->pp + WEIGH_MORE;
    return least < meant ? least : meant;
}

Shortening shorten(const Scenario *s)
{
    uint32_t meant = s->training.micro_batches, least = enough(&s->parallel);
    Shortening r = { .stride = s->parallel.virtual_stages > 1 ? s->parallel.pp : 1 };
    bool shorter = takes_turns(s) && least <= meant - meant / 4;
    r.micro_batches = shorter ? meant - (meant - least) / r.stride * r.stride : meant;
    return r;
}
