/* splice.c - finds a member's first and last byte, and puts another text between. */
#include "profile/splice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t skip_blank(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

/* Past the string that begins at its opening quote. */
static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] && text[at] != '"'; at++)
        at += text[at] == '\\' && text[at + 1];
    return at + (text[at] == '"');
}

static size_t skip_value(const char *text, size_t at)
{
    if (text[at] == '"')
        return skip_string(text, at);
    if (text[at] != '{' && text[at] != '[')
        return at + strcspn(text + at, ",}] \t\r\n");
    size_t depth = 0;
    do {
        if (text[at] == '"') {
            at = skip_string(text, at);
            continue;
        }
        depth += text[at] == '{' || text[at] == '[';
        depth -= text[at] == '}' || text[at] == ']';
        at++;
    } while (depth > 0 && text[at]);
    return at;
}

typedef struct Member {
    bool found, any;   /* any: the object has members */
    size_t first, end; /* of the value; not found: where a new member goes */
} Member;

/* object: its opening brace. */
static Member find(const char *text, size_t object, const char *key)
{
    size_t n = strlen(key), at = skip_blank(text, object + 1);
    Member m = { .end = object + 1 };
    while (text[at] == '"') {
        size_t name = at + 1, name_end = skip_string(text, at) - 1;
        size_t value = skip_blank(text, name_end + 1);
        value = skip_blank(text, value + (text[value] == ':'));
        m = (Member){ false, true, value, skip_value(text, value) };
        m.found = name_end - name == n && memcmp(text + name, key, n) == 0;
        if (m.found)
            return m;
        at = skip_blank(text, m.end);
        at = skip_blank(text, at + (text[at] == ','));
    }
    m.first = m.end;
    return m;
}

static char *replace(char *text, size_t first, size_t end, const char *with)
{
    size_t n = strlen(with), old = strlen(text);
    char *out = mem_resize(NULL, old - (end - first) + n + 1, 1);
    memcpy(out, text, first);
    memcpy(out + first, with, n);
    memcpy(out + first + n, text + end, old - end + 1);
    free(text);
    return out;
}

/* Sets the member of the object at `object`; depth: how far its members are indented. */
static char *set(char *text, size_t object, int depth, const char *key, const char *value)
{
    Member m = find(text, object, key);
    if (m.found)
        return replace(text, m.first, m.end, value);
    bool last_line = text[skip_blank(text, m.end)] == '}' && !m.any;
    size_t n = strlen(key) + strlen(value) + 64;
    char *added = mem_resize(NULL, n, 1);
    snprintf(added, n, "%s\n%*s\"%s\": %s%s%*s", m.any ? "," : "", 2 * depth, "", key, value,
             last_line ? "\n" : "", last_line ? 2 * (depth - 1) : 0, "");
    size_t end = last_line ? skip_blank(text, m.end) : m.end;
    text = replace(text, m.end, end, added);
    free(added);
    return text;
}

char *json_splice(char *text, const char *outer, const char *inner, const char *value)
{
    bool marked = strncmp(text, "\xef\xbb\xbf", 3) == 0; /* UTF-8's byte order mark */
    size_t root = skip_blank(text, marked ? 3 : 0);
    ASSERT(text[root] == '{');
    if (!inner)
        return set(text, root, 1, outer, value);
    Member m = find(text, root, outer);
    if (!m.found || text[m.first] != '{') {
        text = set(text, root, 1, outer, "{}");
        m = find(text, root, outer);
    }
    return set(text, m.first, 2, inner, value);
}
