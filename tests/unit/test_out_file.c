/*
 * test_out_file.c - a file appears whole or not at all, whatever stood there
 * before, and nothing is left lying beside it.
 */
#include "core/out_file.h"
#include "tests/check.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64] = P_tmpdir "/lockstep-out-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    Err err = { 0 };
    OutFile o;
    if (!CHECK(out_file_open(&o, path, &err)))
        return;
    CHECK(out_file_write(&o, text, strlen(text)));
    CHECK(out_file_commit(&o, &err));
    CHECK(o.file == NULL);
}

static void check_text(const char *expect, const char *path)
{
    char text[64] = "";
    FILE *f = fopen(path, "r");
    if (CHECK(f != NULL)) {
        CHECK(fread(text, 1, sizeof text - 1, f) > 0);
        fclose(f);
    }
    CHECK_STR(expect, text);
}

/* How many files the folder holds. */
static int files_n(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void a_committed_file_is_there_and_nothing_beside_it(void)
{
    write_text(path_of("a"), "one");
    check_text("one", path_of("a"));
    CHECK_INT(1, files_n());
    write_text(path_of("a"), "two");
    check_text("two", path_of("a"));
    CHECK_INT(1, files_n());
    unlink(path_of("a"));
}

static void until_commit_the_old_file_stands(void)
{
    write_text(path_of("a"), "old");
    Err err = { 0 };
    OutFile o;
    CHECK(out_file_open(&o, path_of("a"), &err));
    out_file_write(&o, "new", 3);
    fflush(o.file);
    check_text("old", path_of("a"));
    out_file_abandon(&o);
    check_text("old", path_of("a"));
    CHECK_INT(1, files_n());
    unlink(path_of("a"));
}

static void an_abandoned_file_was_never_there(void)
{
    Err err = { 0 };
    OutFile o;
    CHECK(out_file_open(&o, path_of("a"), &err));
    out_file_write(&o, "new", 3);
    out_file_abandon(&o);
    CHECK_INT(0, files_n());
    OutFile none = { 0 };
    out_file_abandon(&none);
}

static void the_rights_of_the_old_file_stay(void)
{
    write_text(path_of("a"), "old");
    CHECK_INT(0, chmod(path_of("a"), 0640));
    write_text(path_of("a"), "new");
    struct stat info;
    CHECK(stat(path_of("a"), &info) == 0);
    CHECK_INT(0640, info.st_mode & 0777);
    unlink(path_of("a"));
}

static void a_symbolic_link_stays_one(void)
{
    write_text(path_of("a"), "old");
    CHECK_INT(0, symlink("a", path_of("link")));
    write_text(path_of("link"), "new");
    struct stat info;
    CHECK(lstat(path_of("link"), &info) == 0 && S_ISLNK(info.st_mode));
    check_text("new", path_of("a"));
    CHECK_INT(2, files_n());
    unlink(path_of("link"));
    unlink(path_of("a"));
}

static void a_link_to_no_file_yet_stays_one(void)
{
    CHECK_INT(0, symlink("b", path_of("link")));
    CHECK_INT(0, symlink("link", path_of("far")));
    write_text(path_of("far"), "new");
    struct stat info;
    CHECK(lstat(path_of("far"), &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(lstat(path_of("link"), &info) == 0 && S_ISLNK(info.st_mode));
    check_text("new", path_of("b"));
    CHECK_INT(3, files_n());
    unlink(path_of("b"));
    unlink(path_of("link"));
    unlink(path_of("far"));

    OutFile o;
    Err err = { 0 };
    CHECK_INT(0, symlink("round", path_of("round")));
    CHECK(!out_file_open(&o, path_of("round"), &err));
    CHECK_ERR_TEXT(&err, "Too many levels of symbolic links");
    unlink(path_of("round"));
}

static void devices_are_written_in_place(void)
{
    write_text("/dev/null", "text");
    struct stat info;
    CHECK(stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode));
}

static void a_full_disk_is_told_at_commit(void)
{
    static char block[100000];
    const size_t sizes[] = {
        1, sizeof block
    }; /* one that stays in the buffer, one that does not */
    for (size_t i = 0; i < ARRAY_N(sizes); i++) {
        Err err = { 0 };
        OutFile o;
        CHECK(out_file_open(&o, "/dev/full", &err));
        out_file_write(&o, block, sizes[i]);
        CHECK(!out_file_commit(&o, &err));
        CHECK_ERR_TEXT(&err, "cannot write '/dev/full': No space left on device");
    }
}

/* In a child: the limit stays with its process. */
static void a_file_too_large_for_the_limit_leaves_nothing(void)
{
    pid_t child = fork();
    if (child == 0) {
        static char block[100000];
        struct rlimit limit = { 4096, 4096 };
        Err err = { 0 };
        OutFile o;
        bool ok = setrlimit(RLIMIT_FSIZE, &limit) == 0;
        for (int through_stdio = 0; through_stdio < 2; through_stdio++) {
            err_clear(&err);
            ok = ok && out_file_open(&o, path_of("a"), &err);
            for (size_t i = 0; ok && i < sizeof block; i += 100)
                if (through_stdio)
                    fwrite(block, 1, 100, o.file);
                else
                    out_file_write(&o, block, 100);
            ok = ok && !out_file_commit(&o, &err) && strstr(err.text, "a': File too large");
        }
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_INT(0, WEXITSTATUS(status));
    CHECK_INT(0, files_n());
}

static void places_that_cannot_be_written_are_told_at_once(void)
{
    OutFile o;
    Err err = { 0 }, none = { 0 };
    CHECK(!out_file_open(&o, folder, &err));
    CHECK_ERR_TEXT(&err, "cannot create '");
    CHECK_ERR_TEXT(&err, "Is a directory");
    CHECK(!out_file_open(&o, path_of("no/such"), &none));
    CHECK_ERR_TEXT(&none, "No such file or directory");
    CHECK_INT(0, files_n());
}

static void one_file_under_two_names_is_the_same(void)
{
    char a[128];
    snprintf(a, sizeof a, "%s", path_of("a"));
    write_text(a, "x");
    CHECK_INT(0, link(a, path_of("b")));
    CHECK(out_file_is_same(a, path_of("b")));
    CHECK(out_file_is_same(a, path_of("./a")));
    CHECK(!out_file_is_same(a, path_of("c")));
    CHECK(!out_file_is_same(path_of("c"), path_of("c"))); /* none is there to be harmed */
    unlink(path_of("b"));
    unlink(a);
}

static void two_that_are_not_there_yet_may_be_one(void)
{
    char a[128], sub[128];
    snprintf(a, sizeof a, "%s", path_of("a"));
    CHECK(out_file_will_be_same(a, a));
    CHECK(out_file_will_be_same(a, path_of("./a")));
    CHECK(!out_file_will_be_same(a, path_of("b")));
    snprintf(sub, sizeof sub, "%s", path_of("s"));
    CHECK_INT(0, mkdir(sub, 0777));
    CHECK(out_file_will_be_same(a, path_of("s/../a")));
    CHECK(!out_file_will_be_same(a, path_of("s/a")));
    CHECK(!out_file_will_be_same(path_of("no/a"), path_of("no/a"))); /* cannot be written */
    CHECK(out_file_will_be_same("a that is not here", "./a that is not here"));
    CHECK(!out_file_will_be_same("/a that is not here", "a that is not here"));
    rmdir(sub);
    CHECK_INT(0, symlink("a", path_of("link")));
    CHECK(out_file_will_be_same(a, path_of("link")) &&
          out_file_will_be_same(path_of("link"), a));
    CHECK(!out_file_will_be_same(path_of("link"), "b"));
    unlink(path_of("link"));
    write_text(a, "x");
    CHECK(!out_file_will_be_same(a, path_of("b")));
    CHECK_INT(0, link(a, path_of("b")));
    CHECK(out_file_will_be_same(a, path_of("b")));
    unlink(path_of("b"));
    unlink(a);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    RUN(a_committed_file_is_there_and_nothing_beside_it);
    RUN(until_commit_the_old_file_stands);
    RUN(an_abandoned_file_was_never_there);
    RUN(the_rights_of_the_old_file_stay);
    RUN(a_symbolic_link_stays_one);
    RUN(a_link_to_no_file_yet_stays_one);
    RUN(devices_are_written_in_place);
    RUN(a_full_disk_is_told_at_commit);
    RUN(a_file_too_large_for_the_limit_leaves_nothing);
    RUN(places_that_cannot_be_written_are_told_at_once);
    RUN(one_file_under_two_names_is_the_same);
    RUN(two_that_are_not_there_yet_may_be_one);
    rmdir(folder);
    return check_report();
}
