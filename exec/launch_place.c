/*
 * launch_place.c - which rank this process is: flags, or what a launcher left in the
 * environment.
 *
 *     launcher   rank, world                    of this host               meets at
 *     torchrun   RANK WORLD_SIZE                LOCAL_RANK                 MASTER_ADDR, port
 *                                               LOCAL_WORLD_SIZE           MASTER_PORT + 1
 *     Open MPI   OMPI_COMM_WORLD_RANK _SIZE     .._LOCAL_RANK _LOCAL_SIZE  *
 *     MPICH      PMI_RANK PMI_SIZE              MPI_LOCALRANKID            *
 *                                               MPI_LOCALNRANKS
 *     srun       SLURM_PROCID SLURM_NTASKS      SLURM_LOCALID              first host of
 *                                               SLURM_STEP_NUM_NODES       SLURM_STEP_NODELIST
 *                                               SLURM_NTASKS_PER_NODE
 *
 *     *  MASTER_ADDR, MASTER_PORT where they are set; the loopback interface where all
 *        ranks are on one host; else --rendezvous must say it
 *
 * Traps: torchrun's own store listens on MASTER_PORT.  A script under sbatch sees
 * SLURM_PROCID=0 and SLURM_NTASKS without srun: only SLURM_STEP_ID tells.  Open MPI and
 * torchrun under srun leave both families, with other numbers: the inner one counts.
 * srun with PMI-2 sets MPICH's numbers, too, but not those of this host.
 * SLURM_NTASKS_PER_NODE is what sbatch was asked for; of a smaller step it is a maximum.
 * MASTER_ADDR alone is no launcher.
 */
#include "exec/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/net.h"
#include "exec/rendezvous.h"

enum { WORLD_MAX = 1 << 20, PORT_FIRST = 10000, PORTS_N = 20000 };

typedef struct Family {
    Launcher launcher;
    const char *name;
    const char *sign; /* set only by this launcher */
    const char *rank, *world, *local_rank, *local_n;
    const char *hosts_n; /* where local_n may be missing, or too large */
    const char *job[2];  /* equal on the ranks of a job, different between jobs */
} Family;

/* clang-format off */
static const Family families[] = { /* inner ones first */
    { LAUNCHER_TORCHRUN, "torchrun", "WORLD_SIZE",
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL,
      { "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT" } },
    { LAUNCHER_OPENMPI, "Open MPI", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL,
      { "PMIX_NAMESPACE", NULL } },
    { LAUNCHER_MPICH, "MPICH", "PMI_SIZE",
      "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL,
      { NULL, NULL } },
    { LAUNCHER_SLURM, "srun", "SLURM_STEP_ID",
      "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
      "SLURM_STEP_NUM_NODES",
      { "SLURM_JOB_ID", "SLURM_STEP_ID" } },
};
/* clang-format on */

static char rendezvous_text[NET_HOST_MAX + 32];

/* ---- numbers ---- */

/* *value stays as it is where the variable is not set or empty. */
static bool read_number(const char *name, uint32_t *value, Err *err)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return true;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || n > WORLD_MAX)
        return err_set(err, "environment variable %s is '%s', not a number from 0 to %d", name,
                       text, WORLD_MAX);
    *value = (uint32_t)n;
    return true;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = mix_u64(hash ^ (uint64_t)(unsigned char)*text);
    return hash;
}

/*
 * Ranks of one host have one parent, or each a script or a profiler of its own around it: the
 * parent tells jobs apart only where nothing else does, neither the launcher nor the port to meet
 * at (torchrun's TORCHELASTIC_RUN_ID is "none" by default).
 */
static uint64_t job_of(const Family *family, bool one_host, const LaunchFlags *flags)
{
    const char *const names[] = { family->job[0], family->job[1], "MASTER_PORT" };
    bool told = flags->rendezvous != NULL;
    uint64_t job = 0;
    for (size_t i = 0; i < ARRAY_N(names); i++)
        if (names[i] && is_set(names[i])) {
            job = hash_text(mix_u64(job + 1), getenv(names[i]));
            told = true;
        }
    return told || !one_host ? job : mix_u64((uint64_t)getppid());
}

/* ---- one family ---- */

/* Of the ranks of a host, said to be local_n (0: not said): each of the hosts has one at least. */
static uint32_t local_among(uint32_t local_n, uint32_t hosts_n, uint32_t world)
{
    if (hosts_n == 0 || hosts_n > world)
        return local_n;
    uint32_t most = world - (hosts_n - 1);
    return local_n == 0     ? (uint32_t)div_up_u64(world, hosts_n)
           : local_n < most ? local_n
                            : most;
}

static bool read_family(RankPlace *p, const Family *family, Err *err)
{
    uint32_t rank = NONE_U32, world = NONE_U32, local_rank = NONE_U32, local_n = 0;
    uint32_t hosts_n = 0;
    if (!read_number(family->rank, &rank, err) || !read_number(family->world, &world, err) ||
        !read_number(family->local_rank, &local_rank, err) ||
        !read_number(family->local_n, &local_n, err) ||
        (family->hosts_n && !read_number(family->hosts_n, &hosts_n, err)))
        return false;
    if (rank == NONE_U32 || world == NONE_U32)
        return err_set(err, "%s is set, but %s is not: %s sets both", family->sign,
                       rank == NONE_U32 ? family->rank : family->world, family->name);
    if (rank >= world)
        return err_set(err, "%s is %u and %s is %u: ranks count from 0", family->rank, rank,
                       family->world, world);
    p->rank = rank;
    p->world = world;
    p->local_rank = local_rank == NONE_U32 ? 0 : local_rank;
    local_n = local_among(local_n, hosts_n, world);
    p->local_n = local_n > p->local_rank ? local_n : p->local_rank + 1;
    if (p->local_n > world)
        return err_set(err, "%s is %u and %s is %u: more ranks on one host than in all",
                       local_n == p->local_n ? family->local_n : family->local_rank,
                       local_n == p->local_n ? local_n : local_rank, family->world, world);
    return true;
}

/* RANK and WORLD_SIZE are also set by hand, and forgotten: Open MPI's children see it. */
static bool check_families(const RankPlace *p, const Family *family, Err *err)
{
    const Family *other = &families[1];
    RankPlace q = { 0 };
    if (family->launcher != LAUNCHER_TORCHRUN || is_set("TORCHELASTIC_RUN_ID") ||
        !is_set(other->sign))
        return true;
    if (!read_family(&q, other, err))
        return false;
    if (q.rank == p->rank && q.world == p->world)
        return true;
    return err_set(err,
                   "RANK %u of WORLD_SIZE %u contradicts Open MPI's rank %u of %u: unset one "
                   "of them, or give --rank and --world",
                   p->rank, p->world, q.rank, q.world);
}

/* ---- where to meet ---- */

/* "node[003-010,12],x7" -> "node003" */
static void first_host(const char *list, char *host, size_t cap)
{
    size_t n = 0;
    bool skipping = false, inside = false;
    for (; *list && n + 1 < cap; list++) {
        if (*list == '[') {
            inside = true;
        } else if (*list == ']') {
            inside = skipping = false;
        } else if (inside && (*list == '-' || *list == ',')) {
            skipping = true;
        } else if (*list == ',') {
            break;
        } else if (!skipping) {
            host[n++] = *list;
        }
    }
    host[n] = '\0';
}

static bool meet_at(RankPlace *p, const char *host, uint32_t port)
{
    bool v6 = strchr(host, ':') != NULL;
    snprintf(rendezvous_text, sizeof rendezvous_text, "tcp://%s%.*s%s:%u", v6 ? "[" : "",
             NET_HOST_MAX - 1, host, v6 ? "]" : "", port);
    p->rendezvous = rendezvous_text;
    return true;
}

/* False without an error: the variables do not say. */
static bool meet_at_master(RankPlace *p, bool torchrun, Err *err)
{
    const uint32_t last_port = 65535;
    uint32_t port = 0;
    if (!is_set("MASTER_ADDR") || !read_number("MASTER_PORT", &port, err))
        return false;
    if (port == 0)
        return is_set("MASTER_PORT") &&
               err_set(err, "environment variable MASTER_PORT is '0', not a port");
    if (port > last_port)
        return err_set(err, "environment variable MASTER_PORT is '%u', not a port", port);
    if (torchrun)
        port = port == last_port ? port - 1 : port + 1;
    return meet_at(p, getenv("MASTER_ADDR"), port);
}

static bool find_meeting(RankPlace *p, const Family *family, Err *err)
{
    bool torchrun = family->launcher == LAUNCHER_TORCHRUN;
    if (p->world == 1 || meet_at_master(p, torchrun, err))
        return true;
    if (err->set)
        return false;
    uint32_t port = PORT_FIRST + (uint32_t)(mix_u64(p->job) % PORTS_N);
    if (p->local_n == p->world)
        return meet_at(p, "127.0.0.1", port);
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    if (family->launcher == LAUNCHER_SLURM && nodes && *nodes) {
        char host[NET_HOST_MAX];
        first_host(nodes, host, sizeof host);
        return meet_at(p, host, port);
    }
    return err_set(err,
                   "%s started %u ranks on several hosts and does not say where rank 0 is: "
                   "give --rendezvous tcp://HOST:PORT or set MASTER_ADDR and MASTER_PORT",
                   family->name, p->world);
}

/* ---- flags ---- */

bool launch_flags_check(const LaunchFlags *flags, Err *err)
{
    bool joins = flags->rank != NONE_U32 || flags->world != NONE_U32;
    if (joins && (flags->rank == NONE_U32 || flags->world == NONE_U32))
        return err_set(err, "--rank and --world go together");
    if (joins && flags->ranks)
        return err_set(err, "--ranks starts ranks, --rank joins those that others started: "
                            "give one of them");
    if (joins && (flags->world == 0 || flags->rank >= flags->world))
        return err_set(err, "--rank %u --world %u: ranks count from 0", flags->rank,
                       flags->world);
    return !flags->rendezvous || rendezvous_check(flags->rendezvous, err);
}

static bool place_by_flags(RankPlace *p, const LaunchFlags *flags, Err *err)
{
    p->rank = flags->rank;
    p->world = flags->world;
    p->local_n = 1;
    if (p->world == 1 || flags->rendezvous || meet_at_master(p, false, err))
        return true;
    return err_set(err, "--world %u needs --rendezvous tcp://HOST:PORT or file:PATH",
                   flags->world);
}

static bool place_by_family(RankPlace *p, Launcher *by, const Family *family,
                            const LaunchFlags *flags, Err *err)
{
    if (!read_family(p, family, err) || !check_families(p, family, err))
        return false;
    if (flags->ranks > 1 && p->world == 1) { /* a shell under srun: we start them here */
        *by = LAUNCHER_NONE;
        p->world = p->local_n = flags->ranks;
        return true;
    }
    *by = family->launcher;
    if (flags->ranks && flags->ranks != p->world)
        return err_set(err, "--ranks %u, but %s has started %u", flags->ranks, family->name,
                       p->world);
    p->job = job_of(family, p->local_n == p->world, flags);
    return flags->rendezvous || find_meeting(p, family, err);
}

static bool same_value(const char *a, const char *b)
{
    return is_set(a) && is_set(b) && strcmp(getenv(a), getenv(b)) == 0;
}

/* By srun with PMI-2, which says more under its own names. */
static bool is_srun(const Family *family)
{
    const Family *srun = &families[ARRAY_N(families) - 1];
    return family->launcher == LAUNCHER_MPICH && !is_set(family->local_n) &&
           is_set(srun->sign) && same_value(family->rank, srun->rank) &&
           same_value(family->world, srun->world);
}

static const Family *family_found(void)
{
    for (size_t i = 0; i < ARRAY_N(families); i++)
        if (is_set(families[i].sign) && !is_srun(&families[i]))
            return &families[i];
    return NULL;
}

bool launch_place(RankPlace *place, Launcher *by, const LaunchFlags *flags, Err *err)
{
    const Family *family = family_found();
    const char *tcp = getenv("LOCKSTEP_TCP_ONLY");
    bool ok = true;
    place->rank = place->local_rank = 0;
    place->world = place->local_n = flags->ranks ? flags->ranks : 1;
    place->rendezvous = NULL;
    place->job = 0;
    place->tcp_only = tcp && strcmp(tcp, "1") == 0;
    *by = LAUNCHER_NONE;
    if (!launch_flags_check(flags, err))
        return false;
    if (flags->rank != NONE_U32 || flags->world != NONE_U32) {
        *by = LAUNCHER_FLAGS;
        ok = place_by_flags(place, flags, err);
    } else if (family) {
        ok = place_by_family(place, by, family, flags, err);
    }
    if (ok && flags->local_rank != NONE_U32) {
        place->local_rank = flags->local_rank;
        if (place->local_n <= place->local_rank)
            place->local_n = place->local_rank + 1;
    }
    if (ok && flags->rendezvous)
        place->rendezvous = flags->rendezvous;
    return ok;
}
