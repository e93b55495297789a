/*
 * draft_split.c - backward in two: the gradients that travel on, then those of the weights.
 *
 *     played     dgrad 2  wgrad 2  norm  dgrad 1  wgrad 1
 *     split      dgrad 2  norm  dgrad 1 | wgrad 2  wgrad 1
 *
 *     played     dgrad 2  wgrad 2  cast 2  norm  dgrad 1  wgrad 1  cast 1
 *     sums       dgrad 2  wgrad 2  norm  dgrad 1  wgrad 1 | cast 2  cast 1
 *
 * Gradients that come out of the same kernel as a gradient that travels on (of norms) stay in
 * front, and so does a weight gradient whose operands are overwritten later, with what reads its
 * result (a cast): that would be held for it.
 */
#include <stdlib.h>

#include "sim/draft.h"

/* Does an op that stays, after op i, write what op i reads, or touch what it writes? */
static bool is_needed_here(const Draft *d, const bool *moves, uint32_t i)
{
    const DraftOp *op = &d->ops[i];
    for (uint32_t j = i + 1; j < d->ops_n; j++)
        for (uint32_t a = 0; a < d->ops[j].arg_n && !moves[j]; a++)
            for (uint32_t k = 0; k < op->arg_n; k++) {
                const DraftArg *later = &d->args[d->ops[j].arg_first + a];
                const DraftArg *mine = &d->args[op->arg_first + k];
                if (later->memory == mine->memory &&
                    (later->mode != ARG_READ || mine->mode != ARG_READ))
                    return true;
            }
    return false;
}

static bool is_wgrad(const Draft *d, uint32_t i)
{
    return d->ops[i].op.phase == PHASE_WGRAD && d->ops[i].op.lane == LANE_COMPUTE;
}

static bool writes(const Draft *d, uint32_t i, uint32_t memory)
{
    for (uint32_t a = 0; a < d->ops[i].arg_n; a++)
        if (d->args[d->ops[i].arg_first + a].memory == memory &&
            d->args[d->ops[i].arg_first + a].mode != ARG_READ)
            return true;
    return false;
}

/* Does op i read what a weight gradient that stays has written? */
static bool reads_what_stays(const Draft *d, const bool *moves, uint32_t i)
{
    for (uint32_t a = 0; a < d->ops[i].arg_n; a++) {
        const DraftArg *arg = &d->args[d->ops[i].arg_first + a];
        for (uint32_t j = 0; j < i && arg->mode == ARG_READ; j++)
            if (is_wgrad(d, j) && !moves[j] && writes(d, j, arg->memory))
                return true;
    }
    return false;
}

/* Who stays may hold others back. */
static uint32_t choose(const Draft *d, DraftSplit what, bool *moves)
{
    bool sums = what == SPLIT_SUMS;
    uint32_t stay = 0, before;
    for (uint32_t i = 0; i < d->ops_n; i++)
        moves[i] = is_wgrad(d, i) && (!sums || d->ops[i].op.kind == OP_CAST);
    do {
        before = stay;
        stay = 0;
        for (uint32_t i = d->ops_n; i-- > 0;) {
            moves[i] = moves[i] && !is_needed_here(d, moves, i) &&
                       (sums || !reads_what_stays(d, moves, i));
            stay += !moves[i];
        }
    } while (stay != before);
    return stay;
}

uint32_t draft_split(Draft *d, DraftSplit what)
{
    bool *moves = mem_zero(d->ops_n + 1, sizeof *moves);
    DraftOp *ops = mem_zero(d->ops_cap, sizeof *ops);
    DraftArg *args = mem_zero(d->args_cap, sizeof *args);
    uint32_t stay = choose(d, what, moves), ops_n = 0, args_n = 0;
    for (int moved = 0; moved < 2; moved++)
        for (uint32_t i = 0; i < d->ops_n; i++) {
            if (moves[i] != (moved == 1))
                continue;
            ops[ops_n] = d->ops[i];
            ops[ops_n++].arg_first = args_n;
            for (uint32_t a = 0; a < d->ops[i].arg_n; a++)
                args[args_n++] = d->args[d->ops[i].arg_first + a];
        }
    free(moves);
    free(d->ops);
    free(d->args);
    d->ops = ops;
    d->args = args;
    return stay;
}
