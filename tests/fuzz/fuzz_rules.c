/*
 * fuzz_rules.c - any bytes as a file of rules, and any text as a kernel's name: rules that
 * can be asked, or a sentence; and what a name says is words of ours.
 *
 * The first line is the kernel's name, the file follows.
 */
#include "traces/rules.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A collective that is ours stays what it is. */
static void check_name(const char *name)
{
    KernelComm c = kernel_comm(name);
    if (c.op && strcmp(c.op, "send_recv") != 0) {
        const char *again = comm_op_of(c.op, strlen(c.op));
        ASSERT(!again || comm_op_is_p2p(again) == comm_op_is_p2p(c.op));
    }
    const char *dtype;
    uint64_t bytes;
    ASSERT(!comm_dtype_of(name, strlen(name), &dtype, &bytes) || (dtype && bytes <= 16));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *end = n ? memchr(data, '\n', n) : NULL;
    size_t name_n = end ? (size_t)(end - data) : n, rest = end ? name_n + 1 : n;
    char *name = mem_zero(name_n + 1, 1);
    if (name_n > 0)
        memcpy(name, data, name_n);
    Rules r;
    Err err = { 0 };
    bool ok = rules_parse(&r, (const char *)data + rest, n - rest, "fuzz", &err);
    ASSERT(ok != err.set);
    if (ok) {
        uint32_t rule = rules_match(&r, name);
        ASSERT(rule == NONE_U32 || (rule > RULE_METADATA && rule < r.n && r.rule[rule].name));
    }
    check_name(name);
    rules_free(&r);
    free(name);
    return 0;
}
