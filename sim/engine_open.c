/*
 * engine_open.c - steps that follow one another on each rank by itself.
 *
 *     stage 0   |F F F F B B B B|F F F F B B B B|
 *     stage 1     |F F F B F B B B|F F F B F B B B|
 *
 * Nothing makes ranks wait for each other between steps (Graph.open_ended).  The step is run
 * again with each rank beginning as long behind the first as it ended, until all ranks take equally
 * long.
 */
#include <stdlib.h>

#include "sim/engine_state.h"

/* So many are run to find how they follow; each part of a step that they differ by less is as good
 * as none. */
enum { OPEN_STEPS = 6, OPEN_PART = 10000 };

/* Fills start_ns with when the step after the one in result begins on each class, the first at 0.
 * True: as they began in this one, by what was in start_ns (NULL: it was empty), but for little. */
static bool follow(const SimResult *result, int64_t **start_ns)
{
    bool empty = !*start_ns;
    if (empty)
        *start_ns = mem_zero(result->ranks_n, sizeof **start_ns);
    int64_t first_ns = INT64_MAX, least_ns = INT64_MAX;
    for (uint32_t i = 0; i < result->ranks_n; i++) {
        first_ns = min_i64(first_ns, result->ranks[i].end_ns);
        least_ns = min_i64(least_ns, result->ranks[i].end_ns - (*start_ns)[i]);
    }
    if (result->step_ns - least_ns <= result->step_ns / OPEN_PART)
        return true;
    for (uint32_t i = 0; i < result->ranks_n; i++)
        (*start_ns)[i] = result->ranks[i].end_ns - first_ns;
    return false;
}

/* All ranks begin the first step together, and each the next when it is done with the one before:
 * soon they take equally long.  The last of them is what is told. */
static bool run_open(SimResult *result, const Graph *g, const Machine *m, const Software *sw,
                     const SimOptions *options, Err *err)
{
    SimOptions unseen = *options;
    unseen.expanded |= options->timeline != NULL;
    unseen.timeline = NULL;
    int64_t *start_ns = NULL;
    bool ok = sim_run_from(NULL, result, g, m, sw, &unseen, err);
    for (uint32_t k = 1; ok && k < OPEN_STEPS; k++) {
        if (result->repeated != options->left_out || follow(result, &start_ns))
            break;
        sim_result_free(result);
        ok = sim_run_from(start_ns, result, g, m, sw, &unseen, err);
    }
    if (ok && options->timeline) {
        sim_result_free(result);
        ok = sim_run_from(start_ns, result, g, m, sw, options, err);
    }
    free(start_ns);
    return ok;
}

bool sim_run(SimResult *result, const Graph *g, const Machine *m, const Software *sw,
             const SimOptions *options, Err *err)
{
    return g->open_ended ? run_open(result, g, m, sw, options, err)
                         : sim_run_from(NULL, result, g, m, sw, options, err);
}
