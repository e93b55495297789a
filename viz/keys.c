/*
 * keys.c - reads and writes keys; presets.
 */
#include "viz/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "viz/app.h"

static const struct {
    const char *name;
    int32_t key;
} named[] = { { "Enter", KEY_ENTER },    { "Esc", KEY_ESC }, { "Backspace", KEY_BACKSPACE },
              { "Delete", KEY_DELETE },  { "Tab", KEY_TAB }, { "Left", KEY_LEFT },
              { "Right", KEY_RIGHT },    { "Up", KEY_UP },   { "Down", KEY_DOWN },
              { "Home", KEY_HOME },      { "End", KEY_END }, { "PgUp", KEY_PAGE_UP },
              { "PgDn", KEY_PAGE_DOWN }, { "F1", KEY_F1 },   { "Space", ' ' } };

static const struct {
    const char *name;
    int32_t mod;
} mods_named[] = { { "Ctrl+", MOD_CTRL }, { "Shift+", MOD_SHIFT }, { "Alt+", MOD_ALT } };

bool keys_is_sign(int32_t key)
{
    return key > 0 && key < 128 && strchr("?:>/+.,[]=@", key);
}

/* ---- bindings ---- */

static void unbind(Keys *k, int32_t key, int32_t mods)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->at[i].key != key || k->at[i].mods != mods)
            k->at[n++] = k->at[i];
    k->n = n;
}

static bool bind(Keys *k, int32_t key, int32_t mods, uint32_t action)
{
    unbind(k, key, mods);
    if (k->n == KEYS_MAX)
        return false;
    k->at[k->n++] = (KeyBinding){ key, mods, action };
    return true;
}

uint32_t keys_action_named(const char *name)
{
    for (uint32_t i = 0; i < app_actions_n; i++)
        if (strcmp(app_actions[i].name, name) == 0)
            return i;
    return NONE_U32;
}

void keys_default(Keys *k)
{
    *k = (Keys){ .n = 0 };
    for (uint32_t i = 0; i < app_actions_n; i++)
        if (app_actions[i].key)
            bind(k, app_actions[i].key, app_actions[i].mods,
                 keys_action_named(app_actions[i].name));
}

uint32_t keys_action(const Keys *k, int32_t key, int32_t mods)
{
    if (keys_is_sign(key))
        mods &= ~MOD_SHIFT;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->at[i].key == key && k->at[i].mods == mods)
            return k->at[i].action;
    return NONE_U32;
}

/* ---- texts ---- */

static void write_key(const KeyBinding *b, char text[KEY_TEXT])
{
    char letter[2] = { (char)toupper(b->key < 128 ? b->key : 0), 0 };
    const char *name = letter;
    for (size_t i = 0; i < ARRAY_N(named); i++)
        if (named[i].key == b->key)
            name = named[i].name;
    snprintf(text, KEY_TEXT, "%s%s%s%s", b->mods & MOD_CTRL ? "Ctrl+" : "",
             b->mods & MOD_SHIFT ? "Shift+" : "", b->mods & MOD_ALT ? "Alt+" : "", name);
}

char *keys_text(const Keys *k, uint32_t action, char text[KEY_TEXT])
{
    text[0] = 0;
    for (uint32_t i = 0; i < k->n && !text[0]; i++)
        if (k->at[i].action == action)
            write_key(&k->at[i], text);
    return text;
}

char *keys_all_text(const Keys *k, uint32_t action, char *text, size_t cap)
{
    char one[KEY_TEXT];
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < k->n && used < cap; i++)
        if (k->at[i].action == action) {
            write_key(&k->at[i], one);
            used += (size_t)snprintf(text + used, cap - used, "%s%s", used ? ", " : "", one);
        }
    return text;
}

static bool read_key(const char *text, int32_t *key, int32_t *mods)
{
    *mods = 0;
    for (size_t i = 0; i < ARRAY_N(mods_named); i++) {
        size_t n = strlen(mods_named[i].name);
        if (strncmp(text, mods_named[i].name, n) == 0 && text[n]) {
            *mods |= mods_named[i].mod;
            text += n;
            i = (size_t)-1; /* in any order */
        }
    }
    for (size_t i = 0; i < ARRAY_N(named); i++)
        if (strcmp(text, named[i].name) == 0) {
            *key = named[i].key;
            return true;
        }
    *key = tolower((unsigned char)text[0]);
    if (keys_is_sign(*key))
        *mods &= ~MOD_SHIFT;
    return text[0] > ' ' && text[0] < 127 && !text[1];
}

/* ---- files ---- */

static bool take_line(Keys *k, const char *key_text, const char *name, Err *err)
{
    int32_t key, mods;
    if (strcmp(key_text, "wheel") == 0) {
        k->wheel_zooms = strcmp(name, "zoom") == 0;
        return k->wheel_zooms || strcmp(name, "scroll") == 0 ||
               err_set(err, "'wheel' takes zoom or scroll, not '%.60s'", name);
    }
    if (!read_key(key_text, &key, &mods))
        return err_set(err, "'%.40s' is no key; W, Ctrl+J, Shift+Left, F1 are", key_text);
    if (strcmp(name, "none") == 0) {
        unbind(k, key, mods);
        return true;
    }
    uint32_t action = keys_action_named(name);
    if (action == NONE_U32)
        return err_set(err, "there is no action '%.60s'; the palette (Ctrl+Shift+P) lists them",
                       name);
    return bind(k, key, mods, action) || err_set(err, "at most %d keys are allowed", KEYS_MAX);
}

/* "KEY action name": cut in two; false where nothing stands. */
static bool cut_line(char *line, char **key, char **name)
{
    line[strcspn(line, "\r\n")] = 0;
    line += strspn(line, " \t");
    if (!line[0] || (line[0] == '#' && (!line[1] || line[1] == ' ')))
        return false;
    *key = line;
    *name = line + strcspn(line, " \t");
    if (**name)
        *(*name)++ = 0;
    *name += strspn(*name, " \t");
    for (size_t n = strlen(*name); n > 0 && ((*name)[n - 1] == ' ' || (*name)[n - 1] == '\t');)
        (*name)[--n] = 0;
    return true;
}

static bool read_file(Keys *k, const char *path, Err *err)
{
    char line[256], *key, *name;
    FILE *in = fopen(path, "r");
    if (!in)
        return err_set(err, "--keys takes default, tracy, chrome or a file; '%s': %s", path,
                       strerror(errno));
    bool ok = true;
    for (int number = 1; ok && fgets(line, sizeof line, in); number++) {
        Err why = { .text = "" };
        if (cut_line(line, &key, &name) && !take_line(k, key, name, &why))
            ok = err_set(err, "%s:%d: %s", path, number, why.text);
    }
    fclose(in);
    return ok;
}

bool keys_load(Keys *k, const char *what, Err *err)
{
    keys_default(k);
    if (strcmp(what, "default") == 0)
        return true;
    if (strcmp(what, "tracy") == 0)
        return take_line(k, "wheel", "zoom", err);
    if (strcmp(what, "chrome") == 0)
        return take_line(k, "Z", "fit everything", err) &&
               take_line(k, "Tab", "next event in lane", err) &&
               take_line(k, "Shift+Tab", "previous event in lane", err);
    return read_file(k, what, err);
}
