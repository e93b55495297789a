/* test_quantile.c - medians and quantiles by their definition, and the order of numbers. */
#include "core/quantile.h"

#include <math.h>
#include <stdlib.h>

#include "core/order.h"
#include "tests/check.h"

static void a_quantile_lies_between_its_neighbours_in_rank(void)
{
    double x[] = { 1, 2, 4, 8, 16 };
    CHECK_NEAR(1, quantile(x, 5, 0), 0);
    CHECK_NEAR(4, quantile(x, 5, 0.5), 0);
    CHECK_NEAR(16, quantile(x, 5, 1), 0);
    CHECK_NEAR(8 + 0.6 * (16 - 8), quantile(x, 5, 0.9), 1e-12); /* rank 3.6 */
    CHECK_NEAR((2 + 4) / 2.0, quantile(x, 4, 0.5), 1e-12);
    CHECK_NEAR(1, quantile(x, 1, 0.9), 0);
}

static void the_median_of_unsorted_values_sorts_them(void)
{
    double even[] = { 3, 1, 2, 4 };
    CHECK_NEAR((2 + 3) / 2.0, sort_median(even, 4), 0);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(i + 1, even[i], 0);
    CHECK_NEAR(2, sort_median(even, 3), 0);
}

static void of_no_values_there_is_no_median(void)
{
    CHECK(isnan(quantile(NULL, 0, 0.5)));
    CHECK(isnan(sort_median(NULL, 0)));
}

static void the_median_of_ns_is_one_of_them(void)
{
    int64_t ns[] = { 40, -10, 30, 20 };
    CHECK_INT(30, sort_median_ns(ns, 4));
    CHECK_INT(-10, ns[0]);
    CHECK_INT(20, sort_median_ns(ns, 3));
}

/* Differences of these do not fit. */
static void numbers_far_apart_are_in_order(void)
{
    int64_t i64[] = { INT64_MAX, 0, INT64_MIN };
    uint64_t u64[] = { UINT64_MAX, 1, 0 };
    uint32_t u32[] = { UINT32_MAX, 1, 0 };
    double x[] = { 1e300, 0.25, -0.25 };
    const char *text[] = { "b", "aa", "a" };
    qsort(i64, 3, sizeof *i64, compare_i64);
    qsort(u64, 3, sizeof *u64, compare_u64);
    qsort(u32, 3, sizeof *u32, compare_u32);
    qsort(x, 3, sizeof *x, compare_double);
    qsort(text, 3, sizeof *text, compare_text);
    CHECK(i64[0] == INT64_MIN && i64[1] == 0 && i64[2] == INT64_MAX);
    CHECK(u64[0] == 0 && u64[1] == 1 && u64[2] == UINT64_MAX);
    CHECK(u32[0] == 0 && u32[1] == 1 && u32[2] == UINT32_MAX);
    CHECK(x[0] < 0 && x[1] < 1 && x[2] > 1);
    CHECK_STR("a", text[0]);
    CHECK_STR("b", text[2]);
}

int main(void)
{
    RUN(a_quantile_lies_between_its_neighbours_in_rank);
    RUN(the_median_of_unsorted_values_sorts_them);
    RUN(of_no_values_there_is_no_median);
    RUN(the_median_of_ns_is_one_of_them);
    RUN(numbers_far_apart_are_in_order);
    return check_report();
}
