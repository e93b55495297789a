/* rules.c - reading rule files, and asking them. */
#include "traces/rules.h"

#include <string.h>

#include "core/json.h"
#include "core/share.h"

/* ---- reading ---- */

static const char **take_words(Rules *r, JsonObj *o, const char *key, uint32_t *n)
{
    JsonNode list = json_get(o, key);
    *n = 0;
    if (!list.item || !o->ok)
        return NULL;
    if (json_type(list) != JSON_ARRAY) {
        o->ok = json_fail(list, o->err, "a list of texts is expected");
        return NULL;
    }
    const char **words = PUSH_ARRAY(&r->arena, const char *, json_items_n(list));
    JsonNode word = json_first(list);
    for (size_t i = 0; word.item; word = json_next(word, list, ++i)) {
        const char *text = json_text(word);
        if (!text || !*text) {
            o->ok = json_fail(word, o->err, "a text is expected, at least one character long");
            return NULL;
        }
        words[(*n)++] = arena_strdup(&r->arena, text);
    }
    return words;
}

static bool take_rule(Rules *r, JsonNode node, Err *err)
{
    static const char *const classes[] = { "comm", "p2p", "compute" };
    static const SpanClass class_of[] = { SPAN_COMM, SPAN_P2P, SPAN_COMPUTE };
    Rule rule = { .name = NULL };
    JsonObj o = json_begin(node, err);
    const char *name = json_string(&o, "name", NULL);
    const char *op = json_has(&o, "op") ? json_string(&o, "op", NULL) : NULL;
    rule.class_ = class_of[json_word(&o, "class", classes, ARRAY_N(classes), 0)];
    rule.starts = take_words(r, &o, "starts", &rule.starts_n);
    rule.contains = take_words(r, &o, "contains", &rule.contains_n);
    rule.excludes = take_words(r, &o, "not", &rule.excludes_n);
    json_string(&o, "notes", "");
    if (!json_end(&o))
        return false;
    if (rule.starts_n + rule.contains_n == 0)
        return json_fail(node, err, "a rule needs 'starts' or 'contains'");
    if (r->n == TRACE_RULES_MAX)
        return json_fail(node, err, "there are too many rules, %d allowed",
                         TRACE_RULES_MAX - 1);
    rule.name = arena_strdup(&r->arena, name);
    rule.op = op ? arena_strdup(&r->arena, op) : NULL;
    r->rule[r->n++] = rule;
    return true;
}

/* Closes doc, which may be NULL with err set. */
static bool take_document(Rules *r, JsonDoc *doc, Err *err)
{
    if (!doc)
        return false;
    JsonObj o = json_begin(json_root(doc), err);
    JsonNode list = json_get(&o, "rules");
    json_string(&o, "notes", "");
    bool ok = json_end(&o);
    if (ok && json_type(list) != JSON_ARRAY)
        ok = json_fail(json_root(doc), err, "a list 'rules' is expected");
    if (ok) {
        JsonNode node = json_first(list);
        for (size_t i = 0; ok && node.item; node = json_next(node, list, ++i))
            ok = take_rule(r, node, err);
    }
    json_close(doc);
    return ok;
}

static void begin(Rules *r)
{
    *r = (Rules){ .n = 1 };
    r->rule = PUSH_ARRAY(&r->arena, Rule, TRACE_RULES_MAX);
    r->rule[RULE_METADATA] = (Rule){ .name = "metadata", .class_ = SPAN_COMM };
}

bool rules_read(Rules *r, const char *const *paths, size_t n, Err *err)
{
    begin(r);
    bool ok = true;
    for (size_t i = n; ok && i > 0; i--)
        ok = take_document(r, json_open(paths[i - 1], err), err);
    const char *builtin =
        arena_printf(&r->arena, "%s/rules/" RULES_BUILTIN ".json", share_dir());
    ok = ok && take_document(r, json_open(builtin, err), err);
    if (!ok)
        rules_free(r);
    return ok;
}

bool rules_parse(Rules *r, const char *text, size_t n, const char *name, Err *err)
{
    begin(r);
    bool ok = take_document(r, json_parse(text, n, name, err), err);
    if (!ok)
        rules_free(r);
    return ok;
}

void rules_free(Rules *r)
{
    arena_free(&r->arena);
    *r = (Rules){ .n = 0 };
}

/* ---- asking ---- */

static bool starts_with_one(const char *text, const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static bool contains_one(const char *text, const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

uint32_t rules_match(const Rules *r, const char *kernel)
{
    for (uint32_t i = 1; i < r->n; i++) {
        const Rule *rule = &r->rule[i];
        if ((starts_with_one(kernel, rule->starts, rule->starts_n) ||
             contains_one(kernel, rule->contains, rule->contains_n)) &&
            !contains_one(kernel, rule->excludes, rule->excludes_n))
            return i;
    }
    return NONE_U32;
}

bool rules_comm(const Rules *r, const char *kernel, uint32_t *match, SpanClass *class_,
                KernelComm *said)
{
    *match = rules_match(r, kernel);
    if (*match == NONE_U32 || r->rule[*match].class_ == SPAN_COMPUTE)
        return false;
    const Rule *rule = &r->rule[*match];
    *said = kernel_comm(kernel);
    said->op = rule->op ? rule->op : said->op;
    *class_ = said->op && comm_op_is_p2p(said->op) ? SPAN_P2P : rule->class_;
    return true;
}
