/*
 * test_clocks.c - two clocks that drift, seen through messages that take their time: where a
 * time of one lies on the other.
 */
#include "exec/clocks.h"

#include <math.h>
#include <stdlib.h>

#include "tests/check.h"

enum { SAMPLES = 11 };

#define SECOND INT64_C(1000000000)

/* Rank 0's clock when the other shows at_ns: it began 5 s earlier and runs so many parts in a
 * million faster, the drift itself growing by `more` of them over the run. */
static int64_t truth_ns(int64_t at_ns, double ppm, double more)
{
    double part = (double)at_ns / (100.0 * (double)SECOND);
    return 5 * SECOND + at_ns +
           (int64_t)llround((double)at_ns * (ppm + more * part / 2) * 1e-6);
}

/* A sample each 10 s, with bounds that lie unequally far from the truth: late_ns at most. */
static void sample(ClockSample *s, double ppm, double more, int64_t late_ns)
{
    uint64_t random = 7;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t at_ns = i * 10 * SECOND, shift = truth_ns(at_ns, ppm, more) - at_ns;
        random = mix_u64(random);
        s[i].at_ns = at_ns;
        s[i].low_ns = shift - (int64_t)(random % (uint64_t)(late_ns + 1));
        random = mix_u64(random);
        s[i].high_ns = shift + (int64_t)(random % (uint64_t)(late_ns + 1));
    }
}

static double worst_error_ns(const ClockSample *s, uint32_t n, double ppm, double more)
{
    double worst = 0;
    for (int64_t at = 0; at <= 100 * SECOND; at += SECOND / 4) {
        int64_t got = at + clock_samples_shift(s, n, 1, at);
        worst = fmax(worst, fabs((double)(got - truth_ns(at, ppm, more))));
    }
    return worst;
}

static void a_steady_drift_goes(void)
{
    ClockSample s[SAMPLES];
    sample(s, 20, 0, 0);
    CHECK(worst_error_ns(s, SAMPLES, 20, 0) <= 1);
    const ClockSample ends[] = { s[0], s[SAMPLES - 1] };
    CHECK(worst_error_ns(ends, 2, 20, 0) <= 1);
    CHECK(worst_error_ns(s, 1, 20, 0) > 1e6); /* as it was with one sample: 2 ms off */
}

/* Half the distance of the bounds at most, whatever the messages took. */
static void slow_messages_cost_what_they_leave_open(void)
{
    const int64_t late_ns = 50000;
    ClockSample s[SAMPLES];
    sample(s, -35, 0, late_ns);
    CHECK(worst_error_ns(s, SAMPLES, -35, 0) <= (double)late_ns / 2 + 1);
}

/* Straight lines over a curve: h^2/8 times its bend, which is 8 ppm in 100 s. */
static void a_drift_that_changes_is_followed(void)
{
    ClockSample s[SAMPLES];
    sample(s, 20, 8, 0);
    CHECK(worst_error_ns(s, SAMPLES, 20, 8) <= 10e9 * 10 / 8 * 8e-6 / 100 + 1);
    const ClockSample ends[] = { s[0], s[SAMPLES - 1] };
    CHECK(worst_error_ns(ends, 2, 20, 8) > 90000);
}

/* Bounds that one shift satisfies: then durations keep every nanosecond. */
static void what_may_be_no_drift_is_none(void)
{
    ClockSample s[SAMPLES];
    sample(s, 0, 0, 50000);
    int64_t shift = clock_samples_shift(s, SAMPLES, 1, 0);
    for (int64_t at = 0; at <= 100 * SECOND; at += SECOND)
        CHECK_INT(shift, clock_samples_shift(s, SAMPLES, 1, at));
    for (int i = 0; i < SAMPLES; i++)
        CHECK(s[i].low_ns <= shift && shift <= s[i].high_ns);
    CHECK_INT(0, clock_samples_shift(NULL, 0, 1, 5));
}

/* Nothing goes back in time, beyond the samples either. */
static void order_is_kept(void)
{
    ClockSample s[SAMPLES];
    sample(s, 30, 0, 20000);
    int64_t last = INT64_MIN;
    for (int64_t at = -SECOND; at <= 101 * SECOND; at += SECOND / 100) {
        int64_t now = at + clock_samples_shift(s, SAMPLES, 1, at);
        CHECK(now > last);
        last = now;
    }
}

static void each_rank_has_its_own(void)
{
    ClockSample s[] = { { 0, 0, 0 }, { 0, 10, 20 }, { 9, 0, 0 }, { 9, 110, 120 } };
    const Clocks c = { .world_n = 2, .samples_n = 4, .samples = s };
    CHECK_INT(0, clocks_shift(&c, 0, 5));
    CHECK_INT(15, clocks_shift(&c, 1, 0));
    CHECK_INT(115, clocks_shift(&c, 1, 9));
    CHECK_INT(0, clocks_shift(&(Clocks){ 0 }, 1, 9));
}

int main(void)
{
    RUN(a_steady_drift_goes);
    RUN(slow_messages_cost_what_they_leave_open);
    RUN(a_drift_that_changes_is_followed);
    RUN(what_may_be_no_drift_is_none);
    RUN(order_is_kept);
    RUN(each_rank_has_its_own);
    return check_report();
}
