/*
 * cli_runner.c - runs a transcript of commands and compares what they print.
 *
 *     # prose, kept as it is; blank lines too
 *     $ lockstep sim small.json        a command for sh; ends in \ when it goes on below
 *     < a line of its standard input (none: empty)
 *     > a line of its standard output
 *     ! a line of its standard error
 *     = 2                              its exit status, 0 when not said
 *
 * Every line printed must be expected, and the other way round.  In an expected
 * line `...` matches any text, and a line of nothing but `...` any number of
 * lines.  The commands of a file share one fresh folder and run in order; each
 * counts as one test and has COMMAND_SECONDS_MAX seconds.  `lockstep` is the program
 * of $LOCKSTEP (an absolute path); $ROOT is the root of the repository.
 *
 *     cli_runner FILE.test            "NAME: N passed, M failed", details on stderr
 *     cli_runner --bless FILE.test    rewrites what did not match
 */
#include "core/arena.h"
#include "core/base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMAND_SECONDS_MAX = 300, STATUS_TIMED_OUT = 124 };

typedef struct Lines {
    char **line;
    uint32_t n, cap;
} Lines;

typedef struct Case {
    uint32_t line; /* of the file, counted from 1 */
    Lines prose;   /* what stands before the command, as written */
    char *command; /* NULL: only prose, at the end of the file */
    Lines in, out, err;
    int status;
} Case;

typedef struct Cases {
    Case *at;
    uint32_t n, cap;
} Cases;

static Arena arena;

static _Noreturn void stop(const char *what, const char *subject)
{
    fprintf(stderr, "cli_runner: %s '%s': %s\n", what, subject, strerror(errno));
    exit(1);
}

static void push_line(Lines *lines, const char *text)
{
    if (lines->n == lines->cap) { /* GROW, but in the arena: nothing to free */
        lines->cap = lines->cap ? 2 * lines->cap : 16;
        char **bigger = PUSH_ARRAY(&arena, char *, lines->cap);
        for (uint32_t i = 0; i < lines->n; i++)
            bigger[i] = lines->line[i];
        lines->line = bigger;
    }
    lines->line[lines->n++] = arena_strdup(&arena, text);
}

/* The lines of a file; a last line without its newline counts as a line. */
static Lines read_lines(const char *path)
{
    Lines lines = { 0 };
    FILE *f = fopen(path, "r");
    if (!f)
        stop("cannot open", path);
    char *text = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&text, &cap, f)) >= 0;) {
        if (n && text[n - 1] == '\n')
            text[n - 1] = '\0';
        push_line(&lines, text);
    }
    free(text);
    fclose(f);
    return lines;
}

/* ---- reading a transcript ------------------------------------------------------------- */

static bool ends_in_backslash(const char *text)
{
    size_t n = strlen(text);
    return n && text[n - 1] == '\\';
}

/* The command on line i and those it goes on with; i moves to the last of them. */
static char *read_command(const Lines *file, uint32_t *i)
{
    char *command = arena_strdup(&arena, file->line[*i] + 2);
    while (ends_in_backslash(command) && *i + 1 < file->n)
        command = arena_printf(&arena, "%s\n%s", command, file->line[++*i]);
    return command;
}

static Case *next_case(Cases *cases)
{
    GROW(cases->at, cases->n, cases->cap);
    cases->at[cases->n] = (Case){ 0 };
    return &cases->at[cases->n++];
}

static Cases read_cases(const char *path)
{
    Lines file = read_lines(path);
    Cases cases = { 0 };
    Case *c = next_case(&cases);
    for (uint32_t i = 0; i < file.n; i++) {
        const char *line = file.line[i];
        const char *rest = line[0] && line[1] == ' ' ? line + 2 : "";
        bool prose = !line[0] || line[0] == '#';
        if (c->command && (prose || line[0] == '$'))
            c = next_case(&cases);
        if (prose) {
            push_line(&c->prose, line);
        } else if (line[0] == '$' && *rest) {
            c->line = i + 1;
            c->command = read_command(&file, &i);
        } else if (c->command && strchr("<>!", line[0]) && (!line[1] || line[1] == ' ')) {
            push_line(line[0] == '<' ? &c->in : line[0] == '>' ? &c->out : &c->err, rest);
        } else if (c->command && line[0] == '=' && *rest) {
            c->status = atoi(rest);
        } else {
            fprintf(stderr, "%s:%u: a line starts with '# ', '$ ', '< ', '> ', '! ' or '= '\n",
                    path, i + 1);
            exit(1);
        }
    }
    return cases;
}

/* ---- running a command ---------------------------------------------------------------- */

static volatile sig_atomic_t running_pid;

static void on_alarm(int sig)
{
    (void)sig;
    kill(-(pid_t)running_pid, SIGKILL); /* the whole group */
}

static void redirect(int fd, const char *path, int flags)
{
    int file = open(path, flags, 0600);
    if (file < 0 || dup2(file, fd) < 0)
        stop("cannot open", path);
}

static _Noreturn void become_shell(const char *command)
{
    setpgid(0, 0);
    redirect(0, ".stdin", O_RDONLY);
    redirect(1, ".stdout", O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, ".stderr", O_WRONLY | O_CREAT | O_TRUNC);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    stop("cannot run", "/bin/sh");
}

/* Runs c in the working folder and returns what it did, as a Case. */
static Case run_command(const Case *c)
{
    FILE *in = fopen(".stdin", "w");
    if (!in)
        stop("cannot write", ".stdin");
    for (uint32_t i = 0; i < c->in.n; i++)
        fprintf(in, "%s\n", c->in.line[i]);
    fclose(in);

    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        stop("cannot fork for", c->command);
    if (pid == 0)
        become_shell(c->command);
    setpgid(pid, pid); /* in both processes, so that it is done whoever comes first */
    running_pid = pid;
    alarm(COMMAND_SECONDS_MAX);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    bool timed_out = alarm(0) == 0;

    Case did = { .out = read_lines(".stdout"), .err = read_lines(".stderr") };
    did.status = timed_out             ? STATUS_TIMED_OUT
                 : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                       : WEXITSTATUS(status);
    return did;
}

/* ---- comparing ------------------------------------------------------------------------ */

/* Does text match, where "..." in pattern stands for any text? */
static bool line_matches(const char *pattern, const char *text)
{
    const char *dots = strstr(pattern, "...");
    if (!dots)
        return strcmp(pattern, text) == 0;
    size_t head = (size_t)(dots - pattern);
    if (strncmp(pattern, text, head) != 0)
        return false;
    for (const char *rest = text + head;; rest++) {
        if (line_matches(dots + 3, rest))
            return true;
        if (!*rest)
            return false;
    }
}

static bool lines_match(char *const *expect, uint32_t expect_n, char *const *got,
                        uint32_t got_n)
{
    for (; expect_n; expect++, expect_n--, got++, got_n--) {
        if (strcmp(*expect, "...") == 0) {
            for (uint32_t skip = 0; skip <= got_n; skip++)
                if (lines_match(expect + 1, expect_n - 1, skip ? got + skip : got,
                                got_n - skip))
                    return true;
            return false;
        }
        if (!got_n || !line_matches(*expect, *got))
            return false;
    }
    return got_n == 0;
}

static bool case_matches(const Case *c, const Case *did)
{
    return c->status == did->status &&
           lines_match(c->out.line, c->out.n, did->out.line, did->out.n) &&
           lines_match(c->err.line, c->err.n, did->err.line, did->err.n);
}

static void print_lines(FILE *f, const char *mark, const Lines *lines)
{
    for (uint32_t i = 0; i < lines->n; i++)
        fprintf(f, "%s%s%s\n", mark, *lines->line[i] ? " " : "", lines->line[i]);
}

static void print_did(FILE *f, const char *indent, const Case *c)
{
    print_lines(f, arena_printf(&arena, "%s>", indent), &c->out);
    print_lines(f, arena_printf(&arena, "%s!", indent), &c->err);
    if (c->status)
        fprintf(f, "%s= %d\n", indent, c->status);
}

static void print_failure(const char *path, const Case *c, const Case *did)
{
    fprintf(stderr, "%s:%u: $ %s\n", path, c->line, c->command);
    if (did->status == STATUS_TIMED_OUT)
        fprintf(stderr, "  (status 124: perhaps stopped after %d s)\n", COMMAND_SECONDS_MAX);
    fprintf(stderr, "  expected\n");
    print_did(stderr, "    ", c);
    fprintf(stderr, "  but it printed\n");
    print_did(stderr, "    ", did);
}

/* ---- the program ---------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A fresh working folder, `lockstep` first in PATH, one language. */
static char *enter_sandbox(void)
{
    const char *program = getenv("LOCKSTEP");
    const char *path = getenv("PATH");
    const char *tmp = getenv("TMPDIR");
    if (!program || program[0] != '/') {
        fprintf(stderr, "cli_runner: LOCKSTEP must be the absolute path of the program\n");
        exit(2);
    }
    char *folder = arena_strdup(&arena, program);
    *strrchr(folder, '/') = '\0';
    setenv("PATH", arena_printf(&arena, "%s:%s", folder, path ? path : "/bin:/usr/bin"), 1);
    setenv("LC_ALL", "C", 1);

    char *sandbox = arena_printf(&arena, "%s/lockstep-cli-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(sandbox) || chdir(sandbox) != 0)
        stop("cannot make", sandbox);
    return sandbox;
}

static void remove_sandbox(const char *sandbox)
{
    if (chdir("/") != 0 || system(arena_printf(&arena, "rm -rf '%s'", sandbox)) != 0)
        fprintf(stderr, "cli_runner: cannot remove '%s'\n", sandbox);
}

static void write_case(FILE *f, const Case *c)
{
    for (uint32_t i = 0; i < c->prose.n; i++)
        fprintf(f, "%s\n", c->prose.line[i]);
    if (!c->command)
        return;
    fprintf(f, "$ %s\n", c->command);
    print_lines(f, "<", &c->in);
    print_did(f, "", c);
}

static void write_cases(const char *path, const Cases *cases)
{
    FILE *f = fopen(path, "w");
    if (!f)
        stop("cannot write", path);
    for (uint32_t i = 0; i < cases->n; i++)
        write_case(f, &cases->at[i]);
    if (fclose(f) != 0)
        stop("cannot write", path);
}

int main(int argc, char **argv)
{
    bool bless = argc == 3 && strcmp(argv[1], "--bless") == 0;
    if (argc != 2 + bless) {
        fprintf(stderr, "usage: cli_runner [--bless] FILE.test\n");
        return 2;
    }
    char *path = realpath(argv[argc - 1], NULL);
    if (!path)
        stop("cannot open", argv[argc - 1]);
    Cases cases = read_cases(path);
    char *sandbox = enter_sandbox();
    signal(SIGALRM, on_alarm);

    uint32_t passed_n = 0, failed_n = 0;
    for (uint32_t i = 0; i < cases.n; i++) {
        Case *c = &cases.at[i];
        if (!c->command)
            continue;
        Case did = run_command(c);
        if (case_matches(c, &did)) {
            passed_n++;
            continue;
        }
        failed_n++;
        print_failure(argv[argc - 1], c, &did);
        c->out = did.out, c->err = did.err, c->status = did.status;
    }
    remove_sandbox(sandbox);
    if (bless && failed_n)
        write_cases(path, &cases);
    printf("%.*s: %u passed, %u failed\n", (int)strcspn(base_name(path), "."), base_name(path),
           passed_n, failed_n);
    free(path);
    free(cases.at);
    arena_free(&arena);
    return failed_n && !bless ? 1 : 0;
}
