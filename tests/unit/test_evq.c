/* The event queue against a linear scan. */
#include "sim/evq.h"
#include "tests/check.h"

enum { EVENTS = 2000 };

static void events_come_out_by_time_then_insertion(void)
{
    EventQueue q = { 0 };
    int64_t at[EVENTS];
    uint64_t state = 1;
    for (uint32_t i = 0; i < EVENTS; i++) {
        state = mix_u64(state);
        at[i] = (int64_t)(state % 100);
        evq_push(&q, at[i], 0, i, 0);
    }
    bool taken[EVENTS] = { 0 };
    for (uint32_t n = 0; n < EVENTS; n++) {
        uint32_t first = NONE_U32;
        for (uint32_t i = 0; i < EVENTS; i++)
            if (!taken[i] && (first == NONE_U32 || at[i] < at[first]))
                first = i;
        taken[first] = true;
        Event e;
        if (!CHECK(evq_pop(&q, &e)))
            break;
        CHECK_U64(first, e.a);
        CHECK_INT(at[first], e.at_ns);
    }
    Event e;
    CHECK(!evq_pop(&q, &e));
    evq_free(&q);
}

static void an_event_may_schedule_another_for_now(void)
{
    EventQueue q = { 0 };
    evq_push(&q, 0, 1, 0, 0);
    evq_push(&q, 5, 3, 0, 0);
    Event e;
    CHECK(evq_pop(&q, &e));
    evq_push(&q, e.at_ns, 2, 0, 0);
    CHECK(evq_pop(&q, &e));
    CHECK_U64(2, e.kind);
    CHECK_INT(0, e.at_ns);
    CHECK(evq_pop(&q, &e));
    CHECK_U64(3, e.kind);
    evq_free(&q);
}

/* Popped and pushed by turns of all lengths: what is popped leaves a place that the next takes. */
static void pops_and_pushes_may_be_mixed(void)
{
    EventQueue q = { 0 };
    int64_t at[EVENTS], last = 0;
    bool waits[EVENTS] = { 0 };
    uint32_t pushed_n = 0, waiting_n = 0;
    uint64_t state = 7;
    while (pushed_n < EVENTS || waiting_n > 0) {
        state = mix_u64(state);
        if (pushed_n < EVENTS && (waiting_n == 0 || state % 5 < 3)) {
            at[pushed_n] = last + (int64_t)(state / 8 % 20);
            evq_push(&q, at[pushed_n], 0, pushed_n, 0);
            waits[pushed_n++] = true;
            waiting_n++;
        } else {
            uint32_t first = NONE_U32;
            for (uint32_t i = 0; i < pushed_n; i++)
                if (waits[i] && (first == NONE_U32 || at[i] < at[first]))
                    first = i;
            Event e;
            if (!CHECK(evq_pop(&q, &e) && e.a == first && e.at_ns == at[first]))
                break;
            waits[first] = false;
            waiting_n--;
            last = e.at_ns;
        }
        if (state % 64 == 0) {
            evq_settle(&q);
            CHECK_U64(waiting_n, q.n);
            for (uint32_t i = 0; i < q.n; i++)
                CHECK(waits[evq_at(&q, i).a]);
        }
    }
    evq_free(&q);
}

enum { SOURCES = 40 };

typedef struct Set {
    int64_t at;
    uint32_t turn; /* in which it was set; 0: none waits */
} Set;

/* Whoever looks at the heap finds what was set last. */
static void check_heap(EventQueue *q, const Set *of)
{
    uint32_t n = 0;
    evq_settle(q);
    for (uint32_t i = 0; i < SOURCES; i++)
        n += of[i].turn > 0;
    CHECK_U64(n, q->n);
    for (uint32_t i = 0; i < q->n; i++) {
        Event e = evq_at(q, i);
        CHECK_U64(of[e.source].turn, e.kind);
        CHECK_INT(of[e.source].at, e.at_ns);
    }
}

/* Each source has the event that was set last, ordered as if inserted then, or none. */
static void a_source_has_one_event(void)
{
    EventQueue q = { 0 };
    Set of[SOURCES] = { { 0 } };
    int64_t last = 0;
    uint64_t state = 3;
    for (uint32_t turn = 1; turn <= 5 * EVENTS; turn++) {
        state = mix_u64(state);
        uint32_t s = (uint32_t)(state >> 8) % SOURCES, first = NONE_U32;
        if (state % 8 < 4) {
            of[s].at = last + (int64_t)(state >> 32) % 20;
            of[s].turn = turn;
            evq_set(&q, s, of[s].at, turn, s);
        } else if (state % 8 == 4) {
            of[s].turn = 0;
            evq_cancel(&q, s);
        } else {
            for (uint32_t i = 0; i < SOURCES; i++)
                if (of[i].turn && (first == NONE_U32 || of[i].at < of[first].at ||
                                   (of[i].at == of[first].at && of[i].turn < of[first].turn)))
                    first = i;
            CHECK_INT(of[s].turn ? of[s].at : -1, evq_when(&q, s, -1));
            Event e;
            if (!CHECK((first != NONE_U32) == evq_pop(&q, &e)))
                break;
            if (first == NONE_U32)
                continue;
            CHECK_U64(first, e.a);
            CHECK_U64(first, e.source);
            CHECK_U64(of[first].turn, e.kind);
            CHECK_INT(of[first].at, e.at_ns);
            of[first].turn = 0;
            last = e.at_ns;
        }
        if ((state >> 40) % 16 == 0)
            check_heap(&q, of);
    }
    evq_free(&q);
}

/* Events of no source come and go among those of sources, whose slots they never take. */
static void sources_and_others_do_not_mix(void)
{
    EventQueue q = { 0 };
    Event e;
    for (uint32_t round = 0; round < 100; round++) {
        int64_t now = 10 * round;
        evq_push(&q, now + 3, 1, round, 7);
        evq_set(&q, round % 5, now + 1, 2, round);
        evq_push(&q, now + 2, 3, round, 8);
        evq_set(&q, round % 5, now + 4, 4, round);
        const uint32_t kind[] = { 3, 1, 4 }, b[] = { 8, 7, 0 };
        for (uint32_t i = 0; i < 3 && CHECK(evq_pop(&q, &e)); i++) {
            CHECK_U64(kind[i], e.kind);
            CHECK_U64(round, e.a);
            CHECK_U64(b[i], e.b);
            CHECK_U64(kind[i] == 4 ? round % 5 : NONE_U32, e.source);
        }
        CHECK(!evq_pop(&q, &e));
    }
    CHECK_U64(5 + 2, q.slots_n);
    evq_free(&q);
}

int main(void)
{
    RUN(events_come_out_by_time_then_insertion);
    RUN(an_event_may_schedule_another_for_now);
    RUN(pops_and_pushes_may_be_mixed);
    RUN(a_source_has_one_event);
    RUN(sources_and_others_do_not_mix);
    return check_report();
}
