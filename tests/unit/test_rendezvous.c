/*
 * test_rendezvous.c - ranks find each other; those who cannot, or should not, are told
 * why; strangers at the door do no harm.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "exec/fabric_parts.h"
#include "tests/rank_world.h"

static char rendezvous[256];
static uint16_t port;

static RankPlace place_of(uint32_t rank, uint32_t world)
{
    return (RankPlace){ .rank = rank,
                        .world = world,
                        .rendezvous = rendezvous,
                        .timeout_s = 20,
                        .digest = "same" };
}

/* A port that nobody has now, nor before rank 0 listens there: below those that the system gives
 * to who connects or asks for any (ip_local_port_range). */
static void choose_port(void)
{
    enum { FIRST = 20000, PORTS = 12000 };
    static uint32_t chosen_n;
    int fd = -1;
    for (uint32_t tries = 0; fd < 0 && tries < PORTS; tries++) {
        char text[8];
        uint32_t at = ((uint32_t)getpid() * 31 + chosen_n++) % PORTS;
        snprintf(text, sizeof text, "%u", FIRST + at);
        fd = net_listen("127.0.0.1", text, &port);
    }
    ASSERT(fd >= 0);
    close(fd);
    snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", port);
}

static void open_one(const RankPlace *place, RankPage *page, uint32_t slot)
{
    Fabric *f = NULL;
    Err err = { 0 };
    bool ok = fabric_open(&f, place, 4096, &err) && fabric_barrier(f, &err);
    fabric_close(f);
    memcpy(page->said[slot], err.text, sizeof err.text);
    _exit(ok ? 0 : 1);
}

/* A process for each place, each after its own delay; how many opened. */
static uint32_t open_all(const RankPlace *places, uint32_t n, const int64_t *delays_ns,
                         RankPage *page)
{
    uint32_t opened_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        int pid = fork();
        if (pid == 0) {
            net_sleep_ns(delays_ns ? delays_ns[i] : 0);
            open_one(&places[i], page, i);
        }
        page->pids[i] = pid;
    }
    for (uint32_t i = 0; i < n; i++) {
        int how;
        waitpid(page->pids[i], &how, 0);
        CHECK(WIFEXITED(how));
        opened_n += WIFEXITED(how) && WEXITSTATUS(how) == 0;
    }
    return opened_n;
}

static void check_said(const RankPage *page, uint32_t slot, const char *part)
{
    if (!CHECK(strstr(page->said[slot], part) != NULL))
        fprintf(stderr, "%u said '%s', which lacks\n  '%s'\n", slot, page->said[slot], part);
}

/* ---- they meet ---- */

static void ranks_meet_in_any_order_of_coming(void)
{
    const int64_t first_late[] = { 300000000, 0, 100000000 }, last_late[] = { 0, 0, 300000000 };
    RankPage *page = rank_page_make();
    for (int i = 0; i < 2; i++) {
        choose_port();
        RankPlace places[] = { place_of(0, 3), place_of(1, 3), place_of(2, 3) };
        if (!CHECK_INT(3, open_all(places, 3, i ? last_late : first_late, page)))
            fprintf(stderr, "rank 0 said '%s'\n", page->said[0]);
    }
    rank_page_free(page);
}

static void choose_file(void)
{
    snprintf(rendezvous, sizeof rendezvous, "file:%s/lockstep-test-%ld", P_tmpdir,
             (long)getpid());
    unlink(rendezvous + strlen("file:"));
}

static void ranks_meet_through_a_file_that_then_is_gone(void)
{
    RankPage *page = rank_page_make();
    const int64_t late[] = { 200000000, 0, 0 };
    choose_file();
    RankPlace places[] = { place_of(0, 3), place_of(1, 3), place_of(2, 3) };
    CHECK_INT(3, open_all(places, 3, late, page));
    CHECK(access(rendezvous + strlen("file:"), F_OK) != 0);
    rank_page_free(page);
}

static void an_old_file_only_costs_time(void)
{
    RankPage *page = rank_page_make();
    const int64_t late[] = { 200000000, 0 };
    const char *old[] = { "", "lockstep rendezvous 1\n1\nelsewhere\n127.0.0.1\n" };
    for (size_t i = 0; i < ARRAY_N(old); i++) {
        choose_file();
        FILE *file = fopen(rendezvous + strlen("file:"), "w");
        fputs(old[i], file);
        fclose(file);
        RankPlace places[] = { place_of(0, 2), place_of(1, 2) };
        CHECK_INT(2, open_all(places, 2, late, page));
    }
    rank_page_free(page);
}

static void ranks_meet_at_the_loopback_of_ipv6(void)
{
    RankPage *page = rank_page_make();
    const int64_t late[] = { 0, 0, 0 };
    int fd = net_listen("::1", "0", &port);
    if (fd < 0) { /* a machine without IPv6 */
        rank_page_free(page);
        return;
    }
    close(fd);
    snprintf(rendezvous, sizeof rendezvous, "tcp://[::1]:%u", port);
    RankPlace places[] = { place_of(0, 3), place_of(1, 3), place_of(2, 3) };
    for (int i = 0; i < 3; i++)
        places[i].tcp_only = true;
    CHECK_INT(3, open_all(places, 3, late, page));
    rank_page_free(page);
}

/* ---- they do not ---- */

static void what_is_no_rendezvous_file_stays(void)
{
    static const char *const texts[] = { "rubbish", "lockstep rendezvous 12\n" };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        Fabric *f;
        Err err = { 0 };
        char text[40] = "";
        choose_file();
        const char *path = rendezvous + strlen("file:");
        FILE *file = fopen(path, "w");
        fputs(texts[i], file);
        fclose(file);
        RankPlace place = place_of(0, 2);
        CHECK(!fabric_open(&f, &place, 64, &err));
        CHECK_ERR_TEXT(&err, "is there and no rendezvous file of lockstep: a path is expected "
                             "where nothing is yet, or an empty file");
        if (CHECK((file = fopen(path, "r")) != NULL)) {
            CHECK_U64(strlen(texts[i]), fread(text, 1, sizeof text - 1, file));
            CHECK_STR(texts[i], text);
            fclose(file);
        }
        unlink(path);
    }
}

static void a_port_that_is_taken_is_named(void)
{
    Fabric *f;
    Err err = { 0 };
    char part[64];
    int fd = net_listen("127.0.0.1", "0", &port);
    snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", port);
    RankPlace place = place_of(0, 2);
    CHECK(!fabric_open(&f, &place, 64, &err));
    snprintf(part, sizeof part, "port %u of '127.0.0.1' is taken by another program", port);
    CHECK_ERR_TEXT(&err, part);
    close(fd);
}

static void a_file_that_cannot_be_written_is_named(void)
{
    Fabric *f;
    Err err = { 0 };
    snprintf(rendezvous, sizeof rendezvous, "file:/nowhere/at/all");
    RankPlace place = place_of(0, 2);
    CHECK(!fabric_open(&f, &place, 64, &err));
    CHECK_ERR_TEXT(&err, "cannot write '/nowhere/at/all': No such file");
}

/* A port that nobody listens at, nor can while the socket is kept. */
static int keep_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(bind(fd, (struct sockaddr *)(void *)&at, n) == 0);
    ASSERT(getsockname(fd, (struct sockaddr *)(void *)&at, &n) == 0);
    port = ntohs(at.sin_port);
    snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", port);
    return fd;
}

static void a_rank_0_that_is_not_there_is_named(void)
{
    Fabric *f;
    Err err = { 0 };
    int kept = keep_port();
    RankPlace place = place_of(1, 2);
    place.timeout_s = 0.5;
    CHECK(!fabric_open(&f, &place, 64, &err));
    close(kept);
    CHECK_ERR_TEXT(&err, "cannot reach rank 0 at 'tcp://127.0.0.1:");
    CHECK_ERR_TEXT(&err, " s: Connection refused");
}

/* Its listener was made before the ranks were: there is nothing to wait for. */
static void a_rank_0_that_has_ended_is_not_waited_for(void)
{
    Fabric *f;
    Err err = { 0 };
    int kept = keep_port();
    int64_t began_ns = net_now_ns();
    RankPlace place = place_of(1, 2);
    place.timeout_s = 60;
    rendezvous_inherit(kept, port);
    CHECK(!fabric_open(&f, &place, 64, &err));
    rendezvous_inherit(-1, 0);
    close(kept);
    CHECK(net_now_ns() - began_ns < 30000000000);
    CHECK_ERR_TEXT(&err, "rank 0 at 'tcp://127.0.0.1:");
    CHECK_ERR_TEXT(&err, "' ended while the ranks were still meeting");
}

static void missing_ranks_are_named_by_all_who_came(void)
{
    RankPage *page = rank_page_make();
    choose_port();
    RankPlace places[] = { place_of(0, 6), place_of(1, 6), place_of(4, 6) };
    for (int i = 0; i < 3; i++)
        places[i].timeout_s = 0.7;
    CHECK_INT(0, open_all(places, 3, NULL, page));
    for (uint32_t i = 0; i < 3; i++)
        check_said(page, i, "ranks 2, 3 and 5 of 6 did not come to 'tcp://127.0.0.1:");
    rank_page_free(page);
}

static void two_ranks_of_one_number_are_named(void)
{
    RankPage *page = rank_page_make();
    const int64_t delays[] = { 0, 0, 200000000 };
    choose_port();
    RankPlace places[] = { place_of(0, 3), place_of(1, 3), place_of(1, 3) };
    CHECK_INT(0, open_all(places, 3, delays, page));
    for (uint32_t i = 0; i < 3; i++)
        check_said(page, i, "two processes say they are rank 1: process ");
    rank_page_free(page);
}

static void worlds_that_differ_are_named(void)
{
    RankPage *page = rank_page_make();
    choose_port();
    RankPlace places[] = { place_of(0, 3), place_of(1, 4) };
    CHECK_INT(0, open_all(places, 2, NULL, page));
    for (uint32_t i = 0; i < 2; i++)
        check_said(page, i, "counts 4 ranks, rank 0 counts 3");
    rank_page_free(page);
}

static void ranks_that_run_something_else_are_named(void)
{
    RankPage *page = rank_page_make();
    choose_port();
    RankPlace places[] = { place_of(0, 4), place_of(1, 4), place_of(2, 4), place_of(3, 4) };
    places[1].digest = "other";
    places[3].digest = NULL;
    CHECK_INT(0, open_all(places, 4, NULL, page));
    for (uint32_t i = 0; i < 4; i++)
        check_said(page, i, "ranks 1 and 3 run something else than rank 0: scenario");
    rank_page_free(page);
}

static void a_rank_that_dies_while_they_meet_is_named(void)
{
    RankPage *page = rank_page_make();
    choose_port();
    int victim = fork();
    if (victim == 0) {
        RankPlace place = place_of(2, 3);
        net_sleep_ns(100000000);
        open_one(&place, page, 2);
    }
    int killer = fork();
    if (killer == 0) {
        net_sleep_ns(400000000);
        kill(victim, SIGKILL);
        _exit(0);
    }
    RankPlace places[] = { place_of(0, 3) };
    CHECK_INT(0, open_all(places, 1, NULL, page));
    check_said(page, 0, "ended before the job began");
    killer_end(killer);
    killer_end(victim);
    rank_page_free(page);
}

/* Rank 1 of 3 will not come, as the process that started it knows. */
static void a_rank_that_will_not_come_is_named_at_once(void)
{
    for (int by_file = 0; by_file < 2; by_file++) {
        RankPage *page = rank_page_make();
        by_file ? choose_file() : choose_port();
        int64_t start_ns = net_now_ns();
        int starter = fork();
        if (starter == 0) {
            RankPlace of_another_job = place_of(1, 3), place = place_of(1, 3);
            of_another_job.job = 7;
            net_sleep_ns(200000000);
            _exit(rendezvous_excuse(&of_another_job, 1, 77, net_now_ns() + 2000000000) &&
                          rendezvous_excuse(&place, 1, 78, net_now_ns() + 2000000000)
                      ? 0
                      : 1);
        }
        RankPlace places[] = { place_of(0, 3), place_of(2, 3) };
        CHECK_INT(0, open_all(places, 2, NULL, page));
        CHECK(net_now_ns() - start_ns < 3000000000);
        for (uint32_t i = 0; i < 2; i++) {
            check_said(page, i, "rank 1 on '");
            check_said(page, i, "' (process 78) ended before the job began");
        }
        int how;
        waitpid(starter, &how, 0);
        CHECK_INT(0, how);
        rank_page_free(page);
    }
}

/* When all have met nobody is there to be told. */
static void an_excuse_that_nobody_waits_for_is_given_up(void)
{
    choose_port();
    RankPlace place = place_of(1, 3);
    int64_t start_ns = net_now_ns();
    CHECK(!rendezvous_excuse(&place, 1, 77, start_ns + 300000000));
    CHECK(net_now_ns() - start_ns < 2000000000);
    CHECK(rendezvous_excuse(&place, 0, 77, start_ns)); /* rank 0 is whom the others miss */
}

static void a_rank_of_another_job_is_told_so_and_does_no_harm(void)
{
    RankPage *page = rank_page_make();
    const int64_t delays[] = { 0, 0, 600000000 };
    choose_port();
    RankPlace places[] = { place_of(0, 2), place_of(1, 2), place_of(1, 2) };
    places[0].job = places[2].job = 11;
    places[1].job = 12;
    CHECK_INT(2, open_all(places, 3, delays, page));
    check_said(page, 1, "another job of lockstep meets at this rendezvous");
    rank_page_free(page);
}

/* ---- somebody else's port ---- */

/* A server that says `text` to everybody and keeps the line open. */
static int serve_text(const char *text)
{
    int listener = net_listen("127.0.0.1", "0", &port);
    snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", port);
    int pid = fork();
    if (pid == 0) {
        fcntl(listener, F_SETFL, 0);
        for (;;) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0 && *text)
                send(fd, text, strlen(text), MSG_NOSIGNAL);
        }
    }
    close(listener);
    return pid;
}

static void another_service_is_recognised(void)
{
    const char *said[] = { "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
                           "SSH-2.0-OpenSSH_9.2\r\n....................", "" };
    const char *parts[] = { "is not lockstep's rank 0: another program has this port",
                            "is not lockstep's rank 0: another program has this port",
                            "it accepts connections but says nothing" };
    for (size_t i = 0; i < ARRAY_N(said); i++) {
        Fabric *f;
        Err err = { 0 };
        int server = serve_text(said[i]);
        RankPlace place = place_of(1, 2);
        place.timeout_s = 0.6;
        int64_t start_ns = net_now_ns();
        CHECK(!fabric_open(&f, &place, 64, &err));
        CHECK_ERR_TEXT(&err, parts[i]);
        CHECK(net_now_ns() - start_ns < 3000000000);
        kill(server, SIGKILL);
        killer_end(server);
    }
}

/* Connects again and again with whatever a stranger may say; never with a whole hello. */
static void be_hostile(const char *to_port, uint64_t seed, int64_t until_ns)
{
    for (uint64_t n = seed; net_now_ns() < until_ns; n++) {
        uint8_t bytes[2048];
        int fd = net_connect("127.0.0.1", to_port, net_now_ns() + 100000000);
        if (fd < 0) {
            net_sleep_ns(1000000);
            continue;
        }
        size_t length = (size_t)(mix_u64(n) % sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)mix_u64(n * 4096 + i);
        if (n % 3 == 0)
            memcpy(bytes, "lockstep", 8); /* the right word, and then nonsense */
        if (n % 3 == 1)
            length = n % 9; /* half a word, and then silence */
        send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n % 7 != 0) /* some are kept open: until this process ends */
            close(fd);
    }
    _exit(0);
}

static void strangers_at_the_door_do_no_harm(void)
{
    RankPage *page = rank_page_make();
    const int64_t delays[] = { 100000000, 200000000, 900000000 };
    choose_port();
    int strangers[3];
    for (uint64_t i = 0; i < 3; i++) {
        strangers[i] = fork();
        if (strangers[i] == 0) {
            char text[NET_PORT_MAX];
            snprintf(text, sizeof text, "%u", port);
            be_hostile(text, 1000000 * i, net_now_ns() + 1200000000);
        }
    }
    RankPlace places[] = { place_of(0, 3), place_of(1, 3), place_of(2, 3) };
    if (!CHECK_INT(3, open_all(places, 3, delays, page)))
        fprintf(stderr, "%s\n", page->said[0]);
    for (int i = 0; i < 3; i++)
        killer_end(strangers[i]);
    rank_page_free(page);
}

static CommCall sum_of_two(const RankPlace *place, Lane lane, const Part *part)
{
    static const uint32_t members[2] = { 0, 1 };
    return (CommCall){ .kind = OP_ALL_REDUCE,
                       .lane = lane,
                       .members_n = 2,
                       .self = place->rank,
                       .members = members,
                       .in_n = 1,
                       .in = part };
}

static void body_hostile_data(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    Err err = { 0 };
    Part part = { .elements = 1000 };
    char text[NET_PORT_MAX];
    snprintf(text, sizeof text, "%u", f->card.data_port);
    int stranger = fork();
    if (stranger == 0)
        be_hostile(text, place->rank, net_now_ns() + 500000000);
    int64_t until_ns = net_now_ns() + 600000000;
    uint32_t go[2] = { 1, 1 };
    for (uint32_t lane = 0; go[0] && CHECK(!err.set); lane = (lane + 1) % LANE_N) {
        CommCall c = sum_of_two(place, (Lane)lane, &part);
        if (!CHECK(fabric_run(f, &c, 1, &err)))
            fprintf(stderr, "%s\n", err.text);
        net_sleep_ns(5000000);
        uint32_t mine = net_now_ns() < until_ns; /* rank 0 says when it is enough */
        if (!CHECK(fabric_share(f, &mine, go, sizeof mine, &err)))
            break;
    }
    killer_end(stranger);
}

static void strangers_at_the_data_port_do_no_harm(void)
{
    CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = true }, body_hostile_data));
}

/* What comes from one end goes to the other, until one of them closes. */
static void pass_on(int a, int b)
{
    struct pollfd p[2] = { { .fd = a, .events = POLLIN }, { .fd = b, .events = POLLIN } };
    uint8_t bytes[4096];
    while (poll(p, 2, -1) > 0)
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].revents ? recv(p[i].fd, bytes, sizeof bytes, 0) : -1;
            if (p[i].revents && n <= 0 && errno != EAGAIN)
                _exit(0);
            if (n > 0)
                net_send_all(p[1 - i].fd, bytes, (size_t)n, net_now_ns() + 1000000000);
        }
}

/* A data port as it is in a crowd: its first callers are shown out, before or after they have
 * said anything; the next one gets through to `port_behind`. */
static void be_crowded(int listener, const char *port_behind)
{
    for (int shown_out_n = 0; shown_out_n < 20; shown_out_n++) {
        int fd = accept(listener, NULL, NULL);
        uint8_t byte;
        if (shown_out_n % 2)
            recv(fd, &byte, 1, 0);
        close(fd);
    }
    int caller = accept(listener, NULL, NULL);
    pass_on(caller, net_connect("127.0.0.1", port_behind, net_now_ns() + 1000000000));
    _exit(0);
}

static void body_shown_out(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    Err err = { 0 };
    Part part = { .elements = 1000 };
    int crowded = -1;
    if (place->rank == 0) { /* it calls rank 1 */
        RankCard *card = &f->meeting.cards[1];
        char behind[NET_PORT_MAX];
        snprintf(behind, sizeof behind, "%u", card->data_port);
        uint16_t crowded_port;
        int listener = net_listen("127.0.0.1", "0", &crowded_port);
        fcntl(listener, F_SETFL, 0);
        card->data_port = crowded_port;
        crowded = fork();
        if (crowded == 0)
            be_crowded(listener, behind);
        close(listener);
    }
    CommCall c = sum_of_two(place, LANE_REDUCE, &part);
    for (int i = 0; i < 2; i++)
        if (!CHECK(fabric_run(f, &c, 1, &err)))
            fprintf(stderr, "%s\n", err.text);
    CHECK(fabric_barrier(f, &err)); /* rank 1 may still read */
    if (crowded >= 0) {
        kill(crowded, SIGKILL);
        killer_end(crowded);
    }
}

static void whoever_is_shown_out_calls_again(void)
{
    CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = true }, body_shown_out));
}

/* A listener that is no rank: the kernel connects, and nobody answers. */
static void body_unanswered(Fabric *f, const RankPlace *place, RankPage *page)
{
    (void)page;
    Err err = { 0 };
    Part part = { .elements = 1000 };
    int listener = -1;
    if (place->rank == 0) {
        uint16_t mute_port;
        listener = net_listen("127.0.0.1", "0", &mute_port);
        f->meeting.cards[1].data_port = mute_port;
    }
    CommCall c = sum_of_two(place, LANE_REDUCE, &part);
    CHECK(!fabric_run(f, &c, 1, &err));
    CHECK_ERR_TEXT(&err, "rank 1 on '");
    CHECK_ERR_TEXT(&err, "cannot be reached at 127.0.0.1 port ");
    CHECK_ERR_TEXT(&err, ": Connection timed out");
    if (listener >= 0)
        close(listener);
}

static void a_port_that_never_answers_is_named(void)
{
    CHECK_INT(0, ranks_run(2, &(RankOptions){ .tcp = true, .timeout_s = 1 }, body_unanswered));
}

static void addresses_are_checked(void)
{
    const char *bad[] = {
        "tcp://",     "tcp://host", "tcp://host:0", "tcp://:5",       "tcp://h:65536",
        "tcp://h:5x", "tcp://h: 5", "file:",        "http://host:80", "tcp://h:-5",
        "",           "tcp://[]:5"
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        Err err = { 0 };
        if (!CHECK(!rendezvous_check(bad[i], &err)))
            fprintf(stderr, "%s\n", bad[i]);
        CHECK(strstr(err.text, "rendezvous '") != NULL);
    }
    Err err = { 0 };
    CHECK(rendezvous_check("tcp://[::1]:5", &err) && rendezvous_check("file:x", &err));
    CHECK(rendezvous_is_local("tcp://127.0.0.9:1") && rendezvous_is_local("tcp://[::1]:1"));
    CHECK(!rendezvous_is_local("tcp://host:1") && !rendezvous_is_local("file:x"));
}

static void check_copy(const char *expect, const char *where, uint32_t copy)
{
    Err err = { 0 };
    char *got = rendezvous_of_copy(where, copy, &err);
    if (CHECK(got))
        CHECK_STR(expect, got);
    free(got);
}

static void copies_meet_one_place_further_each(void)
{
    Err err = { 0 };
    check_copy("tcp://host:7", "tcp://host:7", 0);
    check_copy("tcp://host:17", "tcp://host:7", 10);
    check_copy("tcp://[::1]:65535", "tcp://[::1]:65534", 1);
    check_copy("file:/a:b/c", "file:/a:b/c", 0);
    check_copy("file:/a:b/c.2", "file:/a:b/c", 2);
    CHECK(!rendezvous_of_copy("tcp://host:65535", 1, &err));
    CHECK_ERR_TEXT(&err, "copy 1 of 'tcp://host:65535' would meet at port 65536: 65535 is the "
                         "last one");
}

int main(void)
{
    RUN(addresses_are_checked);
    RUN(copies_meet_one_place_further_each);
    RUN(ranks_meet_in_any_order_of_coming);
    RUN(ranks_meet_through_a_file_that_then_is_gone);
    RUN(an_old_file_only_costs_time);
    RUN(ranks_meet_at_the_loopback_of_ipv6);
    RUN(what_is_no_rendezvous_file_stays);
    RUN(a_port_that_is_taken_is_named);
    RUN(a_file_that_cannot_be_written_is_named);
    RUN(a_rank_0_that_is_not_there_is_named);
    RUN(a_rank_0_that_has_ended_is_not_waited_for);
    RUN(missing_ranks_are_named_by_all_who_came);
    RUN(two_ranks_of_one_number_are_named);
    RUN(worlds_that_differ_are_named);
    RUN(ranks_that_run_something_else_are_named);
    RUN(a_rank_that_dies_while_they_meet_is_named);
    RUN(a_rank_that_will_not_come_is_named_at_once);
    RUN(an_excuse_that_nobody_waits_for_is_given_up);
    RUN(a_rank_of_another_job_is_told_so_and_does_no_harm);
    RUN(another_service_is_recognised);
    RUN(strangers_at_the_door_do_no_harm);
    RUN(strangers_at_the_data_port_do_no_harm);
    RUN(whoever_is_shown_out_calls_again);
    RUN(a_port_that_never_answers_is_named);
    return check_report();
}
