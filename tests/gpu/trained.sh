# trained.sh - what is trained for speed, and to see how far off predictions are; sourced by
# speed.sh and run.sh.
# shellcheck shell=bash

# "model batch seq vocabulary" a line.  GPT-2's vocabulary is that of torch_train.py, which pads it:
# rows of logits are then multiples of 16 bytes.
trained='gpt2 16 1024 50304
tinyllama-1.1b 4 2048 32000'

# What no calibration has seen, in the order of value: shapes between those that bench measures,
# recomputation, accumulation, f32.
swept='gpt2 4 1024 50304
gpt2 32 1024 50304
gpt2-medium 8 1024 50304
bert-large 16 512 30528
llama3.2-1b 2 2048 128256
gpt2 16 1024 50304 training.recompute=full
gpt2 16 1024 50304 training.global_batch=64
qwen2-0.5b 4 2048 151936
gpt2-xl 2 1024 50304
opt-125m 8 2048 50272
llama3.2-1b 1 8192 128256
tinyllama-1.1b 1 2048 32000
gpt2 1 1024 50304
gpt2-large 4 1024 50304
llama3.2-3b 1 4096 128256
gpt2 16 1024 50304 training.precision=f16
gpt2 4 1024 50304 training.precision=f32
gpt2-medium 32 256 50304 training.recompute=selective'

# trained_scenario MODEL BATCH SEQ GPU: one GPU, bf16; the vocabulary is for --set
trained_scenario() {
    printf '{"name":"%s","model":"%s","cluster":{"base":"dgx-h100","nodes":1,"gpus_per_node":1,
        "gpu":"%s"},"training":{"global_batch":%s,"micro_batch":%s,"seq_len":%s,
        "precision":"bf16","optimizer":"adamw","lr":6e-4},"parallel":{"strategy":"single"}}\n' \
        "$1" "$1" "$4" "$2" "$2" "$3"
}
