/*
 * machine_parts.h - what the machine_*.c files tell each other; nobody else includes it.
 *
 * A cluster or GPU is read in layers: {"base": NAME, keys} first reads NAME, then
 * lays its own keys over it.  Until every layer has been read a value that nobody
 * gave is NAN, -1 or 0 (whichever the field cannot be); the settle functions then
 * put in the defaults and write them to the log of sim --explain.
 */
#ifndef LOCKSTEP_CORE_MACHINE_PARTS_H
#define LOCKSTEP_CORE_MACHINE_PARTS_H

#include "core/machine.h"

enum { MACHINE_LAYERS_MAX = 8 }; /* bases of bases; a file that names itself ends here */

/* What all readers of one cluster share. */
typedef struct MachineReader {
    Arena *arena; /* of the result */
    const char *share_dir;
    Err *err;
} MachineReader;

/*
 * Opens what a string node names in share_dir/folder ("gpus", "clusters"), by
 * name, alias or path; small letters and capitals are the same in names.  NULL and err on failure.
 */
JsonDoc *machine_open(const MachineReader *r, JsonNode name, const char *folder);

/* Getters that leave *x alone when the key is absent. */
void take_number(JsonObj *o, const char *key, double min, double max, double *x);
void take_u32(JsonObj *o, const char *key, uint32_t min, uint32_t max, uint32_t *x);
void take_us(JsonObj *o, const char *key, int64_t *ns);
/* One number for all three protocols, or {"LL", "LL128", "Simple"}. */
void take_protocols(JsonObj *o, const char *key, int64_t ns[PROTOCOL_N]);
/* A number, or a list of [ranks, number]; scale: of what is in the file. */
void take_curve(JsonObj *o, const char *key, double min, double max, double scale,
                RankCurve *curve);
/* Texts of "provenance", which may be an object of texts, as one line after what *line says. */
void take_provenance(JsonObj *o, Arena *arena, const char **line);
/* "notes" and the like: any value, for people. */
void skip_key(JsonObj *o, const char *key);

/* *x := value, logged as the default of key below node, where *x is not given. */
void settle_number(double *x, double value, JsonNode node, const char *key);
void settle_us(int64_t *ns, int64_t value_ns, JsonNode node, const char *key);

/* ---- GPU ---- */

Gpu gpu_blank(void);
/* Lays a name or object over *g.  An object without "base" changes what *g already says. */
bool gpu_layer(const MachineReader *r, Gpu *g, JsonNode node);
bool gpu_settle(Arena *arena, Gpu *g, JsonNode node, Err *err);
/* "kernels": tables that are given replace those of the layers below. */
bool gpu_tables(const MachineReader *r, Gpu *g, JsonNode node);

/* ---- links ---- */

IntraNode intra_blank(void);
InterNode inter_blank(void);
/* Defaults by kind of link, GPUs of a node and their generation; node is the cluster. */
void intra_settle(IntraNode *in, uint32_t gpus_n, const Gpu *gpu, bool ideal, JsonNode node);
void inter_settle(Machine *m, JsonNode node);
void base_settle(Machine *m, JsonNode node);

/* "measured" of "collectives": replaces what the layers below said. */
void take_measured(const MachineReader *r, JsonObj *o, MeasuredCollective **list, uint32_t *n);

#endif
