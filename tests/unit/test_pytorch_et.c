/* PyTorch execution traces of both ages: what they say, and that they are no timeline. */
#include "tests/check.h"
#include "traces/pytorch_et.h"

#include <unistd.h>

static PytorchEt et;
static Err err;

static bool parse(const char *text)
{
    pytorch_et_free(&et);
    err = (Err){ 0 };
    return pytorch_et_parse(&et, text, strlen(text), "x", &err);
}

static const char old_text[] =
    "{\"schema\": \"1.0.1\", \"pid\": 7, \"start_ts\": 1, \"nodes\": [\n"
    " {\"name\": \"aten::mm\", \"id\": 5, \"op_schema\": \"aten::mm(Tensor a)\", \"inputs\": "
    "[]},\n"
    " {\"name\": \"nccl:all_reduce\", \"id\": 151, \"op_schema\": \"\",\n"
    "  \"inputs\": [[131, 132, 0, 33554432, 2, \"cuda:0\"]]},\n"
    " {\"name\": \"nccl:_allgather_base\", \"id\": 152,\n"
    "  \"inputs\": [[[1, 2, 0, 10, 4, \"cuda:0\"], [1, 2, 0, 5, 4, \"cuda:0\"]], 3]}]}";

static const char new_text[] =
    "{\"schema\": \"1.1.0-chakra.0.0.4\", \"pid\": 7, \"nodes\": [\n"
    " {\"name\": \"record_param_comms\", \"id\": 9, \"ctrl_deps\": 2,\n"
    "  \"inputs\": {\"values\": [[3, 4, 0, 100, 2, \"cuda:0\"]], \"shapes\": [[100]]},\n"
    "  \"attrs\": [{\"name\": \"op_schema\", \"type\": \"string\", \"value\": \"\"},\n"
    "   {\"name\": \"collective_name\", \"type\": \"string\", \"value\": \"allreduce\"},\n"
    "   {\"name\": \"pg_name\", \"type\": \"string\", \"value\": \"0\"}]},\n"
    " {\"name\": \"record_param_comms\", \"id\": 10, \"attrs\":\n"
    "   [{\"name\": \"collective_name\", \"value\": \"wait\"}]}]}";

static const char *text_of(uint32_t id)
{
    return id == NONE_U32 ? "" : intern_text(&et.names, id);
}

static void old_traces_name_their_collectives(void)
{
    if (!CHECK(parse(old_text)))
        return;
    CHECK_STR("1.0.1", text_of(et.schema));
    CHECK_U64(7, et.pid);
    CHECK_U64(3, et.nodes_n);
    CHECK_U64(1, et.operators_n);
    CHECK_INT(2, et.comms_n);
    CHECK_STR("all_reduce", text_of(et.comms[0].op));
    CHECK_U64(67108864, et.comms[0].bytes);
    CHECK_U64(151, et.comms[0].node);
    CHECK_STR("all_gather", text_of(et.comms[1].op));
    CHECK_U64(60, et.comms[1].bytes);
}

static void new_traces_have_them_in_attributes(void)
{
    if (!CHECK(parse(new_text)))
        return;
    CHECK_INT(1, et.comms_n);
    CHECK_STR("all_reduce", text_of(et.comms[0].op));
    CHECK_STR("0", text_of(et.comms[0].group));
    CHECK_U64(200, et.comms[0].bytes);
}

static void bad_ones_are_refused_in_a_sentence(void)
{
    CHECK(!parse("{\"schema\": \"1.0.1\", \"nodes\": 3}"));
    CHECK_ERR_TEXT(&err, "x: nodes: a list of nodes is expected, not a number");
    CHECK(!parse("{\"schema\": \"1.0.1\", \"nodes\": [3]}"));
    CHECK_ERR_TEXT(&err, "x: nodes[0]: a node is an object, not a number");
    CHECK(!parse("{\"schema\": \"1.0.1\", \"nodes\": ["));
    CHECK(err.set);
    CHECK(parse(
        "{\"schema\": 1, \"nodes\": [{}, {\"name\": \"nccl:x\", \"inputs\": [[1, 2]]}]}"));
    CHECK_U64(NONE_U64, et.comms[0].bytes);
}

static void they_are_known_by_their_beginning(void)
{
    CHECK(pytorch_et_matches((const uint8_t *)old_text, sizeof old_text));
    CHECK(pytorch_et_matches((const uint8_t *)new_text, sizeof new_text));
    static const char kineto[] = "{\"schemaVersion\": 1, \"traceEvents\": [{\"nodes\": 1}]}";
    CHECK(!pytorch_et_matches((const uint8_t *)kineto, sizeof kineto));
}

/* 81 all-reduces of 64 MiB stand in it, as in the Kineto trace of the same rank. */
static void the_real_one_is_whole(void)
{
    static const char path[] = "../shared/data/traces/megatron-tp8/pytorch_et_rank0.json.gz";
    if (access(path, R_OK) != 0) {
        printf("test_pytorch_et: %s is not here, skipped\n", path);
        return;
    }
    pytorch_et_free(&et);
    err = (Err){ 0 };
    if (!CHECK(pytorch_et_read(&et, path, &err)))
        return;
    CHECK_U64(5424, et.nodes_n);
    uint32_t large = 0;
    for (uint32_t i = 0; i < et.comms_n; i++)
        large +=
            et.comms[i].bytes == 64 * MIB && strcmp(text_of(et.comms[i].op), "all_reduce") == 0;
    CHECK_INT(81, large);

    Timeline t;
    CHECK(!pytorch_et_open(&t, path, &err));
    CHECK_ERR_TEXT(&err, "a PyTorch execution trace has no times (schema 1.0.1, 5424 nodes");
    CHECK_U64(0, t.spans_n);
}

int main(void)
{
    RUN(old_traces_name_their_collectives);
    RUN(new_traces_have_them_in_attributes);
    RUN(bad_ones_are_refused_in_a_sentence);
    RUN(they_are_known_by_their_beginning);
    RUN(the_real_one_is_whole);
    pytorch_et_free(&et);
    return check_report();
}
