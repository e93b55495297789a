/*
 * test_snapshot.c - what one split writes any other reads, and damage never passes.
 *
 * The ranks are threads of this process; their fabric is a board that they all see.
 */
#include "exec/number.h"
#include "exec/snapshot.h"
#include "exec/snapshot_part.h"
#include "tests/far_memory.h"
#include "tests/split_job.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a fabric of threads ---- */

typedef struct Board {
    pthread_barrier_t barrier;
    uint8_t *bytes;
    uint32_t world;
    void (*after_first)(void); /* called once, by rank 0, when all have come the first time */
} Board;

struct Fabric {
    Board *board;
    uint32_t rank;
};

bool fabric_share(Fabric *f, const void *mine, void *out, size_t bytes, Err *err);

bool fabric_share(Fabric *f, const void *mine, void *out, size_t bytes, Err *err)
{
    Board *b = f->board;
    (void)err;
    pthread_barrier_wait(&b->barrier);
    if (f->rank == 0) {
        b->bytes = mem_resize(b->bytes, b->world, bytes);
        if (b->after_first)
            b->after_first();
        b->after_first = NULL;
    }
    pthread_barrier_wait(&b->barrier);
    memcpy(b->bytes + f->rank * bytes, mine, bytes);
    pthread_barrier_wait(&b->barrier);
    memcpy(out, b->bytes, b->world * bytes);
    return true;
}

/* ---- a disk that can fail ---- */

/* In place of libc's: fast, and it notes what was asked for. */
static struct {
    _Atomic uint32_t synced_n, fails_at; /* the n-th call; 0: none */
    pthread_mutex_t lock;
    char newest[512]; /* what the newest call was for; of one rank only */
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER };

int fsync(int file)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    uint32_t n = ++disk.synced_n;
    pthread_mutex_lock(&disk.lock);
    ssize_t got = readlink(link, disk.newest, sizeof disk.newest - 1);
    disk.newest[got < 0 ? 0 : got] = '\0';
    pthread_mutex_unlock(&disk.lock);
    if (n != disk.fails_at)
        return 0;
    errno = ENOSPC;
    return -1;
}

/* ---- jobs ---- */

static char dir[256];

static const char *in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void remove_dir(void)
{
    char command[600];
    ASSERT(strstr(dir, "lockstep-test-snapshot"));
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ASSERT(system(command) == 0);
}

static bool exists(const char *name)
{
    return access(in_dir(name), F_OK) == 0;
}

typedef struct Rank {
    Job *job;
    uint32_t rank;
    Fabric fabric;
    bool write, ok;
    SnapshotInfo info;
    Err err;
} Rank;

/* Set: ranks keep their tensors in memory that is copied to and from. */
static FarMemory *far;

static void *run_rank(void *user)
{
    Rank *r = user;
    Job *j = r->job;
    Backend behind = { .memory = j->memory[r->rank], .counts = far };
    Store store = far ? far_store(&behind) : (Store){ .memory = j->memory[r->rank] };
    r->ok = r->write ? snapshot_write(dir, &r->info, &j->pieces[r->rank], &j->program[r->rank],
                                      &j->whole, &store, &r->fabric, &r->err)
                     : snapshot_read(dir, &r->info, &j->pieces[r->rank], &j->program[r->rank],
                                     &j->whole, &store, &r->fabric, &r->err);
    return NULL;
}

static void (*at_first_meeting)(void);

/* All ranks at once; they must agree.  The sentence is in j->err. */
static bool run_job(Job *j, bool write, SnapshotInfo *info)
{
    Rank ranks[JOB_RANKS_MAX];
    pthread_t threads[JOB_RANKS_MAX];
    Board board = { .world = j->ranks_n, .after_first = at_first_meeting };
    ASSERT(pthread_barrier_init(&board.barrier, NULL, j->ranks_n) == 0);
    for (uint32_t r = 0; r < j->ranks_n; r++) {
        ranks[r] = (Rank){
            .job = j, .rank = r, .fabric = { &board, r }, .write = write, .info = *info
        };
        if (j->ranks_n > 1)
            ASSERT(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
        else
            run_rank(&ranks[r]);
    }
    for (uint32_t r = 0; r < j->ranks_n; r++) {
        if (j->ranks_n > 1)
            pthread_join(threads[r], NULL);
        CHECK(ranks[r].ok == ranks[0].ok);
        CHECK(ranks[r].ok != ranks[r].err.set);
        CHECK(ranks[r].ok || strcmp(ranks[r].err.text, ranks[0].err.text) == 0);
        if (ranks[r].ok)
            CHECK(ranks[r].info.step == ranks[0].info.step &&
                  ranks[r].info.seed == ranks[0].info.seed);
    }
    *info = ranks[0].info;
    j->err = ranks[0].err;
    pthread_barrier_destroy(&board.barrier);
    free(board.bytes);
    at_first_meeting = NULL;
    return ranks[0].ok;
}

/* A small number, so that it stays itself in every format. */
static float number_of(const Job *j, const Piece *piece, uint64_t element, uint64_t salt)
{
    const Whole *w = &j->whole.whole[piece->whole];
    uint64_t h = mix_u64(salt + element) ^ mix_u64(w->layer + strlen(w->name) * 7919u);
    bool moment = piece->what >= PIECE_FIRST_MOMENT;
    return (float)(mix_u64(h + (moment ? piece->what : 0)) % 251);
}

/* Fills what every rank holds, or counts what differs; padding is 7 throughout. */
static uint64_t each_number(Job *j, uint64_t salt, bool fill)
{
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < j->ranks_n; r++) {
        const Pieces *x = &j->pieces[r];
        for (uint32_t i = 0; i < x->pieces_n; i++) {
            const Piece *piece = &x->pieces[i];
            const Resident *resident = &j->program[r].residents[piece->resident];
            for (uint32_t k = 0; k < piece->runs_n; k++) {
                Run run = x->runs[piece->runs_first + k];
                for (uint64_t e = 0; e < run.n; e++) {
                    float want = number_of(j, piece, run.whole + e, salt), got;
                    void *at = j->memory[r] + resident->offset +
                               (run.local + e) * dtype_bytes(resident->dtype);
                    if (fill)
                        numbers_narrow(resident->dtype, &want, 1, at);
                    numbers_widen(resident->dtype, at, 1, &got);
                    wrong += bits_of_f32(got) != bits_of_f32(want);
                }
            }
        }
    }
    return wrong;
}

static const char digest[] = "gpt 3 x 24, adamw";

static SnapshotInfo info_of(uint64_t step)
{
    return (SnapshotInfo){ .step = step, .seed = 11, .model = digest, .text = "{}" };
}

static bool write_step(Job *j, uint64_t step)
{
    SnapshotInfo info = info_of(step);
    each_number(j, step, true);
    return run_job(j, true, &info);
}

static void must_write_after(Job *j, uint64_t step, uint64_t before)
{
    SnapshotInfo info = info_of(step);
    info.before = before;
    each_number(j, step, true);
    if (!CHECK(run_job(j, true, &info)))
        fprintf(stderr, "%s\n", j->err.text);
}

static void must_write(Job *j, uint64_t step)
{
    must_write_after(j, step, 0);
}

static void clear_memory(Job *j)
{
    for (uint32_t r = 0; r < j->ranks_n; r++)
        memset(j->memory[r], 0, j->program[r].arena_bytes);
}

static void must_read(Job *j, uint64_t step)
{
    SnapshotInfo info = info_of(0);
    info.seed = 0;
    clear_memory(j);
    if (!CHECK(run_job(j, false, &info)))
        fprintf(stderr, "%s\n", j->err.text);
    CHECK_U64(step, info.step);
    CHECK_U64(11, info.seed);
    CHECK_U64(0, each_number(j, step, false));
}

static void must_refuse(Job *j, const char *why)
{
    SnapshotInfo info = info_of(0);
    CHECK(!run_job(j, false, &info));
    CHECK_ERR_TEXT(&j->err, why);
}

static bool open_job(Job *j, const char *model, const char *settings)
{
    remove_dir();
    return job_open(j, model, settings);
}

/* ---- round trips ---- */

static void any_split_reads_what_any_split_wrote(void)
{
    static const char *const splits[] = {
        "strategy=single",       "strategy=ddp dp=2 tp=2",
        "strategy=zero1 dp=3",   "strategy=zero2 dp=2 tp=4",
        "strategy=fsdp dp=4",    "strategy=fsdp dp=2 tp=2 pp=2",
        "strategy=ddp pp=3",     "strategy=hsdp dp=4 shard_size=2",
        "strategy=ddp dp=2 cp=2"
    };
    static Job jobs[ARRAY_N(splits)];
    for (size_t i = 0; i < ARRAY_N(splits); i++)
        if (!job_open(&jobs[i], JOB_GPT, splits[i]))
            return;
    for (size_t w = 0; w < ARRAY_N(splits); w++) {
        remove_dir();
        must_write(&jobs[w], w + 1);
        for (size_t r = 0; r < ARRAY_N(splits); r++) {
            uint32_t failed = check_state.test_failures_n;
            if (!check_takes(w * ARRAY_N(splits) + r))
                continue;
            must_read(&jobs[r], w + 1);
            if (check_state.test_failures_n != failed)
                fprintf(stderr, "    %s to %s\n", splits[w], splits[r]);
        }
    }
    for (size_t i = 0; i < ARRAY_N(splits); i++)
        job_close(&jobs[i]);
}

static void repeated_heads_and_vectors_come_back(void)
{
    Job a, b;
    if (open_job(&a, JOB_LLAMA, "strategy=fsdp dp=2 tp=8")) {
        must_write(&a, 4);
        if (job_open(&b, JOB_LLAMA, "strategy=zero1 dp=2 tp=4")) {
            must_read(&b, 4);
            job_close(&b);
        }
        job_close(&a);
    }
    if (open_job(&a, JOB_LINE, "strategy=zero1 dp=8")) {
        must_write(&a, 4);
        must_read(&a, 4);
        job_close(&a);
    }
}

/* Master weights from parameters and the other way round; rounding where nothing else is left. */
static void number_formats_may_differ(void)
{
    static const char *const splits[] = {
        "strategy=single",
        "strategy=ddp dp=2 training.precision=bf16 training.param_dtype=bf16 "
        "training.master_weights=true",
        "strategy=fsdp dp=3 training.precision=bf16 training.param_dtype=bf16 "
        "training.master_weights=false",
        "strategy=ddp tp=2 training.precision=f16 training.param_dtype=f16 "
        "training.master_weights=true",
    };
    for (size_t w = 0; w < ARRAY_N(splits); w++)
        for (size_t r = 0; r < ARRAY_N(splits); r++) {
            Job a, b;
            if (!check_takes(w * ARRAY_N(splits) + r))
                continue;
            if (!open_job(&a, JOB_GPT, splits[w]))
                return;
            must_write(&a, 4);
            job_close(&a);
            if (!job_open(&b, JOB_GPT, splits[r]))
                return;
            must_read(&b, 4);
            job_close(&b);
        }
}

/* f32 parameters come from the master weights, not from their rounded copies. */
static void the_most_precise_is_taken(void)
{
    Job a, b;
    if (!open_job(&a, JOB_LINE,
                  "strategy=single training.precision=bf16 training.param_dtype=bf16 "
                  "training.master_weights=true training.optimizer=sgd"))
        return;
    CHECK(pieces_init(&a.pieces[0], &a.program[0], &a.whole, 5,
                      &(Store){ .memory = a.memory[0] }, NULL));
    SnapshotInfo info = info_of(2);
    CHECK(run_job(&a, true, &info));
    if (job_open(&b, JOB_LINE, "strategy=single training.optimizer=sgd")) {
        CHECK(run_job(&b, false, &info));
        uint8_t *read = mem_zero(b.program[0].arena_bytes, 1);
        memcpy(read, b.memory[0], b.program[0].arena_bytes);
        clear_memory(&b);
        CHECK(pieces_init(&b.pieces[0], &b.program[0], &b.whole, 5,
                          &(Store){ .memory = b.memory[0] }, NULL));
        CHECK(memcmp(read, b.memory[0], b.program[0].resident_bytes) == 0);
        free(read);
        job_close(&b);
    }
    job_close(&a);
}

/* ---- the folder ---- */

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    ASSERT(f);
    fputs(text, f);
    ASSERT(fclose(f) == 0);
}

static void the_last_two_are_kept(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=ddp dp=2"))
        return;
    for (uint64_t step = 10; step <= 50; step += 10)
        must_write_after(&j, step, step - 10);
    CHECK(!exists("step-00000010") && !exists("step-00000020") && !exists("step-00000030"));
    CHECK(exists("step-00000040/rank-00000.part") && exists("step-00000050"));
    CHECK(exists("step-00000050/rank-00001.part"));
    CHECK(!exists("step-00000050.tmp") && !exists("latest.tmp"));
    must_read(&j, 50);
    put_file("step-00000040/notes.txt", "mine"); /* what others put there stays */
    put_file("step-7", "not ours");
    must_write_after(&j, 60, 50);
    must_write_after(&j, 70, 60);
    CHECK(exists("step-00000040/notes.txt") && !exists("step-00000040/rank-00000.part"));
    CHECK(exists("step-7"));
    must_write_after(&j, 70, 60); /* once more: takes the place of the other */
    must_read(&j, 70);
    CHECK(!exists("step-00000070.old"));
    /* A new training in an old folder: later steps are left alone until it is there itself, and
     * none of them counts as one of its own. */
    must_write(&j, 5);
    CHECK(exists("step-00000060") && exists("step-00000070"));
    must_read(&j, 5);
    must_write_after(&j, 65, 5);
    CHECK(exists("step-00000005") && !exists("step-00000060") && exists("step-00000070"));
    must_read(&j, 65);
    must_write_after(&j, 75, 65);
    CHECK(exists("step-00000065") && !exists("step-00000005") && !exists("step-00000070"));
    job_close(&j);
}

static void the_newest_is_found_without_its_sign(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 1);
    must_write(&j, 2);
    static const char *const signs[] = { "step-00000099\n", "", "garbage\n", "step-2\n",
                                         "../step-00000001\n" };
    for (size_t i = 0; i < ARRAY_N(signs); i++) {
        put_file("latest", signs[i]);
        each_number(&j, 0, true);
        must_read(&j, 2);
    }
    put_file("latest", "step-00000001"); /* also without the end of its line */
    must_read(&j, 1);
    ASSERT(unlink(in_dir("latest")) == 0);
    must_read(&j, 2);
    job_close(&j);
}

/* Ended while writing, or while replacing. */
static void leftovers_go_and_what_was_replaced_returns(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 3);
    ASSERT(mkdir(in_dir("step-00000004.tmp"), 0777) == 0);
    put_file("step-00000004.tmp/rank-00000.part", "half");
    must_read(&j, 3);
    char old[512];
    snprintf(old, sizeof old, "%s", in_dir("step-00000003.old"));
    ASSERT(rename(in_dir("step-00000003"), old) == 0);
    must_write(&j, 4);
    CHECK(!exists("step-00000004.tmp") && !exists("step-00000003.old"));
    CHECK(exists("step-00000003/rank-00000.part"));
    must_read(&j, 4);
    job_close(&j);
}

static void without_a_snapshot_there_is_a_sentence(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=ddp dp=2"))
        return;
    must_refuse(&j, "rank 0: no snapshot in '");
    CHECK_ERR_TEXT(&j.err, "No such file or directory");
    ASSERT(mkdir(dir, 0777) == 0);
    must_refuse(&j, "it holds no folder step-N");
    ASSERT(rmdir(dir) == 0);
    FILE *f = fopen(dir, "w");
    ASSERT(f && fclose(f) == 0);
    must_refuse(&j, "Not a directory");
    CHECK(!write_step(&j, 1));
    CHECK_ERR_TEXT(&j.err, "is not a folder, so no snapshot can be kept in it");
    remove_dir();
    char shorter[256];
    snprintf(shorter, sizeof shorter, "%s", dir);
    snprintf(dir, sizeof dir, "/proc/self/lockstep-test-snapshot");
    CHECK(!write_step(&j, 1));
    CHECK_ERR_TEXT(&j.err, "cannot make the folder '/proc/self/lockstep-test-snapshot'");
    snprintf(dir, sizeof dir, "%s", shorter);
    job_close(&j);
}

static void a_full_disk_leaves_the_last_good_one(void)
{
    Job j;
    struct rlimit was, little = { 2000, RLIM_INFINITY };
    if (!open_job(&j, JOB_GPT, "strategy=fsdp dp=2"))
        return;
    must_write(&j, 1);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT(getrlimit(RLIMIT_FSIZE, &was) == 0);
    little.rlim_max = was.rlim_max;
    ASSERT(setrlimit(RLIMIT_FSIZE, &little) == 0);
    bool written = write_step(&j, 2);
    ASSERT(setrlimit(RLIMIT_FSIZE, &was) == 0);
    CHECK(!written);
    CHECK_ERR_TEXT(&j.err, "rank 0: cannot write '");
    CHECK_ERR_TEXT(&j.err, "File too large");
    CHECK(!exists("step-00000002.tmp") && !exists("step-00000002"));
    must_read(&j, 1);
    job_close(&j);
}

/* Whatever cannot be brought to disk, a part, a folder or the sign: nothing has happened. */
static void no_failing_disk_breaks_the_last_good_one(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 1);
    disk.synced_n = 0;
    must_write(&j, 2);
    const uint32_t syncs_n = disk.synced_n;
    CHECK_U64(5, syncs_n); /* the part, its folder; dir; latest.tmp, dir */
    CHECK_STR(dir, disk.newest);
    for (uint32_t at = 1; at <= syncs_n; at++) {
        disk.synced_n = 0;
        disk.fails_at = at;
        CHECK(!write_step(&j, 3));
        disk.fails_at = 0;
        CHECK_ERR_TEXT(&j.err, "cannot write ");
        CHECK_ERR_TEXT(&j.err, "No space left on device");
        CHECK(!exists("step-00000003") && !exists("step-00000003.tmp"));
        must_read(&j, 2);
        disk.synced_n = 0;
        disk.fails_at = at;
        CHECK(!write_step(&j, 2)); /* in the place of an older one */
        disk.fails_at = 0;
        must_read(&j, 2);
    }
    job_close(&j);
}

static void block_part(void)
{
    mkdir(in_dir("step-00000002.tmp/rank-00001.part"), 0777);
}

static void one_rank_that_fails_fails_all(void)
{
    Job j;
    if (!open_job(&j, JOB_GPT, "strategy=fsdp dp=4"))
        return;
    must_write(&j, 1);
    at_first_meeting = block_part;
    CHECK(!write_step(&j, 2));
    CHECK_ERR_TEXT(&j.err, "rank 1: cannot create '");
    CHECK(!exists("step-00000002"));
    must_read(&j, 1);
    ASSERT(rmdir(in_dir("step-00000002.tmp/rank-00001.part")) == 0);
    must_write(&j, 2);
    must_read(&j, 2);
    job_close(&j);
}

static void remove_fresh(void)
{
    ASSERT(rmdir(in_dir("step-00000002.tmp")) == 0);
}

/* As on a host that does not see the folder. */
static void a_folder_that_others_do_not_see_gets_a_sentence(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=fsdp dp=2"))
        return;
    at_first_meeting = remove_fresh;
    CHECK(!write_step(&j, 2));
    CHECK_ERR_TEXT(&j.err, "ranks on several hosts need one that all of them see");
    job_close(&j);
}

static void two_jobs_do_not_share_a_folder(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    ASSERT(mkdir(dir, 0777) == 0);
    int other = open(dir, O_RDONLY | O_DIRECTORY);
    ASSERT(other >= 0 && flock(other, LOCK_EX) == 0);
    CHECK(!write_step(&j, 1));
    CHECK_ERR_TEXT(&j.err, "another job is writing its snapshots into '");
    CHECK(!exists("step-00000001.tmp"));
    close(other);
    must_write(&j, 1);
    other = open(dir, O_RDONLY | O_DIRECTORY); /* and now it is held, between writes too */
    CHECK(flock(other, LOCK_EX | LOCK_NB) != 0);
    close(other);
    job_close(&j);
}

/* ---- another model ---- */

/* Where both say which keys they are made of, those that differ are named. */
static void keys_that_differ_are_named(void)
{
    Job j;
    if (!open_job(&j, JOB_GPT, "strategy=ddp dp=2"))
        return;
    SnapshotInfo info = info_of(2);
    info.model =
        "other\nmodel.layers=3\nmodel.heads=4\nmodel.new=1\ntraining.optimizer=adamw\n";
    CHECK(run_job(&j, true, &info));
    info.model =
        "another\nmodel.heads=8\nmodel.layers=3\nmodel.ffn=1\ntraining.optimizer=sgd\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of another model: model.heads is 4 there, 8 here; "
                           "training.optimizer is adamw there, sgd here");
    info.model = "another\nmodel.heads=4\ntraining.optimizer=sgd\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err,
                   "is of another training: training.optimizer is adamw there, sgd here");
    info.model = "other\nmodel.heads=8\n"; /* the digest decides */
    CHECK(run_job(&j, false, &info));
    info.model = "other"; /* as they were written before */
    CHECK(run_job(&j, false, &info));
    job_close(&j);
    remove_dir();
}

/* What a training reads decides what follows; a snapshot of before does not say. */
static void other_data_is_refused(void)
{
    Job j;
    if (!open_job(&j, JOB_GPT, "strategy=ddp dp=2"))
        return;
    SnapshotInfo info = info_of(2);
    info.model = "same\ntraining.data=a.txt\ntraining.global_batch=8\ntraining.seq_len=32\n"
                 "training.loss=mse\n";
    CHECK(run_job(&j, true, &info));
    CHECK(run_job(&j, false, &info));
    info.model = "same\ntraining.data=b.txt\ntraining.global_batch=8\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of training.data a.txt, here it is b.txt: other data would "
                           "follow");
    info.model = "same\ntraining.data=a.txt\ntraining.global_batch=80\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of training.global_batch 8, here it is 80: other data would "
                           "follow");
    info.model = "same\ntraining.seq_len=16\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of training.seq_len 32, here it is 16: other data would follow");
    info.model = "same\ntraining.loss=cross_entropy\n";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of training.loss mse, here it is cross_entropy: other data");
    info.model = "same\n";
    CHECK(run_job(&j, false, &info));
    job_close(&j);
    remove_dir();
}

static void another_model_is_refused(void)
{
    Job j, other;
    if (!open_job(&j, JOB_GPT, "strategy=ddp dp=2"))
        return;
    must_write(&j, 1);
    SnapshotInfo info = info_of(0);
    info.model = "llama 2 x 32, sgd";
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "is of another model: gpt 3 x 24, adamw there, llama 2 x 32, sgd "
                           "here");
    job_close(&j);
    /* The same digest by mistake: shapes and parts still tell. */
    if (job_open(&other, JOB_LLAMA, "strategy=single")) {
        must_refuse(&other,
                    "is of another model: 'tokens.weight' is 61 x 24 there, 64 x 32 here");
        job_close(&other);
    }
    if (open_job(&j, JOB_LINE, "strategy=single training.optimizer=sgd")) {
        must_write(&j, 1);
        job_close(&j);
    }
    if (job_open(&other, JOB_LINE, "strategy=single")) {
        must_refuse(&other, "has 0 of 20 elements of the first moment of 'linear.weight'");
        job_close(&other);
    }
}

/* ---- damage ---- */

typedef struct File {
    char path[512];
    uint8_t *bytes;
    uint64_t n;
} File;

static File load_file(const char *name)
{
    File f = { 0 };
    snprintf(f.path, sizeof f.path, "%s", in_dir(name));
    FILE *in = fopen(f.path, "r");
    ASSERT(in && fseek(in, 0, SEEK_END) == 0);
    f.n = (uint64_t)ftell(in);
    rewind(in);
    f.bytes = mem_zero(f.n + 1, 1);
    ASSERT(fread(f.bytes, 1, f.n, in) == f.n);
    fclose(in);
    return f;
}

/* In place: emptying it first would make some file systems wait for the disk. */
static void store_file(const File *f, uint64_t n)
{
    int file = open(f->path, O_WRONLY | O_CREAT, 0666);
    ASSERT(file >= 0 && pwrite(file, f->bytes, n, 0) == (ssize_t)n);
    ASSERT(ftruncate(file, (off_t)n) == 0 && close(file) == 0);
}

static void no_changed_bit_passes(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 1);
    File f = load_file("step-00000001/rank-00000.part");
    CHECK(f.n > 300 && f.n < 2000);
    for (uint64_t i = 0; i < f.n; i++)
        for (int bit = 0; bit < 9; bit++) {
            uint8_t change = (uint8_t)(bit < 8 ? 1 << bit : 0xff);
            uint8_t was = f.bytes[i];
            if (!check_takes(i * 9 + (uint64_t)bit))
                continue;
            f.bytes[i] = (uint8_t)(was ^ change);
            store_file(&f, f.n);
            must_refuse(&j, "rank-00000.part'");
            f.bytes[i] = was;
        }
    store_file(&f, f.n);
    must_read(&j, 1);
    free(f.bytes);
    job_close(&j);
}

static void no_other_length_passes(void)
{
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 1);
    File f = load_file("step-00000001/rank-00000.part");
    for (uint64_t n = 0; n < f.n; n++) {
        store_file(&f, n);
        must_refuse(&j, "its end is missing");
    }
    store_file(&f, f.n + 1);
    must_refuse(&j, "it is damaged");
    free(f.bytes);
    job_close(&j);
}

/* Heads whose checksum is right but whose content is not: a number of every field at a time. */
static void no_head_is_believed(void)
{
    Job j;
    static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };
    if (!open_job(&j, JOB_LINE, "strategy=single"))
        return;
    must_write(&j, 1);
    File f = load_file("step-00000001/rank-00000.part");
    for (uint64_t i = 16; i < f.n; i++)
        for (size_t v = 0; v < ARRAY_N(values); v++) {
            if (!check_takes(i * ARRAY_N(values) + v))
                continue;
            uint8_t *bytes = mem_zero(f.n, 1);
            memcpy(bytes, f.bytes, f.n);
            bytes[i] = values[v];
            snap_repair(bytes, f.n);
            File changed = f;
            changed.bytes = bytes;
            store_file(&changed, f.n);
            SnapshotInfo info = info_of(0);
            bool ok =
                run_job(&j, false, &info); /* some changes mean something: the seed, say */
            CHECK(ok != j.err.set);
            free(bytes);
        }
    free(f.bytes);
    job_close(&j);
}

static void damage_is_named(void)
{
    Job j;
    if (!open_job(&j, JOB_MLP, "strategy=fsdp dp=2"))
        return;
    must_write(&j, 1);
    File f = load_file("step-00000001/rank-00001.part");
    f.bytes[f.n - 1] ^= 1;
    store_file(&f, f.n);
    must_refuse(&j, "rank-00001.part' is damaged: the checksum of second moment of "
                    "'linear.weight' of layer 2 differs");
    f.bytes[f.n - 1] ^= 1;
    f.bytes[8] = 2;
    store_file(&f, f.n);
    must_refuse(&j, "is of version 2; this lockstep reads version 1");
    memset(f.bytes, 'x', 8);
    store_file(&f, f.n);
    must_refuse(&j, "rank-00001.part' is not a part of a snapshot");
    ASSERT(unlink(f.path) == 0);
    must_refuse(&j, "rank-00001.part': No such file or directory");
    ASSERT(mkdir(f.path, 0777) == 0);
    must_refuse(&j, "rank-00001.part' is not a file");
    ASSERT(rmdir(f.path) == 0);
    free(f.bytes);
    f = load_file("step-00000001/rank-00000.part");
    snprintf(f.path, sizeof f.path, "%s", in_dir("step-00000001/rank-00001.part"));
    store_file(&f, f.n);
    must_refuse(&j, "does not belong there: it is part 0 of 2 of step 1, seed 11");
    free(f.bytes);
    job_close(&j);
}

static uint32_t pieces_of(const Job *j)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < j->ranks_n; r++)
        n += j->pieces[r].pieces_n;
    return n;
}

/* Memory that is copied to and from: the same files, and the same numbers come back. */
static void far_memory_is_as_good_as_near(void)
{
    FarMemory counts = { .fails_at = UINT32_MAX };
    Job j;
    if (!open_job(&j, JOB_GPT, "strategy=ddp dp=2 tp=2"))
        return;
    must_write(&j, 1);
    File near = load_file("step-00000001/rank-00000.part");
    remove_dir();
    far = &counts;
    must_write(&j, 1);
    File copied = load_file("step-00000001/rank-00000.part");
    CHECK(near.n == copied.n && memcmp(near.bytes, copied.bytes, near.n) == 0);
    CHECK(counts.calls_n > 0 && counts.calls_n <= pieces_of(&j));
    clear_memory(&j);
    SnapshotInfo info = info_of(0);
    CHECK(run_job(&j, false, &info));
    CHECK_U64(0, each_number(&j, 1, false));
    far = NULL;
    free(near.bytes);
    free(copied.bytes);
    job_close(&j);
}

/* What cannot be copied is a sentence on all ranks, and the last snapshot stays. */
static void a_copy_that_fails_breaks_nothing(void)
{
    FarMemory counts = { .fails_at = 3 };
    Job j;
    if (!open_job(&j, JOB_LINE, "strategy=ddp dp=2"))
        return;
    must_write(&j, 1);
    far = &counts;
    CHECK(!write_step(&j, 2));
    CHECK_ERR_TEXT(&j.err, "the memory is gone");
    CHECK(exists("step-00000001") && !exists("step-00000002"));
    counts.calls_n = 0;
    SnapshotInfo info = info_of(0);
    CHECK(!run_job(&j, false, &info));
    CHECK_ERR_TEXT(&j.err, "the memory is gone");
    far = NULL;
    job_close(&j);
}

int main(void)
{
    snprintf(dir, sizeof dir, "%s/lockstep-test-snapshot-%ld/deep", P_tmpdir, (long)getpid());
    RUN(any_split_reads_what_any_split_wrote);
    snprintf(dir, sizeof dir, "%s/lockstep-test-snapshot-%ld", P_tmpdir, (long)getpid());
    RUN(repeated_heads_and_vectors_come_back);
    RUN(number_formats_may_differ);
    RUN(the_most_precise_is_taken);
    RUN(the_last_two_are_kept);
    RUN(the_newest_is_found_without_its_sign);
    RUN(leftovers_go_and_what_was_replaced_returns);
    RUN(without_a_snapshot_there_is_a_sentence);
    RUN(a_full_disk_leaves_the_last_good_one);
    RUN(no_failing_disk_breaks_the_last_good_one);
    RUN(one_rank_that_fails_fails_all);
    RUN(a_folder_that_others_do_not_see_gets_a_sentence);
    RUN(two_jobs_do_not_share_a_folder);
    RUN(keys_that_differ_are_named);
    RUN(other_data_is_refused);
    RUN(another_model_is_refused);
    RUN(no_changed_bit_passes);
    RUN(no_other_length_passes);
    RUN(no_head_is_believed);
    RUN(damage_is_named);
    RUN(far_memory_is_as_good_as_near);
    RUN(a_copy_that_fails_breaks_nothing);
    remove_dir();
    return check_report();
}
