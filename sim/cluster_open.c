/* cluster_open.c - the cluster object {"base": NAME} with what was set, read like any other. */
#include "sim/cluster_open.h"

#include <stdlib.h>
#include <string.h>

#include "core/json_out.h"
#include "core/share.h"

/* As JSON, whatever is in the name: by itself, or as the base of an object with keys; NULL: it
 * cannot be written. */
static char *text_of(const char *name, bool keys)
{
    char *text = NULL;
    size_t n = 0;
    Err ignored = { 0 };
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    JsonOut j = json_out_file(f, 0);
    if (keys) {
        json_out_open(&j, '{');
        json_put_text(&j, "base", name);
        json_out_close(&j, '}');
    } else {
        json_out_string(&j, name);
    }
    json_out_end(&j, &ignored);
    fclose(f);
    return text;
}

static bool set_all(JsonDoc *doc, uint32_t nodes_n, const Setting *settings,
                    uint32_t settings_n, Err *err)
{
    char nodes[16];
    snprintf(nodes, sizeof nodes, "%u", (unsigned)nodes_n);
    for (uint32_t i = 0; i < settings_n; i++)
        if (!json_set(doc, settings[i].key, settings[i].value, err))
            return false;
    return nodes_n == 0 || json_set(doc, "nodes", nodes, err);
}

bool cluster_open(Machine *m, const char *name, uint32_t nodes_n, const Setting *settings,
                  uint32_t settings_n, Err *err)
{
    *m = (Machine){ 0 };
    char *text = text_of(name, nodes_n > 0 || settings_n > 0);
    if (!text)
        return err_set(err, "out of memory");
    JsonDoc *doc = json_parse(text, strlen(text), "cluster", err);
    bool ok = doc && set_all(doc, nodes_n, settings, settings_n, err) &&
              machine_read(m, json_root(doc), share_dir(), err);
    json_close(doc);
    free(text);
    return ok;
}
