/* test_texts.c - numbers and names as people read them: input and text, side by side. */
#include "sim/texts.h"
#include "tests/check.h"

static void seconds_take_the_unit_that_shows_four_digits(void)
{
    static const struct {
        double s;
        const char *text;
    } rows[] = {
        { 0, "0 s" },
        { 1.4023, "1.402 s" },
        { 12.345, "12.35 s" },
        { 123.45, "123.5 s" },
        { 1234.56, "1,235 s" },
        { 0.0123456, "12.35 ms" },
        { 3.2e-6, "3.200 us" },
        { 7e-9, "7.000 ns" },
        { 0.99999, "1.000 s" }, /* never 1000.0 ms */
        { 0.00099999, "1.000 ms" },
        { 9.99996, "10.00 s" },
        { -0.5, "-500.0 ms" },
        { NAN, "-" },
        { INFINITY, "-" },
    };
    char text[TEXT_CAP];
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        CHECK_STR(rows[i].text, text_seconds(text, rows[i].s));
}

static void bytes_take_binary_units(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        { 0, "0 B" },
        { 1023, "1,023 B" },
        { 1024, "1.00 KiB" },
        { 1536, "1.50 KiB" },
        { MIB - 1, "1.00 MiB" }, /* never 1024.00 KiB */
        { 80 * GIB, "80.00 GiB" },
        { 1024 * GIB, "1.00 TiB" },
        { UINT64_MAX, "16,384.00 PiB" },
    };
    char text[TEXT_CAP];
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        CHECK_STR(rows[i].text, text_bytes(text, rows[i].bytes));
}

static void thousands_are_separated(void)
{
    char text[TEXT_CAP];
    CHECK_STR("0", text_number(text, 0, 0));
    CHECK_STR("999", text_number(text, 999, 0));
    CHECK_STR("1,000", text_number(text, 1000, 0));
    CHECK_STR("-1,234,567.9", text_number(text, -1234567.89, 1));
    CHECK_STR("0.0", text_number(text, -0.01, 1)); /* no minus before nothing */
    CHECK_STR("-", text_number(text, NAN, 1));
    CHECK_STR("-", text_number(text, 1e300, 1));
}

static void rates_show_four_digits_and_counts_three(void)
{
    char text[TEXT_CAP];
    CHECK_STR("1,632,831", text_rate(text, 1632831.4));
    CHECK_STR("10.84", text_rate(text, 10.838));
    CHECK_STR("0.012", text_rate(text, 0.0123));
    CHECK_STR("-", text_rate(text, NAN));
    CHECK_STR("850", text_count(text, 850));
    CHECK_STR("124M", text_count(text, 124439808));
    CHECK_STR("8.03B", text_count(text, 8030261248));
    CHECK_STR("1T", text_count(text, 999900000000)); /* never 1e+03B */
}

static void percents_and_money(void)
{
    char text[TEXT_CAP];
    CHECK_STR("29.3 %", text_percent(text, 29.31));
    CHECK_STR("-", text_percent(text, NAN));
    CHECK_STR("$1,234.50", text_usd(text, 1234.5));
    CHECK_STR("$0.01230", text_usd(text, 0.0123));
    CHECK_STR("$1.250", text_usd(text, 1.25));
    CHECK_STR("$0.00001230", text_usd(text, 1.23e-5));
    CHECK_STR("$1.23e-07", text_usd(text, 1.23e-7));
    CHECK_STR("$0.00", text_usd(text, 0));
    CHECK_STR("-", text_usd(text, NAN));
}

static void names_are_cut_at_characters_and_cleaned(void)
{
    char text[TEXT_CAP];
    CHECK_STR("short", text_name(text, "short", 10));
    CHECK_STR("exactly 10", text_name(text, "exactly 10", 10));
    CHECK_STR("llama3-...", text_name(text, "llama3-8b, FSDP", 10));
    CHECK_STR("one two...",
              text_name(text, "one two three", 11)); /* no blank before the dots */
    CHECK_STR("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f",
              text_name(text, "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f", 4));
    CHECK_STR("\xc3\xa4...", text_name(text, "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f-", 4));
    CHECK_STR("a?[31mb?", text_name(text, "a\033[31mb\n", 20));
    CHECK_STR("c?1", text_name(text,
                               "c\xc2\x9b"
                               "1",
                               20));
    CHECK_U64(4, text_width("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f"));
}

/* Stray continuation bytes have no width, so only the buffer bounds them. */
static void a_name_of_broken_utf8_does_not_overflow(void)
{
    char name[2 * TEXT_CAP], text[TEXT_CAP];
    memset(name, 0x80, sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK(strlen(text_name(text, name, 20)) < TEXT_CAP);
}

int main(void)
{
    RUN(seconds_take_the_unit_that_shows_four_digits);
    RUN(bytes_take_binary_units);
    RUN(thousands_are_separated);
    RUN(rates_show_four_digits_and_counts_three);
    RUN(percents_and_money);
    RUN(names_are_cut_at_characters_and_cleaned);
    RUN(a_name_of_broken_utf8_does_not_overflow);
    return check_report();
}
