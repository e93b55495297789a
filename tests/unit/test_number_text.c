/* test_number_text.c - digits, thousands and units where they change. */
#include "core/number_text.h"
#include "profile/trace_words.h"
#include "tests/check.h"

static void four_digits_are_counted_after_rounding(void)
{
    static const struct {
        double x;
        const char *text;
    } rows[] = {
        { 0, "0.000" },      { 9.9994, "9.999" }, { 9.9996, "10.00" }, { 99.994, "99.99" },
        { 99.996, "100.0" }, { 999.94, "999.9" }, { 999.96, "1000" },  { -12.345, "-12.35" },
    };
    char text[32];
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        snprintf(text, sizeof text, "%.*f", digits_of_four(rows[i].x), rows[i].x);
        CHECK_STR(rows[i].text, text);
    }
}

static void thousands_begin_at_the_point(void)
{
    static const char *const rows[][2] = {
        { "0", "0" },
        { "999", "999" },
        { "1000", "1,000" },
        { "-1000", "-1,000" },
        { "-100", "-100" },
        { "123456.7891", "123,456.7891" },
        { "18446744073709551615", "18,446,744,073,709,551,615" },
    };
    char text[64];
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        CHECK_STR(rows[i][1], group_thousands(text, rows[i][0]));
}

static void bytes_have_the_unit_they_are_rounded_to(void)
{
    int digits;
    double x = 1023;
    CHECK_STR("B", unit_of_bytes(&x, &digits));
    CHECK_INT(0, digits);
    CHECK_NEAR(1023, x, 0);
    x = 1023.99 * 1024;
    CHECK_STR("KiB", unit_of_bytes(&x, &digits));
    CHECK_INT(2, digits);
    x = 1023.996 * 1024;
    CHECK_STR("MiB", unit_of_bytes(&x, &digits));
    CHECK_NEAR(1023.996 / 1024, x, 1e-12);
    x = ldexp(1, 63);
    CHECK_STR("PiB", unit_of_bytes(&x, &digits));
    CHECK_NEAR(8192, x, 0);
}

static void percents_of_nothing_have_no_sign(void)
{
    char text[WORD_CAP];
    CHECK_STR("0.0 %", word_percent(text, -0.04));
    CHECK_STR("0.0 %", word_percent(text, -0.0));
    CHECK_STR("-0.1 %", word_percent(text, -0.06));
    CHECK_STR("60.3 %", word_percent(text, 60.26));
    CHECK_STR("-", word_percent(text, NAN));
}

int main(void)
{
    RUN(four_digits_are_counted_after_rounding);
    RUN(thousands_begin_at_the_point);
    RUN(percents_of_nothing_have_no_sign);
    RUN(bytes_have_the_unit_they_are_rounded_to);
    return check_report();
}
