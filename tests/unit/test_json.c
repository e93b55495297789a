/* Reading: values, paths, every refusal.  Writing: escapes, numbers, round trips. */
#include <unistd.h>

#include "core/intern.h"
#include "core/json.h"
#include "core/json_out.h"
#include "tests/check.h"

static JsonDoc *parse(const char *text, Err *err)
{
    err_clear(err);
    return json_parse(text, strlen(text), "x.json", err);
}

static void getters_return_what_is_written(void)
{
    Err err = { 0 };
    JsonDoc *doc =
        parse("{\"a\": 3, \"b\": 1.5, \"c\": true, \"d\": \"text\", \"e\": \"25MiB\","
              "\"f\": \"two\", \"g\": {\"h\": [1, 2]}, \"n\": null}",
              &err);
    JsonObj o = json_begin(json_root(doc), &err);
    static const char *const words[] = { "one", "two" };
    CHECK_U64(3, json_count(&o, "a", 1, 10, JSON_REQUIRED));
    CHECK_NEAR(1.5, json_number(&o, "b", 0, 2, 0), 0);
    CHECK(json_bool(&o, "c", false));
    CHECK_STR("text", json_string(&o, "d", NULL));
    CHECK_U64(25 * MIB, json_size(&o, "e", 0, GIB, 1));
    CHECK_INT(1, json_word(&o, "f", words, 2, 0));
    CHECK_U64(2, json_items_n(json_member(json_get(&o, "g"), "h")));
    CHECK_U64(7, json_count(&o, "n", 0, 10, 7));
    CHECK_U64(9, json_count(&o, "absent", 0, 10, 9));
    CHECK(json_end(&o));
    json_close(doc);
}

typedef struct Refusal {
    const char *text, *part;
} Refusal;

static void syntax_errors_name_line_and_column(void)
{
    static const Refusal r[] = {
        { "", "x.json:1:1: the file is empty" },
        { "{\n  \"a\": ]\n}", "x.json:2:8: not JSON from here on" },
        { "{\"a\": 1, }",
          "x.json:1:10: not JSON from here on: a comma too many stands before" },
        { "{\"a\": 1,\n}\n",
          "x.json:2:1: not JSON from here on: a comma too many stands before" },
        { "{\"a\": 010}", "x.json:1:7: not JSON from here on: numbers are as in 10, -0.5" },
        { "[2, 1.]", "x.json:1:5: not JSON from here on: numbers are as in 10" },
        { "# 2.17.8", "x.json:1:1: not JSON from here on: JSON has no comments" },
        { "[1, 01, x]", "x.json:1:5: not JSON from here on: numbers are as in 10" },
        { "[-.5]", "x.json:1:2: not JSON from here on: numbers are as in 10" },
        { "[0x10]", "x.json:1:2: not JSON from here on: numbers are as in 10" },
        { "[1,]", "x.json:1:4: not JSON from here on: a comma too many stands before it" },
        { "{'a': 1}", "x.json:1:2: not JSON from here on: texts stand in double quotes" },
        { "{ // a\n}", "x.json:1:3: not JSON from here on: JSON has no comments" },
        { "{\"a\": {\"b\": 1}", "x.json:1:15: not JSON: the text ends where" },
        { "{\"a\":}", "x.json:1:6: not JSON from here on" },
        { "{\"a\": NaN}", "x.json:1:7: not JSON from here on: numbers are finite" },
        { "{\"a\": 1", "x.json:1:8: not JSON: the text ends where something is still open" },
        { "[\"caf\xc3\xa9\", \"caf\xe9\"]", "x.json:1:15: not UTF-8 from here on" },
        { "[\"a\\\\u0000\", \"a\\u0000b\"]",
          "x.json:1:16: \\u0000 in a text, which would end there" },
        { "[\"\xc0\xaf\"]", "x.json:1:3: not UTF-8 from here on" },
        { "[\"\xed\xa0\x80\"]", "x.json:1:3: not UTF-8 from here on" },
        { "[\"\xf0\x9f\x98", "x.json:1:3: not UTF-8 from here on" },
        { "{} {}", "x.json:1:4: more text after the end" },
        { "{\"a\": 1, \"b\": 2, \"a\": 3}", "a: the key stands here twice" },
        { "{\"a\": {\"b\": 1e999}}", "a.b: the number is too large" },
        { "{\"a\"", "x.json:1:" },
        { "[1, 2", "x.json:1:" },
        { "nope", "x.json:1:1" },
    };
    for (size_t i = 0; i < ARRAY_N(r); i++) {
        Err err = { 0 };
        CHECK(parse(r[i].text, &err) == NULL);
        CHECK_ERR_TEXT(&err, r[i].part);
    }
    Err err = { 0 };
    CHECK(json_parse("{\"a\0\": 1}", 9, "x.json", &err) == NULL);
    CHECK_ERR_TEXT(&err, "a NUL byte");
}

static void nesting_is_bounded(void)
{
    char text[300];
    Err err = { 0 };
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    CHECK(json_parse(text, 200, "x.json", &err) == NULL);
    CHECK_ERR_TEXT(&err, "nested deeper than 64 levels");
    err_clear(&err);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    JsonDoc *doc = json_parse(text, 128, "x.json", &err);
    CHECK(doc != NULL);
    json_close(doc);
}

static void wrong_values_name_the_key_and_what_is_allowed(void)
{
    static const Refusal r[] = {
        { "{\"a\": 11}", "x.json: a: 11 is out of range, 1 to 10 allowed" },
        { "{\"a\": 1.5}", "a: a whole number is expected, not 1.5" },
        { "{\"a\": \"3\"}", "a: a number is expected, not a string" },
        { "{\"b\": 1}", "a: the key is missing" },
        { "{\"a\": 1, \"w\": \"three\"}", "w: unknown word 'three', allowed: one, two" },
        { "{\"a\": 1, \"s\": \"5 parsecs\"}", "s: '5 parsecs' is not a size such as 25MiB" },
        { "{\"a\": 1, \"s\": \"5GiB\"}", "s: 5GiB is out of range" },
        { "{\"a\": 1, \"s\": -1}", "s: -1 is out of range" },
        { "{\"a\": 1, \"c\": 1}", "c: true or false is expected, not a number" },
        { "{\"a\": 1, \"t\": []}", "t: a string is expected, not a list" },
        { "{\"a\": 1, \"z\": 2}", "z: unknown key, allowed: a, w, s, c, t" },
        { "[]", "an object is expected, not a list" },
    };
    static const char *const words[] = { "one", "two" };
    for (size_t i = 0; i < ARRAY_N(r); i++) {
        Err err = { 0 };
        JsonDoc *doc = parse(r[i].text, &err);
        JsonObj o = json_begin(json_root(doc), &err);
        json_count(&o, "a", 1, 10, JSON_REQUIRED);
        json_word(&o, "w", words, 2, 0);
        json_size(&o, "s", 0, GIB, 0);
        json_bool(&o, "c", false);
        json_string(&o, "t", "");
        CHECK(!json_end(&o));
        CHECK_ERR_TEXT(&err, r[i].part);
        json_close(doc);
    }
}

static void sizes_mean_what_they_say(void)
{
    uint64_t n = 0;
    CHECK(size_parse("25MiB", &n) && n == 25 * MIB);
    CHECK(size_parse("25MB", &n) && n == 25000000);
    CHECK(size_parse("1.5 GB", &n) && n == 1500000000);
    CHECK(size_parse("8", &n) && n == 8);
    CHECK(size_parse("2TiB", &n) && n == 2 * 1024 * GIB);
    CHECK(!size_parse("", &n) && !size_parse("-1", &n) && !size_parse("MiB", &n));
    CHECK(!size_parse("1e30TB", &n) && !size_parse("5mib", &n) && !size_parse("nan", &n));
    CHECK(!size_parse("0x10", &n) && !size_parse("0x10MiB", &n) && !size_parse("1.MiB", &n));
}

static void set_changes_adds_and_is_remembered(void)
{
    Err err = { 0 };
    JsonDoc *doc = parse("{\"a\": {\"b\": 1}, \"l\": [{\"x\": 1}]}", &err);
    CHECK(json_set(doc, "a.b", "7", &err));
    CHECK(json_set(doc, "c.d", "word", &err));
    CHECK(json_set(doc, "l[0].x", "5", &err));
    JsonObj o = json_begin(json_member(json_root(doc), "a"), &err);
    CHECK_U64(7, json_count(&o, "b", 0, 10, 0));
    json_count(&o, "e", 0, 10, 2);
    CHECK(json_end(&o));
    CHECK_STR("word", json_text(json_member(json_member(json_root(doc), "c"), "d")));
    CHECK_NEAR(5, json_value(json_member(json_item(json_member(json_root(doc), "l"), 0), "x")),
               0);
    size_t n;
    const JsonLogRow *log = json_log(doc, &n);
    CHECK_U64(2, n);
    CHECK_STR("a.b", log[0].path);
    CHECK_STR("7", log[0].value);
    CHECK_STR("--set", log[0].origin);
    CHECK_STR("default", log[1].origin);
    static const Refusal r[] = {
        { "a.b.c", "x.json: --set 'a.b.c': 'a.b' is a number here, an object is expected" },
        { "", "a key is KEY.KEY or KEY[NUMBER].KEY" },
        { "a..b", "a key is KEY.KEY" },
        { "l[3].x", "there is no such list element" },
        { "l[x].x", "a key is KEY.KEY" },
        { "l[1]", "there is no such list element" },
        { "a[0]", "'a' is an object here, a list is expected" },
        { "none[0]", "'none' is left out and has no elements, allowed: 'none=[...]'" },
        { "l[2]", "there is no such list element, 0 to 0 allowed" },
        { "l[0", "a key is KEY.KEY" },
        { "l[0]x", "a key is KEY.KEY" },
        { "l[-1]", "a key is KEY.KEY" },
        { "l[99999999999999999999]", "a key is KEY.KEY" },
    };
    for (size_t i = 0; i < ARRAY_N(r); i++) {
        err_clear(&err);
        CHECK(!json_set(doc, r[i].text, "1", &err));
        CHECK_ERR_TEXT(&err, r[i].part);
    }
    json_close(doc);
}

/* From the document, --set, and another document put into it. */
static void messages_name_where_the_value_is_from(void)
{
    Err err = { 0 };
    JsonDoc *doc = parse("{\"a\": {\"b\": 1}, \"m\": \"other\"}", &err);
    static const char text[] = "{\"x\": 1, \"y\": {\"z\": [1, 2]}}";
    JsonDoc *other = json_parse(text, sizeof text - 1, "dir/o.json", &err);
    json_graft(json_root(doc), "m", other);
    json_close(other);
    CHECK(json_set(doc, "m.y.z[1]", "7", &err));
    CHECK(json_set(doc, "a.b", "7", &err));
    JsonNode a = json_member(json_root(doc), "a"), m = json_member(json_root(doc), "m");
    JsonNode z = json_member(json_member(m, "y"), "z");
    const struct {
        JsonNode node;
        const char *origin, *message;
    } rows[] = {
        { a, "x.json", "x.json: a: no" },
        { json_member(a, "b"), "--set", "x.json: --set a.b: no" },
        { m, "dir/o.json", "dir/o.json: no" },
        { json_member(m, "x"), "dir/o.json", "dir/o.json: x: no" },
        { json_member(m, "gone"), "dir/o.json", "dir/o.json: gone: no" },
        { json_item(z, 0), "dir/o.json", "dir/o.json: y.z[0]: no" },
        { json_item(z, 1), "--set", "x.json: --set m.y.z[1]: no" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        err_clear(&err);
        CHECK(!json_fail(rows[i].node, &err, "no"));
        CHECK_STR(rows[i].message, err.text);
        CHECK_STR(rows[i].origin, json_origin(rows[i].node));
        CHECK_INT(strcmp(rows[i].origin, "--set") == 0, json_is_set(rows[i].node));
    }
    CHECK_NEAR(7, json_value(json_item(z, 1)), 0);
    json_close(doc);
}

static void slips_are_answered_with_what_may_be_meant(void)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        { "{\"layers\": 1, \"hiden\": 2}", "hiden: unknown key, did you mean 'hidden'? " },
        { "{\"layers\": 1, \"Layer\": 2}", "Layer: unknown key, did you mean 'layers'? " },
        { "{\"layers\": 1, \"wide\": 2}", "x.json: wide: unknown key, allowed: layers, h" },
        { "{\"layer\": 1}", "x.json: layers: the key is missing; is 'layer' meant?" },
        { "{\"wide\": 1}", "x.json: layers: the key is missing" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        Err err = { 0 };
        JsonDoc *doc = parse(rows[i].text, &err);
        JsonObj o = json_begin(json_root(doc), &err);
        json_count(&o, "layers", 1, 9, JSON_REQUIRED);
        json_count(&o, "hidden", 1, 9, 1);
        CHECK(!json_end(&o));
        CHECK_ERR_TEXT(&err, rows[i].message);
        json_close(doc);
    }
}

/* What a lax reader does not know it ignores in files, but nobody says a key for nothing. */
static void a_lax_reader_refuses_what_set_gave_in_vain(void)
{
    Err err = { 0 };
    JsonDoc *doc = parse("{\"layers\": 1, \"theta\": 2}", &err);
    JsonObj o = json_begin(json_root(doc), &err);
    json_count(&o, "layers", 1, 9, 1);
    CHECK(json_end_lax(&o));
    CHECK(json_set(doc, "theta", "3", &err));
    o = json_begin(json_root(doc), &err);
    json_count(&o, "layers", 1, 9, 1);
    CHECK(!json_end_lax(&o));
    CHECK_STR("x.json: --set theta: the key changes nothing here, allowed: layers", err.text);
    json_close(doc);
}

/* A slip in a key that may be left out would count as its default. */
static void a_lax_reader_refuses_slips(void)
{
    static const struct {
        const char *key, *meant; /* NULL: it is somebody else's */
    } r[] = {
        { "kv_head", "kv_heads" },  { "kv_headss", "kv_heads" }, { "KV_heads", "kv_heads" },
        { "kv-heads", "kv_heads" }, { "vk_heads", "kv_heads" },  { "kv_hd", NULL },
        { "theta", NULL },          { "layer", NULL }, /* layers stands there */
    };
    for (size_t i = 0; i < ARRAY_N(r); i++) {
        Err err = { 0 };
        char text[80], part[80];
        snprintf(text, sizeof text, "{\"layers\": 1, \"%s\": 2}", r[i].key);
        snprintf(part, sizeof part,
                 "x.json: %s: the key changes nothing here, did you mean '%s'?", r[i].key,
                 r[i].meant ? r[i].meant : "");
        JsonDoc *doc = parse(text, &err);
        JsonObj o = json_begin(json_root(doc), &err);
        json_count(&o, "layers", 1, 9, 1);
        json_count(&o, "kv_heads", 1, 9, 1);
        CHECK(json_end_lax(&o) == !r[i].meant);
        if (r[i].meant)
            CHECK_ERR_TEXT(&err, part);
        json_close(doc);
    }
}

static void lists_are_walked_in_order(void)
{
    Err err = { 0 };
    JsonDoc *doc = parse("[[1, 2], [3, 4], [5]]", &err);
    JsonNode list = json_root(doc);
    double x[2], sum = 0;
    size_t i = 0;
    for (JsonNode n = json_first(list); n.item; n = json_next(n, list, ++i)) {
        if (i == 2) {
            CHECK(!json_numbers(n, x, 2, &err));
            CHECK_ERR_TEXT(&err, "[2]: a list of 2 numbers is expected");
            break;
        }
        CHECK(json_numbers(n, x, 2, &err));
        sum = 10 * sum + x[0] + x[1];
    }
    CHECK_NEAR(37, sum, 0);
    json_close(doc);
}

static void files_that_cannot_be_read_are_named(void)
{
    Err err = { 0 };
    CHECK(json_open("/nonexistent.json", &err) == NULL);
    CHECK_ERR_TEXT(&err, "cannot open '/nonexistent.json': No such file");
    err_clear(&err);
    CHECK(json_open("/tmp", &err) == NULL);
    CHECK_ERR_TEXT(&err, "/tmp");
    err_clear(&err);
    CHECK(json_open("/dev/null", &err) == NULL);
    CHECK_ERR_TEXT(&err, "/dev/null:1:1: the file is empty");
}

static char *written(void (*write)(JsonOut *j))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    JsonOut j = json_out_file(f, 0);
    Err err = { 0 };
    write(&j);
    CHECK(json_out_end(&j, &err));
    fclose(f);
    return text;
}

static void write_all(JsonOut *j)
{
    json_out_open(j, '{');
    json_out_key(j, "a\"b");
    json_out_string(j, "x\n\\\x01\xc3\xa9\xff");
    json_out_key(j, "n");
    json_out_open(j, '[');
    json_out_number(j, 0.1);
    json_out_number(j, 1e300);
    json_out_number(j, NAN);
    json_out_int(j, INT64_MIN);
    json_out_bool(j, true);
    json_out_null(j);
    json_out_string(j, NULL);
    json_out_close(j, ']');
    json_out_key(j, "e");
    json_out_open(j, '{');
    json_out_close(j, '}');
    json_out_close(j, '}');
}

static void the_writer_escapes_and_separates(void)
{
    char *text = written(write_all);
    CHECK_STR("{\"a\\\"b\":\"x\\u000a\\\\\\u0001\xc3\xa9\xef\xbf\xbd\",\"n\":[0.1,1e+300,null,"
              "-9223372036854775808,true,null,null],\"e\":{}}\n",
              text);
    free(text);
}

static double drawn_number;
static void write_number(JsonOut *j)
{
    json_out_number(j, drawn_number);
}

static void numbers_read_back_equal(void)
{
    uint64_t state = 7;
    for (int i = 0; i < 2000; i++) {
        state = mix_u64(state);
        memcpy(&drawn_number, &state, sizeof state);
        if (!isfinite(drawn_number))
            continue;
        char *text = written(write_number);
        CHECK(strtod(text, NULL) == drawn_number);
        free(text);
    }
}

static void a_full_disk_is_noticed(void)
{
    FILE *f = fopen("/dev/full", "w");
    JsonOut j = json_out_file(f, 0);
    Err err = { 0 };
    json_out_int(&j, 1);
    CHECK(!json_out_end(&j, &err));
    CHECK_ERR_TEXT(&err, "cannot write the output");
    fclose(f);
}

static void interned_names_are_stored_once(void)
{
    Interner in = { 0 };
    char name[32];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "kernel_%u", i);
        CHECK_U64(i, intern(&in, name));
    }
    for (uint32_t i = 0; i < 5000; i += 7) {
        snprintf(name, sizeof name, "kernel_%u", i);
        CHECK_U64(i, intern(&in, name));
        CHECK_STR(name, intern_text(&in, i));
        CHECK_U64(i, intern_find(&in, name));
    }
    CHECK_U64(NONE_U32, intern_find(&in, "unknown"));
    CHECK_U64(intern(&in, "abc"), intern_bytes(&in, "abcdef", 3));
    intern_free(&in);
    CHECK_U64(NONE_U32, intern_find(&in, "abc"));
}

int main(void)
{
    RUN(getters_return_what_is_written);
    RUN(syntax_errors_name_line_and_column);
    RUN(nesting_is_bounded);
    RUN(wrong_values_name_the_key_and_what_is_allowed);
    RUN(sizes_mean_what_they_say);
    RUN(set_changes_adds_and_is_remembered);
    RUN(messages_name_where_the_value_is_from);
    RUN(slips_are_answered_with_what_may_be_meant);
    RUN(a_lax_reader_refuses_what_set_gave_in_vain);
    RUN(a_lax_reader_refuses_slips);
    RUN(lists_are_walked_in_order);
    RUN(files_that_cannot_be_read_are_named);
    RUN(the_writer_escapes_and_separates);
    RUN(numbers_read_back_equal);
    RUN(a_full_disk_is_noticed);
    RUN(interned_names_are_stored_once);
    return check_report();
}
