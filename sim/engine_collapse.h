/*
 * engine_collapse.h - instances, stretches of them and chains as one event: how one is timed,
 * begins, ends, or is left in its middle.  Only the engine's files include this.
 */
#ifndef LOCKSTEP_SIM_ENGINE_COLLAPSE_H
#define LOCKSTEP_SIM_ENGINE_COLLAPSE_H

#include "sim/engine_state.h"

/* ---- engine_timing.c ---- */
bool macro_is_inner(const Sim *sim, const Runner *r, const Op *o, uint32_t *links);
/* Times the stretch, beside m->by, into m.  False when its timing is not that of a macro: a tail
 * off the compute lane, a time that does not fit, flows that it would slow. */
bool macro_time(Sim *sim, const Runner *r, Stretch of, Macro *m);

/* ---- engine_macro.c ---- */
Macro *macro_of(Sim *sim, Runner *r, uint32_t segment); /* its state is known */
bool macro_try(Sim *sim, Runner *r, uint32_t instance);
/* Do the transfers of a stretch take the same time of two ranks, over links of the same kinds? */
bool macro_same(Sim *sim, const Runner *a, const Runner *b, Stretch of);
/* Its times are shared with the twin's, what is booked of its transfers is the rank's own. */
void macro_copy(Sim *sim, const Runner *r, uint32_t segment, Macro *m, const Macro *twin);
/* May it begin, as far as lanes and links are concerned? */
bool macro_has_way(const Sim *sim, const Runner *r, const Macro *m, uint32_t instance);
void macro_begin(Sim *sim, Runner *r, const Macro *m, uint32_t op); /* graph op: its first */
void macro_finish(Sim *sim, Runner *r);
/* Notes in r->stop the position to which the macro runs undisturbed: its end or, unless it fits
 * (beside_fits), its next transfer that meets others, and in r->guard which of them. */
void macro_look_ahead(const Sim *sim, Runner *r, bool fits);
/* Links of the macro on which somebody else's flow has begun. */
uint32_t macro_links_in_use(const Sim *sim, const Runner *r, const Macro *m);
/* Does it transfer on one of the links at position x? */
bool macro_transfers_at(const Macro *m, uint32_t links, double x);
void macro_links_hold(Sim *sim, const Runner *r, const Macro *m);
void macro_links_release(Sim *sim, const Runner *r, const Macro *m);
uint32_t macro_stat(const Sim *sim, Runner *r, const Segment *s,
                    uint32_t i); /* of transfer i */
/* The transfers that are over at position x, and were not when it was last booked. */
void macro_book(Sim *sim, Runner *r, const Macro *m, uint32_t instance, double x);
/* The lane stands before the at-th of its ops in the instance. */
void macro_lane_skip(Sim *sim, Runner *r, uint32_t lane, uint32_t instance, uint32_t at,
                     const Path *path);
MacroPlace macro_here(Runner *r); /* of the running macro */

/* ---- engine_leave.c ---- */
static inline const Op *macro_op(const Sim *sim, const Macro *m, uint32_t i)
{
    return graph_ops(sim->g, &sim->g->segments[m->of.segment]) + i;
}
/* Where a lane is in a macro: how many of its ops in the segment are over, the last of those that
 * are of the macro, and the next; NONE_U32: there is none. */
typedef struct MacroLane {
    uint32_t over, last, next;
} MacroLane;
MacroLane macro_lane_at(const Sim *sim, const Macro *m, uint32_t lane, double x);
/* How much of what op i, in progress at position x, takes alone is done. */
double macro_op_into(const Sim *sim, const Runner *r, const Macro *m, uint32_t i, double x);
void macro_break(Sim *sim, Runner *r);
/* The running macro, or the part of the chain that it is in, goes on as `as` from position y on:
 * the same ops, and as far. */
void macro_go_on_as(Sim *sim, Runner *r, const Macro *as, double y);

/* ---- engine_beside.c ---- */
/* The macro as it goes beside the flows that it will meet if it begins now; NULL: it cannot. */
const Macro *beside_choose(Sim *sim, Runner *r, const Macro *m);
/* Will it meet none? */
bool beside_none(const Sim *sim, const Runner *r, const Macro *m);
/* Does the running macro at its next transfer meet those that it was timed beside? */
bool beside_fits(const Sim *sim, const Runner *r);
/* If not, it goes on beside those that it will meet.  Does it then? */
bool beside_refit(Sim *sim, Runner *r);
/* Its macro goes on at its position, and slows a flow or does not; and it leaves off. */
void beside_attach(Sim *sim, Runner *r);
void beside_detach(Sim *sim, Runner *r);
/* Somebody begins to use the links of d: flows there are slowed by no macro any more. */
void beside_make_way(Sim *sim, Demand d);
/* Does no macro transfer on them within so many ns? */
bool beside_is_quiet(Sim *sim, Demand d, int64_t ns);
/* What moves on the links of d has changed: macros there will be looked at, by compute_look. */
void beside_changed(Sim *sim, Demand d);

/* ---- engine_chain.c ---- */
void chains_index(Sim *sim);
/* NULL where there is none, or the host is not far enough ahead. */
const Macro *chain_of(Sim *sim, Runner *r, uint32_t first);
uint32_t chain_part_at(const Macro *m, double x);
/* The macro that it is in at *x, which becomes the position in that; itself, if it is no chain. */
const Macro *chain_part(const Macro *m, double *x);

/* ---- engine_stretch.c ---- */
bool stretch_try(Sim *sim, Runner *r, uint32_t instance, uint32_t op);

/* ---- engine_run.c ---- */
void runs_index(Sim *sim);
/* Graph op dst waits for src, which is on another lane, of an earlier instance. */
void runs_note(Sim *sim, uint32_t dst, uint32_t src);
bool run_try(Sim *sim, Runner *r, uint32_t instance);
void run_finish(Sim *sim, Runner *r);

#endif
