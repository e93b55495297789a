/*
 * test_nearest.c - distances by their definition on small words, and no wild guesses.
 */
#include "core/nearest.h"
#include "tests/check.h"

static void the_distance_counts_letters_to_change(void)
{
    static const struct {
        const char *a, *b;
        uint32_t distance;
    } rows[] = {
        { "", "", 0 },        { "abc", "abc", 0 },
        { "", "abc", 3 },     { "abc", "", 3 },
        { "abc", "abd", 1 },  { "abc", "ab", 1 },
        { "abc", "xabc", 1 }, { "modle", "model", 2 },
        { "ABC", "abc", 0 },  { "kitten", "sitting", 3 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        CHECK_U64(rows[i].distance, edit_distance(rows[i].a, rows[i].b));
        CHECK_U64(rows[i].distance, edit_distance(rows[i].b, rows[i].a));
    }
}

static void names_too_long_to_compare_are_far_apart(void)
{
    char name[NEAREST_NAME_CAP + 1];
    memset(name, 'a', NEAREST_NAME_CAP);
    name[NEAREST_NAME_CAP] = '\0';
    CHECK_U64(UINT32_MAX, edit_distance(name, "a"));
    CHECK_U64(UINT32_MAX, edit_distance("a", name));
    CHECK(!is_near(name, name));
    name[NEAREST_NAME_CAP - 1] = '\0';
    CHECK_U64(0, edit_distance(name, name));
}

static void the_nearest_is_meant_or_nobody(void)
{
    static const char *const names[] = { "sim", "plan", "view", "validate" };
    CHECK_STR("sim", nearest("simm", names, ARRAY_N(names)));
    CHECK_STR("validate", nearest("valdiate", names, ARRAY_N(names)));
    CHECK_STR("plan", nearest("PLAN", names, ARRAY_N(names)));
    CHECK(nearest("x", names, ARRAY_N(names)) == NULL);
    CHECK(nearest("", names, ARRAY_N(names)) == NULL);
    CHECK(nearest("sim", names, 0) == NULL);
    static const char *const equals[] = { "dp", "tp" };
    CHECK_STR("dp", nearest("xp", equals, ARRAY_N(equals)));
}

static void words_are_listed_as_far_as_there_is_room(void)
{
    static const char *const words[] = { "one", "two", "three" };
    const char *many[40];
    char text[200];
    for (size_t i = 0; i < ARRAY_N(many); i++)
        many[i] = "twelve chars";
    CHECK_STR("", words_joined(text, sizeof text, words, 0));
    CHECK_STR("one, two, three", words_joined(text, sizeof text, words, ARRAY_N(words)));
    words_joined(text, sizeof text, many, ARRAY_N(many));
    CHECK(strlen(text) < sizeof text);
    CHECK_STR(", ...", text + strlen(text) - 5);
}

int main(void)
{
    RUN(the_distance_counts_letters_to_change);
    RUN(names_too_long_to_compare_are_far_apart);
    RUN(the_nearest_is_meant_or_nobody);
    RUN(words_are_listed_as_far_as_there_is_room);
    return check_report();
}
