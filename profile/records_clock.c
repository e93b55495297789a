/* records_clock.c - CUPTI's clock, mapped to the machine's by what was read of both. */
#include <math.h>

#include "profile/records_parts.h"

static int64_t target_ns(const Records *r, const RawClock *c)
{
    return r->o->monotonic ? c->monotonic_ns : c->real_ns;
}

void records_clock_settle(Records *r)
{
    RecordsInfo *info = r->info;
    if (r->clocks_n == 0) {
        if (r->end_ns > 0) /* it has times at all */
            records_find(info, "'%.100s' says nothing about clocks: its times are CUPTI's own",
                         r->name);
        return;
    }
    int64_t cupti_ns = r->last.cupti_ns - r->first.cupti_ns;
    int64_t other_ns = target_ns(r, &r->last) - target_ns(r, &r->first);
    if (cupti_ns > 0)
        info->drift = (double)(other_ns - cupti_ns) / (double)cupti_ns;
    if (fabs(info->drift) <= CLOCK_DRIFT_MAX)
        return;
    records_find(info, "'%.100s': the clock was set while it recorded, by %.3f s", r->name,
                 (double)(other_ns - cupti_ns) * 1e-9);
    info->drift = 0;
}

int64_t records_time(const Records *r, int64_t cupti_ns)
{
    if (r->clocks_n == 0)
        return cupti_ns;
    int64_t since_ns = cupti_ns - r->first.cupti_ns;
    return target_ns(r, &r->first) + since_ns +
           (int64_t)llround((double)since_ns * r->info->drift);
}
