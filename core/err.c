/* err.c - the first failure wins; context is put in front. */
#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/printable.h"

static void mark_cut(char *text, size_t cap, int wanted)
{
    if (wanted >= (int)cap)
        memcpy(text + cap - 4, "...", 4);
}

bool err_set(Err *err, const char *format, ...)
{
    if (err->set)
        return false;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    mark_cut(err->text, sizeof err->text, wanted);
    make_printable(err->text);
    err->set = true;
    return false;
}

bool err_wrap(Err *err, const char *format, ...)
{
    char context[sizeof err->text], inner[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    memcpy(inner, err->text, sizeof inner);
    int wanted = snprintf(err->text, sizeof err->text, "%.400s: %s", context, inner);
    mark_cut(err->text, sizeof err->text, wanted);
    make_printable(err->text);
    err->set = true;
    return false;
}

void err_clear(Err *err)
{
    err->set = false;
    err->text[0] = '\0';
}
