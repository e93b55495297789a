# trained.sh - what is trained for speed; sourced by speed.sh and run.sh.
# shellcheck shell=bash

# "model batch seq vocabulary" a line.  GPT-2's vocabulary is that of torch_train.py, which pads it:
# rows of logits are then multiples of 16 bytes.
trained='gpt2 16 1024 50304
tinyllama-1.1b 4 2048 32000'

# trained_scenario MODEL BATCH SEQ GPU: one GPU, bf16; the vocabulary is for --set
trained_scenario() {
    printf '{"name":"%s","model":"%s","cluster":{"base":"dgx-h100","nodes":1,"gpus_per_node":1,
        "gpu":"%s"},"training":{"global_batch":%s,"micro_batch":%s,"seq_len":%s,
        "precision":"bf16","optimizer":"adamw","lr":6e-4},"parallel":{"strategy":"single"}}\n' \
        "$1" "$1" "$4" "$2" "$2" "$3"
}
