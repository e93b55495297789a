/*
 * test_theme.c - can the colours be read, and told apart by everyone?
 *
 * Contrast is that of WCAG 2.1; distances are CIEDE2000 (Sharma, Wu, Dalal 2005) of colours as
 * protan, deutan and tritan eyes see them (Machado, Oliveira, Fernandes 2009, severity 1.0).
 */
#include "tests/check.h"
#include "viz/theme.h"

static const double pi = 3.14159265358979323846;

typedef struct Vec {
    double v[3];
} Vec;

/* ---- light ---- */

static double linear(uint32_t channel)
{
    double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static Vec linear_of(Color c)
{
    return (Vec){ { linear(c >> 16 & 0xff), linear(c >> 8 & 0xff), linear(c & 0xff) } };
}

static double luminance(Color c)
{
    Vec l = linear_of(c);
    return 0.2126 * l.v[0] + 0.7152 * l.v[1] + 0.0722 * l.v[2];
}

static double contrast(Color a, Color b)
{
    double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
    return x > y ? x / y : y / x;
}

/* ---- eyes ---- */

typedef struct Matrix {
    double m[3][3];
} Matrix;

static const Matrix eyes[] = {
    { { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } } },
    { { { 0.152286, 1.052583, -0.204868 },
        { 0.114503, 0.786281, 0.099216 },
        { -0.003882, -0.048116, 1.051998 } } },
    { { { 0.367322, 0.860646, -0.227968 },
        { 0.280085, 0.672501, 0.047413 },
        { -0.011820, 0.042940, 0.968881 } } },
    { { { 1.255528, -0.076749, -0.178779 },
        { -0.078411, 0.930809, 0.147602 },
        { 0.004733, 0.691367, 0.303900 } } },
};

/* sRGB to XYZ with the white point D65. */
static const Matrix to_xyz = { { { 0.4124564, 0.3575761, 0.1804375 },
                                 { 0.2126729, 0.7151522, 0.0721750 },
                                 { 0.0193339, 0.1191920, 0.9503041 } } };

static Vec times(const Matrix *m, Vec x)
{
    Vec y;
    for (int r = 0; r < 3; r++)
        y.v[r] = m->m[r][0] * x.v[0] + m->m[r][1] * x.v[1] + m->m[r][2] * x.v[2];
    return y;
}

static double lab_part(double t)
{
    return t > 216.0 / 24389 ? cbrt(t) : (24389.0 / 27 * t + 16) / 116;
}

static Vec lab_of(Color c, const Matrix *eye)
{
    Vec seen = times(eye, linear_of(c));
    for (int i = 0; i < 3; i++)
        seen.v[i] = fmin(1, fmax(0, seen.v[i]));
    Vec xyz = times(&to_xyz, seen);
    double x = lab_part(xyz.v[0] / 0.95047), y = lab_part(xyz.v[1]),
           z = lab_part(xyz.v[2] / 1.08883);
    return (Vec){ { 116 * y - 16, 500 * (x - y), 200 * (y - z) } };
}

/* ---- CIEDE2000 ---- */

static double hue(double a, double b)
{
    double h = a == 0 && b == 0 ? 0 : atan2(b, a);
    return h < 0 ? h + 2 * pi : h;
}

static double cos_deg(double radians, double times_, double less_deg)
{
    return cos(times_ * radians - less_deg * pi / 180);
}

static double mean_hue(double h1, double h2, bool grey)
{
    if (grey)
        return h1 + h2;
    if (fabs(h1 - h2) <= pi)
        return (h1 + h2) / 2;
    return h1 + h2 < 2 * pi ? (h1 + h2) / 2 + pi : (h1 + h2) / 2 - pi;
}

static double ciede2000(Vec p, Vec q)
{
    double c_mean = (hypot(p.v[1], p.v[2]) + hypot(q.v[1], q.v[2])) / 2, c7 = pow(c_mean, 7);
    double g = 0.5 * (1 - sqrt(c7 / (c7 + pow(25, 7))));
    double a1 = (1 + g) * p.v[1], a2 = (1 + g) * q.v[1];
    double c1 = hypot(a1, p.v[2]), c2 = hypot(a2, q.v[2]);
    double h1 = hue(a1, p.v[2]), h2 = hue(a2, q.v[2]), dh = h2 - h1;
    bool grey = c1 * c2 == 0;
    dh = grey ? 0 : dh > pi ? dh - 2 * pi : dh < -pi ? dh + 2 * pi : dh;
    double dl = q.v[0] - p.v[0], dc = c2 - c1, dH = 2 * sqrt(c1 * c2) * sin(dh / 2);
    double l = (p.v[0] + q.v[0]) / 2, c = (c1 + c2) / 2, h = mean_hue(h1, h2, grey);
    double t = 1 - 0.17 * cos_deg(h, 1, 30) + 0.24 * cos(2 * h) + 0.32 * cos_deg(h, 3, -6) -
               0.20 * cos_deg(h, 4, 63);
    double turn = 30 * exp(-pow((h * 180 / pi - 275) / 25, 2)), rc7 = pow(c, 7);
    double rc = 2 * sqrt(rc7 / (rc7 + pow(25, 7))), rt = -sin(2 * turn * pi / 180) * rc;
    double sl = 1 + 0.015 * pow(l - 50, 2) / sqrt(20 + pow(l - 50, 2));
    double x = dl / sl, y = dc / (1 + 0.045 * c), z = dH / (1 + 0.015 * c * t);
    return sqrt(x * x + y * y + z * z + rt * y * z);
}

/* Pairs 1, 7 and 17 of the paper's table of test data. */
static void the_distance_is_that_of_the_paper(void)
{
    CHECK_NEAR(2.0425,
               ciede2000((Vec){ { 50, 2.6772, -79.7751 } }, (Vec){ { 50, 0, -82.7485 } }),
               1e-4);
    CHECK_NEAR(2.3669, ciede2000((Vec){ { 50, 0, 0 } }, (Vec){ { 50, -1, 2 } }), 1e-4);
    CHECK_NEAR(27.1492, ciede2000((Vec){ { 50, 2.5, 0 } }, (Vec){ { 73, 25, -18 } }), 1e-4);
}

static void classes_of_time_are_told_apart_by_every_eye(void)
{
    const Theme *themes[] = { theme_dark(), theme_light() };
    for (size_t k = 0; k < ARRAY_N(themes); k++)
        for (size_t e = 0; e < ARRAY_N(eyes); e++)
            for (int i = 0; i < TIME_CLASSES_N; i++)
                for (int j = 0; j < i; j++)
                    CHECK(ciede2000(lab_of(themes[k]->time[i], &eyes[e]),
                                    lab_of(themes[k]->time[j], &eyes[e])) >= 14);
}

static void fills_stand_out_and_texts_can_be_read(void)
{
    const Theme *themes[] = { theme_dark(), theme_light() };
    static const ThemeColor grounds[] = { THEME_BACKGROUND, THEME_PANEL, THEME_RAISED };
    static const ThemeColor shapes[] = { THEME_AREA_EDGE, THEME_TOO_FAST, THEME_TOO_SLOW,
                                         THEME_CRITICAL,  THEME_ARROW,    THEME_FOCUS };
    for (size_t k = 0; k < ARRAY_N(themes); k++) {
        const Theme *t = themes[k];
        for (int c = 0; c < TIME_CLASSES_N; c++) {
            CHECK(c == TIME_IDLE || contrast(t->time[c], t->color[THEME_BACKGROUND]) >= 3);
            CHECK(contrast(t->time[c], t->on_time[c]) >= 4.5);
        }
        for (size_t g = 0; g < ARRAY_N(grounds); g++) {
            CHECK(contrast(t->color[THEME_TEXT], t->color[grounds[g]]) >= 7);
            CHECK(contrast(t->color[THEME_DIM], t->color[grounds[g]]) >= 4.5);
        }
        for (size_t s = 0; s < ARRAY_N(shapes); s++)
            CHECK(contrast(t->color[shapes[s]], t->color[THEME_BACKGROUND]) >= 3);
        CHECK(contrast(t->color[THEME_ON_ACCENT], t->color[THEME_ACCENT]) >= 4.5);
    }
}

static void themes_have_names_and_others_are_refused(void)
{
    Err err = { 0 };
    CHECK(theme_find("dark", &err) == theme_dark());
    CHECK(theme_find("light", &err) == theme_light());
    CHECK(!theme_find("solar", &err));
    CHECK_ERR_TEXT(&err, "unknown theme 'solar'; dark, light");
}

static void what_is_told_by_shape_has_its_shape(void)
{
    Font f;
    DrawList d = { 0 };
    font_open(&f, 100);
    draw_begin(&d, &f, 200, 100, 0);
    PxBox box = px_box(0, 0, PX(100), PX(20));
    theme_span(&d, theme_dark(), TIME_EXPOSED, box, 255);
    theme_span(&d, theme_dark(), TIME_P2P, box, 255);
    theme_span(&d, theme_dark(), TIME_COMPUTE, box, 128);
    CHECK_INT(DRAW_HATCH, d.items[0].kind);
    CHECK_INT(DRAW_CHEVRON, d.items[1].kind);
    CHECK_INT(DRAW_RECT, d.items[2].kind);
    CHECK_INT(128, color_alpha(d.items[2].color));
    CHECK_STR("comm exposed", time_class_name(TIME_EXPOSED));
    /* On a hatch a text stands on a chip; where it does not fit there is no chip either. */
    TextStyle small = { TEXT_SMALL, false };
    CHECK(theme_label(&d, theme_dark(), TIME_EXPOSED, box, small, "label") > 0);
    CHECK_INT(5, d.items_n);
    CHECK_INT(DRAW_TEXT, d.items[4].kind);
    box.x1 = PX(6);
    CHECK_INT(0, theme_label(&d, theme_dark(), TIME_EXPOSED, box, small, "label"));
    CHECK_INT(5, d.items_n);
    draw_free(&d);
    font_free(&f);
}

int main(void)
{
    RUN(the_distance_is_that_of_the_paper);
    RUN(classes_of_time_are_told_apart_by_every_eye);
    RUN(fills_stand_out_and_texts_can_be_read);
    RUN(themes_have_names_and_others_are_refused);
    RUN(what_is_told_by_shape_has_its_shape);
    return check_report();
}
