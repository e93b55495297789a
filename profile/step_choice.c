/*
 * step_choice.c - which step is looked at; see step_choice.h.
 */
#include "profile/step_choice.h"

#include <stdlib.h>

static int compare_lengths(const void *x, const void *y)
{
    const StepLength *p = x, *q = y;
    if (p->ns != q->ns)
        return p->ns < q->ns ? -1 : 1;
    return p->number < q->number ? -1 : p->number > q->number;
}

bool step_choose(StepLength *steps, uint32_t n, int64_t asked, const char *name, int64_t *step,
                 Err *err)
{
    int64_t first = INT64_MAX, last = -1;
    bool there = asked < 0;
    for (uint32_t i = 0; i < n; i++) {
        there |= steps[i].number == asked;
        first = min_i64(first, steps[i].number);
        last = max_i64(last, steps[i].number);
    }
    if (n)
        qsort(steps, n, sizeof *steps, compare_lengths);
    *step = n == 0 ? -1 : asked >= 0 ? asked : steps[(n - 1) / 2].number;
    if (there)
        return true;
    if (n == 0)
        return err_set(err, "no steps are marked in '%.200s'", name);
    return err_set(err,
                   "'%.200s' has no step %" PRId64 ", %" PRId64 " to %" PRId64 " are there",
                   name, asked, first, last);
}
