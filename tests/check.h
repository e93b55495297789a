/*
 * check.h - the test framework: checks that report and go on, and a tally.
 *
 *     static void events_of_one_instant_keep_their_order(void)
 *     {
 *         CHECK_INT(3, evq_n(&q));
 *         if (!CHECK(evq_pop(&q, &event)))
 *             return;                      // every check also says whether it held
 *     }
 *
 *     int main(void)
 *     {
 *         RUN(events_of_one_instant_keep_their_order);
 *         return check_report();
 *     }
 *
 * The expected value comes first.  A test fails when any of its checks fails;
 * the others still run.  Details go to stderr, the tally "NAME: N passed, M
 * failed" to stdout, and the exit status is 1 when a test failed.  Test
 * programs run with the root of the repository as their working directory.
 *
 * CHECK_VERBOSE=1 in the environment names each test before it runs, so that
 * a crash shows where it happened.
 *
 * LOCKSTEP_CASES=N in the environment: of many drawn or enumerated cases one in N, where
 * programs are slow (sanitizers).  Tests ask check_one_in, check_cases, check_takes.
 */
#ifndef LOCKSTEP_TESTS_CHECK_H
#define LOCKSTEP_TESTS_CHECK_H

#include "core/base.h"
#include "core/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SHOWN_MAX = 10 }; /* failures printed per test; the rest are counted */

typedef struct CheckPlace {
    const char *file;
    int line;
    const char *what; /* the checked expression as written */
} CheckPlace;

static struct {
    const char *test;
    uint32_t passed_n, failed_n;
    uint32_t test_failures_n; /* in the running test */
} check_state;

#define CHECK_HERE(what) ((CheckPlace){ __FILE__, __LINE__, what })

#define CHECK(cond)            check_true((cond) ? true : false, CHECK_HERE(#cond))
#define CHECK_INT(expect, got) check_int((expect), (got), CHECK_HERE(#got))
#define CHECK_U64(expect, got) check_u64((expect), (got), CHECK_HERE(#got))
#define CHECK_STR(expect, got) check_str((expect), (got), CHECK_HERE(#got))
/* |got - expect| <= rel * |expect|; so an expected 0 must be met exactly. */
#define CHECK_NEAR(expect, got, rel) check_near((expect), (got), (rel), CHECK_HERE(#got))
/* The Err *err is set and its text contains part. */
#define CHECK_ERR_TEXT(err, part) check_err_text((err), (part), CHECK_HERE(#err))

#define RUN(test)      check_run(test, #test)
#define check_report() check_report_of(__FILE__)

/* The N of LOCKSTEP_CASES; 1 is all. */
static inline uint32_t check_one_in(void)
{
    const char *text = getenv("LOCKSTEP_CASES");
    int n = text ? atoi(text) : 1;
    return n > 1 ? (uint32_t)n : 1;
}

/* How many of so many cases, the first ones; never none. */
static inline uint32_t check_cases(uint32_t all)
{
    uint32_t n = all / check_one_in();
    return n > 0 ? n : 1;
}

/* Is this one of the seeds taken?  One in N, whatever a test takes from a seed's remainders. */
static inline bool check_takes(uint64_t seed)
{
    return (seed * 0x9e3779b97f4a7c15u >> 32) % check_one_in() == 0;
}

/* Counts a failure; true when there is still room to show it. */
static inline bool check_failed(CheckPlace at)
{
    check_state.test_failures_n++;
    if (check_state.test_failures_n > CHECK_SHOWN_MAX)
        return false;
    fprintf(stderr, "%s:%d: %s: ", at.file, at.line, check_state.test);
    return true;
}

static inline bool check_true(bool held, CheckPlace at)
{
    if (!held && check_failed(at))
        fprintf(stderr, "%s is false\n", at.what);
    return held;
}

static inline bool check_int(int64_t expect, int64_t got, CheckPlace at)
{
    bool held = expect == got;
    if (!held && check_failed(at))
        fprintf(stderr, "%s is %" PRId64 ", not %" PRId64 "\n", at.what, got, expect);
    return held;
}

static inline bool check_u64(uint64_t expect, uint64_t got, CheckPlace at)
{
    bool held = expect == got;
    if (!held && check_failed(at))
        fprintf(stderr, "%s is %" PRIu64 ", not %" PRIu64 "\n", at.what, got, expect);
    return held;
}

/* NULL equals only NULL. */
static inline bool check_str(const char *expect, const char *got, CheckPlace at)
{
    bool held = expect && got ? strcmp(expect, got) == 0 : expect == got;
    if (!held && check_failed(at))
        fprintf(stderr, "%s is\n    '%s', not\n    '%s'\n", at.what, got ? got : "(null)",
                expect ? expect : "(null)");
    return held;
}

static inline bool check_near(double expect, double got, double rel, CheckPlace at)
{
    ASSERT(rel < 1); /* else nearly anything would do */
    bool held = got == expect || fabs(got - expect) <= rel * fabs(expect);
    if (!held && check_failed(at))
        fprintf(stderr, "%s is %.17g, not %.17g within a relative %g\n", at.what, got, expect,
                rel);
    return held;
}

static inline bool check_err_text(const Err *err, const char *part, CheckPlace at)
{
    bool held = err->set && strstr(err->text, part);
    if (!held && check_failed(at))
        fprintf(stderr, "%s is\n    '%s', which lacks\n    '%s'\n", at.what,
                err->set ? err->text : "(not set)", part);
    return held;
}

static inline void check_run(void (*test)(void), const char *name)
{
    check_state.test = name;
    check_state.test_failures_n = 0;
    if (getenv("CHECK_VERBOSE"))
        fprintf(stderr, "-- %s\n", name);
    test();
    if (check_state.test_failures_n > CHECK_SHOWN_MAX)
        fprintf(stderr, "%s: %" PRIu32 " more failures not shown\n", name,
                check_state.test_failures_n - CHECK_SHOWN_MAX);
    if (check_state.test_failures_n)
        check_state.failed_n++;
    else
        check_state.passed_n++;
}

static inline int check_report_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    printf("%.*s: %" PRIu32 " passed, %" PRIu32 " failed\n", (int)strcspn(name, "."), name,
           check_state.passed_n, check_state.failed_n);
    fflush(stdout); /* before a leak checker ends the program */
    return check_state.failed_n ? 1 : 0;
}

#endif
