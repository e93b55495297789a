/* folder.c - reads a folder and sorts what is asked for. */
#include "core/folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/text.h"

uint32_t folder_names(const char *const **names, Arena *arena, const char *folder,
                      const char *end)
{
    const char **list = NULL;
    uint32_t n = 0, cap = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        if (e->d_name[0] == '.' || !text_ends_in(e->d_name, end))
            continue;
        GROW(list, n, cap);
        list[n++] =
            arena_printf(arena, "%.*s", (int)(strlen(e->d_name) - strlen(end)), e->d_name);
    }
    if (dir)
        closedir(dir);
    const char **sorted = PUSH_ARRAY(arena, const char *, n);
    if (n > 0) {
        qsort(list, n, sizeof *list, compare_text);
        memcpy(sorted, list, n * sizeof *list);
    }
    free(list);
    *names = sorted;
    return n;
}
