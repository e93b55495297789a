/* shorten.c - how many micro-batches show a steady state: rules of thumb, checked by the engine. */
#include "sim/shorten.h"

/* Numbers left out divide by these many strides, so that a period of several strides fits. */
enum { FITS_STRIDES = 12 };

/* At most pp micro-batches are under way where chunks do not take turns, and not two rounds of pp
 * where they do.  One more, and a first, middle and last one that differ. */
enum { WEIGH_MORE = 3, WEIGH_ROUNDS = 3 };

/* Rounds of pp micro-batches of chunks that take turns: one fills the pipeline, one settles, one is
 * the pace, one drains it.  Gathers and reductions of each micro-batch settle later, and what is
 * not settled counts as often as it is left out. */
enum { ROUNDS = 4, ROUNDS_MORE = 2, ROUNDS_MANY = 6 };

static uint32_t enough_rounds(const Scenario *s, uint32_t try)
{
    const Parallel *p = &s->parallel;
    bool sharded = p->strategy == STRATEGY_FSDP || p->strategy == STRATEGY_HSDP;
    bool many = s->training.micro_batches > ROUNDS_MANY * p->pp;
    return ROUNDS + ROUNDS_MORE * (try + (sharded && many));
}

/* What fills the pipeline, and some for waves in it to die away: more where sends of whole
 * activations share the network with another traffic of each micro-batch. */
static uint32_t enough(const Scenario *s, uint32_t try)
{
    const Parallel *p = &s->parallel;
    bool shared = p->cp > 1 && !p->sequence_parallel;
    if (p->pp == 1)
        return 6;
    if (p->virtual_stages > 1)
        return enough_rounds(s, try) * p->pp;
    return (1 + try + shared) * p->pp + 8;
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
    const Parallel *p = &s->parallel;
    uint32_t meant = s->training.micro_batches;
    Shortening r = { .stride = p->virtual_stages > 1 ? p->pp : 1 };
    for (uint32_t try = 0; try < SHORTENINGS_MAX - 1 && takes_turns(s); try++) {
        uint32_t least = enough(s, try);
        if (least >= meant)
            break;
        uint32_t strides = (meant - least) / r.stride;
        uint32_t fits = strides >= 2 * FITS_STRIDES ? FITS_STRIDES : 1;
        uint32_t n = meant - strides / fits * fits * r.stride;
        uint32_t most = try == 0 || p->virtual_stages > 1 ? meant * 3 / 4 : meant / 2;
        if (n <= most && (r.n == 0 || n > r.micro_batches[r.n - 1]))
            r.micro_batches[r.n++] = n;
    }
    r.micro_batches[r.n++] = meant;
    return r;
}
