#!/bin/sh
# Builds ik_llama.cpp as ik_llama.cpp-8297dd493353. Runs in a unit of its own as user llama-build, so that a lost connection does
<<< build_llama_cpp_cpu.sh: # not stop it. All happens in $work; what is finished has a manifest, which is written last.
>>> memory=$(awk '/^MemAvailable:/ {printf "%d", $2 * 1024}' /proc/meminfo)
jobs=$((memory / 3221225472))
<<< build_ik_cuda_overlay_url.sh: [ "$jobs" -ge 1 ] || jobs=1
>>>     -DLLAMA_BUILD_TESTS=OFF \
    >configure.log 2>&1 || fail "CMake cannot configure it; the log is /var/lib/llamaherd/work/ik_llama.cpp-8297dd493353/configure.log"
<<< build_ik_cuda_overlay_url.sh: unused=$(awk '/variables were not used by the project:/ {on = 1; next} on && NF {printf "%s ", $1}' configure.log)
>>> cmake --build tree -j "$jobs" --target llama-server >build.log 2>&1 ||
    fail "it does not compile; the log is /var/lib/llamaherd/work/ik_llama.cpp-8297dd493353/build.log"
for target in llama-server; do
    cp "tree/bin/$target" out/bin/
done
timeout 300 out/bin/llama-server --version >version.log 2>&1 || fail "the server that was built does not start; see /var/lib/llamaherd/work/ik_llama.cpp-8297dd493353/version.log"

line() { tr -d '"\\' | head -n 1; }
{
    printf '%s' '{"id": "ik_llama.cpp-8297dd493353", "kind": "ik_llama.cpp", "source": {"archive": "llama.tar.gz", "sha256": "abababababababababababababababababababababababababababababababab"}, "options": {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "GGML_CCACHE": "ON", "GGML_IQK_FA_ALL_QUANTS": "ON", "LLAMA_BUILD_TESTS": "OFF"}'
<<< build_llama_cpp_cpu.sh:     printf ', "compiler": "%s"' "$(c++ --version | line)"
>>> mv out/manifest.json.part out/manifest.json
