/*
 * engine_state.h - what the engine's files share.  Nobody else includes this.
 *
 * Order of things at one instant: events set facts (an op is done, a flow ends)
 * and put the lanes that may go on into `todo`; todo is drained before the next
 * event is popped.
 *
 * An op on a lane has a sequence number: ops of that lane launched before it.
 * "Op X is done" is "lane.done > sequence of X", as with CUDA events.
 *
 * What instances are as one event: engine_macro.h; what is done with them: engine_collapse.h.
 */
#ifndef LOCKSTEP_SIM_ENGINE_STATE_H
#define LOCKSTEP_SIM_ENGINE_STATE_H

#include "sim/engine.h"
#include "sim/engine_macro.h"
#include "sim/evq.h"

enum { EVENT_LANE, EVENT_COMPUTE, EVENT_KERNEL, EVENT_HELD, EVENT_FLOW_DATA, EVENT_FLOW_END };

/* ---- what a GPU type makes of the graph ---- */

typedef struct CostTable {
    const Gpu *gpu;  /* of the machine */
    const Gpu *used; /* the same, as fast at sending as the ranks' nodes let it be */
    double speed;
    OpCost *op; /* by graph op; compute ops */
    int64_t *
        launch_after; /* by graph op: host time from the instance's start until it is launched */
    int64_t *launch_total; /* by segment */
    struct Macro **run;    /* by graph op that begins it; NULL: not known yet */
} CostTable;

/* ---- segments ---- */

/* Which lanes a segment has ops on, a bit each but for the host's, and on which of them the first
 * waits for an op of the segment's compute lane. */
typedef struct SegmentLanes {
    uint32_t all, follow;
    uint32_t op_first, op_n; /* as in Segment, which is too long to be at hand */
} SegmentLanes;

/* Where an op of a segment is: the index-th there on its lane. */
typedef struct OpPlace {
    uint32_t lane, index;
} OpPlace;

/* What edges say of an instance: it waits for another lane, another lane waits for it; and which
 * lanes, a bit each, go on behind it with an op that waits for one of the compute lane there. */
typedef struct Ties {
    bool waits, awaited;
    uint16_t follow;
} Ties;
_Static_assert(LANE_HOST <= 16, "a bit of Ties.follow for each lane");

/* The chain that begins with an instance: its number, and of how many instances it is. */
typedef struct ChainLink {
    uint32_t number, n;
} ChainLink;

/* ---- programs ---- */

/* Of an instance what is looked at as it runs, near what is of the next: Instance and Edge are
 * several times as long, and a program is too long to be at hand. */
typedef struct Spot {
    uint32_t segment;
    uint32_t wait_first, wait_n; /* SpotWaits, ascending op */
} Spot;

/* Op `op` of the segment waits until ops_n of a lane are done. */
typedef struct SpotWait {
    uint32_t op, lane, ops_n;
} SpotWait;

typedef struct Program {
    Spot *spot; /* by instance */
    SpotWait *wait;
    uint32_t *lane_base; /* by instance, lane_bases_n of them: ops on each lane before it */
    uint32_t lane_bases_n;
    uint32_t lanes;            /* bit per lane that has ops, but for the host's */
    uint8_t base_of[LANE_N];   /* which is the lane's; 0, which is always 0: it has no ops */
    uint32_t *on_lane[LANE_N]; /* the instances that have ops on it, instances_n last */
    bool *open;                /* by instance: somebody may go on before its end */
    Ties *ties;
    ChainLink *chain;
} Program;

/* Ops on the lane before the instance, which may be the end of the program. */
static inline uint32_t ops_before(const Program *p, uint32_t lane, uint32_t instance)
{
    return p->lane_base[(size_t)instance * p->lane_bases_n + p->base_of[lane]];
}

/* ---- lanes, hosts ---- */

typedef enum Wait { WAIT_NONE, WAIT_HOST, WAIT_GATE, WAIT_LANE, WAIT_PEER, WAIT_END } Wait;

typedef struct LaneState {
    uint32_t instance, at; /* next op: the at-th of its segment on this lane */
    uint32_t place;        /* of Program.on_lane, of this instance or before */
    uint32_t done;         /* ops finished */
    bool busy;
    Wait wait;
    uint8_t wait_lane; /* WAIT_LANE: until lanes[wait_lane].done >= wait_done */
    uint32_t wait_done;
    uint32_t waiters;             /* bit per lane that waits for this one */
    uint32_t op;                  /* running: graph op */
    uint32_t group_n, group_left; /* ops posted together, and not yet done */
    uint32_t transfers_n;         /* of the ops posted together, moving now */
    int64_t start_ns;             /* running since, or posted at */
    int64_t transfer_start_ns;
    uint32_t stat;         /* CollectiveStat of the newest transfer */
    uint32_t supply_waits; /* times it has waited for its launch, or for a copy of the input */
    Algorithm algorithm;
    Protocol protocol;
} LaneState;

typedef struct Anchor {
    uint64_t place; /* from here on the host's time counts from here: see host_place */
    int64_t at_ns;
    Path path;
} Anchor;

/* A launching thread.  It goes round its members: one instance of each, then the next. */
typedef struct Host {
    uint32_t members_n;
    uint32_t *member;        /* rank classes, in order of their index in the host group */
    uint32_t instance, turn; /* to be launched next: this instance of member[turn] */
    uint32_t instances_n;    /* of the longest program */
    int64_t now_ns;          /* when it is done with what it has launched */
    uint32_t anchors_n, anchors_cap;
    Anchor *anchors;
} Host;

/* A send or receive that waits for its other end. */
typedef struct Post {
    uint32_t lane, op; /* op: graph op */
} Post;

/* What sends of one size to one rank cost, and their links. */
typedef struct Price {
    struct Price *next; /* of the same channel */
    uint32_t peer_rank;
    uint64_t bytes;
    CommCost cost;
    Demand demand;
} Price;

/* What one rank class has posted for another, in order. */
typedef struct Channel {
    uint32_t peer, tag; /* peer: rank class */
    OpKind kind;        /* what this side does */
    uint32_t posts_n, posts_cap;
    Post *posts;
    Price *prices; /* of a sender, the newest first */
} Channel;

/* Where a send or receive of a rank class goes: to peer_rank, of class peer; NULL: not known yet.
 * mine, theirs: its channel at each end. */
typedef struct End {
    struct Runner *peer;
    uint32_t peer_rank, mine, theirs;
} End;

typedef struct Runner {
    uint32_t id; /* rank class */
    const RankClass *rc;
    const Role *role;
    Program program; /* its role's, borrowed */
    CostTable *cost;
    Macro **macro;   /* by segment; NULL: not looked at yet */
    Macro **chain;   /* by number; NULL: not made yet */
    Macro **stretch; /* by graph op that begins it; NULL: not made yet */
    LaneState lane[LANE_N];
    Path *path, *cause;  /* by lane: to the end of its last op, to the start of the running one;
                            NULL: not asked for */
    uint32_t lanes_left; /* not yet at their end */

    Host *host;
    uint32_t host_turn;  /* its index in host->member */
    int64_t *host_start; /* by instance */
    uint32_t host_next;  /* first instance the host has not reached */

    /* Compute lane. */
    double left;     /* alone-ns still to do */
    double position; /* in a macro: alone-ns done */
    MacroPlace here; /* of position, if placed; else shortly before it */
    bool placed;
    const Macro *running_macro;
    const Macro *alone; /* the running one, or what it is alone */
    double stop;        /* position at which it is looked at next, see macro_look_ahead */
    bool guard;         /* its next transfer meets flows that it was not timed beside */
    bool in_doubt;  /* flows on its links have changed: it will be looked at in this instant */
    uint32_t meets; /* flow that the macro chosen last is beside */
    uint32_t slows; /* 1 + the flow that the running one slows; 0: none */
    double lost_from;  /* what of its lost_at that flow knows */
    double booked_to;  /* position up to which the macro's transfers are booked */
    double path_shift; /* on its path more is communication than its path_at says */
    bool slowed;

    /* Account. */
    int64_t accounted_ns;
    uint32_t compute_n, transfer_n; /* transfer_n slows compute */
    uint32_t comm_lanes; /* bit per lane whose transfer counts as communication now */
    bool held;           /* up (engine_hold.c) */
    Path held_path;      /* when that began */
    uint32_t channels_n, channels_cap;
    Channel *channels;
    End *ends; /* by Sim.comm_key; NULL: none is known yet */
    RankStat *stat;
    uint32_t track[LANE_N]; /* timeline; NONE_U32 */
} Runner;

/* ---- flows ---- */

typedef struct Flow {
    bool used, moving; /* moving: past its latency, and shares its links */
    bool direct; /* alone on its links, at solo_rate from since_ns on: now, or still to come */
    uint32_t slowed_by;                    /* 1 + the runner whose macro slows it; 0: none */
    uint64_t looked;                       /* Sim.look that came to it last */
    uint32_t group;                        /* group class; NONE_U32: point to point */
    uint32_t lane;                         /* of the group's members */
    uint32_t from, to, from_lane, to_lane; /* rank classes */
    Demand demand;
    const CommCost *cost;
    double left, rate, solo_rate;
    int64_t since_ns;  /* left is of then */
    double noted_left; /* when its rate last changed; where links are recorded */
    int64_t noted_ns;
    int64_t start_ns;
    uint32_t op, to_op; /* graph ops; to_op: the receive */
    Path path;          /* to the start of the transfer: that of who came last */
} Flow;

typedef struct Meeting {
    uint32_t arrived_n;
    uint32_t op; /* of the first that arrived */
} Meeting;

typedef struct Todo {
    uint32_t runner, lane; /* LANE_N: its macro, see compute_look */
} Todo;

typedef struct Steady Steady;
typedef struct LinkLog LinkLog;

typedef struct Sim {
    const Graph *g;
    const Machine *m;
    const Software *sw;
    const SimOptions *options;
    uint32_t among; /* GPUs of which the step waits for the slowest: 0: the graph's */
    Timeline *timeline;
    LinkLog *links; /* NULL: not asked for */
    Arena arena;
    Classes classes;
    SimResult *result;
    const int64_t *start_ns; /* by class: when its host begins; NULL: at 0 */

    Program *programs;     /* by role */
    struct Labels *labels; /* by role (engine_record.c); NULL: no timeline is written */
    uint32_t chains_n;
    uint32_t *lane_ops; /* [segment op_first + k]: ops of a segment by lane, in order */
    /* [segment * LANE_N + lane], of lanes it has ops on: where they are in the above. */
    uint32_t *lane_first;
    SegmentLanes *lanes;   /* by segment */
    OpPlace *place;        /* by graph op */
    uint32_t *same;        /* by segment: the first one with the same ops, which take as long */
    bool *waits, *awaited; /* by graph op: for, or by, an op on another lane */
    bool *waits_before, *awaited_later; /* and that of another instance */
    uint32_t costs_n;
    CostTable *costs;
    uint32_t runners_n, hosts_n;
    Runner *runners;
    Host *hosts;
    Meeting *meetings; /* [group class * LANE_N + lane] */

    uint32_t flows_n, flows_cap;
    Flow *flows;
    uint32_t free_flows_n, free_flows_cap;
    uint32_t *free_flows;
    uint32_t **on_link; /* moving flows by resource */
    uint32_t *on_link_n, *on_link_cap;
    uint32_t *direct;   /* by resource: 1 + the flow that is direct there; 0: none is */
    uint32_t *held_n;   /* by resource: flows begun (latency included) and macros that use it */
    uint32_t *macros_n; /* by resource: running macros that use it */
    uint32_t *sharers_first; /* by resource, and one more: its runners in sharers */
    uint32_t *sharers;
    uint64_t look;         /* which flows are connected has been looked at so often */
    uint64_t *link_looked; /* by resource: the last look that came to it */
    MaxminSpace space;
    struct Shares **shares; /* remembered (engine_share.c); NULL: nothing is yet */
    uint32_t shares_n;
    Demand *demands; /* working space there */
    double *rates;
    uint32_t *component;
    uint32_t component_cap;

    /* Collectives of one kind and size have the same number, sends and receives each their own. */
    uint32_t comm_keys_n, sends_n;
    uint32_t *comm_key;    /* by graph op */
    CommCost **comm_cache; /* by group class, then comm_key; solo_rate 0: not known yet */

    EventQueue events;
    uint32_t todo_head, todo_n, todo_cap;
    Todo *todo;
    bool slowed_any;      /* has a transfer slowed a kernel so far? */
    Steady *steady;       /* NULL: not looking for a steady state, or not any more */
    uint32_t steady_next; /* instance of runner 0's compute lane at which it looks next */
    int64_t now_ns;
    uint64_t ops_done, ops_total;
    Err *err;
    bool failed;
} Sim;

/* May instances, or parts of them, be one event? */
static inline bool sim_collapses(const Sim *sim)
{
    return !sim->options->expanded && !sim->timeline && !(sim->m->jitter > 0);
}

/* The lowest lane of a set of them, a bit each; not of none. */
static inline uint32_t first_lane(uint32_t lanes)
{
    return (uint32_t)__builtin_ctz(lanes);
}

/* ---- engine.c ---- */
/* start_ns: when the host of each class begins, by class; NULL: all at 0. */
bool sim_run_from(const int64_t *start_ns, SimResult *result, const Graph *g, const Machine *m,
                  const Software *sw, const SimOptions *options, Err *err);
static inline void sim_wake(Sim *sim, const Runner *r, uint32_t lane)
{
    GROW(sim->todo, sim->todo_n, sim->todo_cap);
    sim->todo[sim->todo_n++] = (Todo){ r->id, lane };
}
void sim_settle(Sim *sim); /* all that are woken go on as far as they can */
void lane_complete(Sim *sim, Runner *r, uint32_t lane);
/* From the place on the host's launches follow from what path leads to now. */
void host_anchor(Sim *sim, Host *h, uint64_t place, Path path);
void host_wake_gated(Sim *sim, const Host *h); /* lanes that it has launched more for */
void lane_wake_after(Sim *sim, Runner *r,
                     uint32_t lane); /* the lane itself and who waits for it */
/* Who waits for it; the lane itself goes on when the compute lane has, at the earliest. */
void lane_rest_after(Sim *sim, Runner *r, uint32_t lane);
uint32_t op_at(const Sim *sim, const Runner *r, uint32_t instance, uint32_t lane, uint32_t at);
static inline const Segment *segment_of(const Sim *sim, const Runner *r, uint32_t instance)
{
    return &sim->g->segments[r->program.spot[instance].segment];
}
/* Ops of its lane before the op of an instance. */
static inline uint32_t op_number(const Program *p, uint32_t instance, const Op *o)
{
    return ops_before(p, o->lane, instance) + o->lane_index;
}
/* The host's launches in order: instance k of member t is number k * members_n + t. */
static inline uint64_t host_place(const Host *h, uint32_t instance, uint32_t turn)
{
    return (uint64_t)instance * h->members_n + turn;
}

/* ---- engine_setup.c ---- */
/* When a rank begins the step: after what Sim.start_ns says of it. */
static inline int64_t start_of(const Sim *sim, const Runner *r)
{
    return sim->start_ns ? sim->start_ns[r->id] : 0;
}
bool sim_setup(Sim *sim);
bool sim_setup_costs(Sim *sim); /* the first part: classes, links, what each op costs */
void sim_teardown(Sim *sim);
int64_t cost_jitter(const Sim *sim, const Runner *r, uint32_t instance, uint32_t op,
                    int64_t ns);

/* ---- engine_same.c ---- */
void segments_same(Sim *sim); /* fills Sim.same */

/* ---- engine_compute.c ---- */
void compute_start(Sim *sim, Runner *r, uint32_t op);
void compute_event(Sim *sim, Runner *r);
void compute_resume(Sim *sim, Runner *r);
void compute_look(Sim *sim, Runner *r);      /* at what its macro is beside */
void compute_set_speed(Sim *sim, Runner *r); /* transfers beside it began or ended */

/* ---- engine_flow.c ---- */
void comm_post(Sim *sim, Runner *r, uint32_t lane);
void flow_event(Sim *sim, uint32_t flow, bool data);
const CommCost *comm_cost_of(Sim *sim, uint32_t op, uint32_t group);
/* A send of a rank to another: its cost, and in uses (RES_RANK_N + 2 of them) its links. */
CommCost send_cost(const Sim *sim, const Runner *from, uint32_t op, uint32_t peer_rank,
                   Use *uses, uint32_t *uses_n);
/* A collective of a broken macro that has run for passed_ns already, and has done what takes
 * into_ns alone. */
void flow_resume_collective(Sim *sim, Runner *r, uint32_t lane, double passed_ns,
                            double into_ns);
void flow_set_rate(Sim *sim, uint32_t flow, double rate);  /* from now on */
void flow_set_back(Sim *sim, uint32_t flow, double bytes); /* it has moved less */
void flow_ends_in(Sim *sim, uint32_t flow, double ns);

/* ---- engine_share.c ---- */
void share_add(Sim *sim, uint32_t flow); /* it moves, on its links */
void share_remove(Sim *sim, uint32_t flow);
void share(Sim *sim,
           Demand around); /* new rates of who is connected with flows on these links */

/* ---- engine_actions.c ---- */
/* What an op takes with its lane and links to itself; 0: a send, or a collective of others. */
int64_t op_alone_ns(Sim *sim, const Runner *r, uint32_t op);

/* ---- engine_path.c ---- */
void path_setup(Sim *sim, Runner *r);
Path path_of_lane(const Runner *r, uint32_t lane);            /* to the end of its last op */
void path_start(const Sim *sim, Runner *r, uint32_t lane);    /* an op of the lane starts */
void path_computed(const Sim *sim, Runner *r, uint32_t lane); /* its kernels are over */
void path_into_flow(Flow *f, const Runner *r, uint32_t lane); /* r came last */
void path_transferred(const Sim *sim, Runner *r, uint32_t lane, const Flow *f);
Path path_of_macro(const Sim *sim, const Runner *r); /* to where it is now */
/* And through its op i, which is in progress. */
Path path_of_inner(const Sim *sim, const Runner *r, uint32_t i);
/* The macro goes on as another, see macro_go_on_as. */
void path_go_on_as(const Sim *sim, Runner *r, const Macro *as, double y);
void path_set(Runner *r, uint32_t lane, const Path *p);
void path_set_cause(Runner *r, uint32_t lane, const Path *p);
Path path_longest(const Runner *r);
/* By so many ns of what it consists of so far; of nothing: of compute. */
void path_lengthen(Path *p, int64_t ns);

/* ---- engine_account.c ---- */
void account_time(Sim *sim, Runner *r);
static inline void account(Sim *sim, Runner *r)
{
    if (sim->now_ns != r->accounted_ns)
        account_time(sim, r);
}
uint32_t account_stat(const Sim *sim, Runner *r, const Op *op, uint32_t group_size);
double account_wire_bytes(const Op *op, uint32_t group_size);
void account_transfer(Runner *r, uint32_t stat, const Op *op, const CommCost *cost,
                      double wire_bytes, int64_t time_ns, int64_t transfer_ns);
void account_close(Sim *sim);
/* Adds, by resource, the time that the segment's transfers take of links at least, so many times.
 * A collective counts with the first of its members, on all links that it uses: ranks may share a
 * port whose groups are others.  So the sum is of all runners. */
void account_load(Sim *sim, const Runner *r, const Segment *s, double times, double *link_ns);

/* ---- engine_steady.c ---- */
bool steady_begin(Sim *sim); /* false: no steady state can be found */
bool steady_look(Sim *sim);  /* at steady_next, while sim->steady; false: it will not come */
void steady_end(Sim *sim);
/* engine_pace.c: the compute lane of r starts an instance, while sim->steady. */
void steady_pass(Sim *sim, Runner *r, uint32_t instance);

/* ---- engine_hold.c ---- */
/* The rank, whose host has launched everything, starts nothing from now on until ns have passed
 * behind what is under way.  mostly_comm: of its transfers; else of its compute lane. */
void hold_begin(Sim *sim, Runner *r, int64_t ns, bool mostly_comm);
void hold_event(Sim *sim, Runner *r, bool ends);

/* ---- engine_record.c ---- */
void record_tracks(Sim *sim, Runner *r);
void record_steps(Sim *sim); /* once the result is known */
void record_op(Sim *sim, Runner *r, uint32_t lane, uint32_t instance, uint32_t op);

/* ---- engine_links.c ---- */
void links_begin(Sim *sim);
/* The flow has left bytes to move, and its rate changes, or it ends. */
void links_note(Sim *sim, Flow *f, double left);
void links_record(Sim *sim); /* the tracks, behind those of all ranks */
void links_end(Sim *sim);

/* ---- engine_stuck.c ---- */
bool report_stuck(Sim *sim);

#endif
