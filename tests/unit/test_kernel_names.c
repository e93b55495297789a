/*
 * test_kernel_names.c - what kernels of the wild are: communication, sends, or work.
 *
 * The names are those that profilers show of PyTorch, its compilers, Megatron, DeepSpeed,
 * the inference engines, cuBLAS, cuDNN, ROCm's libraries and XLA; the long ones are cut at
 * their arguments.
 */
#include "tests/check.h"
#include "traces/rules.h"

static const char *const communication[] = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclWorkElem)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_ReduceScatter_RING_SIMPLE_Sum___nv_bfloat16(ncclDevComm*, unsigned long, "
    "ncclWork*)",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_Reduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_AllReduce_NVLS_SIMPLE_Sum_bf16(ncclDevComm*)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_PAT_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs)",
    "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclAllReduceTreeLLKernel_sum_f16(ncclColl)",
    "ncclReduceScatterRingLLKernel_sum_f32(ncclColl)",
    "ncclAllGatherRingLLKernel_copy_i8(ncclColl)",
    "ncclBroadcastRingLLKernel_copy_i8(ncclColl)",
    "ncclAllToAllPivotKernel_copy_i8",
    "rcclGenericKernel(ncclDevComm*, channelMasks, ncclWork*)",
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "mscclKernel_Sum_f32_LL128(ncclDevComm*)",
    "void mscclpp::collective::allreduce7<__half>(...)",
    "mscclpp_allreduce8",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(...)",
    "void deep_ep::internode::dispatch<true, 8, false, 7>(...)",
    "void deep_ep::internode_ll::dispatch<true, false, 3, 10, 7168>(...)",
    "void deep_ep::internode_ll::combine<3, 10, 7168, 9>(...)",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, "
    "vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)",
    "void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*)",
    "void sglang::cross_device_reduce_1stage<__half, 2>()",
    "void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(...)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8, "
    "true>(tensorrt_llm::kernels::AllReduceParams)",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, false>(...)",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<...>",
    "void tensorrt_llm::kernels::mnnvl::twoshotAllreduceKernel<...>",
    "void c10d::symmetric_memory::(anonymous "
    "namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(...)",
    "void c10d::symmetric_memory::(anonymous "
    "namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(...)",
    "void c10d::symmetric_memory::(anonymous "
    "namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)",
    "void at::native::(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, "
    "16>(...)",
    "multimem_all_gather_kernel(char*, char*, unsigned long)",
    "multimem_one_shot_all_reduce_kernel",
    "multimem_all_reduce_triton",
    "nvshmem_put_kernel",
    "void nvshmemi_transfer_rma_on_stream_kernel(...)",
    "nvshmemi_proxy_rma_entrypoint",
    "void nvshmemi_barrier_on_stream_kernel_threadgroup<...>",
    "userbuffers_fp16_sum_inplace_gpu_rw(...)",
    "void userbuffers_fp16_sum_inplace_gpu_mc<8>(...)",
    "void transformer_engine::userbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "kuserbuffers_pushsendrecv(int, int, int, int*)",
    "kuserbuffers_pullrecv(int, int, int*)",
    "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(...)",
    "void mori::moe::EpCombineInterNodeKernel<__hip_bfloat16>(...)",
    "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<...>",
    "void hybrid_ep::dispatch_kernel<...>",
    "oneccl_allreduce_small",
    "hcclAllReduce",
    "ncclAllToAllPivotKernel_copy_i8(ncclColl)",
    "ncclKernel_AllToAllPivot_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "void "
    "tensorrt_llm::kernels::moe_comm::moeAllToAllKernel(tensorrt_llm::kernels::"
    "FusedMoeCommKernelParam)",
    "void tensorrt_llm::kernels::lamportStyleOneShotAllReduceNormKernel<__nv_bfloat16, 8>",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshot_allreduce_kernel<8, __nv_bfloat16>",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>",
    "a2a_dispatch_send_kernel",
    "a2a_combine_recv_kernel",
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**, unsigned long, int, int, "
    "unsigned long)",
    "void c10d::symmetric_memory::put_signal_kernel(unsigned int**, unsigned long, int, int, "
    "unsigned long)",
    "void stream_executor::gpu::(anonymous namespace)::OneShotAllReduceKernelImpl<float>",
    "void stream_executor::gpu::AllReduceKernelImpl<float>",
    "RaggedAllToAllKernelImpl",
    "ncclKernelCtranAllGather",
};

static const char *const sends[] = {
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSendRecvKernel_copy_i8(ncclColl)",
};

static const char *const work[] = {
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_"
    "tensor16x8x16_kernel",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
    "ampere_sgemm_128x64_tn",
    "volta_sgemm_128x64_nn",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_tn",
    "maxwell_scudnn_128x64_relu_interior_nn_v1",
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8",
    "void "
    "cutlass::Kernel<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align8>("
    "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align8::Params)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, "
    "int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::"
    "MainloopSm90TmaGmmaWarpSpecialized<4>>>>(...)",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
    "nvjet_tst_256x128_64x4_2x1_v_bz_TNN",
    "nvjet_sm100_tst_mma_128x256x64_4_48x128x64_cga1x2x1_TNN",
    "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, "
    "16, 4, 4, false, false, cublasGemvParamsEx<int, "
    "cublasGemvTensorStridedBatched<__nv_bfloat16 const>>>(...)",
    "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(...)",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, "
    "true, false>(cublasSplitKParams<float>, float const*, __nv_bfloat16 const*)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>(...)",
    "void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true>",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float "
    "const>>>(...)",
    "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(...)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t>>(Flash_fwd_params)",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, "
    "4>>(pytorch_flash::Flash_fwd_params)",
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, "
    "false, cutlass::bfloat16_t>, 4, 3, true>(Flash_fwd_params)",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>(...)",
    "void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128>>(Flash_bwd_params)",
    "void "
    "cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>(...)",
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, "
    "cute::C<128>>>>(...)",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_"
    "kernel0_0",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_bf16_knob_11",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass:"
    ":bfloat16_t, cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)",
    "fmha_cutlassB_f16_aligned_64x64_k64_sm80(...)",
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<...>",
    "void flashinfer::PersistentVariableLengthMergeStatesKernel<...>",
    "void vllm::paged_attention_v2_kernel<...>",
    "void vllm::paged_attention_v2_reduce_kernel<__half, 128>",
    "void vllm::act_and_mul_kernel<c10::BFloat16, &(vllm::silu_kernel)>",
    "void vllm::rms_norm_kernel<c10::BFloat16>(...)",
    "void vllm::moe::topkGatingSoftmax<...>",
    "void vllm::moe::moe_align_block_size_kernel<int>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>>(int, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>)",
    "void "
    "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
    "TensorIteratorBase&)::{lambda()#3}>",
    "void at::native::elementwise_kernel<128, 4, "
    "at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
    ">",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
    "at::native::func_wrapper_t<float>>>",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<4>, at::native::(anonymous "
    "namespace)::FusedAdamMathFunctor<float>>",
    "void at::native::(anonymous "
    "namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous "
    "namespace)::OpaqueType<2u>, unsigned int, 2, 128, 1>",
    "void at::native::(anonymous "
    "namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel",
    "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<...>",
    "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<...>",
    "void at::native::index_elementwise_kernel<128, 4, ...>",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8, "
    "at::native::_cuda_scatter_gather_internal_kernel<true, at::native::OpaqueType<8>>>",
    "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, "
    "false, false>",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, "
    "float>",
    "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, "
    "float, long>",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, "
    "float>",
    "void at::native::(anonymous "
    "namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<...>",
    "void at::native::triu_tril_cuda_template<bool>",
    "void at::native::(anonymous "
    "namespace)::distribution_elementwise_grid_stride_kernel<float, 4>",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16>",
    "void at::native::batch_norm_collect_statistics_channels_last_kernel",
    "void at::native::batch_norm_reduce_statistics_kernel",
    "void at::native::im2col_kernel<float>",
    "void at::native::radixSortKVInPlace<...>",
    "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<...>",
    "void at_cuda_detail::cub::DeviceScanKernel<...>",
    "void cub::DeviceReduceSingleTileKernel<...>",
    "void cub::CUB_200302_800_NS::DeviceReduceKernel<...>",
    "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__reduce::ReduceAgent<...>>",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(...)",
    "void cudnn::batchnorm_bwtr_nhwc_semiPersist<...>",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, "
    "(cudnnKernelDataType_t)2>",
    "implicit_convolve_sgemm",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
    "sm80_xmma_dgrad_implicit_gemm_bf16",
    "sm80_xmma_wgrad_implicit_gemm_indexed",
    "_5x_cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
    "cask_cudnn_generated::xmma",
    "triton_poi_fused_add_gelu_0",
    "triton_red_fused__to_copy_native_layer_norm_1",
    "triton_per_fused_native_layer_norm_add_2",
    "triton_tem_fused_mm_3",
    "triton_poi_fused_all_gather_into_tensor_out_wait_tensor_4",
    "triton_poi_fused_cat_reduce_scatter_tensor_wait_tensor_12",
    "triton_red_fused_all_reduce_sum_5",
    "triton_poi_fused__to_copy_all_to_all_single_7",
    "triton_for_fused_18",
    "_layer_norm_fwd_1pass_kernel",
    "_rope_embedding",
    "_rms_layernorm_forward",
    "_attn_fwd",
    "fused_moe_kernel",
    "matmul_kernel",
    "liger_cross_entropy_kernel",
    "_swiglu_forward_kernel",
    "chunk_fwd_kernel_o",
    "_chunk_scan_fwd_kernel",
    "_state_passing_fwd_kernel",
    "void selective_scan_fwd_kernel<...>",
    "void causal_conv1d_fwd_kernel<...>",
    "void multi_tensor_apply_kernel<TensorListMetadata<2>, L2NormFunctor<float>, float*, "
    "float*, bool, int>",
    "void (anonymous namespace)::multi_tensor_apply_kernel<AdamFunctorMaster<...>>",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, "
    "...>",
    "void scaled_upper_triang_masked_softmax_warp_forward<__half, __half, float, 11>",
    "void cuApplyLayerNorm<c10::BFloat16, float, c10::BFloat16>",
    "void cuComputePartGradGammaBeta<float, float>",
    "void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16, ...>>",
    "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<...>",
    "void transformer_engine::(anonymous namespace)::cast_transpose_kernel<...>",
    "void transformer_engine::detail::cast_transpose_fused_kernel_notaligned<...>",
    "void transformer_engine::delayed_scaling_recipe::amax_and_scale_update::kernel_bulk",
    "void transformer_engine::fused_rope_forward_kernel<...>",
    "void permute_kernel<__nv_bfloat16>",
    "void unpermute_kernel",
    "void moe_permute_kernel",
    "void deep_gemm::fp8_gemm_kernel<4096, 7168, 128, 128, 128, 1, 5, 1, true>",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<...>",
    "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100",
    "void marlin::Marlin<256, 4, 16, 4>",
    "void bitsandbytes::kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>",
    "kgemm_4bit_inference_naive",
    "kQuantizeBlockwise",
    "void dequantize_reduction<2, 8>",
    "void fused_bias_gelu<__half>",
    "void apply_quantization",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI32x32x8x1_SE_1LDSB0",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1",
    "void ck::kernel_gemm_xdlops_v2r3<...>",
    "ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<...>>",
    "attn_fwd.kd",
    "miopenSp3AsmConv_v30_3_1_gfx90a_fp16_dot2_edc_f2x3_dilate2",
    "MIOpenBatchNormFwdTrainSpatial",
    "void rocprim::detail::reduce_kernel",
    "aiter::fmha_fwd_hd128_bf16_causal",
    "fusion_123",
    "loop_add_fusion_2",
    "input_reduce_fusion",
    "wrapped_reduce",
    "gemm_fusion_dot_17",
    "void tensorflow::functor::ColumnReduceKernel<...>",
    "void Eigen::internal::EigenMetaKernel<...>",
    "redzone_checker",
    "input_scatter_fusion",
    "loop_broadcast_fusion",
    "void c10d::checkForNaN<float>(...)",
    "void gatherTopK<float, unsigned int, 2, false>",
    "void sbtopk::gatherTopK",
    "void vectorized_gather_kernel",
    "void fbgemm_gpu::permute_2D_lengths",
    "split_embedding_codegen_forward_weighted_kernel",
    "void bounds_check_indices_kernel<long>",
    "void at::native::bernoulli_scalar",
    "void convertTensor_kernel<float, __half, float, (cublasMathMode)>",
    "void LSTM_elementWise_fp",
    "RNN_blockPersist_fp_LSTM",
    "void fft2d_r2c_32x32<float>",
    "vector_fft",
    "spmm_csr",
    "cusparse::csrmm",
    "magma_sgemm",
};

static Rules rules;

static SpanClass class_of(const char *kernel)
{
    uint32_t match;
    SpanClass class_ = SPAN_COMPUTE;
    KernelComm said;
    return rules_comm(&rules, kernel, &match, &class_, &said) ? class_ : SPAN_COMPUTE;
}

static void check_all(const char *const *kernels, size_t n, SpanClass class_)
{
    for (size_t i = 0; i < n; i++)
        if (!CHECK_INT(class_, class_of(kernels[i])))
            fprintf(stderr, "    %s\n", kernels[i]);
}

static void communication_is_known_by_name(void)
{
    check_all(communication, ARRAY_N(communication), SPAN_COMM);
    check_all(sends, ARRAY_N(sends), SPAN_P2P);
}

static void work_is_not_taken_for_communication(void)
{
    check_all(work, ARRAY_N(work), SPAN_COMPUTE);
}

static void exchanges_are_named_so(void)
{
    static const char *const exchanges[] = {
        "ncclAllToAllPivotKernel_copy_i8(ncclColl)",
        "ncclKernel_AllToAllPivot_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
    };
    for (size_t i = 0; i < ARRAY_N(exchanges); i++) {
        KernelComm said = kernel_comm(exchanges[i]);
        CHECK_STR("all_to_all", said.op ? said.op : "");
    }
}

int main(void)
{
    Err err = { 0 };
    if (!rules_read(&rules, NULL, 0, &err))
        return 1;
    RUN(communication_is_known_by_name);
    RUN(work_is_not_taken_for_communication);
    RUN(exchanges_are_named_so);
    rules_free(&rules);
    return check_report();
}
