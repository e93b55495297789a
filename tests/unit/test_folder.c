/*
 * test_folder.c - a folder's files of one kind, sorted.
 */
#include "core/folder.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"

static char folder[] = P_tmpdir "/lockstep-folder-XXXXXX";

static const char *path_of(Arena *arena, const char *name)
{
    return arena_printf(arena, "%s/%s", folder, name);
}

static void files_of_one_kind_are_named(void)
{
    static const char *const files[] = { "b.json", "a.json", ".json", ".c.json", "d.jsonl" };
    Arena arena = { 0 };
    const char *const *names;
    for (size_t i = 0; i < ARRAY_N(files); i++) {
        FILE *f = fopen(path_of(&arena, files[i]), "w");
        CHECK(f && fclose(f) == 0);
    }
    CHECK_U64(2, folder_names(&names, &arena, folder, ".json"));
    CHECK_STR("a", names[0]);
    CHECK_STR("b", names[1]);
    CHECK_U64(1, folder_names(&names, &arena, folder, ".jsonl"));
    CHECK_STR("d", names[0]);
    CHECK_U64(0, folder_names(&names, &arena, path_of(&arena, "none"), ".json"));
    for (size_t i = 0; i < ARRAY_N(files); i++)
        CHECK(unlink(path_of(&arena, files[i])) == 0);
    arena_free(&arena);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    RUN(files_of_one_kind_are_named);
    rmdir(folder);
    return check_report();
}
