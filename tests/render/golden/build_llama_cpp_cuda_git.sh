#!/bin/sh
# Builds llama.cpp as llama.cpp-1e5a4c321023. Runs in a unit of its own as user llama-build, so that a lost connection does
<<< build_llama_cpp_cpu.sh: # not stop it. All happens in $work; what is finished has a manifest, which is written last.
>>> began=$(date +%s)
git init -q source
fetch git -C source -c http.lowSpeedLimit=512 -c http.lowSpeedTime=60 fetch -q --depth 1 https://git.lan/llama.cpp cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd ||
    fail "cannot fetch commit cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd from "https://git.lan/llama.cpp": $(tail -n 1 "$work/fetch.log")"
git -C source checkout -q FETCH_HEAD
source=$work/source/''
[ -f "$source/CMakeLists.txt" ] || fail "there is no CMakeLists.txt in folder '"''"' of the source"

# As many jobs as cores, but no more than memory holds: a compiler that swaps takes the whole machine with it.
cores=$(nproc)
memory=$(awk '/^MemAvailable:/ {printf "%d", $2 * 1024}' /proc/meminfo)
jobs=$((memory / 2147483648))
<<< build_llama_cpp_cpu.sh: [ "$jobs" -ge 1 ] || jobs=1
>>>     -DLLAMA_USE_PREBUILT_UI=OFF \
    -DGGML_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES='86;120' \
    -DGGML_CUDA_FA_QUANTS=all \
    -DCMAKE_CUDA_COMPILER=/usr/local/cuda-13.0/bin/nvcc \
    >configure.log 2>&1 || fail "CMake cannot configure it; the log is /var/lib/llamaherd/work/llama.cpp-1e5a4c321023/configure.log"
<<< build_llama_cpp_cpu.sh: unused=$(awk '/variables were not used by the project:/ {on = 1; next} on && NF {printf "%s ", $1}' configure.log)
>>> cmake --build tree -j "$jobs" --target llama-server llama-fit-params >build.log 2>&1 ||
    fail "it does not compile; the log is /var/lib/llamaherd/work/llama.cpp-1e5a4c321023/build.log"
for target in llama-server llama-fit-params; do
    cp "tree/bin/$target" out/bin/
done
timeout 300 out/bin/llama-server --version >version.log 2>&1 || fail "the server that was built does not start; see /var/lib/llamaherd/work/llama.cpp-1e5a4c321023/version.log"
# Its flags, without their descriptions: whoever checks arguments later knows what this build takes.
timeout 300 out/bin/llama-server --help >help.log 2>&1 || true
grep -aE '^--?[A-Za-z]' help.log | grep -v 'argument has been removed' | sed -E 's/  +[^- ].*$//; s/, +/,/g; s/ +$//' | head -c 64000 >out/flags
timeout 300 out/bin/llama-server --list-devices >devices.log 2>&1 || true
grep -q CUDA devices.log || fail "this is a CUDA build, but its server sees no CUDA device: is the driver loaded?"

line() { tr -d '"\\' | head -n 1; }
{
    printf '%s' '{"id": "llama.cpp-1e5a4c321023", "kind": "llama.cpp", "source": {"git": "https://git.lan/llama.cpp", "commit": "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"}, "options": {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "GGML_CCACHE": "ON", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF", "GGML_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "86;120", "GGML_CUDA_FA_QUANTS": "all", "CMAKE_CUDA_COMPILER": "/usr/local/cuda-13.0/bin/nvcc"}'
    printf ', "compiler": "%s"' "$(c++ --version | line)"
    printf ', "cuda": "%s"' "$(/usr/local/cuda-13.0/bin/nvcc --version | grep release | line)"
<<< build_llama_cpp_cpu.sh:     printf ', "version": "%s"' "$(grep -m 1 version version.log | line)"
>>> mv out/manifest.json.part out/manifest.json
