/* test_scan.c - the streaming JSON scanner: values, numbers, escapes, damage. */
#include "tests/check.h"
#include "traces/scan.h"

/* A cursor over a text with the padding behind it that the scanner may read. */
static uint8_t scan_bytes[4096];

static Scan scan_of(const char *text)
{
    size_t n = strlen(text);
    ASSERT(n + SCAN_PADDING_BYTES <= sizeof scan_bytes);
    memcpy(scan_bytes, text, n);
    memset(scan_bytes + n, 0, SCAN_PADDING_BYTES);
    return (Scan){ .at = scan_bytes, .end = scan_bytes + n };
}

static ScanText atom(const char *text)
{
    return (ScanText){ .at = (const uint8_t *)text,
                       .n = (uint32_t)strlen(text),
                       .kind = SCAN_ATOM };
}

static void values_of_every_kind_are_found_whole(void)
{
    static const struct {
        const char *text, *value;
        ScanKind kind;
    } cases[] = {
        { "\"abc\",", "abc", SCAN_STRING },
        { "  \n\t \"a\\\"b\" ", "a\\\"b", SCAN_STRING },
        { "\"a longer string than sixteen bytes, {[\" ",
          "a longer string than sixteen bytes, {[", SCAN_STRING },
        { "\"\\\\\" ", "\\\\", SCAN_STRING },
        { "-12.5e+3,", "-12.5e+3", SCAN_ATOM },
        { "1234567890123456789012345,", "1234567890123456789012345", SCAN_ATOM },
        { "NaN}", "NaN", SCAN_ATOM },
        { "-Infinity]", "-Infinity", SCAN_ATOM },
        { "{\"a\": [1, \"}\"], \"b\": {}} ", "{\"a\": [1, \"}\"], \"b\": {}}", SCAN_OBJECT },
        { "[[1, 2], [\"]\"]],", "[[1, 2], [\"]\"]]", SCAN_ARRAY },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Scan s = scan_of(cases[i].text);
        ScanText v;
        CHECK(scan_value(&s, &v));
        CHECK_INT((int64_t)cases[i].kind, v.kind);
        CHECK_U64(strlen(cases[i].value), v.n);
        CHECK(memcmp(cases[i].value, v.at, v.n) == 0);
        CHECK_INT(strchr(cases[i].value, '\\') != NULL, v.escaped);
    }
}

/* Whatever is cut off: never a value, never a problem, always "more is needed". */
static void a_value_cut_anywhere_asks_for_more(void)
{
    static const char *const texts[] = { "\"a\\\"bcdefghijklmnopqrstuvw\"", "123456",
                                         "{\"a\":[1,{\"b\":\"\\\\\"}]}", "[[],[\"x\"]]" };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        for (size_t n = 0; n < strlen(texts[i]); n++) {
            char cut[64];
            memcpy(cut, texts[i], n);
            cut[n] = '\0';
            Scan s = scan_of(cut);
            ScanText v;
            CHECK(!scan_value(&s, &v));
            CHECK(scan_ended(&s));
        }
    }
}

static void members_come_one_by_one_with_odd_spacing_and_commas(void)
{
    Scan s = scan_of("{\r\n \"a\" : 1 ,, \"b\":\"x\"\t\"c\"  :  [] , }");
    ScanText key, v;
    bool closed;
    char seen[16] = "";
    CHECK(scan_open(&s, '{'));
    while (scan_member(&s, &key, &closed) && scan_value(&s, &v))
        strncat(seen, (const char *)key.at, 1);
    CHECK(closed);
    CHECK_STR("abc", seen);
    CHECK(s.at == s.end);
}

static void wrong_structure_is_a_problem_that_stays(void)
{
    static const struct {
        const char *text, *problem;
    } cases[] = {
        { "{1:2}", "a key is expected" },
        { "{\"a\" 2}", "a colon is expected" },
        { "{\"a\":}", "a value is expected" },
        { "{\"a\":[1}", "a bracket is closed by one of another kind" },
        { "[1]", "an object is expected" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Scan s = scan_of(cases[i].text);
        ScanText key, v;
        bool closed;
        if (scan_open(&s, '{'))
            while (scan_member(&s, &key, &closed) && scan_value(&s, &v))
                ;
        CHECK_STR(cases[i].problem, s.problem);
        CHECK(!scan_value(&s, &v) && !scan_member(&s, &key, &closed));
        CHECK(!scan_ended(&s));
    }
}

static void nesting_is_bounded(void)
{
    char deep[2 * SCAN_DEPTH_MAX + 8];
    for (int extra = 0; extra < 2; extra++) {
        size_t n = (size_t)SCAN_DEPTH_MAX + (size_t)extra;
        memset(deep, '[', n);
        memset(deep + n, ']', n);
        deep[2 * n] = '\0';
        Scan s = scan_of(deep);
        ScanText v;
        CHECK_INT(extra == 0, scan_value(&s, &v));
        CHECK_STR(extra ? "it is nested too deep" : NULL, s.problem);
    }
}

static void the_rest_of_an_object_is_passed_over(void)
{
    Scan s = scan_of("{\"ph\":\"s\",\"a\":{\"}\":1},\"b\":[\"]\"]},next");
    ScanText key, v;
    bool closed;
    CHECK(scan_open(&s, '{') && scan_member(&s, &key, &closed) && scan_value(&s, &v));
    CHECK(scan_rest_of_object(&s));
    CHECK(memcmp(s.at, ",next", 5) == 0);
}

/* ---- numbers ---- */

/* Where a nested value of n bytes ends, byte by byte: behind its last bracket, 0 when that is
 * not there, -1 where brackets do not match. */
static int slow_end(const uint8_t *p, int n)
{
    char kinds[4096];
    int depth = 0;
    bool in_string = false;
    for (int i = 0; i < n; i++) {
        if (in_string) {
            in_string = p[i] != '"';
            i += p[i] == '\\';
        } else if (p[i] == '"') {
            in_string = true;
        } else if (p[i] == '{' || p[i] == '[') {
            kinds[depth++] = (char)(p[i] + 2); /* what closes it */
        } else if (p[i] == '}' || p[i] == ']') {
            if (kinds[--depth] != (char)p[i])
                return -1;
            if (depth == 0)
                return i + 1;
        }
    }
    return 0;
}

/* A text of brackets that match as a rule, strings and what may stand in them. */
static int random_text(char *text, int n, uint64_t *random)
{
    static const char all[] = "{}[][]{}\"\"\"\\ a,:1x";
    char open[64];
    int depth = 1;
    text[0] = '[';
    open[0] = ']';
    for (int i = 1; i < n; i++) {
        *random = mix_u64(*random);
        char c = all[*random % (sizeof all - 1)];
        if ((c == '{' || c == '[') && depth < 40)
            open[depth++] = (char)(c + 2);
        else if (strchr("{}[]", c))
            c = depth > 1 || *random >> 60 == 0 ? open[--depth] : ' ';
        text[i] = c;
        if (depth == 0)
            return i + 1;
    }
    return n;
}

static void nested_values_end_where_a_slow_reading_ends(void)
{
    char text[400];
    uint64_t random = 7;
    int whole_n = 0, problems_n = 0;
    for (int i = 0; i < 60000; i++) {
        int n = random_text(text, 1 + i % 390, &random);
        text[n] = '\0';
        Scan s = scan_of(text);
        ScanText v;
        int end = slow_end(s.at, n);
        bool found = scan_value(&s, &v);
        if (!CHECK(found == (end > 0)) || !CHECK((s.problem != NULL) == (end < 0)) ||
            (found && !CHECK_INT(end, (int)v.n)))
            return;
        whole_n += found;
        problems_n += end < 0;
    }
    CHECK(whole_n > 3000 && problems_n > 300);
}

static void microseconds_become_nanoseconds_exactly(void)
{
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        { "0", 0 },
        { "1", 1000 },
        { "-1", -1000 },
        { "0.001", 1 },
        { "17.25", 17250 },
        { "1697040000123456.789", 1697040000123456789 }, /* a double has 0.25 us there */
        { "1712195495519689.000", 1712195495519689000 },
        { "1712195495519689.0", 1712195495519689000 },
        { "4458676522690.655", 4458676522690655 },
        { "0.0004", 0 },
        { "0.0005", 1 },
        { "-0.0005", -1 },
        { "0.00049999999999999999999999", 0 },
        { "1.5e3", 1500000 },
        { "15E-1", 1500 },
        { "1e-30", 0 },
        { "+2", 2000 },
        { ".5", 500 },
        { "5.", 5000 },
        { "00012", 12000 },
        { "12345678", 12345678000 },
        { "123456781234567", 123456781234567000 },
        { "9223372036854775.807", INT64_MAX },
        { "0.00000000000000000000000000000000001", 0 },
        { "0e999999999999", 0 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        ScanText v = atom(cases[i].text);
        int64_t ns = -77;
        CHECK(scan_decimal(&v, 3, &ns));
        CHECK_INT(cases[i].ns, ns);
        v.kind = SCAN_STRING; /* some writers quote their numbers */
        CHECK(scan_decimal(&v, 3, &ns) && ns == cases[i].ns);
    }
}

static void what_is_no_number_or_too_large_is_refused(void)
{
    static const char *const texts[] = {
        "",
        "-",
        "NaN",
        "Infinity",
        "1x",
        "1.2.3",
        "0x10",
        "e5",
        "1e",
        "true",
        "--1",
        "1 2",
        ".",
        "1e400",
        "null",
        "1e19",
        "9223372036854775.808",
        "9223372036854775808",
        "99999999999999999999999",
        "1234567/",
        "12345678:",
    };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        ScanText v = atom(texts[i]);
        int64_t ns;
        if (!CHECK(!scan_decimal(&v, 3, &ns)))
            fprintf(stderr, "    %s\n", texts[i]);
    }
    ScanText list = atom("[1]");
    int64_t x;
    list.kind = SCAN_ARRAY;
    CHECK(!scan_decimal(&list, 3, &x) && !scan_whole(&list, &x));
}

/* Against long division by hand: every digit count and scale, no double in sight. */
static void decimals_agree_with_a_slow_reading_of_them(void)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t whole = mix_u64(i) >> (11 + mix_u64(~i) % 50), part = mix_u64(i + 7) % 1000;
        char text[64];
        snprintf(text, sizeof text, "%" PRIu64 ".%03" PRIu64, whole, part);
        ScanText v = atom(text);
        int64_t ns = 0;
        CHECK(scan_decimal(&v, 3, &ns));
        CHECK_INT((int64_t)(whole * 1000 + part), ns);
    }
}

static void whole_numbers_are_whole(void)
{
    int64_t x;
    ScanText seven = atom("7"), minus = atom("-42"), half = atom("0.5"), nothing = atom("");
    ScanText hex = atom("0x0"), large = atom("18446744073709551615");
    CHECK(scan_whole(&seven, &x) && x == 7);
    CHECK(scan_whole(&minus, &x) && x == -42);
    CHECK(!scan_whole(&half, &x) && !scan_whole(&nothing, &x) && !scan_whole(&hex, &x));
    CHECK(!scan_whole(&large, &x));
    ScanText most = atom("9223372036854775807"), more = atom("9223372036854775808");
    ScanText least = atom("-9223372036854775807"), less = atom("-9223372036854775808");
    CHECK(scan_whole(&most, &x) && x == INT64_MAX);
    CHECK(scan_whole(&least, &x) && x == -INT64_MAX);
    CHECK(!scan_whole(&more, &x) && !scan_whole(&less, &x));
}

static void doubles_are_finite(void)
{
    double x;
    ScanText a = atom("2.5e3"), nan = atom("NaN"), huge = atom("1e999");
    CHECK(scan_double(&a, &x) && x == 2500);
    CHECK(!scan_double(&nan, &x) && !scan_double(&huge, &x));
}

/* ---- escapes ---- */

static void escapes_are_resolved_and_oddities_stay(void)
{
    static const struct {
        const char *text, *plain;
    } cases[] = {
        { "a\\\"b\\\\c\\/d", "a\"b\\c/d" },
        { "\\b\\f\\n\\r\\t", "\b\f\n\r\t" },
        { "\\u0041\\u00e9\\u20ac", "A\xc3\xa9\xe2\x82\xac" },
        { "\\ud83d\\ude00", "\xf0\x9f\x98\x80" },
        { "\\ud83d!", "\xef\xbf\xbd!" },
        { "\\udc00", "\xef\xbf\xbd" },
        { "C:\\path\\Users\\x", "C:\\path\\Users\\x" },
        { "\\u12", "\\u12" },
        { "\\uzzzz", "\\uzzzz" },
        { "tail\\", "tail\\" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        ScanText v = atom(cases[i].text);
        char plain[64];
        v.kind = SCAN_STRING;
        v.escaped = true;
        size_t n = scan_unescape(&v, plain, sizeof plain - 1);
        plain[n] = '\0';
        CHECK_STR(cases[i].plain, plain);
    }
}

static void unescaping_never_writes_past_its_room(void)
{
    ScanText v = atom("\\u20ac\\u20ac\\u20ac\\u20ac");
    char room[8] = "#######";
    v.escaped = true;
    CHECK(scan_unescape(&v, room, 7) <= 7);
    CHECK_INT('\0', room[7]);
}

int main(void)
{
    RUN(values_of_every_kind_are_found_whole);
    RUN(a_value_cut_anywhere_asks_for_more);
    RUN(members_come_one_by_one_with_odd_spacing_and_commas);
    RUN(wrong_structure_is_a_problem_that_stays);
    RUN(nesting_is_bounded);
    RUN(the_rest_of_an_object_is_passed_over);
    RUN(nested_values_end_where_a_slow_reading_ends);
    RUN(microseconds_become_nanoseconds_exactly);
    RUN(what_is_no_number_or_too_large_is_refused);
    RUN(decimals_agree_with_a_slow_reading_of_them);
    RUN(whole_numbers_are_whole);
    RUN(doubles_are_finite);
    RUN(escapes_are_resolved_and_oddities_stay);
    RUN(unescaping_never_writes_past_its_room);
    return check_report();
}
