/*
 * test_printable.c - what of somebody's text may reach a terminal.
 */
#include "core/err.h"
#include "core/printable.h"
#include "sim/texts.h"
#include "tests/check.h"

static const char *printable(const char *text)
{
    static char shown[64];
    snprintf(shown, sizeof shown, "%s", text);
    make_printable(shown);
    return shown;
}

static void letters_of_all_languages_stay(void)
{
    static const char *const texts[] = { "",
                                         "layer 3",
                                         "\xc3\xa4\xc3\x9f",
                                         "\xd8\xb9\xd8\xb1",
                                         "\xe5\xb1\x82",
                                         "\xe2\x80\x93 \xe2\x86\x92 \xe2\x81\x84",
                                         "\xf0\x9f\x9a\x80" };
    for (size_t i = 0; i < ARRAY_N(texts); i++)
        CHECK_STR(texts[i], printable(texts[i]));
}

/* Every code point in its UTF-8 of two and three bytes: those that are hidden are as listed. */
static void what_moves_or_turns_is_a_question_mark(void)
{
    CHECK_STR("a?b?", printable("a\nb\x7f"));
    CHECK_STR("?[31mred", printable("\x1b[31mred"));
    for (uint32_t p = 0x80; p < 0x10000; p++) {
        char utf8[4] = { 0 };
        if (p < 0x800) {
            utf8[0] = (char)(0xc0 | p >> 6);
            utf8[1] = (char)(0x80 | (p & 0x3f));
        } else {
            utf8[0] = (char)(0xe0 | p >> 12);
            utf8[1] = (char)(0x80 | (p >> 6 & 0x3f));
            utf8[2] = (char)(0x80 | (p & 0x3f));
        }
        if (p >= 0xd800 && p < 0xe000)
            continue; /* no code points of texts */
        bool hidden = p < 0xa0 || p == 0x61c || p == 0x200e || p == 0x200f ||
                      (p >= 0x202a && p <= 0x202e) || (p >= 0x2066 && p <= 0x2069);
        if (!CHECK_STR(hidden ? "?" : utf8, printable(utf8)))
            fprintf(stderr, "U+%04X\n", p);
    }
}

/* A file that is none of text, and texts that end within a character, begin with the rest of one,
 * or say a letter in more bytes than it needs. */
static void what_is_no_utf8_is_a_question_mark(void)
{
    CHECK_STR("?PNG?", printable("\x89PNG\x9b"));
    CHECK_STR("x??", printable("x\xe2\x80"));
    CHECK_STR("x?", printable("x\xc2"));
    CHECK_STR("?x", printable("\xa4x"));
    CHECK_STR("?? ???", printable("\xc0\xaf \xe0\x80\xaf"));
    CHECK_STR("????", printable("\xf4\x90\x80\x80"));
    CHECK_STR("\xf0\x9f\x98\x80?", printable("\xf0\x9f\x98\x80\xf0"));
}

static void messages_and_names_hide_it(void)
{
    Err err = { 0 };
    char name[TEXT_CAP];
    err_set(&err, "no file '%s'",
            "a\xe2\x80\xae"
            "b");
    CHECK_STR("no file 'a?b'", err.text);
    CHECK_STR("a?b", text_name(name,
                               "a\xe2\x80\xae"
                               "b",
                               20));
    /* No character, and one cut in two: as many '?' as bytes, letters of more bytes stay. */
    CHECK_STR("\xc3\xa4?[?z", text_name(name,
                                        "\xc3\xa4\x9b[\xe2"
                                        "z",
                                        20));
    CHECK_STR("\xc3\xa4\xc3\xb6...",
              text_name(name, "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc", 5));
}

int main(void)
{
    RUN(letters_of_all_languages_stay);
    RUN(what_moves_or_turns_is_a_question_mark);
    RUN(what_is_no_utf8_is_a_question_mark);
    RUN(messages_and_names_hide_it);
    return check_report();
}
