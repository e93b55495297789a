/* shorten.c - how many micro-batches show a steady state: rules of thumb, checked by the engine. */
#include "sim/shorten.h"

/* At most pp micro-batches are under way where chunks do not take turns, and not two rounds of pp
 * where they do, or where weight gradients come later.  One more, and a first, middle and last one
 * that differ. */
enum { WEIGH_MORE = 3, WEIGH_ROUNDS = 3 };

/* What fills the pipeline, and strides in which it is full, so that the run can be taken back over
 * some of them (engine_rewind.c).  Rounds of pp micro-batches of chunks that take turns: one fills
 * the pipeline, one settles, one is a stride, one drains it. */
enum { STRIDES = 8, ROUNDS = 4 };

/* Chunks of one way take turns by groups of pp micro-batches. */
static bool takes_rounds(const Parallel *p)
{
    return p->virtual_stages > 1 && !schedule_is_vee(p->schedule);
}

static uint32_t enough(const Parallel *p)
{
    return takes_rounds(p) ? ROUNDS * p->pp : schedule_fill(p->schedule, p->pp) + STRIDES;
}

/* A forward and a backward take turns all the time, so that a micro-batch more is one more turn.
 * Groups of more than pp micro-batches would be others in a graph of fewer. */
static bool takes_turns(const Parallel *p, uint32_t meant)
{
    if (p->strategy == STRATEGY_DP || p->strategy == STRATEGY_MODEL_PARALLEL ||
        (takes_rounds(p) && meant % p->pp != 0))
        return false;
    switch (p->schedule) {
    case SCHEDULE_1F1B:
    case SCHEDULE_INTERLEAVED:
    case SCHEDULE_ZB_H1:
    case SCHEDULE_ZBV:
    case SCHEDULE_DUALPIPE:
        return true;
    default: /* gpipe and naive do not, what is searched may be another order each time */
        return p->pp == 1 && p->virtual_stages == 1;
    }
}

uint32_t shorten_to_weigh(const Scenario *s)
{
    const Parallel *p = &s->parallel;
    uint32_t meant = s->training.micro_batches;
    uint32_t least =
        takes_rounds(p) ? WEIGH_ROUNDS * p->pp : schedule_fill(p->schedule, p->pp) + WEIGH_MORE;
    return takes_turns(p, meant) && least < meant ? least : meant;
}

Shortening shorten(const Scenario *s)
{
    uint32_t meant = s->training.micro_batches, least = enough(&s->parallel);
    Shortening r = { .stride = takes_rounds(&s->parallel) ? s->parallel.pp : 1,
                     .no_pace = schedule_is_vee(s->parallel.schedule) };
    bool steady = takes_turns(&s->parallel, meant) && !(s->machine.jitter > 0);
    bool shorter = steady && least <= meant - meant / 4;
    r.micro_batches = shorter ? meant - (meant - least) / r.stride * r.stride : meant;
    return r;
}
