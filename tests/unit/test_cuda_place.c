/*
 * test_cuda_place.c - which GPU a rank takes, and what is said when there is none.
 */
#include "exec/cuda_comm_place.h"
#include "tests/check.h"

static bool place(int *device, uint32_t local_rank, GpuView view, Err *err)
{
    RankPlace p = {
        .rank = 8 + local_rank, .world = 16, .local_rank = local_rank, .local_n = 8
    };
    *err = (Err){ 0 };
    *device = -1;
    return place_gpu(device, &p, &view, err);
}

static void every_local_rank_has_a_gpu(void)
{
    Err err;
    int device;
    for (uint32_t r = 0; r < 8; r++) {
        CHECK(place(&device, r, (GpuView){ .devices_n = 8 }, &err));
        CHECK_INT((int)r, device);
    }
}

/* srun --gpus-per-task 1: each process sees its own as number 0. */
static void one_gpu_that_the_launcher_chose_is_taken(void)
{
    Err err;
    int device;
    CHECK(place(&device, 5, (GpuView){ .devices_n = 1, .visible = "5" }, &err));
    CHECK_INT(0, device);
    CHECK(place(&device, 0, (GpuView){ .devices_n = 1, .visible = "GPU-1234" }, &err));
    CHECK_INT(0, device);
}

static void too_few_gpus_are_named(void)
{
    Err err;
    int device;
    CHECK(!place(&device, 4, (GpuView){ .devices_n = 4 }, &err));
    CHECK_STR("rank 12 is number 5 of those started on this host, and CUDA shows 4 GPUs here: "
              "start at most as many ranks as there are GPUs, or run them all on one with "
              "--comm loop",
              err.text);
    CHECK(!place(&device, 1, (GpuView){ .devices_n = 1 }, &err));
    CHECK_ERR_TEXT(&err, "CUDA shows 1 GPU here: ");
    CHECK(!place(&device, 2, (GpuView){ .devices_n = 2, .visible = "2,3" }, &err));
    CHECK_ERR_TEXT(&err, "CUDA shows 2 GPUs here, of CUDA_VISIBLE_DEVICES=2,3: ");
    /* an empty list of devices is no choice of one */
    CHECK(!place(&device, 1, (GpuView){ .devices_n = 1, .visible = "" }, &err));
}

static void ranks_share_a_gpu_where_that_is_asked_for(void)
{
    Err err;
    int device;
    CHECK(place(&device, 5, (GpuView){ .devices_n = 2, .host_id = "h5" }, &err));
    CHECK_INT(1, device);
    CHECK(place(&device, 5, (GpuView){ .devices_n = 2, .loop = true }, &err));
    CHECK_INT(0, device);
}

static void one_rank_takes_the_first(void)
{
    Err err = { 0 };
    int device = -1;
    RankPlace p = { .world = 1, .local_rank = 3 };
    CHECK(place_gpu(&device, &p, &(GpuView){ .devices_n = 1 }, &err));
    CHECK_INT(0, device);
}

static void said(const char *sentence, int error, int driver, const char *visible)
{
    Err err = { 0 };
    CHECK(!place_no_gpu(error, "the text of CUDA", driver, 13000, visible, &err));
    CHECK_STR(sentence, err.text);
}

static void no_gpu_is_explained(void)
{
    said("there is no NVIDIA driver", 35, 0, NULL);
    said(
        "the NVIDIA driver is too old: it goes up to CUDA 12.4, the plugin was built with 13.0",
        35, 12040, NULL);
    said("there is an NVIDIA driver, but no GPU that it could use", 100, 13000, NULL);
    said("CUDA shows no GPU here: CUDA_VISIBLE_DEVICES is ''", 100, 13000, "");
    said("the libcuda.so.1 that is found is the toolkit's stub, no driver: take its folder out "
         "of LD_LIBRARY_PATH",
         34, 0, NULL);
    said("CUDA finds no GPU: the text of CUDA", 999, 13000, NULL);
}

int main(void)
{
    RUN(every_local_rank_has_a_gpu);
    RUN(one_gpu_that_the_launcher_chose_is_taken);
    RUN(too_few_gpus_are_named);
    RUN(ranks_share_a_gpu_where_that_is_asked_for);
    RUN(one_rank_takes_the_first);
    RUN(no_gpu_is_explained);
    return check_report();
}
