/*
 * keys.h - which key does what: the defaults of app_keys.c, a preset, or a file of one's own.
 *
 *     # lines of a file: a key and the name of an action, as the palette shows it
 *     Ctrl+J   next step
 *     Z        fit everything
 *     J        none                 the key does nothing
 *     wheel    zoom                 or: scroll, which is the default
 *
 * A file changes the defaults; what it does not name stays.  Keys are letters and signs, and
 * Enter Esc Backspace Delete Tab Left Right Up Down Home End PgUp PgDn F1 Space, each with
 * Shift+, Ctrl+ and Alt+ before it.
 */
#ifndef LOCKSTEP_VIZ_KEYS_H
#define LOCKSTEP_VIZ_KEYS_H

#include "core/err.h"

enum { MOD_SHIFT = 1, MOD_CTRL = 2, MOD_ALT = 4 };

/* Letters and signs are themselves ('w', '/'); the others have names. */
enum {
    KEY_ENTER = 256,
    KEY_ESC,
    KEY_BACKSPACE,
    KEY_DELETE,
    KEY_TAB,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_F1
};

enum { KEYS_MAX = 160, KEY_TEXT = 24 };

typedef struct KeyBinding {
    int32_t key, mods;
    uint32_t action; /* index into app_actions */
} KeyBinding;

typedef struct Keys {
    KeyBinding at[KEYS_MAX];
    uint32_t n;
    bool wheel_zooms; /* without Ctrl, as in Tracy */
} Keys;

void keys_default(Keys *k);
/* "default", "tracy", "chrome", or the path of a file.  False with a sentence, which names the
 * line of the file. */
bool keys_load(Keys *k, const char *what, Err *err);

/* The action of a name; of those with several keys, which stand several times in the table, the
 * first.  NONE_U32: none. */
uint32_t keys_action_named(const char *name);
/* A sign that needs Shift or AltGr on some keyboards: it is the sign that counts. */
bool keys_is_sign(int32_t key);
/* The action of a key, NONE_U32: none. */
uint32_t keys_action(const Keys *k, int32_t key, int32_t mods);
/* The first key of an action, as people write it: "Ctrl+Shift+P"; "": it has none. */
char *keys_text(const Keys *k, uint32_t action, char text[KEY_TEXT]);
/* All of them: "Right, .". */
char *keys_all_text(const Keys *k, uint32_t action, char *text, size_t cap);

#endif
