/*
 * theme.h - the colours of the viewer, dark and light, and the second cue of each.
 *
 * Colours of the classes of time are those of an optimisation over normal, protan, deutan
 * and tritan vision; tests/unit/test_theme.c computes their distances again.  In greyscale
 * they collapse: so no class is told by colour alone.
 *
 *     compute          full height            send/recv      chevron ends
 *     overlapped comm  thin band (in strips)  copies         -, own rows or white edges
 *     exposed comm     hatch, full height     host, idle     -, empty
 */
#ifndef LOCKSTEP_VIZ_THEME_H
#define LOCKSTEP_VIZ_THEME_H

#include "core/err.h"
#include "viz/draw.h"

/* What time was spent on, as it is coloured. */
typedef enum TimeClass {
    TIME_COMPUTE,
    TIME_OVERLAPPED, /* communication while compute runs */
    TIME_EXPOSED,    /* communication while none does */
    TIME_P2P,        /* sends and receives */
    TIME_MEMORY,     /* copies and sets */
    TIME_HOST,
    TIME_IDLE,
    TIME_CLASSES_N
} TimeClass;

typedef enum ThemeColor {
    THEME_BACKGROUND, /* of rows */
    THEME_PANEL,      /* of bars, drawer and row names */
    THEME_RAISED,     /* chips, text boxes, tooltips */
    THEME_LINE,       /* between rows, grid */
    THEME_EDGE,       /* frames of chips and tooltips */
    THEME_TEXT,
    THEME_DIM,    /* text of less weight; 4.5:1 as well */
    THEME_ACCENT, /* chosen chip; THEME_ON_ACCENT is text on it */
    THEME_ON_ACCENT,
    THEME_FOCUS,     /* keyboard focus and selection frames */
    THEME_SELECTION, /* over what is selected, translucent */
    THEME_SHADE,     /* over what is not of interest, translucent */
    THEME_STRIPE,    /* stripes of the hatch */
    THEME_AREA,      /* memory, link utilisation */
    THEME_AREA_EDGE, /* the step line above an area */
    THEME_TOO_FAST,  /* diff: the simulation is faster than reality */
    THEME_TOO_SLOW,
    THEME_CRITICAL, /* the critical path */
    THEME_ARROW,    /* flows and brackets */
    THEME_COLORS_N
} ThemeColor;

typedef struct Theme {
    const char *name; /* "dark", "light" */
    Color color[THEME_COLORS_N];
    Color time[TIME_CLASSES_N];
    Color on_time[TIME_CLASSES_N]; /* text on it, 4.5:1 or better */
} Theme;

const Theme *theme_dark(void);
const Theme *theme_light(void);

/* NULL with a sentence for a name that is neither dark nor light. */
const Theme *theme_find(const char *name, Err *err);

/* For legends and tooltips: "compute", "comm overlapped", "comm exposed" ... */
const char *time_class_name(TimeClass c);

/* A span of that class with its second cue (hatch, chevrons), alpha/255 opaque. */
void theme_span(DrawList *d, const Theme *t, TimeClass c, PxBox box, uint32_t alpha);

/*
 * A label on such a span, in the colour that can be read on it; on a hatch it stands on a
 * chip of the background.  Returns the width that is taken.
 */
Px theme_label(DrawList *d, const Theme *t, TimeClass c, PxBox box, TextStyle style,
               const char *text);

#endif
