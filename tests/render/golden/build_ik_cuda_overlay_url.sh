#!/bin/sh
# Builds ik_llama.cpp as ik_llama.cpp-e27c3d4e93b7. Runs in a unit of its own as user llama-build, so that a lost connection does
<<< build_llama_cpp_cpu.sh: # not stop it. All happens in $work; what is finished has a manifest, which is written last.
>>> archive=$cache/sources/abababababababababababababababababababababababababababababababab
if [ ! -f "$archive" ]; then
    fetch curl -q -gfsSL --connect-timeout 30 --speed-limit 512 --speed-time 60 --max-time 3600 \
        --retry 3 --retry-max-time 3600 -o "$archive.$$" https://mirror.lan/ik.tar.gz ||
        fail "cannot fetch "https://mirror.lan/ik.tar.gz": $(tail -n 1 "$work/fetch.log")"
    mv "$archive.$$" "$archive"
fi
have=$(sha256sum "$archive" | cut -d ' ' -f 1)
if [ "$have" != abababababababababababababababababababababababababababababababab ]; then
    rm -f "$archive"
    fail ik.tar.gz" has sha256 $have, the inventory says abababababababababababababababababababababababababababababababab"
fi
tar -C source -xf "$archive" || fail ik.tar.gz" is no archive that tar can read"
source=$work/source/ik
[ -f "$source/CMakeLists.txt" ] || fail "there is no CMakeLists.txt in folder '"ik"' of the source"
mkdir -p "$(dirname "$source"/common/build-info.cpp)"
printf '%s' 'int N = 1;
char const *C = "it'"'"'s";
' >"$source"/common/build-info.cpp

# As many jobs as cores, but no more than memory holds: a compiler that swaps takes the whole machine with it.
cores=$(nproc)
memory=$(awk '/^MemAvailable:/ {printf "%d", $2 * 1024}' /proc/meminfo)
jobs=$((memory / 6442450944))
<<< build_llama_cpp_cpu.sh: [ "$jobs" -ge 1 ] || jobs=1
>>>     -DGGML_CCACHE=ON \
    -DGGML_IQK_FA_ALL_QUANTS=ON \
    -DLLAMA_BUILD_TESTS=OFF \
    -DGGML_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES=86 \
    -DGGML_CUDA_FA_ALL_QUANTS=ON \
    -DCMAKE_CUDA_COMPILER=/usr/local/cuda-13.0/bin/nvcc \
    -DEXTRA='a b' \
    -DGGML_AVX512=ON \
    -DGGML_LTO=OFF \
    >configure.log 2>&1 || fail "CMake cannot configure it; the log is /var/lib/llamaherd/work/ik_llama.cpp-e27c3d4e93b7/configure.log"
<<< build_llama_cpp_cpu.sh: unused=$(awk '/variables were not used by the project:/ {on = 1; next} on && NF {printf "%s ", $1}' configure.log)
>>> [ -z "$unused" ] || fail "this engine does not know these CMake options: $unused"
cmake --build tree -j "$jobs" --target llama-server >build.log 2>&1 ||
    fail "it does not compile; the log is /var/lib/llamaherd/work/ik_llama.cpp-e27c3d4e93b7/build.log"
for target in llama-server; do
    cp "tree/bin/$target" out/bin/
done
timeout 300 out/bin/llama-server --version >version.log 2>&1 || fail "the server that was built does not start; see /var/lib/llamaherd/work/ik_llama.cpp-e27c3d4e93b7/version.log"
# This engine only warns when CUDA is missing, builds for the CPU, and has no --list-devices.
grep -q 'CUDA not found' configure.log && fail "CUDA 13.0 was not found, so that the build is for the CPU alone"
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || fail "this is a CUDA build, but there is no CUDA device on this host"

line() { tr -d '"\\' | head -n 1; }
{
    printf '%s' '{"id": "ik_llama.cpp-e27c3d4e93b7", "kind": "ik_llama.cpp", "source": {"archive": "ik.tar.gz", "sha256": "abababababababababababababababababababababababababababababababab"}, "options": {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "GGML_CCACHE": "ON", "GGML_IQK_FA_ALL_QUANTS": "ON", "LLAMA_BUILD_TESTS": "OFF", "GGML_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "86", "GGML_CUDA_FA_ALL_QUANTS": "ON", "CMAKE_CUDA_COMPILER": "/usr/local/cuda-13.0/bin/nvcc", "EXTRA": "a b", "GGML_AVX512": "ON", "GGML_LTO": "OFF"}'
<<< build_llama_cpp_cuda_git.sh:     printf ', "compiler": "%s"' "$(c++ --version | line)"
>>> mv out/manifest.json.part out/manifest.json
