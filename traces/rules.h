/*
 * rules.h - which kernels are communication: metadata first, then names, by a
 * list that users extend.
 *
 * Rule 0 is "metadata": the kernel carries a "Collective name", or its launch
 * lies within a collective's operator.  The others come from files, later files
 * first: scenarios/rules/communication.json, and what --rules adds before it.
 *
 *     { "rules": [
 *         { "name": "nccl", "starts": ["ncclDevKernel_", "ncclKernel_"] },
 *         { "name": "mine", "contains": ["my_reduce"], "not": ["reduce_sum"],
 *           "op": "all_reduce", "class": "comm" } ] }
 *
 * A rule matches a name that starts with one of `starts` or contains one of
 * `contains`, and contains none of `not`.  The first rule that matches decides.
 * `class` is "comm" (default), "p2p", or "compute": not communication after all.
 * `op` is the collective; without it, it is read from the name.
 * Keys, defaults: scenarios/README.md.
 */
#ifndef LOCKSTEP_TRACES_RULES_H
#define LOCKSTEP_TRACES_RULES_H

#include "core/arena.h"
#include "core/err.h"
#include "core/timeline.h"
#include "traces/info.h"

#define RULES_BUILTIN "communication"
enum { RULE_METADATA = 0 };

typedef struct Rule {
    const char *name;
    const char **starts, **contains, **excludes;
    uint32_t starts_n, contains_n, excludes_n;
    SpanClass class_;
    const char *op; /* NULL: from the kernel's name */
} Rule;

typedef struct Rules {
    Rule *rule; /* [0] is "metadata", which matches no name */
    uint32_t n;
    Arena arena;
} Rules;

/* The built-in file, with the n files of paths before it.  On failure r is empty. */
bool rules_read(Rules *r, const char *const *paths, size_t n, Err *err);
/* The rules of a file's text alone, without the built-in ones.  On failure r is empty. */
bool rules_parse(Rules *r, const char *text, size_t n, const char *name, Err *err);
void rules_free(Rules *r);

/* Number of the first rule that matches a kernel's name; NONE_U32: it is no communication. */
uint32_t rules_match(const Rules *r, const char *kernel);

/*
 * What a kernel's name says of the collective it is part of: NCCL and RCCL by
 * their naming schemes, old and new, others by the words in it.
 *
 *     ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, ...)       <= 2.18
 *     ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, ...)     >= 2.19
 *     ncclSymkDevKernel_AllGather_LSA_...                             symmetric memory
 *
 * Algorithm and protocol are template labels, not always what ran.  NULL: not said.
 */
typedef struct KernelComm {
    const char *op, *algorithm, *protocol, *dtype; /* "all_reduce", "ring", "LL", "bf16" */
} KernelComm;

KernelComm kernel_comm(const char *kernel);

/*
 * Whether a rule makes a kernel of this name communication; then *match is that rule, *class_
 * what it says, p2p where the op is one, and said->op the rule's, else the name's (NULL: neither).
 */
bool rules_comm(const Rules *r, const char *kernel, uint32_t *match, SpanClass *class_,
                KernelComm *said);

/* PyTorch's or NCCL's word -> ours: "_allgather_base" -> "all_gather"; NULL when unknown. */
const char *comm_op_of(const char *word, size_t n);
/* Framework's word for a number format -> ours and its size: "Half" -> "f16", 2. */
bool comm_dtype_of(const char *word, size_t n, const char **dtype, uint64_t *bytes);

#endif
