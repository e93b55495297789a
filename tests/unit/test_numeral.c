/* test_numeral.c - what is a number, held against every text of a few characters. */
#include "core/numeral.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static void a_number_is_what_json_calls_one(void)
{
    static const struct {
        const char *text;
        double x;
        const char *rest;
    } rows[] = {
        { "0", 0, "" },         { "10", 10, "" },         { "-0.5", -0.5, "" },
        { "2e9", 2e9, "" },     { "1.5E-3", 1.5e-3, "" }, { "1e+05", 1e5, "" },
        { "25MiB", 25, "MiB" }, { "5 %", 5, " %" },       { "2e", 2, "e" },
        { "3,4", 3, ",4" },
    };
    static const char *const none[] = { "",      "-",  "+1",   ".5",  "1.",  "1..2",
                                        "010",   "00", "0x10", "inf", "nan", "-inf",
                                        "1e400", " 1", "e5",   "-.5" };
    const char *end;
    double x;
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        CHECK(numeral_real(rows[i].text, &x, &end));
        CHECK(x == rows[i].x);
        CHECK_STR(rows[i].rest, end);
    }
    for (size_t i = 0; i < ARRAY_N(none); i++)
        CHECK(!numeral_real(none[i], &x, &end));
}

static void digits_alone_are_a_whole_number(void)
{
    static const char *const none[] = {
        "", "-1", "+1", "007", "x", " 1", "18446744073709551616"
    };
    const char *end;
    uint64_t x;
    CHECK(numeral_whole("18446744073709551615", &x, &end) && x == UINT64_MAX && !*end);
    CHECK(numeral_whole("0", &x, &end) && x == 0 && !*end);
    CHECK(numeral_whole("8..16", &x, &end) && x == 8 && strcmp(end, "..16") == 0);
    for (size_t i = 0; i < ARRAY_N(none); i++)
        CHECK(!numeral_whole(none[i], &x, &end));
}

/* No more is read than there is, and what is taken is just what strtod takes. */
static void every_short_text(void)
{
    static const char alphabet[] = "019-+.eExX ";
    enum { LETTERS = sizeof alphabet - 1, LENGTH = 5 };
    char text[LENGTH + 1];
    for (uint32_t i = 0; i < 161051; i++) { /* LETTERS ^ LENGTH */
        uint32_t rest = i;
        for (int k = 0; k < LENGTH; k++, rest /= LETTERS)
            text[k] = alphabet[rest % LETTERS];
        text[LENGTH] = '\0';
        char *stop;
        (void)strtod(text, &stop);
        size_t n = numeral_bytes(text, LENGTH);
        CHECK(n == 0 || text + n == stop);
        CHECK(numeral_bytes(text, n) == n);
    }
}

int main(void)
{
    RUN(a_number_is_what_json_calls_one);
    RUN(digits_alone_are_a_whole_number);
    RUN(every_short_text);
    return check_report();
}
